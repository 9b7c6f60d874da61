"""Faults of GPUs and of their exporters that are only said: the agents of the pods' nodes say so on purpose.

Nothing is harmed, and of other jobs' pods nothing is said. Node agents are told in the answer to their next report,
from status alone, for as long as the injection is to strike; what they say then is evidence like any other. Saying it
twice is harmless. Each reading names by which word it was made, so an agent that does not know the word is found out.
"""

from __future__ import annotations

from collections.abc import Iterable

from robustrl_api.node import AsIf, Source
from robustrl_api.status import InjectionStage, InjectionStatus, InjectionTarget
from robustrl_operator.analyze.devices import FRESH
from robustrl_operator.faults.kind import Means
from robustrl_operator.view import JobView

WORDS: dict[str, AsIf] = {
    Means.BREAK_GPU: AsIf.OFF_THE_BUS,
    Means.SILENCE_EXPORTERS: AsIf.ABSENT,
    Means.STICK_EXPORTERS: AsIf.STUCK,
    Means.FALSIFY_EXPORTERS: AsIf.IDLE,
}
"""By deed."""


def as_if(injection: InjectionStatus | None, uid: str) -> str:
    """What the agent of a pod's node shall say of it; empty for what it sees."""
    if injection is None or injection.stage is not InjectionStage.STRIKING:
        return ""
    return next((WORDS[each.deed] for each in injection.targets if each.uid == uid and each.deed in WORDS), "")


def is_said(view: JobView, target: InjectionTarget) -> bool:
    """Whether the node's agent says of the pod what it was asked to."""
    observed = view.readings.get(target.uid)
    return observed is not None and observed.reading.as_if == WORDS[target.deed]


def unseen(view: JobView, targets: Iterable[InjectionTarget]) -> tuple[str, ...]:
    """Pods of which something is to be said, and of which no node's agent sees a GPU now."""
    return tuple(each.pod for each in targets if each.deed in WORDS and not _can_be_said(view, each.uid))


def _can_be_said(view: JobView, uid: str) -> bool:
    observed = view.readings.get(uid)
    return observed is not None and observed.reading.source is Source.GPU and view.now - observed.at <= FRESH


def may_still_be_heard(view: JobView) -> bool:
    """Whether this operator has listened for so short a time that no node's agent need have reported yet."""
    return view.now - view.watching_since <= FRESH


def why_unseen(pod: str) -> str:
    """Why it cannot be said of a pod, and what to do about it."""
    return (
        f"no node agent reports a GPU of {pod}, and this fault is nothing but what one says. Install node agents "
        "beside an exporter that maps GPUs to pods (Helm: nodeAgent.enabled, nodeAgent.exporterUrl), or take a fault "
        "that needs none, such as trainer"
    )
