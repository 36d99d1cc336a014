"""Cluster graphs from files: their content, its meaning, and refusals with all mistakes at once."""

from __future__ import annotations

import contextlib
import doctest
import json
import math
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from paceline import scenarios, simulate
from paceline.algorithms.core.errors import InputError
from paceline.cli.app import app
from paceline.topologies.graphs.compose import compose
from paceline.topologies.graphs.graph import Graph
from paceline.topologies.graphs.graph_registry import NETWORKS, build
from paceline.topologies.graphs.machines import dgx1
from paceline.topologies.graphs.network_graphs import torus
from paceline.topologies.graphs.routing import NoRoute, Routes
from paceline.topologies.importing import load
from paceline.topologies.importing.assembly import bytes_per_s, seconds
from paceline.topologies.importing.attributed import node_link
from paceline.topologies.importing.nvidia_smi import machine
from paceline.topologies.importing.simgrid import platform
from paceline.topologies.importing.simgrid_routes import Listed, joined
from paceline.workloads.models.layer_tables import find_model
from tests.thorough import examples

DATA = Path(__file__).parents[1] / "data/topologies"
FILES = sorted(DATA.iterdir())


def edges(graph: Graph) -> dict[frozenset[str], tuple[str, int]]:
    return {frozenset(one.ends): (one.link.name, one.count) for one in graph.connections}


def refused(text: str, tmp_path: Path) -> str:
    path = tmp_path / "file"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as error:
        load(path)
    return str(error.value)


# --- quantities ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("125MBps", 125e6), ("1.25 GB/s", 1.25e9), ("10Gbps", 1.25e9), ("100 Gbit/s", 12.5e9), ("1KiBps", 1024.0),
        ("8Kibps", 1024.0), ("41.279125MBps", 41279125.0), (5, 5.0), ("5e9", 5e9), ("2 byte/s", 2.0),
    ],
)  # fmt: skip
def test_bandwidths(text: object, expected: float) -> None:
    assert bytes_per_s(text) == expected


@pytest.mark.parametrize("text", ["fast", "-1GBps", "0", "", None, True, "1 GB", "1e999", "nan", math.inf, 10**400, []])
def test_what_is_no_bandwidth(text: object) -> None:
    with pytest.raises(ValueError, match="expected a bandwidth above 0"):
        bytes_per_s(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("50us", 5e-5), ("1.461517ms", 0.001461517), ("0", 0.0), ("2 m", 120.0), (1e-6, 1e-6), ("3ns", 3e-9)],
)
def test_latencies(text: object, expected: float) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["-1us", "soon", "1 GB/s", None, "nan"])
def test_what_is_no_latency(text: object) -> None:
    with pytest.raises(ValueError, match="expected a latency"):
        seconds(text)


# --- nvidia-smi topo -m ----------------------------------------------------------------------------------------------


def test_a_dgx1_that_is_read_is_the_one_that_is_built() -> None:
    graph = load(DATA / "dgx1-v100.txt")
    own = edges(dgx1(gpu="v100"))
    assert edges(graph) == {
        frozenset(name.replace("nic", "mlx5_") for name in pair): what for pair, what in own.items()
    }
    assert graph.describe().diameter_hops == dgx1(gpu="v100").describe().diameter_hops
    assert "nvlink2 INFERENCE from 6 NVLinks a GPU" in graph.provenance


def test_the_generation_can_be_told() -> None:
    graph = load(DATA / "dgx1-v100.txt", {"link": "nvlink1", "pcie": "4"})
    assert {one.link.name for one in graph.connections} == {"nvlink1", "pcie4-device", "pcie4-uplink", "xgmi"}
    assert "nvlink1 as given; PCIe 4 as given" in graph.provenance


def test_nvlinks_to_everyone_are_a_switch() -> None:
    graph = load(DATA / "hgx-h100.txt")
    assert edges(graph)[frozenset(("gpu3", "nvswitch"))] == ("nvlink4", 18)
    assert Routes(graph).between("gpu0", "gpu7").vertices == ("gpu0", "nvswitch", "gpu7")
    assert Routes(graph).between("gpu0", "nic0").vertices == ("gpu0", "pcie0", "nic0")
    assert Routes(graph).between("gpu0", "nic1").vertices == ("gpu0", "pcie0", "cpu0", "pcie1", "nic1")


def table(*rows: str) -> str:
    names = [row.split()[0] for row in rows]
    return "\n".join(["\t" + "\t".join(names) + "\tCPU Affinity", *rows])


def two(code: str, other: str = "0-7") -> list[str]:
    """Two GPUs with this code, the second near these processors."""
    return [f"GPU0 X {code} 0-7", f"GPU1 {code} X {other}"]


