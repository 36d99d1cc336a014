"""hwloc's XML: real machines with and without NVLinks, machines without GPUs, and refusals."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from paceline.algorithms.core.errors import InputError
from paceline.cli.app import app
from paceline.scenarios import load as load_scenario
from paceline.topologies.graphs.graph import Graph
from paceline.topologies.importing import hwloc, load

DATA = Path(__file__).parents[1] / "data/hwloc"


def rates(graph: Graph) -> dict[frozenset[str], tuple[str, float]]:
    return {frozenset(hop.ends): (hop.link.name, hop.bytes_per_s) for hop in graph.connections}


def test_a_dgx2_has_switches_of_both_kinds() -> None:
    graph = load(DATA / "nvidia-dgx2.xml")
    assert [len(graph.of_kind(kind)) for kind in ("device", "host", "nic")] == [16, 2, 0]
    links = Counter((hop.link.name, hop.count) for hop in graph.connections)
    assert links == {
        ("pcie3-device", 1): 16,
        ("pcie3-uplink", 1): 12,  # four switches at the roots, each with two below
        ("nvlink2", 6): 16,
        ("upi-skylake", 1): 1,  # an info of the file: model 85
    }
    found = rates(graph)
    assert all(found[frozenset((gpu, "nvswitch"))] == ("nvlink2", 6 * 20e9) for gpu in graph.of_kind("device"))
    assert frozenset(("pcie0", "pcie1")) in found and frozenset(("pcie1", "gpu0")) in found


def test_nvlinks_to_processors_and_names_of_devices() -> None:
    graph = load(DATA / "power8-p100.xml")
    two = ("nvlink1", 36e9)
    pairs = [("cpu0", "gpu0"), ("cpu0", "gpu1"), ("cpu1", "gpu2"), ("cpu1", "gpu3"), ("gpu0", "gpu1"), ("gpu2", "gpu3")]
    expected = {frozenset(pair): two for pair in pairs}
    assert rates(graph) == expected | {frozenset(("cpu0", "cpu1")): ("xbus-power9", 32e9)}
    assert {vertex.device for vertex in graph.vertices if vertex.kind == "device"} == {"p100-sxm2"}


def test_speeds_are_those_of_idle_devices_and_only_fabrics_are_kept() -> None:
    graph = load(DATA / "westmere-3-gpus.xml")
    assert rates(graph)[frozenset(("cpu0", "gpu0"))] == ("pcie1-x16-device", 3e9)
    assert graph.of_kind("nic") == ("nic0",), "InfiniBand, beside two ports of Ethernet"
    assert {"PCIe below 8 GT/s when lstopo ran, as idle devices have it"} < set(graph.assumed)
    assert "display controller 1002:515e left out" in graph.assumed


def topology(*inside: str, more: str = "", version: str = "2.0") -> str:
    return f'<topology version="{version}"><object type="Machine">{"".join(inside)}</object>{more}</topology>'


def device(busid: str, kind: str, speed: str = "15.753846", inside: str = "") -> str:
    return (
        f'<object type="PCIDev" gp_index="{busid}" pci_busid="{busid}" pci_type="{kind}" pci_link_speed="{speed}">'
        f"{inside}</object>"
    )


def package(index: int, *inside: str, infos: str = "") -> str:
    return f'<object type="Package" os_index="{index}">{infos}{"".join(inside)}</object>'


def test_a_machine_without_gpus_is_its_sockets() -> None:
    infos = '<info name="CPUVendor" value="AuthenticAMD"/><info name="CPUFamilyNumber" value="25"/>'
    graph = hwloc.machine(topology(package(0, infos=infos), package(1, infos=infos)), "text", "box")
    assert graph.endpoints == ("cpu0", "cpu1")
    assert rates(graph) == {frozenset(("cpu0", "cpu1")): ("xgmi-zen3", 24e9)}


def test_devices_without_a_place_belong_to_the_first_package() -> None:
    bridge = f'<object type="Bridge" bridge_type="0-1">{device("a", "0302 [10de:2330]", "63.0")}</object>'
    graph = hwloc.machine(topology(package(0), package(1), bridge), "text", "box")
    assert rates(graph)[frozenset(("cpu0", "gpu0"))] == ("pcie5-device", 51.5e9)
    assert "PCI devices at the machine belong to the first package" in graph.assumed


@pytest.mark.parametrize(
    ("version", "kind", "kept"), [("2.0", "3", 1), ("3.0", "48", 1), ("3.0", "3", 2), ("2.0", "2", 2)]
)
def test_types_of_devices_are_numbers_and_since_version_3_bits(version: str, kind: str, kept: int) -> None:
    fabric = f'<object type="OSDev" name="mlx5_0" osdev_type="{kind}"/>'
    cards = device("a", "0200 [8086:10c9]") + device("b", "0207 [15b3:101b]", inside=fabric)
    graph = hwloc.machine(topology(package(0, cards), version=version), "text", "box")
    assert len(graph.of_kind("nic")) == kept


def matrix(indexes: str, values: str) -> str:
    return (
        f'<distances2 type="PCIDev" name="NVLinkBandwidth"><indexes>{indexes}</indexes>'
        f"<u64values>{values}</u64values></distances2>"
    )


def test_nvlinks_between_devices_of_one_type() -> None:
    pair = device("1", "0302 [10de:20b0]") + device("2", "0302 [10de:20b0]")
    graph = hwloc.machine(topology(package(0, pair), more=matrix("1 2", "0 300000 300000 0")), "text", "pair")
    assert rates(graph)[frozenset(("gpu0", "gpu1"))] == ("nvlink3", 12 * 20e9)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (topology(package(0, device("a", "gpu"))), "line 1: PCIDev a: pci_type: found 'gpu', expected its class"),
        (topology(package(0, device("a", "0302 [10de:2330]", "fast"))), "pci_link_speed: found 'fast', expected GB/s"),
        (topology(package(0), more=matrix("1 2", "0 1 2")), "found 3 values for 2 objects, expected 4 whole numbers"),
        ("<topology/>", "has 0 objects of type Machine, expected one"),
    ],
)
def test_a_wrong_file_is_refused_with_one_message(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.xml"
    file.write_text(text)
    result = CliRunner().invoke(app, ["topology", str(file), "--out", str(tmp_path / "picture.svg")])
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"error: {file}: ") and message in line


def test_a_node_of_a_scenario(tmp_path: Path) -> None:
    nodes = [{"node": {"file": str(DATA / "power8-p100.xml")}, "count": 2}]
    scenario = load_scenario({
        "name": "power", "algorithms": ["sync-sgd"], "cluster": {"nodes": nodes, "network": {"link": "ib-edr"}},
        "workload": {"model": "resnet50", "learning": "none", "batch_per_worker": 32}, "stop": {"updates": 2},
    })  # fmt: skip
    assert scenario.cluster.workers == 8
    with pytest.raises(InputError, match="unknown parameter 'nics'"):
        load(DATA / "power8-p100.xml", {"nics": "a"})
