"""The engine's counters, and how they read in Prometheus' text format under SGLang's names."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Stats:
    """Written by the scheduler's thread, read by the HTTP loop: a hung scheduler leaves them served but
    frozen."""

    generation_tokens_total: int = 0
    prompt_tokens_total: int = 0
    num_requests_total: int = 0
    num_aborted_requests_total: int = 0
    num_retracted_requests_total: int = 0
    num_running_reqs: int = 0
    num_queue_reqs: int = 0
    num_paused_reqs: int = 0
    # A gauge refreshed only when a decode line would be logged, as in SGLang: it is no liveness signal.
    gen_throughput: float = 0.0


def exposition(stats: Stats, model_name: str) -> str:
    """Prometheus text of every counter and gauge."""
    lines: list[str] = []
    for field, value in vars(stats).items():
        kind = "counter" if field.endswith("_total") else "gauge"
        lines.append(f"# HELP sglang:{field} {field.replace('_', ' ')}")
        lines.append(f"# TYPE sglang:{field} {kind}")
        lines.append(f'sglang:{field}{{engine_type="embedded",model_name="{model_name}"}} {value}')
    return "\n".join(lines) + "\n"
