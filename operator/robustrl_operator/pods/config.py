"""The configuration that a pod's agent is started with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from robustrl_api.job import RLJob
from robustrl_api.names import Role
from robustrl_api.pod_config import ManagerConfig, PodConfig
from robustrl_api.pod_template import PodTemplate
from robustrl_api.spec import Engine, EngineType, RLJobSpec, WarmMode

ENGINE_ARGUMENTS = ("--host", "$POD_IP", "--port")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a body gives to the pods it makes."""

    control_url: str
    memory_dir: str
    ca_file: str = ""
    token_file: str = ""
    weight_port: int = 0
    grace_seconds: int = 30
    ledger: str = ""
    """Instead of spec.manager.ledger, where the path in the spec is a path inside a container."""
    storage_dir: str = ""
    replay: bool = False
    """The managers serve the batches that the ledger has, and generate none."""


def pod_config(job: RLJob, role: Role, around: Surroundings) -> PodConfig:
    """What the agent of a new pod must know before it asks for its assignment."""
    spec = job.spec
    storage = spec.checkpoint.storage
    return PodConfig(
        job=job.metadata.name,
        namespace=job.metadata.namespace,
        role=role,
        control_url=around.control_url,
        ca_file=around.ca_file,
        token_file=around.token_file,
        weight_port=around.weight_port,
        engine_port=spec.rollout.engine.port,
        engine_command=engine_command(spec.rollout.engine),
        trainer_command=command_of(spec.trainer.template),
        processes_per_pod=spec.trainer.processes_per_pod,
        grace_seconds=around.grace_seconds,
        active_permille=spec.detection.trainer.active_permille,
        warm_worker=spec.trainer.warm_worker.mode is WarmMode.AUTO,
        warm_modules=spec.trainer.warm_worker.modules,
        manager=_manager(spec, around) if role is Role.MANAGER else None,
        steps=spec.steps,
        seed=spec.seed,
        memory_dir=around.memory_dir,
        storage_dir=(around.storage_dir or storage.path) if storage else "",
        checkpoint_keep=spec.checkpoint.keep,
        chunk_bytes=spec.weight_sync.chunk_mebibytes << 20,
    )


def command_of(template: PodTemplate) -> tuple[str, ...]:
    """The command that the agent supervises instead of the container runtime."""
    container = template.spec.containers[0]
    return (*container.command, *container.args)


def engine_command(engine: Engine) -> tuple[str, ...]:
    """How the engine is started; $POD_IP is filled in by the agent."""
    if engine.command:
        return engine.command
    listen = (*ENGINE_ARGUMENTS, str(engine.port))
    if engine.type is EngineType.SGLANG:
        server = ("python3", "-m", "sglang.launch_server", "--model-path", engine.model)
        return (*server, *listen, "--enable-metrics", "--skip-server-warmup")
    if engine.type is EngineType.VLLM:
        return ("python3", "-m", "vllm.entrypoints.openai.api_server", "--model", engine.model, *listen)
    return ("python3", "-m", "robustrl.engines.embedded", "--model", engine.model, *listen)


def _manager(spec: RLJobSpec, around: Surroundings) -> ManagerConfig:
    data = spec.data
    return ManagerConfig(
        ledger=Path(around.ledger or spec.manager.ledger),
        port=spec.manager.port,
        prompts=data.prompts,
        rollout=data.rollout,
        prompts_per_step=data.prompts_per_step,
        samples_per_prompt=data.samples_per_prompt,
        max_staleness=spec.max_staleness,
        steps=spec.steps,
        concurrency=data.concurrency,
        turn_timeout_seconds=data.turn_timeout_seconds,
        episode_timeout_seconds=data.episode_timeout_seconds,
        keep_batches=data.keep_batches,
        seed=spec.seed,
        replay=around.replay,
        mode=spec.mode.value,
    )
