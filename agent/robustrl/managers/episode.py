"""What the user's rollout function holds: the tokens so far, and ``generate`` for the next turn.

Every finished turn is in the ledger before the function sees it. When the function runs again, after its
own error or after the managers' restart, ``generate`` returns the saved turns as long as the tokens before
them are the same as they were, and asks an engine from there on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from robustrl.managers.engine_client import EngineAnswer, TurnRequest
from robustrl.managers.groups import SampleId, SavedTurn, Trajectory, Turn
from robustrl_api.version import Version

Generate = Callable[[TurnRequest], Awaitable[EngineAnswer]]
Save = Callable[[int, str, Turn], Awaitable[None]]


class EmptyEpisode(Exception):
    """The rollout function ended without one generated token: there is nothing to learn from."""


class Episode:
    """One sample of one prompt, on its way.

    Example::

        async def rollout(prompt, episode):
            turn = await episode.generate(max_new_tokens=64, stop_token_ids=[EOS])
            result = await run_tool(turn.tokens)
            episode.observe(result)
            answer = await episode.generate(max_new_tokens=64)
            return reward(prompt, answer.tokens)
    """

    def __init__(
        self,
        sample: SampleId,
        prompt_tokens: Sequence[int],
        *,
        seed: int,
        saved: Sequence[SavedTurn],
        generate: Generate,
        save: Save,
    ) -> None:
        self._sample = sample
        self._seed = seed
        self._saved = list(saved)
        self._generate = generate
        self._save = save
        self._turns: list[Turn] = []
        self._tokens = [int(token) for token in prompt_tokens]
        self._mask = [0] * len(self._tokens)
        self._logprobs = [0.0] * len(self._tokens)

    @property
    def tokens(self) -> list[int]:
        """Everything so far: prompt, generated and observed tokens."""
        return list(self._tokens)

    @property
    def sample(self) -> SampleId:
        """Which prompt and which of its samples this is."""
        return self._sample

    async def generate(
        self,
        *,
        max_new_tokens: int,
        temperature: float = 1.0,
        top_p: float = 1.0,
        stop_token_ids: Sequence[int] = (),
    ) -> Turn:
        """The next turn: up to ``max_new_tokens`` tokens that continue everything so far."""
        number = len(self._turns)
        sampling: dict[str, Any] = {
            "max_new_tokens": max_new_tokens,
            "temperature": temperature,
            "top_p": top_p,
            "stop_token_ids": list(stop_token_ids),
            "sampling_seed": sampling_seed(self._seed, self._sample, number),
        }
        turn = self._replayed(number) or await self._drawn(number, sampling)
        self._turns.append(turn)
        self._extend(turn.tokens, turn.logprobs, 1)
        return turn

    def observe(self, tokens: Sequence[int]) -> None:
        """Add tokens that the environment gave, such as a tool's output. They are never trained on."""
        self._extend([int(token) for token in tokens], [0.0] * len(tokens), 0)

    def trajectory(self, reward: float) -> Trajectory:
        """The finished sample."""
        if not any(self._mask):
            raise EmptyEpisode("the rollout function returned without a generated token")
        versions = [Version.parse(version) for turn in self._turns for version in turn.versions]
        return Trajectory(
            id=str(self._sample),
            prompt_index=self._sample.prompt_index,
            sample=self._sample.sample,
            tokens=self._tokens,
            loss_mask=self._mask,
            logprobs=self._logprobs,
            versions=[str(min(versions)), str(max(versions))],
            reward=float(reward),
        )

    def _replayed(self, number: int) -> Turn | None:
        """The saved turn, if it continued the very tokens of now; else it and all after it are worth
        nothing."""
        if number < len(self._saved) and self._saved[number].context == self._context():
            return self._saved[number].turn
        del self._saved[number:]
        return None

    async def _drawn(self, number: int, sampling: dict[str, Any]) -> Turn:
        request = TurnRequest(f"{self._sample}-{number}", self.tokens, sampling)
        answer = await self._generate(request)
        versions = [Version.parse(version) for version in answer.versions]
        span = (str(min(versions)), str(max(versions)))
        turn = Turn(answer.tokens, answer.logprobs, span, answer.finish_reason, answer.text)
        await self._save(number, self._context(), turn)
        return turn

    def _context(self) -> str:
        return hashlib.blake2b(repr(self._tokens).encode(), digest_size=12).hexdigest()

    def _extend(self, tokens: list[int], logprobs: list[float], mask: int) -> None:
        self._tokens += tokens
        self._logprobs += logprobs
        self._mask += [mask] * len(tokens)


def sampling_seed(seed: int, sample: SampleId, turn: int) -> int:
    """63 bits that depend on nothing but the job's seed and the place of the turn."""
    text = f"{seed}/{sample.prompt_index}/{sample.sample}/{turn}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) >> 1
