"""Faults made on purpose: refused with a reason, or carried out once, whoever the operator is by then."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.operator.build import (
    NOW,
    SECOND,
    actions,
    draft,
    job,
    names,
    running_job,
    saying,
    with_pod,
    with_status,
    without_pod,
)
from tests.operator.world.world import World

from robustrl_api.control import Harm, Strike, Struck
from robustrl_api.injection import Request
from robustrl_api.names import EventReason, Role
from robustrl_api.node import PodReading, Source
from robustrl_api.status import ConditionType, InjectionStage, RLJobStatus
from robustrl_operator.faults.kind import KINDS, FaultKind, Means
from robustrl_operator.kubernetes import leader_label, lease
from robustrl_operator.kubernetes.body import KubernetesBody
from robustrl_operator.local.body import LocalBody
from robustrl_operator.plan import CreatePod, DeletePod, HarmMachine, StandAside, hearsay
from robustrl_operator.plan.assign import assignments
from robustrl_operator.plan.rules import inject
from robustrl_operator.view import JobView, Observed, moment

ALLOWED = {"faultInjection": {"mode": "Allowed"}}
CLUSTER, MACHINE = KubernetesBody.means, LocalBody.means
EVERYWHERE = CLUSTER | MACHINE


GPUS = {
    "uid-j-trainer-1": Observed(PodReading(uid="uid-j-trainer-1", source=Source.GPU), NOW),
    "uid-j-trainer-2": Observed(PodReading(uid="uid-j-trainer-2", source=Source.CPU), NOW),
}
"""What node agents say: the second trainer holds no GPU that is seen."""


def asked(kind: str, target: str = "", **changes: Any) -> JobView:
    request = Request(id="r1", kind=kind, target=target).model_dump_json(by_alias=True)
    usual: dict[str, Any] = {"spec": job(**ALLOWED), "inject": request, "means": CLUSTER}
    return running_job(**{**usual, **changes})


def accepted(view: JobView) -> JobView:
    """What the next plan sees once the rule's status is stored."""
    after = inject.apply(draft(view))
    assert after.status.injection is not None
    assert after.status.injection.stage is InjectionStage.STRIKING, after.status.injection.message
    return with_status(view, injection=after.status.injection)


@pytest.mark.parametrize(
    ("kind", "target", "changes", "words"),
    [
        ("worker", "", {"spec": job()}, "spec.faultInjection.mode"),
        ("wroker", "", {}, "there is no kind 'wroker'; kinds: worker,"),
        ("worker", "j-rollout-3", {}, "'j-rollout-3' is no trainer: there are j-trainer-1, j-trainer-2"),
        ("worker", "rank 2", {}, "there is no trainer 2"),
        ("engine", "trainer/0", {}, "strikes a rollout, not a trainer"),
        ("engine", "rank 0", {}, "strikes a rollout, not a trainer"),
        ("trainer-cut", "", {"means": MACHINE}, "a node that is cut off from others, and here is one machine"),
        ("trainer-drain", "", {"means": MACHINE}, "an eviction by Kubernetes, which does not run this job"),
        ("gpu", "", {"means": MACHINE}, "what a node agent says of a GPU, and there is none here"),
        ("gpu", "", {}, "no node agent reports a GPU of j-trainer-2, and this fault is nothing but what one says"),
        ("gpu", "", {"readings": GPUS}, "no node agent reports a GPU of j-trainer-2"),
        ("exporter-lying", "", {"readings": GPUS}, "no node agent reports a GPU of j-trainer-2"),
        ("exporter-stuck", "", {"means": MACHINE}, "what node agents hear of exporters, and there are none here"),
        ("image-gone", "", {"means": MACHINE}, "a pod whose image cannot be pulled, and processes have none"),
        ("exporter-absent", "rank 1", {"readings": GPUS}, "strikes all trainers: name none of them"),
        ("gpu", "rank 0", {"readings": GPUS, "now": NOW + 40 * SECOND}, "no node agent reports a GPU of j-trainer-1"),
        ("leader", "trainer/0", {}, "strikes the operator, as far as this job has to do with it: name no pod"),
        ("worker", "", {"spec": job(suspend=True, **ALLOWED)}, "suspended"),
    ],
)
def test_refused_with_a_reason_and_once(kind: str, target: str, changes: dict[str, Any], words: str) -> None:
    view = asked(kind, target, **changes)
    after = inject.apply(draft(view))
    assert after.status.injection is not None
    assert after.status.injection.stage is InjectionStage.REFUSED
    assert words in after.status.injection.message
    assert [event.reason for event in after.events] == [EventReason.INJECTION_REFUSED]
    assert after.actions == ()
    again = inject.apply(draft(with_status(view, injection=after.status.injection)))
    assert (again.status.injection, again.events) == (after.status.injection, ())


