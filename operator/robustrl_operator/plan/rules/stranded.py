"""A replacement that finds no room, while a node that it was kept off is well again, is made anew without that ban.

It was kept off since that node's pod had just been taken for lost. Where machines are few, the node may be the only one
with room when it is back, or the silence was the network's and the node never was away.

And one that was sent to a machine which was taken for lost meanwhile, and so never spoke, is made anew elsewhere: it
waited for room when that machine died, and found it there. The fault is on record already.
"""

from __future__ import annotations

from datetime import timedelta

from robustrl_operator.plan import suspicion
from robustrl_operator.plan.draft import Draft
from robustrl_operator.view import PodView

NODE_IS_KNOWN = timedelta(seconds=60)
"""By then the control plane has noticed a dead node (after 50 s as it comes): one that is ready lives. One that says
itself that it is ready, as a machine does that has booted, is known to live at once."""
NO_ROOM = "Unschedulable"


def apply(draft: Draft) -> Draft:
    lost = suspicion.lost(draft)
    for pod in draft.view.pods:
        if pod.uid in draft.gone or pod.deleting:
            continue
        if _is_stranded(draft, pod):
            draft = draft.delete(pod, force=False)
        elif pod.node in lost and _never_spoke(draft, pod):
            draft = draft.delete(pod, force=True)
    return draft


def _never_spoke(draft: Draft, pod: PodView) -> bool:
    """Nor has it a seat, by which somebody has heard it before."""
    return pod.uid not in draft.view.reports and pod.uid not in draft.view.member_by_uid and pod.phase == "Pending"


def _is_stranded(draft: Draft, pod: PodView) -> bool:
    return pod.waiting == NO_ROOM and any(_lives(draft, pod, node) for node in pod.kept_off)


def _lives(draft: Draft, pod: PodView, name: str) -> bool:
    node = draft.view.nodes.get(name)
    if node is None or draft.view.node_lost(name):
        return False
    says_so = node.heard is not None and node.heard > pod.created
    return says_so or draft.view.now - pod.created > NODE_IS_KNOWN
