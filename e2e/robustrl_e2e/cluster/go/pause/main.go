// pause holds a pod's namespaces open until the pod is stopped.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for s := range signals {
		if s != syscall.SIGCHLD {
			return
		}
		// In a pod with one shared process namespace, pause is the init that orphans are handed to.
		for pid, err := 1, error(nil); pid > 0 && err == nil; pid, err = syscall.Wait4(-1, nil, syscall.WNOHANG, nil) {
		}
	}
}
