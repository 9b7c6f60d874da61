"""Saying no: a reason in CamelCase for programs, a sentence for people, an HTTP status."""

from __future__ import annotations

from typing import Any


class Refused(Exception):
    """A request that the managers will not carry out."""

    def __init__(self, reason: str, message: str, *, status: int = 409, **details: Any) -> None:
        super().__init__(message)
        self.reason = reason
        self.status = status
        self.details = details

    def body(self) -> dict[str, Any]:
        return {"error": self.reason, "message": str(self), **self.details}


class Fenced(Refused):
    """The sender belongs to an epoch that is over. It must stop."""

    def __init__(self, epoch: int, current: int) -> None:
        super().__init__("Fenced", f"epoch {epoch} is over: the current one is {current}", epoch=current)
