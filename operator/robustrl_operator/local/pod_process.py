"""A pod played by processes: an agent on a loopback address of its own, restarted in place when it exits."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import shutil
import signal
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from robustrl.supervisor.proc_stat import descendants
from robustrl.supervisor.process import die_with_parent
from robustrl_api.names import Role
from robustrl_api.pod_config import POD_CONFIG_ENV, PodConfig
from robustrl_operator.view import PodView

log = logging.getLogger(__name__)

GRACE_SECONDS = 10
RESTART_SECONDS = 0.2
RETRY_SECONDS = 1.0
"""After a start that failed here: there was no room, or no process to be had."""


@dataclass(eq=False)
class PodProcess:
    """One pod of the local body. Its node is its own: killing the node kills nothing else."""

    name: str
    role: Role
    address: str
    config: PodConfig
    folder: Path
    log: Path
    on_change: Callable[[], None]
    attempt: int = 0
    uid: str = field(default_factory=lambda: uuid.uuid4().hex)
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    label: Role = Role.ROLLOUT
    epoch: int = -1
    deleting: bool = False
    ends_at: datetime | None = None
    node_alive: bool = True
    frozen: bool = False
    """Its machine answers nobody: what is done to the pod reaches it only afterwards."""
    created: datetime = field(default_factory=lambda: datetime.now(UTC))
    agent: asyncio.subprocess.Process | None = None

    def view(self) -> PodView:
        return PodView(
            name=self.name,
            uid=self.uid,
            origin=self.role,
            role=self.label,
            created=self.created,
            epoch=self.epoch,
            attempt=self.attempt,
            node=f"node-of-{self.name}",
            address=self.address,
            phase="Running",
            deleting=self.deleting,
            ends_at=self.ends_at,
        )

    async def live(self) -> None:
        """Run the agent, again and again, until the pod is deleted or its node dies: restartPolicy Always."""
        while not self._is_over():
            try:
                self.agent = await self._start()
            except OSError as error:
                log.error("the agent of %s cannot be started: %s; again in %g s", self.name, error, RETRY_SECONDS)
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if self._is_over():
                # That came while it was being started, and found nobody to end.
                self._signal(signal.SIGKILL)
            self.on_change()
            code = await self.agent.wait()
            if self._is_over():
                shutil.rmtree(self.folder, ignore_errors=True)
            else:
                log.warning("the agent of %s exited with status %d; its container starts again", self.name, code)
                await asyncio.sleep(RESTART_SECONDS)

    def _is_over(self) -> bool:
        return self.deleting or not self.node_alive

    async def _start(self) -> asyncio.subprocess.Process:
        self.folder.mkdir(parents=True, exist_ok=True)
        token_file = self.folder / "token"
        token_file.touch(mode=0o600)
        token_file.write_text(self.token)
        config = self.config.model_copy(update={"token_file": str(token_file)})
        env = {
            **os.environ,
            POD_CONFIG_ENV: config.model_dump_json(),
            "ROBUSTRL_POD_NAME": self.name,
            "ROBUSTRL_POD_IP": self.address,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        }
        with self.log.open("ab") as output:
            return await asyncio.create_subprocess_exec(
                sys.executable, "-m", "robustrl.supervisor.cli", "run",
                env=env, stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True, preexec_fn=die_with_parent,
            )  # fmt: skip

    async def delete(self, *, force: bool) -> None:
        """SIGTERM, and SIGKILL after the grace period; with `force` SIGKILL at once. Memory goes with the pod."""
        self.deleting = True
        self.ends_at = datetime.now(UTC) + timedelta(seconds=0 if force else GRACE_SECONDS)
        if self.agent is not None and self.agent.returncode is None:
            self._signal(signal.SIGKILL if force else signal.SIGTERM)
            try:
                await asyncio.wait_for(self.agent.wait(), GRACE_SECONDS)
            except TimeoutError:
                self._signal(signal.SIGKILL)
                await self.agent.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def freeze(self) -> None:
        """The machine stops; `thaw` lets it go on as if nothing had happened."""
        self.frozen = True
        for pid in self._processes():
            _signal(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        for pid in reversed(self._processes()):
            _signal(pid, signal.SIGCONT)
        self.frozen = False

    def kill_agent(self) -> None:
        """The agent dies; the pod's container is started again in place, its memory kept."""
        self._signal(signal.SIGKILL)

    def kill_node(self) -> None:
        """Power loss: everything ends, nobody says goodbye, nothing comes back."""
        self.node_alive = False
        self._signal(signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _signal(self, number: signal.Signals) -> None:
        if self.agent is not None and self.agent.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.agent.send_signal(number)

    def _processes(self) -> list[int]:
        """The agent and every process below it, parents first."""
        return [self.agent.pid, *self.descendants()] if self.agent is not None else []

    def descendants(self) -> list[int]:
        """Every process below the agent."""
        if self.agent is None:
            return []
        return descendants(self.agent.pid)


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
