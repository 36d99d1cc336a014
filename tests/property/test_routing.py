"""Properties of routes in every graph: they are paths of it, as short as possible, spread, and avoid broken links."""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import pairwise

import networkx as nx
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from paceline.algorithms.core.errors import InputError
from paceline.topologies.graphs.graph import Connection, Graph, Kind, Vertex
from paceline.topologies.graphs.graph_registry import TOPOLOGIES, build
from paceline.topologies.graphs.links import LinkModel
from paceline.topologies.graphs.machines import dgx1
from paceline.topologies.graphs.network_graphs import dragonfly, fat_tree, leaf_spine, ring, star
from paceline.topologies.graphs.routing import NoRoute, Route, Routes, Rule, port

FORWARD = {"switch", "nic", "host"}
KINDS: list[Kind] = ["device", "host", "switch", "nic", "memory"]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Any graph of up to ten vertices, connected or not."""
    size = draw(st.integers(2, 10))
    kinds: list[Kind] = [draw(st.sampled_from(KINDS)) for _ in range(size)]
    pairs = [(a, b) for b in range(size) for a in range(b)]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=18))
    connections = tuple(
        Connection(
            ends=(f"v{a}", f"v{b}"),
            link=LinkModel(
                name="any", latency_s=1e-6, bytes_per_s=draw(st.sampled_from([1.0, 2.0, 5.0])), provenance="made up"
            ),
            count=draw(st.integers(1, 3)),
        )
        for a, b in chosen
    )
    vertices = tuple(Vertex(name=f"v{n}", kind=kind, place=(float(n), 0.0)) for n, kind in enumerate(kinds))
    return Graph(name="any", vertices=vertices, connections=connections, provenance="made up")


def allowed(graph: Graph, source: str, to: str) -> nx.Graph[str]:
    """Returns the nodes that a route between the two may use."""
    keep = [vertex.name for vertex in graph.vertices if vertex.kind in FORWARD or vertex.name in {source, to}]
    return graph.nx.subgraph(keep)


def check(graph: Graph, route: Route, source: str, to: str) -> None:
    assert route.vertices[0] == source
    assert route.vertices[-1] == to
    assert len(set(route.vertices)) == len(route.vertices)
    hops = list(pairwise(route.vertices))
    assert all(allowed(graph, source, to).has_edge(*hop) for hop in hops)
    assert route.connections == tuple(graph.nx.edges[hop]["connection"] for hop in hops)
    assert route.ports == tuple(port(*hop) for hop in hops)
    assert route.latency_s == sum(connection.link.latency_s for connection in route.connections)


def width(graph: Graph, way: list[str]) -> float:
    connections: list[Connection] = [graph.nx.edges[hop]["connection"] for hop in pairwise(way)]
    return min(connection.bytes_per_s for connection in connections)


@given(graph=graphs(), data=st.data())
def test_routes_are_shortest_and_of_these_widest(graph: Graph, data: st.DataObject) -> None:
    names = [vertex.name for vertex in graph.vertices]
    source, to = data.draw(st.sampled_from(names)), data.draw(st.sampled_from(names))
    inside = allowed(graph, source, to)
    rules: tuple[Rule, ...] = ("shortest", "ecmp")
    for rule in rules:
        routes = Routes(graph, rule)
        if not nx.has_path(inside, source, to):
            with pytest.raises(NoRoute, match="nothing joins"):
                routes.between(source, to)
            continue
        for flow in range(3):
            route = routes.between(source, to, flow)
            check(graph, route, source, to)
            assert len(route.connections) == nx.shortest_path_length(inside, source, to)
            if rule == "shortest" and source != to:
                ways = nx.all_shortest_paths(inside, source, to)
                assert route.bytes_per_s == max(width(graph, way) for way in ways)


@given(graph=graphs(), data=st.data())
def test_ecmp_takes_all_ways_that_are_equally_short(graph: Graph, data: st.DataObject) -> None:
    names = [vertex.name for vertex in graph.vertices]
    source, to = data.draw(st.sampled_from(names)), data.draw(st.sampled_from(names))
    inside = allowed(graph, source, to)
    assume(source != to and nx.has_path(inside, source, to))
    ways = {tuple(way) for way in nx.all_shortest_paths(inside, source, to)}
    assume(len(ways) <= 6)
    routes = Routes(graph, "ecmp")
    assert {routes.between(source, to, flow).vertices for flow in range(400)} == ways


@given(graph=graphs(), data=st.data())
def test_what_is_broken_is_gone_round(graph: Graph, data: st.DataObject) -> None:
    assume(graph.connections)
    gone = data.draw(st.lists(st.sampled_from(graph.connections), min_size=1, max_size=4, unique=True))
    left = Graph(
        name="any",
        vertices=graph.vertices,
        connections=tuple(one for one in graph.connections if one not in gone),
        provenance="made up",
    )
    source, to = (data.draw(st.sampled_from(graph.vertices)).name for _ in range(2))
    routes = Routes(graph).without(one.ends for one in gone[:1]).without((one.ends[1], one.ends[0]) for one in gone[1:])
    if nx.has_path(allowed(left, source, to), source, to):
        assert routes.between(source, to) == Routes(left).between(source, to)
    else:
        with pytest.raises(NoRoute):
            routes.between(source, to)


@pytest.mark.parametrize("name", TOPOLOGIES)
@given(data=st.data())
def test_every_graph_that_is_built_is_routed(name: str, data: st.DataObject) -> None:
    graph = BUILT.setdefault(name, build(name))
    source, to = (data.draw(st.sampled_from(graph.endpoints)) for _ in range(2))
    rule: Rule = data.draw(st.sampled_from(["shortest", "ecmp"]))
    striped = getattr(graph, "striped", lambda: graph)()
    route = Routes(graph, rule).between(source, to, data.draw(st.integers(0, 9)))
    check(striped, route, source, to)
    assert len(route.connections) == nx.shortest_path_length(allowed(striped, source, to), source, to)


BUILT: dict[str, Graph] = {}


def test_ecmp_spreads_evenly() -> None:
    """16 ways between pods; each gets 1/16 of 4000 flows, to five standard deviations."""
    routes = Routes(fat_tree(k=8), "ecmp")
    counts: dict[tuple[str, ...], int] = {}
    for flow in range(4000):
        way = routes.between("host0", "host127", flow).vertices
        counts[way] = counts.get(way, 0) + 1
    assert len(counts) == 16
    assert all(abs(count - 250) < 5 * (4000 * 15 / 16**2) ** 0.5 for count in counts.values())


def test_the_seed_changes_what_is_picked() -> None:
    graph = leaf_spine(leaves=2, spines=16, hosts_per_leaf=1)
    picked = [
        [Routes(graph, "ecmp", seed).between("host0", "host1", flow).vertices for flow in range(9)] for seed in (0, 1)
    ]
    assert picked[0] != picked[1]


def test_every_process_picks_the_same() -> None:
    code = (
        "from paceline.topologies.graphs.routing import Routes\n"
        "from paceline.topologies.graphs.network_graphs import fat_tree\n"
        "routes = Routes(fat_tree(k=8), 'ecmp')\n"
        "print([routes.between('host0', 'host127', flow).vertices for flow in range(20)])"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": seed}
        )
        for seed in ("1", "2")
    ]
    assert runs[0].stdout == runs[1].stdout


# --- dragonflies -----------------------------------------------------------------------------------------------------


def groups_of(route: Route) -> list[int]:
    """The groups that a route passes, in order."""
    found = [int(match[1]) for name in route.vertices if (match := re.match(r"router(\d+)\.", name))]
    return [group for n, group in enumerate(found) if n == 0 or group != found[n - 1]]


@st.composite
def dragonflies(draw: st.DrawFn) -> Graph:
    return dragonfly(
        groups=draw(st.integers(1, 5)),
        rows=draw(st.integers(1, 3)),
        columns=draw(st.integers(1, 3)),
        hosts_per_router=draw(st.integers(1, 2)),
        pair_links=draw(st.integers(1, 4)),
    )


@given(graph=dragonflies(), data=st.data())
def test_minimal_and_valiant_pass_the_groups_they_should(graph: Graph, data: st.DataObject) -> None:
    assume(len(graph.endpoints) > 1)
    source, to = data.draw(st.lists(st.sampled_from(graph.endpoints), min_size=2, max_size=2, unique=True))
    flow = data.draw(st.integers(0, 99))
    minimal = Routes(graph, "minimal").between(source, to, flow)
    check(graph, minimal, source, to)
    groups = groups_of(minimal)
    assert len(groups) <= 2
    assert len(minimal.connections) <= 2 + (2 if len(groups) == 1 else 5)  # rows and columns: two hops a group
    valiant = Routes(graph, "valiant").between(source, to, flow)
    check(graph, valiant, source, to)
    several = len(set(groups)) == 2 and len(graph.nx) > 0 and group_count(graph) > 2
    assert len(groups_of(valiant)) == (3 if several else len(groups))
    assert len(valiant.connections) <= 2 + (8 if several else 5)
    assert groups_of(valiant)[:: len(groups_of(valiant)) - 1 or 1] == groups[:: len(groups) - 1 or 1]


def group_count(graph: Graph) -> int:
    return len({name.split(".")[0] for name in graph.of_kind("switch")})


def test_minimal_is_no_detour_through_a_third_group() -> None:
    """One global link a pair, far from both ends: two global hops over a third group would be fewer hops."""
    graph = dragonfly(groups=5, rows=2, columns=2, hosts_per_router=1, pair_links=1)
    routes, fewest = Routes(graph, "minimal"), Routes(graph, "shortest")
    pairs = [(one, other) for one in graph.endpoints for other in graph.endpoints if one != other]
    assert all(len(groups_of(routes.between(*pair))) <= 2 for pair in pairs)
    assert all(len(routes.between(*pair).connections) >= len(fewest.between(*pair).connections) for pair in pairs)


def test_valiant_takes_every_group_in_between() -> None:
    graph = dragonfly(groups=6, rows=2, columns=2, hosts_per_router=1)
    routes = Routes(graph, "valiant")
    assert {groups_of(routes.between("host0", "host23", flow))[1] for flow in range(200)} == {1, 2, 3, 4}


def test_groups_that_are_parted_are_joined_over_a_third() -> None:
    graph = dragonfly(groups=3, rows=1, columns=2, hosts_per_router=1, pair_links=1)
    direct = [
        one.ends for one in graph.connections if {end.split(".")[0] for end in one.ends} == {"router0", "router1"}
    ]
    rules: tuple[Rule, ...] = ("minimal", "valiant")
    for rule in rules:
        assert groups_of(Routes(graph, rule).without(direct).between("host0", "host2")) == [0, 2, 1]


def test_dragonflies_of_nodes_with_several_nics_are_routed() -> None:
    graph = build("dragonfly", {"groups": "4", "rows": "2", "columns": "2", "node": "dgx1"})
    rules: tuple[Rule, ...] = ("minimal", "valiant")
    for rule in rules:
        for source, to in (("host0.gpu0", "host31.gpu5"), ("host0.gpu0", "host0.gpu5"), ("host0.gpu0", "host1.gpu0")):
            check(graph, Routes(graph, rule).between(source, to), source, to)


# --- what is refused, and small cases --------------------------------------------------------------------------------


def test_gpus_of_a_dgx1_do_not_forward() -> None:
    routes = Routes(dgx1())
    assert routes.between("gpu0", "gpu1").vertices == ("gpu0", "gpu1")
    assert routes.between("gpu0", "gpu5").vertices == ("gpu0", "pcie0", "cpu0", "cpu1", "pcie2", "gpu5")


def test_a_vertex_reaches_itself_without_a_hop() -> None:
    route = Routes(star()).between("host1", "host1")
    assert (route.vertices, route.ports, route.latency_s, route.bytes_per_s) == (("host1",), (), 0, float("inf"))


def test_parallel_cables_are_one_link() -> None:
    routes = Routes(star(cables=3, link="eth-10g"))
    route = routes.between("host0", "host1")
    assert route.bytes_per_s == 3 * 1.15e9
    assert {routes.capacity[one] for one in route.ports} == {3 * 1.15e9}
    assert len(routes.without([("switch", "host0")]).capacity) == len(routes.capacity) - 2 == 14


def test_what_is_refused() -> None:
    with pytest.raises(InputError, match=r"minimal is for dragonflies .* found star"):
        Routes(star(), "minimal")
    with pytest.raises(InputError, match="valiant is for dragonflies"):
        Routes(dgx1(), "valiant")
    with pytest.raises(InputError, match="routing: found 'best', expected auto, shortest, ecmp, minimal or valiant"):
        Routes(star(), "best")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"has no vertex 'hots1' \(did you mean host1\?\)"):
        Routes(star()).between("host0", "hots1")
    with pytest.raises(InputError, match="host0 and host1: nothing joins the two"):
        Routes(star()).without([("host0", "host1")])
    parted = Routes(ring(hosts=3)).without([("host0", "host1")])
    with pytest.raises(InputError, match="are parted already"):
        parted.without([("host1", "host0")])


def test_an_island_has_no_route() -> None:
    with pytest.raises(NoRoute, match="star: nothing joins host0 and host1 any more"):
        Routes(star()).without([("switch", "host0")]).between("host0", "host1")
