"""A GPU that breaks on purpose, as the Kubernetes body asks for it: see `hearsay`."""

from __future__ import annotations

from robustrl_api.status import InjectionStatus
from robustrl_operator.plan.hearsay import as_if


def xid_for(injection: InjectionStatus, uid: str) -> int:
    """What the agent of a pod's node shall say of it; 0 for nothing."""
    return 79 if as_if(injection, uid) else 0
