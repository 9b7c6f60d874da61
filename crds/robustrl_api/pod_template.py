"""The part of a PodTemplateSpec that RobustRL reads. Everything else in it is passed on untouched."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from robustrl_api.base import DocumentedModel, OpenModel

Word = Annotated[str, Field(max_length=4096)]
Quantity = int | str


class Resources(OpenModel):
    limits: dict[str, Quantity] = Field(default_factory=dict, max_length=32)
    """The most a container may use, such as {cpu: "4", nvidia.com/gpu: 8}."""
    requests: dict[str, Quantity] = Field(default_factory=dict, max_length=32)
    """What the scheduler reserves. Defaults to the limits."""


class Container(OpenModel):
    name: str = Field(min_length=1, max_length=63)
    """Name of the container, unique in the pod."""
    image: str = Field(min_length=1, max_length=1024)
    """The image. It holds your code and the robustrl package."""
    command: tuple[Word, ...] = Field(default=(), max_length=64)
    """The command to supervise, such as [python, train.py]. The agent runs it; it does not replace the agent."""
    args: tuple[Word, ...] = Field(default=(), max_length=128)
    """Arguments appended to the command."""
    resources: Resources = Resources()
    """Compute resources. Rollouts that stand by for trainers need a trainer's resources."""


class PodSpec(OpenModel):
    containers: tuple[Container, ...] = Field(min_length=1, max_length=16)
    """The first container is the role's; the agent supervises its command. Others are left alone."""


class TemplateMeta(DocumentedModel):
    labels: dict[str, str] = Field(default_factory=dict, max_length=64)
    """Labels put on each pod. Keys under robustrl.dev/ are the operator's own."""
    annotations: dict[str, str] = Field(default_factory=dict, max_length=64)
    """Annotations put on each pod."""


class PodTemplate(DocumentedModel):
    """A pod template, as in a Deployment."""

    metadata: TemplateMeta = TemplateMeta()
    """Labels and annotations of the pods."""
    spec: PodSpec
    """The pod's spec, as in any Kubernetes workload."""
