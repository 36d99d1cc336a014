"""Claims of SC'17 on the times of one GPU node: shares of communication, from Original to Sync EASGD3, packed messages.

Rules of this file:

* Two accountings of communication. SC'17 measures the parts of one iteration: everything that is neither forward and
  backward nor an update is communication. An iteration of Original EASGD is a turn of one worker, so the turns of other
  workers are no part of it; in Paceline's time fractions they are `wait`. The shares here are SC'17's.
* The factor from Original EASGD to Sync EASGD1 compares the iterations of the paper's table, 5000 turns and 1000 steps.
  The same ratio for equal numbers of gradients is in the details.
* Every combination of the inputs that were not found is simulated, without learning.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product
from statistics import median

from paceline.algorithms.core.values import Group, Rank
from paceline.algorithms.methods.elastic import Easgd
from paceline.papers.claim import (
    Claim,
    Curve,
    Effort,
    Predicted,
    claims_like,
    input_named,
    number_named,
    over_range,
    ranging,
)
from paceline.papers.runs import rate_of, simulated
from paceline.records import Run
from paceline.scenarios import load
from paceline.scenarios.resolution.plan import Plan
from paceline.simulator.network.network import ClusterNetwork
from paceline.simulator.runs.cost_model import cluster_network
from paceline.workloads import find_model

PAPER = "sc17"
number = partial(number_named, PAPER)
SCENARIO = "sc17-lenet-gpu"
GRADIENTS = 12
"""gradients of each worker in a simulation; all steps are alike but for the jitter"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One combination of the inputs that were not found."""

    gpu: str
    workers: int
    roots: int
    batch: int
    copies: str
    overlap: bool = False
    sigma: float = 0.02

    @property
    def changes(self) -> list[str]:
        """Changes of the scenario."""
        switches = self.workers // 2 // self.roots
        settings = f"{{roots: {self.roots}, switches: {switches}, gpus_per_switch: 2, gpu: {self.gpu}}}"
        return [
            f"cluster.nodes=[{{node: pcie-tree, settings: {settings}}}]",
            f"cluster.staging.batches={self.copies}",
            f"workload.batch_per_worker={self.batch}",
            "workload.learning=none",
            f"cluster.step_time.sigma={self.sigma}",
            f"stop.samples={self.batch * self.workers * GRADIENTS}",
        ]

    @property
    def words(self) -> str:
        overlap = ", overlap" if self.overlap else ""
        varied = "" if self.sigma == number("gpu-jitter") else f", sigma {self.sigma:g}"
        roots = "one root" if self.roots == 1 else "two roots"
        return f"{self.workers} {self.gpu}, {roots}, batch {self.batch}, {self.copies}{overlap}{varied}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Seconds of an iteration of each method on a node, and shares of communication in SC'17's accounting."""

    turn_s: float
    """Original EASGD: one gradient of one worker"""
    step1_s: float
    step2_s: float
    step3_s: float
    original_share: float
    """in per cent"""
    sync3_share: float
    waiting_share: float
    """Original EASGD in Paceline's accounting: time that a worker waits for the turns of others, in per cent"""

    def first_factor(self) -> float:
        """Returns the ratio of the times of the paper's numbers of iterations."""
        return number("gpu-turns") * self.turn_s / (number("gpu-steps") * self.step1_s)

    def total_factor(self) -> float:
        """Returns the ratio of Original EASGD to Sync EASGD3, likewise."""
        return number("gpu-turns") * self.turn_s / (number("gpu-steps") * self.step3_s)


def central() -> Node:
    """Returns the most plausible node."""
    value = {
        name: input_named(PAPER, name).value for name in ("gpu-device", "gpu-host-copies", "gpu-overlap-of-original")
    }
    return Node(
        gpu=value["gpu-device"],
        workers=int(number("gpu-workers")),
        roots=1,
        batch=int(number("gpu-batch")),
        copies=value["gpu-host-copies"],
        overlap=value["gpu-overlap-of-original"] == "overlap",
        sigma=number("gpu-jitter"),
    )


