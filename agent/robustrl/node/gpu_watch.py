"""From one scrape after the other to what the pods' GPUs are doing: since when they idle, and which XIDs are new.

A counter that has never moved proves nothing by standing still: it may be stuck, or the work may need no tensor units.
So a GPU's idle time counts only once its tensor units have been seen to work for the pod that holds it now, by the
exporter that runs now. All of that is dropped when the pod gives the GPU up or the exporter ends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from robustrl.node import as_if
from robustrl.node.as_if import OF_PAGES, OFF_THE_BUS_XID
from robustrl.node.exposition import GpuReading, Page, PodName
from robustrl.node.gpu_work import Work, judge
from robustrl.node.idle_timer import MAX_GAP_SECONDS, IdleTimer
from robustrl.node.xid_watch import XidWatch
from robustrl.node.xids import XIDS, XidMeaning, meaning_of
from robustrl_api.node import ACTIVE_PERMILLE, AsIf, Device, PodReading, Source, WatchedPod, Xid

log = logging.getLogger(__name__)

MAX_XIDS = 16
MAX_DEVICES = 64
FORGET_SECONDS = 600.0
"""A GPU that no page has shown for so long is gone; one that fell off the bus has been reported long before."""

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class _Seen:
    """An XID and when it was seen first."""

    code: int
    at: float


@dataclass
class _Gpu:
    """What is known of a GPU or MIG instance, and for whom."""

    reading: GpuReading
    seen_at: float
    pods: frozenset[PodName] = frozenset()
    """Who held it last. One that has lost its labels is still theirs until somebody else's name is on it."""
    worked: bool = False
    peak_watts: float | None = None
    idle: IdleTimer = field(default_factory=IdleTimer)
    agreeing: str = ""
    doubt: str = ""
    as_if: str = ""
    """What the last page was changed by, on purpose."""
    gauge: XidWatch = field(default_factory=XidWatch)
    xids: list[_Seen] = field(default_factory=list)

    def forget_work(self) -> None:
        """Nothing is known any more of how it worked."""
        self.worked, self.peak_watts, self.idle, self.agreeing, self.doubt = False, None, IdleTimer(), "", ""


