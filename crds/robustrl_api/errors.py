"""What to say of an exception to a person."""

from __future__ import annotations


def describe(error: BaseException) -> str:
    """Its text; or its name where it has none, as a timeout."""
    return str(error) or type(error).__name__
