"""Claims of SC'17 on the times of its GPUs: the table of times, shares of communication, packed messages.

Rules of this file:

* An iteration of Original EASGD is a turn of one worker; one of Sync EASGD is a step of all. Figures are of iterations,
  as in the paper's table. How many are needed is a matter of learning: `papers.sc17.learning`.
* Shares are in SC'17's accounting: all that is neither a gradient nor an update is communication, and what passes
  behind something else has no time. So the turns of Original EASGD are seen from the server, which they keep busy: a
  gradient counts while the server has to wait for it. In Paceline's time fractions of the workers, the turns of others
  are `wait`.
* Nothing is learned here, and the jitter of step times averages out over a run, so one seed is enough.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from paceline.algorithms.core.method import Method
from paceline.algorithms.core.values import Group, Rank
from paceline.algorithms.methods.elastic import Easgd, SyncEasgd1, SyncEasgd2, SyncEasgd3
from paceline.papers.claim import Claim, Curve, Given, claims_like
from paceline.papers.runs import step_s
from paceline.records.trace import Schedule, Span, Trace
from paceline.scenarios import load
from paceline.scenarios.resolution.plan import Plan
from paceline.simulator.kernel.garbage_collection import collected_seldom
from paceline.simulator.network.network import ClusterNetwork
from paceline.simulator.runs.cost_model import cluster_network
from paceline.simulator.runs.run import perform
from paceline.simulator.runs.short_runs import Length, mean_of, shortened, windows_of
from paceline.workloads import find_model

PAPER = "sc17"
SCENARIO = "sc17-lenet-gpu"
NODE = ("gpu-model", "gpu-machine", "gpu-roots", "gpu-batch", "gpu-jitter")
ORIGINAL = (*NODE, "gpu-packing-of-original", "gpu-overlap-of-original")
SYNC: dict[str, type[Method]] = {"sync1": SyncEasgd1, "sync2": SyncEasgd2, "sync3": SyncEasgd3}
TABLE = {"original": (5000, 41.0), "sync1": (1000, 11.0), "sync2": (1000, 8.2), "sync3": (1000, 7.7)}
"""iterations and seconds to an accuracy of 0.988 in the paper's table of times: MEMORY high"""


@dataclass(frozen=True, slots=True)
class Machine:
    """Equal nodes with GPUs behind PCIe switches."""

    gpu: str
    nodes: int
    switches: int
    """of a node"""
    gpus_per_switch: int

    @property
    def workers(self) -> int:
        """Number of GPUs of all nodes."""
        return self.nodes * self.switches * self.gpus_per_switch

    def changes(self, roots: int = 1) -> list[str]:
        """Returns the changes of a scenario that put it on this machine.

        Args:
            roots: the number of sockets of a node to which its switches are connected.
        """
        settings = f"roots: {roots}, switches: {self.switches // roots}, gpus_per_switch: {self.gpus_per_switch}"
        node = f"node: pcie-tree, settings: {{{settings}, gpu: {self.gpu}}}, count: {self.nodes}"
        return [f"cluster.nodes=[{{{node}}}]", "cluster.network.link=sc17-ib-fdr"]


MACHINES = {
    "m40-node": Machine("m40", nodes=1, switches=2, gpus_per_switch=4),
    "k80-node": Machine("k80", nodes=1, switches=2, gpus_per_switch=2),
    "k80-nodes": Machine("k80", nodes=2, switches=2, gpus_per_switch=2),
}
"""values of the input `gpu-machine`"""


def machine_of(given: Given) -> Machine:
    """Returns the machine that the inputs name."""
    return MACHINES[given.word("gpu-machine")]


# --- iterations -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Iteration:
    """What a simulation shows of one iteration."""

    seconds: float
    communication: float
    """share of communication in SC'17's accounting, in per cent"""


def iteration(given: Given, method: str) -> Iteration:
    """Returns the time of an iteration and its share of communication.

    Args:
        given: the inputs of the node and, for Original EASGD, of its messages.
        method: a key of `TABLE`.
    """
    return _iteration(given.only(*(ORIGINAL if method == "original" else NODE)), method)


