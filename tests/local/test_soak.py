"""The whole example through a storm of random faults: it learns as if there had been none, and nothing is broken.

Five minutes of it, counted in steps, as a slow machine takes longer. Runs when it is asked for, ROBUSTRL_SOAK=1;
ROBUSTRL_SEED sets the storm (1). `make soak MINUTES=30` is the same for longer.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.local.conftest import example

from robustrl_operator.cli.soak import STEPS_A_MINUTE, soak
from robustrl_operator.soak.soak import STORM_ROWS
from robustrl_operator.soak.storm import Storm
from robustrl_operator.soak.terms import braced

MINUTES = 5
SEED = int(os.environ.get("ROBUSTRL_SEED", "1"))
EXACT_SHARE = 0.9


@pytest.mark.local
@pytest.mark.skipif("ROBUSTRL_SOAK" not in os.environ, reason="takes many minutes: ROBUSTRL_SOAK=1")
@pytest.mark.timeout(2400)
async def test_a_storm_changes_nothing(tmp_path: Path) -> None:
    print(f"ROBUSTRL_SEED={SEED}")
    job = braced(example(), MINUTES * STEPS_A_MINUTE)
    assert await soak(job, tmp_path / "out", Storm(STORM_ROWS, SEED), ("exact", EXACT_SHARE)) == []
