"""Whether a GPU works, as a table; and for how long it has not."""

from __future__ import annotations

import pytest

from robustrl.node.exposition import GpuReading
from robustrl.node.gpu_work import Work, judge
from robustrl.node.idle_timer import MAX_GAP_SECONDS, IdleTimer


def gpu(tensor: float | None, engine: float | None, memory: float | None, watts: float | None,
        utilization: float | None = None) -> GpuReading:  # fmt: skip
    return GpuReading(
        "GPU-0", tensor_permille=tensor, engine_permille=engine, memory_permille=memory, power_watts=watts,
        utilization_permille=utilization,
    )  # fmt: skip


# name, reading, the most it drew while it worked -> what it shows
TABLE = [
    ("training", gpu(410, 980, 350, 610), 620, Work.ACTIVE),
    ("just above the threshold", gpu(20, 0, 0, 75), 620, Work.ACTIVE),
    ("nothing to do", gpu(0, 0, 0, 75, 0), 620, Work.IDLE),
    ("waits in a collective", gpu(0, 1000, 1, 130, 1000), 620, Work.IDLE),
    ("no profiling counters", gpu(None, None, None, 75), None, Work.UNKNOWN),
    ("no profiling counters, GPU busy", gpu(None, None, None, 610, 990), 620, Work.UNKNOWN),
    ("all of the profiler stuck, power says otherwise", gpu(0, 0, 0, 610), 620, Work.DOUBTFUL),
    ("all of the profiler stuck, the driver says otherwise", gpu(0, 0, 0, None, 990), None, Work.DOUBTFUL),
    ("tensor counter stuck alone", gpu(0, 980, 350, 610), 620, Work.DOUBTFUL),
    ("work without tensor units", gpu(0, 980, 350, 300), None, Work.DOUBTFUL),
    ("only the engine is known, and busy", gpu(0, 980, None, None), None, Work.DOUBTFUL),
    ("only the engine is known, and idle", gpu(0, 0, None, None), None, Work.IDLE),
    ("only power is known, and low", gpu(0, None, None, 130), 620, Work.IDLE),
    ("only power is known, and near what it drew", gpu(0, None, None, 380), 620, Work.DOUBTFUL),
    ("power, and nothing to compare it with", gpu(0, None, None, 130), None, Work.UNKNOWN),
    ("no second counter", gpu(0, None, None, None), None, Work.UNKNOWN),
]


@pytest.mark.parametrize(("reading", "peak", "work"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_work(reading: GpuReading, peak: float | None, work: Work) -> None:
    found, word = judge(reading, 20, peak)
    assert found is work
    assert bool(word) is (work in (Work.IDLE, Work.DOUBTFUL)), "the other counter's word"


def test_idle_time_is_that_of_an_unbroken_row() -> None:
    timer = IdleTimer()
    assert timer.seconds(0) == 0
    for now in (10, 20, 30):
        timer.idle(now)
    assert timer.seconds(31) == 20, "what was seen, not what may have gone on since"
    timer.active(40)
    assert timer.seconds(40) == 0
    timer.idle(50)
    timer.idle(60)
    assert timer.seconds(60) == 10


def test_a_gap_is_not_idleness() -> None:
    timer = IdleTimer()
    timer.idle(0)
    timer.idle(MAX_GAP_SECONDS)
    assert timer.seconds(MAX_GAP_SECONDS) == MAX_GAP_SECONDS
    assert timer.seconds(2 * MAX_GAP_SECONDS + 1) == 0, "nobody has looked since"
    timer.idle(2 * MAX_GAP_SECONDS + 1)
    assert timer.seconds(2 * MAX_GAP_SECONDS + 1) == 0, "it begins anew"
