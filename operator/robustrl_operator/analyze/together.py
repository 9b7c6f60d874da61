"""Losses that belong together: machines that lose power at once fall silent one by one, up to a heartbeat apart.

Answered as they are found, each would cost the trainers a restart, and a rollout that is dead too might be promoted. So
the loss of a trainer waits for those who fell silent with it, but for no longer than they can need to be found as well.
Where all others have been heard of since, nothing waits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

from robustrl_api.names import Role
from robustrl_operator.analyze.silence import last_heard
from robustrl_operator.analyze.verdict import Health, Verdict, Verdicts
from robustrl_operator.view import JobView

PART_OF_LIMIT = 3
"""Of the silence limit, which is three heartbeats unless the user knows that agents report less evenly."""


def settle(view: JobView, verdicts: Verdicts) -> Verdicts:
    """The verdicts, with trainers that were found silent only suspect while others may be found with them."""
    lost = {uid: since for uid in view.member_by_uid if (since := _silent_since(verdicts[uid])) is not None}
    if not lost:
        return verdicts
    apart = view.silence_limit / PART_OF_LIMIT
    first = min(lost.values())
    if view.now - first >= view.silence_limit + apart:
        return verdicts
    quiet = [at for at in _undecided(view, verdicts) if abs(at - first) <= apart]
    return verdicts | {uid: _waits(verdicts[uid]) for uid in lost} if quiet else verdicts


def _silent_since(verdict: Verdict) -> datetime | None:
    """Since when a pod has been silent that was found lost because of it."""
    return verdict.since if verdict.node_lost else None


def _undecided(view: JobView, verdicts: Verdicts) -> Iterator[datetime]:
    """When each trainer, and each rollout that could become one, was last heard of, unless it has failed."""
    for pod in view.pods:
        trains_or_may = view.current_role(pod) in (Role.TRAINER, Role.ROLLOUT)
        at = last_heard(view, pod)
        if trains_or_may and at is not None and not verdicts[pod.uid].failed:
            yield at


def _waits(verdict: Verdict) -> Verdict:
    return replace(verdict, health=Health.SUSPECT, evidence=f"{verdict.evidence}; others fell silent with it")
