"""Groups that are alike have equal prices, which are found for one of them only."""

from __future__ import annotations

import pytest

from paceline import load
from paceline.algorithms.core.values import Group, Rank
from paceline.simulator.network.network import ClusterNetwork
from paceline.simulator.runs.cost_model import cluster_network


def network(*changes: str) -> ClusterNetwork:
    (plan,) = load("fat-tree-128", ["cluster.nodes[0].count=8", *changes], algorithms=["sync-sgd"]).plans()
    return cluster_network(plan)


PROCESSORS = "cluster.nodes=[{device: xeon-e5-2680v4, workers_per_node: 6, count: 8}]"


@pytest.mark.parametrize("size", [2, 3, 8])
@pytest.mark.parametrize("nbytes", [1000, 10_000_000])
@pytest.mark.parametrize("changes", [[], [PROCESSORS]])
def test_prices_of_alike_groups_are_those_of_each_group(size: int, nbytes: int, changes: list[str]) -> None:
    shared, apart = network(*changes), network(*changes)
    ranks = [Rank(rank) for rank in range(apart.cluster.workers // size * size)]
    groups = [tuple(ranks[low : low + size]) for low in range(0, len(ranks), size)]
    alike = shared.fabric.alike(groups)
    assert alike is not None
    assert len(set(alike.like)) < len(groups)
    for number, group in enumerate(groups):
        ports, seconds = shared.alone("AllReduce", Group(groups[alike.like[number]]), nbytes, 0)
        expected, expected_s = apart.alone("AllReduce", Group(group), nbytes, 0)
        assert seconds == expected_s
        assert alike.renamed(number, ports) == expected


def test_groups_inside_and_between_nodes_and_of_different_sizes_are_not_alike() -> None:
    fabric = network().fabric
    assert fabric.alike([(Rank(0), Rank(1)), (Rank(2), Rank(3), Rank(4))]) is None
    found = fabric.alike([(Rank(0), Rank(1)), (Rank(0), Rank(fabric._cluster.workers - 1))])
    assert found is not None
    assert found.like == (0, 1)