@cache
def _iteration(given: Given, method: str) -> Iteration:
    machine = machine_of(given)
    changes = [
        *machine.changes(int(given.number("gpu-roots"))),
        f"workload.model={given.word('gpu-model')}",
        f"workload.batch_per_worker={int(given.number('gpu-batch'))}",
        f"cluster.step_time.sigma={given.number('gpu-jitter')}",
    ]
    run = original(given) if method == "original" else SYNC[method]()
    trace, round_s = _simulated(changes, run, given.choose(6, 3))
    if method == "original":
        return Iteration(round_s / machine.workers, 100 * (1 - share_at_server(trace, Rank(machine.workers))))
    return Iteration(round_s, 100 * (1 - share_of_workers(trace, machine.workers)))


def original(given: Given) -> Easgd:
    """Returns Original EASGD with the messages and the overlap that the inputs name."""
    layered = given.word("gpu-packing-of-original") == "layered"
    return Easgd(packed=not layered, overlap=given.word("gpu-overlap-of-original") == "overlapped")


def _simulated(changes: Iterable[str], method: Method, steps: int) -> tuple[Trace, float]:
    """Returns the record of a run and the mean time between the starts of two gradients of a worker."""
    (plan,) = load(SCENARIO, [*changes, "workload.learning=none"], algorithms=[method]).plans()
    length = Length(steps, method.longest_period(plan.job.workers))
    with collected_seldom():
        trace = perform(shortened(plan, length), Schedule(every=math.inf))
    return trace, mean_of(windows_of(trace, plan.job.workers, length))


Interval = tuple[float, float]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Returns the times that are in any of the intervals, as intervals that do not touch.

    >>> union([(2.0, 3.0), (0.0, 1.0), (0.5, 1.5)])
    [(0.0, 1.5), (2.0, 3.0)]
    """
    joined: list[Interval] = []
    for start_s, end_s in sorted(intervals):
        if joined and start_s <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], end_s)
        else:
            joined.append((start_s, end_s))
    return joined


def common_s(first: Iterable[Interval], second: Iterable[Interval]) -> float:
    """Returns for how long both are true, given the intervals in which each is.

    >>> common_s([(0.0, 2.0), (5.0, 6.0)], [(1.0, 5.5)])
    1.5
    """
    ours, theirs, total_s, place = union(first), union(second), 0.0, 0
    for start_s, end_s in ours:
        while place < len(theirs) and theirs[place][1] <= start_s:
            place += 1
        for other_start_s, other_end_s in theirs[place:]:
            if other_start_s >= end_s:
                break
            total_s += min(end_s, other_end_s) - max(start_s, other_start_s)
    return total_s


def share_at_server(trace: Trace, server: Rank) -> float:
    """Returns the part of a server's time in which it updates, or waits for a gradient that is being computed.

    Args:
        trace: the record of a run.
        server: its rank.
    """
    own = [span for span in trace.spans if span.rank == server]
    waits = [(span.start_s, min(_sent_s(span), span.end_s)) for span in own if span.activity == "receive"]
    gradients = [(span.start_s, span.end_s) for span in trace.spans if span.activity == "compute"]
    updates_s = sum(span.end_s - span.start_s for span in own if span.activity == "update")
    return (updates_s + common_s([wait for wait in waits if wait[0] < wait[1]], gradients)) / _end_s(trace.spans)


def share_of_workers(trace: Trace, workers: int) -> float:
    """Returns the part of the workers' time in which they compute gradients or updates.

    Args:
        trace: the record of a run.
        workers: their number.
    """
    busy = [span for span in trace.spans if span.rank < workers and span.activity in ("compute", "update")]
    return sum(span.end_s - span.start_s for span in busy) / (workers * _end_s(trace.spans))


def _sent_s(span: Span) -> float:
    assert span.ready_s is not None, "a received message was sent"
    return span.ready_s


def _end_s(spans: Sequence[Span]) -> float:
    return max(span.end_s for span in spans)


def milliseconds(method: str, given: Given) -> float:
    """Returns the time of an iteration in ms; the method is a key of `TABLE`."""
    return 1e3 * iteration(given, method).seconds


def communication(method: str, given: Given) -> float:
    """Returns the share of communication in per cent; the method is a key of `TABLE`."""
    return iteration(given, method).communication


def step_ratio(slower: str, faster: str, given: Given) -> float:
    """Returns how many times as long an iteration of one method takes as that of another; both are keys of `TABLE`."""
    return iteration(given, slower).seconds / iteration(given, faster).seconds


# --- what is said and drawn about them --------------------------------------------------------------------------------


def _table(given: Given) -> Curve:
    """Redraws the paper's table: the time of an iteration of each method."""
    ours = [(float(place), milliseconds(method, given)) for place, method in enumerate(TABLE)]
    theirs = [(float(place), 1e3 * seconds / count) for place, (count, seconds) in enumerate(TABLE.values())]
    return Curve(
        x="Original EASGD (0), Sync EASGD 1, 2, 3",
        y="time of an iteration, ms",
        lines={"ours": ours},
        published_lines={"table of times": theirs},
    )


