"""The histogram of recoveries only grows, and counts each once."""

from __future__ import annotations

from tests.operator.build import NOW, SECOND, job

from robustrl_api.job import RLJob
from robustrl_api.status import Incident, RLJobStatus, Scope
from robustrl_operator.kubernetes.recovery_times import RecoveryTimes
from robustrl_operator.view import timestamp


def incident(pod: str, began: float, took: float | None, role: str = "trainer") -> Incident:
    detected = NOW + began * SECOND
    recovered = "" if took is None else timestamp(detected + took * SECOND)
    return Incident(
        role=role, pod=pod, cause="WorkerExited", decision="-", scope=Scope.PROCESS, epoch=1, step=1,
        detected_time=timestamp(detected), recovered_time=recovered,
    )  # fmt: skip


def a_job(*incidents: Incident) -> RLJob:
    metadata = {"name": "j", "namespace": "ns"}
    return RLJob.model_validate({"metadata": metadata, "spec": job()}).model_copy(
        update={"status": RLJobStatus(incidents=incidents)}
    )


def seen(times: RecoveryTimes, *jobs: RLJob) -> dict[str, float]:
    samples = times.collect(jobs).samples
    return {s.labels.get("le", s.name.rpartition("_")[2]): s.value for s in samples}


def test_each_recovery_counts_once_though_status_forgets_it() -> None:
    times = RecoveryTimes(NOW)
    first, second = incident("a", 1, 0.7), incident("b", 5, 4)
    assert seen(times, a_job(first, incident("b", 5, None)))["count"] == 1
    after = seen(times, a_job(first, second))
    assert (after["0.5"], after["1.0"], after["6.0"], after["+Inf"], after["sum"]) == (0, 1, 2, 2, 4.7)
    assert seen(times, a_job(second))["count"] == 2, "one that fell out of status stays counted"
    assert seen(times, a_job(second, incident("a", 90, 2)))["count"] == 3


def test_what_ended_before_this_operator_began_or_stopped_no_trainer_does_not_count() -> None:
    old, rollout = incident("a", -60, 3), incident("r", 1, 1, role="rollout")
    assert seen(RecoveryTimes(NOW), a_job(old, rollout))["count"] == 0


def test_a_job_that_is_gone_has_no_series() -> None:
    times = RecoveryTimes(NOW)
    assert seen(times, a_job(incident("a", 1, 1)))
    assert seen(times) == {}