BEHIND_SWITCHES = ["GPU0 X PIX PXB NODE 0", "GPU1 PIX X PXB NODE 0", "GPU2 PXB PXB X NODE 0", "GPU3 NODE NODE NODE X 0"]
"""GPU0 and 1 share a switch, and a further switch joins them to GPU2; GPU3 is behind another host bridge"""
VIRTUAL = ["GPU0 X SYS SYS 0-3", "GPU1 SYS X SYS 0-3", "GPU2 SYS SYS X 4-7"]
"""all pairs are SYS, as virtual machines report, but two of three GPUs are near the same CPUs, which are believed"""
BRIDGES = ["GPU0 X PHB NODE NODE 0", "GPU1 PHB X NODE NODE 0", "GPU2 NODE NODE X PHB 0", "GPU3 NODE NODE PHB X 0"]
"""several host bridges of one socket, which are vertices then"""


@pytest.mark.parametrize(
    ("rows", "ways"),
    [
        (two("PIX"), ["gpu0 pcie0 gpu1"]),
        (two("PXB"), ["gpu0 pcie0 gpu1"]),
        (two("PHB"), ["gpu0 cpu0 gpu1"]),
        (two("NODE"), ["gpu0 cpu0 gpu1"]),
        (two("NV3"), ["gpu0 gpu1"]),
        (two("SYS", "8-15"), ["gpu0 cpu0 cpu1 gpu1"]),
        (two("SOC", "8-15"), ["gpu0 cpu0 cpu1 gpu1"]),
        (BEHIND_SWITCHES, ["gpu0 pcie1 gpu1", "gpu0 pcie1 pcie0 gpu2", "gpu0 pcie1 pcie0 cpu0 gpu3"]),
        (BRIDGES, ["gpu0 root0 gpu1", "gpu0 root0 cpu0 root1 gpu3"]),
        (VIRTUAL, ["gpu0 cpu0 gpu1", "gpu0 cpu0 cpu1 gpu2"]),
    ],
)
def test_ways_between_gpus(rows: list[str], ways: list[str]) -> None:
    routes = Routes(machine(table(*rows), "text", "machine"))
    for way in ways:
        vertices = tuple(way.split())
        assert routes.between(vertices[0], vertices[-1]).vertices == vertices


def test_cards_that_are_far_from_every_gpu_make_a_socket() -> None:
    rows = ["GPU0 X NV12 PXB SYS 0-3", "GPU1 NV12 X PXB SYS 0-3", "NIC0 PXB PXB X SYS", "NIC1 SYS SYS SYS X"]
    graph = machine(table(*rows), "text", "far")
    assert Routes(graph).between("gpu0", "nic0").vertices == ("gpu0", "pcie0", "nic0")
    assert Routes(graph).between("gpu0", "nic1").vertices == ("gpu0", "pcie0", "cpu0", "cpu1", "nic1")
    assert {one.link.name for one in graph.connections if "nvlink" in one.link.name} == {"nvlink3"}


def test_a_table_without_affinities_or_with_colours_is_read() -> None:
    text = "\x1b[4mGPU0 GPU1 mlx5_0\x1b[0m\nGPU0 X NV2 PHB\nGPU1 NV2 X NODE\nmlx5_0 PHB NODE X\n"
    graph = machine(text, "text", "two")
    assert set(graph.of_kind("host")) == {"cpu0"}
    assert edges(graph)[frozenset(("gpu0", "gpu1"))] == ("nvlink2", 2)


@pytest.mark.parametrize(
    ("rows", "messages"),
    [
        (["GPU0 X PIX", "GPU1 PXB X"], ["GPU0 is PIX to GPU1, and GPU1 is PXB to GPU0"]),
        (
            ["GPU0 X PIXY", "GPU1 NV X"],
            ["line 2: GPU0 is 'PIXY' to GPU1, expected NV1", "line 3: GPU1 is 'NV' to GPU0"],
        ),
        (["GPU0 X", "GPU1 PIX X"], ["line 2: GPU0 has 1 cells, expected 2"]),
        (["GPU0 PIX PIX", "GPU1 PIX X"], ["line 2: GPU0 is 'PIX' to GPU0, expected X"]),
    ],
)
def test_what_is_wrong_in_a_table(rows: list[str], messages: list[str], tmp_path: Path) -> None:
    said = refused(table(*rows), tmp_path)
    assert all(message in said for message in messages)


def test_rows_that_are_missing_or_twice(tmp_path: Path) -> None:
    assert "has a column GPU1 and no such row" in refused("GPU0 GPU1 CPU\nGPU0 X PIX 0", tmp_path)
    assert "line 3: a second row GPU0" in refused("GPU0 CPU\nGPU0 X 0\nGPU0 X 0", tmp_path)
    for key, value in (("link", "nvlink9"), ("pcie", "9"), ("k", "4")):
        with pytest.raises(InputError, match=key):
            load(DATA / "dgx1-v100.txt", {key: value})


# --- node-link JSON and GraphML --------------------------------------------------------------------------------------


def plain(graph: Graph) -> nx.Graph[str]:
    """With the attributes of files."""
    found: nx.Graph[str] = nx.Graph()
    for vertex in graph.vertices:
        found.add_node(vertex.name, kind=vertex.kind)
    for one in graph.connections:
        found.add_edge(*one.ends, bandwidth=one.link.bytes_per_s, latency=one.link.latency_s, count=one.count)
    return found


