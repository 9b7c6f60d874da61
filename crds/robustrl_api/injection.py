"""What `robustrl inject` asks of the operator, by an annotation of the RLJob: whoever may change the job may ask."""

from __future__ import annotations

from pydantic import Field

from robustrl_api.base import ApiModel


class Request(ApiModel):
    """A fault to be made on purpose, once."""

    id: str = Field(min_length=1, max_length=63)
    """Chosen by whoever asks. A request with the same id as the last one is the same request."""
    kind: str = Field(max_length=63)
    """The kind of fault; `robustrl inject` lists them."""
    target: str = Field(default="", max_length=253)
    """Which of the role's pods: a pod's name, ROLE, ROLE/INDEX or `rank N`. Left out: the last one."""
