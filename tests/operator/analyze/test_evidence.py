"""Evidence to verdict, as a table: one pod's evidence at a time, everybody else well."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.operator.build import NOW, SECOND, exited, pod, running_job, saying, with_pod, with_status, without_pod

from robustrl_api.control import Child, ChildState, Complaint, Exit
from robustrl_api.names import Role
from robustrl_operator.analyze import Cause, Health, Question, analyze
from robustrl_operator.analyze.silence import PROBE_LEAD
from robustrl_operator.view import Heard, JobView, NodeView, Probe

TRAINER, ROLLOUT, MANAGER = "j-trainer-1", "j-rollout-3", "j-manager-0"
VIEW = running_job()

Change = Callable[[JobView, str], JobView]


def says(child: Child | None = None, **fields: object) -> Change:
    return lambda view, name: saying(view, name, child, **fields)


def is_now(**fields: object) -> Change:
    return lambda view, name: with_pod(view, name, **fields)


def silent(seconds: float, probe: Probe | None = None) -> Change:
    def change(view: JobView, name: str) -> JobView:
        view = saying(view, name, ago=seconds)
        return replace(view, probes={f"uid-{name}": probe} if probe else {})

    return change


def both(*changes: Change) -> Change:
    def change(view: JobView, name: str) -> JobView:
        for each in changes:
            view = each(view, name)
        return view

    return change


def node_lost(view: JobView, name: str) -> JobView:
    (pod,) = [p for p in view.pods if p.name == name]
    return replace(view, nodes={**view.nodes, pod.node: NodeView(pod.node, ready=False)})


def unseated(view: JobView, name: str) -> JobView:
    return with_status(view, members=tuple(m for m in view.status.members if m.pod != name))


def node_leaves(view: JobView, name: str) -> JobView:
    (pod,) = [p for p in view.pods if p.name == name]
    return replace(view, nodes={**view.nodes, pod.node: NodeView(pod.node, leaving=True)})


def unheard(age: float) -> Change:
    """A pod that has never reported, created `age` seconds ago."""

    def change(view: JobView, name: str) -> JobView:
        view = with_pod(view, name, created=NOW - age * SECOND)
        return replace(view, reports={uid: said for uid, said in view.reports.items() if uid != f"uid-{name}"})

    return change


def was_up(seconds: float, probe: Probe | None = None) -> Change:
    """Never heard of by this operator, and its container was started so long ago."""

    def change(view: JobView, name: str) -> JobView:
        view = with_pod(unheard(seconds)(view, name), name, container_changed=NOW - seconds * SECOND)
        return replace(view, probes={f"uid-{name}": probe} if probe else {})

    return change


def listening_for(seconds: float) -> Change:
    return lambda view, name: replace(view, watching_since=NOW - seconds * SECOND)


def operator_silent_for(seconds: float) -> Change:
    """The operator that led before was on the pod's node."""

    def change(view: JobView, name: str) -> JobView:
        (pod,) = [p for p in view.pods if p.name == name]
        return replace(view, nodes={**view.nodes, pod.node: NodeView(pod.node, silent_since=NOW - seconds * SECOND)})

    return change


def nobody_heard(view: JobView, _name: str) -> JobView:
    return replace(view, reports={})


def gone(view: JobView, name: str) -> JobView:
    return without_pod(view, name)


def worked_never(view: JobView, name: str) -> JobView:
    """Before anything of the job has been seen to work."""
    reports = {
        uid: replace(said, report=said.report.model_copy(update={"step": 0, "admitted": False}))
        for uid, said in view.reports.items()
    }
    return replace(with_status(view, step=0), reports=reports)


def probed(probe: Probe) -> Change:
    return lambda view, name: replace(view, probes={f"uid-{name}": probe})


def begun(seconds: float) -> Change:
    """Its agent's first report came so long ago."""

    def change(view: JobView, name: str) -> JobView:
        said = replace(view.reports[f"uid-{name}"], begun=NOW - seconds * SECOND)
        return replace(view, reports={**view.reports, f"uid-{name}": said})

    return change


