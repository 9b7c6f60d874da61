"""Jobs of every shape are valid, and what they run is there."""

from __future__ import annotations

import pytest

from robustrl_api.job import RLJob
from robustrl_e2e import shapes
from robustrl_e2e.cluster_job import sample
from robustrl_e2e.surroundings import SCRIPTS, shaped
from robustrl_operator.faults.matrix import MATRIX, Moment, Shape

CHANGED = set(Shape) - {Shape.USUAL, Shape.OWN_VOLUME, Shape.WATCHED}
"""The others change what is around a job, and not the job."""


@pytest.mark.parametrize("shape", Shape)
def test_a_job_of_each_shape_is_valid(shape: Shape) -> None:
    usual, made = sample("job"), sample("job")
    shapes.put_on(shape, made["spec"])
    RLJob.model_validate(made)
    assert (made != usual) is (shape in CHANGED)


@pytest.mark.parametrize("shape", Shape)
def test_on_the_cluster_its_pods_find_what_they_run(shape: Shape) -> None:
    usual = sample("job")
    made = shaped(usual, shape)
    job = RLJob.model_validate(made)
    assert usual == sample("job"), "the manifest that was given is as it was"
    pod = made["spec"]["trainer"]["template"]["spec"]
    (path,) = [each["value"] for each in pod["containers"][0]["env"] if each["name"] == "PYTHONPATH"]
    assert path.split(":")[-1] == SCRIPTS
    assert {"name": "scripts", "configMap": {"name": "job-scripts"}} in pod["volumes"]
    command = [*pod["containers"][0]["command"], *job.spec.rollout.engine.command]
    scripts = {word.removeprefix(f"{SCRIPTS}/") for word in command if word.startswith(SCRIPTS)}
    assert scripts <= {script.name for script in shapes.SCRIPTS.iterdir()}


def test_a_row_that_strikes_in_a_certain_step_has_a_job_that_can_be_struck_there() -> None:
    struck = {row.shape for row in MATRIX if row.moment in (Moment.FIRST_STEP, Moment.SAME_STEP)}
    assert struck == {Shape.LINGERING}
