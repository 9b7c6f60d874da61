"""Rule diagnosis: what no restart can mend ends the job at once and says what to mend."""

from __future__ import annotations

import pytest
from tests.operator.build import draft, failed, running_job

from robustrl_api.status import ConditionType, has_ended
from robustrl_operator.analyze import Cause
from robustrl_operator.analyze.verdict import UNMENDABLE
from robustrl_operator.plan.rules import diagnosis


@pytest.mark.parametrize("cause", [cause for cause in Cause if cause is not Cause.NONE])
def test_only_unmendable_causes_end_the_job(cause: Cause) -> None:
    verdict = failed("Pod", cause, "image nobody/nothing:1 cannot be pulled")
    after = diagnosis.apply(draft(running_job(), {"j-rollout-4": verdict}))
    assert has_ended(after.status) is (cause in UNMENDABLE)
    if cause in UNMENDABLE:
        (condition,) = [c for c in after.status.conditions if c.type == ConditionType.FAILED]
        assert condition.reason == cause
        assert "nobody/nothing:1" in condition.message
        where = "spec.trainer.template" if cause is Cause.BAD_IMAGE else "role rollout"
        assert where in condition.message