def hung(restarts: int) -> Child:
    """An engine or managers that their agent has ended, as it was told to."""
    return Child(state=ChildState.EXITED, last_exit=Exit(code=-9, requested=True), restarts=restarts)


NO_ANSWER = Probe(NOW - 1 * SECOND, answered=False)
BUSY = Probe(NOW - 1 * SECOND, answered=False, reached=True)
ANSWERED = Probe(NOW - 1 * SECOND, answered=True, reached=True)
ASKED = Probe(NOW - 0.5 * SECOND, answered=False, done=False)
OLD = Probe(NOW - 60 * SECOND, answered=False)
UNKILLABLE_PROCESS = Complaint(reason="ProcessUnkillable", message="process 7 does not end")
COMPLAINT = Complaint(reason="VolumeUnusable", message="/storage cannot be written")
RUNNING = Child(state=ChildState.RUNNING, epoch=1)
FIVE = exited(restarts=5)

RESTARTED = Child(state=ChildState.EXITED, epoch=1, last_exit=Exit(code=-9, agent_restarted=True))
HANDED_OVER = Child(state=ChildState.EXITED, epoch=1, last_exit=Exit(code=76, handed_over=True))


def cut_off(*, others_since: float, others_ago: float = 0.1) -> Change:
    """Silent for ten minutes, though it answers probes; the others have reported without a gap."""

    def change(view: JobView, name: str) -> JobView:
        steady = {"at": NOW - others_ago * SECOND, "steady_since": NOW - others_since * SECOND}
        others = {uid: replace(said, **steady) for uid, said in view.reports.items()}
        quiet = silent(601, ANSWERED)(replace(view, watching_since=NOW - 900 * SECOND), name)
        return replace(quiet, reports={**others, f"uid-{name}": quiet.reports[f"uid-{name}"]})

    return change


