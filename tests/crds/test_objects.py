"""Objects that users and earlier releases wrote can be read, and nothing of them is lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from robustrl_api.control import AgentReport, Assignment
from robustrl_api.job import RLJob
from robustrl_api.names import Role
from robustrl_api.skew import read_message, read_stored
from robustrl_api.status import RLJobStatus
from robustrl_api.version import Version

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "examples/sort4/rljob.yaml"
STORED = sorted((Path(__file__).parent / "stored").glob("*.yaml"))


def contained(part: Any, whole: Any) -> bool:
    """Whether `whole` says everything that `part` says."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(key in whole and contained(part[key], whole[key]) for key in part)
    if isinstance(part, list):
        return len(part) == len(whole) and all(map(contained, part, whole))
    return bool(part == whole)


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_stored_objects_stay_readable_and_whole(path: Path) -> None:
    stored = yaml.safe_load(path.read_text())
    assert contained(stored, RLJob.model_validate(stored).wire())


def test_there_are_stored_objects_with_and_without_status() -> None:
    assert {"status" in yaml.safe_load(path.read_text()) for path in STORED} == {True, False}


def test_sample_is_short_and_valid() -> None:
    text = SAMPLE.read_text()
    assert len(text.splitlines()) < 60
    job = RLJob.model_validate(yaml.safe_load(text))
    assert contained(yaml.safe_load(text), job.wire())


def test_unknown_fields_of_ours_are_refused_and_those_of_kubernetes_kept() -> None:
    sample = yaml.safe_load(SAMPLE.read_text())
    sample["spec"]["trainer"]["template"]["spec"]["tolerations"] = [{"operator": "Exists"}]
    assert contained(sample, RLJob.model_validate(sample).wire())
    sample["spec"]["rollout"]["minReplica"] = 1
    with pytest.raises(ValidationError, match=r"rollout\.minReplica"):
        RLJob.model_validate(sample)


def test_models_cannot_be_changed_in_place() -> None:
    job = RLJob.model_validate(yaml.safe_load(SAMPLE.read_text()))
    with pytest.raises(ValidationError, match="frozen"):
        job.spec.steps = 1


@pytest.mark.parametrize(
    "message",
    [
        AgentReport(pod="p", boot="b", role=Role.ROLLOUT, step=3, version="2.15", metrics={"tokens": 1.5}),
        Assignment(role=Role.TRAINER, epoch=2, run=True, rank=0, world_size=2, rendezvous="10.0.0.1:29502"),
    ],
    ids=lambda message: type(message).__name__,
)
def test_control_messages_survive_the_wire(message: AgentReport | Assignment) -> None:
    assert type(message).model_validate_json(message.model_dump_json(by_alias=True)) == message


@pytest.mark.parametrize("seconds", ["1e12", "-1e12", "NaN", "Infinity"])
@pytest.mark.parametrize("field", ["phaseSeconds", "idleSeconds", "asleepSeconds", "shown"])
def test_no_report_tells_of_a_time_that_no_date_can_be_told_from(field: str, seconds: str) -> None:
    value = f'{{"Train": {seconds}}}' if field == "shown" else seconds
    with pytest.raises(ValidationError, match="activity"):
        read_message(AgentReport, f'{{"pod": "p", "boot": "b", "role": "rollout", "activity": {{"{field}": {value}}}}}')


def test_versions_are_ordered_by_epoch_then_step() -> None:
    texts = ["1.0", "1.2", "1.10", "2.0", "10.0"]
    assert [str(version) for version in sorted(map(Version.parse, reversed(texts)))] == texts


@pytest.mark.parametrize("text", ["", "1", "1.", ".2", "1.2.3", "-1.2", "1.x", "1 .2"])
def test_other_forms_of_a_version_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"EPOCH\.STEP"):
        Version.parse(text)


def test_what_a_newer_operator_says_besides_is_ignored() -> None:
    peer = {"pod": "a", "role": "rollout", "address": "10.0.0.1", "mood": "new"}
    assignment = read_message(Assignment, json.dumps({"role": "trainer", "colour": 1, "peers": [peer]}))
    assert (assignment.role, assignment.peers[0].pod) == (Role.TRAINER, "a")
    with pytest.raises(ValidationError):
        read_message(Assignment, '{"epoch": 1}')


def test_a_newer_operators_status_can_be_read() -> None:
    status = read_stored(RLJobStatus, {"epoch": 3, "members": [{"rank": 0, "pod": "a", "uid": "u", "x": 1}], "y": 1})
    assert (status.epoch, status.members[0].pod) == (3, "a")
