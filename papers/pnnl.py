"""Claims on asynchronous layer-wise gradient descent: the speed-up over the synchronous method, equality, and memory.

Rules of this file:

* The speed-up is the step time of `sync-sgd`, one all-reduce after the backward pass, over that of the fastest of the
  asynchronous methods, with equal batches. What the delayed gradients are worth is not part of it.
* Equality is measured by real runs, layer by layer without delay and synchronously, whose final weights are compared.
* Memory is that of the gradients that a simulated worker holds at once, beside the device model's account of the rest.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from paceline.backend.local.launch import Launch, run_job
from paceline.papers.claim import Claim, Curve, Given, claims_like, inputs_of
from paceline.papers.runs import simulated, step_s
from paceline.records.trace import Schedule
from paceline.scenarios import load
from paceline.topologies.catalogue.device_names import named
from paceline.topologies.compute.model_work import footprint
from paceline.workloads.models.layer_tables import find_model

PAPER = "pnnl"
PUBLISHED = 1.7
"""FOUND in the abstract: "up to 1.7x" over the synchronous method"""
SENTENCE = "up to 1.7× the speed of synchronous gradient descent"
METHODS = ("layerwise-sgd", "layerwise-sgd-next-forward", "agd", "layerwise-agd")
FASTEST = {"alexnet": ("agd", "layerwise-agd"), "googlenet": ("agd",)}
"""methods that are run: those with a delay hide at least what the others do. Layer by layer, GoogLeNet's 58
messages make runs long; its times differ by 0.2 % from those of agd on either system"""
NETWORKS = {"alexnet": "alexnet-bvlc", "googlenet": "googlenet"}
LABELS = {"alexnet": "AlexNet", "googlenet": "GoogLeNet"}


# --- speed ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class System:
    """A system of the paper: the name of its scenario, its hardware, and the first part of the names of its inputs."""

    scenario: str
    words: str
    prefix: str
    own: tuple[str, ...]
    """names of its inputs"""

    @property
    def inputs(self) -> tuple[str, ...]:
        """The inputs of a speed-up on it."""
        return ("methods", "networks", "delay", "interference", *self.own)

    def changes(self, given: Given) -> list[str]:
        """Returns the changes of its scenario."""
        jitter, interference = given.number(f"{self.prefix}_jitter"), given.word("interference")
        changes = [
            f"workload.batch_per_worker={int(given.number(f'{self.prefix}_batch'))}",
            f"cluster.step_time.sigma={jitter}" if jitter else "cluster.step_time=null",
            f"cluster.interference={'null' if interference == 'default' else interference}",
        ]
        if f"{self.prefix}_library" in self.own:
            changes.append(f"cluster.network.library={given.word(f'{self.prefix}_library')}")
        if f"{self.prefix}_network" in self.own:
            link = f"ib-{given.word(f'{self.prefix}_network').lower()}"
            changes += [f"cluster.network.link={link}", f"cluster.network.uplink={link}"]
        if f"{self.prefix}_nodes" in self.own:
            nodes = int(given.number(f"{self.prefix}_nodes"))
            changes += [f"cluster.nodes[0].count={nodes}", f"cluster.network.leaves={max(2, math.ceil(nodes / 16))}"]
        return changes


DGX1 = System(
    "pnnl-dgx1",
    "DGX-1, 8 P100s on NVLink",
    "dgx1",
    ("dgx1", "dgx1_batch", "dgx1_library", "dgx1_gradient", "dgx1_jitter"),
)
SANDY_BRIDGE = System(
    "pnnl-sandy-bridge",
    "64 nodes of two Sandy Bridge sockets, InfiniBand",
    "sandy_bridge",
    tuple(f"sandy_bridge_{name}" for name in ("nodes", "batch", "network", "gradient", "jitter")),
)
SYSTEMS = (DGX1, SANDY_BRIDGE)
EVERY_INPUT = tuple(dict.fromkeys(name for system in SYSTEMS for name in system.inputs))


def speed_ups(system: System, network: str, given: Given, methods: tuple[str, ...]) -> dict[str, float]:
    """Returns the step time of `sync-sgd` over that of asynchronous methods.

    Args:
        system: The system.
        network: A key of `NETWORKS`.
        given: With the inputs of the system.
        methods: Names of `METHODS`.
    """
    seed = given.seed if given.number(f"{system.prefix}_jitter") else 1
    synchronous, *times = (
        _step_time(system, network, given.only(*system.inputs), seed, method) for method in ("sync-sgd", *methods)
    )
    return {method: synchronous / time for method, time in zip(methods, times, strict=True)}


@cache
def _step_time(system: System, network: str, given: Given, seed: int, method: str) -> float:
    changes = [*system.changes(given), f"workload.model={NETWORKS[network]}"]
    factor, delay = given.number(f"{system.prefix}_gradient"), int(given.number("delay"))

    # one message a layer, as in the authors' code
    options = (("bucket", None),) * ("layerwise" in method) + (("delay", delay),) * ("agd" in method)
    algorithm = (("name", method), *options)
    steps = given.choose(4, 3)
    return step_s(system.scenario, algorithm, changes, steps=steps, gradient_factor=factor, seed=seed)


def fastest(system: System, network: str, given: Given) -> float:
    """Returns the speed-up of the fastest asynchronous method."""
    return max(speed_ups(system, network, given, FASTEST[network]).values())


def every(given: Given) -> dict[str, float]:
    """Returns the speed-up of the fastest method of both networks on both systems."""
    return {
        f"{LABELS[network]} on {system.scenario}": fastest(system, network, given)
        for system in SYSTEMS
        for network in NETWORKS
    }


def largest(given: Given) -> float:
    """Returns the largest speed-up of both networks on both systems."""
    return max(every(given).values())


def least(given: Given) -> float:
    """Returns the smallest speed-up of the fastest method over both networks and both systems."""
    return min(every(given).values())


def _by_method(system: System, network: str, given: Given) -> Iterator[str]:
    methods = METHODS if network == "alexnet" else FASTEST[network]
    listed = ", ".join(f"{name} {ratio:.2f}" for name, ratio in speed_ups(system, network, given, methods).items())
    yield f"By method: {listed}."


def _by_system(given: Given) -> Iterator[str]:
    yield f"Fastest method: {'; '.join(f'{name} {ratio:.2f}' for name, ratio in every(given).items())}."


def _curve(given: Given) -> Curve:
    lines: dict[str, list[tuple[float, float]]] = {}
    for system in SYSTEMS:
        name = f"{system.prefix}_batch"
        batches = sorted({int(text.split()[0]) for text in inputs_of(PAPER)[name].plausible} | {64})
        for network, label in LABELS.items():
            points = [(float(batch), fastest(system, network, given.with_value(name, str(batch)))) for batch in batches]
            lines[f"{label} on {system.scenario}"] = points
    x, y = "images in the batch of a worker", "speed-up over sync-sgd"
    return Curve(x=x, y=y, lines=lines, published=PUBLISHED, log_x=True)


# --- equality ---------------------------------------------------------------------------------------------------------

WITHOUT_DELAY = (
    "layerwise-sgd",
    "layerwise-sgd-lazy",
    "layerwise-sgd-next-forward",
    "{name: agd, delay: 0}",
    "{name: layerwise-agd, delay: 0}",
)
"""the methods of the paper's solution space whose gradients are not delayed"""
WORKERS, BATCH = 2, 16


