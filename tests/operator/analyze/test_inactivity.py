"""Work that stands still and leases that run out, as a table; and what stays unsuspected."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.operator.build import NOW, SECOND, job, running_job, saying, with_pod

from robustrl_api.control import Activity, Child, ChildState, Exit
from robustrl_api.spec import TrainerDetection
from robustrl_api.status import Scope
from robustrl_operator.analyze import Health, Question, Verdict, analyze
from robustrl_operator.analyze.inactivity import learned
from robustrl_operator.view import JobView, PodView, Probe

TRAINER, ROLLOUT, MANAGER = "j-trainer-1", "j-rollout-3", "j-manager-0"
BOTH = ("j-trainer-1", "j-trainer-2")


def idle(seconds: float, **shown: float) -> Activity:
    return Activity(idle_seconds=seconds, idle_text="stands still", shown=shown)


def asked(ago: float, *, done: bool = True, answered: bool = False, deep: bool = True) -> Probe:
    return Probe(NOW - ago * SECOND, answered, done, deep)


def phase(name: str, seconds: float, **shown: float) -> dict[str, object]:
    return {"phase": name, "activity": Activity(phase_seconds=seconds, shown=shown)}


def starting(activity: Activity, last: Exit | None = None) -> dict[str, object]:
    return {"child": Child(state=ChildState.STARTING, life="a.2", last_exit=last), "activity": activity}


def asleep(seconds: float) -> Activity:
    return Activity(phase_seconds=seconds, asleep_seconds=seconds)


KILLED, ENDED = Exit(code=-9), Exit(code=-9, requested=True)

# name, pod, what its report says, probe -> health, cause, what it is asked
TABLE = [
    ("trainer idle for a while", TRAINER, {"activity": idle(294)}, None, "Healthy", "None", "None"),
    ("its time is over when it has answered", TRAINER, {"activity": idle(295)}, None, "Suspect", "WorkerHung", "Works"),
    ("does not work, and its time is not over", TRAINER, {"activity": idle(299)}, asked(1), "Suspect", "WorkerHung",
     "None"),
    ("works before its time is over", TRAINER, {"activity": idle(299)}, asked(1, answered=True), "Healthy", "None",
     "None"),
    ("trainer idle for too long", TRAINER, {"activity": idle(301)}, None, "Suspect", "WorkerHung", "Works"),
    ("being asked", TRAINER, {"activity": idle(301)}, asked(1, done=False), "Suspect", "WorkerHung", "None"),
    ("does not work", TRAINER, {"activity": idle(301)}, asked(1), "Failed", "WorkerHung", "None"),
    ("works after all", TRAINER, {"activity": idle(301)}, asked(1, answered=True), "Healthy", "None", "None"),
    ("worked, long ago", TRAINER, {"activity": idle(900)}, asked(400, answered=True), "Suspect", "WorkerHung", "Works"),
    ("did not work the last time", TRAINER, {"activity": idle(301)}, asked(500), "Suspect", "WorkerHung", "Works"),
    ("only its agent was asked", TRAINER, {"activity": idle(301)}, asked(1, deep=False), "Suspect", "WorkerHung",
     "Works"),
    ("engine slow", ROLLOUT, {"activity": idle(54)}, None, "Healthy", "None", "None"),
    ("engine makes no tokens", ROLLOUT, {"activity": idle(61)}, None, "Suspect", "EngineHung", "Works"),
    ("engine does not answer", ROLLOUT, {"activity": idle(61)}, asked(1), "Failed", "EngineHung", "None"),
    ("managers silent", MANAGER, {"activity": idle(31)}, None, "Suspect", "ManagerHung", "Works"),
    ("managers do not answer", MANAGER, {"activity": idle(31)}, asked(1), "Failed", "ManagerHung", "None"),
    # Starts.
    ("engine sleeps as it starts", ROLLOUT, starting(asleep(594)), None, "Healthy", "None", "None"),
    ("engine sleeps for too long", ROLLOUT, starting(asleep(601)), None, "Suspect", "EngineHung", "Works"),
    ("engine still sleeps", ROLLOUT, starting(asleep(605)), asked(1), "Failed", "EngineHung", "None"),
    ("engine answers", ROLLOUT, starting(asleep(605)), asked(1, answered=True), "Healthy", "None", "None"),
    ("the one before was asked", ROLLOUT, starting(asleep(601)), asked(700), "Suspect", "EngineHung", "Works"),
    ("engine stopped as it starts", ROLLOUT, starting(idle(61)), None, "Suspect", "EngineHung", "Works"),
    ("engine stopped for a moment", ROLLOUT, starting(idle(54)), None, "Healthy", "None", "None"),
    ("a large model", ROLLOUT, starting(Activity(phase_seconds=90_000)), None, "Healthy", "None", "None"),
    ("engine with nothing to do", ROLLOUT, {"activity": asleep(90_000)}, None, "Healthy", "None", "None"),
    ("engine starts again", ROLLOUT, starting(asleep(9), KILLED), None, "Suspect", "EngineExited", "None"),
    ("it hangs", ROLLOUT, starting(asleep(601), KILLED), None, "Suspect", "EngineHung", "Works"),
    ("it hangs, and not for the first time", ROLLOUT, starting(asleep(601), ENDED), None, "Suspect", "EngineHung",
     "Works"),
    ("it is stopped", ROLLOUT, starting(idle(61), ENDED), asked(1), "Failed", "EngineHung", "None"),
    ("managers hang as they start again", MANAGER, starting(idle(601), KILLED), None, "Suspect", "ManagerHung",
     "Works"),
    # Leases.
    ("checkpoint in time", TRAINER, phase("Checkpoint", 890), None, "Healthy", "None", "None"),
    ("checkpoint overdue", TRAINER, phase("Checkpoint", 901), None, "Failed", "PhaseOverdue", "None"),
    ("waiting for a batch", TRAINER, phase("Wait", 90_000), None, "Healthy", "None", "None"),
    ("a long step", TRAINER, phase("Train", 90_000), None, "Healthy", "None", "None"),
    ("between phases", TRAINER, phase("", 90_000), None, "Healthy", "None", "None"),
    ("a phase of the user's", TRAINER, phase("Evaluate", 901), None, "Failed", "PhaseOverdue", "None"),
    ("weights applied slowly", ROLLOUT, phase("Applying", 590), None, "Healthy", "None", "None"),
    ("weights never applied", ROLLOUT, phase("Applying", 601), None, "Failed", "PhaseOverdue", "None"),
    ("serving for long", ROLLOUT, phase("Serving", 90_000), None, "Healthy", "None", "None"),
    ("a long pull", ROLLOUT, phase("Pulling", 90_000), None, "Healthy", "None", "None"),
]  # fmt: skip


@pytest.mark.parametrize(("pod", "fields", "probe", "health", "cause", "question"), [row[1:] for row in TABLE],
                         ids=[row[0] for row in TABLE])  # fmt: skip
def test_verdict(
    pod: str, fields: dict[str, object], probe: Probe | None, health: str, cause: str, question: str
) -> None:
    view = saying(running_job(), pod, ago=0, **fields)
    verdict = analyze(replace(view, probes={f"uid-{pod}": probe} if probe else {}))[f"uid-{pod}"]
    assert (verdict.health.value, verdict.cause.value, verdict.ask.value) == (health, cause, question)
    assert health == "Healthy" or pod in verdict.evidence, "the evidence names the pod"


@pytest.mark.parametrize(
    ("fields", "probe", "health", "question"),
    [
        pytest.param({"activity": idle(9)}, None, "Leaving", "None", id="it works"),
        pytest.param({"activity": idle(301)}, None, "Leaving", "Works", id="it stands still"),
        pytest.param({"activity": idle(301)}, asked(1, answered=True), "Leaving", "None", id="it works after all"),
        pytest.param({"activity": idle(301)}, asked(1), "Failed", "None", id="it hangs"),
        pytest.param(phase("Checkpoint", 901), None, "Failed", "None", id="its lease has run out"),
    ],
)
def test_a_trainer_that_hangs_hands_nothing_over(
    fields: dict[str, object], probe: Probe | None, health: str, question: str
) -> None:
    """All trainers' nodes are called back: nobody else would be found to hang, and all would wait for ever."""
    view = running_job()
    for name in BOTH:
        view = with_pod(saying(view, name, ago=0, **fields), name, called_back=True)
    verdict = analyze(replace(view, probes={f"uid-{TRAINER}": probe} if probe else {}))[f"uid-{TRAINER}"]
    assert (verdict.health.value, verdict.ask.value) == (health, question)
    assert verdict.scope is Scope.POD


