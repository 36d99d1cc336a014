"""Simulated times of SC'17's methods on a node with GPUs, for every combination of the inputs that were not found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product

from paceline.algorithms.methods.elastic import Easgd
from paceline.papers.core.claim import Effort
from paceline.papers.core.input_files import input_named, number_named
from paceline.papers.runs.simulated_runs import simulated
from paceline.records import Run

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
            yield from (replace(first, **{key: one}) for one in values if one != getattr(first, key))  # type: ignore[arg-type]
        return
    yield replace(first, copies="pageable")  # concerns the batches alone, so that it is not combined with the others
    options["copies"] = (first.copies,)
    for values in product(*options.values()):
        one = Node(**dict(zip(options, values, strict=True)))  # type: ignore[arg-type]
        if one != first:
            yield one


@cache
def times(node: Node) -> Times:
    """Simulates the four methods on a node."""
    original, one, two, three = simulated(
        SCENARIO,
        node.changes,
        algorithms=[Easgd(packed=False, overlap=node.overlap), "sync-easgd1", "sync-easgd2", "sync-easgd3"],
    )
    fractions = original.summary["time_fraction"]
    return Times(
        turn_s=_iteration_s(original, node, 1),
        step1_s=_iteration_s(one, node, node.workers),
        step2_s=_iteration_s(two, node, node.workers),
        step3_s=_iteration_s(three, node, node.workers),
        original_share=100 * (1 - working_share(original)),
        sync3_share=100 * exposed_share(three),
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
    spans = sorted((one.start_s, one.end_s) for one in run.trace.spans if one.activity in ("compute", "update"))
    covered, reached = 0.0, 0.0
    for start_s, end_s in spans:
        covered += max(0.0, end_s - max(start_s, reached))
        reached = max(reached, end_s)
    return covered / max(one.end_s for one in run.trace.spans)


def exposed_share(run: Run) -> float:
    """Returns the part of the workers' time that is neither a gradient nor an update."""
    fractions = run.summary["time_fraction"]
    return 1.0 - float(fractions["compute"] or 0.0) - float(fractions["update"] or 0.0)
