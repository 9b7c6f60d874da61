"""What a pod is told when it is created, in one environment variable. What can change comes by assignment."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from robustrl_api.base import ApiModel
from robustrl_api.names import Role

POD_CONFIG_ENV = "ROBUSTRL_POD_CONFIG"
MANAGER_CONFIG_ENV = "ROBUSTRL_MANAGER_CONFIG"


class ManagerConfig(ApiModel):
    """Configuration of the managers' process; ROBUSTRL_MANAGER_CONFIG holds it."""

    ledger: Path
    prompts: str = Field(pattern=r"^[\w.]+:\w+$")
    rollout: str = Field(pattern=r"^[\w.]+:\w+$")
    host: str = "0.0.0.0"
    port: int = Field(default=8300, ge=0, le=65535)
    prompts_per_step: int = Field(default=32, ge=1)
    samples_per_prompt: int = Field(default=16, ge=1)
    max_staleness: int = Field(default=4, ge=0)
    steps: int = Field(default=300, ge=1)
    concurrency: int = Field(default=64, ge=1)
    turn_timeout_seconds: float = Field(default=30.0, gt=0)
    episode_timeout_seconds: float = Field(default=120.0, gt=0)
    keep_batches: int = Field(default=5, ge=5)
    seed: int = 0
    replay: bool = False
    """Serve the batches that the ledger has, and generate none."""
    mode: Literal["Sync", "Async"] = "Async"


class PodConfig(ApiModel):
    """Everything an agent needs before it can ask for its assignment."""

    job: str
    namespace: str
    role: Role
    """The role that the pod was created for."""
    control_url: str
    """Base URL of the operator's control endpoint."""
    ca_file: str = ""
    """Bundle that the control endpoint's certificate is checked against."""
    token_file: str = ""
    """File of the projected token that identifies the pod."""
    agent_port: int = 8200
    weight_port: int = 8400
    engine_port: int = 8100
    engine_command: tuple[str, ...] = ()
    trainer_command: tuple[str, ...] = ()
    processes_per_pod: int = 1
    grace_seconds: int = 30
    """How long the pod may go on after it was told to end."""
    active_permille: int = 20
    """Below this share of a core a training process counts as idle."""
    warm_worker: bool = True
    warm_modules: tuple[str, ...] = ()
    manager: ManagerConfig | None = None
    steps: int = Field(ge=1)
    seed: int = 0
    memory_dir: str
    """Memory-backed folder for checkpoints and weights; it outlives the container, not the pod."""
    storage_dir: str = ""
    """Folder for checkpoints on durable storage."""
    checkpoint_keep: int = 5
    chunk_bytes: int = 4 * 1024 * 1024