@pytest.mark.parametrize(
    ("mine", "peer", "hangs"),
    [
        pytest.param((5, 1), (5, 1), True, id="the peer has trained this step and waits to commit it"),
        pytest.param((5, 2), (5, 1), False, id="the peer evaluates between two times"),
        pytest.param((5, 1), (5, 0), False, id="the peer evaluates before the step"),
        pytest.param((5, 1), (6, 1), False, id="nothing is known of a step that one has not heard of"),
        pytest.param((5, 0), (5, 0), False, id="agents that do not count"),
    ],
)
def test_a_peer_that_is_ahead_explains_no_standstill(mine: tuple[int, int], peer: tuple[int, int], hangs: bool) -> None:
    """A worker stops in its optimizer step. The gradients were reduced, so the other goes on to its checkpoint, in the
    same second, and waits there; its lease may be a quarter of an hour."""
    view = running_job()
    for name, at, (step, trained), idle_seconds in ((BOTH[0], "Train", mine, 301), (BOTH[1], "Checkpoint", peer, 0)):
        work = Activity(phase_seconds=301, idle_seconds=idle_seconds, idle_text="stands still", trained=trained)
        view = saying(view, name, ago=0, phase=at, step=step, activity=work)
    assert (analyze(view)[f"uid-{BOTH[0]}"].ask is Question.WORKS) is hangs
    assert analyze(view)[f"uid-{BOTH[1]}"].ask is Question.NONE


