"""Continuous batching in one thread that alone touches the model.

Each turn of the loop runs the commands that came in (pause, new weights, ...), admits waiting sequences and
decodes one token for everything that runs. The HTTP side only posts commands and sequences and waits on
futures, so it keeps answering while the scheduler is busy or stuck.

Invariants: weights and their label change between two decode steps, never inside one; a sequence is in
exactly one of waiting and running until its future is resolved; while paused nothing is decoded.
"""

from __future__ import annotations

import concurrent.futures
import logging
import math
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from robustrl.engines.embedded import sampler
from robustrl.engines.embedded.sequence import Sequence
from robustrl.engines.embedded.stats import Stats

log = logging.getLogger(__name__)
T = TypeVar("T")
_Command = tuple[Callable[[], Any], "concurrent.futures.Future[Any]"]

_DECODE_LOG_INTERVAL = 40


class Scheduler:
    """Decodes for all running sequences.

    Args:
        model: causal, token ids ``[B, T]`` to logits ``[B, T, V]``; its ``max_length``, if it has one,
            bounds T.
        version: label of the initial weights.
        max_running: sequences decoded together; the others wait.
        deterministic: run each sequence alone, so that its logits do not depend on the batch's shape. Slower.
        on_death: called in the scheduler's thread if the loop ends by an error.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        *,
        version: str = "",
        max_running: int = 256,
        deterministic: bool = False,
        on_death: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.model = model.eval()
        self.version = version
        self.stats = Stats()
        self.paused = False
        self.max_length: int | None = getattr(model, "max_length", None)
        self.forward_sleep_seconds = 0.0
        self.max_running = max_running
        self.deterministic = deterministic
        self._on_death = on_death
        self._clock = clock
        self._running: list[Sequence] = []
        self._waiting: list[Sequence] = []
        self._commands: list[_Command] = []
        self._when_idle: list[_Command] = []
        self._wake = threading.Condition()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._main, name="scheduler", daemon=True)
        self._window = (0, clock())

    # -- called from any thread -------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the loop, also out of an artificial slow-down."""
        self._stopping.set()
        with self._wake:
            self._wake.notify()
        self._thread.join()

    def submit(self, sequence: Sequence) -> None:
        """Queue a sequence; its future is resolved with the reply."""

        def enqueue() -> None:
            self._waiting.append(sequence)
            self.stats.num_requests_total += 1
            self.stats.prompt_tokens_total += len(sequence.prompt)

        self.call(enqueue)

    def call(self, command: Callable[[], T], *, when_idle: bool = False) -> concurrent.futures.Future[T]:
        """Run ``command`` between two decode steps; ``when_idle``: only once nothing runs, admitting
        nothing before."""
        future: concurrent.futures.Future[T] = concurrent.futures.Future()
        with self._wake:
            (self._when_idle if when_idle else self._commands).append((command, future))
            self._wake.notify()
        return future

    # -- commands: only through call() ------------------------------------------------------------------

    def pause(self, mode: str) -> int:
        """Stop decoding; returns how many sequences stay. ``abort`` answers all, ``retract`` sends them to
        the queue."""
        self.paused = True
        if mode == "abort":
            self.abort_all()
        if mode == "retract":
            self._retract()
        return len(self._running) + len(self._waiting)

    def resume(self) -> None:
        self.paused = False

    def abort_all(self) -> None:
        self.abort(lambda _: True)

    def abort(self, matches: Callable[[Sequence], bool]) -> None:
        """Answer the matching sequences with the tokens they have and finish reason ``abort``."""
        for sequence in [s for s in (*self._running, *self._waiting) if matches(s)]:
            self.stats.num_aborted_requests_total += 1
            self._finish(sequence, {"type": "abort", "message": "Aborted"})

    def pending(self) -> int:
        return len(self._running) + len(self._waiting)

    def _retract(self) -> None:
        for sequence in self._running:
            sequence.retractions += 1
        self.stats.num_retracted_requests_total += len(self._running)
        self._waiting[:0] = self._running
        self._running.clear()

    # -- the loop ---------------------------------------------------------------------------------------

    def _main(self) -> None:
        torch.set_num_threads(1)
        try:
            with torch.inference_mode():
                while not self._stopping.is_set():
                    self._turn()
        except Exception:
            log.critical("the scheduler died", exc_info=True)
            self._on_death()

    def _turn(self) -> None:
        self._run(self._take_commands())
        if not self._running or self.paused:
            self._run(self._take_idle_commands())
        if not self.paused:
            self._admit()
            self._decode()
        self._publish_gauges()

    def _take_commands(self) -> list[_Command]:
        with self._wake:
            while not (self._commands or self._can_work() or self._stopping.is_set()):
                self._wake.wait()
            taken, self._commands = self._commands, []
            return taken

    def _can_work(self) -> bool:
        return bool(self._when_idle) or (not self.paused and self.pending() > 0)

    def _take_idle_commands(self) -> list[_Command]:
        with self._wake:
            taken, self._when_idle = self._when_idle, []
            return taken

    @staticmethod
    def _run(commands: list[_Command]) -> None:
        for command, future in commands:
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(command())
            except Exception as error:  # the caller's failure, not the scheduler's
                future.set_exception(error)

    def _admit(self) -> None:
        if self._when_idle:
            return
        room = self.max_running - len(self._running)
        self._running += self._waiting[:room]
        del self._waiting[:room]

    def _decode(self) -> None:
        if not self._running:
            return
        self._stopping.wait(self.forward_sleep_seconds)
        batch, grown = list(self._running), []
        for sequence, (token, logprob) in zip(batch, self._next_tokens(batch), strict=True):
            if math.isfinite(logprob):
                sequence.append(token, logprob, self.version)
                grown.append(sequence)
            else:
                self._fail(sequence)
        self._count(len(grown))
        for sequence in grown:
            if reason := sequence.finish_reason(self.max_length):
                self._finish(sequence, reason)

    def _next_tokens(self, batch: list[Sequence]) -> list[tuple[int, float]]:
        if not self.deterministic:
            return sampler.draw(self._last_logits(batch), batch)
        return [sampler.draw(self._last_logits([sequence]), [sequence])[0] for sequence in batch]

    def _last_logits(self, batch: list[Sequence]) -> torch.Tensor:
        """Logits after each sequence's last token. Padding goes to the right, where a causal model cannot
        see it."""
        rows = [sequence.tokens for sequence in batch]
        width = max(map(len, rows))
        ids = torch.tensor([row + [0] * (width - len(row)) for row in rows])
        last = torch.tensor([len(row) - 1 for row in rows])
        logits: torch.Tensor = self.model(ids)
        return logits[torch.arange(len(rows)), last]

    def _finish(self, sequence: Sequence, reason: dict[str, Any]) -> None:
        self._drop(sequence)
        sequence.finish(reason, self.version, self._clock())

    def _fail(self, sequence: Sequence) -> None:
        self._drop(sequence)
        sequence.fail(self.version)

    def _drop(self, sequence: Sequence) -> None:
        (self._running if sequence in self._running else self._waiting).remove(sequence)
        self._publish_gauges()  # before the answer: who has it must not still read itself as running

    def _count(self, tokens: int) -> None:
        before = self.stats.generation_tokens_total
        self.stats.generation_tokens_total = after = before + tokens
        if before // _DECODE_LOG_INTERVAL != after // _DECODE_LOG_INTERVAL:
            since_tokens, since = self._window
            now = self._clock()
            self.stats.gen_throughput = (after - since_tokens) / max(now - since, 1e-9)
            self._window = (after, now)

    def _publish_gauges(self) -> None:
        self.stats.num_running_reqs = 0 if self.paused else len(self._running)
        self.stats.num_paused_reqs = len(self._running) if self.paused else 0
        self.stats.num_queue_reqs = len(self._waiting)
