"""What an agent tells of its work: phases, standstills, and what is learned from both. Virtual time."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from robustrl.supervisor.activity import KNOWN_AFTER, ActivityWatch
from robustrl.supervisor.cpu_time import STOPPED, CpuMeter, ProcessTime
from robustrl.supervisor.state import PodState
from robustrl_api.control import IDLE, AgentReport
from robustrl_api.names import Role


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_phase_lasts_until_the_next(clock: Clock) -> None:
    watch = ActivityWatch(clock)
    watch.enter("Train")
    clock.now += 7
    watch.enter("Train")
    assert (watch.phase, watch.report().phase_seconds) == ("Train", 7)
    watch.enter("Checkpoint")
    assert watch.report().phase_seconds == 0


def test_how_often_it_has_trained_is_counted_in_each_step(clock: Clock) -> None:
    watch, counted = ActivityWatch(clock), []
    for phase in ("Wait", "Train", "Train", "", "Train", "Checkpoint"):
        watch.enter(phase)
        counted.append(watch.report().trained)
    assert counted == [0, 1, 1, 1, 2, 2]
    for begins_anew in (watch.committed, watch.reset):
        begins_anew()
        assert watch.report().trained == 0
        watch.enter("Wait")
        watch.enter("Train")


def test_a_standstill_outlasts_phases_that_are_not_the_works_own(clock: Clock) -> None:
    """An engine that is stopped while its agent gives up applying weights and begins to pull others."""
    watch = ActivityWatch(clock)
    watch.enter("Applying", moves=False)
    watch.moved()
    watch.stands_still("engine process 7 is stopped")
    clock.now += 6
    watch.enter("Pulling", moves=False)
    clock.now += 3
    report = watch.report()
    assert (report.idle_seconds, report.phase_seconds) == (9, 3)


def test_sleep_outside_of_phases_ends_with_work_or_a_phase(clock: Clock) -> None:
    watch, slept = ActivityWatch(clock), []
    for happens in (lambda: None, lambda: watch.sleeps(False), lambda: watch.enter("Train"), watch.reset):
        happens()
        slept.append(watch.report().asleep_seconds)
        for _ in range(2):
            watch.sleeps(True)
            clock.now += 3
        slept.append(watch.report().asleep_seconds)
    assert slept == [0, 6] * 4


def test_work_stands_still_from_when_it_last_moved(clock: Clock) -> None:
    watch = ActivityWatch(clock)
    watch.enter("Train")
    clock.now += 3
    watch.moved()
    clock.now += 1
    watch.stands_still("no tokens")
    clock.now += 4
    report = watch.report()
    assert (report.idle_seconds, report.idle_text) == (5, "no tokens")
    watch.moved()
    assert watch.report().idle_seconds == 0


def test_nothing_to_do_is_not_standing_still(clock: Clock) -> None:
    watch = ActivityWatch(clock)
    clock.now += 1000
    assert watch.report().idle_seconds == 0


def test_a_new_phase_starts_the_work_anew(clock: Clock) -> None:
    watch = ActivityWatch(clock)
    watch.enter("Train")
    watch.stands_still("stopped")
    clock.now += 50
    watch.enter("Checkpoint")
    assert watch.report().idle_seconds == 0


def test_what_ended_well_often_enough_is_shown(clock: Clock) -> None:
    watch = ActivityWatch(clock)
    for seconds in (1.0, 4.0, 2.0)[:KNOWN_AFTER]:
        assert "Train" not in watch.report().shown
        watch.enter("Train")
        clock.now += seconds
        watch.enter("")
    assert watch.report().shown["Train"] == 4
    assert watch.report().shown[IDLE] == 4


def test_a_standstill_of_each_step_is_known_however_much_work_follows_it(clock: Clock) -> None:
    """A step that works for minutes after it has waited must not be forgotten by the next one's wait."""
    watch = ActivityWatch(clock)
    for _ in range(KNOWN_AFTER):
        watch.enter("Train")
        clock.now += 40
        for _ in range(200):
            watch.moved()
            clock.now += 1
        watch.enter("Wait")
        clock.now += 1
    watch.enter("Train")
    assert watch.report().shown[IDLE] == 40
    for _ in range(200):
        watch.moved()
        clock.now += 1
    assert watch.report().shown[IDLE] == 40


def test_a_standstill_that_went_on_is_known_though_its_phase_is_cut_off_later(clock: Clock) -> None:
    watch = ActivityWatch(clock)
    for seconds in (1, 1, 40):
        watch.enter("Train")
        clock.now += seconds
        watch.moved()
        watch.stands_still("stopped")
        clock.now += 99
        watch.reset()
    assert watch.report().shown == {IDLE: 40}


def test_another_process_inherits_what_is_known_but_no_suspicion(clock: Clock) -> None:
    watch = ActivityWatch(clock)
    for _ in range(KNOWN_AFTER):
        watch.enter("Train")
        clock.now += 2
        watch.enter("")
    watch.enter("Train")
    watch.stands_still("stopped")
    clock.now += 99
    watch.reset()
    report = watch.report()
    assert (watch.phase, report.idle_seconds, report.phase_seconds) == ("", 0, 0)
    assert report.shown["Train"] == 2, "a phase that was cut off has not ended well"


def test_shares_of_a_core(clock: Clock) -> None:
    used = {1: 10.0, 2: 0.0}
    meter = CpuMeter(lambda pid: ProcessTime(used[pid], False) if pid in used else None, clock)
    assert meter.shares([1, 2, 3]) == {}, "one reading says nothing yet"
    clock.now += 2
    used[1] += 1.0
    assert meter.shares([1, 2, 3]) == {1: 0.5, 2: 0.0}
    del used[2]
    clock.now += 1
    assert meter.shares([1, 2]) == {1: 0.0}


def test_a_stopped_process_says_so_at_once(clock: Clock) -> None:
    assert CpuMeter(lambda pid: ProcessTime(1.0, True), clock).shares([5]) == {5: STOPPED}


def test_whatever_a_script_calls_its_phases_it_can_be_reported(clock: Clock) -> None:
    """An agent whose report is too long for the API would end, and its workers with it."""
    watch = ActivityWatch(clock)
    for name in ("x" * 100, *(f"Evaluate {number}" for number in range(100))):
        for _ in range(KNOWN_AFTER):
            watch.enter(name)
            clock.now += 1
            watch.enter("")
    watch.enter("y" * 100)
    clock.now += 7
    watch.stands_still("z" * 1000)
    state = PodState("p", Role.TRAINER, activity=watch)
    report = AgentReport.model_validate(state.report("").model_dump())
    assert report.phase == "y" * 63
    assert report.activity.idle_seconds == 7
    assert len(report.activity.shown) == 32
    assert report.activity.shown[IDLE] == 1
