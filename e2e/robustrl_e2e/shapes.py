"""The jobs that rows of the fault matrix ask for: what must be changed in a job's spec, here and on the cluster."""

from __future__ import annotations

from typing import Any

from robustrl_api.spec import Strategy
from robustrl_e2e.stack import ROOT
from robustrl_operator.faults.matrix import Shape

SCRIPTS = ROOT / "e2e" / "scripts"
"""Training scripts, models and engines that jobs of some shapes are made of. They must be importable."""
LINGER_SECONDS = 5
"""For the first step of an epoch: what strikes when the trainers are seen at work must find them in that step."""
RAISES_IN_STEP = 3
Spec = dict[str, Any]


def put_on(shape: Shape, spec: Spec, scripts: str = str(SCRIPTS)) -> None:
    """Change a job's spec, as in YAML, so that the job has this shape.

    Args:
        scripts: the folder with the content of `SCRIPTS`, as its pods see it.
    """
    match shape:
        case Shape.THREE_TRAINERS:
            spec["trainer"] |= {"replicas": 3, "parallelism": {"data": 3}}
        case Shape.LINGERING:
            put_fault_in_script(spec, "linger", LINGER_SECONDS, scripts)
        case Shape.RAISING:
            put_fault_in_script(spec, "raise", RAISES_IN_STEP, scripts)
        case Shape.FAILS_TO_RESTART:
            put_fault_in_script(spec, "restart", 3, scripts)
        case Shape.FRONTED:
            _put_a_front(spec, scripts)
        case Shape.BIG:
            _train_with(spec, f"{scripts}/big.py")
            # Three are enough for one that dies and others that pull, and start sooner than four.
            spec["rollout"] |= {"replicas": 3, "engine": {"model": "big_model:build"}}
            spec["checkpoint"] = _not_to_disk(spec)


def _not_to_disk(spec: Spec) -> Spec:
    """Large checkpoints in each step would be all that a disk has to do; where all pods go together there is no other
    place that they come back from."""
    needs_storage = spec.get("recovery", {}).get("strategy") == Strategy.WHOLE_JOB
    return {**(spec["checkpoint"] if needs_storage else {}), "peerCopy": "Off"}


def put_fault_in_script(spec: Spec, fault: str, number: int, scripts: str = str(SCRIPTS)) -> None:
    """Have the trainers run the example with a fault of its script's own, as `faulty.py` says."""
    _train_with(spec, f"{scripts}/faulty.py", fault, str(number))


def _train_with(spec: Spec, *words: str) -> None:
    spec["trainer"]["template"]["spec"]["containers"][0]["command"] = ["python3", *words]


def _put_a_front(spec: Spec, scripts: str) -> None:
    engine = spec["rollout"]["engine"]
    command = ["python3", f"{scripts}/front.py", "--model", engine["model"], "--host", "$POD_IP", "--port", "8100"]
    # No warm worker starts these engines, and each imports torch by itself: two will do.
    spec["rollout"] |= {"replicas": 2, "minReplicas": 1, "engine": {**engine, "type": "Custom", "command": command}}
