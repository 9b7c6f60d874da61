"""A node agent between an exporter's stand-in and a real control endpoint, over HTTP; and from there to a verdict."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import web
from tests.operator.build import job, running_job, saying

from robustrl.control_access import ControlAccess
from robustrl.node import scrape
from robustrl.node.agent import NodeAgent
from robustrl.node.settings import Settings
from robustrl.node.xids import XIDS
from robustrl_api.control import Activity, Child, ChildState
from robustrl_api.injection import Request
from robustrl_api.job import RLJob
from robustrl_api.names import ANNOTATION_INJECT
from robustrl_api.node import AsIf, PodReading, Source
from robustrl_api.status import InjectionStage, RLJobStatus
from robustrl_e2e.fake_exporter import HUNG, IDLE, PROFILING, STUCK, WORKING, XID, FakeExporter, Gpu, Style
from robustrl_operator.analyze import Health, Question, Verdict, analyze
from robustrl_operator.control.hub import ControlHub, PodIdentity
from robustrl_operator.control.node_hub import Placed
from robustrl_operator.control.prober import Prober
from robustrl_operator.control.reconciler import Reconciler
from robustrl_operator.control.server import NodeAgents, control_app
from robustrl_operator.faults.kind import Means
from robustrl_operator.kubernetes import certificates
from robustrl_operator.plan import Action, Event
from robustrl_operator.view import JobView, NodeView, PodView, Probe

INTERVAL = 0.02
TRAINER, UID, NODE = "j-trainer-1", "uid-j-trainer-1", "n1"
NAME = ("ns", TRAINER)
ACCOUNT = NodeAgents("robustrl-system", "robustrl-node-agent")
IDENTITY = PodIdentity(ACCOUNT.namespace, "node-agent-x", "u", ACCOUNT.account, NODE)


class Tokens:
    async def identify(self, token: str) -> PodIdentity | None:
        return IDENTITY if token == "right" else None


@dataclass
class Bench:
    """Everything on one machine. The agent's own clock is the test's, so minutes pass at once."""

    exporter: FakeExporter
    token: Path
    clock: float = 1000.0
    woken: list[str] = field(default_factory=list)
    reports: int = 0
    port: int = 0
    cgroups: Path | None = None
    tls: ssl.SSLContext | None = None
    ca: Path | None = None

    def __post_init__(self) -> None:
        self.hub = ControlHub(lambda: datetime.now(UTC), lambda identity: self.woken.append(identity.pod))
        self._runner: web.AppRunner | None = None
        self._agent: asyncio.Task[None] | None = None

    async def serve(self) -> None:
        """The operator's control endpoint; it comes back at the same address."""
        app = control_app(self.hub, Tokens(), ACCOUNT)
        app.on_response_prepare.append(self._count)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port, ssl_context=self.tls).start()
        self.port = self._runner.addresses[0][1]

    async def _count(self, _request: web.Request, _response: web.StreamResponse) -> None:
        self.reports += 1

    async def operator_gone(self) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    def watch(self, as_if: str = "") -> None:
        """Have the pod looked at, and said of it what is to be said on purpose."""
        self.hub.nodes.watch("ns/j", {UID: Placed(UID, *NAME, NODE, as_if=as_if)})

    def start(self) -> None:
        url = f"https://localhost:{self.port}" if self.tls else f"http://127.0.0.1:{self.port}"
        access = ControlAccess(url, str(self.ca or ""), str(self.token))
        settings = Settings(NODE, access, XIDS, self.exporter.url, self.cgroups)
        self._agent = asyncio.create_task(NodeAgent(settings, lambda: self.clock, INTERVAL).run(), name="agent")

    async def stop_agent(self) -> None:
        if self._agent is not None:
            assert not self._agent.done(), self._agent
            self._agent.cancel()
            await asyncio.gather(self._agent, return_exceptions=True)

    async def close(self) -> None:
        await self.stop_agent()
        await self.operator_gone()
        await self.exporter.stop()

    async def until(self, what: Callable[[], object], within: float = 20.0) -> None:
        async with asyncio.timeout(within):
            while not what():  # noqa: ASYNC110 - sampled
                await asyncio.sleep(0.005)

    @property
    def reading(self) -> PodReading | None:
        observed = self.hub.nodes.observed(UID)
        return observed.reading if observed else None

    async def show(self, values: dict[str, float] | None, seconds: float = 0.0) -> None:
        """Have the GPU show something for so long, by the agent's clock, seen every ten seconds."""
        if values is not None:
            self.exporter.gpus[0].values = dict(values)
        for _ in range(int(seconds // 10) + 1):
            before = self.exporter.scrapes
            await self.until(lambda before=before: self.exporter.scrapes >= before + 2)  # type: ignore[misc]
            self.clock += 10

    async def told(self) -> PodReading:
        """What is said of the pod by a report that began after this call."""
        before = self.reports
        await self.until(lambda: self.reports >= before + 2)
        assert self.reading is not None
        return self.reading


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    # The operator's word on the interval is ten seconds; here everything is five hundred times as fast.
    monkeypatch.setattr("robustrl_operator.control.node_hub.REPORT_INTERVAL_SECONDS", INTERVAL)
    token = tmp_path / "token"
    token.write_text("right\n")
    bench = Bench(await FakeExporter([Gpu(0, NAME)]).start(), token)
    await bench.serve()
    bench.watch()
    yield bench
    await bench.close()


async def test_a_gpu_that_stops_working_is_told_with_its_time(bench: Bench) -> None:
    bench.start()
    await bench.show(WORKING, 20)
    assert (await bench.told()).idle_seconds == 0
    await bench.show(HUNG, 300)
    reading = await bench.told()
    assert reading.source is Source.GPU
    assert 280 <= reading.idle_seconds <= 310
    assert "GPU-00000000 at 0 permille, memory 1 permille" in reading.idle_text


async def test_a_broken_gpu_is_told_and_wakes_the_operator(bench: Bench) -> None:
    bench.start()
    await bench.show({**WORKING, XID: 31}, 20)
    assert (await bench.told()).xids == (), "it was there before us"
    bench.exporter.gpus[0].values[XID] = 79
    await bench.until(lambda: bench.woken == [TRAINER])
    assert bench.reading is not None
    assert [xid.code for xid in bench.reading.xids] == [79]


async def test_a_gpu_that_breaks_on_purpose_is_told_as_if_the_exporter_had_said_so(bench: Bench) -> None:
    bench.start()
    await bench.show(WORKING, 20)
    assert (await bench.told()).xids == ()
    bench.watch(AsIf.OFF_THE_BUS)
    await bench.until(lambda: bench.woken == [TRAINER])
    bench.watch()
    reading = await bench.told()
    assert [xid.code for xid in reading.xids] == [79], "it is not mended by being told no more"
    assert reading.as_if == AsIf.OFF_THE_BUS


@pytest.mark.parametrize("word", ["", "OfALaterVersion"])
async def test_what_an_agent_does_not_know_to_say_it_does_not_say(bench: Bench, word: str) -> None:
    bench.watch(word)
    bench.start()
    await bench.show(WORKING, 20)
    reading = await bench.told()
    assert (reading.as_if, reading.doubt, reading.idle_seconds) == ("", "", 0)
    assert reading.devices[0].tensor_permille


# Whatever the exporter does, the agent lives and says no more than it knows.
TRAPS: dict[str, Callable[[FakeExporter], None]] = {
    "stuck profiling counters": lambda exporter: exporter.gpus[0].values.update(STUCK),
    "no profiling counters": lambda exporter: [exporter.gpus[0].values.pop(name) for name in PROFILING],  # type: ignore[func-returns-value]
    "no GPU at all": lambda exporter: exporter.gpus.clear(),
    "GPU of no pod": lambda exporter: setattr(exporter, "gpus", [Gpu(7, None, dict(IDLE))]),
    "another machine's page": lambda exporter: (setattr(exporter, "host", "n9"), exporter.gpus.clear()),
    "an error page": lambda exporter: setattr(exporter, "body", b"<html>502 Bad Gateway</html>\n"),
    "a page cut short": lambda exporter: setattr(exporter, "body", b'DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-0'),
    "not text": lambda exporter: setattr(exporter, "body", bytes(range(128, 256)) * 99),
    "an endless page": lambda exporter: setattr(exporter, "body", b"#\n" * (scrape.MAX_PAGE_BYTES // 2 + 1)),
    "status 500": lambda exporter: setattr(exporter, "status", 500),
    "restarted": lambda exporter: setattr(exporter, "style", Style(started=1.7e9)),
}  # fmt: skip


@pytest.mark.parametrize("trap", TRAPS.values(), ids=TRAPS.keys())
async def test_traps_give_no_idle_time(bench: Bench, trap: Callable[[FakeExporter], object]) -> None:
    bench.start()
    await bench.show(WORKING, 20)
    bench.exporter.gpus[0].values = dict(HUNG)
    trap(bench.exporter)
    await bench.show(None, 300) if bench.exporter.body is None and bench.exporter.status == 200 else None
    bench.clock += 300
    reading = await bench.told()
    assert (reading.idle_seconds, reading.xids) == (0, ())


async def test_an_exporter_that_does_not_answer_is_given_up_for_the_time_being(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(scrape, "SCRAPE_SECONDS", 0.1)
    bench.start()
    await bench.show(WORKING, 20)
    bench.exporter.frozen = True
    await bench.until(lambda: "nothing known of the GPUs" in caplog.text)
    assert "no page within" in caplog.text
    bench.exporter.frozen = False
    await bench.show(HUNG, 100)
    assert (await bench.told()).idle_seconds >= 80, "it worked before, and is the same exporter"


async def test_an_exporter_that_goes_away_and_comes_back(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.start()
    await bench.show(WORKING, 20)
    await bench.exporter.stop()
    await bench.until(lambda: "nothing known of the GPUs, try 1" in caplog.text)
    bench.exporter.gpus[0].values = {**HUNG, XID: 79}
    await bench.exporter.start()
    await bench.until(lambda: bench.woken == [TRAINER])
    await bench.show(None, 300)
    assert (await bench.told()).idle_seconds == 0, "whether its counters work now has not been seen"


async def test_the_operator_away_and_back(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """A new one knows after one report what the one before knew."""
    bench.start()
    await bench.show(WORKING, 20)
    await bench.told()
    await bench.operator_gone()
    await bench.show({**HUNG, XID: 79}, 200)
    assert "the operator did not take the report, try 1" in caplog.text
    bench.hub = ControlHub(lambda: datetime.now(UTC), lambda identity: bench.woken.append(identity.pod))
    await bench.serve()
    await asyncio.sleep(0.1)
    bench.watch()
    await bench.until(lambda: bench.reading is not None)
    assert bench.reading is not None
    assert bench.reading.idle_seconds >= 180, "it went on looking"
    assert [xid.code for xid in bench.reading.xids] == [79]


async def test_a_wrong_token_is_said(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.token.write_text("wrong")
    bench.start()
    await bench.until(lambda: "401" in caplog.text)
    bench.token.write_text("right")
    await bench.until(lambda: bench.reading is not None)


async def test_reports_go_over_tls_to_whoever_has_the_operators_certificate(
    bench: Bench, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await bench.operator_gone()
    real, other = certificates.make("localhost"), certificates.make("localhost")
    bench.tls, bench.ca = real.context(), tmp_path / "ca.crt"
    bench.ca.write_text(other.ca)
    await bench.serve()
    bench.start()
    await bench.until(lambda: "CERTIFICATE_VERIFY_FAILED" in caplog.text)
    assert bench.reports == 0
    await bench.stop_agent()
    bench.ca.write_text(real.ca)
    bench.start()
    await bench.until(lambda: bench.reading is not None)


async def test_a_pod_without_a_gpu_is_told_by_its_processor_time(bench: Bench, tmp_path: Path) -> None:
    bench.exporter.gpus.clear()
    bench.cgroups = tmp_path / "cgroup"
    folder = bench.cgroups / "cpuacct" / "kubepods" / f"pod{'0' * 32}"
    folder.mkdir(parents=True)
    (folder / "cpuacct.usage").write_text("1000000000\n")
    uid = "0" * 32
    bench.hub.nodes.watch("ns/j", {uid: Placed(uid, *NAME, NODE)})
    bench.start()
    await bench.until(lambda: bench.hub.nodes.observed(uid) or _tick(bench))
    await bench.show(None, 100)
    await bench.until(lambda: bench.hub.nodes.observed(uid).reading.idle_seconds >= 80)  # type: ignore[union-attr]
    observed = bench.hub.nodes.observed(uid)
    assert observed is not None
    assert observed.reading.source is Source.CPU


async def test_a_node_without_an_exporter_is_looked_at_as_often_as_any(
    bench: Bench, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """All nodes have one agent's settings, and some have no GPU; processor time needs an unbroken row of samples."""
    await bench.exporter.stop()
    bench.cgroups = tmp_path
    bench.start()
    await bench.until(lambda: bench.reports >= 40)
    assert "nothing known of the GPUs, try 1:" in caplog.text
    assert "try 100:" not in caplog.text


async def test_an_answer_that_is_no_operators_is_said_once_and_asked_for_more_and_more_seldom(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    calls = 0

    async def greet(_request: web.Request) -> web.Response:
        nonlocal calls
        calls += 1
        return web.Response(body=b"<html>" if calls > 1 else b"\xff", content_type="text/html", charset="utf-8")

    await bench.operator_gone()
    app = web.Application()
    app.router.add_post("/v1/node", greet)
    bench._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await bench._runner.setup()
    await web.TCPSite(bench._runner, "127.0.0.1", bench.port).start()
    bench.start()
    await bench.until(lambda: calls >= 3)
    assert caplog.text.count("the operator did not take the report, try 1:") == 1


def _tick(bench: Bench) -> None:
    bench.clock += 1


# From the exporter to the verdict, through everything in between.


class Body:
    """A job whose pods are where they are; it keeps what it is told."""

    rendezvous_base = 29_500
    means: frozenset[Means] = frozenset()

    def __init__(self, view: JobView) -> None:
        meta = {"name": "j", "namespace": "ns"}
        fields = {"metadata": meta, "spec": view.spec.model_dump(by_alias=True), "status": view.status}
        self.stored = RLJob.model_validate(fields)
        self._view = view
        self.did: list[Action] = []

    def job(self, key: str) -> RLJob | None:
        return self.stored

    def pods(self, key: str) -> tuple[PodView, ...]:
        return self._view.pods

    def nodes(self) -> dict[str, NodeView]:
        return self._view.nodes

    async def write_status(self, job: RLJob, status: RLJobStatus) -> None:
        self.stored = job.model_copy(update={"status": status})

    async def carry_out(self, job: RLJob, action: Action) -> None:
        self.did.append(action)

    async def publish(self, job: RLJob, event: Event) -> None:
        return None


def operator(bench: Bench) -> tuple[Body, Reconciler]:
    view = running_job(job(detection={"trainer": {"idleSeconds": 300}}))
    body = Body(view)
    clock = lambda: datetime.now(UTC)  # noqa: E731
    return body, Reconciler("ns/j", body, bench.hub, Prober(clock, lambda: None), clock)


def verdict(reconciler: Reconciler, body: Body, *, phase: float = 320, probe: bool | None = None) -> Verdict:
    """On the trainer, whose own agent says that it has trained for `phase` seconds, at most 10 s before. The managers
    have worked for as long."""
    view = reconciler.view(body.stored)
    activity = Activity(phase_seconds=phase, shown={"Train": 10})
    child = Child(state=ChildState.RUNNING, epoch=1)
    hour = timedelta(hours=1)
    for name in (TRAINER, "j-trainer-2", "j-manager-0"):
        view = saying(replace(view), name, child, phase="Train", activity=activity)
        uid = f"uid-{name}"
        heard = replace(view.reports[uid], at=view.now, changed=view.now - hour)
        probes = {} if probe is None else {uid: Probe(view.now, answered=probe, deep=True)}
        view = replace(view, reports={**view.reports, uid: heard}, probes={**view.probes, **probes})
    return analyze(view)[UID]


async def test_from_an_xid_to_a_trainer_elsewhere(bench: Bench) -> None:
    body, reconciler = operator(bench)
    bench.start()
    await bench.show(WORKING, 20)
    await reconciler.reconcile()
    assert body.stored.status.incidents == ()
    bench.exporter.gpus[0].values[XID] = 79
    await bench.until(lambda: TRAINER in bench.woken)
    await reconciler.reconcile()
    (incident,) = body.stored.status.incidents
    assert (incident.pod, incident.cause) == (TRAINER, "GpuFailed")
    assert incident.evidence == f"{TRAINER}: XID 79 (the GPU has fallen off the bus) of GPU-00000000 on node n1"
    assert [(s.name, s.faults) for s in body.stored.status.suspects] == [(NODE, 3)]
    assert UID not in {member.uid for member in body.stored.status.members}
    assert body.stored.status.epoch == 2


async def test_from_a_hung_collective_to_a_verdict(bench: Bench) -> None:
    body, reconciler = operator(bench)
    bench.start()
    await bench.show(WORKING, 20)
    await bench.show(HUNG, 200)
    await bench.told()
    assert verdict(reconciler, body).health is Health.HEALTHY, "not for long enough"
    await bench.show(HUNG, 120)
    await bench.told()
    suspect = verdict(reconciler, body)
    assert (suspect.health, suspect.ask) == (Health.SUSPECT, Question.WORKS)
    assert verdict(reconciler, body, probe=True, phase=305).health is Health.HEALTHY, "no longer than ever"
    failed = verdict(reconciler, body, probe=True)
    assert (failed.health, failed.cause.value) == (Health.FAILED, "WorkerHung")
    assert "tensor units of GPU-00000000 at 0 permille, memory 1 permille" in failed.evidence
    assert "phase Train has lasted" in failed.evidence


@pytest.mark.parametrize("values", [STUCK, {}, IDLE], ids=["stuck", "absent", "idle from the start"])
async def test_an_exporter_that_is_wrong_convicts_nobody(bench: Bench, values: dict[str, float]) -> None:
    body, reconciler = operator(bench)
    bench.start()
    await bench.show(values if values == IDLE else WORKING, 20)
    await bench.show(values, 600)
    await bench.until(lambda: bench.reading is not None)
    found = verdict(reconciler, body, phase=9000, probe=False)
    assert (found.health, found.ask) == (Health.HEALTHY, Question.NONE)


async def test_from_a_request_to_an_exporter_that_lies_for_a_while_and_to_nothing(bench: Bench) -> None:
    patient = {"heartbeatSeconds": 300, "lostAfterMissed": 100}
    view = running_job(job(trainer={"replicas": 1}, detection=patient, faultInjection={"mode": "Allowed"}))
    body, later = Body(view), timedelta()
    body.means = frozenset({Means.BREAK_GPU})
    clock = lambda: datetime.now(UTC) + later  # noqa: E731
    reconciler = Reconciler("ns/j", body, bench.hub, Prober(clock, lambda: None), clock)
    bench.start()
    await bench.show(WORKING, 20)
    await bench.told()
    request = Request(id="r1", kind="exporter-lying").model_dump_json(by_alias=True)
    metadata = body.stored.metadata.model_copy(update={"annotations": {ANNOTATION_INJECT: request}})
    body.stored = body.stored.model_copy(update={"metadata": metadata})
    await reconciler.reconcile()
    await reconciler.reconcile()
    await bench.until(lambda: bench.reading is not None and bench.reading.as_if == AsIf.IDLE)
    await bench.show(None, 60)
    assert (await bench.told()).idle_seconds > 0, "of a GPU that works"
    await reconciler.reconcile()
    injection = body.stored.status.injection
    assert injection is not None
    assert (injection.stage, bool(injection.struck_time)) == (InjectionStage.STRIKING, True)
    later = timedelta(seconds=31)
    await reconciler.reconcile()
    await reconciler.reconcile()
    assert body.stored.status.injection is not None
    assert body.stored.status.injection.stage is InjectionStage.STRUCK
    await bench.until(lambda: bench.reading is not None and bench.reading.as_if == "")
    assert (await bench.told()).idle_seconds == 0
    assert body.stored.status.incidents == ()


# The command.


def command(**environment: str) -> subprocess.CompletedProcess[str]:
    """`robustrl-node-agent` in a process of its own, to its end."""
    env = {**{k: v for k, v in os.environ.items() if not k.startswith("ROBUSTRL_")}, **environment}
    return subprocess.run(
        [sys.executable, "-m", "robustrl.node"], env=env, capture_output=True, text=True, timeout=60, check=False
    )


def test_the_command_says_what_it_was_not_told() -> None:
    done = command(ROBUSTRL_NODE_NAME="n1")
    assert (done.returncode, done.stderr.strip()) == (
        78, "robustrl-node-agent: neither ROBUSTRL_EXPORTER_URL nor ROBUSTRL_CGROUP_ROOT is set: there is nothing to "
        "look at",
    )  # fmt: skip


async def test_the_command_reports_and_ends_when_told(bench: Bench) -> None:
    env = {
        **os.environ, "ROBUSTRL_NODE_NAME": NODE, "ROBUSTRL_EXPORTER_URL": bench.exporter.url,
        "ROBUSTRL_CONTROL_URL": f"http://127.0.0.1:{bench.port}", "ROBUSTRL_TOKEN_FILE": str(bench.token),
    }  # fmt: skip
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "robustrl.node", env=env)
    try:
        await bench.until(lambda: bench.reports, within=60)
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(20):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def test_the_agent_is_light() -> None:
    """No torch, no UCX and nothing of the operator's comes along."""
    program = "import robustrl.node.__main__, sys; print({'torch', 'ucxx', 'kopf', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "set()"
