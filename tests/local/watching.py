"""What the tests of faults look at in a job that runs here, and how long they wait for it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from robustrl.audit import record, report
from robustrl_api.control import Child, ChildState
from robustrl_api.names import Role
from robustrl_operator.faults.kind import KINDS
from robustrl_operator.faults.matrix import Row
from robustrl_operator.local.run import LocalRun
from robustrl_operator.local.run_folder import RunFolder

DETECTION = {
    # A busy machine starts an agent more slowly than three heartbeats; it must not be taken for lost meanwhile.
    "lostAfterMissed": 8,
    "trainer": {"idleSeconds": 8},
    "rollout": {"zeroThroughputSeconds": 8},
    "manager": {"unansweredSeconds": 8},
    "probeSeconds": 2,
}
SMALL_BATCH = {"promptsPerStep": 8, "samplesPerPrompt": 8, "concurrency": 32}
STEPS_BETWEEN = 3
START_SECONDS, RECOVERY_SECONDS = 120.0, 120.0


def agents(run: LocalRun) -> dict[str, tuple[str, str]]:
    """Name and the agent's boot of each pod, by UID."""
    found = {}
    for pod in run.body.processes:
        heard = run.hub.heard(pod.uid)
        if heard and not pod.deleting:
            found[pod.uid] = (pod.name, heard.report.boot)
    return found


def at_work(run: LocalRun) -> bool:
    roles = run.status.roles
    full = bool(roles) and all(role.ready >= role.desired for role in roles)
    return full and run.status.recovery is None and not run.ended()


async def until_well(run: LocalRun, step: int, incidents: int, seconds: float) -> None:
    """Wait until so many steps and incidents are on record and every role is complete."""
    async with asyncio.timeout(seconds):
        while not (run.step >= step and total(run) >= incidents and at_work(run)):
            assert not run.ended(), run.status.conditions
            await asyncio.sleep(0.1)


async def until_it_can_be_struck(run: LocalRun, row: Row) -> None:
    """Wait until every engine is up where a rollout is to be struck: it is one at work that a row means."""
    if KINDS[row.kind].role is Role.ROLLOUT:
        async with asyncio.timeout(START_SECONDS):
            while not all(child_of(run, pod.uid).state is ChildState.RUNNING for pod in run.body.playing(Role.ROLLOUT)):  # noqa: ASYNC110
                await asyncio.sleep(0.1)


def child_of(run: LocalRun, uid: str) -> Child:
    """What a pod's agent said last of its child: none, until it has said anything."""
    heard = run.hub.heard(uid)
    return heard.report.child if heard else Child()


def total(run: LocalRun) -> int:
    """Faults on record, as Events: status keeps the last ten only."""
    return sum(event.reason == "FaultDetected" for _, event in run.body.events)


@dataclass(frozen=True)
class Scene:
    """The job before it is struck: its pods' names and agents' boots by UID, the epoch, the faults on record."""

    agents: dict[str, tuple[str, str]]
    epoch: int
    incidents: int


def look(run: LocalRun) -> Scene:
    return Scene(agents(run), run.status.epoch, total(run))


def judge(run: LocalRun, row: Row, before: Scene, struck: tuple[str, ...]) -> None:
    """Whether a job that is well again shows what a row says, and nothing else."""
    assert run.status.epoch == before.epoch + row.epochs, run.status.incidents
    _judge_agents(run, row, before, struck)
    _judge_incidents(run, row, before.incidents)
    assert audit(run).findings == ()


def _judge_agents(run: LocalRun, row: Row, before: Scene, struck: tuple[str, ...]) -> None:
    after = agents(run)
    for uid, (name, boot) in before.agents.items():
        if row.whole_job:
            assert uid not in after, "the whole job starts again"
        elif name not in struck:
            assert after.get(uid) == (name, boot), f"{name} has nothing to do with {struck}"
        else:
            assert (uid in after) is row.keeps_pod
            assert (after.get(uid, ("", ""))[1] == boot) is (row.keeps_pod and row.keeps_agent)


def _judge_incidents(run: LocalRun, row: Row, before: int) -> None:
    assert total(run) == before + row.incidents, run.status.incidents
    found = run.status.incidents[len(run.status.incidents) - row.incidents :]
    assert {incident.cause for incident in found} <= set(row.causes)
    assert not row.rule or any(f"rule {row.rule}" in incident.decision for incident in found), found


def audit(run: LocalRun) -> report.Report:
    return report.of(record.read(RunFolder(run.folder).ledger))
