"""The users' own detectors, from the entry points of whatever is installed beside the operator."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points

from robustrl_operator.analyze import Detector, Verdict
from robustrl_operator.view import JobView, PodView

log = logging.getLogger(__name__)

GROUP = "robustrl.detectors"


def load_detectors(found: Iterable[EntryPoint] | None = None) -> tuple[Detector, ...]:
    """Every detector that can be loaded. One that cannot is left out, and the log says why."""
    detectors = []
    for entry in entry_points(group=GROUP) if found is None else found:
        try:
            detectors.append(guarded(entry.name, entry.load()))
        except Exception:
            log.exception("detector %s (%s) cannot be loaded and is left out", entry.name, entry.value)
    return tuple(detectors)


def guarded(name: str, detector: Detector) -> Detector:
    """A detector that raises says nothing: somebody's mistake must not stop the jobs."""
    failed = False

    def ask(view: JobView, pod: PodView) -> Verdict | None:
        nonlocal failed
        try:
            verdict = detector(view, pod)
        except Exception:
            if not failed:
                log.exception("detector %s failed on %s; it is not logged again", name, pod.name)
            failed = True
            return None
        return verdict

    return ask
