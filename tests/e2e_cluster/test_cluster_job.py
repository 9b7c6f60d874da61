"""Waiting for a job on the cluster, whose API server is away or busy now and then."""

from __future__ import annotations

import io
import urllib.error
from collections.abc import Callable
from email.message import Message
from types import SimpleNamespace
from typing import Any

import pytest

from robustrl_api.status import Condition, ConditionType, RLJobStatus, Truth
from robustrl_e2e import cluster_job
from robustrl_e2e.cluster_job import ClusterJob

ENDED = Condition(type=ConditionType.SUCCEEDED, status=Truth.TRUE, reason="Done", last_transition_time="now")


def refusal(code: int) -> urllib.error.HTTPError:
    return urllib.error.HTTPError("https://api", code, "no", Message(), io.BytesIO(b"words of the server"))


@pytest.fixture
def job_that(monkeypatch: pytest.MonkeyPatch) -> Callable[..., ClusterJob]:
    """A job whose reads give these, one after the other; the last one for ever. Time passes by sleeping."""
    clock = SimpleNamespace(now=0.0)

    def sleep(seconds: float) -> None:
        clock.now += seconds

    monkeypatch.setattr(cluster_job, "time", SimpleNamespace(monotonic=lambda: clock.now, sleep=sleep))

    def made(*reads: Any) -> ClusterJob:
        left = list(reads)

        def read(_job: ClusterJob) -> Any:
            found = left.pop(0) if len(left) > 1 else left[0]
            if isinstance(found, Exception):
                raise found
            return SimpleNamespace(status=found)

        monkeypatch.setattr(ClusterJob, "read", read)
        monkeypatch.setattr(ClusterJob, "pods", lambda _job: [])
        job = ClusterJob.__new__(ClusterJob)
        job.timeline = cluster_job.Timeline()
        return job

    return made


AWAY = [refusal(500), TimeoutError("timed out"), urllib.error.URLError("refused")]
RUNS, OVER = RLJobStatus(step=3), RLJobStatus(step=9, conditions=(ENDED,))


def test_a_server_that_is_away_for_a_moment_ends_no_waiting(job_that: Callable[..., ClusterJob]) -> None:
    assert job_that(*AWAY, RUNS, *AWAY, OVER).until_ended() == OVER
    assert job_that(*AWAY, RUNS, RUNS).wait(lambda sample: sample.step == 3, "step 3", 60).step == 3


def test_one_that_stays_away_is_named_when_the_time_is_over(job_that: Callable[..., ClusterJob]) -> None:
    with pytest.raises(TimeoutError, match=r"step 3: not within 5 s; the API server: .*refused"):
        job_that(AWAY[2]).wait(lambda _sample: True, "step 3", 5)


def test_a_job_that_is_gone_is_not_waited_for(job_that: Callable[..., ClusterJob]) -> None:
    with pytest.raises(urllib.error.HTTPError):
        job_that(RUNS, refusal(404)).until_ended()


def test_a_job_that_ended_before_is_not_waited_for(job_that: Callable[..., ClusterJob]) -> None:
    with pytest.raises(TimeoutError, match="the job ended while waiting for step 100"):
        job_that(OVER).wait(lambda sample: sample.step >= 100, "step 100", 60)