# name, pod, evidence -> health, cause, scope (where it matters), whether to probe
TABLE = [
    ("all well", TRAINER, says(), "Healthy", "None", None, False),
    # The agent saw it.
    ("worker exits", TRAINER, says(exited(1)), "Failed", "WorkerExited", "Process", False),
    ("worker is killed", TRAINER, says(exited(-9)), "Failed", "WorkerExited", "Process", False),
    ("agent was restarted", TRAINER, says(RESTARTED), "Failed", "AgentRestarted", "Process", False),
    ("worker of a trainer without a seat", TRAINER, both(says(exited(1)), unseated), "Healthy", "None", None, False),
    ("worker of an older epoch", TRAINER, says(exited(1, epoch=0)), "Healthy", "None", None, False),
    ("script ends well", TRAINER, says(exited(0)), "Finished", "None", None, False),
    ("agent cannot go on", TRAINER, both(says(complaint=COMPLAINT), worked_never), "Failed", "BadConfiguration", "Pod",
     False),
    ("a process cannot be ended", TRAINER, both(says(complaint=UNKILLABLE_PROCESS), worked_never), "Failed",
     "PodFailed", "Pod", False),
    ("one agent cannot go on later", ROLLOUT, says(complaint=COMPLAINT), "Failed", "PodFailed", "Pod", False),
    ("one trainer's agent cannot go on later", TRAINER, says(complaint=COMPLAINT), "Failed", "PodFailed", "Pod", False),
    ("the managers cannot go on", MANAGER, says(complaint=COMPLAINT), "Failed", "BadConfiguration", "Pod", False),
    ("storage full from the start", TRAINER, both(says(unstored="No space left"), worked_never), "Failed",
     "BadConfiguration", "Pod", False),
    ("storage full later on", TRAINER, says(unstored="No space left"), "Healthy", "None", None, False),
    ("engine exits", ROLLOUT, says(exited(-11)), "Suspect", "EngineExited", "Process", False),
    ("engine starts after an exit", ROLLOUT, says(exited().model_copy(update={"state": ChildState.STARTING})),
     "Suspect", "EngineExited", "Process", False),
    ("engine is back", ROLLOUT, says(exited().model_copy(update={"state": ChildState.RUNNING})),
     "Healthy", "None", None, False),
    ("engine keeps exiting", ROLLOUT, says(FIVE), "Failed", "EngineExited", "Pod", False),
    ("engine never worked", ROLLOUT, both(says(FIVE), worked_never), "Failed", "BadConfiguration", "Pod", False),
    ("manager exits", MANAGER, says(exited(1)), "Suspect", "ManagerExited", "Process", False),
    ("manager never worked", MANAGER, both(says(FIVE), worked_never), "Failed", "BadConfiguration", "Pod", False),
    ("engine that hung is ended", ROLLOUT, says(hung(2)), "Starting", "None", None, False),
    ("engine that hung starts", ROLLOUT, says(hung(3).model_copy(update={"state": ChildState.STARTING})), "Starting",
     "None", None, False),
    ("engine hangs again and again", ROLLOUT, says(hung(3)), "Failed", "EngineHung", "Pod", False),
    ("engine always hung", ROLLOUT, both(says(hung(3)), worked_never), "Failed", "BadConfiguration", "Pod", False),
    ("manager hangs again and again", MANAGER, says(hung(3)), "Failed", "ManagerHung", "Pod", False),
    # The API server says it.
    ("trainer being deleted, with grace", TRAINER, is_now(deleting=True, ends_at=NOW + 9 * SECOND), "Leaving",
     "PodLeaving", "Pod", False),
    ("grace is over", TRAINER, is_now(deleting=True, ends_at=NOW + 3 * SECOND), "Failed", "PodDeleted", "Pod", False),
    ("deleted, and its worker fails", TRAINER, both(says(exited(1)), is_now(deleting=True)), "Failed", "WorkerExited",
     "Pod", False),
    ("deleted and silent already", TRAINER, both(silent(3.1), is_now(deleting=True)), "Failed", "PodDeleted", "Pod",
     False),
    ("rollout being deleted", ROLLOUT, is_now(deleting=True, ends_at=NOW + 9 * SECOND), "Failed", "PodDeleted", "Pod",
     False),
    ("agent was told to end", TRAINER, says(RUNNING, leaving=True), "Leaving", "PodLeaving", "Pod", False),
    ("rollout's agent was told to end", ROLLOUT, says(leaving=True), "Leaving", "PodLeaving", "Pod", False),
    ("its node is called back", TRAINER, node_leaves, "Leaving", "PodLeaving", "Pod", False),
    ("a taint will end it", TRAINER, is_now(called_back=True), "Leaving", "PodLeaving", "Pod", False),
    ("script ends well as its node is called back", TRAINER, both(says(exited(0)), node_leaves), "Finished", "None",
     None, False),
    ("script ends well as its pod is deleted", TRAINER,
     both(says(exited(0)), is_now(deleting=True, ends_at=NOW + 9 * SECOND)), "Finished", "None", None, False),
    ("handed over and its node is called back", TRAINER, both(says(HANDED_OVER), node_leaves), "Leaving", "PodLeaving",
     "Pod", False),
    ("trainer has handed over", TRAINER, says(HANDED_OVER), "HandedOver", "None", None, False),
    ("deleted on a lost node", TRAINER, both(is_now(deleting=True), node_lost), "Failed", "PodDeleted", "Node", False),
    ("pod gone", TRAINER, gone, "Failed", "PodDeleted", "Pod", False),
    ("evicted", ROLLOUT, is_now(phase="Failed", reason="Evicted"), "Failed", "Evicted", "Pod", False),
    ("out of memory", TRAINER, is_now(phase="Failed", reason="OOMKilled"), "Failed", "OutOfMemory", "Pod", False),
    ("failed otherwise", ROLLOUT, is_now(phase="Failed", reason="Preempting"), "Failed", "PodFailed", "Pod", False),
    ("no image", ROLLOUT, both(is_now(waiting="ImagePullBackOff"), worked_never), "Failed", "BadImage", "Pod", False),
    ("no such config map", MANAGER, both(is_now(waiting="CreateContainerConfigError"), worked_never), "Failed",
     "BadConfiguration", "Pod", False),
    ("no image any more", ROLLOUT, both(unheard(500), is_now(waiting="ImagePullBackOff")), "Starting", "None", None,
     False),
    ("no image for too long", ROLLOUT, both(unheard(601), listening_for(900), is_now(waiting="ImagePullBackOff")),
     "Failed", "NeverStarted", "Pod", False),
    ("container being created", ROLLOUT, both(unheard(5), is_now(waiting="ContainerCreating")), "Starting", "None",
     None, False),
    ("waiting for a machine", ROLLOUT, both(unheard(500), is_now(waiting="Unschedulable")), "Starting", "None", None,
     False),
    # Silence.
    ("short silence", TRAINER, silent(1.8), "Healthy", "None", None, False),
    ("long silence, not asked yet", TRAINER, silent(2.1), "Suspect", "HeartbeatLost", None, True),
    ("being asked", TRAINER, silent(4, ASKED), "Suspect", "HeartbeatLost", None, False),
    ("answers", TRAINER, silent(4, ANSWERED), "Suspect", "HeartbeatLost", None, True),
    ("answers, silent for minutes", ROLLOUT, silent(300, ANSWERED), "Suspect", "HeartbeatLost", None, True),
    ("answers, silent for longer than a start may take", TRAINER, cut_off(others_since=61), "Failed", "HeartbeatLost",
     "Pod", False),
    ("the others are back just now", TRAINER, cut_off(others_since=59), "Suspect", "HeartbeatLost", None, True),
    ("does not answer before the limit", TRAINER, silent(2.8, NO_ANSWER), "Suspect", "HeartbeatLost", None, False),
    ("does not answer", TRAINER, silent(2.95, NO_ANSWER), "Failed", "HeartbeatLost", "Node", False),
    ("does not answer, node lost", TRAINER, both(silent(9, NO_ANSWER), node_lost), "Failed", "NodeLost", "Node", False),
    ("container just started again", ROLLOUT, both(silent(4, NO_ANSWER), is_now(container_changed=NOW - SECOND)),
     "Healthy", "None", None, False),
    ("container started again long ago", ROLLOUT,
     both(silent(15, NO_ANSWER), is_now(container_changed=NOW - 9 * SECOND)), "Failed", "HeartbeatLost", "Node", False),
    ("asked before its container was started again", ROLLOUT,
     both(silent(9, Probe(NOW - 8 * SECOND, answered=False)), is_now(container_changed=NOW - 7.5 * SECOND)),
     "Suspect", "HeartbeatLost", None, True),
    ("container started before the last report", ROLLOUT,
     both(silent(4, NO_ANSWER), is_now(container_changed=NOW - 5 * SECOND)), "Failed", "HeartbeatLost", "Node", False),
    ("node's clock is ahead", ROLLOUT, both(silent(14, NO_ANSWER), is_now(container_changed=NOW + 999 * SECOND)),
     "Failed", "HeartbeatLost", "Node", False),
    ("agent has just begun", ROLLOUT, both(silent(4, NO_ANSWER), begun(10)), "Healthy", "None", None, False),
    ("agent has just begun, of a pod that is new as well", ROLLOUT,
     both(both(silent(4, NO_ANSWER), begun(10)), both(is_now(container_changed=NOW - 20 * SECOND), listening_for(34))),
     "Healthy", "None", None, False),
    ("agent heard first by an operator that is new, and up before", ROLLOUT,
     both(both(silent(4, NO_ANSWER), begun(10)), both(is_now(container_changed=NOW - 99 * SECOND), listening_for(10))),
     "Failed", "HeartbeatLost", "Node", False),
    ("agent began long ago", ROLLOUT, both(silent(4, NO_ANSWER), begun(14)), "Failed", "HeartbeatLost", "Node", False),
    ("no address to ask", TRAINER, both(silent(4), is_now(address="")), "Suspect", "HeartbeatLost", None, False),
    ("no address, for long", TRAINER, both(silent(13.1), is_now(address="")), "Failed", "HeartbeatLost", "Pod", False),
    ("no address, node lost", TRAINER, both(silent(4), is_now(address=""), node_lost), "Failed", "NodeLost",
     "Node", False),
    ("did not answer long ago", TRAINER, silent(4, OLD), "Suspect", "HeartbeatLost", None, True),
    ("node not ready, agent reports", TRAINER, node_lost, "Healthy", "None", None, False),
    ("silent, node back", ROLLOUT, silent(9, NO_ANSWER), "Failed", "HeartbeatLost", "Node", False),
    # Never heard of.
    ("new pod", ROLLOUT, unheard(10), "Starting", "None", None, False),
    ("new pod, too long", ROLLOUT, both(unheard(601), listening_for(900)), "Failed", "NeverStarted", "Pod", False),
    ("new pod on a lost node", ROLLOUT, both(unheard(10), node_lost), "Failed", "NodeLost", "Node", False),
    ("old pod on a lost node, new operator", ROLLOUT, both(both(unheard(9999), listening_for(7)), node_lost),
     "Starting", "None", None, False),
    ("old pod on a lost node, operator older", ROLLOUT, both(both(unheard(9999), listening_for(9)), node_lost),
     "Failed", "NodeLost", "Node", False),
    ("old pod, new operator", ROLLOUT, both(unheard(9999), listening_for(5)), "Starting", "None", None, False),
    ("agent was up before, new operator", MANAGER, both(was_up(60), listening_for(1.8)), "Starting", "None", None,
     False),
    ("agent was up before, new operator, not heard", MANAGER, both(was_up(60), listening_for(2.1)), "Suspect",
     "HeartbeatLost", None, True),
    ("agent was up before, new operator, no answer", MANAGER, both(was_up(60, NO_ANSWER), listening_for(3.1)), "Failed",
     "HeartbeatLost", "Node", False),
    # Where that one's predecessor was and fell silent, agents are as silent as he.
    ("beside the operator that fell silent", MANAGER,
     both(was_up(60), both(listening_for(0.1), operator_silent_for(3.5))), "Suspect", "HeartbeatLost", None, True),
    ("member beside the operator that fell silent, no answer", TRAINER,
     both(both(unheard(9999), listening_for(1.1)), both(operator_silent_for(4.5), probed(NO_ANSWER))), "Failed",
     "HeartbeatLost", "Node", False),
    # Then it may be the new operator that cannot be reached, until everybody had the time to.
    ("member beside the operator that fell silent, new operator found by nobody", TRAINER,
     both(nobody_heard, both(listening_for(2.8), both(operator_silent_for(6.2), probed(NO_ANSWER)))), "Suspect",
     "HeartbeatLost", None, False),
    ("member beside the operator that fell silent, new operator found by nobody for long", TRAINER,
     both(nobody_heard, both(listening_for(2.9), both(operator_silent_for(6.3), probed(NO_ANSWER)))), "Failed",
     "HeartbeatLost", "Node", False),
    # It was the operator's process alone that died.
    ("beside the operator that fell silent, answers", MANAGER,
     both(was_up(60, ANSWERED), both(listening_for(1.1), operator_silent_for(4.5))), "Starting", "None", None, False),
    ("beside the operator that fell silent, busy", MANAGER,
     both(was_up(60, BUSY), both(listening_for(1.1), operator_silent_for(4.5))), "Starting", "None", None, False),
    ("beside the operator that fell silent, busy for as long as others may be", MANAGER,
     both(was_up(60, BUSY), both(listening_for(3.1), operator_silent_for(6.5))), "Failed", "HeartbeatLost", "Node",
     False),
    ("beside the operator that fell silent, heard since", MANAGER, both(listening_for(1.1), operator_silent_for(4.5)),
     "Healthy", "None", None, False),
    ("new pod where an operator fell silent", ROLLOUT,
     both(unheard(10), both(listening_for(20), operator_silent_for(24))), "Starting", "None", None, False),
    ("agent came up, new operator", MANAGER, both(was_up(17), listening_for(3.1)), "Starting", "None", None, False),
    ("pod is new, its node's clock behind, new operator", MANAGER,
     both(both(was_up(60), is_now(created=NOW - 10 * SECOND)), listening_for(3.1)), "Starting", "None", None, False),
    # A new operator starts with nobody under suspicion.
    ("unheard member, new operator", TRAINER, both(unheard(9999), listening_for(1.8)), "Starting", "None", None, False),
    ("unheard member, grace over", TRAINER, both(unheard(9999), listening_for(2.1)), "Suspect", "HeartbeatLost", None,
     True),
    ("old report, new operator", TRAINER, both(silent(60), listening_for(1)), "Healthy", "None", None, False),
    # Faster evidence wins.
    ("deleted and silent", ROLLOUT, both(silent(9, NO_ANSWER), is_now(deleting=True)), "Failed", "PodDeleted", "Pod",
     False),
    ("evicted and exited", TRAINER, both(says(exited(1)), is_now(phase="Failed", reason="Evicted")), "Failed",
     "Evicted", "Pod", False),
]  # fmt: skip


