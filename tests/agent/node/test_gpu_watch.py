"""From scrapes to what is said of a pod: every trap of the exporter, in virtual time."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from robustrl.node.exposition import parse
from robustrl.node.gpu_watch import GpuWatch
from robustrl_api.node import AsIf, PodReading, Source, WatchedPod, XidSeverity
from robustrl_e2e.fake_exporter import HUNG, IDLE, POWER, PROFILING, STUCK, TENSOR, WORKING, XID, Gpu, Style, render

TRAINER = ("rl", "j-trainer-1")
POD = WatchedPod(uid="uid-1", namespace=TRAINER[0], name=TRAINER[1])
OTHER = WatchedPod(uid="uid-2", namespace="rl", name="j-trainer-2")
INTERVAL = 10.0


@dataclass
class Node:
    """A watch that is shown one page after the other, ten seconds apart."""

    now: float = 1000.0
    style: Style = field(default_factory=Style)
    pods: tuple[WatchedPod, ...] = (POD, OTHER)

    def __post_init__(self) -> None:
        self.watch = GpuWatch(lambda: self.now)
        self.watch.watch(self.pods)

    def show(self, *gpus: Gpu, times: int = 1) -> Node:
        for _ in range(times):
            self.now += INTERVAL
            self.watch.take(parse(render(gpus, self.style)))
        return self

    def values(self, values: dict[str, float], times: int = 1, pod: tuple[str, str] | None = TRAINER) -> Node:
        return self.show(Gpu(0, pod, dict(values)), times=times)

    def reading(self, pod: WatchedPod = POD) -> PodReading:
        return self.watch.readings(self.pods)[pod.uid]

    @property
    def idle(self) -> float:
        return self.reading().idle_seconds

    def codes(self, pod: WatchedPod = POD) -> list[int]:
        return [xid.code for xid in self.reading(pod).xids]


def test_a_gpu_that_worked_and_stopped_is_idle() -> None:
    node = Node().values(WORKING, 3).values(HUNG, 31)
    reading = node.reading()
    assert (reading.uid, reading.source, reading.idle_seconds) == ("uid-1", Source.GPU, 300)
    assert reading.idle_text == "tensor units of GPU-00000000 at 0 permille, memory 1 permille"
    assert reading.devices[0].power_watts == 130
    assert node.values(WORKING).idle == 0


def test_a_counter_that_never_moved_proves_nothing() -> None:
    """It may be stuck since before we looked, or the work may need no tensor units."""
    assert Node().values(HUNG, 100).idle == 0
    assert Node().values(IDLE, 100).idle == 0


def test_profiling_stuck_at_zero_is_no_idleness() -> None:
    node = Node().values(WORKING, 3).values(STUCK, 100)
    assert node.idle == 0
    assert node.reading().doubt == (
        "GPU-00000000: tensor units said to idle, but it draws 610 W of at most 610 W seen"
    )  # fmt: skip
    assert node.values(WORKING).reading().doubt == ""


def test_no_profiling_counters() -> None:
    bare = {name: value for name, value in WORKING.items() if name not in PROFILING}
    node = Node().values(bare, 50).values({**bare, POWER: 75.0}, 50)
    assert (node.idle, node.reading().doubt) == (0, "")
    assert node.reading().devices[0].tensor_permille is None


def test_series_that_vanish_end_the_idle_time() -> None:
    gone = {name: value for name, value in HUNG.items() if name != TENSOR}
    assert Node().values(WORKING).values(HUNG, 20).values(gone).idle == 0


def test_a_pause_of_the_exporter_is_not_idleness() -> None:
    node = Node().values(WORKING).values(HUNG, 20)
    node.now += 300
    assert node.idle == 0, "nobody has looked for minutes"
    assert node.values(HUNG).idle == 0
    assert node.values(HUNG).idle == INTERVAL


def test_an_exporter_that_was_restarted_has_to_show_its_counters_work() -> None:
    node = Node().values(WORKING).values(HUNG, 20)
    node.watch.exporter_gone()
    assert node.values(HUNG, 50).idle == 0
    node.values(WORKING).values(HUNG, 11)
    assert node.idle == 100
    node.style.started = 1.7e9
    assert node.values(HUNG, 50).idle == 0, "seen by its start time as well"


def test_another_pod_on_the_gpu_starts_anew() -> None:
    node = Node().values(WORKING).values(HUNG, 20)
    node.values(HUNG, 50, pod=("rl", OTHER.name))
    assert node.reading(OTHER).idle_seconds == 0
    assert POD.uid not in node.watch.readings(node.pods)


def test_labels_that_flicker_change_nothing() -> None:
    node = Node().values(WORKING).values(HUNG, 10).values(HUNG, 2, pod=None).values(HUNG, 9)
    assert node.idle == 200


def test_a_gpu_of_no_pod_is_nobodys() -> None:
    node = Node().values(WORKING, pod=None).values({**IDLE, XID: 79}, 50, pod=None)
    assert node.watch.readings(node.pods) == {}


def test_all_gpus_of_a_pod_must_idle() -> None:
    """A collective that hangs stops them all; one that was never used says nothing."""
    node = Node().show(Gpu(0, TRAINER), Gpu(1, TRAINER), Gpu(2, TRAINER, dict(IDLE)))
    node.show(Gpu(0, TRAINER, dict(HUNG)), Gpu(1, TRAINER), Gpu(2, TRAINER, dict(IDLE)), times=10)
    assert node.idle == 0
    node.show(*(Gpu(n, TRAINER, dict(HUNG)) for n in range(3)), times=11)
    assert node.idle == 100, "as long as the one that worked longest has idled"
    assert "GPU-00000000 and 1 more" in node.reading().idle_text


def test_the_jobs_own_threshold_counts() -> None:
    slow = {**WORKING, TENSOR: 0.03}
    quiet = {**slow, "DCGM_FI_PROF_DRAM_ACTIVE": 0.01, POWER: 100.0}
    assert Node().values(WORKING).values(quiet, 11).idle == 0
    strict = Node(pods=(POD.model_copy(update={"active_permille": 50}),))
    assert strict.values(WORKING).values(quiet, 11).idle == 100


# MIG


def test_instances_of_a_gpu_are_told_apart() -> None:
    one, two = Gpu(0, TRAINER, instance="1"), Gpu(0, ("rl", OTHER.name), instance="2")
    node = Node().show(one, two)
    node.show(Gpu(0, TRAINER, dict(HUNG), "1"), two, times=11)
    assert (node.idle, node.reading(OTHER).idle_seconds) == (100, 0)
    assert "GPU-00000000 instance 1" in node.reading().idle_text


def test_an_xid_of_the_whole_gpu_is_that_of_all_its_instances() -> None:
    instances = [Gpu(0, TRAINER, instance="1"), Gpu(0, ("rl", OTHER.name), instance="2")]
    node = Node().show(*instances, Gpu(0)).show(*instances, Gpu(0, values={XID: 79}))
    assert (node.codes(), node.codes(OTHER)) == ([79], [79])


def test_an_xid_of_one_instance_is_its_own() -> None:
    two = Gpu(0, ("rl", OTHER.name), instance="2")
    node = Node().show(Gpu(0, TRAINER, instance="1"), two)
    node.show(Gpu(0, TRAINER, {**WORKING, XID: 31}, "1"), two)
    assert (node.codes(), node.codes(OTHER)) == ([31], [])


# XIDs


def test_an_xid_is_told_with_its_meaning_and_age_for_as_long_as_the_pod_holds_the_gpu() -> None:
    node = Node().values(WORKING).values({**IDLE, XID: 79}, 4)
    (xid,) = node.reading().xids
    assert (xid.code, xid.gpu, xid.severity, xid.age_seconds) == (79, "GPU-00000000", XidSeverity.GPU, 30)
    assert xid.meaning == "the GPU has fallen off the bus"


def test_an_old_xid_is_not_held_against_the_pod_that_comes_after() -> None:
    node = Node().values(WORKING).values({**IDLE, XID: 79}, 4)
    node.values({**WORKING, XID: 79}, 20, pod=("rl", OTHER.name))
    assert node.codes(OTHER) == []
    node.values({**WORKING, XID: 48}, pod=("rl", OTHER.name))
    assert node.codes(OTHER) == [48]


def test_an_xid_from_before_the_agent_is_old() -> None:
    assert Node().values({**WORKING, XID: 79}, 20).codes() == []


def test_a_gpu_that_falls_off_the_bus_and_loses_its_labels_was_the_pods() -> None:
    node = Node().values(WORKING).show(Gpu(0, None, {XID: 79})).show()
    assert node.codes() == [79]


def test_a_restart_of_the_exporter_makes_no_old_xid_new() -> None:
    node = Node().values({**WORKING, XID: 31}, 2)
    node.watch.exporter_gone()
    assert node.values({**WORKING, XID: 31}, 2).codes() == []
    assert node.values({**WORKING, XID: 79}).codes() == [79]


def test_an_xid_on_purpose_is_said_once_of_the_pod_that_is_meant_for_as_long_as_it_is_watched() -> None:
    """The operator says so for a moment. Others that share the GPU hear nothing of it."""
    shared = Gpu(0, TRAINER), Gpu(0, ("rl", OTHER.name))
    node = Node().show(*shared)
    node.watch.watch((told(AsIf.OFF_THE_BUS), OTHER))
    node.now += INTERVAL
    node.watch.watch((told(AsIf.OFF_THE_BUS), OTHER))
    node.watch.watch((POD, OTHER))
    (xid,) = node.reading().xids
    assert (xid.code, xid.gpu, xid.severity, xid.age_seconds) == (79, "GPU-00000000", XidSeverity.GPU, INTERVAL)
    assert xid.meaning == "the GPU has fallen off the bus"
    assert node.codes(OTHER) == []
    node.watch.watch((OTHER,))
    node.watch.watch((POD, OTHER))
    assert node.codes() == []


def told(word: str, pod: WatchedPod = POD) -> WatchedPod:
    """The pod, and what shall be said of it on purpose."""
    return pod.model_copy(update={"as_if": word})


def test_an_exporter_that_is_stuck_on_purpose_is_not_believed() -> None:
    node = Node().values(WORKING, 3)
    node.watch.watch((told(AsIf.STUCK), OTHER))
    assert node.reading().as_if == "", "no page has been changed yet"
    reading = node.values(WORKING, 50).reading()
    assert (reading.as_if, reading.idle_seconds) == ("Stuck", 0)
    assert "it draws 610 W of at most 610 W seen" in reading.doubt
    assert (reading.devices[0].tensor_permille, reading.devices[0].power_watts) == (0, 610)
    node.watch.watch((POD, OTHER))
    reading = node.values(WORKING).reading()
    assert (reading.as_if, reading.doubt, reading.devices[0].tensor_permille) == ("", "", 410)


def test_an_exporter_that_lies_on_purpose_makes_the_gpus_idle() -> None:
    """The operator has other evidence."""
    node = Node().values(WORKING, 3)
    node.watch.watch((told(AsIf.IDLE), OTHER))
    reading = node.values(WORKING, 4).reading()
    assert (reading.as_if, reading.idle_seconds, reading.doubt) == ("Idle", 30, "")
    assert reading.idle_text == "tensor units of GPU-00000000 at 0 permille, memory 0 permille"
    node.watch.watch((POD, OTHER))
    assert node.values(WORKING).idle == 0


def test_an_exporter_that_is_absent_on_purpose_says_nothing_and_is_known_by_nothing_afterwards() -> None:
    node = Node().values(WORKING, 3).values(HUNG, 5)
    assert node.idle == 40
    node.watch.watch((told(AsIf.ABSENT), OTHER))
    reading = node.values({**HUNG, XID: 79}, 7).reading()
    assert (reading.as_if, reading.idle_seconds, reading.xids, reading.devices) == ("Absent", 0, (), ())
    node.watch.watch((POD, OTHER))
    reading = node.values({**HUNG, XID: 79}, 20).reading()
    assert (reading.as_if, reading.idle_seconds) == ("", 0), "whether its counters work has to be seen anew"
    assert [xid.code for xid in reading.xids] == [79], "an error that came meanwhile counts"


def test_counters_that_a_card_does_not_have_are_not_made_up() -> None:
    bare = {name: value for name, value in WORKING.items() if name not in PROFILING}
    for word in (AsIf.STUCK, AsIf.IDLE):
        node = Node().values(bare, 3)
        node.watch.watch((told(word), OTHER))
        reading = node.values(bare, 9).reading()
        assert (reading.as_if, reading.devices[0].tensor_permille, reading.idle_seconds) == (word, None, 0)


@pytest.mark.parametrize("word", [AsIf.ABSENT, AsIf.STUCK, AsIf.IDLE])
def test_of_a_gpu_that_others_hold_as_well_nothing_is_made_up(word: str) -> None:
    both = Gpu(0, TRAINER), Gpu(0, ("rl", OTHER.name))
    node = Node().show(*both, times=3)
    node.watch.watch((told(word), OTHER))
    node.show(*both, times=9)
    assert [(node.reading(pod).as_if, node.reading(pod).idle_seconds) for pod in (POD, OTHER)] == [("", 0), ("", 0)]
    node.watch.watch((told(word), told(word, OTHER)))
    node.show(*both, times=9)
    assert [node.reading(pod).as_if for pod in (POD, OTHER)] == [word, word]


def test_many_xids_are_bounded() -> None:
    node = Node().values(WORKING)
    for code in range(1, 60):
        node.values({**WORKING, XID: code})
    assert node.codes() == list(range(44, 60))


@pytest.mark.parametrize("style", [Style("hostname", "uuid"), Style(prefix="exported_")])
def test_spellings_make_no_difference(style: Style) -> None:
    assert Node(style=style).values(WORKING).values(HUNG, 11).idle == 100


def test_readings_fit_into_a_report() -> None:
    """Whatever the node holds, what is said of a pod stays within the message's bounds."""
    gpus = [Gpu(n, TRAINER, {**WORKING, XID: 31}) for n in range(100)]
    node = Node().show(*(Gpu(n, TRAINER) for n in range(100))).show(*gpus)
    reading = PodReading.model_validate_json(node.reading().model_dump_json())
    assert (len(reading.xids), len(reading.devices)) == (16, 64)
