"""What a user gets wrong ends in a condition and an Event that name it, never in an endless loop."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from robustrl_api.status import ConditionType, holds
from robustrl_e2e import cluster
from robustrl_e2e.cluster_job import ClusterJob, sample

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

Object = dict[str, Any]


def missing_image(spec: Object) -> None:
    spec["trainer"]["template"]["spec"]["containers"][0]["image"] = "localhost/nobody-built-this:1"


def script_that_raises(spec: Object) -> None:
    container = spec["trainer"]["template"]["spec"]["containers"][0]
    container["command"] = ["python3", "-c", "raise SystemExit('the learning rate is not a number')"]
    spec["recovery"] = {"backoff": {"baseDelaySeconds": 1}}


def missing_script(spec: Object) -> None:
    spec["trainer"]["template"]["spec"]["containers"][0]["command"] = ["python3", "no_such_script.py"]
    spec["recovery"] = {"backoff": {"baseDelaySeconds": 1}}


def unwritable_storage(spec: Object) -> None:
    spec["checkpoint"] = {"storage": {"path": "/proc/checkpoints"}}


def missing_rollout_function(spec: Object) -> None:
    spec["data"]["rollout"] = "sort4.tasks:no_such_function"


def bad_model(spec: Object) -> None:
    spec["rollout"]["engine"]["model"] = "sort4.model:no_such_factory"


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (missing_image, ["nobody-built-this", "spec.trainer.template"]),
        (script_that_raises, ["the learning rate is not a number", "restarts"]),
        (missing_script, ["no_such_script.py"]),
        (unwritable_storage, ["/proc/checkpoints", "volume"]),
        (missing_rollout_function, ["no_such_function"]),
        (bad_model, ["no_such_factory"]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_bad_input_fails_with_a_diagnosis(
    running: cluster.Cluster, spoil: Callable[[Object], None], words: list[str]
) -> None:
    manifest = sample("bad", steps=10)
    spoil(manifest["spec"])
    job = ClusterJob.create(running, manifest)
    try:
        status = job.until_ended(180)
        assert holds(status, ConditionType.FAILED)
        (failed,) = [c for c in status.conditions if c.type == ConditionType.FAILED]
        for word in words:
            assert word in failed.message
            assert wait_for_event(job, word), f"no Event says {word}"
    finally:
        job.delete()


def wait_for_event(job: ClusterJob, word: str) -> bool:
    """Events leave after the status is stored and the pods are on their way out."""
    selector = f"involvedObject.name={job.name},reason=Failed"
    for _ in range(40):
        if word in job.kubectl("get", "events", "--field-selector", selector, "-o", "json"):
            return True
        time.sleep(0.5)
    return False