@pytest.mark.parametrize(("name", "pod", "evidence", "health", "cause", "scope", "probe"), TABLE, ids=lambda v: v
                         if isinstance(v, str) and " " in v else "")  # fmt: skip
def test_verdict(
    name: str, pod: str, evidence: Change, health: str, cause: str, scope: str | None, probe: bool
) -> None:
    verdicts = analyze(evidence(VIEW, pod))
    verdict = verdicts[f"uid-{pod}"]
    assert (verdict.health, verdict.cause, verdict.ask is Question.LIVES) == (Health(health), Cause(cause), probe)
    assert scope is None or verdict.scope == scope
    if verdict.health in (Health.FAILED, Health.SUSPECT):
        assert pod in verdict.evidence, "the evidence names the pod"
    others = {uid: v.health for uid, v in verdicts.items() if uid != f"uid-{pod}"}
    # A fault of one says nothing about the others.
    if "new operator" not in name and "grace" not in name:
        assert set(others.values()) == {Health.HEALTHY}


def test_the_last_words_are_evidence() -> None:
    verdict = analyze(saying(VIEW, TRAINER, exited(1, message="ValueError: lr")))[f"uid-{TRAINER}"]
    assert verdict.evidence.endswith("exited with status 1: ValueError: lr")


def test_the_probe_is_asked_early_enough_to_cost_no_time() -> None:
    assert timedelta_between_probe_and_limit() == PROBE_LEAD


