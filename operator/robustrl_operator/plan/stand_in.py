"""What is done for a fault to the one job alone, where the fault itself would strike others as well; why nothing is.

On one's own machine the body harms what the fault says. On Kubernetes machines belong to everybody, and what comes to
the same for this job is done to its pods. Volumes may be others' as well, so agents do as if. What has no such stand-in
is refused, in words that say what to do instead.
"""

from __future__ import annotations

from robustrl_api.control import Harm
from robustrl_operator.faults.kind import OF_EXPORTERS, Deed, FaultKind, Means
from robustrl_operator.plan import hearsay
from robustrl_operator.view import JobView

PLAYED: dict[Means, Deed] = {
    Means.CUT_POWER: Harm.FALL_SILENT,
    Means.FREEZE: Harm.STAND_STILL,
    Means.CUT_LINK: Harm.CUT_OFF,
    Means.TAKE_IMAGE: Means.TAKE_IMAGE,
}
"""On Kubernetes, by the pod's agent; of its image by the operator, which makes the pod."""
OF_STORAGE: dict[Means, Deed] = {
    Means.FILL_STORAGE: Harm.STORAGE_FULL,
    Means.SEAL_STORAGE: Harm.STORAGE_READ_ONLY,
}
"""By the trainers' agents, wherever the job runs."""
AT_ONCE: dict[FaultKind, Deed] = {FaultKind.CHECKPOINT_DAMAGE: Harm.LOSE_CHECKPOINT}
"""Kinds of which the struck pod's agent does in one what would be several deeds, and destroys nothing."""

NOT_IN_A_RUN: dict[Deed, str] = {
    Means.CUT_LINK: "is a node that is cut off from others, and here is one machine. Nearest comes one that stands "
    "still: trainer-freeze",
    Means.DRAIN: "is an eviction by Kubernetes, which does not run this job. Its pod may be deleted instead: "
    "trainer-pod",
    Means.BREAK_GPU: "is what a node agent says of a GPU, and there is none here. Nearest comes a dead machine: "
    "trainer",
    Means.TAKE_IMAGE: "is of a pod whose image cannot be pulled, and processes have none. Nearest comes a deleted pod: "
    "rollout-pod",
    **dict.fromkeys(OF_EXPORTERS, "is what node agents hear of exporters, and there are none here"),
}


def stand_in(view: JobView, deed: Deed) -> Deed | None:
    """What is done instead of a deed, if not the deed itself; None where nothing comes to the same."""
    if isinstance(deed, Harm) or deed in view.means:
        return deed
    if deed in hearsay.WORDS and Means.BREAK_GPU in view.means:
        # Whoever says the one of a GPU says the others as well.
        return deed
    if deed in OF_STORAGE:
        return OF_STORAGE[deed]
    # Machines may be the job's own to harm, as those are that `robustrl run` plays.
    return None if Means.CUT_POWER in view.means else PLAYED.get(deed)


def why_not(kind: FaultKind, deed: Deed) -> str:
    """Why nothing stands for a deed here, and what to do about it."""
    return f"{kind} {NOT_IN_A_RUN[deed]}"
