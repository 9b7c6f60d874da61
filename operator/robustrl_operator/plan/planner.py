"""Runs the rules in order."""

from __future__ import annotations

from collections.abc import Callable

from robustrl_operator.analyze.verdict import Verdicts
from robustrl_operator.plan.draft import Draft, Outcome, Plan
from robustrl_operator.plan.rules import (
    backoff,
    begin,
    completion,
    diagnosis,
    expire,
    failed_starts,
    fence,
    hung,
    image_gone,
    inject,
    job_restart,
    labels,
    manager_failed,
    outdated,
    planned,
    populate,
    probe,
    recovered,
    release,
    rollout_failed,
    seats,
    stages,
    stranded,
    summary,
    suspend,
    trainer_lost,
    trainer_process,
    whole_job,
)
from robustrl_operator.view import JobView

Rule = Callable[[Draft], Draft]

RULES: tuple[Rule, ...] = (
    begin.apply,
    completion.apply,
    suspend.apply,
    diagnosis.apply,
    probe.apply,
    stages.apply,
    recovered.apply,
    whole_job.apply,
    trainer_lost.apply,
    job_restart.apply,
    outdated.apply,
    trainer_process.apply,
    planned.apply,
    backoff.apply,
    hung.apply,
    rollout_failed.apply,
    manager_failed.apply,
    seats.apply,
    fence.apply,
    stranded.apply,
    image_gone.apply,
    failed_starts.apply,
    populate.apply,
    labels.apply,
)
"""Order matters: faults are settled before seats are filled, and pods are counted after both."""

ENDINGS: tuple[Rule, ...] = (release.apply, expire.apply, inject.apply, summary.apply)
"""What also runs for a job that has ended or is suspended."""


def plan(view: JobView, verdicts: Verdicts) -> Plan:
    """What to do next about a job.

    The status in the plan is to be written before its actions are carried out.
    """
    draft = Draft(view, verdicts, view.status)
    for rule in RULES:
        if draft.ended or draft.spec.suspend:
            break
        draft = rule(draft)
    if draft.spec.suspend and not draft.ended:
        draft = suspend.apply(begin.apply(draft))
    for ending in ENDINGS:
        draft = ending(draft)
    return Plan(draft.status, draft.actions, draft.events, _outcome(draft), draft.waiting_for, draft.wake)


def _outcome(draft: Draft) -> Outcome:
    if draft.ended and not draft.view.pods:
        return Outcome.COMPLETE
    if draft.waiting_for and not draft.actions and draft.status == draft.view.status:
        return Outcome.BLOCKED
    return Outcome.PROGRESS