@pytest.mark.parametrize("name", NETWORKS)
def test_what_networkx_writes_is_read(name: str, tmp_path: Path) -> None:
    graph = build(name)
    expected = [(one.ends, one.count, one.link.bytes_per_s, one.link.latency_s) for one in graph.connections]
    texts = [json.dumps(nx.node_link_data(plain(graph), edges=key)) for key in ("edges", "links")]
    texts.append("\n".join(nx.generate_graphml(plain(graph))))
    for text in texts:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        read = load(path)
        assert read.name == name
        assert [(vertex.name, vertex.kind) for vertex in read.vertices] == [(v.name, v.kind) for v in graph.vertices]
        found = {frozenset(one.ends): (one.count, one.link.bytes_per_s, one.link.latency_s) for one in read.connections}
        assert found == {frozenset(ends): tuple(rest) for ends, *rest in expected}


def document(edges: list[dict[str, Any]], **more: Any) -> str:
    return json.dumps({"nodes": [{"id": 0}, {"id": 1}, {"id": "hub", "kind": "switch"}], "edges": edges, **more})


def test_links_of_the_catalogue_have_its_latencies() -> None:
    ends = [{"source": n, "target": "hub", "link": "eth-10g"} for n in (0, 1)]
    graph = node_link(document(ends), "text", "pair")
    assert Routes(graph).between("0", "1").latency_s == 20e-6
    assert graph.connections[0].link.provenance == "TCP; both MEMORY high"


def test_directions_and_parallel_edges_are_one_connection() -> None:
    one, two = ({"source": n, "target": "hub", "bandwidth": 1e9} for n in (0, 1))
    back = {"source": "hub", "target": 0, "bandwidth": 1e9}
    assert [c.count for c in node_link(document([one, two, back]), "text", "a").connections] == [2, 1]
    assert [c.count for c in node_link(document([one, two, back], directed=True), "text", "a").connections] == [1, 1]
    with pytest.raises(InputError, match=r"edges\[0\] \(0 to hub\): edges between these two differ"):
        node_link(document([one, two, back | {"bandwidth": 2e9}], directed=True), "text", "a")
    with pytest.raises(InputError, match="2 cables one way and 1 the other"):
        node_link(document([one, one, two, back], directed=True, multigraph=True), "text", "a")


def test_all_mistakes_of_a_graph_are_told_at_once() -> None:
    wrong: list[dict[str, Any]] = [
        {"source": 0, "target": "hub"},
        {"source": 1, "target": "hub", "bandwidth": "fast", "latency": "soon"},
        {"source": 1, "target": "hubb", "bandwidth": 1},
        {"source": 1, "target": 1, "bandwidth": 1},
        {"source": 0, "target": 1, "link": "eth-10"},
        {"source": 0, "target": 1, "bandwidth": 1, "bytes_per_s": 1, "count": 0},
    ]
    with pytest.raises(InputError) as error:
        node_link(document(wrong), "file", "a")
    said = str(error.value).splitlines()
    expected = [
        "edges[0] (0 to hub): bandwidth: missing",
        "edges[1] (1 to hub): bandwidth: found 'fast'",
        "edges[1] (1 to hub): latency: found 'soon'",
        "edges[2] (1 to hubb): there is no hubb",
        "edges[3] (1 to 1): joins a vertex to itself",
        "edges[4] (0 to 1): link: unknown link 'eth-10' (did you mean eth-10g?)",
        "edges[5] (0 to 1): found both bandwidth and bytes_per_s",
        "edges[5] (0 to 1): count: found 0",
    ]
    assert len(said) == len(expected)
    assert all(line.startswith(f"file: {start}") for line, start in zip(said, expected, strict=True))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not valid JSON: line 1"),
        ("[1]", "is not a node-link graph"),
        ('{"nodes": []}', "is not a node-link graph"),
        ('{"nodes": [], "edges": []}', "found 0 vertices"),
        ('{"nodes": [{}], "edges": [3]}', "nodes[0]: found {}, expected an object with an"),
        ('{"nodes": [{"id": 1}, {"id": 1}], "edges": []}', "a second vertex of this name"),
        ('{"nodes": [{"id": 1, "kind": "hots"}], "edges": []}', "did you mean host?"),
        ('{"nodes": [{"id": 1, "kind": "switch"}], "edges": []}', "has no device or host"),
        ('{"nodes": [{"id": 1}, {"id": 2}], "edges": []}', "has 2 parts that are not connected"),
        ("<graphml><graph></graphml>", "line 1: not valid XML: mismatched tag"),
        ("<graphml>\n<graph><edge source='a'/></graph></graphml>", "line 2: edge: target: missing"),
        ("<graphml></graphml>", "is not GraphML that NetworkX can read"),
        (
            "<svg/>",
            "found XML of <svg>, expected <system> (NCCL), <topology> (hwloc), <platform> (SimGrid) or <graphml>",
        ),
        ('<!DOCTYPE a [<!ENTITY b "c">]>\n<platform>&b;</platform>', "line 1: declares an entity"),
        ("<platform>&b;</platform>", "not valid XML"),
        ("hello", "is not a graph in a known format; expected the text of nvidia-smi"),
        ("", "is not a graph in a known format"),
        ("GPU0", "has a column GPU0 and no such row"),
    ],
)
def test_files_that_are_refused(text: str, message: str, tmp_path: Path) -> None:
    assert message in refused(text, tmp_path)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: No such file"):
        load(tmp_path / "nothing.json")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(InputError, match="is not text"):
        load(tmp_path / "binary")