@cache
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


def largest_difference(given: Given) -> float:
    """Returns the largest difference between the weights of a method without delay and those of `sync-sgd`."""
    run = partial(trained, steps=given.choose(40, 10), seed=given.seed)
    return max(distance(run(name), run("sync-sgd")) for name in WITHOUT_DELAY)


def _about_equality(given: Given) -> Iterator[str]:
    run = partial(trained, steps=given.choose(40, 10), seed=given.seed)
    alone, delayed = run("sequential-sgd", workers=1), run("{name: layerwise-agd, delay: 1}")
    yield f"Weights of {len(WITHOUT_DELAY)} methods after {given.choose(40, 10)} steps, relative to their norm."
    yield (
        f"Two processes with batch {BATCH} and one with {WORKERS * BATCH} differ by "
        f"{distance(run('sync-sgd'), alone):.1g}, by rounding; with a delay of one step the difference is "
        f"{distance(delayed, run('sync-sgd')):.2g}."
    )


# --- memory -----------------------------------------------------------------------------------------------------------


@cache
def gradients_held(network: str, method: str, delay: int, batch: int) -> float:
    """Returns the most gradients that a worker of the DGX-1 holds at once, in whole gradients of the model.

    A gradient, or that of a layer, is held from the beginning of its computation until it has been applied.

    Args:
        network: A key of `NETWORKS`.
        method: The name of a method with a delay.
        delay: In steps.
        batch: Images for each GPU.
    """
    algorithm = {"name": method, "delay": delay} | ({"bucket": None} if method == "layerwise-agd" else {})
    changes = [
        f"workload.model={NETWORKS[network]}",
        f"workload.batch_per_worker={batch}",
        f"stop.updates={2 * delay + 4}",
        "cluster.step_time=null",
    ]
    (run,) = simulated(DGX1.scenario, changes, algorithms=[algorithm])
    tables = run.tables
    sizes = {layer.name: layer.stop - layer.start for layer in find_model(NETWORKS[network]).layout().layers}
    layered = method == "layerwise-agd"
    computed = tables.spans[(tables.spans["rank"] == 0) & (tables.spans["activity"] == "compute")]
    begun_s = computed.groupby(["step", "layer"] if layered else "step")["start_s"].max()  # the backward pass
    applied = tables.layers if layered else tables.updates
    events = []
    for row in applied[applied["rank"] == 0].to_dict("records"):
        size = sizes[row["layer"]] if layered else sum(sizes.values())
        start_s = begun_s.loc[(row["step"], row["layer"]) if layered else row["step"]]
        events += [(start_s, size), (row["time_s"], -size)]
    held = np.cumsum([change for _, change in sorted(events)])  # at equal times, what is applied goes first
    return float(held.max()) / sum(sizes.values())


