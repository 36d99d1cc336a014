"""Cluster graphs against closed forms: counts, diameters, bisection bandwidths."""

from __future__ import annotations

import itertools
import math

import networkx as nx
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from paceline.topologies.graphs import measures
from paceline.topologies.graphs.graph import Graph
from paceline.topologies.graphs.graph_registry import NODES, TOPOLOGIES, build
from paceline.topologies.graphs.links import LINKS
from paceline.topologies.graphs.machines import dgx1, dual_root_pcie, nvswitch_node, pcie_tree
from paceline.topologies.graphs.network_graphs import dragonfly, fat_tree, hypercube, leaf_spine, ring, star, torus
from tests.thorough import examples

B = LINKS["eth-10g"].bytes_per_s


def figures(graph: Graph) -> tuple[int, int, int, float | None]:
    said = graph.describe()
    return said.nodes, said.links, said.diameter_hops, said.bisection.bytes_per_s


def cheapest_halves(graph: Graph) -> float:
    """The bisection bandwidth by trying every half of the end points."""
    ends = graph.endpoints
    return min(
        measures.least_cut(graph, half, tuple(end for end in ends if end not in half))
        for half in itertools.combinations(ends, len(ends) // 2)
    )


@given(hosts=st.integers(2, 300), cables=st.integers(1, 4))
def test_star(hosts: int, cables: int) -> None:
    assert figures(star(hosts=hosts, cables=cables)) == (hosts + 1, hosts * cables, 2, hosts // 2 * cables * B)


@given(hosts=st.integers(3, 300))
def test_ring(hosts: int) -> None:
    assert figures(ring(hosts=hosts)) == (hosts, hosts, hosts // 2, 2 * B)


@given(sides=st.lists(st.integers(2, 7), min_size=2, max_size=3))
def test_torus(sides: list[int]) -> None:
    graph, hosts = torus(sides=tuple(sides)), math.prod(sides)
    links = sum(hosts if side > 2 else hosts // 2 for side in sides)
    assert (len(graph.vertices), len(graph.connections)) == (hosts, links)
    assert measures.diameter_hops(graph) == sum(side // 2 for side in sides)
    if max(sides) % 2 == 0 and max(sides) > 2:
        assert graph.describe().bisection.bytes_per_s == 2 * hosts // max(sides) * B


@given(dimensions=st.integers(1, 9))
def test_hypercube(dimensions: int) -> None:
    hosts = 2**dimensions
    assert figures(hypercube(dimensions=dimensions)) == (hosts, hosts * dimensions // 2, dimensions, hosts // 2 * B)


@given(leaves=st.integers(2, 12), spines=st.integers(1, 6), hosts=st.integers(1, 12), uplinks=st.integers(1, 3))
def test_leaf_spine(leaves: int, spines: int, hosts: int, uplinks: int) -> None:
    graph = leaf_spine(leaves=leaves, spines=spines, hosts_per_leaf=hosts, uplinks=uplinks)
    nodes, links, diameter, _ = figures(graph)
    assert nodes == leaves + spines + leaves * hosts
    assert links == leaves * spines * uplinks + leaves * hosts
    assert diameter == 4


@pytest.mark.parametrize("k", [2, 4, 6, 8, 16])
def test_fat_tree(k: int) -> None:
    hosts = k**3 // 4
    graph = fat_tree(k=k)
    assert figures(graph) == (hosts + 5 * k * k // 4, 3 * hosts, 6, hosts // 2 * B)
    switches = graph.of_kind("switch")
    assert {graph.nx.degree(switch) for switch in switches} == {k}


@given(
    groups=st.integers(1, 5),
    rows=st.integers(1, 3),
    columns=st.integers(1, 5),
    hosts=st.integers(1, 3),
    pairs=st.integers(1, 6),
)
def test_dragonfly(groups: int, rows: int, columns: int, hosts: int, pairs: int) -> None:
    graph = dragonfly(
        groups=groups, rows=rows, columns=columns, hosts_per_router=hosts, column_links=3, pair_links=pairs
    )
    routers = groups * rows * columns
    inside = rows * math.comb(columns, 2) + 3 * columns * math.comb(rows, 2)
    assert len(graph.vertices) == routers * (1 + hosts)
    links = sum(connection.count for connection in graph.connections)
    assert links == routers * hosts + groups * inside + pairs * math.comb(groups, 2)
    assert measures.diameter_hops(graph) <= 2 + 2 + 1 + 2  # host, row and column, group, row and column, host


@given(roots=st.integers(1, 2), switches=st.integers(1, 4), gpus=st.integers(1, 5), nics=st.integers(0, 4))
def test_pcie_tree(roots: int, switches: int, gpus: int, nics: int) -> None:
    graph = pcie_tree(roots=roots, switches=switches, gpus_per_switch=gpus, nics=nics)
    ports = roots * switches
    assert len(graph.vertices) == roots + ports + ports * gpus + nics
    assert nx.is_tree(graph.nx)
    farthest = 5 if roots == 2 else 4 if switches > 1 else 2
    assert measures.diameter_hops(graph) == farthest


# --- known machines --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("gpu", "link", "each"), [("p100", "nvlink1", 4), ("v100", "nvlink2", 6)])
def test_every_gpu_of_a_dgx1_has_all_its_nvlinks(gpu: str, link: str, each: int) -> None:
    graph = dgx1(gpu=gpu)
    ends = dict.fromkeys(graph.of_kind("device"), 0)
    for connection in graph.connections:
        if connection.link.name == link:
            for end in connection.ends:
                ends[end] += connection.count
    assert ends == dict.fromkeys((f"gpu{number}" for number in range(8)), each)


@pytest.mark.parametrize(("gpu", "across"), [("p100", 4 * 18e9 + 6e9), ("v100", 6 * 20e9 + 6e9)])
def test_a_dgx1_is_cut_between_its_quads(gpu: str, across: float) -> None:
    """The NVLinks between quads, and QPI."""
    assert dgx1(gpu=gpu).describe().bisection.bytes_per_s == across


def test_known_bisections() -> None:
    assert dual_root_pcie().describe().bisection.bytes_per_s == 6e9
    nvlink_and_bus = 4 * 12 * 20e9 + 16e9
    assert nvswitch_node(gpus=8, links_per_gpu=12, switches=6).describe().bisection.bytes_per_s == nvlink_and_bus


# --- the measures themselves -----------------------------------------------------------------------------------------

SMALL = [
    *(build(name) for name in NODES),
    star(hosts=7), ring(hosts=9), torus(sides=(4, 2)), torus(sides=(3, 3)), torus(sides=(2, 2, 2)), torus(sides=(3, 4)),
    hypercube(dimensions=3), fat_tree(k=2), leaf_spine(leaves=2, spines=1, hosts_per_leaf=4),
    leaf_spine(leaves=3, spines=2, hosts_per_leaf=3), leaf_spine(leaves=3, spines=1, hosts_per_leaf=3, uplink="eth-1g"),
    dragonfly(groups=3, rows=1, columns=2, hosts_per_router=1),
]  # fmt: skip


@pytest.mark.parametrize("graph", SMALL, ids=lambda graph: f"{graph.name}-{len(graph.vertices)}")
def test_small_bisections_are_those_of_the_cheapest_halves(graph: Graph) -> None:
    said = graph.describe().bisection
    assert said.method.startswith("exact")
    assert said.bytes_per_s == pytest.approx(cheapest_halves(graph), rel=1e-12)


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_diameters_are_networkxs(name: str) -> None:
    """Leaving out duplicates, and searching from one vertex of a symmetric graph, changes nothing."""
    graph = build(name)
    assert measures.diameter_hops(graph) == nx.diameter(graph.nx)


@examples(20, 200)
@given(sides=st.lists(st.integers(2, 4), min_size=2, max_size=3), seed=st.integers(0, 99))
def test_the_diameter_of_any_graph_is_networkxs(sides: list[int], seed: int) -> None:
    import dataclasses

    import numpy as np

    graph = torus(sides=tuple(sides))
    kept = np.random.default_rng(seed).random(len(graph.connections)) < 0.8
    cut = tuple(one for one, stays in zip(graph.connections, kept, strict=True) if stays)
    broken = dataclasses.replace(graph, connections=cut, all_alike=False)
    assume(nx.is_connected(broken.nx))
    assert measures.diameter_hops(broken) == nx.diameter(broken.nx)