class GpuWatch:
    """All GPUs of a node.

    Args:
        clock: monotonic seconds.
        table: what XIDs mean.
    """

    def __init__(self, clock: Clock, table: Mapping[int, XidMeaning] = XIDS) -> None:
        self._clock, self._table = clock, table
        self._gpus: dict[tuple[str, str], _Gpu] = {}
        self._thresholds: dict[PodName, float] = {}
        self._words: dict[PodName, str] = {}
        """What shall be said of pods on purpose."""
        self._off_the_bus: dict[str, _Seen] = {}
        """By pod UID, and not by GPU: others may share it."""
        self._exporter_started: float | None = None

    def watch(self, pods: Iterable[WatchedPod]) -> None:
        """From which share on pods count as active, for all others it is the usual one; and what shall be said of them
        on purpose. The operator says so for a moment, and an XID stays."""
        pods = tuple(pods)
        self._thresholds = {PodName(pod.namespace, pod.name): float(pod.active_permille) for pod in pods}
        self._words = {PodName(pod.namespace, pod.name): pod.as_if for pod in pods if pod.as_if in OF_PAGES}
        for pod in pods:
            if pod.as_if == AsIf.OFF_THE_BUS and pod.uid not in self._off_the_bus:
                log.warning("%s/%s: XID %d is made up on purpose", pod.namespace, pod.name, OFF_THE_BUS_XID)
                self._off_the_bus[pod.uid] = _Seen(OFF_THE_BUS_XID, self._clock())
        here = {pod.uid for pod in pods}
        self._off_the_bus = {uid: made for uid, made in self._off_the_bus.items() if uid in here}

    def exporter_gone(self) -> None:
        """The exporter has ended or was restarted: how its counters behave has to be seen anew."""
        for gpu in self._gpus.values():
            gpu.forget_work()

    def take(self, page: Page) -> None:
        """Note what a scrape shows."""
        if page.started != self._exporter_started:
            self.exporter_gone()
            self._exporter_started = page.started
        now = self._clock()
        for reading in page.gpus:
            self._take_as_if(reading, now)
        kept = {key: gpu for key, gpu in self._gpus.items() if now - gpu.seen_at <= FORGET_SECONDS}
        self._gpus = kept

    def _take_as_if(self, reading: GpuReading, now: float) -> None:
        """Take it as it is, unless something else is to be said of all the pods that hold the GPU."""
        gpu = self._gpus.get((reading.gpu, reading.instance)) or _Gpu(reading, now)
        words = {self._words.get(pod, "") for pod in reading.pods or gpu.pods}
        word = words.pop() if len(words) == 1 else ""
        if word != gpu.as_if:
            log.warning("%s: from now on %s", _name(gpu), f"as if {word}, on purpose" if word else "what is seen")
        gpu.as_if, shown = word, as_if.shown(reading, word)
        if shown is None:
            gpu.forget_work()
            return
        self._gpus[reading.gpu, reading.instance] = gpu
        self._take(gpu, shown, now)

    def _take(self, gpu: _Gpu, reading: GpuReading, now: float) -> None:
        gpu.reading, gpu.seen_at = reading, now
        if reading.pods and reading.pods != gpu.pods:
            gpu.pods = reading.pods
            gpu.forget_work()
            gpu.xids.clear()
        code = gpu.gauge.take(reading.xid)
        if code:
            gpu.xids = [*gpu.xids, _Seen(code, now)][-MAX_XIDS:]
        self._watch_work(gpu, now)

    def _watch_work(self, gpu: _Gpu, now: float) -> None:
        threshold = min((self._thresholds.get(pod, ACTIVE_PERMILLE) for pod in gpu.pods), default=ACTIVE_PERMILLE)
        work, word = judge(gpu.reading, threshold, gpu.peak_watts)
        gpu.doubt = word if work is Work.DOUBTFUL else ""
        if work is Work.IDLE:
            gpu.idle.idle(now)
            gpu.agreeing = word
            return
        gpu.idle.active(now)
        if work is Work.ACTIVE:
            gpu.worked = True
            gpu.peak_watts = max(gpu.peak_watts or 0.0, gpu.reading.power_watts or 0.0) or None

    def readings(self, pods: Iterable[WatchedPod]) -> dict[str, PodReading]:
        """By pod UID, of those pods that hold a GPU."""
        found = ((pod.uid, self._of(pod)) for pod in pods)
        return {uid: reading for uid, reading in found if reading is not None}

    def _of(self, pod: WatchedPod) -> PodReading | None:
        name = PodName(pod.namespace, pod.name)
        held = [gpu for gpu in self._gpus.values() if name in gpu.pods]
        if not held:
            return None
        now = self._clock()
        seconds, text = self._idleness(held, now)
        doubts = [f"{_name(gpu)}: tensor units said to idle, but {gpu.doubt}" for gpu in held if gpu.doubt]
        return PodReading(
            uid=pod.uid,
            source=Source.GPU,
            idle_seconds=seconds,
            idle_text=text,
            doubt="; ".join(doubts)[:300],
            xids=self._xids(held, now, self._off_the_bus.get(pod.uid)),
            devices=tuple(_device(gpu.reading) for gpu in held if now - gpu.seen_at <= MAX_GAP_SECONDS)[:MAX_DEVICES],
            as_if=self._said(pod, held),
        )

    def _said(self, pod: WatchedPod, held: list[_Gpu]) -> str:
        """By which word the reading of a pod is made, if by any; one of all its GPUs, or an XID."""
        words = {gpu.as_if for gpu in held}
        word = words.pop() if len(words) == 1 else ""
        return word or (AsIf.OFF_THE_BUS if pod.uid in self._off_the_bus else "")

    def _idleness(self, held: list[_Gpu], now: float) -> tuple[float, str]:
        """All of the pod's GPUs that have worked are idle, or none counts: a collective that hangs stops them all."""
        worked = [gpu for gpu in held if gpu.worked]
        seconds = min((gpu.idle.seconds(now) for gpu in worked), default=0.0)
        if seconds == 0:
            return 0.0, ""
        first = worked[0]
        others = f" and {len(worked) - 1} more" if len(worked) > 1 else ""
        tensor = first.reading.tensor_permille or 0.0
        return seconds, f"tensor units of {_name(first)}{others} at {tensor:.0f} permille, {first.agreeing}"[:500]

    def _xids(self, held: list[_Gpu], now: float, made: _Seen | None) -> tuple[Xid, ...]:
        """Of the pod's GPUs; where it holds a MIG instance, also those of the GPU as a whole; and one on purpose."""
        cards = {gpu.reading.gpu for gpu in held}
        whole = [gpu for (card, instance), gpu in self._gpus.items() if card in cards and not instance and not gpu.pods]
        found = [(each, gpu.reading.gpu) for gpu in (*held, *whole) for each in gpu.xids]
        seen = sorted([*found, *([(made, held[0].reading.gpu)] if made else [])], key=_when)
        return tuple(self._xid(each, card, now) for each, card in seen[-MAX_XIDS:])

    def _xid(self, seen: _Seen, card: str, now: float) -> Xid:
        known = meaning_of(seen.code, self._table)
        age = max(0.0, now - seen.at)
        return Xid(code=seen.code, gpu=card, severity=known.severity, meaning=known.meaning, age_seconds=age)


def _when(item: tuple[_Seen, str]) -> float:
    return item[0].at


def _name(gpu: _Gpu) -> str:
    reading = gpu.reading
    return f"{reading.gpu} instance {reading.instance}" if reading.instance else reading.gpu


def _device(reading: GpuReading) -> Device:
    return Device(
        gpu=reading.gpu,
        instance=reading.instance,
        tensor_permille=reading.tensor_permille,
        engine_permille=reading.engine_permille,
        memory_permille=reading.memory_permille,
        power_watts=reading.power_watts,
        temperature_celsius=reading.temperature_celsius,
    )
