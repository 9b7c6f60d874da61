"""One level-triggered loop a job: look, analyze, plan, write the status, act. Whatever happened only wakes it.

The order is the safety of the whole system: status first, actions after the status is stored, assignments from the
stored status, events last. Killed between any two of these, a successor finds in status what was decided and does
the rest again; every action is harmless to repeat.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from robustrl_api.job import RLJob
from robustrl_api.names import ANNOTATION_INJECT, EventReason
from robustrl_api.status import RLJobStatus
from robustrl_operator.analyze import Detector, analyze, silence
from robustrl_operator.control.body import Body, CreationRefused, StatusConflict, StatusRefused
from robustrl_operator.control.hub import Clock, ControlHub
from robustrl_operator.control.node_hub import Placed
from robustrl_operator.control.prober import Prober
from robustrl_operator.plan import CreatePod, DeletePod, Event, Plan, ProbePod, StandAside, hearsay, plan
from robustrl_operator.plan.assign import assignments
from robustrl_operator.view import Heard, JobView, Observed, Probe

log = logging.getLogger(__name__)

STEP_INTERVAL = timedelta(seconds=5)
"""A status that differs only in its step is written no more often: each write is seen by every watcher."""
MAX_ERROR_DELAY_SECONDS = 3.0
"""Whatever else happens to the job waits as long."""
MAX_CONFLICT_DELAY_SECONDS = 1.0


@dataclass
class Watcher:
    """Numbers about the loop, for metrics and liveness."""

    plans: int = 0
    errors: int = 0
    last_plan_seconds: float = 0.0


class Reconciler:
    """Keeps one job as it should be, until it is gone."""

    def __init__(
        self,
        key: str,
        body: Body,
        hub: ControlHub,
        prober: Prober,
        clock: Clock,
        detectors: Sequence[Detector] = (),
    ) -> None:
        self.key = key
        self.watch = Watcher()
        self._detectors = detectors
        self._body, self._hub, self._prober, self._clock = body, hub, prober, clock
        self._since = clock()
        self._woken = asyncio.Event()
        self._woken.set()
        self._step_written = clock()
        self._known_uids: set[str] = set()
        self._refused: dict[str, str] = {}
        self._status_refused = ""
        self._silence_due: timedelta | None = None

    def wake(self) -> None:
        """Something may have changed."""
        self._woken.set()

    async def run(self) -> None:
        """Reconcile until the job no longer exists. Errors are logged and retried with backoff and jitter."""
        failures = conflicts = 0
        while True:
            try:
                self._woken.clear()
                outcome = await self.reconcile()
                if outcome is None:
                    return
                failures = conflicts = 0
                wait = self._pause(outcome)
                await self._stand_aside(outcome)
            except StatusConflict:
                # What is stored comes in a moment by the watch, unless that is being renewed.
                conflicts += 1
                wait = min(MAX_CONFLICT_DELAY_SECONDS, 0.01 * 2 ** min(conflicts, 10)) * random.uniform(0.5, 1.0)
                log.info(
                    "%s: the stored job has changed (%d times in a row), again in %.2f s", self.key, conflicts, wait
                )
            except Exception:
                failures += 1
                self.watch.errors += 1
                wait = min(MAX_ERROR_DELAY_SECONDS, 0.2 * 2**failures) * random.uniform(0.5, 1.0)
                log.exception("%s: reconcile failed (%d in a row), again in %.1f s", self.key, failures, wait)
                await asyncio.sleep(wait)
                continue
            await self._sleep(wait)

    async def _stand_aside(self, outcome: Plan) -> None:
        """Where that was asked for on purpose: be away, and then as another operator that has just begun."""
        seconds = max((each.seconds for each in outcome.actions if isinstance(each, StandAside)), default=0.0)
        if not seconds:
            return
        log.warning("%s: on purpose there is no operator for it for %.0f s", self.key, seconds)
        with self._hub.turned_away(self.key, self._known_uids):
            await asyncio.sleep(seconds)
        self._forget(set())
        self._since = self._clock()
        self._woken.set()

    def _pause(self, outcome: Plan) -> float:
        """Seconds until the next look. What is evident only by looking is looked for twice a heartbeat, and silence
        when it has lasted long enough."""
        job = self._body.job(self.key)
        heartbeat = timedelta(seconds=job.spec.detection.heartbeat_seconds if job else 1)
        times = (heartbeat / 2, outcome.wake, self._silence_due)
        return min(time.total_seconds() for time in times if time is not None)

    async def _sleep(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await self._woken.wait()
        except TimeoutError:
            return

    async def reconcile(self) -> Plan | None:
        """One round. None when the job no longer exists."""
        job = self._body.job(self.key)
        if job is None:
            self._forget(set())
            self._hub.nodes.watch(self.key, {})
            return None
        started = asyncio.get_running_loop().time()
        view = self.view(job)
        self._hub.nodes.watch(self.key, _placed(view))
        decided = plan(view, analyze(view, self._detectors))
        self._silence_due = silence.next_look(view)
        self.watch.plans += 1
        self.watch.last_plan_seconds = asyncio.get_running_loop().time() - started
        stored = await self._store(job, decided.status)
        self._refused = {}
        self._assign(stored)
        undone = await self._act(stored, decided)
        for event in decided.events:
            await self._body.publish(job, event)
        if undone:
            raise ExceptionGroup(f"{len(undone)} of {len(decided.actions)} actions could not be done", undone)
        return decided

    def view(self, job: RLJob) -> JobView:
        """Everything the brain may know about the job now."""
        pods = self._body.pods(self.key)
        uids = {pod.uid for pod in pods} | {m.uid for m in job.status.members if m.uid}
        self._forget(uids)
        return JobView(
            name=job.metadata.name,
            namespace=job.metadata.namespace,
            spec=job.spec,
            status=job.status,
            now=self._clock(),
            watching_since=self._since,
            inject=job.metadata.annotations.get(ANNOTATION_INJECT, ""),
            means=self._body.means,
            generation=job.metadata.generation,
            pods=pods,
            nodes=self._body.nodes(),
            reports=_present(uids, self._hub.heard),
            readings=_present(uids, self._hub.nodes.observed),
            probes=_present(uids, self._prober.result),
            refused=self._refused,
        )

    def _forget(self, uids: set[str]) -> None:
        for uid in self._known_uids - uids:
            self._hub.forget(uid)
            self._prober.forget(uid)
        self._known_uids = uids

    async def _store(self, job: RLJob, status: RLJobStatus) -> RLJob:
        """Write what was decided, if it says anything new."""
        only_step = status.model_copy(update={"step": job.status.step}) == job.status
        now = self._clock()
        if status == job.status or (only_step and now - self._step_written < STEP_INTERVAL):
            return job
        try:
            await self._body.write_status(job, status)
        except StatusRefused as refused:
            await self._tell_of_refused_status(job, str(refused))
            raise
        self._step_written, self._status_refused = now, ""
        return job.model_copy(update={"status": status})

    async def _tell_of_refused_status(self, job: RLJob, why: str) -> None:
        """No condition can say it; an Event does, once for each reason."""
        if why == self._status_refused:
            return
        self._status_refused = why
        words = f"nothing can be done for this job, as its status is refused (is the CRD the operator's own?): {why}"
        await self._body.publish(job, Event(EventReason.STATUS_REFUSED, words, warning=True))

    def _assign(self, job: RLJob) -> None:
        for uid, assignment in assignments(self.view(job), self._body.rendezvous_base).items():
            self._hub.assign(uid, assignment)

    async def _act(self, job: RLJob, decided: Plan) -> list[Exception]:
        """Do what was decided. What fails keeps nothing else from being done, and is returned."""
        undone: list[Exception] = []
        for action in decided.actions:
            if isinstance(action, ProbePod):
                self._prober.ask(action)
            if isinstance(action, ProbePod | StandAside):
                continue
            if isinstance(action, DeletePod):
                log.info("%s: deleting pod %s (force=%s)", self.key, action.name, action.force)
            try:
                await self._body.carry_out(job, action)
            except CreationRefused as refused:
                # What to do about it is for the next plan to say, at once.
                assert isinstance(action, CreatePod)
                log.warning("%s: pod %s is refused: %s", self.key, action.name, refused)
                self._refused[action.service or action.role.value] = str(refused)
                self._woken.set()
            except Exception as error:
                undone.append(error)
        return undone


def _placed(view: JobView) -> dict[str, Placed]:
    """The pods that have a node, for the agent of that node to look at; on purpose at what the stored status says."""
    permille, injection = view.spec.detection.trainer.active_permille, view.status.injection
    return {
        pod.uid: Placed(pod.uid, view.namespace, pod.name, pod.node, permille, hearsay.as_if(injection, pod.uid))
        for pod in view.pods
        if pod.node
    }


T = TypeVar("T", Heard, Observed, Probe)


def _present(uids: set[str], get: Callable[[str], T | None]) -> dict[str, T]:
    found = ((uid, get(uid)) for uid in uids)
    return {uid: item for uid, item in found if item is not None}
