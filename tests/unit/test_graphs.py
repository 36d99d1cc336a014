"""Cluster graphs: inputs that builders refuse, composition, the pictures and the command."""

from __future__ import annotations

import doctest
import json
import math
import re
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
from typer.testing import CliRunner

from paceline.algorithms.core.errors import InputError
from paceline.cli.app import app
from paceline.reports.picture import draw, picture
from paceline.topologies.graphs.compose import compose
from paceline.topologies.graphs.graph import Graph
from paceline.topologies.graphs.graph_registry import NODES, SYSTEMS, TOPOLOGIES, build, parameters
from paceline.topologies.graphs.links import LINKS, WIRES, host_end, link_named
from paceline.topologies.graphs.machines import dgx1
from paceline.topologies.graphs.network_graphs import ring, star

EVERY = pytest.mark.parametrize("name", TOPOLOGIES)


def call(*arguments: str | Path) -> Any:
    return CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)


@EVERY
def test_graphs_are_whole(name: str) -> None:
    graph = build(name)
    names = [vertex.name for vertex in graph.vertices]
    assert len(set(names)) == len(names)
    pairs = [frozenset(connection.ends) for connection in graph.connections]
    assert len(set(pairs)) == len(pairs)
    assert all(len(pair) == 2 for pair in pairs)
    assert set(graph.nx) == set(names)  # every connection has two ends
    assert nx.is_connected(graph.nx)
    assert graph.provenance


@EVERY
def test_marks_do_not_stand_on_each_other(name: str) -> None:
    for part in build(name).parts or (build(name),):
        places = [vertex.place for vertex in part.vertices]
        assert min(math.dist(one, other) for n, one in enumerate(places) for other in places[:n]) > 0.2


@EVERY
def test_the_same_parameters_give_the_same_graph(name: str) -> None:
    assert build(name) == build(name, {key: str(value) for key, value in parameters(name).items()})


@pytest.mark.parametrize("name", SYSTEMS)
def test_systems_say_how_well_they_are_known(name: str) -> None:
    assert any(word in build(name).provenance for word in ("FOUND", "MEMORY"))


@pytest.mark.parametrize("name", WIRES)
def test_wires_say_where_their_values_come_from(name: str) -> None:
    wire = WIRES[name]
    assert wire.name == name
    assert name not in LINKS
    assert 0 < wire.latency_s < 1e-5
    assert 1e9 < wire.bytes_per_s < 1e12
    assert any(word in wire.provenance for word in ("FOUND", "MEMORY", "INFERENCE"))


