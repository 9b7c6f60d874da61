"""The proxy that the environment may name is for the world outside: nothing of a cluster is behind it.

kubectl and Helm would ask it for the API server, which it cannot reach.
"""

from __future__ import annotations

import os
import urllib.request
from collections.abc import MutableMapping

RANGES = ("172.30.0.0/16", "10.128.0.0/10", "10.96.0.0/16")
"""Of all clusters' machines, their pods and Services (see layout.py)."""
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Asks without it."""


def bypass(environment: MutableMapping[str, str] = os.environ) -> None:
    """Have the programs that are started from here on speak to clusters directly."""
    names = ("NO_PROXY", "no_proxy")
    known = [part for name in names for part in environment.get(name, "").split(",") if part]
    for name in names:
        environment[name] = ",".join(dict.fromkeys([*known, *RANGES]))
