"""What the agent knows of its pod right now; the control client turns it into reports."""

from __future__ import annotations

import asyncio
import logging
import uuid
from dataclasses import dataclass, field

from robustrl.supervisor.activity import ActivityWatch
from robustrl_api.control import UNKILLABLE, AgentReport, Child, Complaint, Struck
from robustrl_api.names import Role

log = logging.getLogger(__name__)


@dataclass
class PodState:
    """Written by the role's runner, read by the control client. Single-threaded: everything is on one loop."""

    pod: str
    role: Role
    boot: str = field(default_factory=lambda: uuid.uuid4().hex)
    epoch: int = 0
    step: int = 0
    version: str = ""
    admitted: bool = False
    child: Child = field(default_factory=Child)
    activity: ActivityWatch = field(default_factory=ActivityWatch)
    leaving: bool = False
    complaint: Complaint | None = None
    unstored: str = ""
    struck: Struck | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    broken: asyncio.Event = field(default_factory=asyncio.Event)
    """A part of the agent has failed, and it must end: what it reported from then on would look well for ever."""

    def notify(self) -> None:
        """Something was written that the operator should hear now rather than at the next heartbeat."""
        self.changed.set()

    def complain_of_unkillable(self, what: str, pid: int) -> None:
        """A process that SIGKILL does not end holds its devices: nothing can take its place in this pod."""
        log.error("%s, process %d, does not end though it was killed", what, pid)
        message = f"{what}, process {pid}, does not end though it was killed: it waits in the kernel"
        self.complaint = Complaint(reason=UNKILLABLE, message=message)
        self.notify()

    def own(self, task: asyncio.Task[None]) -> asyncio.Task[None]:
        """A part of the agent without which the pod does not play its role."""
        task.add_done_callback(self._note_end)
        return task

    def _note_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.critical("%s has failed, and the agent ends with it", task.get_name(), exc_info=error)
            self.broken.set()

    def report(self, applied: str) -> AgentReport:
        return AgentReport(
            pod=self.pod,
            boot=self.boot,
            epoch=self.epoch,
            role=self.role,
            applied=applied,
            phase=self.activity.phase,
            step=self.step,
            version=self.version,
            admitted=self.admitted,
            child=self.child,
            activity=self.activity.report(),
            leaving=self.leaving,
            complaint=self.complaint,
            unstored=self.unstored[:1000],
            struck=self.struck,
            metrics=dict(self.metrics),
        )
