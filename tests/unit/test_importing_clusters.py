"""NCCL's topology XML and Slurm's topology: what files mean, what is refused, and a cluster of both."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from paceline import scenarios, simulate
from paceline.algorithms.core.errors import InputError
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
    ("text", "messages"),
    [
        ("<system><cpu>", ["line 1: not valid XML"]),
        ("<systems/>", ["found XML of <systems>"]),
        ("<!DOCTYPE a [<!ENTITY b 'c'>]><system/>", ["declares an entity"]),
        (system(""), ["has no GPU"]),
        (system(gpu("a", speed="fast") + gpu("a")), ["link_speed: found 'fast'", "is there already in line 1"]),
        (system(gpu("a", '<nvlink target="z" count="1"/>')), ["there is no GPU 'z'"]),
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
