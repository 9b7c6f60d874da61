"""The object a training script works with."""

from __future__ import annotations

import contextlib
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from robustrl.checkpoint.shelf import Shelf
from robustrl.exit_status import HANDED_OVER_STATUS
from robustrl.sdk.agent_link import AgentLink
from robustrl.sdk.checkpointing import Checkpointer, Stateful, drop_older, write_weights
from robustrl.sdk.ledger import Ledger, LedgerRefused
from robustrl.sdk.worker_config import WorkerConfig
from robustrl_api.control import PHASE_CHARACTERS
from robustrl_api.version import Version

MEMORY_SLOTS = 2
FETCH_TRIES, FETCH_PAUSE_SECONDS = 3, 1.0
"""Before a checkpoint is given up: a peer may be starting, a file system away for a moment."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One rank's share of a step's batch. The same step always gets the same batch, whatever fails in between."""

    id: str
    step: int
    trajectories: list[dict[str, Any]]
    """Each with tokens, loss_mask, logprobs, reward and what else the managers keep of a trajectory."""


class TrainerJob:
    """This process's part in the current epoch. Get one from `robustrl.trainer()`.

    Attributes:
        rank: this process among `world_size`.
        epoch: the trainers' incarnation.
        total_steps: the RLJob's spec.steps.
        device: where the model belongs: the local GPU, or the CPU.
    """

    def __init__(self, config: WorkerConfig, link: AgentLink, ledger: Ledger) -> None:
        self._config, self._link, self._ledger = config, link, ledger
        self._memory = Path(config.memory_dir)
        self._shelf = Shelf(self._memory / "checkpoints", keep=MEMORY_SLOTS)
        self._checkpointer: Checkpointer | None = None
        self._batch = ""
        self._next_step = 0
        self.rank = config.rank
        self.world_size = config.world_size
        self.epoch = config.epoch
        self.total_steps = config.steps
        self.device = _device(config.local_rank)

    def restore(self, **objects: Stateful) -> int:
        """Bring model, optimizer and whatever else has a state_dict to the newest committed step.

        At the beginning of a job there is nothing to restore, and the objects stay as they are. Call this once,
        with everything that a checkpoint must hold; `commit` saves the same objects.

        Returns:
            Steps committed so far.

        Where no good copy of the newest checkpoint is left for some rank, all go back to the one before, and the steps
        after it are trained again on the same batches.

        Raises:
            RuntimeError: that would be too long ago. The message says what was tried.
        """
        self._checkpointer = Checkpointer(objects)
        joined = self._ledger.join(self.rank, self.world_size, self._config.pod)
        with self.phase("Restore"):
            while joined["restore"] is not None:
                path, problem = self._fetch(joined["restore"])
                if self._all_agree(path is not None):
                    assert path is not None
                    self._checkpointer.load(path)
                    break
                joined = self._fall_back(joined["restore"], problem)
        self._next_step = int(joined["step"])
        self._publish()
        return self._next_step

    def _fetch(self, point: dict[str, Any]) -> tuple[Path | None, str]:
        """A verified copy of a checkpoint, the nearest there is; or why there is none."""
        roots = sorted(set(point["digests"].values()))
        for attempt in range(FETCH_TRIES):
            if attempt:
                time.sleep(FETCH_PAUSE_SECONDS)
            try:
                answer = self._link.ask(
                    "restore", epoch=point["epoch"], step=point["step"], roots=roots, rank=self.rank
                )
                return Path(answer["path"]), ""
            except RuntimeError as error:
                print(f"{error} (try {attempt + 1} of {FETCH_TRIES})", file=sys.stderr, flush=True)
                problem = str(error)
        return None, problem

    def _fall_back(self, point: dict[str, Any], problem: str) -> dict[str, Any]:
        """Give up a checkpoint that some rank cannot have: the one before it is the newest then, for all ranks.

        Raises:
            RuntimeError: there is none before it that could be trained on from.
        """
        answer: list[Any] = [None]
        if self.rank == 0:
            print(f"going back to the checkpoint before step {point['step'] - 1}", file=sys.stderr, flush=True)
            try:
                answer = [self._ledger.roll_back(point["step"] - 1)]
            except LedgerRefused as error:
                answer = [str(error)]
        if self.world_size > 1:
            dist.broadcast_object_list(answer, src=0)
        if not isinstance(answer[0], dict):
            raise RuntimeError(f"{problem or 'another rank has no copy of the checkpoint'}; and {answer[0]}")
        return answer[0]

    def steps(self, total: int | None = None) -> Iterator[int]:
        """The steps that remain, of `total` (the RLJob's spec.steps unless given).

        Random generators are seeded for each step, so a step that is done again after a fault is the same step.
        """
        for step in range(self._next_step, self._config.steps if total is None else total):
            self._seed(step)
            yield step
            if self._next_step != step + 1:
                raise RuntimeError(f"step {step} was not committed: call job.commit(step) at the end of each step")

    def batch(self, step: int) -> Batch:
        """Lease this rank's share of a step's batch. Waits for the rollouts."""
        with self.phase("Wait"):
            answer = self._ledger.batch(step, self.rank, self.world_size)
        self._batch = answer["batch"]
        return Batch(answer["batch"], step, answer["trajectories"])

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Say what is being done. Only in phase "Train" does an idle accelerator mean that something is wrong.

        Raises:
            ValueError: the name has more than 63 characters, and reports would cut it off.
        """
        if len(name) > PHASE_CHARACTERS:
            raise ValueError(f"a phase's name has at most {PHASE_CHARACTERS} characters, and {name!r} has {len(name)}")
        self._link.enter(name)
        try:
            yield
        finally:
            self._link.enter("")

    def commit(self, step: int, **metrics: float) -> None:
        """End a step: checkpoint, make it real in the ledger, publish the weights.

        All ranks must call it. It returns when the ledger has accepted the step; what is not accepted never
        happened, and is done again on the same batch. When a machine is about to leave, the script ends here: whoever
        takes over goes on with the next step.
        """
        if self._checkpointer is None:
            raise RuntimeError("call job.restore(model=..., optimizer=...) before the first commit")
        version = Version(self.epoch, step + 1)
        with self.phase("Checkpoint"):
            root = self._checkpointer.save(self._shelf.folder(version, self.rank))
            digests = self._gather(root)
            if self.rank == 0:
                self._ledger.commit(step, self._batch, digests, metrics)
            hand_over = self._shall_hand_over()
        self._next_step = step + 1
        self._link.tell("committed", epoch=version.epoch, step=version.step)
        self._publish()
        if hand_over:
            print(f"handing over after step {step}", file=sys.stderr, flush=True)
            sys.exit(HANDED_OVER_STATUS)

    def _publish(self) -> None:
        """Hand the weights to the agent, which seals, serves and announces them while training goes on."""
        assert self._checkpointer is not None
        if self.rank != 0 or self._checkpointer.module is None:
            return
        version = Version(self.epoch, self._next_step)
        path = write_weights(self._checkpointer.module, self._memory / "weights" / str(version))
        self._link.tell("publish", epoch=version.epoch, step=version.step, path=str(path))
        drop_older(path.parent.parent, keep=3)

    def _gather(self, root: str) -> dict[str, str]:
        if self.world_size == 1:
            return {"0": root}
        roots: list[Any] = [None] * self.world_size
        dist.all_gather_object(roots, root)
        return {str(rank): each for rank, each in enumerate(roots)}

    def _shall_hand_over(self) -> bool:
        """Whether any rank's agent wants the trainers to end here. All ranks hear the same, once all are here."""
        return not self._all_agree(not self._link.ask("hand_over")["wanted"])

    def _all_agree(self, mine: bool) -> bool:
        """Whether every rank says yes. All hear the same, once all have asked."""
        if self.world_size == 1:
            return mine
        votes = torch.tensor([int(mine)], device=self.device)
        dist.all_reduce(votes, dist.ReduceOp.MIN)
        return bool(votes.item())

    def _seed(self, step: int) -> None:
        seed = (self._config.seed * 1_000_003 + step) * 4099 + self.rank
        torch.manual_seed(seed % 2**63)
        random.seed(seed)
        if (numpy := sys.modules.get("numpy")) is not None:
            numpy.random.seed(seed % 2**32)


def _device(local_rank: int) -> torch.device:
    if torch.cuda.is_available():
        torch.cuda.set_device(local_rank)
        return torch.device("cuda", local_rank)
    return torch.device("cpu")