@pytest.mark.parametrize("means", [CLUSTER, MACHINE], ids=["cluster", "machine"])
@pytest.mark.parametrize("kind", FaultKind)
def test_every_kind_is_done_or_refused_in_words_that_status_has_room_for(
    kind: FaultKind, means: frozenset[Means]
) -> None:
    view = asked(kind, means=means, readings=heard(*TRAINERS))
    injection = inject.apply(draft(view)).status.injection
    assert injection is not None
    assert injection.stage is InjectionStage.STRIKING or means is MACHINE, "on Kubernetes everything can be done"
    assert (injection.stage is InjectionStage.STRIKING) is not bool(injection.message)
    assert len(injection.message) < 1024
    assert not injection.message or injection.message.startswith(f"{kind} ")


def test_the_commands_of_the_docs_are_those_of_the_parts_that_they_name() -> None:
    words = (Path(__file__).parents[3] / "docs" / "inject.md").read_text()
    assert f"-l {leader_label.LABEL}={leader_label.TRUE} " in words
    assert f"patch lease {lease.NAME} " in words


def test_what_is_no_request_is_refused_once() -> None:
    view = replace(asked("worker"), inject="please")
    after = inject.apply(draft(view))
    assert after.status.injection is not None
    assert "is not a request" in after.status.injection.message
    assert inject.apply(draft(with_status(view, injection=after.status.injection))).events == ()


@pytest.mark.parametrize(
    ("kind", "target", "struck"),
    [
        ("worker", "", ["j-trainer-2"]),
        ("worker", "rank 0", ["j-trainer-1"]),
        ("worker", "rank/0", ["j-trainer-1"]),
        ("worker", "trainer/0", ["j-trainer-1"]),
        ("worker", "0", ["j-trainer-1"]),
        ("worker", "j-trainer-1", ["j-trainer-1"]),
        ("workers", "", ["j-trainer-1", "j-trainer-2"]),
        ("engine", "rollout", ["j-rollout-6"]),
        ("engine", "rollout/1", ["j-rollout-4"]),
        ("managers-hang", "", ["j-manager-0"]),
    ],
)
def test_the_agents_of_the_pods_that_are_meant_are_told(kind: str, target: str, struck: list[str]) -> None:
    view = accepted(asked(kind, target))
    told = {uid: given.strike for uid, given in assignments(view).items() if given.strike is not None}
    assert told == {f"uid-{name}": Strike(id="r1", harm=Harm(KINDS[FaultKind(kind)].deed)) for name in struck}


def test_done_when_every_agent_has_said_so_and_nobody_is_told_any_more() -> None:
    view = accepted(asked("workers"))
    view = saying(view, "j-trainer-1", struck=Struck(id="r1"))
    half = inject.apply(draft(view)).status.injection
    assert half is not None
    assert half.stage is InjectionStage.STRIKING
    view = saying(with_status(view, injection=half), "j-trainer-2", struck=Struck(id="r1"))
    done = inject.apply(draft(view)).status.injection
    assert done is not None
    assert (done.stage, bool(done.struck_time)) == (InjectionStage.STRUCK, True)
    assert all(given.strike is None for given in assignments(with_status(view, injection=done)).values())


def test_an_agent_that_could_not_or_does_not_answer_ends_it() -> None:
    view = accepted(asked("worker"))
    could_not = inject.apply(draft(saying(view, "j-trainer-2", struck=Struck(id="r1", error="no process runs"))))
    assert could_not.status.injection is not None
    assert could_not.status.injection.stage is InjectionStage.FAILED
    assert "no process runs" in could_not.status.injection.message
    late = inject.apply(draft(replace(view, now=view.now + inject.PATIENCE + timedelta(seconds=1))))
    assert late.status.injection is not None
    assert late.status.injection.message == "not done within 30 s: j-trainer-2"


