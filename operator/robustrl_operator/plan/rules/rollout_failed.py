"""Rule 1: a rollout's pod is lost: it is fenced and replaced, and training is not disturbed.

Its half-finished trajectories continue on other engines (the managers see to that as soon as it leaves the
roster); the replacement pulls the current weights from a neighbour before it is admitted. An engine's process that
exits is restarted in place by its agent; here it is only put on record.
"""

from __future__ import annotations

from robustrl_api.names import Role
from robustrl_operator.analyze.verdict import Cause
from robustrl_operator.plan.draft import Draft
from robustrl_operator.plan.replacement import replace_or_record
from robustrl_operator.plan.rules.image_gone import is_spoilt


def apply(draft: Draft) -> Draft:
    let_go = {pod.uid for pod in draft.view.pods if draft.is_let_go(pod) or is_spoilt(draft, pod)}
    for pod in draft.view.pods:
        if draft.role_of(pod) is Role.ROLLOUT and pod.uid not in draft.gone:
            released = pod.uid in let_go
            draft = replace_or_record(draft, pod, Role.ROLLOUT, Cause.ENGINE_EXITED, rule=1, let_go=released)
    return draft
