"""NCCL's topology XML and Slurm's topology: what files mean, what is refused, and a cluster of both."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from paceline import scenarios, simulate
from paceline.algorithms.core.errors import InputError
from paceline.cli.app import app
from paceline.topologies.importing import load, nccl_topology, slurm

DATA = Path(__file__).parents[1] / "data/nccl"
TREE = "SwitchName=s0 Nodes=dev[0-5]\nSwitchName=s1 Nodes=dev[6-11]\nSwitchName=s2 Nodes=dev[12-17]\nSwitchName=s3 Switches=s[0-2]\n"  # noqa: E501
BLOCKS = "BlockName=b1 Nodes=node[1-32]\nBlockName=b2 Nodes=node[33-64]\nBlockSizes=30\n"


@pytest.mark.parametrize(
    ("name", "counts", "pcie", "device"),
    [
        ("aws-g5.48xl-topo.xml", (8, 2, 0, 1), {"pcie3-device": 9}, None),
        ("aws-p4d-24xl-topo.xml", (8, 2, 4, 4), {"pcie3-device": 12, "pcie3-uplink": 4}, "a100-sxm4-40"),
        ("azure-ncv4-topo.xml", (4, 4, 0, 1), {"pcie3-device": 4}, "a100-pcie-80"),
        ("azure-ndv2-topo.xml", (8, 2, 0, 1), {"pcie4-device": 9}, None),
    ],
)
def test_real_files(name: str, counts: tuple[int, ...], pcie: dict[str, int], device: str | None) -> None:
    graph = load(DATA / name, {"nics": "0000:00:15.0"} if "g5" in name else {})
    assert tuple(len(graph.of_kind(kind)) for kind in ("device", "host", "switch", "nic")) == counts
    links = Counter(connection.link.name for connection in graph.connections)
    assert {key: count for key, count in links.items() if key.startswith("pcie")} == pcie
    assert {vertex.device for vertex in graph.vertices if vertex.kind == "device"} == {device}


def gpu(busid: str, inside: str = "", speed: str = "32.0 GT/s PCIe") -> str:
    given = f'class="0x030200" vendor="0x10de" device="0x2330" link_speed="{speed}" link_width="8"'
    return f'<pci busid="{busid}" {given}><gpu dev="0" sm="90" rank="0" gdr="1">{inside}</gpu></pci>'


def system(body: str) -> str:
    return f'<system version="1"><cpu numaid="0">{body}</cpu></system>'


def test_a_dump_with_nvlinks_to_switches_and_half_of_the_lanes() -> None:
    links = '<nvlink target="s0" count="9" tclass="0x068000"/><nvlink target="s1" count="9" tclass="0x068000"/>'
    graph = nccl_topology.machine(system(gpu("a", links) + gpu("b", links)), "text", "pair")
    rates = {frozenset(hop.ends): (hop.bytes_per_s, hop.link.medium) for hop in graph.connections}
    assert rates[frozenset(("gpu0", "nvswitch"))] == (18 * 20.6e9, "nvlink")
    assert rates[frozenset(("gpu0", "cpu0"))] == (51.5e9 / 2, "pcie")


@pytest.mark.parametrize(
    ("processor", "bus", "gigabytes_per_s"),
    [
        ('vendor="AuthenticAMD" familyid="23" modelid="49"', "xgmi", 16),
        ('vendor="AuthenticAMD" familyid="25" modelid="1"', "xgmi-zen3", 24),
        ('vendor="AuthenticAMD" familyid="175" modelid="17"', "xgmi-zen3", 24),
        ('vendor="AuthenticAMD" familyid="26" modelid="2"', "xgmi-zen5", 32),
        ('vendor="GenuineIntel" familyid="6" modelid="85"', "upi-skylake", 10),
        ('vendor="GenuineIntel" familyid="6" modelid="173"', "upi-emerald-rapids", 40),
        ('vendor="GenuineIntel" familyid="5" modelid="200"', "qpi", 6),
        ('arch="arm64"', "arm-bus", 6),
        ('arch="ppc64"', "xbus-power9", 32),
    ],
)
def test_the_bus_between_sockets_has_nccls_rate(processor: str, bus: str, gigabytes_per_s: float) -> None:
    text = f'<system><cpu numaid="0" {processor}>{gpu("a")}</cpu><cpu numaid="1" {processor}>{gpu("b")}</cpu></system>'
    graph = nccl_topology.machine(text, "text", "pair")
    (between,) = [hop for hop in graph.connections if set(hop.ends) == {"cpu0", "cpu1"}]
    assert (between.link.name, between.bytes_per_s) == (bus, gigabytes_per_s * 1e9)
    assert any("as in NCCL" in words for words in graph.assumed)


def test_links_to_processors_take_the_place_of_pcie() -> None:
    grace = '<c2c bw="44712" count="10"/>'
    power = '<nvlink target="p" count="3" tclass="0x068001"/>'
    switch = f'<pci busid="s" class="0x060400" link_speed="64.0 GT/s PCIe" link_width="16">{gpu("c", grace)}</pci>'
    graph = nccl_topology.machine(system(gpu("a", grace) + gpu("b", power) + switch), "text", "three")
    rates = {frozenset(hop.ends): (hop.link.name, hop.bytes_per_s) for hop in graph.connections}
    assert rates == {
        frozenset(("cpu0", "gpu0")): ("nvlink-c2c", 447.12e9),
        frozenset(("cpu0", "gpu1")): ("nvlink4", 3 * 20.6e9),
        frozenset(("cpu0", "gpu2")): ("nvlink-c2c", 447.12e9),
        frozenset(("cpu0", "pcie0")): ("pcie6-x16-uplink", 2 * 51.5e9),
        frozenset(("pcie0", "gpu2")): ("pcie5-x8-device", 51.5e9 / 2),
    }
    assert {words for words in graph.assumed if "left out" in words} == {
        "PCIe of a GPU left out beside nvlink-c2c to the same processor",
        "PCIe of a GPU left out beside nvlink4 to the same processor",
    }


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ("<system><cpu>", ["line 1: not valid XML"]),
        ("<systems/>", ["found XML of <systems>"]),
        ("<!DOCTYPE a [<!ENTITY b 'c'>]><system/>", ["declares an entity"]),
        (system(""), ["has no GPU"]),
        (system(gpu("a", speed="fast") + gpu("a")), ["link_speed: found 'fast'", "is there already in line 1"]),
        (system(gpu("a", '<nvlink target="z" count="1"/>')), ["there is no GPU 'z'"]),
        (system(gpu("a", '<c2c bw="fast" count="1"/>')), ["line 1: c2c of a: found 'fast', expected MB/s"]),
        ("SwitchName=a Switches=b\nSwitchName=b Switches=a", ["line 1: a: is below itself", "line 2: b: is below"]),
        ("SwitchName=a Switches=c\nSwitchName=a Nodes=n", ["line 2: a: is there already in line 1"]),
        ("SwitchName=a Switches=c", ["line 1: a: no switch 'c'"]),
        ("SwitchName=a Nodes=n[2-1]\nSwitchName=b Nodes=n LinkSpeed=x", ["rising numbers", "LinkSpeed: found 'x'"]),
    ],
)
def test_what_is_refused(text: str, messages: list[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text(text)
    with pytest.raises(InputError) as error:
        load(tmp_path / "file")
    assert all(message in str(error.value) for message in messages)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("<system><cpu>", "line 1: not valid XML: no element found"),
        (system(""), "has no GPU; expected <gpu>, or <pci> of class 0x03"),
        ("<systems/>", "found XML of <systems>, expected <system> (NCCL)"),
    ],
)
def test_the_command_refuses_a_wrong_file_with_one_message(text: str, words: str, tmp_path: Path) -> None:
    file, picture = tmp_path / "bad.xml", tmp_path / "picture.svg"
    file.write_text(text)
    result = CliRunner().invoke(app, ["topology", str(file), "--out", str(picture)])
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"error: {file}: ") and words in line
    assert not picture.exists()


def test_trees_and_blocks_of_slurms_manual() -> None:
    tree = slurm.network(TREE, "text", "tree", {"link": "ib-hdr", "oversubscription": "2"})
    assert (len(tree.of_kind("host")), tree.of_kind("switch")) == (18, ("s0", "s1", "s2", "s3"))
    assert {hop.count for hop in tree.connections if hop.ends[0] == "s3"} == {3}
    blocks = slurm.network(BLOCKS, "text", "blocks")
    assert (len(blocks.of_kind("host")), blocks.of_kind("switch")) == (64, ("b1", "b2", "core"))


def test_a_cluster_of_two_files(tmp_path: Path) -> None:
    (tmp_path / "topology.conf").write_text(TREE)
    node = {"node": {"file": str(DATA / "aws-p4d-24xl-topo.xml")}, "count": 12}

    def step_s(link: str) -> float:
        network = {"file": str(tmp_path / "topology.conf"), "link": link, "cables": 4}
        scenario = scenarios.load({
            "name": "both", "algorithms": ["sync-sgd"], "cluster": {"nodes": [node], "network": network},
            "workload": {"model": "resnet50", "learning": "none", "batch_per_worker": 32}, "stop": {"updates": 2},
        })  # fmt: skip
        assert scenario.cluster.workers == 96
        (run,) = simulate(scenario)
        mean_s = run.summary["step_s"]["mean"]
        assert mean_s is not None
        return mean_s

    assert step_s("eth-1g") > step_s("efa-100g")
