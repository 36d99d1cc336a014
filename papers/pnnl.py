"""Claims on asynchronous layer-wise gradient descent: the speed-up over the synchronous method, and equality with it.

Rules of this file:

* The speed-up is the step time of `sync-sgd`, one all-reduce after the backward pass, over that of the fastest of the
  asynchronous methods, with equal batches. What the delayed gradients are worth is not part of it.
* One input at a time is changed from the central values; the interval of a figure contains all results.
* Equality is measured by real runs, layer by layer without delay and synchronously, whose final weights are compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.backend.local.launch import Launch, run_job
from paceline.papers.claim import Claim, Curve, Effort, Predicted, claims_like, input_named, over_range, ranging
from paceline.papers.runs import step_s
from paceline.records.trace import Schedule
from paceline.scenarios import load

WITHOUT_DELAY = (
    "layerwise-sgd",
    "layerwise-sgd-lazy",
    "layerwise-sgd-next-forward",
    "{name: agd, delay: 0}",
    "{name: layerwise-agd, delay: 0}",
)
"""the methods of the paper's solution space whose gradients are not delayed"""
WORKERS, BATCH = 2, 16


def trained(algorithm: str, *, steps: int, seed: int, workers: int = WORKERS) -> NDArray[np.float64]:
    """Returns the final weights of a real run in float64.

    Args:
        algorithm: An algorithm as YAML.
        steps: The number of steps.
        seed: Of initial weights and samples.
        workers: The number of processes; together they compute gradients of `WORKERS` · `BATCH` samples in each step.
    """
    scenario = {
        "name": "layerwise-equality",
        "algorithms": [],
        "hyperparameters": {"bucket": None} if "layerwise" in algorithm else {},  # one message a layer, as in the paper
        "workload": {
            "model": "digits-cnn",
            "dataset": "digits",
            "batch_per_worker": WORKERS * BATCH // workers,
            "dtype": "float64",
        },
        "cluster": {"nodes": [{"device": {"name": "core", "overhead": "1 ms", "per_sample": "0 s"}, "count": workers}]},
        "train": {"pace": "none"},
        "stop": {"samples": steps * WORKERS * BATCH},
        "seed": seed,
    }
    (plan,) = load(scenario, [f"algorithms=[{algorithm}]"]).plans()
    trace = run_job(Launch(job=plan.job, schedule=lambda: Schedule(every=math.inf)))
    return np.asarray(trace.weights, dtype=np.float64)


