"""Episodes, routing, admission and recovery, with engines made of memory."""

from __future__ import annotations

import asyncio
import sqlite3
import sys

import pytest
from tests.managers.conftest import hanging

from robustrl.managers import groups, rollout_manager
from robustrl.managers.groups import SampleId
from robustrl.managers.holders import HolderMessage
from robustrl.managers.ledger import Ledger
from robustrl.managers.refusal import Fenced, Refused
from robustrl.managers.request_manager import RequestManager, RolloutsFail
from robustrl_api.version import Version


async def test_a_whole_job_trains_every_trajectory_once(start_job):
    job = await start_job()
    await job.announce("0.0")
    job.engine("a")
    job.engine("b")
    for step in range(4):
        await job.train(0, step)
        job.engine("a", f"0.{step + 1}")
        job.engine("b", f"0.{step + 1}")
    audit = await job.managers.audit()
    assert audit["ok"]
    assert audit["trajectories"] == {"running": 0, "ready": 0, "leased": 0, "consumed": 24, "discarded": 0}
    progress = await job.managers.progress()
    assert progress["step"] == 4
    assert progress["version"] == "0.4"
    assert progress["tokens_total"] == 24 * 4
    assert len(await job.managers.curve()) == 4


async def test_a_trajectory_says_what_was_generated_and_by_which_weights(start_job):
    job = await start_job()
    await job.announce("0.0")
    job.engine("a")
    batch = await job.batch(0, 0)
    row = batch.trajectories[0]
    assert row["loss_mask"] == [0, 0, 1, 1, 0, 1, 1]
    assert row["tokens"][:2] == [0, 11]
    assert row["tokens"][4] == 12
    assert row["logprobs"] == [0, 0, -0.5, -0.5, 0, -0.5, -0.5]
    assert row["versions"] == ["0.0", "0.0"]
    assert row["reward"] == sum(t for t, m in zip(row["tokens"], row["loss_mask"], strict=True) if m)


async def test_back_pressure_bounds_what_is_generated_ahead(start_job):
    job = await start_job()
    await job.announce("0.0")
    job.engine("a")
    await job.until(lambda: len(job.fake("a").seen) == 24)
    await asyncio.sleep(0.1)
    assert (await job.states())["ready"] == 2 * 2 * 3  # (step 0 + staleness 1 + 1) * 2 prompts * 3 samples
    await job.train(0, 0)
    job.engine("a", "0.1")
    await job.until(lambda: len(job.fake("a").seen) == 2 * 3 * 2 * 3)
    assert (await job.managers.progress())["groups"]["consumed"] == 2


async def test_sync_mode_generates_for_one_step_only(start_job):
    job = await start_job(mode="Sync")
    await job.announce("0.0")
    job.engine("a")
    await job.batch(0, 0)
    assert (await job.states())["leased"] == 6
    assert len(job.fake("a").seen) == 12


async def test_sync_mode_waits_for_the_new_weights(start_job):
    job = await start_job(mode="Sync")
    await job.announce("0.0")
    job.engine("a")
    batch = await job.batch(0, 0)
    await job.managers.commit(0, 0, batch.batch, {}, {})
    assert await job.batch(0, 1, wait=0.3) is None
    assert len(job.fake("a").seen) == 12
    await job.announce("0.1")
    assert not job.engine("a", "0.0")
    assert job.engine("a", "0.1")
    second = await job.batch(0, 1)
    assert all(row["versions"] == ["0.1", "0.1"] for row in second.trajectories)


async def test_an_engine_that_breaks_is_quarantined_and_its_turns_are_done_elsewhere(start_job, monkeypatch):
    monkeypatch.setattr(rollout_manager, "_QUARANTINE_SECONDS", (60.0, 60.0))
    job = await start_job()
    await job.announce("0.0")
    job.fake("a").breaks()
    job.engine("a")
    job.engine("b")
    assert await job.batch(0, 0) is not None
    assert [engine.admitted for engine in job.managers.rollouts.engines] == [False, True]
    assert not job.engine("a"), "its agent's next report must not lift the quarantine at once"


async def test_a_quarantine_ends_with_a_registration_at_the_current_version(start_job):
    job = await start_job()
    await job.announce("0.0")
    job.fake("a").breaks()
    job.engine("a")
    await job.until(lambda: not job.managers.rollouts.engines[0].admitted)
    job.fake("a").recovers()
    await asyncio.sleep(1.3)
    assert job.engine("a")
    assert await job.batch(0, 0) is not None