def timedelta_between_probe_and_limit() -> object:
    times = [0.1 * n for n in range(10, 40)]
    asked = min(t for t in times if analyze(silent(t)(VIEW, TRAINER))[f"uid-{TRAINER}"].ask is Question.LIVES)
    convicted = min(t for t in times if analyze(silent(t, NO_ANSWER)(VIEW, TRAINER))[f"uid-{TRAINER}"].failed)
    return round(convicted - asked, 1) * SECOND


LOST = exited(75, peer_lost=True)


def test_one_that_leaves_and_lost_a_peer_accuses_it_as_well() -> None:
    view = saying(node_leaves(VIEW, "j-trainer-1"), "j-trainer-1", LOST, ago=0.1, changed=1.5)
    verdict = analyze(view)["uid-j-trainer-1"]
    assert (verdict.health, verdict.cause) == (Health.FAILED, Cause.PEER_LOST)


FAULTS_OF_PEERS = [
    # who says what -> who is failed
    ("one accuses, the other just now", {"j-trainer-1": (LOST, 0.5), "j-trainer-2": (RUNNING, 0.1)}, []),
    ("one accuses, the other lives on", {"j-trainer-1": (LOST, 1.5), "j-trainer-2": (RUNNING, 0.1)}, ["j-trainer-1"]),
    ("one accuses, the other is silent", {"j-trainer-1": (LOST, 1.5), "j-trainer-2": (RUNNING, 2.5)}, []),
    ("one accuses, the other exited", {"j-trainer-1": (LOST, 1.5), "j-trainer-2": (exited(1), 1)}, ["j-trainer-2"]),
    ("both accuse", {"j-trainer-1": (LOST, 0.2), "j-trainer-2": (LOST, 0.1)}, ["j-trainer-1"]),
]


