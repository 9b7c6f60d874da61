"""One request in flight: its tokens so far, and which weights drew each of them."""

from __future__ import annotations

import concurrent.futures
import random
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from robustrl.engines.embedded.request import GenerateBody, JsonObject, SamplingParams

if TYPE_CHECKING:
    import torch


class BadLogits(Exception):
    """The model gave no numbers for a sequence, as one does whose training has diverged."""


@dataclass(eq=False)
class Sequence:
    """A prompt and what was generated from it. Only the scheduler's thread changes it after it was
    submitted."""

    rid: str
    prompt: list[int]
    params: SamplingParams
    arrived: float
    generator: torch.Generator
    future: concurrent.futures.Future[JsonObject] = field(default_factory=concurrent.futures.Future)
    output: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    spans: list[JsonObject] = field(default_factory=list)
    retractions: int = 0
    return_logprob: bool = True

    @classmethod
    def of(cls, body: GenerateBody, now: float) -> Sequence:
        import torch

        seed = body.sampling_params.sampling_seed
        generator = torch.Generator()
        generator.manual_seed(random.getrandbits(63) if seed is None else seed & (2**63 - 1))
        return cls(
            rid=body.rid or uuid.uuid4().hex,
            prompt=body.input_ids,
            params=body.sampling_params,
            arrived=now,
            generator=generator,
            return_logprob=body.return_logprob,
        )

    @property
    def tokens(self) -> list[int]:
        return self.prompt + self.output

    def append(self, token: int, logprob: float, version: str) -> None:
        """Add a drawn token and stretch, or open, the span of the weights that drew it."""
        self.output.append(token)
        self.logprobs.append(logprob)
        if not self.spans or self.spans[-1]["version"] != version:
            self.spans.append({"version": version, "start": len(self.output) - 1, "end": len(self.output)})
        self.spans[-1]["end"] = len(self.output)

    def finish_reason(self, max_length: int | None) -> JsonObject | None:
        """Why the sequence is complete, or None while it is not."""
        if self.output[-1] in self.params.stop_token_ids:
            return {"type": "stop", "matched": self.output[-1]}
        full = max_length is not None and len(self.prompt) + len(self.output) >= max_length
        if full or len(self.output) >= self.params.max_new_tokens:
            return {"type": "length", "length": len(self.output)}
        return None

    def finish(self, reason: JsonObject, version: str, now: float) -> None:
        """Answer whoever waits; a caller that has gone away is no error."""
        if self.future.set_running_or_notify_cancel():
            self.future.set_result(self._reply(reason, version, now))

    def fail(self, version: str) -> None:
        """Answer that the model has no next token for it."""
        if self.future.set_running_or_notify_cancel():
            where = f"after {len(self.tokens)} tokens (weights {version!r})"
            self.future.set_exception(BadLogits(f"the model's logits {where} are no numbers"))

    def _reply(self, reason: JsonObject, version: str, now: float) -> JsonObject:
        meta: JsonObject = {
            "id": self.rid,
            "finish_reason": reason,
            "prompt_tokens": len(self.prompt),
            "completion_tokens": len(self.output),
            "cached_tokens": 0,
            # As SGLang: the version at the start; the spans say what drew each token.
            "weight_version": self.spans[0]["version"] if self.spans else version,
            "weight_versions": self.spans,
            "num_retractions": self.retractions,
            "e2e_latency": now - self.arrived,
        }
        if self.return_logprob:
            pairs = zip(self.logprobs, self.output, strict=True)
            meta["output_token_logprobs"] = [[logprob, token, None] for logprob, token in pairs]
        return {"text": "", "output_ids": self.output, "meta_info": meta}