async def test_an_engine_that_hangs_loses_its_turns_after_the_timeout(start_job):
    job = await start_job(turn_timeout_seconds=1)
    await job.announce("0.0")
    job.client.generate = timeouts(job.client.generate)
    job.fake("a").hangs()
    job.engine("a")
    job.engine("b")
    assert await job.batch(0, 0, wait=30.0) is not None
    await job.until(lambda: job.managers.rollouts.rerouted_total >= 3)


def timeouts(generate):
    """The deadline that the HTTP client keeps."""
    from robustrl.managers.engine_client import EngineFailure

    async def bounded(url, request, seconds):
        try:
            async with asyncio.timeout(seconds):
                return await generate(url, request, seconds)
        except TimeoutError as error:
            raise EngineFailure("timeout") from error

    return bounded


@pytest.mark.parametrize("how", ["leaves", "roster", "new process", "restarts in place"])
async def test_an_engine_that_goes_loses_its_turns_at_once(start_job, how):
    job = await start_job(turn_timeout_seconds=60)
    await job.announce("0.0")
    job.fake("a").hangs()
    job.engine("a")
    await job.until(lambda: len(job.fake("a").seen) == 6)
    job.engine("b")
    if how == "leaves":
        job.managers.rollouts.drop("a", "left")
    elif how == "roster":
        await job.managers.set_roster(1, ["b"])
        assert not job.engine("a")
    else:
        job.engine("a", "", state="Starting", uid="u2" if how == "new process" else "u1")
    assert await job.batch(1, 0) is not None
    assert (await job.managers.audit())["ok"]


@pytest.mark.parametrize("version", ["", "7.7"])
async def test_an_answer_of_unknown_weights_is_refused_and_done_again(start_job, version):
    job = await start_job()
    await job.announce("0.0")
    job.fake("a").answers(version)
    job.engine("a")
    job.engine("b")
    batch = await job.batch(0, 0)
    assert all(row["versions"] == ["0.0", "0.0"] for row in batch.trajectories)
    assert not job.managers.rollouts.engines[0].admitted


async def test_an_abort_is_done_again_and_blames_nobody(start_job):
    job = await start_job()
    await job.announce("0.0")
    job.fake("a").answers("0.0", "abort")
    job.engine("a")
    await job.until(lambda: job.managers.rollouts.rerouted_total >= 3)
    assert job.managers.rollouts.engines[0].admitted
    job.fake("a").recovers()
    assert await job.batch(0, 0) is not None


async def test_admission_follows_versions(start_job):
    job = await start_job()
    rollouts = job.managers.rollouts
    assert not job.engine("a", "0.0"), "nothing is announced yet"
    await job.announce("0.0")
    assert job.engine("a", "0.0")
    assert not job.engine("b", "", state="Starting")
    rollouts.set_current(Version(0, 1))
    assert job.engine("a", "0.0"), "one step behind is within the staleness"
    assert not job.engine("b", "0.0"), "but nobody enters behind"
    assert job.engine("b", "0.1")
    rollouts.set_current(Version(0, 2))
    assert [engine.admitted for engine in rollouts.engines] == [False, True]
    rollouts.set_current(Version(1, 2))
    assert job.engine("b", "0.1"), "a new epoch's restored step is no newer"


async def test_an_engine_slower_than_the_trainer_still_enters(start_job):
    job = await start_job()
    job.managers.rollouts.set_current(Version(0, 5))
    assert not job.engine("a", "0.1", state="Pulling")
    job.managers.rollouts.set_current(Version(0, 6))
    assert not job.engine("a", "0.1", state="Applying")
    assert job.engine("a", "0.5"), "current when it began to pull, and within the staleness"


@pytest.mark.parametrize("state", ["Applying", "Leaving"])
async def test_an_engine_that_applies_weights_or_leaves_keeps_its_place_but_gets_no_turns(start_job, state):
    job = await start_job()
    await job.announce("0.0")
    assert job.engine("a")
    assert job.engine("a", state=state)
    seen = len(job.fake("a").seen)
    assert await job.batch(0, 0, wait=0.2) is None
    assert len(job.fake("a").seen) <= seen + 6
    job.engine("a")
    assert await job.batch(0, 0) is not None