@pytest.mark.parametrize(("reports", "convicted"), [row[1:] for row in FAULTS_OF_PEERS],
                         ids=[row[0] for row in FAULTS_OF_PEERS])  # fmt: skip
def test_a_lost_peer_accuses_another(reports: dict[str, tuple[Child, float]], convicted: list[str]) -> None:
    view = VIEW
    for name, (child, ago) in reports.items():
        if child.state is ChildState.RUNNING:
            view = saying(view, name, child, ago=ago)
        else:
            view = saying(view, name, child, ago=0.1, changed=ago)
    verdicts = analyze(view)
    assert [name for name in sorted(reports) if verdicts[f"uid-{name}"].failed] == convicted


def test_a_successor_pod_of_the_same_name_inherits_nothing() -> None:
    """Reports and probes are keyed by UID."""
    view = with_pod(saying(VIEW, ROLLOUT, ago=60), ROLLOUT, uid="uid-new", created=NOW)
    view = replace(view, probes={f"uid-{ROLLOUT}": NO_ANSWER})
    assert analyze(view)["uid-new"].health is Health.STARTING


@pytest.mark.parametrize(
    ("fields", "health", "cause"),
    [
        ({}, Health.HEALTHY, "None"),
        ({"phase": "Pending"}, Health.FAILED, "NeverStarted"),
        ({"phase": "Failed", "reason": "OOMKilled"}, Health.FAILED, "OutOfMemory"),
        ({"node": "n3"}, Health.FAILED, "NodeLost"),
    ],
)
def test_a_service_says_nothing_and_is_judged_by_its_pod(fields: dict[str, str], health: Health, cause: str) -> None:
    service = pod("j-judge-9", Role.SERVICE, **{"created": NOW - 5000 * SECOND, **fields})
    view = replace(node_lost(VIEW, ROLLOUT), pods=(service,), watching_since=NOW - 4000 * SECOND)
    verdict = analyze(with_status(view, members=()))[service.uid]
    assert (verdict.health, verdict.cause.value) == (health, cause)


