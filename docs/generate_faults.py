"""Prints docs/faults.md: the fault matrix as the local runner, the cluster and the tests have it."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from robustrl_operator.faults.matrix import MATRIX, Row

HEAD = """# Faults

Written by `make docs` from `operator/robustrl_operator/faults/matrix.py`, which is read as well by the tests
(`tests/local/test_faults.py`, `test_shaped_faults.py`, `e2e/test_faults.py`) and by `make faults`, which plays every
row on the development cluster and prints how long it took, beside `strategy: WholeJob`;
`make faults ROWS="worker trainer-pod"` plays some. `robustrl run FILE --fault KIND@STEP` makes one strike once so many
steps are committed; it can be repeated. [`robustrl inject KIND`](inject.md) makes one strike your own job.

For every row besides: no role outside the scope restarts, the job goes on (unless its own script is at fault), and the
ledger's audit finds no trajectory lost or trained twice. Causes and rules are those of [recovery.md](recovery.md).

| fault | kind | played | taken for | rule | epoch | what was struck |
|---|---|---|---|---|---|---|"""
TAIL = """
More is played elsewhere. In virtual time
(`tests/operator/plan/test_stories.py`, `test_model.py`): the operator killed between any two effects of a plan,
several trainers lost with rollouts to spare, faults inside a recovery, images that cannot be pulled from the start,
restarts that keep failing. By a script that is at fault itself (`tests/local/test_reproducible_faults.py`): a deadlock
in a collective. By the node agent's tests (`tests/agent/node`): all
that an exporter is known to do wrong. By weightsync's (`tests/weightsync`): peers that die while they send or pull
weights, in every state of a transfer.

Some rows ask for a job of a certain shape, or for a moment that is short; how the tests make them:

- *in the job's first step, twice in one step*: the first step of each training process takes 5 s longer, so that it
  can be struck (`e2e/scripts/faulty.py`, as for the other scripts that are at fault).
- *as it starts*: the rollout that was given the dead trainer's place is struck as soon as its agent plays trainer.
- *answers nobody for 20 s*: the machine's processes are frozen and its cable is pulled.
- *volume of the checkpoints full, read-only*: it is a file system of its own that is filled, or mounted read-only (as
  root; without, the rows are skipped). The ledger is on another one: what becomes of a ledger whose volume is full is
  not among the rows.
- *every copy of the newest checkpoint damaged*: the training process is stopped, a byte of each copy is changed, in
  every pod's memory and in storage, and the process is killed. The trainers go back one step.
- *engine stopped behind a front*: the engine is two processes, as SGLang's is (`e2e/scripts/front.py`). The front goes
  on answering `/ready` and `/metrics` with what it heard last; what finds the fault is that the counter of tokens
  stands still.
- *image that cannot be pulled*: its tag is taken from every node, and there is no registry; condition Degraded names
  the image and the pod meanwhile.
- *GPU fallen off the bus, exporters absent, stuck, lying*: the cluster's nodes have no GPU, so one server plays their
  exporters, in dcgm-exporter's format; the node agents that read them are the chart's. The first of the four shows that
  what the exporters say is heard.
- *while it pulls, while others pull, before the announcement*: the model has 48 MB (`e2e/scripts/big.py`), and the
  managers' `/v1/progress` is asked every few milliseconds for who pulls and which step is committed and not announced.
"""
NEXT = """
Next: [inject.md](inject.md), faults in your own job."""

MEASURED = Path(__file__).with_name("faults.json")
"""What `make faults` wrote to out/faults.json, of the runs that are shown."""
MANY = 50
MEASURED_HEAD = """
## Measured

By `make faults`, every row and both strategies in one run: nine machines and the control plane played by two cores, so
these are upper bounds with much waiting for a processor in them (a load of 15 to 25). Some rows were played again,
twice each (medians), under both strategies: those of hangs, of the managers' process and of the leader's machine, of
which that run showed that they could be found sooner, and `api-server`, whose judge had asked the API server that was
away.

Where the whole job restarts under either strategy, or nothing does, there is nothing to compare. The job is the sort4
example with a small batch, whose step takes a third of a second; with the model of 48 MB (*pull*, *relay*, *publish*)
it takes more than one.

*Detected* is from the fault to the operator's verdict; hangs have a window of 5 s here, of which the probe takes the
last 2 s (with the windows that are usual, of minutes, both strategies wait as long for the verdict, and little else
counts); a process without memory fails only when it wants more, so that its times count from the verdict. *Next step*
is from the first fault to the commit of the next optimizer step; where a rollout or a manager fails, the trainers go on
meanwhile. An agent that was killed is found when its container has been started again. Where the operator that leads is
dead as well, it has to be missed first. An image is gone for 30 s. The aims: a child's exit is detected within 0.2 s, a
deleted pod within 1 s, a silent agent within three heartbeats (of 1 s), a hang within its window and one probe;
`WholeJob` is at least three times slower, which two rows just reach: in `trainer in the publish` a large model is
loaded under both strategies, and in `manager in the leader's machine` both wait alike until another operator leads,
agents have found it, and it has asked those that are missed.

| kind | detected | next step | with `WholeJob` | ratio | all held |
|---|---|---|---|---|---|"""


def main() -> None:
    """Print the page."""
    print(HEAD)
    for row in MATRIX:
        print(_line(row))
    print(TAIL)
    print(MEASURED_HEAD)
    plays = json.loads(MEASURED.read_text())
    for name in dict.fromkeys(play["row"] for play in plays):
        print(_measured(name, [play for play in plays if play["row"] == name]))
    print(NEXT)


def _measured(name: str, plays: list[dict[str, Any]]) -> str:
    by_role = [play for play in plays if play["strategy"] == "RoleBased"]
    mine, whole = _median(by_role, "seconds"), _median((play for play in plays if play not in by_role), "seconds")
    ratio = _ratio(whole / mine) if mine and whole else "-"
    detected = _text(_median(by_role, "detectionSeconds"))
    broken = dict.fromkeys(complaint for play in by_role for complaint in play["complaints"])
    held = "no: " + "; ".join(broken) if broken else "yes"
    return f"| `{name}` | {detected} | {_text(mine)} | {_text(whole)} | {ratio} | {held} |"


def _ratio(times: float) -> str:
    """Where training does not notice a fault, how many times is chance."""
    if times > MANY:
        return f"over {MANY}x"
    return f"{times:.0f}x" if times >= 10 else f"{times:.1f}x"


def _median(plays: Iterable[dict[str, Any]], what: str) -> float | None:
    found = [play[what] for play in plays if play[what] is not None]
    return statistics.median(found) if found else None


def _text(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.1f} s"


def _line(row: Row) -> str:
    causes = " or ".join(f"`{cause}`" for cause in row.causes) or "nothing"
    epoch = f"+{row.epochs}" if row.epochs else "same"
    played = ", ".join(sorted(row.places))
    return f"| {row.what} | `{row.kind}` | {played} | {causes} | {row.rule or '-'} | {epoch} | {_fate(row)} |"


def _fate(row: Row) -> str:
    if row.fails:
        return f"the whole job starts again, then fails: `{row.fails}`"
    if row.whole_job:
        return "the whole job starts again"
    if not row.incidents:
        return "goes on"
    if not row.keeps_pod:
        return "is replaced"
    return "goes on; processes restart in place" if row.keeps_agent else "goes on; its container restarts in place"


if __name__ == "__main__":
    main()