async def test_turns_go_to_the_least_active_engine(start_job):
    job = await start_job(turn_timeout_seconds=60)
    await job.announce("0.0")
    job.fake("a").hangs()
    job.fake("b").hangs()
    job.engine("a")
    job.engine("b")
    await job.until(lambda: len(job.fake("a").seen) + len(job.fake("b").seen) == 6)
    assert len(job.fake("a").seen) == 3


async def test_a_restart_loses_nothing_and_asks_for_no_turn_twice(start_job):
    job = await start_job(turn_timeout_seconds=60)
    await job.announce("0.0")
    job.engine("a")
    fake = job.fake("a")

    async def second_turns_hang(request):
        if request.rid.endswith("-1"):
            await asyncio.sleep(3600)

    fake.fault = second_turns_hang
    await job.until(lambda: sum(r.rid.endswith("-1") for r in fake.seen) == 6)
    await job.stop()

    again = await start_job(client=job.client)
    fake.recovers()
    fake.seen.clear()
    again.engine("a")
    batch = await again.batch(0, 0)
    assert batch is not None
    await again.until(lambda: again.managers.workers.episodes_running == 0)
    first_samples = {"0-0", "0-1", "0-2", "1-0", "1-1", "1-2"}
    assert not [r.rid for r in fake.seen if r.rid.endswith("-0") and r.rid[:3] in first_samples]
    audit = await again.managers.audit()
    assert audit["ok"]
    assert audit["trajectories"]["running"] == 0


async def test_the_same_step_gets_the_same_batch_after_a_restart_in_a_newer_epoch(start_job):
    job = await start_job()
    await job.announce("0.0")
    job.engine("a")
    before = await job.batch(0, 0)
    await job.stop()
    again = await start_job()
    assert (await again.managers.join(1)) == {"restore": None, "step": 0}
    after = await again.batch(1, 0)
    assert after == before
    with pytest.raises(Fenced):
        await again.batch(0, 0)


async def test_join_restores_the_newest_commit_of_any_epoch(start_job):
    job = await start_job()
    await job.announce("0.0")
    job.engine("a")
    await job.train(0, 0)
    assert await job.managers.join(2) == {"restore": {"epoch": 0, "step": 1, "digests": {"0": "d"}}, "step": 1}
    with pytest.raises(Fenced):
        await job.managers.join(1)
    with pytest.raises(Refused, match="not the next one"):
        await job.batch(2, 0)


async def test_a_rollout_that_raises_twice_is_run_again_from_its_saved_turns(start_job):
    calls: dict[str, int] = {}

    async def flaky(prompt, episode):
        await episode.generate(max_new_tokens=1)
        calls[str(episode.sample)] = calls.get(str(episode.sample), 0) + 1
        if calls[str(episode.sample)] < 3:
            raise RuntimeError("tool is away")
        return 1.0

    job = await start_job(rollout=flaky)
    await job.announce("0.0")
    job.engine("a")
    assert await job.batch(0, 0) is not None
    await job.until(lambda: job.managers.workers.episodes_running == 0)
    assert len(job.fake("a").seen) == 12, "one turn a sample, however often the function ran"
    assert job.managers.requests.error is None


async def _waits_for_what_is_cancelled():
    tool = asyncio.ensure_future(asyncio.sleep(60))
    tool.cancel()
    await tool


async def _exits():
    sys.exit(3)


@pytest.mark.parametrize("ends", [_waits_for_what_is_cancelled, _exits])
async def test_a_rollout_that_ends_otherwise_than_by_an_exception_costs_no_worker(start_job, ends):
    seen: set[str] = set()

    async def strange(prompt, episode):
        await episode.generate(max_new_tokens=1)
        if str(episode.sample) not in seen:
            seen.add(str(episode.sample))
            await ends()
        return 1.0

    job = await start_job(rollout=strange)
    await job.announce("0.0")
    job.engine("a")
    assert await job.batch(0, 0) is not None
    assert job.managers.requests.error is None


