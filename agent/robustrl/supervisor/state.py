"""What the agent knows of its pod right now; the control client turns it into reports."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass, field

from robustrl.supervisor.activity import ActivityWatch
from robustrl_api.control import AgentReport, Child, Complaint, Struck
from robustrl_api.names import Role


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

    def notify(self) -> None:
        """Something was written that the operator should hear now rather than at the next heartbeat."""
        self.changed.set()

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
