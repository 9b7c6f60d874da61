"""Evidence from the source of truth on pods: deleted, failed, evicted, out of memory, not startable."""

from __future__ import annotations

from robustrl_api.status import Scope
from robustrl_operator.analyze.verdict import Cause, Health, Verdict
from robustrl_operator.view import JobView, PodView

BAD_IMAGE = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError"}
)
BAD_CONFIGURATION = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})


def judge(view: JobView, pod: PodView) -> Verdict | None:
    """A verdict from the pod's own status, or None where that says nothing bad."""
    if pod.deleting:
        # On a lost node nobody is left to finish the deletion.
        scope = Scope.NODE if view.node_lost(pod.node) else Scope.POD
        return Verdict(Health.FAILED, Cause.POD_DELETED, f"pod {pod.name} is being deleted", scope)
    if pod.phase == "Failed":
        return Verdict(Health.FAILED, _cause(pod.reason), _evidence(pod), Scope.POD)
    if view.committed_step() > 0:
        # What worked before is more likely to be out of reach for a while than wrong: the kubelet keeps trying, and a
        # pod that does not start in time is replaced (`silence`). A job that trains does not end because of it.
        return None
    if text := cannot_start(pod):
        cause = Cause.BAD_IMAGE if pod.waiting in BAD_IMAGE else Cause.BAD_CONFIGURATION
        return Verdict(Health.FAILED, cause, text, Scope.POD)
    return None


def cannot_start(pod: PodView) -> str:
    """Why its node does not get a pod's containers started; empty where nothing is wrong."""
    if pod.waiting in BAD_IMAGE:
        return f"image of {pod.name} cannot be pulled ({pod.waiting}): {pod.message}"
    if pod.waiting in BAD_CONFIGURATION:
        return f"container of {pod.name} cannot be started ({pod.waiting}): {pod.message}"
    return ""


def _cause(reason: str) -> Cause:
    return {"OOMKilled": Cause.OUT_OF_MEMORY, "Evicted": Cause.EVICTED}.get(reason, Cause.POD_FAILED)


def _evidence(pod: PodView) -> str:
    return f"pod {pod.name} failed: {pod.reason or 'no reason given'} {pod.message}".strip()
