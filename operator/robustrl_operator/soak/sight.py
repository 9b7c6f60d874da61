"""What a storm looks at in a job that runs on this machine: who is up, whether it is well, what was found."""

from __future__ import annotations

from robustrl_api.control import ChildState
from robustrl_api.names import Role
from robustrl_api.status import Incident
from robustrl_operator.faults.kind import aim
from robustrl_operator.faults.matrix import Row
from robustrl_operator.local.run import LocalRun
from robustrl_operator.soak.bout import Life, Scene


class Sight:
    """One job's processes and status, as they are when asked for."""

    def __init__(self, run: LocalRun) -> None:
        self._run = run

    def targets(self, row: Row) -> frozenset[str]:
        """Whom a fault would hit now, by UID; nobody if there is no such pod."""
        body = self._run.body
        try:
            blows = aim(row.kind, lambda role: [pod.name for pod in body.playing(role)], row.index)
        except LookupError:
            return frozenset()
        names = {blow.pod for blow in blows}
        return frozenset(pod.uid for pod in body.processes if pod.name in names)

    def is_up(self, uid: str) -> bool:
        """Whether a pod plays its part: a process at work, a trainer's in this epoch, an engine admitted."""
        heard = self._run.hub.heard(uid)
        if heard is None or heard.report.child.state is not ChildState.RUNNING:
            return False
        if any(member.uid == uid for member in self._run.status.members):
            return heard.report.child.epoch == self._run.status.epoch
        return heard.report.role is Role.MANAGER or heard.report.admitted

    def is_well(self, step: int) -> bool:
        """Whether so many steps are made, every role is complete and everybody is up."""
        status = self._run.status
        full = bool(status.roles) and all(role.ready >= role.desired for role in status.roles)
        recovered = status.recovery is None and status.restarts_without_progress == 0
        return full and recovered and not self._down() and self._run.step >= step

    def _down(self) -> list[str]:
        pods = (pod for pod in self._run.body.processes if not pod.deleting)
        return [pod.name for pod in pods if not self.is_up(pod.uid)]

    def scene(self) -> Scene:
        status = self._run.status
        members = {member.uid for member in status.members}
        lives = {}
        for pod in self._run.body.processes:
            heard = self._run.hub.heard(pod.uid)
            if heard is not None and not pod.deleting:
                role = Role.TRAINER if pod.uid in members else pod.role
                lives[pod.uid] = Life(pod.name, role, heard.report.boot, heard.report.child.life)
        return Scene(status.epoch, status.attempt, self._run.step, lives)

    def incidents(self, since: str) -> list[Incident]:
        """Found since a time."""
        return [incident for incident in self._run.status.incidents if incident.detected_time >= since]

    def words(self) -> str:
        """For whoever has to find out why it is not well."""
        status = self._run.status
        true = [condition for condition in status.conditions if condition.status == "True"]
        said = [f"{condition.type} ({condition.reason}): {condition.message}" for condition in true]
        stage = [f"in recovery, stage {status.recovery.stage}"] if status.recovery else []
        return "; ".join([*said, *stage, f"not up: {', '.join(self._down()) or 'nobody'}", f"step {self._run.step}"])
