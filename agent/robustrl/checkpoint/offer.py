"""What a trainer's agent offers to the pod that keeps copies of its checkpoints."""

from __future__ import annotations

from pydantic import Field, field_validator

from robustrl_api.base import ApiModel
from robustrl_api.version import Version

ADDRESS = "/copies"
"""Path at which an agent takes offers."""


class Offer(ApiModel):
    """A committed checkpoint in the offering pod's memory. Whoever takes it fetches the bytes himself."""

    pod: str = Field(max_length=253)
    epoch: int = Field(ge=0)
    """The epoch that the offering pod is in."""
    version: str = Field(max_length=64)
    parts: dict[str, str] = Field(max_length=64)
    """Folder of a rank's part and its root digest; equal parts are offered once."""

    @field_validator("version")
    @classmethod
    def _is_version(cls, text: str) -> str:
        Version.parse(text)
        return text
