"""Playing trainer: which exit is the fault, and that an epoch is started once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from robustrl.checkpoint.copier import Copier
from robustrl.checkpoint.folder import seal
from robustrl.checkpoint.loss import Loss
from robustrl.exit_status import HANDED_OVER_STATUS, PEER_LOST_STATUS
from robustrl.sdk.worker_config import WORKER_CONFIG_ENV, WorkerConfig
from robustrl.supervisor import process, trainer_runner
from robustrl.supervisor.launcher import Launcher
from robustrl.supervisor.memory import PodMemory
from robustrl.supervisor.process import Supervised
from robustrl.supervisor.state import PodState
from robustrl.supervisor.trainer_runner import TrainerRunner
from robustrl_api.control import UNKILLABLE, Assignment, Child, ChildState
from robustrl_api.names import Role
from robustrl_api.pod_config import PodConfig
from robustrl_api.version import Version

ASSIGNMENT = Assignment(role=Role.TRAINER, epoch=3, run=True, rank=1, world_size=4, rendezvous="10.0.0.1:29503")


class FakeWorker(Supervised):
    """A worker whose end the test decides."""

    def __init__(self, words: str) -> None:
        super().__init__(0, asyncio.get_running_loop().create_future(), kills_before=0)
        self.last_lines.append(words)
        self.killed = False

    def exits(self, code: int) -> None:
        if not self.ended.done():
            self.ended.set_result(code)

    def kill(self) -> None:
        self.killed = True
        self.exits(-9)


class FakeLauncher:
    def __init__(self) -> None:
        self.workers: list[FakeWorker] = []
        self.environments: list[Mapping[str, str]] = []

    async def launch(self, command: Sequence[str], env: Mapping[str, str]) -> Supervised:
        if command[0] == "missing":
            raise OSError("no such program")
        self.environments.append(env)
        self.workers.append(FakeWorker(f"words of {len(self.workers)}"))
        return self.workers[-1]


class Bench:
    """One pod's trainer runner with two workers."""

    def __init__(self, folder: Path, command: tuple[str, ...] = ("python", "train.py")) -> None:
        self.config = PodConfig(
            job="j", namespace="ns", role=Role.TRAINER, control_url="http://127.0.0.1:1", processes_per_pod=2, steps=9,
            memory_dir=str(folder), trainer_command=command,
        )  # fmt: skip
        self.memory = PodMemory(self.config)
        assert self.memory.prepare() == ""
        self.state = PodState("p", Role.TRAINER)
        self.launcher = FakeLauncher()

    async def start(self, assignment: Assignment = ASSIGNMENT, copiers: Sequence[Copier] = ()) -> TrainerRunner:
        runner = TrainerRunner(
            self.config, self.state, cast(Any, self.launcher), self.memory, copiers, cast(Any, None), Loss()
        )  # fmt: skip
        await runner.start(assignment)
        await self.launched()
        return runner

    async def launched(self) -> None:
        async with asyncio.timeout(5):
            while len(self.launcher.workers) < 2 and self.state.child.state is not ChildState.EXITED:  # noqa: ASYNC110
                await asyncio.sleep(0.001)

    async def say(self, *phases: str) -> None:
        """What the first worker tells of its phases, by the socket that the SDK uses."""
        _, writer = await asyncio.open_unix_connection(str(self.memory.socket))
        for phase in phases:
            writer.write(json.dumps({"op": "phase", "phase": phase}).encode() + b"\n")
        await writer.drain()
        writer.close()

    async def until(self, *states: ChildState) -> None:
        async with asyncio.timeout(5):
            while self.state.child.state not in states:
                self.state.changed.clear()
                await self.state.changed.wait()


