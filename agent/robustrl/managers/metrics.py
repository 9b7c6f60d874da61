"""The managers' progress in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

WEIGHTS = {
    "holders": "Rollouts that hold chunks of the current weights.",
    "complete": "Rollouts that hold all of the current weights.",
    "fewest_copies": "Copies of the rarest chunk of the current weights among rollouts.",
    "mean_copies": "Copies of a chunk of the current weights among rollouts.",
}


def exposition(progress: dict[str, Any]) -> str:
    """Text of what ``GET /v1/progress`` says."""
    return "\n".join(_lines(progress)) + "\n"


def _lines(progress: dict[str, Any]) -> Iterator[str]:
    yield from _one("robustrl_step", "gauge", "The step that is trained now.", progress["step"])
    yield from _one("robustrl_epoch", "gauge", "The newest trainer incarnation seen.", progress["epoch"])
    yield from _one("robustrl_generated_tokens_total", "counter", "Tokens generated.", progress["tokens_total"])
    yield from _one("robustrl_rerouted_turns_total", "counter", "Turns done again.", progress["rerouted_total"])
    yield from _one("robustrl_episodes_running", "gauge", "Episodes in flight.", progress["episodes_running"])
    if progress["reward_mean"] is not None:
        yield from _one("robustrl_reward_mean", "gauge", "Of the last step.", progress["reward_mean"])
    for name, text in WEIGHTS.items():
        if name in progress["weights"]:
            yield from _one(f"robustrl_weights_{name}", "gauge", text, progress["weights"][name])
    yield from _head("robustrl_groups", "gauge", "Groups by state.")
    for state, number in progress["groups"].items():
        yield f'robustrl_groups{{state="{state}"}} {number}'
    yield from _head("robustrl_engine_admitted", "gauge", "Whether the engine may get turns.")
    for engine in progress["engines"]:
        yield f'robustrl_engine_admitted{{pod="{engine["pod"]}"}} {int(engine["admitted"])}'


def _one(name: str, kind: str, text: str, value: float) -> Iterator[str]:
    yield from _head(name, kind, text)
    yield f"{name} {value}"


def _head(name: str, kind: str, text: str) -> tuple[str, str]:
    return f"# HELP {name} {text}", f"# TYPE {name} {kind}"
