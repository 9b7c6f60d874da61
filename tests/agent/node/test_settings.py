"""What a node agent must be told, and what it says of what it was told wrongly."""

from __future__ import annotations

from pathlib import Path

import pytest

from robustrl.node.settings import BadSettings, Settings
from robustrl_api.node import XidSeverity

FULL = {
    "ROBUSTRL_NODE_NAME": "n1",
    "ROBUSTRL_CONTROL_URL": "https://robustrl-operator.robustrl-system.svc:8443",
    "ROBUSTRL_CA_FILE": "/identity/ca.crt",
    "ROBUSTRL_TOKEN_FILE": "/identity/token",
    "ROBUSTRL_EXPORTER_URL": "http://10.0.0.1:9400/metrics",
    "ROBUSTRL_CGROUP_ROOT": "/host/cgroup",
    "ROBUSTRL_XIDS": "63=Gpu",
}


def test_everything_is_read() -> None:
    settings = Settings.from_environment(FULL)
    assert (settings.node, settings.exporter_url) == ("n1", "http://10.0.0.1:9400/metrics")
    assert (settings.access.ca_file, settings.access.token_file) == ("/identity/ca.crt", "/identity/token")
    assert settings.cgroup_root == Path("/host/cgroup")
    assert settings.xids[63].severity is XidSeverity.GPU


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"ROBUSTRL_NODE_NAME": ""}, "ROBUSTRL_NODE_NAME is not set"),
        ({"ROBUSTRL_CONTROL_URL": ""}, "ROBUSTRL_CONTROL_URL is not set"),
        ({"ROBUSTRL_CONTROL_URL": "operator:8443"}, "ROBUSTRL_CONTROL_URL: 'operator:8443' is no http address"),
        ({"ROBUSTRL_EXPORTER_URL": "n1:9400"}, "ROBUSTRL_EXPORTER_URL: 'n1:9400' is no http address"),
        ({"ROBUSTRL_EXPORTER_URL": "", "ROBUSTRL_CGROUP_ROOT": ""}, "there is nothing to look at"),
        ({"ROBUSTRL_XIDS": "63=Fatal"}, "ROBUSTRL_XIDS: '63=Fatal'"),
    ],
)
def test_what_is_missing_or_wrong_is_named(change: dict[str, str], named: str) -> None:
    with pytest.raises(BadSettings) as refused:
        Settings.from_environment(FULL | change)
    assert named in str(refused.value)
