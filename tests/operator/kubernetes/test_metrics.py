"""What Prometheus is told of the weights that pods pulled."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from prometheus_client import CollectorRegistry, generate_latest
from tests.operator.build import NOW

from robustrl_api.control import AgentReport
from robustrl_api.names import Role
from robustrl_operator.control.hub import Heard
from robustrl_operator.kubernetes.metrics import OperatorCollector

METRICS = {
    "weight_syncs_total": 3.0,
    "weight_sync_seconds_p50": 0.25,
    "weight_sync_seconds_p99": 0.75,
    "weight_bytes_verified_total": 1024.0,
    "weight_strikes_total": 1.0,
}


def scraped(metrics: dict[str, float]) -> str:
    heard = Heard(AgentReport(pod="r-0", boot="b", role=Role.ROLLOUT, metrics=metrics), NOW, NOW)
    watch = SimpleNamespace(plans=1, errors=0, last_plan_seconds=0.01)
    hub = SimpleNamespace(heard=lambda uid: heard, nodes=SimpleNamespace(problems=dict))
    jobs: Any = SimpleNamespace(hub=hub, reconcilers=[SimpleNamespace(key="ns/j", watch=watch)])
    pods = (SimpleNamespace(name="r-0", uid="u"),)
    body: Any = SimpleNamespace(job=lambda key: None, pods=lambda key: pods, pod_informer=None)
    registry = CollectorRegistry()
    registry.register(cast(Any, OperatorCollector(jobs, body, NOW)))
    return generate_latest(registry).decode()


def test_a_pods_weight_syncs_are_told_with_its_job() -> None:
    page = scraped(METRICS)
    labels = 'job="j",namespace="ns",pod="r-0"'
    for line in (
        f'robustrl_weight_sync_seconds{{{labels},quantile="0.5"}} 0.25',
        f'robustrl_weight_sync_seconds{{{labels},quantile="0.99"}} 0.75',
        'robustrl_weight_bytes_total{job="j",kind="verified",namespace="ns",pod="r-0"} 1024.0',
        f"robustrl_weight_syncs_total{{{labels}}} 3.0",
        f"robustrl_weight_strikes_total{{{labels}}} 1.0",
    ):
        assert line in page


def test_a_pod_that_pulls_nothing_has_no_series() -> None:
    assert "r-0" not in scraped({"generation_tokens_total": 7.0})
