"""The CRD in the repository and in the chart is the one that the models give."""

from __future__ import annotations

from pathlib import Path

import pytest

from robustrl_api.crd import render

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("path", ["crds/rljob.yaml", "charts/robustrl/crds/rljob.yaml"])
def test_checked_in_crd_is_current(path: str) -> None:
    assert (ROOT / path).read_text() == render(), f"{path} is not what the models give: run `make crd`"
