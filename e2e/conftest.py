"""What the tests on the development cluster share: one cluster with the operator of this working tree."""

from __future__ import annotations

import os

import pytest

from robustrl_e2e import cluster, stack


@pytest.fixture(scope="session")
def running() -> cluster.Cluster:
    """The cluster, with images and operator built from this working tree. It is left running for the next time."""
    if os.geteuid() != 0:
        pytest.skip("a cluster without Docker needs root")
    return stack.bring_up(os.environ.get("ROBUSTRL_CLUSTER", "robustrl"))