def _overlap(given: Given) -> Iterator[str]:
    """Yields the effect of overlap in Original EASGD."""
    for value, words in (
        ("serial", "one turn after the other"),
        ("overlapped", "gradients behind the turns of others"),
    ):
        found = iteration(given.with_value("gpu-overlap-of-original", value), "original")
        yield (
            f"Original EASGD with {words}: a turn takes {found.seconds * 1e3:.3g} ms, of which "
            f"{found.communication:.3g} % are communication."
        )


RATES_GB_PER_S = (0.3, 1.0, 3.0, 10.0, 30.0)
"""rates of the link of the sweep"""


def _share_over_rates(given: Given) -> Curve:
    """Returns the share of communication over the rate at which weights are copied, which the paper does not give."""
    machine, lines = machine_of(given), {}
    for flag, words in ((True, "one message"), (False, "one message per layer")):
        points = []
        for rate in RATES_GB_PER_S:
            changes = [
                f"cluster.nodes=[{{device: {machine.gpu}, workers_per_node: {machine.workers}}}]",
                f"cluster.network.intra_node_link={{latency: 10 us, bandwidth: {rate} GB/s}}",
                f"workload.batch_per_worker={int(given.number('gpu-batch'))}",
            ]
            trace, _ = _simulated(changes, Easgd(packed=flag), 2)
            points.append((whole_rate(trace) / 1e9, 100 * (1 - share_at_server(trace, Rank(machine.workers)))))
        lines[words] = points
    return Curve(
        x="rate at which the weights pass from host to device, all layers, GB/s",
        y="communication of Original EASGD, %",
        lines=lines,
        published=87.0,
        log_x=True,
    )


def whole_rate(trace: Trace) -> float:
    """Returns the bytes per second of the first centre: of all its messages, from the first sent to the last arrived.

    Args:
        trace: the record of a run of Original EASGD, whose first turn is that of rank 0.
    """
    began_s = min(span.start_s for span in trace.spans if span.activity == "compute" and span.rank == 0)
    parts = [
        span for span in trace.spans if span.rank == 0 and span.activity == "receive" and span.end_s <= began_s
    ]  # fmt: skip
    return sum(span.bytes for span in parts) / (_end_s(parts) - min(map(_sent_s, parts)))


# --- packed messages --------------------------------------------------------------------------------------------------


def packing_of_trees(given: Given) -> float:
    """Returns the smallest ratio of a step with layered messages to one with packed ones, over networks and methods."""
    return min(_packing_of_trees(given.only("gpu-machine")).values())


@cache
def _packing_of_trees(given: Given) -> dict[str, float]:
    ratios = {}
    for model in ("lenet", "alexnet", "googlenet"):
        changes = (
            *machine_of(given).changes(),
            f"workload.model={model}",
            "workload.dataset=null",
            "workload.stand_in=null",
            "workload.batch_per_worker=16",
        )
        for method in ("sync-easgd1", "sync-easgd2"):
            layered, packed = (
                step_s("sc17-alexnet-gpu", (("name", method), ("packed", flag)), changes, steps=given.choose(2, 1))
                for flag in (False, True)
            )
            ratios[f"{model}, {method}"] = layered / packed
    return ratios


def _packed_networks(given: Given) -> Iterator[str]:
    ratios = _packing_of_trees(given.only("gpu-machine"))
    listed = ", ".join(f"{words} {ratio:.4f}" for words, ratio in ratios.items())
    yield f"By network and method: {listed}. The trees of the layers run at the same time, so most latencies overlap."


def packing_one_by_one(given: Given) -> float:
    """Returns the smallest ratio, over networks, of all messages of layers in turn to one message of all layers."""
    return min(_one_by_one(given).values())


def _one_by_one(given: Given) -> dict[str, float]:
    network: ClusterNetwork = cluster_network(two_nodes(given["network"]))
    pair = Group((Rank(0), Rank(1)))

    def message_s(nbytes: int) -> float:
        return network.alone("Broadcast", pair, nbytes, 0)[1]

    ratios = {}
    for model in ("lenet", "alexnet", "googlenet", "vgg19"):
        layout = find_model(model).layout()
        layered_s = sum(message_s(4 * (layer.stop - layer.start)) for layer in layout.layers)
        ratios[model] = layered_s / message_s(4 * layout.size)
    return ratios


