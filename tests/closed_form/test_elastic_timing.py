"""How long steps of elastic averaging last (numbers 14 and 38, and the steps from Original to Sync EASGD3 of SC'17)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms.core.job import Evaluation, OneByOne
from paceline.algorithms.core.values import Layer, Layout, Null, Samples
from paceline.algorithms.methods.elastic import Easgd, SyncEasgd1, SyncEasgd2, SyncEasgd3
from paceline.records.trace import Schedule
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.network.network import ClusterNetwork, MeasuredNetwork, NetworkModel
from paceline.topologies.catalogue.device import DeviceModel
from paceline.topologies.cluster import ClusterModel, Node, sites
from paceline.topologies.graphs.graph import Graph
from paceline.topologies.graphs.links import LinkModel
from paceline.topologies.graphs.machines import at, dgx1, dual_root_pcie, joined, pcie_tree
from tests.support import FixedTiming, job_of

FAMILY: list[Any] = [Easgd(), SyncEasgd1(), SyncEasgd2(), SyncEasgd3()]
LENET = 431_080
"""parameters of Caffe's LeNet: 1.72 MB"""


@dataclass(frozen=True)
class Sized(OneByOne):
    """A problem without learning: only layers of these sizes."""

    sizes: Sequence[int]
    num_samples: int = 60_000

    @property
    def layout(self) -> Layout:
        ends = [sum(self.sizes[: n + 1]) for n in range(len(self.sizes))]
        return Layout(
            tuple(Layer(f"l{n}", end - size, end) for n, (size, end) in enumerate(zip(self.sizes, ends, strict=True)))
        )

    def initial(self) -> Null:
        return Null(sum(self.sizes))

    def load(self, samples: Samples) -> None:
        return None

    def gradient(self, vector: Any, data: Any) -> tuple[Any, float]:
        return vector, 0.0

    def layer_gradients(self, vector: Any, data: Any, ready: Any) -> float:
        raise NotImplementedError

    def evaluate(self, vector: Any) -> Evaluation:
        return Evaluation(0.0, None)


def round_s(
    method: Any, network: NetworkModel, workers: int, *, sizes: Sequence[int] = (LENET,), rounds: int = 3, **times: Any
) -> float:
    """Returns the seconds in which every worker takes one more step, without the first round and the stop."""
    ends = []
    for count in (1, 1 + rounds):
        steps = count * workers if isinstance(method, Easgd) else count
        job = job_of(method, steps=steps, nodes=[list(range(workers))], learner=Sized(sizes))
        trace = simulate_job(job, FixedTiming(**times), network, Schedule(every=10**9))
        ends.append(max(update.time_s for update in trace.updates))
    return (ends[1] - ends[0]) / rounds


def network(alpha_s: float, beta_s: float) -> MeasuredNetwork:
    """Every tree takes α + β n, and so does every message that is not empty."""

    def cost(nbytes: int) -> float:
        return alpha_s + beta_s * nbytes if nbytes else 0.0

    return MeasuredNetwork(lambda _kind, _members, nbytes: cost(nbytes), cost)


# --- closed forms -----------------------------------------------------------------------------------------------------


@given(
    compute=st.floats(0.0, 2.0),
    load=st.floats(0.0, 1.0),
    work=st.floats(0.0, 1.0),
    alpha_s=st.floats(0.0, 1.0),
    workers=st.integers(1, 5),
)
def test_the_steps_are_the_papers(compute: float, load: float, work: float, alpha_s: float, workers: int) -> None:
    """D: data, F: gradient, U: update, T: both trees. 1 and 2: D + F + T + U; 3: max(D + F, T) + U, so never more.

    Original EASGD: P (D + F + 2 (α + n β) + U), one worker after the other; the worker's own U passes meanwhile.
    """
    tree = alpha_s + 400 * 1e-3
    times: dict[str, Any] = {"compute": compute, "load": load, "work": work, "sizes": (100,)}
    found = [round_s(method, network(alpha_s, 1e-3), workers, **times) for method in FAMILY]
    gradient = load + compute
    expected = [
        workers * (gradient + 2 * tree + work),
        gradient + 2 * tree + work,
        gradient + 2 * tree + work,
        max(gradient, 2 * tree) + work,
    ]
    assert found == pytest.approx(expected)
    assert found[3] <= found[2] * (1 + 1e-12)