# --- tables that people have published -------------------------------------------------------------------------------

GPUS = ("GPU0", "GPU1", "GPU2", "GPU3")


def of_pairs(names: tuple[str, ...], pairs: dict[str, str], sockets: str, near: str = "SYS") -> str:
    """The text of a table: the codes of some pairs, and `near` or SYS for the others; GPUs have affinities."""
    on = dict(zip(names, sockets, strict=True))
    known = pairs | {" ".join(pair.split()[::-1]): code for pair, code in pairs.items()}
    rows = []
    for one in names:
        codes = {other: known.get(f"{one} {other}", near if on[one] == on[other] else "SYS") for other in names}
        beyond = [f"{48 * int(on[one])}-{48 * int(on[one]) + 47}"] if one in GPUS else []
        rows.append("\t".join([one, *(codes | {one: "X"}).values(), *beyond]))
    return table(*rows)


def test_a_machine_of_a800_has_eight_nvlinks_a_gpu() -> None:
    """As in NVIDIA/nccl#933, with half of the GPUs: NV8 between all, NICs at single GPUs, one more on a socket."""
    names = (*GPUS, "NIC0", "NIC1", "NIC2")
    pairs = dict.fromkeys(("GPU1 NIC2", "GPU2 NIC1"), "PIX")
    pairs |= {f"{one} {other}": "NV8" for one in GPUS for other in GPUS if one != other}
    graph = machine(of_pairs(names, pairs, "0011010", "NODE"), "text", "a800")
    found = edges(graph)
    assert [found[frozenset((gpu.lower(), "nvswitch"))] for gpu in GPUS] == [("nvlink3", 8)] * 4
    assert Routes(graph).between("gpu1", "nic2").vertices == ("gpu1", "pcie0", "nic2")
    assert Routes(graph).between("gpu0", "nic0").vertices == ("gpu0", "cpu0", "nic0")
    assert frozenset(("cpu0", "cpu1")) in found


def test_gpus_that_are_all_far_have_their_own_nics() -> None:
    """As in deepseek-ai/DeepEP#128: everything is SYS but each GPU and its NIC; sockets are known by affinity."""
    names = (*GPUS, "NIC0", "NIC1", "NIC2", "NIC3")
    pairs = {f"GPU{number} NIC{number}": "PIX" for number in range(4)}
    graph = machine(of_pairs(names, pairs, "00110011"), "text", "own")
    routes = Routes(graph)
    assert [len(routes.between(f"gpu{number}", f"nic{number}").connections) for number in range(4)] == [2] * 4
    assert routes.between("gpu0", "gpu1").vertices == ("gpu0", "pcie0", "cpu0", "pcie1", "gpu1")
    assert "cpu1" in routes.between("gpu0", "gpu2").vertices
    assert "sockets by CPU affinity, as all pairs of GPUs are SYS" in graph.assumed


def test_nics_at_one_of_many_far_gpus() -> None:
    """As in NVIDIA/go-gpuallocator#17, of 4090s: both NICs are PHB to one GPU and PIX to each other."""
    names = (*GPUS, "NIC0", "NIC1")
    pairs = {"GPU2 NIC0": "PHB", "GPU2 NIC1": "PHB", "NIC0 NIC1": "PIX"}
    graph = machine(of_pairs(names, pairs, "001111"), "text", "far")
    routes = Routes(graph)
    assert routes.between("gpu2", "nic1").vertices == ("gpu2", "root0", "pcie0", "nic1")
    assert routes.between("gpu3", "nic1").vertices == ("gpu3", "cpu1", "root0", "pcie0", "nic1")
    assert "cpu0" in routes.between("gpu0", "nic0").vertices


# --- SimGrid ---------------------------------------------------------------------------------------------------------


def full(body: str) -> str:
    return f'<platform version="4.1"><zone id="z" routing="Full">{body}</zone></platform>'


def cluster(**more: object) -> str:
    given = {"id": "c", "prefix": "n", "suffix": "", "radical": "0-15", "speed": "1Gf", "bw": "1GBps", "lat": "1us"}
    return full("<cluster " + " ".join(f'{key}="{value}"' for key, value in (given | more).items()) + "/>")


