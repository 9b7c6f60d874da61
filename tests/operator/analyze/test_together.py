"""Who is found lost alone, and who waits for those who fell silent with it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.operator.build import NOW, SECOND, exited, running_job, saying, with_pod

from robustrl_operator.analyze import Health, analyze
from robustrl_operator.view import JobView, Probe

LOST = "j-trainer-1"


def silent(**seconds: float) -> JobView:
    """The usual job with pods silent for so long, whom no probe reached."""
    view = running_job()
    for name, ago in seconds.items():
        view = saying(view, name.replace("_", "-"), ago=ago)
    asked = Probe(NOW - 0.9 * SECOND, answered=False)
    return replace(view, probes={f"uid-{name.replace('_', '-')}": asked for name, s in seconds.items() if s > 2})


def answering(view: JobView, name: str) -> JobView:
    return replace(view, probes={**view.probes, f"uid-{name}": Probe(NOW - 0.9 * SECOND, answered=True)})


@pytest.mark.parametrize(
    ("view", "found"),
    [
        pytest.param(silent(j_trainer_1=3.1), True, id="all others have just been heard"),
        pytest.param(silent(j_trainer_1=3.1, j_trainer_2=1.9), True, id="the other has been heard since"),
        pytest.param(silent(j_trainer_1=3.1, j_trainer_2=2.2), False, id="the other fell silent with it"),
        pytest.param(silent(j_trainer_1=3.1, j_rollout_3=2.2), False, id="so did one who might be promoted"),
        pytest.param(silent(j_trainer_1=3.1, j_manager_0=2.2), True, id="a manager changes nothing for trainers"),
        pytest.param(silent(j_trainer_1=3.9, j_trainer_2=3.1), True, id="both are found"),
        pytest.param(silent(j_trainer_1=4.1, j_trainer_2=2.9), True, id="a third of the limit is waited at most"),
        pytest.param(answering(silent(j_trainer_1=3.1, j_rollout_3=60), "j-rollout-3"), True,
                     id="silent since long ago, and it answers"),
        pytest.param(with_pod(silent(j_trainer_1=3.1, j_rollout_3=2.2), "j-rollout-3", deleting=True), True,
                     id="what has failed already is not waited for"),
        pytest.param(saying(silent(j_trainer_1=3.1), "j-trainer-2", exited(1)), True,
                     id="nor a fault of another kind"),
    ],
)  # fmt: skip
def test_a_lost_trainer_waits_for_who_fell_silent_with_it(view: JobView, found: bool) -> None:
    verdict = analyze(view)[f"uid-{LOST}"]
    assert verdict.health is (Health.FAILED if found else Health.SUSPECT)
    assert ("others fell silent with it" in verdict.evidence) is not found


def test_a_lost_rollout_waits_for_nobody() -> None:
    view = silent(j_rollout_3=3.1, j_rollout_4=2.2, j_trainer_1=2.2)
    assert analyze(view)["uid-j-rollout-3"].failed


def test_a_longer_limit_lets_reports_come_less_evenly() -> None:
    view = silent(j_trainer_1=15.5, j_trainer_2=11)
    detection = view.spec.detection.model_copy(update={"lost_after_missed": 15})
    view = replace(view, spec=view.spec.model_copy(update={"detection": detection}))
    assert analyze(view)[f"uid-{LOST}"].health is Health.SUSPECT
