"""The whole example through a storm of random faults: it learns through it, and nothing is broken.

Counted in steps, as a slow machine takes longer: more than five minutes on two cores. Runs when it is asked for,
ROBUSTRL_SOAK=1; ROBUSTRL_SEED sets the storm (1). `make soak MINUTES=30` is the same for longer.
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

STEPS = 200
SEED = int(os.environ.get("ROBUSTRL_SEED", "1"))
EXACT_SHARE = 0.65
"""Of the last ten steps. So few steps end before the curve is flat, so runs differ: in one process and without faults
three seeds reached 0.88 to 0.90 in 200 steps, two 0.84 and 0.88 in 180; storms over 180 steps ended at 0.71 and 0.86
(all with 32 prompts of 16 samples a step, which learn a little less than what the example has now). A job that does not
learn is at 0.00."""


@pytest.mark.local
@pytest.mark.skipif("ROBUSTRL_SOAK" not in os.environ, reason="takes many minutes: ROBUSTRL_SOAK=1")
@pytest.mark.timeout(2400)
async def test_a_storm_changes_nothing(tmp_path: Path) -> None:
    print(f"ROBUSTRL_SEED={SEED}")
    job = braced(example(), STEPS)
    assert await soak(job, tmp_path / "out", Storm(STORM_ROWS, SEED), ("exact", EXACT_SHARE)) == []