def test_time_since_the_last_report_counts() -> None:
    view = saying(running_job(), TRAINER, ago=1.5, activity=idle(294))
    assert analyze(view)[f"uid-{TRAINER}"].ask is Question.WORKS


def test_a_worker_of_an_older_epoch_is_not_judged() -> None:
    view = saying(running_job(), TRAINER, Child(state=ChildState.RUNNING, epoch=0), ago=0, activity=idle(9999))
    assert analyze(view)[f"uid-{TRAINER}"].ask is Question.NONE


@pytest.mark.parametrize(("seconds", "asked_for"), [(594, Question.NONE), (596, Question.WORKS)])
def test_managers_that_still_start_have_as_long_as_a_pod(seconds: float, asked_for: Question) -> None:
    view = saying(running_job(), MANAGER, Child(state=ChildState.STARTING), ago=0, activity=idle(seconds))
    assert analyze(view)[f"uid-{MANAGER}"].ask is asked_for


@pytest.mark.parametrize(
    ("silent", "probe", "asked_for"),
    [
        pytest.param(1.9, None, Question.WORKS, id="heard of lately"),
        pytest.param(2.1, None, Question.NONE, id="silent: its machine may be gone"),
        pytest.param(9.0, asked(5), Question.NONE, id="and it answers no probe"),
        pytest.param(9.0, asked(5, answered=True, deep=False), Question.WORKS, id="but it answers a probe"),
        pytest.param(9.0, asked(10, answered=True, deep=False), Question.NONE, id="it did, before it fell silent"),
    ],
)
def test_a_trainer_that_may_wait_for_a_silent_peer_is_not_asked(
    silent: float, probe: Probe | None, asked_for: Question
) -> None:
    view = running_job(job(detection={"lostAfterMissed": 60}))
    view = saying(saying(view, BOTH[0], ago=0, activity=idle(400)), BOTH[1], ago=silent)
    view = replace(view, probes={f"uid-{BOTH[1]}": probe} if probe else {})
    assert analyze(view)[f"uid-{BOTH[0]}"].ask is asked_for


@pytest.mark.parametrize(
    ("child", "seconds", "asked_for"),
    [
        pytest.param(Child(state=ChildState.RUNNING), 296, Question.WORKS, id="managers work for long enough"),
        pytest.param(Child(state=ChildState.RUNNING), 294, Question.NONE, id="managers are new"),
        pytest.param(Child(state=ChildState.STARTING), 301, Question.NONE, id="managers are away"),
    ],
)
def test_a_trainer_may_wait_for_one_that_waits_for_the_managers(
    child: Child, seconds: float, asked_for: Question
) -> None:
    view = saying(running_job(), BOTH[0], ago=0, activity=idle(400))
    view = saying(view, MANAGER, child, ago=0, activity=Activity(phase_seconds=seconds))
    assert analyze(view)[f"uid-{BOTH[0]}"].ask is asked_for


@pytest.mark.parametrize(
    ("silent", "changes", "asked_for"),
    [
        pytest.param(1, {}, Question.WORKS, id="managers report"),
        pytest.param(3, {}, Question.NONE, id="their machine may be gone"),
        pytest.param(1, {"deleting": True}, Question.NONE, id="their pod is on its way out"),
    ],
)
def test_managers_that_are_gone_do_not_count_by_what_they_said_last(
    silent: float, changes: dict[str, Any], asked_for: Question
) -> None:
    view = saying(running_job(), BOTH[0], ago=0, activity=idle(400))
    busy = Child(state=ChildState.RUNNING)
    view = saying(view, MANAGER, busy, ago=silent, activity=Activity(phase_seconds=900))
    assert analyze(with_pod(view, MANAGER, **changes))[f"uid-{BOTH[0]}"].ask is asked_for


