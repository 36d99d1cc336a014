"""Published timings: words are read by rules, rows become scenarios, and no row stops the command.

`make test` reads the rules of words on made-up rows, and every third of the systems whose figures are known from
elsewhere; `make test-all` reads all of these.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms.core.errors import PacelineError
from paceline.algorithms.core.values import Group, Rank
from paceline.scenarios import load
from paceline.simulator.flows.fabric import GraphFabric
from paceline.simulator.network.network import ClusterNetwork
from paceline.simulator.runs.cost_model import cluster_network
from paceline.topologies.catalogue.libraries import EXCHANGE_S, LIBRARIES
from paceline.topologies.closed_forms import halving_doubling_s, recursive_doubling_s
from paceline.validation import steps
from paceline.validation.machines import Unread, read
from paceline.validation.outcome import LeftOut, Outcome
from paceline.validation.sets import ALONE, devices, mlperf, set_named, throughput
from paceline.validation.sets.collectives import Cost, costs
from paceline.workloads import MODELS
from tests.thorough import examples, sampled

COLLECTIVE: dict[str, str] = {
    "system": "made up", "device": "", "topology": "", "nranks": "8", "nnodes": "1", "ranks_per_node": "8",
    "allreduce_algorithm": "allreduce", "library": "NCCL", "algorithm": "auto", "bytes": "1048576", "time_us": "100",
    "algbw_GBps": "", "busbw_GBps": "", "stat": "mean", "time_derived_from_busbw": "", "source": "", "status": "",
    "notes": "",
}  # fmt: skip
THROUGHPUT: dict[str, str] = {
    "device": "T4", "n_devices": "1", "n_nodes": "1", "interconnect": "PCIe", "model": "resnet50",
    "batch_per_device": "64", "precision": "fp32", "framework": "made up", "year": "2020", "images_per_s": "100",
    "step_ms": "", "data": "synthetic", "train_gflop_per_image": "23.1", "peak_tflops": "8.1", "source": "",
    "status": "", "notes": "",
}  # fmt: skip


def cheapest_s(ways: Sequence[Cost]) -> float:
    return min(cost.seconds() for cost in ways)


def inside_bytes_per_s(machine: Any) -> float:
    """Returns the rate of a message to the next rank of a node where it is slowest, in the order of the ranks."""
    ranks, fabric = machine.cluster.placement[0], GraphFabric(machine.cluster)
    paths = [fabric.path(one, other, 1e6) for one, other in zip(ranks, ranks[1:] + ranks[:1], strict=True)]
    return min(min([path.limit_bytes_per_s, *(fabric.capacity[port] for port in path.ports)]) for path in paths)


@pytest.mark.parametrize(
    ("row", "inside", "between"),
    [
        ({"device": "H100-SXM5-80GB", "topology": "NVSwitch gen3"}, 18 * 20.6, None),
        ({"device": "A100-SXM4-40GB", "topology": "NVSwitch"}, 240.0, None),
        ({"device": "P100-SXM2", "topology": "DGX-1, hybrid cube mesh", "nranks": "3"}, 18.0, None),
        ({"device": "V100-SXM2", "topology": "hybrid cube mesh", "nranks": "2"}, 20.0, None),
        # neighbours in the order of the bus: one link each, and none from the last GPU of a socket to the next
        ({"device": "P100-SXM2", "topology": "hybrid cube mesh", "nranks": "4", "library": "NCCL 1.3"}, 18.0, None),
        ({"device": "P100-SXM2", "topology": "hybrid cube mesh", "library": "NCCL 1.3"}, 6.0, None),
        ({"device": "H200 NVL", "topology": "8 PCIe cards, NVL bridges"}, 40.0, None),
        ({"device": "A100 PCIe", "topology": "4 GPUs, 1 socket", "nranks": "4"}, 26.3 / 1.2, None),
        ({"device": "A100 PCIe", "topology": "4 GPUs, 1 socket, EPYC", "nranks": "4"}, 26.3, None),
        ({"device": "M40", "topology": "8 GPU/node dual root: 2 CPU, 4 PLX switches x 2 GPU"}, 6.0, None),
        ({"device": "M40", "topology": "dual root: 2 CPU, 4 PLX switches x 2 GPU", "nranks": "4"}, 10.0, None),
        ({"device": "M40", "topology": "dual root: 2 CPU, 4 PLX switches x 2 GPU", "nranks": "2"}, 12.0, None),
        ({"device": "V100-SXM2", "nranks": "16", "nnodes": "2", "topology": "NVLink; EFA 100 Gb/s"}, 6.0, 8.9),
        ({"device": "T4", "nranks": "2", "nnodes": "2", "topology": "EFA, 1 NIC, 25 Gb/s"}, None, 0.98 * 3.125),
        ({"device": "H100", "nranks": "16", "nnodes": "2", "topology": "HGX, 8x NDR 400 Gb/s"}, 18 * 20.6, 8 * 48.0),
        ({"device": "GTX 1080", "nranks": "4", "nnodes": "4", "topology": "40GbE TCP"}, None, 4.48),
        ({"device": "GTX 1080", "nranks": "4", "nnodes": "4", "topology": "InfiniBand QDR"}, None, 3.3),
        (
            {"device": "KNL 7250", "nranks": "4", "nnodes": "4", "topology": "Omni-Path 100", "library": "MPI"},
            5.0,
            12.3,
        ),
        ({"device": "CPU", "nranks": "4", "nnodes": "2", "topology": "dual-rail EDR", "library": "MPI"}, 5.0, 23.8),
    ],
)
def test_words_become_links(row: dict[str, str], inside: float | None, between: float | None) -> None:
    machine = read(COLLECTIVE | row)
    if inside is not None:
        assert inside_bytes_per_s(machine) / 1e9 == pytest.approx(inside)
    if between is not None:
        assert machine.network_bytes_per_s / 1e9 == pytest.approx(between)


NDR = {"device": "H100-SXM5-80GB", "topology": "DGX SuperPOD, NDR InfiniBand", "nranks": "64", "nnodes": "8"}
UNLIKE: list[Any] = [
    # bus bandwidth in GB/s of an all-reduce of 1 GiB by a published fact, or None, and a factor in both directions
    ({"device": "V100-SXM3-32GB", "topology": "DGX-2, 16 V100, NVSwitch", "nranks": "16"}, 120.0, 1.1),  # six NVLinks
    ({"device": "8x MI250X", "topology": "Infinity Fabric", "library": "RCCL 2.14"}, None, 1.0),
    ({"device": "A100-SXM4", "topology": "4 nodes x 4 A100, HDR", "nranks": "16", "nnodes": "4"}, 96.0, 1.1),
    (
        {"system": "Summit, jsrun", "device": "V100-SXM2", "topology": "dual-rail EDR", "nranks": "36", "nnodes": "6",
         "library": "NCCL 2.4"}, 23.0, 1.1,  # what a node injects
    ),
    ({"device": "CPU", "topology": "2x10GbE TCP", "nnodes": "8", "library": "gloo"}, None, 1.0),
    ({"device": "CPU", "topology": "2x10GbE TCP", "nnodes": "8", "library": "gloo"}, 1.16, 1.1),  # what one core moves
    ({"device": "A100", "topology": "NVLink, 4x Slingshot 200 Gb/s", "nranks": "32", "nnodes": "8"}, 4 * 23.3, 1.1),
    ({"system": "Frontier", "device": "MI250X", "topology": "4x Slingshot-11", "nnodes": "2", "nranks": "16",
      "library": "RCCL"}, None, 1.0),
    ({"device": "p4d.24xlarge", "topology": "EFA 400 Gbps", "nranks": "16", "nnodes": "2"}, None, 1.0),
    ({"device": "V100-SXM2-32GB", "topology": "p3dn.24xlarge, EFA 100 Gb/s", "nranks": "16", "nnodes": "2",
      "library": "NCCL 2.4"}, 8.9, 1.1),  # 8.8 to 8.95 at 1 GiB
    (NDR, None, 1.0),
    ({"device": "H100-SXM5-80GB", "topology": "NVSwitch gen3"}, 480.0, 1.1),  # close to it, according to a maintainer
    ({"device": "L40S", "topology": "8 GPUs, PCIe4, dual socket", "algorithm": "ring"}, 16.0, 1.1),  # between sockets
    ({"device": "T4", "topology": "25 GbE RoCE", "nranks": "4", "nnodes": "4"}, 3.06, 1.1),
    ({"device": "GB200 NVL72", "topology": "NVLink Switch", "nranks": "72", "nnodes": "18"}, None, 1.0),
    ({"device": "not stated", "topology": "2 CPU sockets, 4 GPUs", "nranks": "4", "library": "NCCL 2.4"}, None, 1.0),
    ({"device": "KNL 7250", "topology": "Omni-Path", "nranks": "32", "nnodes": "32", "library": "MLSL"}, None, 1.0),
    ({"device": "EPYC", "topology": "HDR", "nranks": "512", "nnodes": "4", "library": "Open MPI 5.0.3"}, None, 1.0),
]  # fmt: skip


@pytest.mark.parametrize(("row", "busbw", "within"), sampled(UNLIKE, UNLIKE[2::3]))
def test_other_systems_are_plausible(row: dict[str, str], busbw: float | None, within: float) -> None:
    machine = read(COLLECTIVE | row)
    times = [cheapest_s(costs(machine, "allreduce", 1024.0 * 4**n)) for n in range(11)]
    assert all(earlier <= later for earlier, later in itertools.pairwise(times))
    assert 1e-6 < times[0] < 5e-3
    found = 2 * (machine.ranks - 1) / machine.ranks * 2**30 / times[-1] / 1e9
    if busbw is None:  # not faster than the links of a GPU, and not a hundred times slower than its network
        inside = inside_bytes_per_s(machine) if machine.workers_per_node > 1 else math.inf
        assert found < 2 * (inside if math.isfinite(inside) else machine.network_bytes_per_s) / 1e9
        assert found > 0.01 * min(inside, machine.network_bytes_per_s) / 1e9
    else:
        assert busbw / within < found < busbw * within


def test_what_has_no_model_is_not_predicted() -> None:
    with pytest.raises(PacelineError, match="trainium"):
        read(COLLECTIVE | {"device": "Trainium"})


def test_open_mpi_5_goes_by_levels_of_segments() -> None:
    row = {"device": "CPU", "topology": "EDR", "nranks": "32", "nnodes": "4", "library": "Open MPI 5.0"}
    machine = read(COLLECTIVE | row)
    one, sixteen = ([*costs(machine, "allreduce", n * 65536.0)] for n in (1.0, 16.0))
    assert [cost.name for cost in one] == ["levels/rendezvous"]
    # eight ranks of a node: three messages of a segment up, three down, over shared memory
    node_s = 6 * (65536 / 5e9 + 3 * 0.4e-6)
    assert sixteen[0].seconds() - one[0].seconds() > 15 * 0.9 * node_s


def test_what_words_do_not_say_is_said() -> None:
    machine = read(COLLECTIVE | {"nnodes": "2"})
    assert "no chip named" in machine.assumed[0]
    assert any("network cards not given" in text for text in machine.assumed)


def test_old_nccl_has_rings_of_one_protocol_and_new_has_more() -> None:
    row = COLLECTIVE | {"device": "V100-SXM2", "topology": "DGX-1"}
    old = costs(read(row | {"library": "NCCL 2.0"}), "allreduce", 1e6)
    new = costs(read(row | {"library": "NCCL 2.18"}), "allreduce", 1e6)
    assert [cost.name for cost in old] == ["ring-channels/Simple", "ring/Simple"]
    patterns = ("ring", "ring-channels", "double-tree")
    assert {cost.name for cost in new} == {f"{a}/{p}" for a in patterns for p in ("LL", "LL128", "Simple")}


@pytest.mark.parametrize(("nbytes", "formula"), [(4096.0, recursive_doubling_s), (1048576.0, halving_doubling_s)])
@pytest.mark.parametrize("nodes", [8, 12])
def test_one_rank_a_node_is_the_closed_form(nbytes: float, formula: Any, nodes: int) -> None:
    row = {"device": "CPU", "nranks": str(nodes), "nnodes": str(nodes), "topology": "EDR", "library": "Open MPI 4.1"}
    (cost,) = costs(read(COLLECTIVE | row), "allreduce", nbytes)
    latency_s = (1e-6 if nbytes < 8192 else 3e-6) + EXCHANGE_S
    if nbytes > 8192 and nodes == 8:  # the last messages are still above the limit of eager ones
        assert nbytes / 8 > 8192
    expected = formula(nodes, nbytes, latency_s, 1 / 11.9e9, 1e-10)
    assert cost.seconds() == pytest.approx(expected, rel=1e-9)


def test_a_row_costs_what_a_scenario_of_the_same_cluster_costs() -> None:
    """The benchmark predicts with what `simulate` uses, for the same words in a scenario."""
    network = {"link": "ib-hdr", "cables": 8, "library": "nccl", "library_version": "2.18"}
    scenario = {
        "name": "two", "cluster": {"nodes": [{"node": "nvswitch-node", "count": 2}], "network": network},
        "workload": {"model": "resnet50", "learning": "none"}, "algorithms": ["sync-sgd"], "stop": {"updates": 2},
    }  # fmt: skip
    (plan,) = load(scenario).plans()
    row = {"device": "A100-SXM4-40GB", "topology": "NVSwitch; 8x HDR", "nranks": "16", "nnodes": "2"}
    machine = read(COLLECTIVE | row | {"library": "NCCL 2.18"})
    modelled: ClusterNetwork = cluster_network(plan)
    group = Group(tuple(map(Rank, range(16))))
    for nbytes in (8, 2**20, 2**30):
        _, alone_s = modelled.alone("AllReduce", group, nbytes, 0)
        cost = costs(machine, "allreduce", float(nbytes))[0]
        assert cost.seconds() == pytest.approx(alone_s, rel=1e-9)


@pytest.mark.parametrize(("ranks", "nodes", "slowest"), [(4, 1, 21.9e9), (8, 4, 6.2e9), (6, 2, 6.2e9)])
def test_rings_of_nccl_are_played_on_the_machine(ranks: int, nodes: int, slowest: float) -> None:
    row = {"device": "RTX 3090", "nranks": str(ranks), "nnodes": str(nodes), "topology": "1 socket; InfiniBand FDR"}
    machine = read(COLLECTIVE | row | {"library": "NCCL 2.0"})
    (cost,) = costs(machine, "allreduce", 1e9)
    assert cost.transfer_s == pytest.approx(2 * (ranks - 1) / ranks * 1e9 / slowest, rel=2e-3)
    inside = inside_bytes_per_s(machine) if machine.workers_per_node > 1 else math.inf
    assert slowest == pytest.approx(min(inside, machine.network_bytes_per_s if nodes > 1 else inside), rel=1e-3)


def test_chains_pass_the_middle_of_a_node_once_in_each_direction_and_rings_almost_twice() -> None:
    row = {"device": "H200 NVL", "topology": "8 PCIe cards, NVL bridges", "library": "NCCL 2.28"}
    found = costs(read(COLLECTIVE | row), "allreduce", 1e10)
    transfer_s = {cost.name: cost.transfer_s for cost in found}
    assert transfer_s["double-tree/Simple"] == pytest.approx(1e10 / (0.92 * 40e9))
    assert transfer_s["ring/Simple"] == pytest.approx(1e10 * 2 * 7 / 8 / 40e9, rel=1e-3)


def test_switches_of_several_nodes_add_and_a_tree_joins_them() -> None:
    row = {"device": "H100-SXM5", "topology": "NVSwitch, 4x NDR 400 Gb/s", "nranks": "32", "nnodes": "4"}
    found = {cost.name: cost for cost in costs(read(COLLECTIVE | row), "allreduce", 1e10)}
    # up and down, slower than the switches
    assert found["nvls-tree/Simple"].transfer_s == pytest.approx(2 * 1e10 / (0.85 * 4 * 48e9), rel=0.01)
    two = {cost.name: cost for cost in costs(read(COLLECTIVE | row | {"nnodes": "2"}), "allreduce", 1e10)}
    assert two["nvls-tree/Simple"].transfer_s == pytest.approx(1e10 / (0.85 * 4 * 48e9), rel=0.01)  # leaves a node once
    more_s = found["nvls-tree/Simple"].latency_s - two["nvls-tree/Simple"].latency_s
    assert more_s == pytest.approx(2 * (20.9e-6 + 1e-6), rel=0.05)  # and the link
    old = costs(read(COLLECTIVE | row | {"library": "NCCL 2.17"}), "allreduce", 1e10)
    assert "nvls-tree/Simple" not in {cost.name for cost in old}


def test_rings_of_gloo_are_no_faster_than_a_core() -> None:
    row = {"device": "CPU", "topology": "1GbE", "nranks": "4", "nnodes": "4", "library": "gloo"}
    machine = read(COLLECTIVE | row | {"algorithm": "allreduce_ring"})
    (cost,) = costs(machine, "allreduce", 1e6)
    assert cost.name == "ring/segments"
    assert cost.latency_s == pytest.approx(6 * (40e-6 + 20e-6))
    assert cost.transfer_s == pytest.approx(6 * 0.25e6 / 0.11e9 + 3 * 0.25e6 * 1e-10, rel=0.01)


def test_gpus_of_2016_copy_their_vectors_for_mpi_and_not_for_nccl() -> None:
    row = {"device": "P100-PCIE", "topology": "1 socket", "nranks": "8", "nnodes": "4"}
    copied, direct = read(COLLECTIVE | row | {"library": "Open MPI 4.1"}), read(COLLECTIVE | row | {"library": "NCCL"})
    for machine, is_direct in ((copied, False), (direct, True)):
        staging, (first, *_) = machine.cluster.staging, machine.cluster.nodes
        assert staging is not None
        assert staging.direct(first.device, LIBRARIES[machine.library], "any") is is_direct


def test_decisions_of_open_mpi() -> None:
    mpi = LIBRARIES["mpi"]
    assert [mpi.algorithm(2, n, (4, 0)) for n in (9_999, 10_000)] == ["recursive-doubling", "ring"]
    assert [mpi.algorithm(2, n) for n in (8191, 16384, 262144)] == ["ring", "ring", "halving-doubling"]
    assert LIBRARIES["gloo"].algorithm(8, 100) is None


TEXT = st.text(alphabet="abNVLIBx0123456789 ./-×;:()GTHCPUgbps_", max_size=40)


def table(name: str, template: Mapping[str, str], *rows: Mapping[str, str]) -> list[Outcome | LeftOut]:
    """Returns the results of all rows of a table of a set."""
    known = set_named(name)
    groups, left_out = known.groups([{"line": str(at), **template, **row} for at, row in enumerate(rows, start=2)])
    return [*left_out, *(result for group in groups for result in known.predict(group))]


@given(row=st.fixed_dictionaries(dict.fromkeys(COLLECTIVE, TEXT)))
def test_no_words_stop_the_reader(row: dict[str, str]) -> None:
    results = table("collectives", COLLECTIVE, row, {"topology": row["topology"]})
    assert len(results) == 2
    assert all(result.measured > 0 for result in results if isinstance(result, Outcome))


WORDS = {
    "device": ["", "CPU", "A100", "MI250X", "KNL 7250", "T4", "GB200 NVL72", "Xeon", "K80", "L40S", "GH200"],
    "topology": [
        "",
        "NVSwitch",
        "PCIe3 dual root",
        "2 CPU sockets x 4 GPUs",
        "EFA",
        "OPA",
        "HDR",
        "1GbE",
        "NVL bridge",
    ],
    "library": ["", "NCCL 2.0", "RCCL", "Open MPI 5.0", "OpenMPI", "Intel MPI", "gloo", "MLSL", "Horovod"],
    "algorithm": ["", "ring", "tree", "NVLS", "recursive doubling", "allreduce_ring", "halving-doubling"],
    "collective": ["allreduce", "allgather", "broadcast", "reduce_scatter", "alltoall", "reduce"],
    "nranks": ["2", "3", "8", "72", "96"],
    "nnodes": ["1", "2", "3"],
}


@examples(8)
@given(row=st.fixed_dictionaries({column: st.sampled_from(words) for column, words in WORDS.items()}))
def test_known_words_in_any_mix_are_predicted_or_refused(row: dict[str, str]) -> None:
    results = table("collectives", COLLECTIVE | row, *({"bytes": str(4**n)} for n in (1, 7, 14)))
    assert len(results) == 3
    assert all(0 < result.predicted < 1e3 for result in results if isinstance(result, Outcome))


@examples(8)
@given(row=st.fixed_dictionaries(dict.fromkeys(THROUGHPUT, TEXT)))
@pytest.mark.parametrize("name", ["throughput", "devices"])
def test_no_words_stop_throughput(name: str, row: dict[str, str]) -> None:
    several = {"n_devices": "2", "interconnect": row["interconnect"]}
    results = table(name, THROUGHPUT, row, several, {"device": row["device"]}, {"model": row["model"]})
    assert all(result.predicted > 0 for result in results if isinstance(result, Outcome))


def test_software_without_a_vendor_s_library_and_early_software_are_slower() -> None:
    row = {"device": "TitanX (Maxwell)", "model": "vgg11", "images_per_s": "58.23", "batch_per_device": "64"}
    assert devices.chips_of([THROUGHPUT | row]) == {"maxwell 6.69"}  # as this figure is among the fitted rows
    plain, own, early = (
        next(result.predicted for result in table("devices", THROUGHPUT, row | words) if isinstance(result, Outcome))
        for words in ({}, {"framework": "Caffe native"}, {"framework": "cuDNN R2"})
    )
    assert 1.2 < plain / early < plain / own < 5


def test_a_model_without_a_table_takes_its_relatives_time() -> None:
    """Inception-v4 has more operations than Inception-v3; its time is longer in the same proportion."""
    row = THROUGHPUT | {"device": "P100", "batch_per_device": "32", "line": "2"}
    known, same = devices.model_of(row | {"model": "inception3"})
    _, scale = devices.model_of(row | {"model": "inception4", "train_gflop_per_image": "73.5"})
    assert same == 1.0
    assert scale == pytest.approx(73.5e9 / known.training_flops)


def test_a_guessed_precision_is_none() -> None:
    assert throughput.precision_of("mixed?") == "fp32"
    assert throughput.precision_of("mixed") == "amp"


def test_unreadable_rows_are_left_out_with_their_reason() -> None:
    predicted_us = 1e6 * cheapest_s(costs(read(COLLECTIVE | {"device": "T4"}), "allreduce", 1048576.0))
    rows = [{"device": "T4", "time_us": str(predicted_us / 1.2)}, {"device": "T4", "time_us": "nonsense"}]
    right, wrong = table("collectives", COLLECTIVE, *rows)
    assert isinstance(right, Outcome) and right.error == pytest.approx(0.2)
    assert isinstance(wrong, LeftOut) and "time_us" in wrong.reason


def test_scaling_starts_from_one_device() -> None:
    rows = [{}, {"n_devices": "4", "images_per_s": "396"}, {"n_devices": "4", "images_per_s": "9", "model": "vgg16"}]
    alone, outcome = table("throughput", THROUGHPUT, *rows)
    assert alone == LeftOut("throughput", "line 4", ALONE)  # no vgg16 on one device
    assert isinstance(outcome, Outcome)
    assert outcome.error < 0.05
    assert outcome.simpler["linear scaling"] == pytest.approx(400.0)


ON_DGX1 = {"device": "P100-SXM2", "interconnect": "NVLink1 hybrid cube mesh", "year": "2017"}


def exchange_s(words: str, devices: int = 4, data: str = "synthetic", notes: str = "") -> tuple[str, float]:
    """Returns the method of a row of VGG-16, and how much longer than a gradient of 0.4 s its step is."""
    given = ON_DGX1 | {"n_devices": str(devices), "model": "vgg16", "framework": words, "notes": notes, "data": data}
    row = throughput.row_of({"line": "2", **THROUGHPUT, **given})
    assert row is not None
    constant = {"cluster": {"step_time": {"profile": "dedicated", "sigma": 1e-6}}}
    return steps.method_of(row), steps.step_s(replace(row, keys=constant), ((row.batch, 0.4),)) - 0.4


def test_tensorflow_1_waits_for_its_queue_and_others_hide_the_exchange() -> None:
    times = {words: exchange_s(words)[1] for words in ("TF 1.x", "PyTorch", "TF 1.4 with Horovod")}
    nbytes = 4 * MODELS["vgg16"].parameters
    update_s = 3 * nbytes / 585.6e9  # reads gradient and weights, writes weights
    # one ring over one NVLink, nothing hidden
    assert times["TF 1.x"] == pytest.approx(1.5 * nbytes / 18e9 + update_s, rel=0.03)
    # NCCL takes a part of the GPU while it hides behind the backward pass
    assert times["PyTorch"] == times["TF 1.4 with Horovod"] < 0.4 * times["TF 1.x"]


def test_the_server_of_a_framework_is_that_of_sync_sgd_ps() -> None:
    notes = "vgg16: parameter_server on cpu"
    method, two_s = exchange_s("TF 1.x", 2, notes=notes)
    assert method == "sync-sgd-ps"
    # two GPUs fetch the weights over the PCIe of one switch, at best while all of the forward pass runs
    assert two_s > 2 * 4 * MODELS["vgg16"].parameters / 12e9 - 0.4 / 3
    assert exchange_s("TF 1.x", 8, notes=notes)[1] > 2 * two_s
    whole_s = exchange_s("own framework", 2, notes=notes)[1]  # known to send no variables on their own
    assert whole_s > 2 * 2 * 4 * MODELS["vgg16"].parameters / 12e9
    assert two_s < 0.8 * whole_s


def test_the_share_of_a_block_without_training_is_not_in_images_per_second() -> None:
    line = {
        "line": "2", "round": "1.1", "submitter": "a", "system": "b", "accelerator": "A100-SXM4-40GB", "nodes": "1",
        "accelerators": "8", "global_batch_size_samples": "3264", mlperf.RATE: "26000", "network": "",
        "framework": "MXNet", "first_source": "",
    }  # fmt: skip
    whole, training = mlperf.row_of(line), mlperf.row_of({**line, mlperf.OTHER: "0.25"})
    assert whole.samples_per_s == pytest.approx(26000)
    assert training.samples_per_s == pytest.approx(26000 / 0.75)
    assert whole.assumed == (mlperf.ALL,) and training.assumed == ()
    with pytest.raises(Unread, match=mlperf.RATE):
        mlperf.row_of({**line, mlperf.RATE: ""})


def test_pictures_are_decoded_no_faster_than_by_the_cores_of_a_node() -> None:
    given = ON_DGX1 | {"n_devices": "8", "model": "alexnet-owt", "batch_per_device": "512"}
    real, synthetic = (
        throughput.row_of({"line": "2", **THROUGHPUT, **given, "data": data}) for data in ("real ImageNet", "synthetic")
    )
    assert real is not None and synthetic is not None
    rate = 8 * 512 / steps.step_s(real, ((512, 0.05),))
    assert rate == pytest.approx(40 * 200.0, rel=0.01)
    assert 8 * 512 / steps.step_s(synthetic, ((512, 0.05),)) > 5 * rate


def test_rows_without_sense_say_so() -> None:
    for row in ({"nranks": "1"}, {"nranks": "two"}, {"nnodes": "9"}, {"nranks": ""}):
        with pytest.raises(PacelineError, match="found"):
            read(COLLECTIVE | row)
