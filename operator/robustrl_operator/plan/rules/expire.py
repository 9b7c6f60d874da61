"""A job that ended is deleted `ttlSecondsAfterFinished` later; until then its status can be read."""

from __future__ import annotations

from datetime import timedelta

from robustrl_operator.plan.draft import DeleteJob, Draft
from robustrl_operator.view import moment


def apply(draft: Draft) -> Draft:
    lifetime = draft.spec.ttl_seconds_after_finished
    if lifetime is None or not draft.ended:
        return draft
    left = moment(draft.status.finished_time) + timedelta(seconds=lifetime) - draft.view.now
    if left > timedelta(0):
        return draft.wait("the time after which the job is deleted", left)
    return draft.act(DeleteJob())