LEARNED = TrainerDetection(learned_multiple=10, learned_floor_seconds=30)


@pytest.mark.parametrize(
    ("shown", "deadline"),
    [(None, 300), (0.01, 30), (2.9, 30), (4, 40), (29, 290), (31, 300), (1000, 300)],
)
def test_deadlines_are_learned_within_floor_and_ceiling(shown: float | None, deadline: float) -> None:
    assert learned(LEARNED, 300, shown).total_seconds() == deadline


def test_a_deadline_is_learned_from_what_all_members_have_shown() -> None:
    view = running_job(job(detection={"trainer": {"learnedFloorSeconds": 30}}))
    for name in BOTH:
        view = saying(view, name, ago=0, activity=idle(50, idle=4.0, Train=20.0))
    assert {analyze(view)[f"uid-{name}"].ask for name in BOTH} == {Question.WORKS}, "4 s x 10 is less than 50 s"
    unproven = saying(view, BOTH[1], ago=0, activity=idle(50, idle=4.0))
    assert {analyze(unproven)[f"uid-{name}"].ask for name in BOTH} == {Question.NONE}, "no whole step was seen yet"
    newcomer = saying(view, BOTH[1], ago=0, activity=idle(50))
    assert {analyze(newcomer)[f"uid-{name}"].ask for name in BOTH} == {Question.NONE}, "its first steps may be slow"


@pytest.mark.parametrize(("phase", "cause"), [("Checkpoint", "PhaseOverdue"), ("Restore", "None")])
def test_restores_from_memory_say_nothing_of_one_from_storage(phase: str, cause: str) -> None:
    view = running_job()
    for name in BOTH:
        activity = Activity(phase_seconds=200, shown={phase: 1.0})
        view = saying(view, name, ago=0, phase=phase, activity=activity)
    assert {analyze(view)[f"uid-{name}"].cause for name in BOTH} == {cause}


def test_the_fields_of_the_spec_decide() -> None:
    spec = job(detection={"trainer": {"idleSeconds": 5}, "rollout": {"zeroThroughputSeconds": 7}, "probeSeconds": 1})
    view = running_job(spec)
    for name in (TRAINER, ROLLOUT):
        view = saying(view, name, ago=0, activity=idle(5))
    assert analyze(view)[f"uid-{TRAINER}"].ask is Question.WORKS
    assert analyze(view)[f"uid-{ROLLOUT}"].ask is Question.NONE


@pytest.mark.parametrize(("seconds", "asked_for"), [(3.9, Question.NONE), (4.0, Question.WORKS)])
def test_who_has_less_time_than_the_probe_is_asked_after_half_of_it(seconds: float, asked_for: Question) -> None:
    view = running_job(job(detection={"trainer": {"idleSeconds": 8}, "probeSeconds": 60}))
    assert analyze(saying(view, TRAINER, ago=0, activity=idle(seconds)))[f"uid-{TRAINER}"].ask is asked_for


@pytest.mark.parametrize(
    ("other", "hangs"),
    [
        ({"activity": asleep(901)}, True),
        ({"activity": asleep(600)}, False),
        ({"activity": Activity(phase_seconds=901)}, False),
        (phase("Wait", 901), False),
        (phase("Train", 901), False),
    ],
    ids=["sleeps as well", "began to sleep later", "prepares the data", "waits for a batch", "trains"],
)
def test_trainers_that_all_sleep_outside_of_any_phase_hang(other: dict[str, Any], hangs: bool) -> None:
    """A script that hangs before its first phase, in an import or in a collective of its own, has no lease."""
    view = saying(saying(running_job(), BOTH[0], activity=asleep(901)), BOTH[1], **other)
    found = [analyze(view)[f"uid-{name}"] for name in BOTH]
    assert [verdict.ask for verdict in found] == [Question.WORKS if hangs else Question.NONE] * 2
    probes = {f"uid-{name}": asked(1) for name in BOTH}
    assert analyze(replace(view, probes=probes))[f"uid-{BOTH[0]}"].failed is hangs


def test_a_detector_of_the_users_speaks_where_nothing_else_does() -> None:
    verdict = Verdict(Health.SUSPECT, evidence="loss is NaN")

    def detector(view: JobView, pod: PodView) -> Verdict | None:
        return verdict if pod.name == TRAINER else None

    found = analyze(running_job(), (detector,))
    assert found[f"uid-{TRAINER}"] is verdict
    assert found[f"uid-{ROLLOUT}"].health.value == "Healthy"
