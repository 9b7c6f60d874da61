"""What the brain's tests are made of: a job, its pods and reports at one moment.

`job()` is the job of most tests: 2 trainers, 4 rollouts of which 2 are never borrowed, 1 manager. Whole recoveries are
played in `tests.operator.world`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from robustrl_api.control import (
    Activity,
    AgentReport,
    Child,
    ChildState,
    Exit,
)
from robustrl_api.names import Role
from robustrl_api.spec import RLJobSpec
from robustrl_api.status import Member, RLJobStatus
from robustrl_operator.analyze import Verdict, Verdicts, analyze
from robustrl_operator.plan import Plan
from robustrl_operator.plan.draft import Draft
from robustrl_operator.view import Heard, JobView, NodeView, PodView

NOW = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def merge(base: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """`base` with `patch` over it, object by object."""
    merged = dict(base)
    for key, value in patch.items():
        below = merged.get(key)
        merged[key] = merge(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged


def job(**patch: Any) -> RLJobSpec:
    """The usual job, with fields (as in YAML) put over it."""
    template = {"spec": {"containers": [{"name": "c", "image": "i", "command": ["python", "train.py"]}]}}
    base: dict[str, Any] = {
        "steps": 20,
        "data": {"prompts": "tasks:prompts", "rollout": "tasks:rollout"},
        "trainer": {"replicas": 2, "template": template},
        "rollout": {"replicas": 4, "minReplicas": 2, "engine": {"model": "model:build"}},
        "manager": {"ledger": "/ledger", "template": template},
    }
    return RLJobSpec.model_validate(merge(base, patch))


SERVICE = {"name": "judge", "replicas": 2, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}


# Single moments, for the tests of one rule.


def pod(name: str, origin: Role = Role.ROLLOUT, **fields: Any) -> PodView:
    """A running pod on a node of its own."""
    number = name.rpartition("-")[2]
    usual: dict[str, Any] = {
        "role": origin, "created": NOW - 100 * SECOND, "node": f"n{number}", "address": f"10.0.0.{number}",
        "phase": "Running",
    }  # fmt: skip
    return PodView(name=name, uid=f"uid-{name}", origin=origin, **{**usual, **fields})


def heard(
    pod: PodView, child: Child | None = None, *, ago: float = 0.1, changed: float | None = None, **fields: Any
) -> Heard:
    """What the pod's agent said `ago` seconds before NOW, its child having changed `changed` seconds before."""
    child = child or Child(state=ChildState.RUNNING, epoch=1)
    report = AgentReport(pod=pod.name, boot="b", role=pod.role, child=child, **fields)
    return Heard(report, NOW - ago * SECOND, NOW - (ago if changed is None else changed) * SECOND)


def exited(code: int = 1, *, epoch: int = 1, message: str = "", peer_lost: bool = False, restarts: int = 0) -> Child:
    last = Exit(code=code, message=message, peer_lost=peer_lost)
    return Child(state=ChildState.EXITED, epoch=epoch, last_exit=last, restarts=restarts)


def running_job(spec: RLJobSpec | None = None, **changes: Any) -> JobView:
    """The usual job in the middle of its first epoch, everybody well; `changes` are the view's fields."""
    spec = spec or job()
    trainers = [pod(f"j-trainer-{n}", Role.TRAINER, epoch=1) for n in range(1, 1 + spec.trainer.replicas)]
    rollouts = [pod(f"j-rollout-{n}", created=NOW - (200 - n) * SECOND) for n in range(3, 3 + spec.rollout.replicas)]
    pods = (pod("j-manager-0", Role.MANAGER), *trainers, *rollouts)
    members = tuple(Member(rank=r, pod=p.name, uid=p.uid, node=p.node) for r, p in enumerate(trainers))
    usual: dict[str, Any] = {
        "name": "j", "namespace": "ns", "spec": spec, "now": NOW, "watching_since": NOW - 600 * SECOND, "pods": pods,
        "status": RLJobStatus(epoch=1, step=5, members=members, serial=20, started_time="2026-11-21T08:00:00.0Z"),
        "reports": {
            p.uid: heard(
                p, step=5, admitted=p.origin is Role.ROLLOUT,
                activity=Activity(phase_seconds=600 if p.origin is Role.MANAGER else 0),
            )
            for p in pods
        },
        "nodes": {p.node: NodeView(p.node) for p in pods},
    }  # fmt: skip
    return JobView(**{**usual, **changes})


def with_status(view: JobView, **changes: Any) -> JobView:
    return replace(view, status=view.status.model_copy(update=changes))


def with_pod(view: JobView, name: str, **changes: Any) -> JobView:
    """The view with one pod changed."""
    assert any(p.name == name for p in view.pods), name
    return replace(view, pods=tuple(replace(p, **changes) if p.name == name else p for p in view.pods))


def without_pod(view: JobView, *names: str) -> JobView:
    return replace(view, pods=tuple(p for p in view.pods if p.name not in names))


def saying(view: JobView, name: str, child: Child | None = None, **fields: Any) -> JobView:
    """The view with another report of one pod."""
    (one,) = [p for p in view.pods if p.name == name]
    return replace(view, reports={**view.reports, one.uid: heard(one, child, **fields)})


def draft(view: JobView, verdicts: Verdicts | None = None) -> Draft:
    """What a rule is given. Verdicts by pod name are put over what analyze says."""
    said = analyze(view)
    for name, verdict in (verdicts or {}).items():
        said[f"uid-{name}"] = verdict
    return Draft(view, said, view.status)


def actions(of: Draft | Plan, kind: type) -> list[Any]:
    return [action for action in of.actions if isinstance(action, kind)]


def names(found: Iterable[Any]) -> list[str]:
    return [each.name for each in found]


def failed(scope: str = "Process", cause: str = "WorkerExited", evidence: str = "it failed") -> Verdict:
    """A verdict of failure, for the tests of one rule."""
    from robustrl_api.status import Scope
    from robustrl_operator.analyze import Cause, Health

    return Verdict(Health.FAILED, Cause(cause), evidence, Scope(scope))
