"""The example learns: visibly within 60 steps, and to the end in 300 (run by hand: ``SORT4_STEPS=300``)."""

from __future__ import annotations

import math
import os
import time
from collections import deque

import pytest
import torch
from sort4 import grpo
from sort4.model import VOCAB_SIZE, build_model
from sort4.schedule import learning_rate
from sort4.tasks import prompts, reward

PROMPTS, RANKS, STALENESS = 32, 2, 4


def test_every_build_has_the_same_weights_and_leaves_the_random_state_alone():
    torch.manual_seed(3)
    state = torch.get_rng_state()
    first, second = build_model(), build_model()
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert sum(parameter.numel() for parameter in first.parameters()) == 104_208


def test_the_model_is_causal():
    ids = torch.randint(0, VOCAB_SIZE, (1, 12))
    changed = ids.clone()
    changed[0, 8:] = (changed[0, 8:] + 1) % VOCAB_SIZE
    model = build_model()
    assert torch.allclose(model(ids)[:, :8], model(changed)[:, :8], atol=1e-5)


def test_prompts_depend_on_their_index_only():
    assert prompts(7) == prompts(7)
    assert len({tuple(prompts(index)["tokens"]) for index in range(100)}) > 90


@pytest.mark.parametrize(
    ("given", "value"), [([1, 2, 3, 4], 2.0), ([1, 2, 4, 3], 0.5), ([4, 3, 2, 1], 0.0), ([1], 0.25)]
)
def test_reward(given, value):
    assert reward([1, 2, 3, 4], given) == value


def test_advantages_compare_within_the_group_only():
    rows = [{"prompt_index": p, "reward": r} for p, r in [(0, 1.0), (1, 5.0), (0, 0.0), (1, 5.0)]]
    assert grpo.advantages(rows) == pytest.approx([1.0, 0.0, -1.0, 0.0], abs=1e-4)


def test_the_bonus_for_entropy_keeps_a_policy_open_that_has_nothing_to_gain(sample):
    model = build_model()
    rows = [{**row, "reward": 1.0} for row in sample(model, range(8), 2)]

    def entropy() -> float:
        return -grpo.loss(model, grpo.collate(rows), entropy=1.0).item()

    before = entropy()
    grpo.loss(model, grpo.collate(rows)).backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= parameter.grad
    assert before < entropy() <= math.log(VOCAB_SIZE)


def test_two_ranks_gradients_average_to_the_whole_batch_s(sample):
    model = build_model()
    rows = sample(model, range(4), 4)

    def gradient(part):
        model.zero_grad()
        grpo.loss(model, grpo.collate(part)).backward()
        return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])

    halves = [[row for row in rows if row["prompt_index"] % 2 == rank] for rank in range(2)]
    assert torch.allclose((gradient(halves[0]) + gradient(halves[1])) / 2, gradient(rows), atol=1e-6)


def test_the_learning_rate_is_constant_first_and_falls_then():
    rates = [learning_rate(step, 300) for step in range(300)]
    assert rates[:101] == [1.5e-3] * 101
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] == pytest.approx(3e-5)


def train(sample, behaviour, steps: int) -> list[float]:
    """Rewards by step. Two ranks' gradients are averaged; rollouts are drawn with weights up to 4 steps old."""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = build_model()
    optimizer = torch.optim.AdamW(model.parameters())
    past: deque[dict] = deque(maxlen=STALENESS + 1)
    curve = []
    for step in range(steps):
        past.append({name: tensor.clone() for name, tensor in model.state_dict().items()})
        behaviour.load_state_dict(past[0])
        rows = sample(behaviour, range(step * PROMPTS, (step + 1) * PROMPTS))
        curve.append(sum(row["reward"] for row in rows) / len(rows))
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, max(steps, 300))
        optimizer.zero_grad()
        for rank in range(RANKS):
            share = [row for row in rows if row["prompt_index"] % RANKS == rank]
            (grpo.loss(model, grpo.collate(share)) / RANKS).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
    behaviour.load_state_dict(model.state_dict())
    return curve


@pytest.mark.timeout(180)
def test_reward_goes_visibly_up(sample, behaviour):
    steps = int(os.environ.get("SORT4_STEPS", "60"))
    began = time.monotonic()
    curve = train(sample, behaviour, steps)
    exact = {
        kind: sum(
            row["reward"] == 2.0 for row in sample(behaviour, range(10**6, 10**6 + 512), 1, greedy=kind == "greedy")
        )
        / 512
        for kind in ("sampled", "greedy")
    }
    print(f"{steps} steps in {time.monotonic() - began:.1f} s; exact {exact}; every 20th: {curve[::20]}")
    assert sum(curve[-10:]) > 2 * sum(curve[:10])
    if steps >= 300:
        assert exact["greedy"] >= 0.9
