"""What node agents say of pods, as evidence: broken GPUs at once, idle ones only together with something else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.operator.build import NOW, SECOND, exited, job, running_job, saying, with_pod

from robustrl_api.control import Activity, Child, ChildState
from robustrl_api.node import PodReading, Source, Xid, XidSeverity
from robustrl_api.status import Scope
from robustrl_operator.analyze import Health, Question, analyze
from robustrl_operator.view import JobView, Observed, Probe

TRAINER, PEER, ROLLOUT, MANAGER = "j-trainer-1", "j-trainer-2", "j-rollout-3", "j-manager-0"
GPU = "GPU-0f3c"
WORKS, HANGS = True, False


def seen(view: JobView, name: str, ago: float = 1, **fields: Any) -> JobView:
    """The view with what the agent of its node said of a pod `ago` seconds before NOW."""
    (uid,) = [pod.uid for pod in view.pods if pod.name == name]
    reading = PodReading(uid=uid, **{"source": Source.GPU, **fields})
    return replace(view, readings={**view.readings, uid: Observed(reading, NOW - ago * SECOND)})


def xid(code: int, severity: XidSeverity = XidSeverity.GPU, age: float = 4) -> Xid:
    return Xid(code=code, gpu=GPU, severity=severity, meaning="the GPU has fallen off the bus", age_seconds=age)


# XIDs


@pytest.mark.parametrize("name", [TRAINER, ROLLOUT])
def test_a_broken_gpu_fails_its_pod_by_name(name: str) -> None:
    view = seen(running_job(), name, xids=(xid(43, XidSeverity.IGNORE), xid(79)))
    verdicts = analyze(view)
    verdict = verdicts[f"uid-{name}"]
    assert (verdict.health, verdict.cause.value, verdict.scope) == (Health.FAILED, "GpuFailed", Scope.POD)
    node = name[-1]
    assert verdict.evidence == f"{name}: XID 79 (the GPU has fallen off the bus) of {GPU} on node n{node}"
    assert verdict.since == NOW - 5 * SECOND
    assert [uid for uid, other in verdicts.items() if other.health is not Health.HEALTHY] == [f"uid-{name}"]


@pytest.mark.parametrize("severity", [XidSeverity.IGNORE, XidSeverity.APPLICATION])
def test_other_xids_convict_nobody(severity: XidSeverity) -> None:
    view = seen(running_job(), TRAINER, xids=(xid(31, severity),))
    assert analyze(view)[f"uid-{TRAINER}"].health is Health.HEALTHY


def test_a_broken_gpu_outweighs_the_exit_that_it_caused() -> None:
    """Started again in place, the process would meet the same GPU."""
    view = seen(saying(running_job(), TRAINER, exited(1)), TRAINER, xids=(xid(79),))
    assert analyze(view)[f"uid-{TRAINER}"].cause.value == "GpuFailed"


def test_a_leaving_pod_with_a_broken_gpu_is_not_waited_for() -> None:
    view = with_pod(running_job(), TRAINER, deleting=True, ends_at=NOW + 20 * SECOND)
    verdict = analyze(seen(view, TRAINER, xids=(xid(79),)))[f"uid-{TRAINER}"]
    assert (verdict.health, verdict.cause.value) == (Health.FAILED, "GpuFailed")


def test_a_broken_gpu_stays_broken_when_its_nodes_agent_falls_silent() -> None:
    assert analyze(seen(running_job(), TRAINER, ago=600, xids=(xid(79),)))[f"uid-{TRAINER}"].failed


def test_a_successor_pod_inherits_no_xid() -> None:
    view = with_pod(seen(running_job(), TRAINER, xids=(xid(79),)), TRAINER, uid="uid-new")
    assert not analyze(view)["uid-new"].failed


# Idle GPUs. A trainer in phase Train for `phase` seconds, whose GPUs have idled for `idle`, the longest such phase so
# far being `longest`; `probe` is what it said when it was asked whether it works.


def trainer(phase: float, idle: float, longest: float | None = 10.0, probe: bool | None = None, *,
            name: str = "Train", ago: float = 1, source: Source = Source.GPU, **more: Any) -> JobView:  # fmt: skip
    shown = {} if longest is None else {"Train": longest}
    view = running_job(job(detection={"trainer": {"idleSeconds": 300}}))
    child = Child(state=ChildState.RUNNING, epoch=1)
    for each in (TRAINER, PEER):
        activity = Activity(phase_seconds=phase, shown=shown)
        view = saying(view, each, child, ago=0, phase=name, activity=activity, **{"changed": 9999, **more})
    if probe is not None:
        view = replace(view, probes={f"uid-{TRAINER}": Probe(NOW - 2 * SECOND, answered=probe, deep=True)})
    text = "tensor units of GPU-0f3c at 0 permille, memory 1 permille"
    return seen(view, TRAINER, ago=ago, source=source, idle_seconds=idle, idle_text=text)


# name, view -> health, what it is asked
TABLE = [
    ("GPUs idle for a while", trainer(400, 293), "Healthy", "None"),
    ("their time is over when it has answered", trainer(400, 295), "Suspect", "Works"),
    ("it does not work, and their time is not over", trainer(400, 299, probe=HANGS), "Suspect", "None"),
    ("it uses the processor, and their time is not over", trainer(320, 299, probe=WORKS), "Healthy", "None"),
    ("GPUs idle for too long", trainer(400, 301), "Suspect", "Works"),
    ("it does not work", trainer(400, 301, probe=HANGS), "Failed", "None"),
    # It uses the processor: it may spin.
    ("it uses the processor, and the phase is long", trainer(320, 302, probe=WORKS), "Failed", "None"),
    ("it uses the processor, and the phase is no longer than usual", trainer(320, 302, 100, WORKS), "Healthy", "None"),
    ("it uses the processor, and what is usual is not known", trainer(900, 302, None, WORKS), "Healthy", "None"),
    # The script's phase decides.
    ("in Checkpoint", trainer(400, 500, name="Checkpoint"), "Healthy", "None"),
    ("waiting for a batch", trainer(9000, 9000, name="Wait"), "Healthy", "None"),
    ("between phases", trainer(9000, 9000, name=""), "Healthy", "None"),
    ("idle since before the phase", trainer(200, 9000), "Healthy", "None"),
    ("idle since before the process", trainer(9000, 9000, changed=200), "Healthy", "None"),
    # The agent of the node.
    ("its node's agent has fallen silent", trainer(9000, 301, ago=31), "Healthy", "None"),
    ("no node agent", replace(trainer(9000, 301), readings={}), "Healthy", "None"),
    ("exporter absent or stuck: no idle time", trainer(9000, 0), "Healthy", "None"),
    # Where there is no GPU.
    ("processor idle for too long", trainer(400, 301, source=Source.CPU), "Suspect", "Works"),
    ("processor idle, and it does not work", trainer(400, 301, probe=HANGS, source=Source.CPU), "Failed", "None"),
    ("processor idle, and it works after all", trainer(900, 302, 1, WORKS, source=Source.CPU), "Healthy", "None"),
]


@pytest.mark.parametrize(("view", "health", "question"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_idle(view: JobView, health: str, question: str) -> None:
    verdicts = analyze(view)
    verdict = verdicts[f"uid-{TRAINER}"]
    assert (verdict.health.value, verdict.ask.value) == (health, question)
    assert verdicts[f"uid-{PEER}"].health is Health.HEALTHY
    if health == "Healthy":
        return
    assert verdict.cause.value == "WorkerHung"
    for word in (TRAINER, "n1", "GPU-0f3c", "0 permille, memory 1 permille", "permille, for "):
        assert word in verdict.evidence, "the evidence names pod, node, GPU, both counters and the time"


@pytest.mark.parametrize(("seconds", "asked_for"), [(294, Question.NONE), (296, Question.WORKS)])
def test_gpus_may_idle_for_a_while_after_managers_are_new(seconds: float, asked_for: Question) -> None:
    """A peer may wait for its batch meanwhile, and this one for the peer."""
    managers = Activity(phase_seconds=seconds)
    view = saying(trainer(400, 301), MANAGER, Child(state=ChildState.RUNNING), ago=0, activity=managers)
    assert analyze(view)[f"uid-{TRAINER}"].ask is asked_for


def test_the_evidence_of_a_process_that_spins_names_both_witnesses() -> None:
    verdict = analyze(trainer(320, 302, probe=WORKS))[f"uid-{TRAINER}"]
    assert verdict.evidence.endswith("for 302 s; phase Train has lasted 320 s, at most 10 s before")
    assert verdict.since == NOW - 303 * SECOND
    assert verdict.scope is Scope.PROCESS


def test_a_worker_of_an_older_epoch_is_not_judged() -> None:
    view = trainer(9000, 9000)
    said = view.reports[f"uid-{TRAINER}"]
    assert analyze(view)[f"uid-{TRAINER}"].ask is Question.WORKS
    older = replace(said, report=said.report.model_copy(update={"child": Child(state=ChildState.RUNNING, epoch=0)}))
    view = replace(view, reports={**view.reports, f"uid-{TRAINER}": older})
    assert analyze(view)[f"uid-{TRAINER}"].ask is Question.NONE


@pytest.mark.parametrize("name", [ROLLOUT, MANAGER])
def test_idle_gpus_of_others_are_no_evidence(name: str) -> None:
    """An engine without requests has nothing to do."""
    view = seen(running_job(), name, idle_seconds=9000, idle_text="tensor units idle")
    assert analyze(view)[f"uid-{name}"].health is Health.HEALTHY


def test_a_lying_exporter_alone_convicts_nobody() -> None:
    """It says for an hour that everything idles, of everybody, while steps are made at their usual pace."""
    for phase in range(0, 12):
        view = trainer(phase, 3600, 10)
        for name in (PEER, ROLLOUT):
            view = seen(view, name, idle_seconds=3600, idle_text="idle")
        assert {verdict.health for verdict in analyze(view).values()} == {Health.HEALTHY}
