from dataclasses import replace
from ipaddress import IPv4Network

import pytest

from robustrl_e2e.cluster import layout
from robustrl_e2e.cluster.layout import Cluster, Machine

NAMES = ["robustrl", "a", "a-node1", "e2e-tests", "x" * 20]


@pytest.mark.parametrize("name", NAMES)
def test_interface_names_fit_the_kernel(name: str) -> None:
    cluster = Cluster(name, layout.MAX_NODES)
    for link in (cluster.bridge, *(machine.veth for machine in cluster.machines)):
        assert len(link) <= 15
        assert layout.is_link_of(name, link)


@pytest.mark.parametrize("name", NAMES)
def test_a_cluster_claims_only_what_is_its_own(name: str) -> None:
    for other in NAMES:
        machines = Cluster(other, 3).machines
        claimed = [layout.is_netns_of(name, machine.netns) for machine in machines]
        assert claimed == [other == name] * 4
        assert layout.is_link_of(name, machines[0].veth) == (other == name)


@pytest.mark.parametrize("name", ["", "A", "1st", "with_underscore", "dot.dot", "../up", "x" * 21])
def test_names_that_cannot_be_used(name: str) -> None:
    with pytest.raises(ValueError, match="cluster name"):
        Cluster(name, 1)


@pytest.mark.parametrize("nodes", [0, -1, layout.MAX_NODES + 1])
def test_numbers_of_nodes_that_cannot_be_used(nodes: int) -> None:
    with pytest.raises(ValueError, match="nodes"):
        Cluster("x", nodes)


def test_addresses_of_all_slots_are_apart() -> None:
    ranges = [r for slot in range(layout.SLOTS) for r in (layout.machines_range(slot), layout.pods_range(slot))]
    ranges.append(layout.SERVICES)
    assert not any(a.overlaps(b) for i, a in enumerate(ranges) for b in ranges[:i])


def test_machines_are_inside_their_slot() -> None:
    cluster = Cluster("x", layout.MAX_NODES, slot=63)
    for machine in cluster.machines:
        assert IPv4Network(machine.address).subnet_of(cluster.machines_range)
        assert machine.pods.subnet_of(cluster.pods_range)
        assert machine.address != cluster.gateway
    assert len({machine.mac for machine in cluster.machines}) == layout.MAX_NODES + 1


def test_a_slot_depends_on_the_name_alone_while_it_is_free() -> None:
    assert layout.choose_slot("robustrl", frozenset()) == layout.choose_slot("robustrl", frozenset())


def test_a_slot_in_use_is_passed_over() -> None:
    first = layout.choose_slot("robustrl", frozenset())
    second = layout.choose_slot("robustrl", frozenset({layout.machines_range(first)}))
    third = layout.choose_slot("robustrl", frozenset({layout.pods_range(first), layout.machines_range(second)}))
    assert len({first, second, third}) == 3


def test_no_slot_is_left() -> None:
    with pytest.raises(ValueError, match="in use"):
        layout.choose_slot("robustrl", frozenset({IPv4Network("172.16.0.0/12")}))


def test_the_last_node_is_for_managers() -> None:
    cluster = Cluster("x", 8)
    assert [cluster.pool(name) for name in cluster.node_names] == ["gpu"] * 7 + ["cpu"]
    larger = replace(cluster, nodes=9)
    assert [larger.pool(name) for name in larger.node_names] == ["gpu"] * 7 + ["cpu"] * 2


def test_an_unknown_node_is_named_with_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"node9.*node1, node2"):
        Cluster("x", 2).worker("node9")


def test_the_control_plane_is_no_node() -> None:
    assert Machine("x", 0, 0).name not in Cluster("x", 2).node_names
