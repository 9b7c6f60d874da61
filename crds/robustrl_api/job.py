"""The RLJob object as the API server stores it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from robustrl_api.base import DocumentedModel, OpenModel
from robustrl_api.spec import RLJobSpec
from robustrl_api.status import RLJobStatus


class ObjectMeta(OpenModel):
    name: str = Field(max_length=63)
    namespace: str = "default"
    uid: str = ""
    generation: int = 1
    annotations: dict[str, str] = Field(default_factory=dict)


class RLJob(DocumentedModel):
    """An RL post-training job that survives the loss of any one machine."""

    api_version: Literal["robustrl.dev/v1alpha1"] = "robustrl.dev/v1alpha1"
    kind: Literal["RLJob"] = "RLJob"
    metadata: ObjectMeta
    spec: RLJobSpec
    status: RLJobStatus = RLJobStatus()

    def wire(self) -> dict[str, Any]:
        """The object as JSON, with unset optional fields left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)
