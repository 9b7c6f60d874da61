"""The table at the end of a run."""

from __future__ import annotations

import pytest
from tests.operator.build import job

from robustrl_api.job import ObjectMeta, RLJob
from robustrl_api.status import Incident, RLJobStatus, Scope
from robustrl_operator.report.summary import table

HUNG = Incident(
    role="trainer", pod="j-trainer-1", cause="Hung", evidence="idle", scope=Scope.PROCESS, epoch=2, step=7,
    decision="restart",
    fault_time="2026-11-21T09:00:00.000000Z", detected_time="2026-11-21T09:00:08.000000Z",
    recovered_time="2026-11-21T09:00:08.500000Z",
)  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, "0.50 s"),
        ({"recovered_time": ""}, "  -"),
        ({"role": "rollout"}, "training went on"),
        ({"role": "rollout", "scope": Scope.JOB}, "0.50 s"),
        ({"role": "rollout", "scope": Scope.JOB, "recovered_time": ""}, "  -"),
    ],
    ids=["from its finding", "not over it", "alone", "with the job", "with the job, not over it"],
)
def test_how_long_training_stood_still(changes: dict[str, object], says: str) -> None:
    found = RLJob(metadata=ObjectMeta(name="j"), spec=job())
    line = table(found, RLJobStatus(incidents=(HUNG.model_copy(update=changes),))).splitlines()[1]
    assert says in line
    assert ("went on" in line) is (says == "training went on")
