"""A limit on a machine's traffic, as tc has it."""

from __future__ import annotations

import pytest

from robustrl_e2e.cluster import network
from robustrl_e2e.cluster.layout import Cluster

NODE1 = Cluster("x", 2, slot=7).worker("node1")


class Tc:
    """Holds what each device has at its root; deletes only what was put there, as tc does."""

    def __init__(self) -> None:
        self.limited: set[str] = set()

    def __call__(self, *words: str) -> str:
        action, device = words[words.index("qdisc") + 1], words[words.index("dev") + 1]
        if action == "replace":
            self.limited.add(device)
        elif action == "delete":
            self.limited.remove(device)
        return "qdisc tbf 8001: root refcnt 2 rate 10Mbit" if device in self.limited else "qdisc noqueue 0: root"


def test_a_limit_is_on_both_ends_of_the_cable_until_it_is_lifted(monkeypatch: pytest.MonkeyPatch) -> None:
    tc = Tc()
    monkeypatch.setattr(network, "run", tc)
    network.limit_rate(NODE1, 10)
    assert tc.limited == {NODE1.veth, "eth0"}
    network.limit_rate(NODE1, None)
    assert tc.limited == set()


def test_to_lift_a_limit_twice_is_harmless_and_so_is_half_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    tc = Tc()
    monkeypatch.setattr(network, "run", tc)
    network.limit_rate(NODE1, None)
    tc.limited = {"eth0"}
    network.limit_rate(NODE1, None)
    assert tc.limited == set()