def host(*names: str) -> str:
    return "".join(f'<host id="{name}" speed="1Gf"/>' for name in names)


def link(*names: str, policy: str = "SPLITDUPLEX", latency: str = "1us") -> str:
    return "".join(
        f'<link id="{name}" bandwidth="1GBps" latency="{latency}" sharing_policy="{policy}"/>' for name in names
    )


def route(source: str, to: str, *links: str) -> str:
    return f'<route src="{source}" dst="{to}">' + "".join(f'<link_ctn id="{one}"/>' for one in links) + "</route>"


def test_a_site_of_two_clusters_has_the_latencies_that_simgrid_gives() -> None:
    graph = load(DATA / "cluster.xml")
    routes = Routes(graph)
    expected = {
        ("node0", "node7"): 5 + 2 + 5,  # up, backbone, down
        ("node8", "node15"): 5 + 5,
        ("node0", "node8"): 5 + 2 + 1 + 1 + 5,
        ("node0", "storage"): 5 + 2 + 1 + 3 + 10,
        ("node8", "storage"): 5 + 1 + 3 + 10,
    }
    for pair, latency_us in expected.items():
        assert routes.between(*pair).latency_s == pytest.approx(latency_us * 1e-6, rel=1e-12)
    assert routes.between("node0", "storage").bytes_per_s == 10e9 / 8
    assert graph.provenance.endswith("approximated: backbone of rack0 unlimited inside")


def test_clusters_have_simgrids_shapes() -> None:
    tree = platform(cluster(topology="FAT_TREE", topo_parameters="2;4,4;1,2;1,2"), "text", "tree")
    assert (tree.describe().nodes, tree.describe().links, tree.describe().diameter_hops) == (16 + 4 + 2, 16 + 16, 4)
    grid = platform(cluster(topology="TORUS", topo_parameters="4,2,2"), "text", "grid")
    assert nx.is_isomorphic(grid.nx, torus(sides=(4, 2, 2)).nx)
    assert Routes(grid).between("n0", "n1").vertices == ("n0", "n1")  # the first side runs fastest
    fly = platform(cluster(topology="DRAGONFLY", topo_parameters="2,3;2,2;2,1;2"), "text", "fly")
    assert (fly.describe().nodes, fly.describe().links) == (16 + 8, 16 + 2 * (2 * 2 + 2 * 1) + 3)
    route = Routes(fly, "minimal").between("n0", "n15")
    assert sum(a.split(".")[0] != b.split(".")[0] for a, b in pairwise(route.vertices[1:-1])) == 1


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"radical": "3-1"}, "radical: found '3-1', expected rising numbers"),
        ({"radical": "a"}, "radical: found 'a'"),
        ({"radical": "0-999999999"}, "at most 200000 in all"),
        ({"bw": "fast"}, "bw: found 'fast'"),
        ({"bb_bw": "1GBps", "bb_lat": "late"}, "bb_lat: found 'late'"),
        ({"topology": "RING"}, "topology: found 'RING', expected FLAT, FAT_TREE, TORUS, DRAGONFLY"),
        ({"topology": "TORUS", "topo_parameters": "a"}, "topo_parameters: found 'a'"),
        ({"topology": "TORUS", "topo_parameters": "4,3"}, "found 16 hosts, expected the 12 of topo_parameters"),
        ({"topology": "FAT_TREE", "topo_parameters": "2;4,4;1,2"}, "expected levels; children; parents; cables"),
        ({"topology": "DRAGONFLY", "topo_parameters": "2;2;2;2"}, "expected groups, cables; chassis"),
        ({"topology": "DRAGONFLY", "topo_parameters": "8,1;1,1;1,1;2"}, "at most one more than routers in a group"),
    ],
)
def test_clusters_that_are_refused(more: dict[str, str], message: str, tmp_path: Path) -> None:
    said = refused(cluster(**more), tmp_path)
    assert "line 1: cluster c: " in said
    assert message in said


def test_a_dogbone_is_found_from_its_routes() -> None:
    routes = [
        ("a", "c", "1", "2", "3"),
        ("b", "d", "4", "2", "5"),
        ("a", "d", "1", "2", "5"),
        ("b", "c", "4", "2", "3"),
    ]
    body = host("a", "b", "c", "d") + link("1", "2", "3", "4", "5") + "".join(route(*one) for one in routes)
    graph = platform(full(body), "text", "dogbone")
    shape: nx.Graph[str] = nx.Graph([("a", "x"), ("b", "x"), ("x", "y"), ("y", "c"), ("y", "d")])
    assert nx.is_isomorphic(graph.nx, shape)
    assert "approximated" not in graph.provenance