@pytest.mark.parametrize(
    ("ends", "code", "peer_lost", "words"),
    [
        pytest.param([0, 0], 0, False, None, id="all well"),
        pytest.param([7, None], 7, False, "words of 0", id="the other is ended too"),
        pytest.param([PEER_LOST_STATUS, 7], 7, False, "words of 1", id="a lost peer does not mask the fault"),
        pytest.param([PEER_LOST_STATUS, PEER_LOST_STATUS], PEER_LOST_STATUS, True, "words of 0", id="both lost a peer"),
        pytest.param([PEER_LOST_STATUS, None], PEER_LOST_STATUS, True, "words of 0", id="one lost a peer"),
        pytest.param([0, 7], 7, False, "words of 1", id="one ended well before"),
        pytest.param([-9, None], -9, False, "words of 0", id="killed"),
    ],
)
async def test_which_exit_is_reported(
    tmp_path: Path, ends: list[int | None], code: int, peer_lost: bool, words: str | None
) -> None:
    bench = Bench(tmp_path)
    runner = await bench.start()
    for worker, end in zip(bench.launcher.workers, ends, strict=True):
        if end is not None:
            worker.exits(end)
            await asyncio.sleep(0)
    await bench.until(ChildState.EXITED)
    last = bench.state.child.last_exit
    assert last is not None
    assert (last.code, last.peer_lost) == (code, peer_lost)
    assert words is None or last.message == words
    assert bench.state.child.epoch == 3
    assert all(worker.ended.done() for worker in bench.launcher.workers), "no worker is left behind"
    await runner.stop()


async def test_one_that_hands_over_meanwhile_is_not_to_blame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer_runner, "SETTLE_SECONDS", 30.0)
    bench = Bench(tmp_path)
    runner = await bench.start()
    for worker, end in zip(bench.launcher.workers, (PEER_LOST_STATUS, HANDED_OVER_STATUS), strict=True):
        worker.exits(end)
        for _ in range(20):
            await asyncio.sleep(0)
    await bench.until(ChildState.EXITED)
    last = bench.state.child.last_exit
    assert last is not None
    assert (last.code, last.peer_lost, last.message) == (PEER_LOST_STATUS, True, "words of 0")
    await runner.stop()


async def test_an_epoch_is_started_once_whatever_happens_to_the_agent(tmp_path: Path) -> None:
    await (await Bench(tmp_path).start()).stop()
    second = Bench(tmp_path)
    runner = await second.start()
    assert second.launcher.workers == []
    assert second.state.child.state is ChildState.EXITED
    assert second.state.child.last_exit
    assert second.state.child.last_exit.code == -9
    async with asyncio.timeout(5):
        await runner.leave()  # nothing is under way
    await runner.stop()
    third = Bench(tmp_path)
    runner = await third.start(ASSIGNMENT.model_copy(update={"epoch": 4}))
    assert len(third.launcher.workers) == 2
    await runner.stop()
    assert all(worker.killed for worker in third.launcher.workers)