def test_two_hosts_on_a_switch_see_the_links_latency() -> None:
    path = [star(link="ib-edr").nx.edges["switch", f"host{number}"]["connection"].link.latency_s for number in (0, 1)]
    assert sum(path) == LINKS["ib-edr"].latency_s
    assert host_end(link_named("ib-edr")).bytes_per_s == LINKS["ib-edr"].bytes_per_s


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("fat-tre", {}, r"unknown topology 'fat-tre' \(did you mean fat-tree\?\)"),
        ("zzz", {}, r"unknown topology 'zzz' \(there are star, ring"),
        ("star", {"host": "3"}, r"star: unknown parameter 'host' \(did you mean hosts\?\)"),
        ("star", {"hosts": "3.5"}, "hosts: found '3.5', expected a whole number"),
        ("star", {"hosts": "0"}, "hosts: found 0, expected a whole number from 1 to 16384"),
        ("star", {"link": "eth-10"}, r"unknown link 'eth-10' \(did you mean eth-10g\?\)"),
        ("star", {"node": "dgx"}, r"node: unknown node 'dgx' \(did you mean dgx1\?\)"),
        ("ring", {"hosts": "2"}, "hosts: found 2, expected a whole number from 3"),
        ("torus", {"sides": "4"}, "sides: found '4', expected two or three numbers"),
        ("torus", {"sides": "4x1"}, "sides: found 1, expected a whole number from 2"),
        ("torus", {"sides": "2x2x2x2"}, r"sides: found \(2, 2, 2, 2\), expected two or three"),
        ("torus", {"sides": "999x999"}, "of at most 16384 hosts"),
        ("hypercube", {"dimensions": "40"}, "dimensions: found 40, expected a whole number from 1 to 14"),
        ("fat-tree", {"k": "5"}, "k: found 5, expected an even number"),
        ("dragonfly", {"hosts": "99"}, "hosts: found 99, expected a whole number from 0 to 64"),
        ("dragonfly", {"groups": "99", "rows": "16", "columns": "32"}, "expected at most 16384"),
        ("dgx1", {"gpu": "a100"}, "gpu: found 'a100', expected p100 or v100"),
        ("nvswitch-node", {"gpus": "7"}, "gpus: found 7, expected an even number"),
        ("nvswitch-node", {"links_per_gpu": "3"}, "links_per_gpu: found 3, expected a whole number from 6"),
        ("cori-knl", {"nodes": "9689"}, "nodes: found 9689, expected a whole number from 2 to 9688"),
        ("dgx1-p100", {"node": "dgx1"}, "dgx1-p100: unknown parameter 'node'"),
    ],
)
def test_what_is_refused(name: str, given: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        build(name, given)


def test_all_unknown_parameters_are_told_at_once() -> None:
    with pytest.raises(InputError, match=r"(?s)'host'.*cables: found 'x'"):
        build("star", {"host": "3", "cables": "x"})


# --- composing -------------------------------------------------------------------------------------------------------


def test_cables_are_dealt_out_to_nics() -> None:
    cluster = compose("pair", star(hosts=2, link="ib-edr", cables=6), dgx1(), "a test")
    cables = {nic: data["connection"].count for nic, data in cluster.nx["switch"].items() if nic.startswith("host0")}
    assert cables == {"host0.nic0": 2, "host0.nic1": 2, "host0.nic2": 1, "host0.nic3": 1}
    assert len(cluster.endpoints) == 16
    assert {vertex.host for vertex in cluster.vertices} == {None, "host0", "host1"}


def test_direct_networks_join_nic_to_nic() -> None:
    cluster = compose("three", ring(hosts=3, link="ib-edr"), dgx1(), "a test")
    assert "host1.nic0" in cluster.nx["host0.nic0"]
    assert cluster.describe().nodes == 3 * len(dgx1().vertices)


def test_nodes_cut_off_where_they_are_slower_than_their_cables() -> None:
    """Eight EDR cables carry more than the one PCIe slot behind each of four NICs."""
    cluster = compose("pair", star(hosts=2, link="ib-edr", cables=8), dgx1(), "a test")
    assert cluster.describe().bisection.bytes_per_s == 4 * 12e9


def test_only_networks_of_hosts_are_filled() -> None:
    with pytest.raises(InputError, match="expected a network of hosts"):
        compose("odd", dgx1(), dgx1(), "a test")
    with pytest.raises(InputError, match="expected at most 200000 in all"):
        compose("large", star(hosts=16384), dgx1(), "a test")


@pytest.mark.parametrize("node", NODES)
def test_every_node_stands_in_a_network(node: str) -> None:
    cluster = build("star", {"hosts": "2", "node": node})
    assert nx.is_connected(cluster.nx)
    assert len(cluster.endpoints) == 2 * len(build(node).endpoints)


# --- pictures and the command ----------------------------------------------------------------------------------------


@EVERY
def test_every_graph_is_drawn(name: str, tmp_path: Path) -> None:
    graph = build(name)
    panels = picture(graph, graph.describe()).axes
    assert len(panels) == max(1, len(graph.parts))
    drawn = [sum(len(line.get_xdata()) == 1 for line in axes.lines) for axes in panels]  # type: ignore[arg-type]
    assert drawn == [len(part.vertices) for part in graph.parts or (graph,)]


@pytest.mark.parametrize(("ending", "start"), [(".svg", b"<?xml"), (".png", b"\x89PNG")])
def test_pictures_are_written_alike_each_time(ending: str, start: bytes, tmp_path: Path) -> None:
    graph: Graph = build("star", {"hosts": "3"})
    paths = [tmp_path / "new" / f"{number}{ending}" for number in (1, 2)]
    for path in paths:
        draw(graph, graph.describe(), path)
    assert paths[0].read_bytes().startswith(start)
    assert paths[0].read_bytes() == paths[1].read_bytes()


@EVERY
def test_the_command_answers_five_figures(name: str) -> None:
    result = call("topology", name, "--json")
    assert result.exit_code == 0
    answer = json.loads(result.stdout)
    assert list(answer) == ["name", "nodes", "links", "diameter_hops", "bisection_Bps", "kinds", "assumed"]
    assert answer["name"] == name
    assert answer["bisection_Bps"] > 0


def test_one_end_point_has_no_halves() -> None:
    assert json.loads(call("topology", "knl-node", "--set", "parts=1", "--json").stdout)["bisection_Bps"] is None


def test_the_command_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = call("topology", "torus", "--set", "sides=3x3")
    assert "2 hops" in result.stdout
    assert (tmp_path / "runs/torus.svg").stat().st_size > 0
    assert call("topology", "torus", "--json", "--out", "one.png").exit_code == 0
    assert (tmp_path / "one.png").stat().st_size > 0


def test_what_no_one_could_read_is_not_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    large = ["topology", "star", "--set", "hosts=2000"]
    result = call(*large)
    assert result.exit_code == 0
    assert "no picture: star: a picture of 2001 nodes cannot be read" in result.stderr
    assert call(*large, "--out", "a.svg").exit_code == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["dgx1-v10"], "did you mean dgx1-v100"),
        (["star", "--set", "hosts"], "expected parameter=value"),
        (["star", "--out", "a.gif"], "ends in .svg or .png"),
    ],
)
def test_wrong_input_exits_with_2(arguments: list[str], words: str, tmp_path: Path) -> None:
    result = call("topology", *arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stdout == ""


def test_list_shows_every_topology_with_its_parameters() -> None:
    items = {item["name"]: item for item in json.loads(call("list", "topologies", "--json").stdout)["items"]}
    assert list(items) == list(TOPOLOGIES)
    assert items["fat-tree"]["parameters"] == {"k": 4, "link": "eth-10g"}
    assert "k=4 link=eth-10g" in call("list", "topologies").stdout


def test_list_shows_every_link_with_its_figures() -> None:
    items = {item["name"]: item for item in json.loads(call("list", "links", "--json").stdout)["items"]}
    assert list(items) == list(LINKS)
    cable = items["home-cable"]
    assert (cable["bytes_per_s"], cable["download_bytes_per_s"], cable["variation"]["cv"]) == (2.5e6, 62.5e6, 0.2)
    assert cable["description"].startswith("15 ms, 20 Mbit/s up, 500 Mbit/s down, cv 0.2 over time; ")
    assert items["eth-10g"]["variation"] is None


def test_the_page_names_every_topology_and_its_examples_run() -> None:
    page = Path(__file__).parents[2] / "docs/topologies.md"
    text = page.read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith(("| networks", "| nodes", "| systems"))]
    assert re.findall(r"`([\w-]+)`", "".join(rows)) == list(TOPOLOGIES)
    session = doctest.DocTestParser().get_doctest(text.replace("```", ""), {}, "topologies", str(page), 0)
    result = doctest.DocTestRunner().run(session)
    assert result.attempted == text.count(">>> ")
    assert result.failed == 0
