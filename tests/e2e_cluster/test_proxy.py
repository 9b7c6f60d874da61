"""kubectl and Helm reach the cluster where the environment names a proxy."""

from __future__ import annotations

from ipaddress import IPv4Network

from robustrl_e2e.cluster import layout, proxy


def test_what_the_user_excepts_stays_and_the_cluster_is_added_once() -> None:
    environment = {"NO_PROXY": "localhost,.example.com", "no_proxy": "me", "HTTPS_PROXY": "http://proxy:3128"}
    for _ in range(2):
        proxy.bypass(environment)
    for name in ("NO_PROXY", "no_proxy"):
        assert environment[name] == "localhost,.example.com,me,172.30.0.0/16,10.128.0.0/10,10.96.0.0/16"


def test_every_address_of_a_cluster_is_in_the_ranges() -> None:
    ranges = [IPv4Network(each) for each in proxy.RANGES]
    slots = (layout.machines_range(layout.SLOTS - 1), layout.pods_range(layout.SLOTS - 1), layout.SERVICES)
    assert all(any(mine.subnet_of(each) for each in ranges) for mine in slots)