def test_a_pod_is_deleted_until_it_is_on_its_way_out() -> None:
    view = asked("rollout-pod", "rollout/0")
    first = inject.apply(draft(view))
    assert names(actions(first, DeletePod)) == ["j-rollout-3"]
    assert "uid-j-rollout-3" not in first.gone, "it is found missing like any other"
    view = with_status(view, injection=first.status.injection)
    assert names(actions(inject.apply(draft(view)), DeletePod)) == ["j-rollout-3"], "the operator may have died between"
    over = inject.apply(draft(with_pod(view, "j-rollout-3", deleting=True)))
    assert actions(over, DeletePod) == []
    assert over.status.injection is not None
    assert over.status.injection.stage is InjectionStage.STRUCK


def test_a_pod_is_evicted_until_it_is_on_its_way_out() -> None:
    """A drain, of which only what is the job's own is done."""
    view = asked("trainer-drain", "rank 0")
    first = inject.apply(draft(view))
    assert actions(first, HarmMachine) == [HarmMachine("j-trainer-1", "uid-j-trainer-1", Means.DRAIN, "r1")]
    view = with_status(view, injection=first.status.injection)
    again = inject.apply(draft(view))
    assert names(actions(again, HarmMachine)) == ["j-trainer-1"], "the operator may have died between"
    for gone in (with_pod(view, "j-trainer-1", deleting=True), without_pod(view, "j-trainer-1")):
        over = inject.apply(draft(gone))
        assert over.actions == ()
        assert over.status.injection is not None
        assert over.status.injection.stage is InjectionStage.STRUCK


def test_an_eviction_that_is_refused_ends_it_with_the_reason() -> None:
    view = accepted(asked("trainer-drain"))
    earlier = with_pod(view, "j-trainer-2", struck=Struck(id="r0", error="a budget"))
    assert names(actions(inject.apply(draft(earlier)), HarmMachine)) == ["j-trainer-2"], "another request's answer"
    refused = inject.apply(draft(with_pod(view, "j-trainer-2", struck=Struck(id="r1", error="a budget"))))
    assert refused.actions == ()
    assert refused.status.injection is not None
    assert refused.status.injection.stage is InjectionStage.FAILED
    assert refused.status.injection.message == "j-trainer-2: a budget"
    assert [event.reason for event in refused.events] == [EventReason.INJECTION_REFUSED]


def test_the_agent_of_the_node_is_told_of_a_gpu_until_it_has_said_so() -> None:
    view = accepted(asked("gpu", "rank 0", readings=GPUS))
    injection = view.status.injection
    assert injection is not None
    assert [hearsay.as_if(injection, uid) for uid in GPUS] == ["OffTheBus", ""]
    waiting = inject.apply(draft(view))
    assert (waiting.status.injection, waiting.actions) == (injection, ())
    said = PodReading(uid="uid-j-trainer-1", source=Source.GPU, as_if="OffTheBus")
    done = inject.apply(draft(replace(view, readings={said.uid: Observed(said, NOW)}))).status.injection
    assert done is not None
    assert done.stage is InjectionStage.STRUCK
    assert hearsay.as_if(done, "uid-j-trainer-1") == ""


def heard(*uids: str, at: datetime = NOW, as_if: str = "") -> dict[str, Observed]:
    """What node agents say of pods whose GPUs they see."""
    return {uid: Observed(PodReading(uid=uid, source=Source.GPU, as_if=as_if), at) for uid in uids}


TRAINERS = ("uid-j-trainer-1", "uid-j-trainer-2")


@pytest.mark.parametrize(
    ("kind", "word"), [("exporter-absent", "Absent"), ("exporter-stuck", "Stuck"), ("exporter-lying", "Idle")]
)
def test_exporters_are_wrong_for_a_while_from_when_all_node_agents_say_so(kind: str, word: str) -> None:
    """When it began stands in status, so any operator knows when it is over."""
    view = accepted(asked(kind, readings=heard(*TRAINERS)))
    assert [hearsay.as_if(view.status.injection, uid) for uid in (*TRAINERS, "uid-j-rollout-3")] == [word, word, ""]
    one = {**view.readings, **heard(TRAINERS[0], as_if=word)}
    half = inject.apply(draft(replace(view, readings=one)))
    assert half.status.injection is not None
    assert [bool(target.struck_time) for target in half.status.injection.targets] == [True, False]
    view = with_status(replace(view, readings=heard(*TRAINERS, as_if=word)), injection=half.status.injection)
    for seconds, stage in ((10, "Striking"), (39, "Striking"), (41, "Struck")):
        after = inject.apply(draft(replace(view, now=NOW + seconds * SECOND)))
        assert after.status.injection is not None
        assert (after.status.injection.stage, after.actions) == (stage, ())
        view = with_status(view, injection=after.status.injection)
    assert view.status.injection is not None
    assert moment(view.status.injection.struck_time) == NOW + 10 * SECOND
    assert hearsay.as_if(view.status.injection, TRAINERS[0]) == ""


