"""Incidents as the on-call reads them."""

from __future__ import annotations

from robustrl_api.status import Incident, Scope
from robustrl_operator.report import incidents

INCIDENT = Incident(
    role="trainer", pod="j-trainer-1", cause="NodeLost", evidence="node n1 is lost", scope=Scope.NODE, epoch=3, step=41,
    decision="promote j-rollout-4 (rule 3)", replacement="j-rollout-4", lost="the step under way is done again",
    fault_time="2026-11-21T09:00:00.000000Z", detected_time="2026-11-21T09:00:03.100000Z",
    promoted_time="2026-11-21T09:00:03.400000Z", restored_time="2026-11-21T09:00:03.900000Z",
    recovered_time="2026-11-21T09:00:04.250000Z",
)  # fmt: skip


def test_stages_are_told_from_the_fault_and_only_those_that_were_reached() -> None:
    assert incidents.stage_seconds(INCIDENT) == {
        "detected": 3.1, "promoted": 3.4, "restored": 3.9, "first step": 4.25,
    }  # fmt: skip


def test_a_fault_whose_time_is_not_known_begins_when_it_was_found() -> None:
    assert incidents.stage_seconds(INCIDENT.model_copy(update={"fault_time": ""}))["promoted"] == 0.3


def test_a_person_reads_what_failed_why_and_what_was_done() -> None:
    text = incidents.text("ns/j", [INCIDENT])
    for part in ("NodeLost", "j-trainer-1", "node n1 is lost", "rule 3", "j-rollout-4", "first step 4.25 s", "step 41",
                 "the step under way is done again"):  # fmt: skip
        assert part in text
    assert "reconnected" not in text


def test_no_incident_says_so() -> None:
    assert incidents.text("ns/j", []) == "ns/j: no incidents on record"


def test_json_has_the_record_and_its_stages() -> None:
    record = incidents.record("ns/j", INCIDENT)
    assert (record["job"], record["detectedTime"]) == ("ns/j", INCIDENT.detected_time)
    assert record["stageSeconds"] == incidents.stage_seconds(INCIDENT)
