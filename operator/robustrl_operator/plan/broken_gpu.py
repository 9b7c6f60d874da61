"""A GPU that breaks on purpose: the agent of the pod's node says so, as if the exporter had, and nothing is harmed.

It is told in the answer to its next report, from status alone, for as long as the injection is to strike; what it says
then is evidence like any other. Saying it twice is harmless.
"""

from __future__ import annotations

from robustrl_api.node import Source
from robustrl_api.status import InjectionStage, InjectionStatus
from robustrl_operator.analyze.devices import FRESH
from robustrl_operator.faults.kind import Means
from robustrl_operator.view import JobView

OFF_THE_BUS = 79
"""The XID of a GPU that is not there any more."""


def xid_for(injection: InjectionStatus, uid: str) -> int:
    """What the agent of a pod's node shall say of it; 0 for nothing."""
    striking = injection.stage is InjectionStage.STRIKING
    meant = any(target.uid == uid and target.deed == Means.BREAK_GPU for target in injection.targets)
    return OFF_THE_BUS if striking and meant else 0


def is_said(view: JobView, uid: str) -> bool:
    """Whether the pod is said to have it."""
    observed = view.readings.get(uid)
    return observed is not None and any(xid.code == OFF_THE_BUS for xid in observed.reading.xids)


def can_be_said(view: JobView, uid: str) -> bool:
    """Whether a node's agent sees a GPU of the pod now."""
    observed = view.readings.get(uid)
    return observed is not None and observed.reading.source is Source.GPU and view.now - observed.at <= FRESH


def may_still_be_heard(view: JobView) -> bool:
    """Whether this operator has listened for so short a time that no node's agent need have reported yet."""
    return view.now - view.watching_since <= FRESH


def unseen(pod: str) -> str:
    """Why it cannot be said of a pod, and what to do about it."""
    return (
        f"no node agent reports a GPU of {pod}, and this fault is nothing but what one says. Install node agents "
        "beside an exporter that maps GPUs to pods (Helm: nodeAgent.enabled, nodeAgent.exporterUrl), or take a fault "
        "that needs none, such as trainer"
    )