def test_node_agents_that_do_not_know_the_word_end_it() -> None:
    view = accepted(asked("exporter-lying", readings=heard(*TRAINERS)))
    late = inject.apply(draft(replace(view, now=view.now + inject.PATIENCE + SECOND)))
    assert late.status.injection is not None
    assert late.status.injection.stage is InjectionStage.FAILED
    assert late.status.injection.message == "not done within 30 s: j-trainer-1, j-trainer-2"


def test_a_deed_that_only_a_later_operator_knows_is_waited_for_in_vain() -> None:
    view = accepted(asked("trainer-drain"))
    injection = view.status.injection
    assert injection is not None
    (target,) = injection.targets
    later = injection.model_copy(update={"targets": (target.model_copy(update={"deed": "Melt"}),)})
    view = with_status(view, injection=later)
    assert inject.apply(draft(view)).actions == ()
    over = inject.apply(draft(replace(view, now=view.now + inject.PATIENCE + SECOND))).status.injection
    assert over is not None
    assert over.stage is InjectionStage.FAILED


def test_an_operator_that_no_node_agent_has_reported_to_yet_refuses_nothing() -> None:
    """The one before it may have died before it took up the request."""
    view = asked("gpu", watching_since=NOW - 20 * SECOND)
    assert inject.apply(draft(view)).status.injection is None


def test_machines_are_harmed_once_where_there_are_any() -> None:
    view = asked("trainer-and-rollout", means=EVERYWHERE)
    first = inject.apply(draft(view))
    assert names(actions(first, HarmMachine)) == ["j-trainer-2", "j-rollout-6"]
    assert actions(inject.apply(draft(with_status(view, injection=first.status.injection))), HarmMachine) == []


@pytest.mark.parametrize("means", [CLUSTER, MACHINE], ids=["cluster", "machine"])
@pytest.mark.parametrize(
    ("kind", "seconds"), [("leader", 4.0), ("operators", 4.0), ("lease", 10.0), ("api-server", 30.0)]
)
def test_the_operator_is_away_for_the_one_job(kind: str, seconds: float, means: frozenset[Means]) -> None:
    view = asked(kind, means=means)
    first = inject.apply(draft(view))
    assert actions(first, StandAside) == [StandAside(seconds)]
    view = with_status(view, injection=first.status.injection)
    again = inject.apply(draft(view))
    assert actions(again, StandAside) == [StandAside(seconds)], "something kept it from it"
    back = replace(view, now=NOW + seconds * SECOND, watching_since=NOW + seconds * SECOND)
    done = inject.apply(draft(back))
    assert done.actions == ()
    assert done.status.injection is not None
    assert (done.status.injection.stage, done.status.injection.targets[0].pod) == (InjectionStage.STRUCK, "operator")


@pytest.mark.parametrize(
    ("kind", "struck", "harm"),
    [
        ("trainer", ["j-trainer-2"], Harm.FALL_SILENT),
        ("trainers", ["j-trainer-1", "j-trainer-2"], Harm.FALL_SILENT),
        ("trainer-and-rollout", ["j-trainer-2", "j-rollout-6"], Harm.FALL_SILENT),
        ("trainer-freeze", ["j-trainer-2"], Harm.STAND_STILL),
        ("trainer-cut", ["j-trainer-2"], Harm.CUT_OFF),
        ("storage-full", ["j-trainer-1", "j-trainer-2"], Harm.STORAGE_FULL),
        ("storage-read-only", ["j-trainer-1", "j-trainer-2"], Harm.STORAGE_READ_ONLY),
        ("checkpoint-damage", ["j-trainer-2"], Harm.LOSE_CHECKPOINT),
    ],
)
def test_where_machines_may_not_be_harmed_their_pods_do_as_if(kind: str, struck: list[str], harm: Harm) -> None:
    view = accepted(asked(kind))
    told = {uid: given.strike for uid, given in assignments(view).items() if given.strike is not None}
    assert told == {f"uid-{name}": Strike(id="r1", harm=harm) for name in struck}


