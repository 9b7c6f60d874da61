"""What every model of the API shares: camelCase on the wire, no unknown field, no mutation."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

LONGEST_SECONDS = 1e9
Duration = Annotated[float, Field(ge=-LONGEST_SECONDS, le=LONGEST_SECONDS)]
"""Seconds, thirty years at most: from what is longer no date could be told, and one report must not stop a job's
plans."""


class ApiModel(BaseModel):
    """A frozen object of the API. Unknown fields are refused, because a typo must not become a default."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
    )


class DocumentedModel(ApiModel):
    """An object of the CRD: its fields' docstrings are the user's `kubectl explain`.

    Only these read their own source for them. Agents import none of these, because it takes them time and memory.
    """

    model_config = ConfigDict(use_attribute_docstrings=True)


class OpenModel(DocumentedModel):
    """An object whose other fields belong to somebody else (Kubernetes) and travel through unread."""

    model_config = ConfigDict(extra="allow")
