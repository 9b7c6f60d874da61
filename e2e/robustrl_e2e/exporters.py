"""GPU exporters for machines that have none: node agents on the development cluster read the pages that these show.

One server on the host plays the exporter of every node. Each of the job's pods holds a GPU of its node, and what the
GPUs and the exporters do is said by the test. The node agents, the operator and all between them are the real ones.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from robustrl_api.names import Role
from robustrl_e2e import cluster, stack
from robustrl_e2e.cluster.progress import START_SECONDS
from robustrl_e2e.cluster_job import ClusterJob
from robustrl_e2e.fake_exporter import IDLE, STUCK, WORKING, XID, Gpu, render
from robustrl_operator.faults.kind import Means

SHOWN = {Means.STICK_EXPORTERS: STUCK, Means.FALSIFY_EXPORTERS: IDLE}
OFF_THE_BUS = 79


class Exporters:
    """Those of all nodes. `http://HOST:PORT/ADDRESS OF THE NODE` is a page."""

    def __init__(self, job: ClusterJob) -> None:
        self._job = job
        self._silent = False
        self._values = WORKING
        self._broken: set[str] = set()

    def do(self, means: Means, pod: str) -> None:
        """Let exporters, or a pod's GPU, be as a fault has it."""
        if means is Means.BREAK_GPU:
            self._broken.add(pod)
        elif means is Means.SILENCE_EXPORTERS:
            self._silent = True
        else:
            self._values = SHOWN[means]

    def mend(self) -> None:
        self._silent, self._values = False, WORKING
        self._broken.clear()

    def page(self, address: str) -> str | None:
        """What a node's exporter shows; None where it does not answer, or there is no such node."""
        running = self._job.running
        node = next((name for name in running.node_names if running.worker(name).address == address), None)
        if self._silent or node is None:
            return None
        here = sorted(pod["name"] for pod in self._job.pods() if pod["node"] == node and pod["role"] != Role.MANAGER)
        gpus = [Gpu(index, ("default", pod), self._shown(pod)) for index, pod in enumerate(here)]
        return render(gpus, host=node)

    def _shown(self, pod: str) -> dict[str, float]:
        return {**self._values, XID: OFF_THE_BUS} if pod in self._broken else dict(self._values)


@contextlib.contextmanager
def watched(job: ClusterJob) -> Iterator[Exporters]:
    """A job whose nodes have agents that read exporters; afterwards there are none again."""
    exporters = Exporters(job)
    with _served(exporters, job.running.gateway) as url:
        cluster.load(job.running, cluster.built(stack.IMAGE))
        try:
            stack.install(job.running, "nodeAgent.enabled=true", f"nodeAgent.exporterUrl={url}/$(ROBUSTRL_NODE_IP)")
            _until_read(job)
            yield exporters
        finally:
            stack.install(job.running)


def _until_read(job: ClusterJob) -> None:
    """Wait until the operator has heard of every trainer's and rollout's GPU.

    Raises:
        TimeoutError: it has not, in time.
    """
    deadline = time.monotonic() + START_SECONDS
    while missing := _unread(job):
        if time.monotonic() > deadline:
            raise TimeoutError(f"the node agents have not told of every GPU within {START_SECONDS:.0f} s: {missing}")
        time.sleep(0.5)


def _unread(job: ClusterJob) -> str:
    """Whose GPU the operator has not heard of; it may be away, and nothing known of the job yet."""
    holders = [pod for pod in job.pods() if pod["role"] != Role.MANAGER]
    return ", ".join(pod["name"] for pod in holders if not pod["reading"]) if holders else "no pod is known"


@contextlib.contextmanager
def _served(exporters: Exporters, host: str) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = exporters.page(self.path.removeprefix("/"))
            if page is None:
                self.close_connection = True
                return
            body = page.encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            """Nothing: eight nodes ask every few seconds."""

    with ThreadingHTTPServer((host, 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, name="exporters", daemon=True)
        thread.start()
        try:
            yield f"http://{host}:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
