"""Prints docs/faults.md: the fault matrix as the local runner and the tests have it. `make docs` writes it."""

from __future__ import annotations

from robustrl_operator.faults.matrix import MATRIX, Row

HEAD = """# Faults

Written by `make docs` from `operator/robustrl_operator/faults/matrix.py`, which the tests read as well
(`tests/local/test_faults.py`).
`robustrl run FILE --fault KIND@STEP` makes one strike once so many steps are committed; it can be repeated.

For every row besides: no role outside the scope restarts, the job goes on, and the ledger's audit finds no trajectory
lost or trained twice. Causes and rules are those of [recovery.md](recovery.md).

| fault | kind | taken for | rule | epoch | what was struck |
|---|---|---|---|---|---|"""
TAIL = """
Next: [training-script.md](training-script.md), what your script does in all this."""


def main() -> None:
    """Print the page."""
    print(HEAD)
    for row in MATRIX:
        print(_line(row))
    print(TAIL)


def _line(row: Row) -> str:
    causes = " or ".join(f"`{cause}`" for cause in row.causes)
    epoch = f"+{row.epochs}" if row.epochs else "same"
    return f"| {row.what} | `{row.kind}` | {causes} | {row.rule} | {epoch} | {_fate(row)} |"


def _fate(row: Row) -> str:
    if not row.keeps_pod:
        return "is replaced"
    return "goes on; processes restart in place" if row.keeps_agent else "goes on; its container restarts in place"


if __name__ == "__main__":
    main()
