"""The HTTP contract: names, answers and traps that a trainer written for SGLang relies on."""

from __future__ import annotations

import asyncio

import pytest
import torch
from safetensors.torch import save_file
from sort4.model import build_model


async def until(condition, seconds: float = 5.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - the scheduler is another thread
            await asyncio.sleep(0.005)


def weights(tmp_path, seed: int = 7):
    directory = tmp_path / f"weights-{seed}"
    directory.mkdir()
    save_file(build_model(seed).state_dict(), str(directory / "model.safetensors"))
    return directory


async def test_a_reply_has_tokens_logprobs_and_the_version_that_drew_them(engine):
    answer = await engine.generate([1, 2, 3], return_logprob=True, rid="r1")
    meta = answer["meta_info"]
    assert len(answer["output_ids"]) == meta["completion_tokens"] == 8
    assert [row[1] for row in meta["output_token_logprobs"]] == answer["output_ids"]
    assert all(row[0] < 0 for row in meta["output_token_logprobs"])
    assert meta["id"] == "r1"
    assert meta["prompt_tokens"] == 3
    assert meta["finish_reason"] == {"type": "length", "length": 8}
    assert meta["weight_versions"] == [{"version": "", "start": 0, "end": 8}]


async def test_logprobs_are_those_of_the_model(engine):
    answer = await engine.generate([1, 2, 3], return_logprob=True)
    ids = [1, 2, 3, *answer["output_ids"]]
    with torch.inference_mode():
        own = torch.log_softmax(build_model()(torch.tensor([ids])), dim=-1)[0]
    for offset, (logprob, token, _) in enumerate(answer["meta_info"]["output_token_logprobs"]):
        assert logprob == pytest.approx(float(own[2 + offset, token]), abs=1e-4)


async def test_a_stop_token_ends_the_answer_and_is_part_of_it(engine):
    free = await engine.generate([5, 6])
    stop = free["output_ids"][2]
    expected = free["output_ids"][: free["output_ids"].index(stop) + 1]
    answer = await engine.generate([5, 6], params={"stop_token_ids": [stop]})
    assert answer["output_ids"] == expected
    assert answer["meta_info"]["finish_reason"] == {"type": "stop", "matched": stop}


async def test_a_top_k_beyond_every_vocabulary_restricts_nothing(engine):
    """It ended the scheduler, and with it the engine and everybody's requests."""
    seeded = {"sampling_seed": 3}
    answer = await engine.generate([5, 6], params={**seeded, "top_k": 2**70})
    assert answer["output_ids"] == (await engine.generate([5, 6], params=seeded))["output_ids"]


async def test_logits_that_are_no_numbers_fail_the_request_with_the_reason_and_nobody_else(engine):
    """An answer with NaN is no JSON, and a log-probability that is none would spoil the training."""

    class Diverges(torch.nn.Module):
        def forward(self, ids):
            logits = torch.nn.functional.one_hot(ids, 16).float()
            return logits.masked_fill((ids == 7)[:, :, None], float("nan"))

    engine.scheduler.model = Diverges()
    ask = {"sampling_params": {"max_new_tokens": 4, "temperature": 0}, "return_logprob": True}
    (status, refused), well = await asyncio.gather(
        engine.post("/generate", input_ids=[1, 7], **ask), engine.generate([3], params={"temperature": 0})
    )
    assert status == 500
    assert "logits after 2 tokens" in refused["error"]["message"]
    assert well["output_ids"] == [3] * 8
    assert (await engine.get("/health"))[0] == 200
    assert engine.scheduler.stats.num_running_reqs == 0


async def test_a_temperature_next_to_nothing_is_greedy(engine):
    """Logits divided by it would be no numbers."""
    tiny = await engine.generate([3, 1], params={"temperature": 1e-310}, return_logprob=True)
    assert tiny["output_ids"] == (await engine.generate([3, 1], params={"temperature": 0}))["output_ids"]


async def test_a_slow_down_without_end_is_refused(engine):
    """It ended the scheduler, and with it the engine."""
    assert (await engine.post("/slow_down", forward_sleep_time=1e300))[0] == 400
    assert (await engine.get("/health"))[0] == 200


async def test_the_context_bounds_the_answer(engine):
    answer = await engine.generate([1] * 30, params={"max_new_tokens": 100})
    assert len(answer["output_ids"]) == 2
    assert answer["meta_info"]["finish_reason"]["type"] == "length"


async def test_a_seed_decides_the_answer_whatever_else_runs(engine):
    alone = await engine.generate([4, 4], params={"sampling_seed": 11})
    crowd = await asyncio.gather(
        *(engine.generate([4] * (1 + n % 5), params={"sampling_seed": n}) for n in range(20)),
        engine.generate([4, 4], params={"sampling_seed": 11}),
    )
    assert crowd[-1]["output_ids"] == alone["output_ids"]
    assert len({tuple(answer["output_ids"]) for answer in crowd}) > 10


async def test_deterministic_inference_repeats_every_bit_whatever_else_runs(engine):
    engine.scheduler.deterministic = True

    async def one(n: int):
        return await engine.generate([4] * (1 + n % 5), params={"sampling_seed": n}, return_logprob=True)

    alone = (await one(3))["meta_info"]["output_token_logprobs"]
    crowd = await asyncio.gather(*(one(n) for n in range(20)))
    assert crowd[3]["meta_info"]["output_token_logprobs"] == alone


async def test_greedy_takes_the_likeliest_and_top_k_1_agrees(engine):
    greedy = await engine.generate([3, 1], params={"temperature": 0})
    narrow = await engine.generate([3, 1], params={"top_k": 1, "sampling_seed": 99})
    tiny_p = await engine.generate([3, 1], params={"top_p": 1e-6, "sampling_seed": 5})
    assert greedy["output_ids"] == narrow["output_ids"] == tiny_p["output_ids"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"input_ids": []},
        {"input_ids": [99]},
        {"input_ids": [1] * 32},
        {"input_ids": [1], "sampling_params": {"min_p": 0.1}},
        {"input_ids": [1], "sampling_params": {"temperature": float("inf")}},
        {"input_ids": [1], "sampling_params": {"max_new_tokens": 0}},
    ],
)
async def test_a_body_that_breaks_the_contract_is_answered_400_with_the_reason(engine, body):
    status, answer = await engine.post("/generate", **body)
    assert status == 400
    assert answer["error"]["message"]
    assert (await engine.get("/health"))[0] == 200


