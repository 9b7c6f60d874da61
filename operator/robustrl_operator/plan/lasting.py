"""How long a fault made on purpose goes on, from status alone: any operator knows when it is over."""

from __future__ import annotations

from datetime import datetime, timedelta

from robustrl_api.status import InjectionStatus
from robustrl_operator.faults.kind import LASTING
from robustrl_operator.view import moment


def struck_since(injection: InjectionStatus) -> str:
    """Since when all that was to be struck is; empty until then."""
    times = [target.struck_time for target in injection.targets if target.uid]
    return max(times) if all(times) else ""


def is_over(injection: InjectionStatus, now: datetime) -> bool:
    """Whether all is struck, and has been for as long as it has to be kept up."""
    since = struck_since(injection)
    seconds = max((LASTING.get(target.deed, 0.0) for target in injection.targets), default=0.0)
    return bool(since) and now - moment(since) >= timedelta(seconds=seconds)
