"""What may be posted to the engine. A body that does not fit is answered 400 with the reason."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

GREEDY_BELOW = 1e-6
"""As SGLang: logits divided by less are no numbers any more."""
MAX_SLEEP_SECONDS = 3600.0
TokenId = Annotated[int, Field(ge=0)]


class _Body(BaseModel):
    # SGLang's callers send more fields than any engine needs; only what changes an answer is read.
    model_config = ConfigDict(extra="ignore", frozen=True)


class SamplingParams(BaseModel):
    """How tokens are drawn. ``temperature`` 0 is greedy; a parameter that is not supported is refused, not
    ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    temperature: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: int = Field(default=-1, ge=-1)
    max_new_tokens: int = Field(default=128, ge=1)
    stop_token_ids: tuple[TokenId, ...] = ()
    sampling_seed: int | None = None
    # Accepted because trainers send them; they say how text is cut, and this engine returns tokens.
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    no_stop_trim: bool = False
    ignore_eos: bool = False

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is taken."""
        return self.temperature < GREEDY_BELOW


class GenerateBody(_Body):
    input_ids: list[TokenId] = Field(min_length=1)
    sampling_params: SamplingParams = SamplingParams()
    return_logprob: bool = False
    rid: str | None = Field(default=None, max_length=256)


class AbortBody(_Body):
    rid: str = ""
    abort_all: bool = False


class PauseBody(_Body):
    mode: Literal["abort", "retract", "in_place"] = "abort"


class UpdateWeightsBody(_Body):
    model_path: str = Field(min_length=1)
    weight_version: str | None = None
    abort_all_requests: bool = False
    flush_cache: bool = True
    keep_pause: bool = False


class VersionBody(_Body):
    new_version: str
    abort_all_requests: bool = True


class SlowDownBody(_Body):
    forward_sleep_time: float | None = Field(default=None, ge=0, le=MAX_SLEEP_SECONDS)


class CheckerBody(_Body):
    action: Literal["checksum"]


JsonObject = dict[str, Any]