async def test_abort_returns_the_tokens_so_far(engine):
    await engine.post("/slow_down", forward_sleep_time=0.02)
    pending = asyncio.create_task(engine.generate([1], rid="x", params={"max_new_tokens": 30}))
    await until(lambda: engine.scheduler.stats.generation_tokens_total >= 3)
    assert (await engine.post("/abort_request", rid="other"))[0] == 200
    assert not pending.done()
    assert (await engine.post("/abort_request", rid="x"))[0] == 200
    answer = await pending
    assert answer["meta_info"]["finish_reason"]["type"] == "abort"
    assert 3 <= len(answer["output_ids"]) < 30


async def test_a_client_that_leaves_aborts_its_request(engine):
    await engine.post("/slow_down", forward_sleep_time=0.02)
    pending = asyncio.create_task(engine.generate([1], params={"max_new_tokens": 30}))
    await until(lambda: engine.scheduler.stats.generation_tokens_total >= 1)
    pending.cancel()
    await until(lambda: engine.scheduler.pending() == 0)
    assert engine.scheduler.stats.num_aborted_requests_total == 1


@pytest.mark.parametrize("mode", ["in_place", "retract"])
async def test_a_pause_that_keeps_requests_finishes_them_with_the_same_tokens(engine, mode):
    undisturbed = await engine.generate([2, 7], params={"max_new_tokens": 20})
    await engine.post("/slow_down", forward_sleep_time=0.01)
    pending = asyncio.create_task(engine.generate([2, 7], params={"max_new_tokens": 20}))
    before = engine.scheduler.stats.generation_tokens_total
    await until(lambda: engine.scheduler.stats.generation_tokens_total >= before + 3)
    await engine.post("/pause_generation", mode=mode)
    frozen = engine.scheduler.stats.generation_tokens_total
    assert (await engine.get("/ready"))[0] == 503
    assert (await engine.get("/health"))[0] == 503
    assert (await engine.get("/flush_cache"))[0] == 400
    assert engine.scheduler.stats.generation_tokens_total == frozen
    await engine.post("/continue_generation")
    answer = await pending
    assert answer["output_ids"] == undisturbed["output_ids"]
    assert answer["meta_info"]["num_retractions"] == (1 if mode == "retract" else 0)
    assert (await engine.get("/flush_cache"))[0] == 200


async def test_the_default_pause_aborts(engine):
    await engine.post("/slow_down", forward_sleep_time=0.02)
    pending = asyncio.create_task(engine.generate([1], params={"max_new_tokens": 30}))
    await until(lambda: engine.scheduler.stats.num_running_reqs == 1)
    await engine.post("/pause_generation")
    assert (await pending)["meta_info"]["finish_reason"]["type"] == "abort"


