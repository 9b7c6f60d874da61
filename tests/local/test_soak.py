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
EXACT_SHARE = 0.4
"""Of the last ten steps: that it has learned, and no more. At 0.00 is a job that does not learn, at 0.14 to 0.28
one after 100 steps. So few steps end before the curve is flat, and where is a matter of chance: for a while the
example answers 0 first whatever the least digit is, and how soon it finds the 1 again differs between runs. Measured
with 180 steps on two cores: 0.86 and 0.60 without faults; 0.62 and 0.79 through the storms of seeds 2 and 3. With 210
steps through seed 1's: 0.95."""


@pytest.mark.local
@pytest.mark.timeout(2400)
async def test_a_storm_changes_nothing(tmp_path: Path) -> None:
    print(f"ROBUSTRL_SEED={SEED}")
    job = braced(example(), STEPS)
    assert await soak(job, tmp_path / "out", Storm(STORM_ROWS, SEED), ("exact", EXACT_SHARE)) == []
