"""Rule probe: whoever falls silent is asked directly, at its address."""

from __future__ import annotations

from tests.operator.build import actions, draft, running_job, with_pod

from robustrl_operator.analyze import Cause, Health, Question, Verdict
from robustrl_operator.plan import ProbePod
from robustrl_operator.plan.rules import probe

SILENT = {"j-trainer-1": Verdict(Health.SUSPECT, Cause.HEARTBEAT_LOST, "silent", ask=Question.LIVES)}


def test_the_silent_pod_alone_is_asked() -> None:
    after = probe.apply(draft(running_job(), SILENT))
    assert actions(after, ProbePod) == [ProbePod("j-trainer-1", "uid-j-trainer-1", "10.0.0.1")]


def test_without_an_address_nobody_can_be_asked() -> None:
    view = with_pod(running_job(), "j-trainer-1", address="")
    assert not probe.apply(draft(view, SILENT)).actions
