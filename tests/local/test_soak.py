"""The whole example through a storm of random faults: it learns through it, and nothing is broken.

Counted in steps, as a slow machine takes longer: six to eight minutes on two cores. ROBUSTRL_SEED sets the storm (1).
`make soak MINUTES=30` is the same for longer.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.local.conftest import example

from robustrl_operator.cli.soak import soak
from robustrl_operator.soak.soak import STORM_ROWS
from robustrl_operator.soak.storm import Storm
from robustrl_operator.soak.terms import braced

STEPS = 180
SEED = int(os.environ.get("ROBUSTRL_SEED", "1"))
EXACT_SHARE = 0.8
"""Of the last ten steps. One process without faults reaches 0.90 to 0.92 with 180 steps, on policy or two steps off,
and a job in a storm must do as well, since it loses nothing. 0.00 is a job that does not learn; half-way it is 0.6."""


@pytest.mark.local
@pytest.mark.timeout(2400)
async def test_a_storm_changes_nothing(tmp_path: Path) -> None:
    print(f"ROBUSTRL_SEED={SEED}")
    job = braced(example(), STEPS)
    out = tmp_path / "out"
    assert await soak(job, out, Storm(STORM_ROWS, SEED), ("exact", EXACT_SHARE)) == []
    assert (out / "timeline.png").exists()
