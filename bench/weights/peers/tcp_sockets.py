"""Reference: plain TCP sockets, one connection, `sendall` and `recv_into`. No verification."""

from __future__ import annotations

import socket
import sys
import time

from bytes_of import empty, ready, report, weights

PACKAGES = ("numpy",)


def send(size: int) -> None:
    data = memoryview(weights(size))
    with socket.create_server(("127.0.0.1", 0)) as server:
        ready(server.getsockname()[1])
        connection, _ = server.accept()
        while connection.recv(1):
            connection.sendall(data)


def receive(size: int, word: str, runs: int) -> None:
    target = empty(size)
    connection = socket.create_connection(("127.0.0.1", int(word)))

    def fetch() -> float:
        began, view = time.perf_counter(), memoryview(target)
        connection.sendall(b"1")
        while view:
            view = view[connection.recv_into(view) :]
        return time.perf_counter() - began

    report(fetch, target, runs)


if __name__ == "__main__":
    send(int(sys.argv[2])) if sys.argv[1] == "send" else receive(int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
