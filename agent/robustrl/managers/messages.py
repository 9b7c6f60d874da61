"""What trainers and agents post. Checked once, here."""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from robustrl.managers.rollout_manager import EngineReport, EngineState
from robustrl.managers.versions import Announcement
from robustrl_api.version import Version

Epoch = Annotated[int, Field(ge=0)]
Name = Annotated[str, Field(min_length=1, max_length=253)]
Seconds = Annotated[float, Field(ge=0, le=60)]


def _version_or_empty(text: str) -> str:
    if text:
        Version.parse(text)
    return text


def _is_not_finite(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


VersionText = Annotated[str, AfterValidator(_version_or_empty)]


class _Message(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class _Ranked(_Message):
    rank: int = Field(ge=0)
    world_size: int = Field(ge=1)

    @model_validator(mode="after")
    def _rank_fits(self) -> _Ranked:
        if self.rank >= self.world_size:
            raise ValueError(f"rank {self.rank} does not exist in a world of {self.world_size}")
        return self


class JoinMessage(_Ranked):
    pod: Name


class RollbackMessage(_Message):
    step: int = Field(ge=0)


class BatchMessage(_Ranked):
    epoch: Epoch
    wait_seconds: Seconds = 10.0


class CommitMessage(_Message):
    epoch: Epoch
    batch: str = Field(max_length=128)
    digests: dict[str, str] = {}
    metrics: dict[str, Any] = {}

    @field_validator("metrics")
    @classmethod
    def _finite(cls, metrics: dict[str, Any]) -> dict[str, Any]:
        """A diverged loss is worth a commit and a null in the curve, not a body that no JSON parser reads."""
        return {name: None if _is_not_finite(value) else value for name, value in metrics.items()}


class VersionMessage(_Message):
    """Anything beyond the named fields is the publisher's and is handed on unread."""

    model_config = ConfigDict(extra="allow", frozen=True)

    epoch: Epoch
    step: int = Field(ge=0)
    root: str = Field(max_length=256)

    def announcement(self) -> Announcement:
        extra = dict(self.model_extra or {})
        publisher = extra.pop("publisher", None)
        return Announcement(Version(self.epoch, self.step), self.root, publisher if publisher is not None else extra)


class EngineMessage(_Message):
    uid: Name
    url: str = Field(pattern=r"^https?://", max_length=2048)
    version: VersionText = ""
    state: EngineState

    def report(self, pod: str) -> EngineReport:
        version = Version.parse(self.version) if self.version else None
        return EngineReport(pod, self.uid, self.url.rstrip("/"), version, self.state)


class RosterMessage(_Message):
    epoch: Epoch
    rollouts: list[Name] = Field(max_length=10_000)