async def test_workers_find_the_names_torchrun_uses(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    runner = await bench.start()
    assert [(e["RANK"], e["LOCAL_RANK"], e["WORLD_SIZE"]) for e in bench.launcher.environments] == [
        ("2", "0", "4"), ("3", "1", "4"),
    ]  # fmt: skip
    assert {(e["MASTER_ADDR"], e["MASTER_PORT"]) for e in bench.launcher.environments} == {("10.0.0.1", "29503")}
    await runner.stop()


async def test_workers_are_told_how_long_a_phase_may_last(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    runner = await bench.start(ASSIGNMENT.model_copy(update={"phase_lease_seconds": 3600.0}))
    told = WorkerConfig.model_validate_json(bench.launcher.environments[1][WORKER_CONFIG_ENV])
    assert told.phase_lease_seconds == 3600.0
    await runner.stop()


async def test_command_that_cannot_be_started_is_an_exit_with_words(tmp_path: Path) -> None:
    bench = Bench(tmp_path, command=("missing",))
    runner = await bench.start()
    await bench.until(ChildState.EXITED)
    assert bench.state.child.last_exit
    assert bench.state.child.last_exit.code == 127
    assert "missing cannot be started" in bench.state.child.last_exit.message
    await runner.stop()


async def test_words_are_as_many_as_a_report_has_room_for(tmp_path: Path) -> None:
    bench = Bench(tmp_path, command=("missing", "x" * 5000))
    runner = await bench.start()
    await bench.until(ChildState.EXITED)
    assert bench.state.child.last_exit
    assert len(bench.state.child.last_exit.message) == 4000
    assert bench.state.child.last_exit.message.endswith("cannot be started: no such program")
    await runner.stop()


async def test_workers_are_at_work_with_the_first_phase_after_the_restore(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    runner = await bench.start()
    await bench.say("Rendezvous", "", "Restore", "")
    await asyncio.sleep(0.05)
    assert bench.state.child.state is ChildState.STARTING
    await bench.say("Wait", "Train")
    await bench.until(ChildState.RUNNING)
    assert bench.state.report("").phase in ("Wait", "Train")
    await runner.stop()
    assert bench.state.report("").phase == ""


async def test_what_was_restored_is_copied_again_once_the_workers_are_at_work(tmp_path: Path) -> None:
    """Copies are made beside the training: while the trainers come back, they would be in their way."""
    bench, copier = Bench(tmp_path), SlowCopier()
    runner = await bench.start(copiers=[copier])
    part = bench.memory.checkpoints.folder(Version(2, 7), rank=2)
    part.mkdir(parents=True)
    (part / "state").write_bytes(b"weights")
    question = {"op": "restore", "epoch": 2, "step": 7, "roots": [seal(part).root], "rank": 2}
    reader, writer = await asyncio.open_unix_connection(str(bench.memory.socket))
    writer.write(
        json.dumps({"op": "phase", "phase": "Restore"}).encode() + b"\n" + json.dumps(question).encode() + b"\n"
    )
    assert json.loads(await reader.readline()) == {"path": str(part)}
    assert copier.newest is None
    writer.write(json.dumps({"op": "phase", "phase": "Wait"}).encode() + b"\n")
    await bench.until(ChildState.RUNNING)
    assert copier.newest == Version(2, 7)
    writer.close()
    await runner.stop()


async def test_nothing_is_heard_of_workers_whose_epoch_has_ended(tmp_path: Path) -> None:
    """Their last words are still in the socket when the next epoch begins."""
    bench = Bench(tmp_path)
    runner = await bench.start()
    _, writer = await asyncio.open_unix_connection(str(bench.memory.socket))
    await asyncio.sleep(0.05)
    writer.write(json.dumps({"op": "phase", "phase": "Wait"}).encode() + b"\n")
    await runner.stop()
    bench.state.child = Child(state=ChildState.STARTING, epoch=4)
    await asyncio.sleep(0.05)
    assert bench.state.child == Child(state=ChildState.STARTING, epoch=4)
    writer.close()


class SlowCopier(Copier):
    """Copies when the test says so."""

    def __init__(self, *, has_target: bool = True) -> None:
        super().__init__()
        self._has_target = has_target
        self.go_on = asyncio.Event()

    @property
    def has_target(self) -> bool:
        return self._has_target

    @property
    def newest(self) -> Version | None:
        return self._wanted

    async def _copy_newest(self, version: Version) -> None:
        await self.go_on.wait()


@pytest.mark.parametrize(
    ("copiers", "waits"),
    [
        pytest.param([True], True, id="one copy elsewhere"),
        pytest.param([True, False], True, id="where there is nowhere to copy to nobody waits for it"),
        pytest.param([False], False, id="nowhere to copy to"),
        pytest.param([], False, id="nobody copies"),
    ],
)
async def test_trainers_that_hand_over_end_when_their_last_checkpoint_is_elsewhere(
    tmp_path: Path, copiers: list[bool], waits: bool
) -> None:
    bench = Bench(tmp_path)
    slow = [SlowCopier(has_target=has_target) for has_target in copiers]
    tasks = [asyncio.create_task(copier.run()) for copier in slow]
    runner = await bench.start(copiers=slow)
    for copier in slow:
        copier.committed(Version(3, 8))
    for worker in bench.launcher.workers:
        worker.exits(HANDED_OVER_STATUS)
    if waits:
        await asyncio.sleep(0.05)
        assert bench.state.child.state is ChildState.STARTING
        slow[0].go_on.set()
    await bench.until(ChildState.EXITED)
    assert bench.state.child.last_exit
    assert bench.state.child.last_exit.handed_over
    await runner.stop()
    for task in tasks:
        task.cancel()


async def test_a_copy_that_never_ends_holds_the_hand_over_up_for_so_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("robustrl.supervisor.trainer_runner.HAND_OVER_SECONDS", 0.05)
    bench, slow = Bench(tmp_path), SlowCopier()
    task = asyncio.create_task(slow.run())
    runner = await bench.start(copiers=[slow])
    slow.committed(Version(3, 8))
    for worker in bench.launcher.workers:
        worker.exits(HANDED_OVER_STATUS)
    await bench.until(ChildState.EXITED)
    await runner.stop()
    task.cancel()


async def test_no_worker_outlives_its_epoch_though_it_was_only_being_started(tmp_path: Path) -> None:
    """A second fault comes while the workers of the epoch after the first are being started."""
    bench = Bench(tmp_path)
    launch = bench.launcher.launch

    async def slowly(command: Sequence[str], env: Mapping[str, str]) -> Supervised:
        """The second one starts in the very moment in which the first is ended."""
        while bench.launcher.workers and not bench.launcher.workers[0].killed:  # noqa: ASYNC110
            await asyncio.sleep(0)
        return await launch(command, env)

    bench.launcher.launch = slowly  # type: ignore[method-assign]
    runner = TrainerRunner(
        bench.config, bench.state, cast(Any, bench.launcher), bench.memory, (), cast(Any, None), Loss()
    )
    await runner.start(ASSIGNMENT)
    await asyncio.sleep(0.01)
    await runner.stop()
    await asyncio.sleep(0.01)
    assert [worker.killed for worker in bench.launcher.workers] == [True]


async def test_workers_that_nobody_looks_after_any_more_are_the_end_of_the_agent(tmp_path: Path) -> None:
    """It would report for ever that they are being started."""
    bench = Bench(tmp_path)

    async def unforeseen(command: Sequence[str], env: Mapping[str, str]) -> Supervised:
        raise KeyError("what nobody had foreseen")

    bench.launcher.launch = unforeseen  # type: ignore[method-assign]
    runner = TrainerRunner(
        bench.config, bench.state, cast(Any, bench.launcher), bench.memory, (), cast(Any, None), Loss()
    )
    await runner.start(ASSIGNMENT)
    async with asyncio.timeout(5):
        await bench.state.broken.wait()
    await runner.stop()


async def test_what_is_stopped_is_no_failure(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    await (await bench.start()).stop()
    await asyncio.sleep(0.01)
    assert not bench.state.broken.is_set()


async def test_workers_that_sleep_outside_of_any_phase_are_told_of_and_do_not_work(tmp_path: Path) -> None:
    """A script that hangs before its first phase: there is no lease that could end."""
    bench = Bench(tmp_path, command=("sleep", "60"))
    bench.launcher = cast(Any, Launcher(bench.config))
    runner = TrainerRunner(
        bench.config, bench.state, cast(Any, bench.launcher), bench.memory, (), cast(Any, None), Loss()
    )  # fmt: skip
    await runner.start(ASSIGNMENT)
    try:
        async with asyncio.timeout(20):
            while not bench.state.activity.report().asleep_seconds:  # noqa: ASYNC110 - sampled once a second
                await asyncio.sleep(0.05)
            assert not await runner.works(0.6)
            await bench.say("Restore")
            while bench.state.activity.report().asleep_seconds:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert await runner.works(0.6)
    finally:
        await runner.stop()


async def test_a_worker_that_a_kill_does_not_end_is_complained_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits in the kernel for its device. No other can begin here, and the trainers must not wait for this pod."""
    monkeypatch.setattr(process, "UNKILLABLE_SECONDS", 0.05)
    bench = Bench(tmp_path)
    runner = await bench.start()
    monkeypatch.setattr(bench.launcher.workers[1], "kill", lambda: None)
    await asyncio.wait_for(runner.stop(), 5)
    assert bench.state.complaint is not None
    assert bench.state.complaint.reason == UNKILLABLE