async def test_a_turn_is_drawn_anew_when_what_precedes_it_changed(start_job):
    observed = iter([[3], [4]] + [[5]] * 100)
    crashed = []

    async def tool(prompt, episode):
        episode.observe(next(observed))
        turn = await episode.generate(max_new_tokens=1)
        if not crashed:
            crashed.append(turn)
            raise RuntimeError("once")
        return 0.0

    job = await start_job(rollout=tool, concurrency=1)
    await job.announce("0.0")
    job.engine("a")
    assert await job.batch(0, 0) is not None
    first, second = job.fake("a").seen[:2]
    assert first.rid == second.rid
    assert (first.tokens[-1], second.tokens[-1]) == (3, 4)


async def test_a_group_that_fails_is_discarded_named_and_replaced(start_job):
    async def dislikes_prompt_1(prompt, episode):
        await episode.generate(max_new_tokens=1)
        if prompt["tokens"][0] == 1:
            raise ValueError("no such prompt")
        return 0.0

    job = await start_job(rollout=dislikes_prompt_1, steps=1)
    await job.announce("0.0")
    job.engine("a")
    batch = await job.batch(0, 0)
    assert {row["prompt_index"] for row in batch.trajectories} == {0, 2}
    progress = await job.managers.progress()
    assert "ValueError: no such prompt" in progress["error"]
    assert progress["groups"]["failed"] == 1
    assert (await job.managers.audit())["ok"]


async def test_rollouts_that_only_fail_end_the_managers(start_job):
    async def broken(prompt, episode):
        raise KeyError("digits")

    job = await start_job(rollout=broken, steps=100)
    await job.announce("0.0")
    job.engine("a")
    with pytest.raises(RolloutsFail, match=r"8 groups in a row failed.*KeyError"):
        await asyncio.wait_for(job.work, 20)


async def test_rollouts_that_worked_before_wait_for_the_service_that_they_ask(start_job):
    """A reward model's pod is replaced, which takes longer than eight groups take to fail."""
    away = asyncio.Event()

    async def asks(prompt, episode):
        await episode.generate(max_new_tokens=1)
        if away.is_set():
            raise ConnectionError("the reward model is away")
        return 0.0

    job = await start_job(rollout=asks, steps=100)
    await job.announce("0.0")
    job.engine("a")
    await job.until(lambda: len(job.fake("a").seen) == 2 * 2 * 3)
    await asyncio.sleep(0.1)
    away.set()
    await job.train(0, 0)
    job.engine("a", "0.1")
    await job.until(lambda: job.managers.requests._failed_in_a_row >= 8, 30)
    assert not job.work.done()
    away.clear()
    await job.train(0, 1)
    job.engine("a", "0.2")
    assert await job.batch(0, 2, wait=30) is not None
    assert (await job.managers.audit())["ok"]


@pytest.mark.parametrize(("worked", "after_seconds"), [(True, 600.0), (False, 0.0)])
async def test_how_long_rollouts_may_fail(config, worked, after_seconds):
    ledger, now, reasons = Ledger(config.ledger), 0.0, []
    if worked:
        await ledger.run(lambda db: db.execute("INSERT INTO groups (prompt_index, state) VALUES (0, 'consumed')"))
    requests = RequestManager(ledger, config, on_hopeless=reasons.append, clock=lambda: now)
    await requests.load()
    for index in range(1, 20):
        now = after_seconds * (index == 19)
        await ledger.run(lambda db, index=index: groups.start(db, index, 1))
        await requests.fail(SampleId(index, 0), "away")
        assert bool(reasons) is (index >= (19 if worked else 8))
    assert "19 groups in a row failed; the last: away" in str(reasons[-1])
    assert 5 <= requests.pause_seconds() <= 10
    await ledger.close()


async def test_a_prompt_without_tokens_is_told_what_it_lacks(start_job):
    job = await start_job(prompts=lambda index: {"text": "hello"})
    await job.until(lambda: job.managers.requests.error)
    assert "a prompt must be a mapping with 'tokens'" in job.managers.requests.error


async def test_a_ledger_in_trouble_ends_the_managers_and_blames_no_rollout(start_job):
    job = await start_job()
    await job.managers.ledger.run(lambda db: db.execute("DROP TABLE turns"))
    await job.announce("0.0")
    job.engine("a")
    with pytest.raises(ExceptionGroup) as failed:
        await asyncio.wait_for(job.work, 5)
    assert failed.group_contains(sqlite3.OperationalError, match="turns")
    assert job.managers.requests.error is None