def nodes(effort: Effort) -> Iterator[Node]:
    """Yields the combinations of inputs: the central one first; one change at a time if quick."""
    first = central()
    options: dict[str, tuple[object, ...]] = {
        "gpu": ("k80", "m40"),
        "workers": (8, 4),
        "roots": (1, 2),
        "batch": tuple(int(batch) for batch in input_named(PAPER, "gpu-batch").numbers),
        "copies": ("pinned", "pageable"),
        "overlap": (False, True),
    }
    yield first
    yield replace(first, sigma=max(input_named(PAPER, "gpu-jitter").numbers))
    if effort.quick:
        for key, values in options.items():
            changed = ({key: value} for value in values if value != getattr(first, key))
            yield from (replace(first, **change) for change in changed)  # type: ignore[arg-type]
        return
    yield replace(first, copies="pageable")  # concerns the batches alone, so that it is not combined with the others
    options["copies"] = (first.copies,)
    for values in product(*options.values()):
        node = Node(**dict(zip(options, values, strict=True)))  # type: ignore[arg-type]
        if node != first:
            yield node


@cache
def times(node: Node) -> Times:
    """Simulates the four methods on a node."""
    original, *sync = simulated(
        SCENARIO,
        node.changes,
        algorithms=[Easgd(packed=False, overlap=node.overlap), "sync-easgd1", "sync-easgd2", "sync-easgd3"],
    )
    fractions = original.summary["time_fraction"]
    return Times(
        turn_s=_iteration_s(original, node, 1),
        step1_s=_iteration_s(sync[0], node, node.workers),
        step2_s=_iteration_s(sync[1], node, node.workers),
        step3_s=_iteration_s(sync[2], node, node.workers),
        original_share=100 * (1 - working_share(original)),
        sync3_share=100 * exposed_share(sync[2]),
        waiting_share=100 * float(fractions["wait"] or 0.0),
    )


def _iteration_s(run: Run, node: Node, gradients: int) -> float:
    """Returns the seconds of an iteration with so many gradients of all workers together."""
    rate = run.summary["samples_per_s"]
    assert rate, "the run has a rate"
    return gradients * node.batch / float(rate)


def working_share(run: Run) -> float:
    """Returns the part of the time in which any rank computes a gradient or an update."""
    assert run.trace is not None, "a run that was just simulated has its record"
    work = [span for span in run.trace.spans if span.activity in ("compute", "update")]
    covered, reached = 0.0, 0.0
    for start_s, end_s in sorted((span.start_s, span.end_s) for span in work):
        covered += max(0.0, end_s - max(start_s, reached))
        reached = max(reached, end_s)
    return covered / max(span.end_s for span in run.trace.spans)


def exposed_share(run: Run) -> float:
    """Returns the part of the workers' time that is neither a gradient nor an update."""
    fractions = run.summary["time_fraction"]
    return 1.0 - float(fractions["compute"] or 0.0) - float(fractions["update"] or 0.0)


def order_of_packing(effort: Effort) -> Predicted:
    """Returns the smallest ratio of the step with layered messages to that with packed ones."""
    ratios: dict[str, float] = {}
    for model, method in product(("lenet", "alexnet", "googlenet"), ("sync-easgd1", "sync-easgd2")):
        packed, layered = simulated(
            "sc17-alexnet-gpu",
            [
                f"workload.model={model}",
                "workload.dataset=null",
                "workload.learning=none",
                "workload.stand_in=null",
                "workload.batch_per_worker=16",
                f"stop.updates={effort.choose(8, 4)}",
                "stop.samples=null",
            ],
            algorithms=[{"name": method, "packed": flag} for flag in (True, False)],
        )
        ratios[f"{model}, {method}"] = rate_of(packed) / rate_of(layered)
    listed = ", ".join(f"{words} {ratio:.4f}" for words, ratio in ratios.items())
    reason = (
        f"Ratio of the step times, layered to packed: {listed}. The trees of the layers run at the same time, so "
        "that most of their latencies overlap."
    )
    return ranging(median(ratios.values()), ratios.values(), reason=reason, details=(reason,))


def packing_one_by_one(_: Effort) -> Predicted:
    """Returns the ratio of the messages of the layers, sent one after the other, to one message of all layers."""
    network: ClusterNetwork = cluster_network(two_nodes())
    pair = Group((Rank(0), Rank(1)))

    def message_s(nbytes: int) -> float:
        return network.alone("Broadcast", pair, nbytes, 0)[1]

    ratios = {}
    for model in ("lenet", "alexnet", "googlenet", "vgg19"):
        layout = find_model(model).layout()
        layered_s = sum(message_s(4 * (layer.stop - layer.start)) for layer in layout.layers)
        ratios[model] = layered_s / message_s(4 * layout.size)
    listed = ", ".join(f"{model} {ratio:.5f}" for model, ratio in ratios.items())
    return replace(over_range([*ratios.values()]), reason=listed, details=(f"By model: {listed}.",))


