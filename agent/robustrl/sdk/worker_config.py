"""What the agent tells a training process when it starts it."""

from __future__ import annotations

from robustrl_api.base import ApiModel

WORKER_CONFIG_ENV = "ROBUSTRL_WORKER_CONFIG"


class WorkerConfig(ApiModel):
    job: str
    pod: str
    epoch: int
    rank: int
    world_size: int
    local_rank: int
    rendezvous: str
    agent_socket: str
    memory_dir: str
    steps: int
    seed: int
    phase_lease_seconds: float
    """The longest that a phase of any rank may last."""