@examples(25, 200)
@given(data=st.data())
def test_any_tree_is_found_from_its_routes(data: st.DataObject) -> None:
    """All routes between the leaves of a tree determine the tree, if every vertex has a branch."""
    size = data.draw(st.integers(2, 9))
    tree: nx.Graph[str] = nx.Graph()
    tree.add_node("v0")
    for number in range(1, size):
        tree.add_edge(f"v{number}", f"v{data.draw(st.integers(0, number - 1))}")
    for name in list(tree):  # every inner vertex gets leaves, so that the tree is determined
        for side in "ab":
            tree.add_edge(name, name + side)
    names = {frozenset(edge): f"l{number}" for number, edge in enumerate(tree.edges)}
    leaves = data.draw(st.permutations([name for name in tree if tree.degree(name) == 1]))
    routes = []
    for at, one in enumerate(leaves):
        for other in leaves[:at]:
            way = nx.shortest_path(tree, one, other)
            routes.append(Listed(one, other, tuple(names[frozenset(hop)] for hop in pairwise(way))))
    found = joined(routes, leaves)
    assert not found.shared
    assert not found.inside
    rebuilt: nx.Graph[str] = nx.Graph(list(found.ends.values()))
    for leaf, other in pairwise(leaves):
        assert nx.shortest_path_length(rebuilt, leaf, other) == nx.shortest_path_length(tree, leaf, other)


def test_a_backbone_keeps_its_latency() -> None:
    names = "abcd"
    body = host(*names) + link(*(f"l{n}" for n in names)) + link("bb", latency="4us")
    pairs = [(one, other) for one in names for other in names if one < other]
    body += "".join(route(one, other, f"l{one}", "bb", f"l{other}") for one, other in pairs)
    graph = platform(full(body), "text", "backbone")
    assert all(Routes(graph).between(*pair).latency_s == pytest.approx(6e-6) for pair in pairs)
    assert "link bb unlimited" in graph.provenance


def test_a_link_between_many_becomes_a_switch() -> None:
    pairs = [("a", "b"), ("a", "c"), ("b", "c")]
    body = host("a", "b", "c") + link("bus", latency="4us") + "".join(route(*pair, "bus") for pair in pairs)
    graph = platform(full(body), "text", "bus")
    assert graph.of_kind("switch") == ("link bus",)
    assert all(Routes(graph).between(*pair).latency_s == pytest.approx(4e-6) for pair in pairs)
    assert "link bus as a switch" in graph.provenance


def wide(name: str, megabytes_per_s: int, latency: str = "1ms", policy: str = "SHARED") -> str:
    given = f'bandwidth="{megabytes_per_s}MBps" latency="{latency}" sharing_policy="{policy}"'
    return f'<link id="{name}" {given}/>'


def ways(body: str, routing: str = "Full") -> dict[str, tuple[float, float]]:
    """Returns MB/s and ms of each pair of hosts."""
    graph = platform(full(body).replace("Full", routing), "text", "listed")
    routes = Routes(graph)
    pairs = [(one, other) for one in graph.endpoints for other in graph.endpoints if one != other]
    found = {one + other: routes.between(one, other) for one, other in pairs}
    many = Routes(graph).many(*([routes.numbers[pair[at]] for pair in pairs] for at in (0, 1)))
    for number, way in enumerate(found.values()):
        assert tuple(routes.hop_names(many[1][many[0][number] : many[0][number + 1]])) == way.ports
    return {key: (way.bytes_per_s / 1e6, round(1e3 * way.latency_s, 9)) for key, way in found.items()}


def test_unlike_ways_there_and_back_are_read_as_they_are_listed() -> None:
    body = host("a", "b") + wide("up", 10) + wide("down", 100)
    body += (route("a", "b", "up") + route("b", "a", "down")).replace('">', '" symmetrical="NO">', 2)
    assert ways(body) == {"ab": (10, 1), "ba": (100, 1)}
    assert platform(full(body), "text", "pair").assumed == ()


def test_a_route_that_contradicts_others_is_read_as_it_is_listed() -> None:
    """Over x alone h1 and h2 would be ten times as near as the file says."""
    body = host("1", "2", "3") + wide("a", 10) + wide("b", 10) + wide("x", 100)
    body += route("1", "2", "a", "b") + route("1", "3", "x") + route("2", "3", "x")
    assert ways(body) == {"12": (10, 2), "21": (10, 2), "13": (100, 1), "31": (100, 1), "23": (100, 1), "32": (100, 1)}


def test_a_fatpipe_limits_each_flow_and_pairs_without_a_route_go_by_way_of_others(tmp_path: Path) -> None:
    body = host(*"0123") + "".join(wide(name, 500, policy="FATPIPE") for name in "fgk")
    body += route("0", "1", "f") + route("0", "2", "g") + route("0", "3", "k")
    found = ways(body)
    assert all(found[pair] == (500, 1) for pair in ("01", "02", "03", "10", "20", "30"))
    assert found["12"] == (500.0, 2.0)
    (tmp_path / "fat.xml").write_text(full(body))
    shown = CliRunner().invoke(app, ["topology", str(tmp_path / "fat.xml"), "--out", str(tmp_path / "fat.svg")])
    assert "500 MB/s, 1 ms; for each flow" in " ".join(shown.stdout.split())
    (assumed,) = platform(full(body), "text", "fat").assumed
    assert "6 pairs of hosts without a route by way of others" in assumed