def two_nodes(network: str) -> Plan:
    """Returns a plan of two nodes that are joined by a network.

    Args:
        network: its latency in µs and its time for a byte in ns, in words.
    """
    microseconds, nanoseconds = map(float, re.findall(r"[\d.]+", network)[:2])
    link = f"{{latency: {microseconds} us, bandwidth: {1 / nanoseconds} GB/s}}"
    changes = [
        "cluster.nodes=[{device: k80, count: 2}]",
        f"cluster.network.link={link}",
        "workload.learning=none",
        "workload.stand_in=null",
    ]
    (plan,) = load("sc17-alexnet-gpu", changes, algorithms=["sync-sgd"]).plans()
    return plan


# --- the claims -------------------------------------------------------------------------------------------------------

HARDWARE = "nodes with GPUs (eight M40, or K80)"
_timed = claims_like(
    PAPER,
    hardware=HARDWARE,
    model="LeNet, MNIST",
    batch="not found",
    scenario=SCENARIO,
    command=f"paceline simulate {SCENARIO} --set workload.learning=none",
    holds_if="within 25 %",
    seeds=1,
    all_combinations=True,
    shares="sc17 gpu times",
)
_packed = claims_like(PAPER, section="§5.2, packed layers", scenario="sc17-alexnet-gpu", holds_if="order", seeds=1)
NAMES = {"original": "Original EASGD", "sync1": "Sync EASGD1", "sync2": "Sync EASGD2", "sync3": "Sync EASGD3"}
ONE_MESSAGE = "one message of all layers is faster than one message per layer"


def _times() -> Iterator[Claim]:
    """Yields the claims on the table of times; the figures of the table are fitted together."""
    for method, (count, seconds) in TABLE.items():
        name = f"{method}-{'turn' if method == 'original' else 'step'}"
        yield _timed(
            name,
            f"an iteration of {NAMES[method]} takes {1e3 * seconds / count:.3g} ms ({seconds:g} s for {count})",
            partial(milliseconds, method),
            published=1e3 * seconds / count,
            unit="ms",
            section="table of times",
            inputs=ORIGINAL if method == "original" else NODE,
            explain=_overlap if method == "original" else None,
            curve=_table if method == "original" else None,
            together="step times",
        )
    shares: dict[str, Any] = {"unit": "%", "bounds": (0.0, 100.0), "together": "step times"}
    yield _timed(
        "original-communication",
        "communication takes 87 % of the time of Original EASGD",
        partial(communication, "original"),
        published=87.0,
        section="§5.1, breakdown",
        inputs=ORIGINAL,
        explain=_overlap,
        curve=_share_over_rates,
        **shares,
    )
    yield _timed(
        "sync3-communication",
        "communication takes 14 % of the time of Sync EASGD3",
        partial(communication, "sync3"),
        published=14.0,
        section="abstract; §6.1, breakdown",
        inputs=NODE,
        **shares,
    )
    for number, published in ((2, 1.3), (3, 1.1)):
        yield _timed(
            f"factor-{number}",
            f"Sync EASGD{number} is {published:g} times as fast as Sync EASGD{number - 1}",
            partial(step_ratio, f"sync{number - 1}", f"sync{number}"),
            published=published,
            section=f"§6.1.{number}, breakdown",
            inputs=NODE,
        )


CLAIMS: tuple[Claim, ...] = (
    *_times(),
    _packed(
        "packing",
        f"{ONE_MESSAGE}: trees of a whole method",
        packing_of_trees,
        hardware=HARDWARE,
        model="LeNet, AlexNet, GoogLeNet",
        batch="16",
        command="paceline simulate sc17-alexnet-gpu",
        inputs=("gpu-machine",),
        explain=_packed_networks,
    ),
    _packed(
        "packing-one-by-one",
        f"{ONE_MESSAGE}: messages one after the other",
        packing_one_by_one,
        kind="identity",
        hardware="two nodes on FDR InfiniBand",
        model="LeNet, AlexNet, GoogLeNet, VGG-19",
        batch="any",
        command="paceline reproduce NAME  # the models of sc17-alexnet-gpu",
        inputs=("network",),
        explain=lambda given: [", ".join(f"{model} {ratio:.5f}" for model, ratio in _one_by_one(given).items()) + "."],
    ),
)
