"""What to do about a job: a table of rules over an immutable draft. Pure: no I/O, no clock.

    draft = (view, verdicts, next status, actions, events)
    plan  = rules, in order, each draft -> draft

Every rule is one file in `rules/`, holds one idea and states its invariant. Invariants of the whole:

- The epoch is in status before anything acts on it. Rules change status and name actions; the body writes the
  status first, and carries out the actions only after the API server has accepted it.
- Two live pods never hold one rank of one epoch: a seat is vacated in the same status write that raises the
  epoch, and agents and ledger refuse older epochs.
- A rule never asks which body runs it.
- Nothing is waited for without a timer: a plan that waits says until when (`wake`).

An outcome says what the plan amounts to: Progress (there is something to do), Complete (the job has ended and
everything it held is released), Blocked (waiting, and for what).
"""

from robustrl_operator.plan.draft import (
    Action,
    CreatePod,
    DeleteJob,
    DeletePod,
    Event,
    HarmMachine,
    Plan,
    ProbePod,
    Relabel,
    StandAside,
)
from robustrl_operator.plan.planner import plan

__all__ = [
    "Action",
    "CreatePod",
    "DeleteJob",
    "DeletePod",
    "Event",
    "HarmMachine",
    "Plan",
    "ProbePod",
    "Relabel",
    "StandAside",
    "plan",
]