def test_floyd_routes_take_the_fewest_links() -> None:
    """By b there are two links instead of the three that are listed; with Full routing it is these three."""
    body = host(*"abc") + "".join(wide(name, 10, policy="FATPIPE") for name in "wxyz") + wide("v", 7)
    body += route("a", "b", "w") + route("b", "c", "x") + route("a", "c", "y", "z", "v")
    assert ways(body, "Floyd")["ac"] == (10, 2)
    assert ways(body)["ac"] == (7, 3)


def test_hosts_without_any_route_are_refused(tmp_path: Path) -> None:
    body = host(*"abc") + wide("f", 1, policy="FATPIPE") + route("a", "b", "f")
    assert "there is no route from a to c; expected one for each pair" in refused(full(body), tmp_path)


@pytest.mark.parametrize(("policy", "seconds_of_two"), [("SHARED", 2.0), ("SPLITDUPLEX", 1.0), ("FATPIPE", 1.0)])
def test_what_flows_both_ways_share(policy: str, seconds_of_two: float, tmp_path: Path) -> None:
    """102 MB each way over 10 MB/s: a ring of two sends half of them twice, both ways at once.

    Another link, a FATPIPE, makes the platform keep its routes.
    """
    body = host("a", "b") + wide("w", 10, "0us", policy) + wide("f", 1000, "0us", "FATPIPE") + route("a", "b", "w", "f")
    (tmp_path / "p.xml").write_text(full(body))
    device = {"name": "g", "overhead": "10 ms", "per_sample": "0 ms"}
    given = {
        "name": "two",
        "algorithms": ["sync-sgd"],
        "workload": {"model": "resnet50", "learning": "none", "batch_per_worker": 1},
        "cluster": {"file": str(tmp_path / "p.xml"), "device": device},
        "stop": {"updates": 2},
    }
    (run,) = simulate(scenarios.load(given))
    alone_s = find_model("resnet50").parameters * 4 / 10e6
    assert run.summary["step_s"]["mean"] == pytest.approx(0.01 + seconds_of_two * alone_s)


def test_nodes_in_place_of_hosts_keep_listed_routes() -> None:
    """GPUs of two DGX-1 reach each other by the routes of their nodes, each in its direction."""
    body = host("a", "b") + wide("up", 10) + wide("down", 100)
    body += (route("a", "b", "up") + route("b", "a", "down")).replace('">', '" symmetrical="NO">', 2)
    cluster = compose("two", platform(full(body), "text", "pair"), dgx1(), "a test")
    routes = Routes(cluster)
    there, back = routes.between("a.gpu5", "b.gpu2"), routes.between("b.gpu2", "a.gpu5")
    assert (there.bytes_per_s, back.bytes_per_s) == (10e6, 100e6)
    assert "link up in>link up out" in there.ports and "link down in>link down out" in back.ports
    assert routes.between("a.gpu5", "a.gpu4").vertices == ("a.gpu5", "a.gpu4")
    with pytest.raises(NoRoute, match=r"the listed route from a\.gpu5 to b\.gpu2 is broken"):
        routes.without([("link up in", "link up out")]).between("a.gpu5", "b.gpu2")


def test_shared_links_of_other_platforms_count_as_full_duplex_and_say_so() -> None:
    body = host("a", "b") + link("wire", policy="SHARED") + route("a", "b", "wire")
    assert "SHARED links as full duplex" in platform(full(body), "text", "pair").provenance


def test_a_wifi_zone_gives_one_sentence(tmp_path: Path) -> None:
    body = f'<zone id="W" routing="Wifi"><router id="ap"/></zone>{host("n")}{link("c")}{route("n", "ap", "c")}'
    said = refused(full(body), tmp_path)
    assert "Wi-Fi zones" in said and len(said.splitlines()) == 1


def test_a_gpu_without_nvlink_leaves_the_others_behind_the_switch() -> None:
    rows = ["GPU0 X NV18 NODE NV18 0", "GPU1 NV18 X NODE NV18 0", "GPU2 NODE NODE X NODE 0", "GPU3 NV18 NV18 NODE X 0"]
    graph = machine(table(*rows), "text", "three")
    assert edges(graph)[frozenset(("gpu3", "nvswitch"))] == ("nvlink4", 18)
    assert frozenset(("gpu2", "nvswitch")) not in edges(graph) and "GPU2 without NVLink" in graph.provenance


def test_sys_is_two_sockets_despite_equal_affinities() -> None:
    rows = ["GPU0 X PIX SYS SYS 0-95", "GPU1 PIX X SYS SYS 0-95", "GPU2 SYS SYS X PIX 0-95", "GPU3 SYS SYS PIX X 0-95"]
    assert machine(table(*rows), "text", "four").of_kind("host") == ("cpu0", "cpu1")