def two_nodes() -> Plan:
    """Returns a plan of two nodes that are joined by the paper's network."""
    microseconds, nanoseconds = map(float, re.findall(r"[\d.]+", input_named("sc17", "network").value)[:2])
    link = f"{{latency: {microseconds} us, bandwidth: {1 / nanoseconds} GB/s}}"
    changes = [
        "cluster.nodes=[{device: k80, count: 2}]",
        f"cluster.network.link={link}",
        "workload.learning=none",
        "workload.stand_in=null",
    ]
    (plan,) = load("sc17-alexnet-gpu", changes, algorithms=["sync-sgd"]).plans()
    return plan


HARDWARE = "one node with GPUs (K80 or M40, 4 or 8)"
INPUTS = ("gpu-model", "gpu-device", "gpu-workers", "gpu-node", "gpu-batch", "gpu-host-copies", "gpu-jitter")
ORIGINAL = (*INPUTS, "gpu-packing-of-original", "gpu-overlap-of-original")


def over_nodes(
    figure: Callable[[Times], float],
    effort: Effort,
    *,
    details: Callable[[], tuple[str, ...]],
    curve: Callable[[], Curve] | None,
) -> Predicted:
    """Returns a figure on the most plausible node, with its range over all nodes.

    Args:
        figure: The figure of one node.
        effort: Whether all combinations are simulated.
        details: Further sentences.
        curve: The figure over an input that the paper does not give.
    """
    figures = {node: figure(times(node)) for node in nodes(effort)}
    node, least, most = central(), min(figures, key=figures.__getitem__), max(figures, key=figures.__getitem__)
    reason = (
        f"Over the inputs that were not found it is {figures[least]:.3g} ({least.words}) to {figures[most]:.3g} "
        f"({most.words}). "
        f"On {node.words} a turn of Original EASGD takes {times(node).turn_s * 1e3:.3g} ms and a step of Sync EASGD3 "
        f"{times(node).step3_s * 1e3:.3g} ms; the paper's table has 8.2 and 7.7 ms."
    )
    drawn = None if curve is None else curve()
    return ranging(figures[node], figures.values(), reason=reason, details=details(), curve=drawn)


def _shares_apart() -> tuple[str, ...]:
    waiting = times(central()).waiting_share
    said = (
        "Shares are in SC'17's accounting, in which the turns of other workers are no part of an iteration. In "
        f"Paceline's, a worker of Original EASGD waits {waiting:.0f} % of its time for other turns."
    )
    return (said,)


RATES_GB_PER_S = (0.3, 1.0, 3.0, 10.0, 30.0)
"""rates of the link of the sweep"""


def _copy_gb_per_s(run: Run) -> float:
    """Returns the rate of the first message of weights, from its sending to its arrival."""
    assert run.trace is not None, "a run that was just simulated has its record"
    sent = next(span for span in run.trace.spans if span.activity == "receive" and span.bytes)
    assert sent.ready_s is not None, "a received message was sent"
    return sent.bytes / (sent.end_s - sent.ready_s) / 1e9