@given(alpha_s=st.floats(0.0, 1.0), sizes=st.lists(st.integers(1, 100), min_size=1, max_size=6))
def test_packing_saves_a_latency_for_each_other_layer(alpha_s: float, sizes: list[int]) -> None:
    """Number 38: one message takes α + n β, one for each layer L α + n β; there are two trees in a step."""
    for method in (SyncEasgd1, SyncEasgd2):
        packed, layered = (
            round_s(method(packed=one), network(alpha_s, 1e-3), 3, sizes=sizes, compute=1.0) for one in (True, False)
        )
        assert layered - packed == pytest.approx(2 * (len(sizes) - 1) * alpha_s, abs=1e-9)


# --- on graphs --------------------------------------------------------------------------------------------------------


def node_of(graph: Graph, workers: int) -> ClusterModel:
    """One machine; its local link is not used, because every worker has its own vertex."""
    device = DeviceModel(name="gpu", overhead_s=1.0, per_sample_s=0.0)
    (site,) = sites(graph)
    local = LinkModel(name="none", latency_s=0.0, bytes_per_s=1e12, provenance="a test's own")
    node = Node(name="n", device=device, seats=site.seats[:workers], host=site.host, intra_node_link=local)
    return ClusterModel(nodes=(node,), graph=graph)


def three_gpus(host_s: float, gpu_s: float) -> ClusterModel:
    """A host with a link to each of three GPUs, which have links to each other."""

    def link(name: str, seconds: float) -> LinkModel:
        return LinkModel(name=name, latency_s=seconds, bytes_per_s=1e6 / seconds, provenance="a test's own")

    names = ["gpu0", "gpu1", "gpu2"]
    wires = [joined("cpu0", name, link("host", host_s)) for name in names]
    wires += [joined(one, other, link("gpus", gpu_s)) for one, other in (names[:2], names[1:], names[::2])]
    vertices = (at("cpu0", "host", 0, 1), *(at(name, "device", n, 0) for n, name in enumerate(names)))
    return node_of(Graph(name="three", vertices=vertices, connections=tuple(wires), provenance="a test's own"), 3)


@pytest.mark.parametrize("ratio", [0.25, 0.5, 0.9, 1.0, 1.1, 2.0, 4.0])
def test_the_second_is_faster_iff_the_link_between_gpus_is(ratio: float) -> None:
    """Number 14: 2 ≤ 1 iff the link from GPU to GPU is no slower than that from the host.

    With three workers both have trees of two rounds. The messages are small: large ones are cut into pieces that follow
    each other down the tree, and then a link between GPUs that is a tenth slower still makes up for a root less.
    """
    cluster = three_gpus(1e-3, ratio * 1e-3)
    one, two = (round_s(method, ClusterNetwork(cluster), 3, sizes=(100,)) for method in (SyncEasgd1(), SyncEasgd2()))
    assert (two <= one * (1 + 1e-9)) == (ratio <= 1)


NODES = {
    "one root, 4": (pcie_tree(roots=1, switches=1, gpus_per_switch=4), 4),
    "two roots, 4": (dual_root_pcie(switches=1, gpus_per_switch=2), 4),
    "one root, 8": (pcie_tree(roots=1, switches=2, gpus_per_switch=4), 8),
    "two roots, 8": (dual_root_pcie(), 8),
    "NVLink, 8": (dgx1(), 8),
}


@pytest.mark.parametrize("name", NODES)
def test_each_step_of_sc17_is_an_improvement(name: str) -> None:
    """Original → 1 → 2 → 3 on PCIe, with LeNet and a gradient that leaves 87 % of Original's time to communication.

    The order holds everywhere. Of the published 3.7, 1.3 and 1.1 the model gives the second and the third on PCIe; the
    first depends on what a round of turns is compared with: docs/methods/sync-easgd3.md has the figures.
    """
    graph, workers = NODES[name]
    wires = ClusterNetwork(node_of(graph, workers))
    exchange_s = round_s(Easgd(), wires, workers, compute=0.0) / workers
    compute_s = exchange_s * 13 / 87
    rounds = [round_s(method, wires, workers, compute=compute_s) for method in FAMILY]
    assert workers * compute_s / rounds[0] == pytest.approx(0.13)
    assert all(later < earlier for earlier, later in pairwise(rounds))
    exposed = [1 - compute_s * (workers if n == 0 else 1) / seconds for n, seconds in enumerate(rounds)]
    assert exposed[3] < exposed[2] < exposed[1]
    if "NVLink" not in name:
        assert rounds[1] / rounds[2] == pytest.approx(1.3, abs=0.15)
    assert rounds[2] / rounds[3] == pytest.approx(1.1, abs=0.05)