async def test_weights_from_disk_change_the_answer_and_the_label(engine, tmp_path):
    old = await engine.generate([1, 2, 3])
    status, answer = await engine.post(
        "/update_weights_from_disk", model_path=str(weights(tmp_path)), weight_version="0.1"
    )
    assert (status, answer["success"]) == (200, True)
    new = await engine.generate([1, 2, 3])
    assert new["output_ids"] != old["output_ids"]
    assert new["meta_info"]["weight_version"] == "0.1"
    assert '"weight_version": "0.1"' in (await engine.get("/model_info"))[1]
    assert '"weight_version": ""' in (await engine.get("/server_info"))[1]


async def test_bad_weights_are_refused_and_leave_the_model_as_it_was(engine, tmp_path):
    (tmp_path / "part").mkdir()
    state = build_model(7).state_dict()
    state.pop("head.bias")
    save_file(state, str(tmp_path / "part" / "model.safetensors"))
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "model.safetensors").write_bytes(b"\xff" * 100)
    old = await engine.generate([1, 2, 3])
    for directory in ("part", "torn", "absent"):
        status, answer = await engine.post(
            "/update_weights_from_disk", model_path=str(tmp_path / directory), weight_version="0.1"
        )
        assert (status, answer["success"]) == (400, False)
        assert answer["message"]
    new = await engine.generate([1, 2, 3])
    assert new["output_ids"] == old["output_ids"]
    assert new["meta_info"]["weight_version"] == ""


async def test_spans_attribute_each_token_when_weights_change_mid_request(engine, tmp_path):
    directory = weights(tmp_path)
    await engine.post("/update_weight_version", new_version="0.1")
    await engine.post("/slow_down", forward_sleep_time=0.01)
    pending = asyncio.create_task(engine.generate([1], params={"max_new_tokens": 30}))
    await until(lambda: engine.scheduler.stats.generation_tokens_total >= 4)
    await engine.post("/pause_generation", mode="in_place")
    await engine.post("/update_weights_from_disk", model_path=str(directory), weight_version="0.2")
    await engine.post("/continue_generation")
    meta = (await pending)["meta_info"]
    first, second = meta["weight_versions"]
    assert (first["version"], second["version"]) == ("0.1", "0.2")
    assert first["start"] == 0
    assert first["end"] == second["start"] >= 4
    assert second["end"] == 30
    assert meta["weight_version"] == "0.1"


async def test_an_update_without_a_pause_waits_for_what_runs(engine, tmp_path):
    await engine.post("/slow_down", forward_sleep_time=0.01)
    running = asyncio.create_task(engine.generate([1], params={"max_new_tokens": 20}))
    await until(lambda: engine.scheduler.stats.generation_tokens_total >= 2)
    await engine.post("/update_weights_from_disk", model_path=str(weights(tmp_path)), weight_version="0.1")
    assert [s["version"] for s in (await running)["meta_info"]["weight_versions"]] == [""]


async def test_a_hung_scheduler_hides_behind_ready_and_metrics(engine):
    await engine.post("/slow_down", forward_sleep_time=600)
    pending = asyncio.create_task(engine.generate([1]))
    await until(lambda: engine.scheduler.pending() == 1)
    await asyncio.sleep(0.05)
    assert (await engine.get("/ready"))[0] == 200
    assert (await engine.get("/metrics"))[0] == 200
    with pytest.raises(TimeoutError):
        await engine.get("/server_info", timeout=0.3)
    assert (await engine.get("/health"))[0] == 503
    assert (await engine.get("/ready"))[0] == 503
    pending.cancel()


async def test_the_throughput_gauge_lags_and_the_counter_does_not(engine):
    await engine.generate([1])
    text = (await engine.get("/metrics"))[1]
    assert 'sglang:generation_tokens_total{engine_type="embedded",model_name="sort4"} 8\n' in text
    assert 'sglang:gen_throughput{engine_type="embedded",model_name="sort4"} 0.0' in text


async def test_checksums_tell_weights_apart(engine, tmp_path):
    before = (await engine.post("/weights_checker", action="checksum"))[1]["ranks"]
    await engine.post("/update_weights_from_disk", model_path=str(weights(tmp_path)))
    after = (await engine.post("/weights_checker", action="checksum"))[1]["ranks"]
    assert before[0]["checksums"].keys() == after[0]["checksums"].keys()
    assert before != after
