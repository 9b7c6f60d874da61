"""What faults can do to the local body's pods."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal

from robustrl.supervisor.proc_stat import PARENT, SESSION, read_stat
from robustrl_api.names import Role
from robustrl_operator.local.body import LocalBody
from robustrl_operator.local.pod_process import PodProcess


class LocalHand:
    """A `Hand` on one machine's processes."""

    def __init__(self, body: LocalBody) -> None:
        self._body = body
        self._thawing: set[asyncio.Task[None]] = set()

    def playing(self, role: Role) -> list[str]:
        return [pod.name for pod in self._body.playing(role)]

    async def signal_child(self, pod: str, number: signal.Signals) -> None:
        """It leads a session of its own, below the agent; the warm worker does not."""
        agent = self._pod(pod).agent
        for pid in self._pod(pod).descendants():
            stat = read_stat(pid)
            if agent and stat and (int(stat[PARENT]), int(stat[SESSION])) == (agent.pid, pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
                return

    async def kill_agent(self, pod: str) -> None:
        self._pod(pod).kill_agent()

    async def delete(self, pod: str) -> None:
        await self._body.lose(self._pod(pod))

    async def cut_power(self, pod: str) -> None:
        self._pod(pod).kill_node()

    async def freeze(self, pod: str, seconds: float) -> None:
        frozen = self._pod(pod)
        frozen.freeze()
        task = asyncio.create_task(_thaw(frozen, seconds), name=f"thaw-{pod}")
        self._thawing.add(task)
        task.add_done_callback(self._thawing.discard)

    def _pod(self, name: str) -> PodProcess:
        return next(pod for pod in self._body.processes if pod.name == name)


async def _thaw(pod: PodProcess, seconds: float) -> None:
    await asyncio.sleep(seconds)
    pod.thaw()
