"""Prometheus metrics, computed when they are scraped: no series outlives its job."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from robustrl_api.job import RLJob
from robustrl_operator.kubernetes.body import KubernetesBody
from robustrl_operator.kubernetes.jobs import Jobs
from robustrl_operator.kubernetes.recovery_times import RecoveryTimes

LABELS = ("namespace", "job")


class OperatorCollector(Collector):
    """Reads the jobs' state at each scrape.

    Args:
        now: when this operator began.
    """

    def __init__(self, jobs: Jobs, body: KubernetesBody, now: datetime) -> None:
        self._jobs, self._body = jobs, body
        self._recovery_times = RecoveryTimes(now)

    def collect(self) -> Iterator[Metric]:
        yield from self._loop_metrics()
        found = [job for job in (self._body.job(r.key) for r in self._jobs.reconcilers) if job is not None]
        yield self._node_agents()
        yield from _gauges(found)
        yield from _weight_syncs(self._rollouts())
        yield self._recovery_times.collect(found)

    def _rollouts(self) -> Iterator[tuple[tuple[str, str, str], Mapping[str, float]]]:
        """Labels and metrics of every pod that pulls weights."""
        for reconciler in self._jobs.reconcilers:
            for pod in self._body.pods(reconciler.key):
                heard = self._jobs.hub.heard(pod.uid)
                if heard is not None and "weight_syncs_total" in heard.report.metrics:
                    namespace, _, job = reconciler.key.partition("/")
                    yield (namespace, job, pod.name), heard.report.metrics

    def _node_agents(self) -> Metric:
        agents = GaugeMetricFamily("robustrl_node_agents", "Node agents that report, by state.", labels=("state",))
        problems = self._jobs.hub.nodes.problems()
        blind = sum(1 for problem in problems.values() if problem)
        agents.add_metric(("seeing",), len(problems) - blind)
        agents.add_metric(("blind",), blind)
        return agents

    def _loop_metrics(self) -> Iterator[Metric]:
        plans = CounterMetricFamily("robustrl_plans", "Plans made.", labels=("job",))
        errors = CounterMetricFamily("robustrl_reconcile_errors", "Reconciles that failed.", labels=("job",))
        seconds = GaugeMetricFamily("robustrl_plan_seconds", "How long the last plan took to make.", labels=("job",))
        for reconciler in self._jobs.reconcilers:
            plans.add_metric((reconciler.key,), reconciler.watch.plans)
            errors.add_metric((reconciler.key,), reconciler.watch.errors)
            seconds.add_metric((reconciler.key,), reconciler.watch.last_plan_seconds)
        age = GaugeMetricFamily("robustrl_watch_age_seconds", "Seconds since the API server was heard.")
        if self._body.pod_informer is not None:
            age.add_metric((), self._body.pod_informer.age_seconds)
        yield from (plans, errors, seconds, age)


def _gauges(jobs: list[RLJob]) -> Iterator[Metric]:
    step = GaugeMetricFamily("robustrl_step", "Optimizer steps committed.", labels=LABELS)
    epoch = GaugeMetricFamily("robustrl_epoch", "Incarnations of the trainers.", labels=LABELS)
    pods = GaugeMetricFamily("robustrl_role_pods", "Pods of a role by state.", labels=(*LABELS, "role", "state"))
    restarts = CounterMetricFamily("robustrl_role_restarts", "Restarts in a role.", labels=(*LABELS, "role"))
    for job in jobs:
        labels = (job.metadata.namespace, job.metadata.name)
        step.add_metric(labels, job.status.step)
        epoch.add_metric(labels, job.status.epoch)
        for role in job.status.roles:
            restarts.add_metric((*labels, role.name), role.restarts)
            for state in ("desired", "ready", "standby"):
                pods.add_metric((*labels, role.name, state), getattr(role, state))
    yield from (step, epoch, pods, restarts)


def _weight_syncs(pods: Iterable[tuple[tuple[str, str, str], Mapping[str, float]]]) -> Iterator[Metric]:
    """What agents say of the weights they pulled."""
    labels = (*LABELS, "pod")
    seconds = GaugeMetricFamily(
        "robustrl_weight_sync_seconds", "Seconds of a pod's last weight syncs.", labels=(*labels, "quantile")
    )
    moved = CounterMetricFamily(
        "robustrl_weight_bytes", "Bytes of weights: verified, sent, not needed, wasted.", labels=(*labels, "kind")
    )
    syncs = CounterMetricFamily("robustrl_weight_syncs", "Weight versions pulled.", labels=labels)
    strikes = CounterMetricFamily("robustrl_weight_strikes", "Damaged chunks received.", labels=labels)
    for pod, metrics in pods:
        for percent in (50, 95, 99):
            seconds.add_metric((*pod, f"{percent / 100:g}"), metrics.get(f"weight_sync_seconds_p{percent}", 0.0))
        for kind in ("verified", "sent", "skipped", "wasted"):
            moved.add_metric((*pod, kind), metrics.get(f"weight_bytes_{kind}_total", 0.0))
        syncs.add_metric(pod, metrics["weight_syncs_total"])
        strikes.add_metric(pod, metrics.get("weight_strikes_total", 0.0))
    yield from (seconds, moved, syncs, strikes)