def test_a_second_request_waits_for_the_first() -> None:
    view = accepted(asked("worker"))
    other = replace(view, inject=Request(id="r2", kind="engine").model_dump_json(by_alias=True))
    waiting = inject.apply(draft(other)).status.injection
    assert waiting is not None
    assert waiting.id == "r1"
    after = inject.apply(draft(saying(other, "j-trainer-2", struck=Struck(id="r1")))).status.injection
    assert after is not None
    assert (after.id, after.stage) == ("r2", InjectionStage.STRIKING)


# Whole stories.


def injected(world: World, kind: str, target: str = "", id: str = "r1") -> World:
    world.inject = Request(id=id, kind=kind, target=target).model_dump_json(by_alias=True)
    return world


def started() -> World:
    world = World(job(steps=100_000, **ALLOWED)).training()
    world.readings = {uid: Observed(PodReading(uid=uid, source=Source.GPU), world.now) for uid in world.pods}
    return world


@pytest.mark.parametrize(
    ("kind", "epoch", "cause"),
    [
        ("worker", 2, "WorkerExited"),
        ("trainer-agent", 2, "AgentRestarted"),
        ("trainer-pod", 2, "PodLeaving"),
        ("trainer-drain", 2, "PodLeaving"),
        ("gpu", 2, "GpuFailed"),
        ("trainer", 2, "HeartbeatLost"),
        ("checkpoint-damage", 2, "WorkerExited"),
        ("engine", 1, "EngineExited"),
        ("rollout-pod", 1, "PodDeleted"),
        ("managers", 1, "ManagerExited"),
    ],
)
def test_the_incident_that_follows_names_the_injection(kind: str, epoch: int, cause: str) -> None:
    world = injected(started(), kind)
    world.until(lambda w: bool(w.status.incidents)).training(epoch).run(20)
    (incident,) = world.status.incidents
    assert (incident.injection, incident.cause) == ("r1", cause)
    assert world.status.epoch == epoch
    (event,) = [event for event in world.events if event.reason is EventReason.FAULT_DETECTED]
    assert "made on purpose by injection r1" in event.message


def test_a_pod_that_does_as_if_its_machine_were_dead_is_found_and_replaced_like_one() -> None:
    world = started()
    world.means = CLUSTER
    lost = world.members()[-1]
    injected(world, "trainer").until(lambda w: bool(w.status.incidents)).training(epoch=2).run(20)
    (incident,) = world.status.incidents
    assert (incident.pod, incident.injection, incident.cause) == (lost, "r1", "HeartbeatLost")
    assert lost not in world.pods
    assert world.status.injection is not None
    assert world.status.injection.stage is InjectionStage.STRUCK


def gone_image(w: World) -> bool:
    return w.status.injection is not None and any(not target.uid for target in w.status.injection.targets)


def test_the_replacement_of_a_rollout_cannot_be_pulled_for_a_while() -> None:
    world = started()
    world.means = CLUSTER
    lost = world.of_role(Role.ROLLOUT)[-1]
    injected(world, "image-gone").until(gone_image).run(10)
    degraded = world.condition(ConditionType.DEGRADED)
    assert (degraded.status, degraded.reason) == ("True", "PodsCannotStart")
    world.run(15)
    (spoilt,) = [action.name for action in world.did(CreatePod) if not action.pullable]
    assert world.pod(spoilt).view.waiting == "ErrImagePull"
    world.until(lambda w: w.status.injection is not None and w.status.injection.stage == "Struck", within=10)
    world.until(lambda w: w.holds(ConditionType.READY), within=15).run(20)
    assert spoilt not in {pod.view.name for pod in world.pods.values()}
    assert len(world.of_role(Role.ROLLOUT)) == world.spec.rollout.replicas
    (incident,) = world.status.incidents
    assert (incident.pod, incident.cause, incident.injection, world.status.epoch) == (lost, "PodDeleted", "r1", 1)


def test_an_image_that_is_gone_comes_back_whoever_the_operator_is_by_then() -> None:
    for kill_after in range(8):
        for late in (False, True):
            world = started()
            world.means = CLUSTER
            injected(world, "image-gone")
            if late:
                world.until(gone_image).run(25)
            world.kill_operator_after = kill_after
            world.until(lambda w: w.status.injection is not None and w.status.injection.stage == "Struck")
            world.until(lambda w: w.holds(ConditionType.READY)).run(5)
            world.kill_operator_after = None
            world.until(lambda w: w.holds(ConditionType.READY)).run(5)
            assert [incident.cause for incident in world.status.incidents] == ["PodDeleted"], (kill_after, late)
            assert not [pod for pod in world.pods.values() if pod.waiting], (kill_after, late)