def test_every_pod_and_every_lost_member_has_one_verdict() -> None:
    view = without_pod(VIEW, TRAINER)
    assert set(analyze(view)) == {p.uid for p in VIEW.pods}


def test_nothing_is_changed_by_looking() -> None:
    before = Heard(VIEW.reports[f"uid-{TRAINER}"].report, NOW, NOW)
    analyze(VIEW)
    assert VIEW.reports[f"uid-{TRAINER}"].report == before.report
    assert analyze(VIEW) == analyze(VIEW)


def test_nobody_is_given_up_where_nobody_can_report() -> None:
    """It is the way to this operator that is closed, and all of them answer its probes."""
    view = cut_off(others_since=900, others_ago=4)(VIEW, TRAINER)
    assert not analyze(view)[f"uid-{TRAINER}"].failed


def test_an_agent_that_was_restarted_says_how_its_container_ended() -> None:
    view = with_pod(saying(VIEW, TRAINER, RESTARTED), TRAINER, ended="OOMKilled")
    assert analyze(view)[f"uid-{TRAINER}"].evidence.endswith("(its container ended: OOMKilled)")


def test_an_agent_that_was_restarted_is_found_before_the_peer_that_lost_it_is_blamed() -> None:
    view = saying(VIEW, TRAINER, RESTARTED)
    view = saying(view, "j-trainer-2", exited(75, peer_lost=True), ago=1.5)
    assert [uid for uid, verdict in analyze(view).items() if verdict.failed] == [f"uid-{TRAINER}"]


def test_beside_the_operator_that_fell_silent_nobody_is_missed_while_no_agent_has_found_the_new_one() -> None:
    change = both(was_up(60, NO_ANSWER), both(listening_for(1.1), operator_silent_for(4.5)))
    view = change(VIEW, MANAGER)
    assert analyze(view)[f"uid-{MANAGER}"].failed
    assert not analyze(replace(view, reports={}))[f"uid-{MANAGER}"].failed
