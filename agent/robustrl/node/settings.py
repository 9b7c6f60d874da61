"""The node agent's settings, from the environment that the Helm chart sets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from robustrl.control_access import ControlAccess
from robustrl.node.xids import XidMeaning, overridden

NODE_NAME = "ROBUSTRL_NODE_NAME"
CONTROL_URL = "ROBUSTRL_CONTROL_URL"
CA_FILE = "ROBUSTRL_CA_FILE"
TOKEN_FILE = "ROBUSTRL_TOKEN_FILE"
EXPORTER_URL = "ROBUSTRL_EXPORTER_URL"
CGROUP_ROOT = "ROBUSTRL_CGROUP_ROOT"
XIDS = "ROBUSTRL_XIDS"


class BadSettings(Exception):
    """The environment does not say what it must, or says what cannot be."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a node agent reads, and to whom it reports."""

    node: str
    """Name of the node that it runs on."""
    access: ControlAccess
    xids: Mapping[int, XidMeaning]
    exporter_url: str = ""
    """The page of this node's dcgm-exporter; empty for none."""
    cgroup_root: Path | None = None
    """The node's cgroup file system; None where pods' processor time is not read."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Settings:
        """Read them.

        Raises:
            BadSettings: with the name of the variable that is missing or wrong.
        """
        exporter, root = environment.get(EXPORTER_URL, ""), environment.get(CGROUP_ROOT, "")
        if not exporter and not root:
            raise BadSettings(f"neither {EXPORTER_URL} nor {CGROUP_ROOT} is set: there is nothing to look at")
        if exporter:
            _checked_url(environment, EXPORTER_URL)
        try:
            xids = overridden(environment.get(XIDS, ""))
        except ValueError as error:
            raise BadSettings(f"{XIDS}: {error}") from error
        access = ControlAccess(
            _checked_url(environment, CONTROL_URL), environment.get(CA_FILE, ""), environment.get(TOKEN_FILE, "")
        )
        return cls(_required(environment, NODE_NAME), access, xids, exporter, Path(root) if root else None)


def _required(environment: Mapping[str, str], name: str) -> str:
    if not environment.get(name):
        raise BadSettings(f"{name} is not set")
    return environment[name]


def _checked_url(environment: Mapping[str, str], name: str) -> str:
    url = _required(environment, name)
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadSettings(f"{name}: {url!r} is no http address")
    return url
