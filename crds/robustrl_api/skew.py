"""Reading what another part says that may be of another version.

Operators, agents and stored statuses are not upgraded in one moment. So between them a field that the reader does not
know is ignored, and one that it misses has a default. What users write is read strictly (`base.ApiModel`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel

M = TypeVar("M", bound=BaseModel)


def read_message(kind: type[M], text: str | bytes) -> M:
    """A message from another part.

    Raises:
        ValidationError: it is none of this kind, in any version.
    """
    return kind.model_validate_json(text, extra="ignore")


def read_stored(kind: type[M], fields: Mapping[str, Any]) -> M:
    """What another part has stored.

    Raises:
        ValidationError: it is none of this kind, in any version.
    """
    return kind.model_validate(fields, extra="ignore")
