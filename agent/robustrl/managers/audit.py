"""The proof, from the ledger alone, that no trajectory was trained on twice and none was lost.

It recounts from the batches of committed steps and does not trust the states that the commits have set.
`python -m robustrl.managers.audit LEDGER` prints it, with the curve of the committed steps, as JSON.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from pathlib import Path
from typing import Any

from robustrl.managers.batches import curve
from robustrl.managers.rollback import undone_total

_LIMIT = 100

_TRAINED_TWICE = """
SELECT prompt_index FROM batch_groups JOIN commits USING (step) GROUP BY prompt_index HAVING COUNT(*) > 1
LIMIT ?
"""

# A sample that should exist and does not, by group.
_SHORT_GROUPS = """
SELECT prompt_index FROM groups LEFT JOIN trajectories USING (prompt_index)
GROUP BY prompt_index HAVING COUNT(sample) != ? LIMIT ?
"""

# Consumed by its state but in no committed batch, or in one and not marked so.
_MISMATCHED = """
SELECT prompt_index || '-' || sample FROM trajectories AS t
WHERE (state = 'consumed') != EXISTS (
    SELECT 1 FROM batch_groups JOIN commits USING (step) WHERE prompt_index = t.prompt_index
) LIMIT ?
"""

# In a batch that is not committed yet, yet not held for it.
_UNHELD = """
SELECT prompt_index || '-' || sample FROM trajectories JOIN batch_groups USING (prompt_index)
WHERE step NOT IN (SELECT step FROM commits) AND state != 'leased' LIMIT ?
"""


def audit(db: sqlite3.Connection, samples_per_prompt: int) -> dict[str, Any]:
    """Counts by state, offenders by id (at most 100 of a kind), and whether there are none."""
    trained_twice = [str(row[0]) for row in db.execute(_TRAINED_TWICE, (_LIMIT,))]
    missing = _gaps(db)
    missing += [f"{row[0]}-*" for row in db.execute(_SHORT_GROUPS, (samples_per_prompt, _LIMIT))]
    for query in (_MISMATCHED, _UNHELD):
        missing += [row[0] for row in db.execute(query, (_LIMIT,))]
    return {
        "trajectories": _states(db),
        "trained_twice": trained_twice,
        "missing": missing,
        "undone_steps": undone_total(db),
        "ok": not trained_twice and not missing,
    }


def _states(db: sqlite3.Connection) -> dict[str, int]:
    found = dict.fromkeys(("running", "ready", "leased", "consumed", "discarded"), 0)
    found.update(db.execute("SELECT state, COUNT(*) FROM trajectories GROUP BY state").fetchall())
    return found


def _gaps(db: sqlite3.Connection) -> list[str]:
    """Prompts are started in order without gaps; one that is absent below the highest was lost."""
    count, highest = db.execute("SELECT COUNT(*), MAX(prompt_index) FROM groups").fetchone()
    if highest is None or count == highest + 1:
        return []
    present = {row[0] for row in db.execute("SELECT prompt_index FROM groups")}
    return [f"{index}-*" for index in range(highest) if index not in present][:_LIMIT]


def read(path: Path) -> dict[str, Any]:
    """The audit and the curve of a ledger file, which may be in use.

    Raises:
        sqlite3.Error: the file is no ledger or cannot be read.
    """
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
        (samples,) = db.execute("SELECT value FROM meta WHERE key = 'samples_per_prompt'").fetchone()
        return {"audit": audit(db, int(samples)), "curve": curve(db)}


if __name__ == "__main__":
    print(json.dumps(read(Path(sys.argv[1]))))