async def test_an_outage_of_all_engines_is_no_fault_of_the_rollouts(start_job):
    job = await start_job(episode_timeout_seconds=0.2)
    await job.announce("0.0")
    await asyncio.sleep(1.5)  # several episodes' worth of nothing
    assert job.managers.requests.error is None
    job.engine("a")
    assert await job.batch(0, 0) is not None


async def _wraps(episode):
    async with asyncio.TaskGroup() as tasks:
        turn = tasks.create_task(episode.generate(max_new_tokens=1))
    return float(turn.result().tokens[0])


async def _goes_on(episode):
    try:
        return float((await episode.generate(max_new_tokens=1)).tokens[0])
    except Exception:
        return -1.0


async def _goes_on_after_its_first_turn(episode):
    await episode.generate(max_new_tokens=1)
    return await _goes_on(episode)


@pytest.mark.parametrize("asks", [_wraps, _goes_on, _goes_on_after_its_first_turn])
async def test_an_outage_is_no_fault_of_the_rollouts_whatever_they_make_of_it(start_job, asks):
    async def rollout(prompt, episode):
        return await asks(episode)

    job = await start_job(rollout=rollout, episode_timeout_seconds=0.2)
    await job.announce("0.0")
    job.engine("a")
    job.fake("a").fault = lambda request: hanging(request) if request.rid.endswith(ends) else None
    ends = "-1" if asks is _goes_on_after_its_first_turn else "-0"
    await job.until(lambda: len(job.fake("a").seen) > 6 * 5)  # several times each of the samples that may run
    job.fake("a").recovers()
    batch = await job.batch(0, 0)
    assert all(row["reward"] >= 0 for row in batch.trajectories), "nothing was trained on that had no turn"
    assert job.managers.requests.error is None


async def test_a_rollout_that_leaves_no_time_for_a_turn_is_not_run_for_ever(start_job):
    """It waited for its tool for nearly all of the episode's time, and no engine was ever in time."""

    async def slow(prompt, episode):
        await asyncio.sleep(0.15)
        return float((await episode.generate(max_new_tokens=1)).tokens[0])

    job = await start_job(rollout=slow, episode_timeout_seconds=0.2, turn_timeout_seconds=0.1)
    await job.announce("0.0")
    job.engine("a")
    job.fake("a").hangs()
    await job.until(lambda: job.managers.requests.error, 20)
    assert "EpisodeTooLong: the episode took longer than episodeTimeoutSeconds (0.2 s)" in job.managers.requests.error


async def test_a_timeout_of_the_rollout_s_own_is_told_as_it_is(start_job):
    async def impatient(prompt, episode):
        raise TimeoutError("the sandbox did not answer")

    job = await start_job(rollout=impatient)
    await job.until(lambda: job.managers.requests.error)
    assert job.managers.requests.error.endswith("TimeoutError: the sandbox did not answer")


async def test_a_rollout_that_fails_with_a_database_of_its_own_ends_no_managers(start_job):
    """The model is to write SQL, and writes nonsense."""

    async def queries(prompt, episode):
        await episode.generate(max_new_tokens=1)
        if prompt["tokens"][0] == 1:
            sqlite3.connect(":memory:").execute("SELECT nonsense")
        return 0.0

    job = await start_job(rollout=queries, steps=1)
    await job.announce("0.0")
    job.engine("a")
    batch = await job.batch(0, 0)
    assert {row["prompt_index"] for row in batch.trajectories} == {0, 2}
    assert "OperationalError: no such column: nonsense" in job.managers.requests.error
    assert not job.work.done()


async def test_waiting_for_a_version_ends_with_the_announcement(start_job):
    job = await start_job()
    waiting = asyncio.create_task(job.managers.current_version(None, 5))
    await asyncio.sleep(0.05)
    await job.announce("0.0")
    found = await waiting
    assert (found["epoch"], found["step"], found["publisher"], found["holders"]) == (0, 0, {"at": "trainer"}, [])
    job.managers.versions.holders.announce(found["root"], HolderMessage(address="a:9", chunk_count=8, have="01"))
    assert (await job.managers.current_version(None, 0))["holders"] == ["a:9"]
    assert await job.managers.current_version(Version(0, 0), 0.05) is None
