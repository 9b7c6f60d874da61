"""The table of XIDs, and which of them are new."""

from __future__ import annotations

import pytest

from robustrl.node.xid_watch import XidWatch
from robustrl.node.xids import XIDS, meaning_of, overridden
from robustrl_api.node import XidSeverity


@pytest.mark.parametrize(
    ("severity", "codes"),
    [
        (XidSeverity.GPU, (46, 48, 62, 64, 74, 79, 95, 109, 119, 120, 140)),
        (XidSeverity.APPLICATION, (13, 31, 94)),
        (XidSeverity.IGNORE, (43, 45, 63, 92, 121, 154)),
    ],
)
def test_severities_follow_nvidias_immediate_action(severity: XidSeverity, codes: tuple[int, ...]) -> None:
    assert {meaning_of(code).severity for code in codes} == {severity}


def test_a_number_nobody_knows_convicts_nobody() -> None:
    assert meaning_of(9999).severity is XidSeverity.IGNORE


def test_every_meaning_is_told() -> None:
    assert all(10 < len(known.meaning) <= 200 for known in XIDS.values())


def test_severities_can_be_overridden() -> None:
    table = overridden(" 63=Gpu, 31=Ignore,4711=Application")
    assert [meaning_of(code, table).severity.value for code in (63, 31, 4711, 79)] == [
        "Gpu", "Ignore", "Application", "Gpu",
    ]  # fmt: skip
    assert meaning_of(63, table).meaning == XIDS[63].meaning
    assert dict(overridden("")) == dict(XIDS)


@pytest.mark.parametrize("text", ["63", "63=", "63=fatal", "x=Gpu", "=Gpu", "63:Gpu", "-1=Gpu"])
def test_an_override_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected NUMBER=SEVERITY"):
        overridden(text)


# name, what the gauge shows in one scrape after the other (None: no such series) -> what is new in each
GAUGES = [
    ("never one", [0, 0, 0], [0, 0, 0]),
    ("old when we first look", [79, 79, 79], [0, 0, 0]),
    ("the first after we looked", [0, 79], [0, 79]),
    ("sticky", [0, 79, 79, 79], [0, 79, 0, 0]),
    ("another one", [0, 31, 79, 79], [0, 31, 79, 0]),
    ("back to an earlier one", [0, 31, 79, 31], [0, 31, 79, 31]),
    ("another than the old one", [31, 79], [0, 79]),
    ("no series until there is one", [None, None, 79], [0, 0, 79]),
    ("series lost for a while", [0, 79, None, 79], [0, 79, 0, 0]),
    ("exporter restarted, gauge kept by the driver", [79, None, None, 79], [0, 0, 0, 0]),
    ("exporter restarted, gauge anew", [79, None, 0, 79], [0, 0, 0, 79]),
    ("exporter taken along by the error", [0, None, 79], [0, 0, 79]),
    ("two alike in a row look like one", [0, 31, 31], [0, 31, 0]),
]


@pytest.mark.parametrize(("shown", "new"), [row[1:] for row in GAUGES], ids=[row[0] for row in GAUGES])
def test_only_a_change_is_news(shown: list[int | None], new: list[int]) -> None:
    watch = XidWatch()
    assert [watch.take(each) for each in shown] == new