def test_glued_headings_are_separated_by_the_names_of_the_rows() -> None:
    text = "GPU0 NIC1bond0 CPU Affinity\nGPU0 X PIX SYS 0-9\nNIC1 PIX X SYS\nbond0 SYS SYS X\n"
    graph = machine(text, "text", "glued")
    assert graph.of_kind("nic") == ("nic1", "bond0")
    assert Routes(graph).between("gpu0", "nic1").vertices == ("gpu0", "pcie0", "nic1")


def test_a_zone_of_host_links_is_a_star() -> None:
    links = '<link id="up" bandwidth="1GBps" latency="1us"/><link id="down" bandwidth="1GBps" latency="1us"/>'
    body = links + "".join(f'{host(n)}<host_link id="{n}" up="up" down="down"/>' for n in "abc")
    text = f'<platform version="4.1"><zone id="z" routing="Cluster"><router id="r"/>{body}'
    text += '<backbone id="b" bandwidth="2GBps" latency="3us"/></zone></platform>'
    assert Routes(platform(text, "text", "star")).between("a", "c").latency_s == pytest.approx(5e-6)


@pytest.mark.parametrize(
    ("body", "messages"),
    [
        (host("a", "a"), ["host: a second 'a'"]),
        (host("a") + route("a", "b", "l"), ["there is no host or router 'b'", "there is no link 'l'"]),
        (host("alpha", "b") + link("l") + route("alpa", "b", "l"), ["(did you mean alpha?)"]),
        (host("a", "b") + route("a", "b"), ["line 1: route from a to b: has no links"]),
        ("<hots id='a'/>", ["<hots> is no element of a platform (did you mean <host>?)"]),
        ("<peer id='a'/>", ["a host in a Vivaldi zone"]),
        ("<include file='a'/>", ["<include>: removed from SimGrid"]),
        ("<zone id='v' routing='Vivaldi'/>", ["zone v: routing 'Vivaldi' has no links to read"]),
        (link("w", policy="WIFI"), ["sharing_policy: found 'WIFI'"]),
        ("<link id='l' bandwidth='x' latency='y'/>", ["link l: bandwidth: found 'x'", "link l: latency: found 'y'"]),
        (host("a", "b"), ["has 2 parts"]),
    ],
)
def test_platforms_that_are_refused(body: str, messages: list[str], tmp_path: Path) -> None:
    said = refused(full(body), tmp_path)
    assert all(message in said for message in messages)


# --- the page --------------------------------------------------------------------------------------------------------


def test_the_examples_of_the_page_run(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/topologies.md").read_text(encoding="utf-8")
    fences = re.findall(r"^```(json|pycon)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    session = "".join(body for kind, body in fences if kind == "pycon")
    result = doctest.DocTestRunner().run(doctest.DocTestParser().get_doctest(session, {}, "topologies", None, 0))
    assert (result.failed, result.attempted) == (0, 10)
    (shown,) = (body for kind, body in fences if kind == "json")
    assert [one.link.name for one in node_link(shown, "text", "a").connections] == ["3.125GBps-1us", "eth-25g"]


# --- whatever a file holds -------------------------------------------------------------------------------------------


@examples(25, 600)
@given(data=st.data())
def test_a_damaged_file_is_read_or_refused(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A piece removed, doubled or overwritten; the result is always a graph or an `InputError`."""
    text = data.draw(st.sampled_from([path.read_text(encoding="utf-8") for path in FILES]))
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 60)))
    piece = data.draw(st.sampled_from(["", text[start:end] * 2, '"', "<", "0", "-1", "9" * 30, "X", "é", "null", "[]"]))
    path = tmp_path_factory.getbasetemp() / "damaged"
    path.write_text(text[:start] + piece + text[end:], encoding="utf-8")
    with contextlib.suppress(InputError):
        assert nx.is_connected(load(path).nx)


# --- the command -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_command_describes_and_draws_files(path: Path, tmp_path: Path) -> None:
    picture = tmp_path / "a.png"
    result = CliRunner().invoke(app, ["topology", str(path), "--json", "--out", str(picture)], catch_exceptions=False)
    assert result.exit_code == 0
    answer = json.loads(result.stdout)
    assert list(answer) == ["name", "nodes", "links", "diameter_hops", "bisection_Bps", "kinds", "assumed"]
    assert answer["name"] == path.stem
    assert picture.stat().st_size > 0
    places = [vertex.place for vertex in load(path).vertices]
    assert min(math.dist(one, other) for n, one in enumerate(places) for other in places[:n]) > 0.2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nothing.json"], "nothing.json: cannot be read"),
        (["./dgx1"], "cannot be read"),
        ([str(DATA / "tree.json"), "--set", "k=4"], "unknown parameter 'k'"),
        (["dgx1-v10"], "did you mean dgx1-v100"),
    ],
)
def test_the_command_refuses_files(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(app, ["topology", *arguments], catch_exceptions=False)
    assert result.exit_code == 2
    assert words in " ".join(result.stderr.split())