def extra_memory(network: str, given: Given) -> float:
    """Returns the memory of the gradients beyond one, in per cent of the memory for training without delay."""
    batch = int(given.number("dgx1_batch"))
    whole = footprint(named("p100-sxm2"), find_model(NETWORKS[network]))
    more = gradients_held(network, "layerwise-agd", int(given.number("delay")), batch) - 1
    return 100 * more * whole.gradients_bytes / whole.needed_bytes(batch)


def _about_memory(network: str, given: Given) -> Iterator[str]:
    batch, delay = int(given.number("dgx1_batch")), int(given.number("delay"))
    whole = footprint(named("p100-sxm2"), find_model(NETWORKS[network]))
    held = {method: gradients_held(network, method, delay, batch) for method in ("agd", "layerwise-agd")}
    yield (
        f"A worker holds {held['agd']:.2f} gradients at once with agd, {held['layerwise-agd']:.2f} with layerwise-agd; "
        f"one has {whole.gradients_bytes / 1e6:.0f} MB, and training without delay needs "
        f"{whole.needed_bytes(batch) / 1e9:.1f} GB of a P100."
    )
    yield "That at most 10 % count as little is ours."


# --- the claims -------------------------------------------------------------------------------------------------------

_made = claims_like(PAPER, section="abstract")
FAST = {
    "hardware": "DGX-1, and 64 Sandy Bridge nodes on InfiniBand",
    "model": "AlexNet, GoogLeNet",
    "batch": "not found",
    "inputs": EVERY_INPUT,
    "seeds": 3,
    "shares": "pnnl",
    "explain": _by_system,
}


def _claims() -> Iterator[Claim]:
    yield _made(
        "largest",
        f"{SENTENCE}: the largest of AlexNet and GoogLeNet on both systems",
        largest,
        published=PUBLISHED,
        holds_if="within 25 %",
        scenario=SANDY_BRIDGE.scenario,
        command=f"paceline simulate {SANDY_BRIDGE.scenario}",
        together="speed-up",
        curve=_curve,
        **FAST,
    )
    yield _made(
        "faster",
        "asynchronous gradient descent is faster than synchronous: the smallest of the four",
        least,
        holds_if="order",
        scenario=DGX1.scenario,
        command=f"paceline simulate {DGX1.scenario} --set workload.model={NETWORKS['googlenet']}",
        **FAST,
    )
    for system in SYSTEMS:
        for network, label in LABELS.items():
            chosen = f" --set workload.model={NETWORKS[network]}" if network != "alexnet" else ""
            yield _made(
                f"{system.scenario.removeprefix('pnnl-')}-{network}",
                f"{SENTENCE}: {label} on {system.words} is no faster than that",
                partial(fastest, system, network),
                published=PUBLISHED,
                kind="supporting",
                holds_if="at most",
                hardware=system.words,
                model=label,
                batch="not found",
                scenario=system.scenario,
                command=f"paceline simulate {system.scenario}{chosen}",
                inputs=system.inputs,
                seeds=3,
                shares="pnnl",
                explain=partial(_by_method, system, network),
            )
    yield _made(
        "layerwise-equals-gd",
        "the solution space begins at exact equivalence to one device: layer by layer, without delay, the weights are "
        "those of synchronous gradient descent",
        largest_difference,
        published=0.0,
        unit="",
        kind="identity",
        hardware="this machine, processes joined by torch.distributed",
        model="digits-cnn on the digits of scikit-learn",
        batch="16 for each of 2 workers",
        scenario=SANDY_BRIDGE.scenario,
        command=f"paceline reproduce NAME  # from {SANDY_BRIDGE.scenario}",
        inputs=("methods",),
        holds_if="equal",
        seeds=3,
        measured=True,
        explain=_about_equality,
    )
    for network, label in LABELS.items():
        yield _made(
            f"memory-{network}",
            f"layer by layer with a delay needs little additional memory: {label}, gradients beyond one, in per cent "
            "of the memory for training (read as at most 10 %)",
            partial(extra_memory, network),
            published=10.0,
            unit="%",
            kind="supporting",
            hardware=DGX1.words,
            model=label,
            batch="not found",
            scenario=DGX1.scenario,
            command=f"paceline simulate {DGX1.scenario}",
            inputs=("methods", "networks", "dgx1", "delay", "dgx1_batch"),
            all_combinations=True,
            holds_if="at most",
            seeds=1,
            explain=partial(_about_memory, network),
        )


CLAIMS = tuple(_claims())
