"""Prints docs/faults.md: the fault matrix as the local runner, the cluster and the tests have it."""

from __future__ import annotations

from robustrl_operator.faults.matrix import MATRIX, Row

HEAD = """# Faults

Written by `make docs` from `operator/robustrl_operator/faults/matrix.py`, which is read as well by the tests
(`tests/local/test_faults.py`, `e2e/test_faults.py`) and by `make faults`, which plays every row on the development
cluster and prints how long it took, beside `strategy: WholeJob`; `make faults ROWS="worker trainer-pod"` plays some.
`robustrl run FILE --fault KIND@STEP` makes one strike once so many steps are committed; it can be repeated.
[`robustrl inject KIND`](inject.md) makes one strike your own job.

For every row besides: no role outside the scope restarts, the job goes on, and the ledger's audit finds no trajectory
lost or trained twice. Causes and rules are those of [recovery.md](recovery.md).

| fault | kind | played | taken for | rule | epoch | what was struck |
|---|---|---|---|---|---|---|"""
TAIL = """
What asks for chosen moments or many machines is played elsewhere. In virtual time
(`tests/operator/plan/test_stories.py`, `test_model.py`): the operator killed between any two effects of a plan, several
trainers lost with rollouts to spare, faults inside a recovery, images that cannot be pulled, restarts that keep
failing. By scripts that are at fault themselves (`tests/local/test_faults.py`): an exception always in the same step,
a deadlock in a collective. By the node agent's tests (`tests/agent/node`): exporters that are absent, stuck or lying.
By weightsync's (`tests/weightsync`): peers that die while they send or pull weights.

Next: [inject.md](inject.md), faults in your own job."""


def main() -> None:
    """Print the page."""
    print(HEAD)
    for row in MATRIX:
        print(_line(row))
    print(TAIL)


def _line(row: Row) -> str:
    causes = " or ".join(f"`{cause}`" for cause in row.causes) or "nothing"
    epoch = f"+{row.epochs}" if row.epochs else "same"
    played = ", ".join(sorted(row.places))
    return f"| {row.what} | `{row.kind}` | {played} | {causes} | {row.rule or '-'} | {epoch} | {_fate(row)} |"


def _fate(row: Row) -> str:
    if row.whole_job:
        return "the whole job starts again"
    if not row.incidents:
        return "goes on"
    if not row.keeps_pod:
        return "is replaced"
    return "goes on; processes restart in place" if row.keeps_agent else "goes on; its container restarts in place"


if __name__ == "__main__":
    main()
