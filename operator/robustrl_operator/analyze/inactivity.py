"""Evidence from work that stands still, and from phases that outlive their lease (paper section 4, by role and phase).

Agents measure by their own clocks how long work has stood still though there is some: a trainer idle in phase Train,
an engine that has requests and makes no token, managers that answer nobody. Standing still convicts nobody alone: the
process is asked to show that it works, with a deadline, and so long before its time is over that the answer costs no
time of its own. An outlived lease is itself the fault.

Of trainers the agents of their nodes tell more: that their GPUs idle. A process that waits in a collective for a peer
that hangs keeps its core busy and would pass for working. So where the GPUs have idled for too long, the phase must
besides have lasted longer than ever by as much: of the exporter's word and the script's own, neither convicts alone.

A trainer that waits for a peer stands still too. Where the peer is in a phase with a lease, as rank 0 is while it
evaluates, and was so before the other's phase began, the lease is what limits both, and the one that waits is left be.
A peer that has trained as much as it, and is in such a phase now, as where checkpoints are made, is ahead and waits
for it.
And none stands still for longer than since a peer last entered a phase: where one hangs, no peer gets further.
Where a peer is silent, its machine may be gone: that is settled first, and explains why the others stand still.
Nor for longer than there are managers: while they are away one rank waits for its batch, and the others for that rank.

Outside of any phase nothing is known of the work: a trainer may wait there for another one that prepares the data. But
where all of them sleep for as long as a phase may last, there is nobody to wait for: they hang.

So does an engine that is not up yet and does nothing to get there. How long it takes convicts it never: whoever loads a
large model from slow storage reads all the while.

Deadlines are learned: once a job has shown how long things take, so many times that, within a floor and a ceiling.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from robustrl_api.control import IDLE, TRAIN, AgentReport, ChildState
from robustrl_api.names import Role
from robustrl_api.spec import TrainerDetection
from robustrl_operator.analyze import devices, silence
from robustrl_operator.analyze.devices import Still
from robustrl_operator.analyze.verdict import Cause, Health, Question, Verdict
from robustrl_operator.view import Heard, JobView, PodView

RESTORE = "Restore"
FREE_PHASES = frozenset({"", TRAIN, "Wait"})
"""Phases of a trainer without a lease: waiting for a batch is not its fault, and training is watched by its work."""
SLACK = timedelta(seconds=5)
"""By which members that end a step together may differ in what they report of the next."""
APPLYING = "Applying"
CAUSES = {Role.TRAINER: Cause.WORKER_HUNG, Role.ROLLOUT: Cause.ENGINE_HUNG, Role.MANAGER: Cause.MANAGER_HUNG}


def judge(view: JobView, pod: PodView, report: AgentReport) -> Verdict | None:
    """A verdict on a pod whose agent reports, or None where its work goes on."""
    role = view.current_role(pod)
    if role not in CAUSES or (role is Role.TRAINER and report.child.epoch != view.status.epoch):
        return None
    overdue = _overdue(view, pod, report, role)
    if overdue is not None:
        return overdue
    still = (
        _idle(view, pod, report, role)
        or _idle_devices(view, pod, report, role)
        or _asleep(view, pod, role)
        or _asleep_at_its_start(view, pod, report, role)
    )
    # Peers are looked at only for who stands still: there are as many of them as members.
    waits = still and role is Role.TRAINER and (_a_peer_is_silent(view, pod) or _waits_for_a_peer(view, pod, report))
    return None if waits else still


def _overdue(view: JobView, pod: PodView, report: AgentReport, role: Role) -> Verdict | None:
    """A lease of a phase that has run out. The last report may be a heartbeat old: time since then counts."""
    limit = _lease(view, report, role)
    if limit is None or _lasted(view, pod, report.activity.phase_seconds) < limit:
        return None
    text = f"{pod.name} has been in phase {report.phase} for more than {limit.total_seconds():.0f} s"
    return Verdict(Health.FAILED, Cause.PHASE_OVERDUE, text)


def _lease(view: JobView, report: AgentReport, role: Role) -> timedelta | None:
    detection = view.spec.detection
    if role is Role.TRAINER and report.phase not in FREE_PHASES:
        # What was restored from memory says nothing of how long it takes from storage.
        shown = None if report.phase == RESTORE else _shown(view, report.phase)
        return learned(detection.trainer, detection.trainer.phase_lease_seconds, shown)
    if role is Role.ROLLOUT and report.phase == APPLYING:
        return timedelta(seconds=detection.rollout.phase_lease_seconds)
    return None


def _waits_for_a_peer(view: JobView, pod: PodView, report: AgentReport) -> bool:
    """Whether another member is in a phase with a lease that it entered before this one entered its own.

    One that entered it later is ahead, and waits for this one.
    """
    entered = view.reports[pod.uid].phase_since
    leased = [peer for peer in _peers(view, pod) if _lease(view, peer.report, Role.TRAINER) is not None]
    behind = (peer for peer in leased if not _is_ahead(peer.report, report))
    return report.phase == TRAIN and any(peer.phase_since < entered + SLACK for peer in behind)


def _is_ahead(peer: AgentReport, mine: AgentReport) -> bool:
    """Whether a peer has trained in the same step as often as one that is in phase Train, and is not any more."""
    counted = mine.activity.trained > 0
    return counted and peer.step == mine.step and peer.activity.trained >= mine.activity.trained


def _a_peer_is_silent(view: JobView, pod: PodView) -> bool:
    others = (peer for peer in view.pods if peer.uid in view.member_by_uid and peer.uid != pod.uid)
    return any(silence.is_unexplained(view, peer) for peer in others)


def _peers(view: JobView, pod: PodView) -> list[Heard]:
    """What the other members at work in this epoch said last, of those that say in which phase they are."""
    heard = [view.reports[uid] for uid in view.member_by_uid if uid != pod.uid and uid in view.reports]
    return [each for each in heard if each.report.phase and each.report.child.epoch == view.status.epoch]


def _since_others_got_further(view: JobView, pod: PodView) -> timedelta:
    """How long ago the last of those that a trainer may wait for got further: nobody stands still for longer."""
    return min(_since_a_peer_got_further(view, pod), _since_managers_work(view))


def _since_a_peer_got_further(view: JobView, pod: PodView) -> timedelta:
    """How long ago another member last entered a phase; endless where none says."""
    entered = [peer.phase_since for peer in _peers(view, pod)]
    return view.now - max(entered) if entered else timedelta.max


def _since_managers_work(view: JobView) -> timedelta:
    """How long ago the managers that there are began to work in this life; zero while there are none."""
    began = [heard.phase_since for heard in _managers(view) if heard.report.child.state is ChildState.RUNNING]
    return view.now - max(began) if began else timedelta()


def _managers(view: JobView) -> list[Heard]:
    """What those say that are there. Of one whose machine is gone the last word stands until its pod is gone too."""
    pods = (pod for pod in view.pods if pod.origin is Role.MANAGER and pod.uid in view.reports)
    return [view.reports[pod.uid] for pod in pods if not pod.deleting and not silence.has_missed_a_report(view, pod)]


def _idle(view: JobView, pod: PodView, report: AgentReport, role: Role) -> Verdict | None:
    """Work that stands still for longer than it may: suspect, and failed once the probe got no answer."""
    idle = report.activity.idle_seconds
    lasted = _lasted(view, pod, idle)
    if idle == 0 or lasted < _asked_after(view, patience := _patience(view, role, report)):
        return None
    if role is Role.TRAINER:
        lasted = min(lasted, _since_others_got_further(view, pod))
    text = f"{pod.name}: {report.activity.idle_text}, for {idle:.0f} s"
    return _confirm(view, pod, CAUSES[role], _still(view, lasted, text), patience)


def _idle_devices(view: JobView, pod: PodView, report: AgentReport, role: Role) -> Verdict | None:
    """A trainer in phase Train whose GPUs have idled for as long as it may."""
    if role is not Role.TRAINER or report.phase != TRAIN:
        return None
    still, patience = devices.standing_still(view, pod), _ceiling(view)
    if still is None or still.lasted < _asked_after(view, patience):
        return None
    still = replace(still, lasted=min(still.lasted, _since_others_got_further(view, pod)))
    found = _confirm(view, pod, Cause.WORKER_HUNG, still, patience)
    if found is not None or not still.spins or still.lasted < patience:
        return found
    # It uses the processor, as whoever waits for a GPU or a peer does.
    longest, lasted = _shown(view, TRAIN), _lasted(view, pod, report.activity.phase_seconds)
    if longest is None or lasted < timedelta(seconds=longest) + patience:
        return None
    text = f"{still.text}; phase {TRAIN} has lasted {lasted.total_seconds():.0f} s, at most {longest:.0f} s before"
    return Verdict(Health.FAILED, Cause.WORKER_HUNG, text, since=still.since)


def _asleep(view: JobView, pod: PodView, role: Role) -> Verdict | None:
    """Trainers that all sleep outside of any phase, as those whose script hangs before its first one."""
    if role is not Role.TRAINER:
        return None
    heard = [view.reports.get(uid) for uid in view.member_by_uid]
    lasted = min((_slept(view, each) for each in heard if each), default=timedelta()) if all(heard) else timedelta()
    patience = timedelta(seconds=view.spec.detection.trainer.phase_lease_seconds)
    text = f"{pod.name}: all trainers have slept outside of any phase for {lasted.total_seconds():.0f} s"
    return _confirm(view, pod, CAUSES[role], _still(view, lasted, text), patience)


def _slept(view: JobView, heard: Heard) -> timedelta:
    asleep = heard.report.activity.asleep_seconds
    of_now = asleep > 0 and heard.report.child.epoch == view.status.epoch
    return timedelta(seconds=asleep) + (view.now - heard.at) if of_now else timedelta()


def _asleep_at_its_start(view: JobView, pod: PodView, report: AgentReport, role: Role) -> Verdict | None:
    asleep, patience = report.activity.asleep_seconds, timedelta(seconds=view.spec.detection.startup_seconds)
    lasted = _lasted(view, pod, asleep)
    starts = role is Role.ROLLOUT and report.child.state is ChildState.STARTING
    if not starts or asleep == 0:
        return None
    what = f"process {report.child.life} of {pod.name} uses no processor and reads nothing as it starts"
    return _confirm(view, pod, CAUSES[role], _still(view, lasted, f"{what}, for {asleep:.0f} s"), patience)


def _asked_after(view: JobView, patience: timedelta) -> timedelta:
    """For how long a process has stood still when it is asked, so that it has answered when its time is over."""
    return patience - min(timedelta(seconds=view.spec.detection.probe_seconds), patience / 2)


def _still(view: JobView, lasted: timedelta, text: str) -> Still:
    return Still(view.now - lasted, lasted, text, spins=False)


def _confirm(view: JobView, pod: PodView, cause: Cause, still: Still, patience: timedelta) -> Verdict | None:
    """Who has stood still for about as long as it may: suspect until its process was asked since; then failed if that
    got no answer by the end of its time, and None if it has shown that it works."""
    if still.lasted < _asked_after(view, patience):
        return None
    probe = view.probes.get(pod.uid)
    if probe is None or not probe.deep or probe.asked < still.since:
        return Verdict(Health.SUSPECT, cause, still.text, ask=Question.WORKS)
    if not probe.done or (not probe.answered and still.lasted < patience):
        return Verdict(Health.SUSPECT, cause, still.text)
    if not probe.answered:
        return Verdict(Health.FAILED, cause, f"{still.text}, and a probe found it not working", since=still.since)
    # It is asked again when it has had as long once more.
    again = view.now - probe.asked > patience
    return Verdict(Health.SUSPECT, cause, still.text, ask=Question.WORKS) if again else None


def _patience(view: JobView, role: Role, report: AgentReport) -> timedelta:
    detection = view.spec.detection
    if role is Role.TRAINER:
        # Until whole steps have been seen, a short standstill says nothing of how long the first step may need.
        shown = _shown(view, IDLE) if _shown(view, TRAIN) is not None else None
        return learned(detection.trainer, detection.trainer.idle_seconds, shown)
    if role is Role.ROLLOUT:
        return timedelta(seconds=detection.rollout.zero_throughput_seconds)
    # Managers that have never answered in this life are still starting: that can take as long as for a pod.
    starting = report.child.state is ChildState.STARTING
    return timedelta(seconds=detection.startup_seconds if starting else detection.manager.unanswered_seconds)


def _ceiling(view: JobView) -> timedelta:
    """What is learned of a process's standstills is not true of its GPUs: they idle while the processor works."""
    return timedelta(seconds=view.spec.detection.trainer.idle_seconds)


def learned(detection: TrainerDetection, ceiling_seconds: int, shown_seconds: float | None) -> timedelta:
    """So many times what has been seen to end well, within floor and ceiling; the ceiling while nothing is known."""
    if shown_seconds is None:
        return timedelta(seconds=ceiling_seconds)
    seconds = max(detection.learned_floor_seconds, detection.learned_multiple * shown_seconds)
    return timedelta(seconds=min(ceiling_seconds, seconds))


def _shown(view: JobView, name: str) -> float | None:
    """The longest that any member has shown. A member that is new here has shown nothing, and its first steps may
    be slow: then nothing is known."""
    seen = [heard.report.activity.shown.get(name) for uid in view.member_by_uid if (heard := view.reports.get(uid))]
    known = [seconds for seconds in seen if seconds is not None]
    return max(known) if seen and len(known) == len(seen) else None


def _lasted(view: JobView, pod: PodView, seconds: float) -> timedelta:
    """What a report said of a duration, and the time since."""
    return timedelta(seconds=seconds) + (view.now - view.reports[pod.uid].at)
