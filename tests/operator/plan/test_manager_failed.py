"""Rule 5: a manager restarts alone."""

from __future__ import annotations

import pytest
from tests.operator.build import actions, draft, failed, names, running_job

from robustrl_operator.analyze import Cause, Health, Verdict
from robustrl_operator.plan import DeletePod
from robustrl_operator.plan.rules import manager_failed


@pytest.mark.parametrize(
    ("verdict", "deleted"),
    [
        (failed("Pod", "PodFailed"), ["j-manager-0"]),
        (failed("Node", "NodeLost"), ["j-manager-0"]),
        (Verdict(Health.SUSPECT, Cause.MANAGER_EXITED, "exit"), []),
    ],
)
def test_only_a_lost_pod_is_replaced(verdict: Verdict, deleted: list[str]) -> None:
    after = manager_failed.apply(draft(running_job(), {"j-manager-0": verdict}))
    assert names(actions(after, DeletePod)) == deleted
    assert (after.status.epoch, len(after.status.incidents)) == (1, 1)