@pytest.mark.parametrize("kind", ["storage-full", "storage-read-only"])
def test_storage_that_refuses_is_no_fault(kind: str) -> None:
    world = started()
    world.means = CLUSTER
    injected(world, kind).until(lambda w: w.status.injection is not None and w.status.injection.stage == "Struck")
    world.replace_operator()
    world.run(60)
    assert (world.status.incidents, world.status.epoch) == ((), 1)
    assert sorted(name for name, _ in world.strikes) == sorted(world.members())


@pytest.mark.parametrize("kind", ["exporter-absent", "exporter-stuck", "exporter-lying"])
def test_exporters_that_are_wrong_are_no_fault(kind: str) -> None:
    world = injected(started(), kind).until(lambda w: hearsay.as_if(w.status.injection, w.status.members[0].uid) != "")
    world.run(10).replace_operator()
    world.until(lambda w: w.status.injection is not None and w.status.injection.stage == "Struck", within=25).run(90)
    assert (world.status.incidents, world.status.epoch) == ((), 1)
    assert {observed.reading.as_if for observed in world.readings.values()} == {""}


@pytest.mark.parametrize(("kind", "seconds"), [("leader", 4), ("lease", 10), ("api-server", 30)])
def test_a_job_whose_operator_is_away_goes_on(kind: str, seconds: int) -> None:
    world = injected(started(), kind).until(lambda w: w.operator.down_until is not None)
    step, began = world.ledger_step, world.now
    world.until(lambda w: w.status.injection is not None and w.status.injection.stage == "Struck")
    assert (world.now - began).total_seconds() == pytest.approx(seconds, abs=1)
    assert world.ledger_step > step
    world.run(60)
    assert (world.status.incidents, world.status.epoch) == ((), 1)
    assert len(world.did(StandAside)) == 1


def test_a_worker_that_dies_while_the_operator_is_away_is_found_afterwards() -> None:
    world = injected(started(), "lease").until(lambda w: w.operator.down_until is not None)
    world.exit_child(world.members()[0])
    world.training(epoch=2).run(20)
    assert [(incident.cause, world.status.epoch) for incident in world.status.incidents] == [("WorkerExited", 2)]


def test_a_fault_after_it_is_nobodys_purpose() -> None:
    world = injected(started(), "worker").training(epoch=2).run(20)
    world.exit_child(world.members()[0])
    world.training(epoch=3)
    assert [incident.injection for incident in world.incidents()] == ["r1", ""]


@pytest.mark.parametrize(
    "kind", ["worker", "workers", "trainer-agent", "trainer-drain", "gpu", "exporter-lying", "engine", "rollout-pod"]
)
def test_struck_once_wherever_the_operator_is_killed(kind: str) -> None:
    for kill_after in range(12):
        world = started()
        pods = set(world.pods)
        injected(world, kind).kill_operator_after = kill_after
        world.until(lambda w: w.status.injection is not None and w.status.injection.stage == "Struck")
        world.kill_operator_after = None
        world.run(30).training()
        targets = len(world.status.injection.targets) if world.status.injection else 0
        assert targets == (2 if kind in ("workers", "exporter-lying") else 1)
        if kind in ("rollout-pod", "trainer-drain", "gpu"):
            assert len(pods - set(world.pods)) == 1
        else:
            assert len(world.strikes) == (0 if kind == "exporter-lying" else targets)
        assert world.status.epoch == (1 if kind in ("engine", "rollout-pod", "exporter-lying") else 2)


def test_the_same_request_seen_again_strikes_no_more() -> None:
    world = injected(started(), "worker").training(epoch=2).run(60)
    world.replace_operator()
    world.run(60)
    assert (len(world.strikes), world.status.epoch) == (1, 2)
    assert world.elapsed > 60
    assert world.now - world.operator.since >= 59 * SECOND


@pytest.mark.parametrize(("trainers", "stage"), [(1000, "Striking"), (1001, "Refused")])
def test_no_more_are_struck_at_once_than_status_has_room_for(trainers: int, stage: str) -> None:
    """The API server would refuse the status, and every one after it."""
    view = asked("workers", spec=job(trainer={"replicas": trainers}, **ALLOWED))
    after = inject.apply(draft(view))
    assert after.status.injection is not None
    assert after.status.injection.stage == stage
    RLJobStatus.model_validate(after.status.model_dump())