def _share_over_rates() -> Curve:
    """Returns the share of communication over the rate at which weights are copied, which the paper does not give."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for gpu, batch in product(("k80", "m40"), (16, 64)):
        node = replace(central(), gpu=gpu, batch=batch)
        for rate in RATES_GB_PER_S:
            changes = [
                *node.changes[1:],
                f"cluster.nodes=[{{device: {gpu}, workers_per_node: {node.workers}}}]",
                f"cluster.network.intra_node_link={{latency: 10 us, bandwidth: {rate} GB/s}}",
            ]
            (run,) = simulated(SCENARIO, changes, algorithms=["easgd"])
            lines.setdefault(f"{gpu}, batch {batch}", []).append((_copy_gb_per_s(run), 100 * (1 - working_share(run))))
    return Curve(
        x="rate of a copy of weights between host and device, GB/s",
        y="communication of Original EASGD, %",
        lines=lines,
        published=87.0,
        log_x=True,
    )


def _equal_gradients() -> tuple[str, ...]:
    said = []
    for workers in (4, 8):
        on_node = times(replace(central(), workers=workers))
        said.append(
            f"With {workers} GPUs and equal numbers of gradients ({workers} turns for a step), Sync EASGD1 is "
            f"{workers * on_node.turn_s / on_node.step1_s:.3g} times as fast as Original EASGD and Sync EASGD3 "
            f"{workers * on_node.turn_s / on_node.step3_s:.3g} times; by the paper's 5000 turns and 1000 steps "
            f"{on_node.first_factor():.3g} and {on_node.total_factor():.3g} times."
        )
    overlapped = times(replace(central(), overlap=True))
    said.append(
        f"If Original EASGD overlaps its exchange with the gradient, a turn takes {overlapped.turn_s * 1e3:.3g} ms "
        f"instead of {times(central()).turn_s * 1e3:.3g} ms."
    )
    return tuple(said)


# --- the claims -------------------------------------------------------------------------------------------------------


_timed = claims_like(
    PAPER,
    hardware=HARDWARE,
    model="LeNet, MNIST",
    batch="not found",
    scenario=SCENARIO,
    command=f"paceline simulate {SCENARIO} --set workload.learning=none",
    holds_if="within 25 %",
    shares="sc17 gpu times",
)
_packed = claims_like(PAPER, section="§5.2, packed layers", scenario="sc17-alexnet-gpu", holds_if="order")
ONE_MESSAGE = "one message of all layers is faster than one message per layer"
ITERATIONS = (*ORIGINAL, "gpu-turns", "gpu-steps")
Details = Callable[[], tuple[str, ...]]
TIMED: tuple[tuple[str, str, float, str, tuple[str, ...], str, Callable[[Times], float], Details], ...] = (
    ("original-communication", "communication takes 87 % of the time of Original EASGD", 87.0, "%", ORIGINAL,
     "§5.1, breakdown", lambda of: of.original_share, _shares_apart),
    ("sync3-communication", "communication takes 14 % of the time of Sync EASGD3", 14.0, "%", INPUTS,
     "abstract; §6.1, breakdown", lambda of: of.sync3_share, tuple),
    ("factor-1", "Sync EASGD1 is 3.7 times as fast as Original EASGD", 3.7, "×", ITERATIONS,
     "§6.1.1, breakdown", Times.first_factor, _equal_gradients),
    ("factor-2", "Sync EASGD2 is 1.3 times as fast as Sync EASGD1", 1.3, "×", INPUTS,
     "§6.1.2, breakdown", lambda of: of.step1_s / of.step2_s, tuple),
    ("factor-3", "Sync EASGD3 is 1.1 times as fast as Sync EASGD2", 1.1, "×", INPUTS,
     "§6.1.3, breakdown", lambda of: of.step2_s / of.step3_s, tuple),
    ("factors", "Sync EASGD3 is 5.3 times as fast as Original EASGD", 5.3, "×", ITERATIONS,
     "abstract; §6.1", Times.total_factor, tuple),
)  # fmt: skip
"""name, sentence, published figure with its unit, inputs, section, our figure of a node, and further sentences"""
CURVES = {"original-communication": _share_over_rates}
CLAIMS: tuple[Claim, ...] = (
    *(
        _timed(
            name,
            sentence,
            partial(over_nodes, figure, details=details, curve=CURVES.get(name)),
            published=published,
            unit=unit,
            inputs=inputs,
            section=section,
        )
        for name, sentence, published, unit, inputs, section, figure, details in TIMED
    ),
    _packed(
        "packing",
        f"{ONE_MESSAGE}: trees of a whole method",
        order_of_packing,
        hardware=HARDWARE,
        model="LeNet, AlexNet, GoogLeNet",
        batch="16",
        command="paceline simulate sc17-alexnet-gpu",
        inputs=("alexnet-size", "gpu-node"),
    ),
    _packed(
        "packing-one-by-one",
        f"{ONE_MESSAGE}: messages one after the other",
        packing_one_by_one,
        hardware="two nodes on FDR InfiniBand",
        model="LeNet, AlexNet, GoogLeNet, VGG-19",
        batch="any",
        command="paceline reproduce NAME  # the models of sc17-alexnet-gpu",
        inputs=("alexnet-size", "network"),
    ),
)
