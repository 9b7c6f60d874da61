"""The managers' configuration: checked once where it comes in, frozen afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from pydantic import ValidationError

from robustrl_api.pod_config import ManagerConfig as Border


class Mode(StrEnum):
    """How far rollouts may run ahead of the trainer."""

    SYNC = "Sync"
    ASYNC = "Async"


class ConfigError(Exception):
    """The configuration cannot work; starting again will not help."""


@dataclass(frozen=True)
class ManagerConfig:
    """Everything the managers need to know.

    Args:
        ledger: path of the SQLite file.
        prompts: ``module:function``, index -> prompt.
        rollout: ``module:function``, (prompt, episode) -> reward.
        max_staleness: how many steps an engine may lag, and how many batches may be prepared ahead.
        concurrency: episodes in flight.
        turn_timeout_seconds: one engine call.
        episode_timeout_seconds: one run of the user's rollout function.
        keep_batches: trained steps whose trajectories stay in the ledger.
        replay: serve the batches that the ledger has, and generate none.
    """

    ledger: Path
    prompts: str
    rollout: str
    host: str = "0.0.0.0"
    port: int = 8300
    prompts_per_step: int = 32
    samples_per_prompt: int = 16
    max_staleness: int = 4
    steps: int = 300
    concurrency: int = 64
    turn_timeout_seconds: float = 30.0
    episode_timeout_seconds: float = 120.0
    keep_batches: int = 5
    seed: int = 0
    replay: bool = False
    mode: Mode = Mode.ASYNC

    @property
    def staleness(self) -> int:
        """Steps of staleness that the mode allows."""
        return 0 if self.mode == Mode.SYNC else self.max_staleness


def parse(text: str) -> ManagerConfig:
    """Read the JSON of ``ROBUSTRL_MANAGER_CONFIG``.

    Raises:
        ConfigError: naming each field that is wrong and why.
    """
    try:
        fields = Border.model_validate_json(text).model_dump()
        return ManagerConfig(**fields | {"mode": Mode(fields["mode"])})
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'config'}: {e['msg']}" for e in error.errors())
        raise ConfigError(faults) from error