def distance(weights: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Returns ‖x − y‖ / ‖y‖."""
    return float(np.linalg.norm(weights - other) / np.linalg.norm(other))


def largest_difference(effort: Effort) -> Predicted:
    """Returns the largest difference between the weights of a method without delay and those of `sync-sgd`.

    Args:
        effort: Decides on the numbers of steps and seeds.
    """
    steps = effort.choose(40, 10)
    distances, alone, moved = [], 0.0, 0.0
    for seed in range(1, effort.choose(3, 1) + 1):
        synchronous = trained("sync-sgd", steps=steps, seed=seed)
        distances.append(max(distance(trained(name, steps=steps, seed=seed), synchronous) for name in WITHOUT_DELAY))
        single = trained("sequential-sgd", steps=steps, seed=seed, workers=1)
        delayed = trained("{name: layerwise-agd, delay: 1}", steps=steps, seed=seed)
        alone, moved = max(alone, distance(synchronous, single)), max(moved, distance(delayed, synchronous))
    details = (
        f"Weights after {steps} steps of {len(WITHOUT_DELAY)} methods, relative to their norm, in float64.",
        f"Two processes with batch {BATCH} and one with {WORKERS * BATCH} differ by {alone:.1g}, by rounding.",
        f"With a delay of one step the difference is {moved:.2g}.",
    )
    return replace(over_range(distances), reason="Sums were rounded differently.", details=details)


PAPER = "pnnl"
PUBLISHED = 1.7
"""FOUND in the abstract: "up to 1.7x" over the synchronous method"""
SENTENCE = "up to 1.7× the speed of synchronous gradient descent"
METHODS = ("layerwise-sgd", "layerwise-sgd-next-forward", "agd", "layerwise-agd")
CHEAP = ("agd",)
"""the method of the variations of GoogLeNet, whose 58 layers make layer-wise runs long; it has one seed for that"""
NETWORKS = {"alexnet": "alexnet-bvlc", "googlenet": "googlenet"}
LABELS = {"alexnet": "AlexNet", "googlenet": "GoogLeNet"}


@dataclass(frozen=True, slots=True)
class System:
    """A system of the paper.

    Args:
        scenario: The name of its scenario.
        words: Its hardware.
        prefix: The first part of the names of its inputs.
        batches: Batches of a worker that are swept.
        alternatives: Changes of other inputs, by the name of the input, with a description.
    """

    scenario: str
    words: str
    prefix: str
    batches: tuple[int, ...]
    alternatives: tuple[tuple[str, str, tuple[str, ...]], ...]

    def value(self, name: str) -> str:
        """Returns the value of one of its inputs."""
        return input_named(PAPER, f"{self.prefix}_{name}").value

    @property
    def gradient_factors(self) -> tuple[float, float]:
        """The ends of the range of the factor on the time of gradients."""
        device = input_named(PAPER, f"{self.prefix}_device")
        assert device.low is not None and device.high is not None
        return 1 / float(device.low.split()[-1]), float(device.high.split()[-1])

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of its inputs."""
        own = {
            "dgx1": ("dgx1", "dgx1_batch", "dgx1_library", "dgx1_device", "dgx1_jitter"),
            "sandy_bridge": tuple(f"sandy_bridge_{name}" for name in ("nodes", "batch", "network", "device", "jitter")),
        }
        return "methods", *own[self.prefix], "networks", "interference"


QDR = ("cluster.network.link=ib-qdr", "cluster.network.uplink=ib-qdr")
EIGHT = ("cluster.nodes[0].count=8", "cluster.network.leaves=2")
STEADY, VARIED = ("cluster.step_time=null",), ("cluster.step_time.sigma=0.05",)
UNDISTURBED, DISTURBED = ("cluster.interference=0",), ("cluster.interference=0.25",)
COMMON = (
    ("jitter", "no jitter", STEADY),
    ("jitter", "jitter of sigma 0.05", VARIED),
    ("interference", "no interference", UNDISTURBED),
    ("interference", "interference of 25 %", DISTURBED),
)
SYSTEMS = (
    System(
        "pnnl-dgx1",
        "DGX-1, 8 P100s on NVLink",
        "dgx1",
        (8, 16, 32, 64, 128, 256),
        (*COMMON, ("library", "collectives without the costs of NCCL", ("cluster.network.library=plain",))),
    ),
    System(
        "pnnl-sandy-bridge",
        "64 nodes of two Sandy Bridge sockets, InfiniBand",
        "sandy_bridge",
        (4, 16, 64, 256),
        (*COMMON, ("network", "QDR in place of FDR", QDR), ("nodes", "8 nodes", EIGHT)),
    ),
)


@dataclass(frozen=True, slots=True)
class Speedups:
    """The speed-up of every method in one setting."""

    setting: str
    by_method: tuple[tuple[str, float], ...]

    @property
    def best(self) -> float:
        """The speed-up of the fastest method."""
        return max(ratio for _, ratio in self.by_method)


@cache
def speedups(
    system: System,
    network: str,
    methods: tuple[str, ...],
    setting: str = "",
    changes: tuple[str, ...] = (),
    *,
    gradient_factor: float = 1.0,
    steps: int = 6,
    seed: int = 1,
) -> Speedups:
    """Returns the step time of `sync-sgd` over that of each method.

    Args:
        system: The system.
        network: A key of `NETWORKS`.
        methods: Names of methods; those with a delay have delay 1.
        setting: A description of what is changed.
        changes: Changes of the scenario.
        gradient_factor: A factor on the time of every gradient.
        steps: The number of evaluated steps of each worker.
        seed: Of the jitter.
    """
    given = (f"workload.model={NETWORKS[network]}", *changes)
    times = {
        name: step_s(system.scenario, name, given, steps=steps, gradient_factor=gradient_factor, seed=seed)
        for name in ("sync-sgd", *methods)
    }
    return Speedups(setting, tuple((name, times["sync-sgd"] / times[name]) for name in methods))


@cache
def _central(system: System, network: str, effort: Effort) -> tuple[Speedups, ...]:
    """Returns the speed-ups with the central inputs, by seed."""
    seeds, steps = (effort.choose(3, 2), effort.choose(6, 3)) if network == "alexnet" else (1, 3)
    return tuple(speedups(system, network, METHODS, steps=steps, seed=seed) for seed in range(1, seeds + 1))


@cache
def _batches(system: System, network: str, effort: Effort) -> dict[int, Speedups]:
    """Returns the speed-ups by the batch of a worker."""
    batches = system.batches if not effort.quick else (system.batches[0], system.batches[-1])
    return {
        batch: speedups(
            system,
            network,
            METHODS if network == "alexnet" else CHEAP,
            f"{batch} images for each worker",
            (f"workload.batch_per_worker={batch}",),
            steps=effort.choose(4, 3),
        )
        for batch in batches
    }


def _variations(system: System, network: str, effort: Effort) -> Iterator[Speedups]:
    """Yields the speed-ups with one input changed; in a quick run, with batches and gradient times only."""
    yield from _batches(system, network, effort).values()
    methods, steps = METHODS[1:] if network == "alexnet" else CHEAP, effort.choose(4, 3)
    for factor in system.gradient_factors:
        words = f"gradients that take {factor:.2g} times as long"
        yield speedups(system, network, methods, words, gradient_factor=factor, steps=steps)
    for _, words, changes in () if effort.quick else system.alternatives:
        yield speedups(system, network, methods, words, changes, steps=steps)


def _best(system: System, network: str, effort: Effort) -> Predicted:
    """Returns the speed-up of the fastest method on a system."""
    central = _central(system, network, effort)
    others = list(_variations(system, network, effort))
    least, most = (end(others, key=lambda setting: setting.best) for end in (min, max))
    listed = ", ".join(f"{name} {ratio:.2f}" for name, ratio in central[0].by_method)
    ends = f"from {least.best:.2f} with {least.setting} to {most.best:.2f} with {most.setting}"
    seeds = over_range([of_seed.best for of_seed in central])
    return ranging(
        seeds.value,
        (seeds.low, seeds.high, *(setting.best for setting in others)),
        reason=f"An input that was not found decides: {ends}.",
        details=(f"By method: {listed}.", f"With one input changed, the best goes {ends}."),
        curve=_curve(system, network, effort),
    )


def _curve(system: System, network: str, effort: Effort) -> Curve:
    lines: dict[str, list[tuple[float, float]]] = {}
    for batch, of_batch in _batches(system, network, effort).items():
        for name, ratio in of_batch.by_method:
            lines.setdefault(name, []).append((float(batch), ratio))
    return Curve(
        x="images in the batch of a worker",
        y="speed-up over sync-sgd",
        lines=lines,
        published=PUBLISHED,
        log_x=True,
    )


def _every(effort: Effort) -> dict[str, Predicted]:
    """Returns the speed-up of the fastest method of both networks on both systems."""
    return {
        f"{LABELS[network]} on {system.scenario}": _best(system, network, effort)
        for system in SYSTEMS
        for network in NETWORKS
    }


def _largest(effort: Effort) -> Predicted:
    """Returns the largest speed-up of both networks on both systems."""
    speed_ups = _every(effort)
    best = max(speed_ups, key=lambda name: speed_ups[name].value)
    # the largest of several is at least the largest of the lower ends
    value, *ends = (max(getattr(speed_up, end) for speed_up in speed_ups.values()) for end in ("value", "low", "high"))
    listed = "; ".join(f"{name} {speed_up.value:.2f}" for name, speed_up in speed_ups.items())
    words = "The batch and the time of a gradient, which were not found, decide."
    reason = f"{words} {best}: {speed_ups[best].details[-1]}"
    return ranging(value, ends, reason=reason, details=(f"With the central inputs: {listed}.",))


def _least(effort: Effort) -> Predicted:
    """Returns the smallest speed-up of the fastest method over both networks and both systems."""
    speed_ups = _every(effort)
    value, *ends = (min(getattr(speed_up, end) for speed_up in speed_ups.values()) for end in ("value", "low", "high"))
    least = min(speed_ups, key=lambda name: speed_ups[name].low)
    reason = f"Where little is exchanged, little can be hidden. {least}: {speed_ups[least].details[-1]}"
    return ranging(value, ends, reason=reason)


_made = claims_like(PAPER, section="abstract")
Prediction = Callable[[Effort], Predicted]


def _speed(
    system: System, name: str, sentence: str, predict: Prediction, network: str = "alexnet", **more: Any
) -> Claim:
    chosen = f" --set workload.model={NETWORKS[network]}" if network != "alexnet" else ""
    return _made(
        name,
        sentence,
        predict,
        hardware=system.words,
        model=LABELS[network],
        batch=f"{system.value('batch')}, assumed",
        scenario=system.scenario,
        command=f"paceline simulate {system.scenario}{chosen}",
        inputs=system.inputs,
        shares="pnnl",
        **more,
    )


BOTH = System("pnnl-dgx1", "DGX-1, and 64 Sandy Bridge nodes on InfiniBand", "dgx1", (), ())
CLAIMS = (
    *(
        _speed(
            system,
            f"{system.scenario.removeprefix('pnnl-')}-{network}",
            f"{SENTENCE}: {label} on {system.words} is no faster than that",
            partial(_best, system, network),
            network,
            published=PUBLISHED,
            holds_if="at most",
        )
        for system in SYSTEMS
        for network, label in LABELS.items()
    ),
    _speed(
        BOTH,
        "largest",
        f"{SENTENCE}: the largest of AlexNet and GoogLeNet on both systems",
        _largest,
        published=PUBLISHED,
        holds_if="within 25 %",
    ),
    _speed(
        BOTH,
        "faster",
        "asynchronous gradient descent is faster than synchronous: the smallest of the four",
        _least,
        holds_if="order",
    ),
    _made(
        "layerwise-equals-gd",
        "the solution space begins at exact equivalence to one device: layer by layer, without delay, the weights are "
        "those of synchronous gradient descent",
        largest_difference,
        published=0.0,
        unit="",
        hardware="this machine, processes joined by torch.distributed",
        model="digits-cnn on the digits of scikit-learn",
        batch="16 for each of 2 workers",
        scenario="pnnl-sandy-bridge",
        command="paceline reproduce NAME  # from pnnl-sandy-bridge",
        inputs=("methods",),
        holds_if="equal",
        measured=True,
    ),
)
