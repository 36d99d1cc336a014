"""The rows of `benchmarks/hsgd.py`: the shipped scenario hsgd-tianhe2 with some of HSGD's features, simulated.

Rules of this file:

* A row is a run. The gain of a feature is the difference of two runs. A missing feature is expressed as changes of the
  scenario; no time is computed outside the simulator.
* `ASSUMED` lists what the HSGD paper, as far as it could be read, does not say; `variants` makes other assumptions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.scenarios import load
from paceline.scenarios.sections.devices import device_of
from paceline.simulator.runs.run import simulate
from paceline.topologies.catalogue.device_names import named
from paceline.workloads.models.layer_tables import find_model

SCENARIO = "hsgd-tianhe2"
PAPER = 20.0
"""times the computing efficiency; FOUND, the abstract of the paper ("about" 20 times)"""
SMALL, LARGE = 1024, 8192
"""images per step. FOUND, AlexNet in NVIDIA/caffe of LARS's author: 8K with LARS and a ramp, 1K with LARS and without
one. That SGD without LARS tolerates 1K is INFERENCE
"""

SERVER = "algorithms=[sync-sgd-ps]"
RING = "algorithms=[sync-sgd]"
SCATTERED = ("workload.reading.strategy=scattered",)
FILES = "cluster.storage={name: lustre, latency: 1.7 ms}"
"""one file to open for every picture: 0.7 ms and 1 ms, both MEMORY medium"""
PLAIN = "algorithms=[{name: hsgd, lars: null}]"


@dataclass(frozen=True)
class Feature:
    """A part of HSGD.

    Args:
        without: The changes ``path=value`` of the scenario that remove it.
    """

    name: str
    words: str
    without: tuple[str, ...]


FEATURES = (
    Feature("two levels", "sums in each node, then among nodes, in place of a server", (SERVER,)),
    Feature(
        "shared memory",
        "between processes of a node, in place of sockets",
        ("cluster.network.intra_node_link=loopback",),
    ),
    Feature("contiguous", "each reader reads runs of the file", SCATTERED),
    Feature("prefetch", "batches are read ahead", ("workload.reading.prefetch=0",)),
    Feature("LARS", "8K images make one step, in place of 1K", (PLAIN,)),
)
"""in the order in which they are added"""

ASSUMED = (
    "native strategy: synchronous SGD by one parameter server, every worker of every node for itself",
    "nodes: 32 of Tianhe-2, a process of the host for each of three Xeon Phi 31S1P; no step is longer than another",
    "model: AlexNet, 62.4 million parameters, without overlap of communication and backward pass",
    "a Phi's arithmetic: a Knights Landing's efficiency, as no throughput of it was found",
    "what crosses PCIe between a process and its Phi takes no time",
    "batch: 1K images without LARS, 8K with it, the nearest multiples of the workers",
    "files: ImageNet's training pictures in one file of records, 110 kB each, decoded in no time",
    "file system: the Lustre of `paceline list storage`",
    "sockets: the links `loopback` (measured on another machine) and, between nodes, MPI's rates, in every row",
    "shared memory: each process reads and writes it with one core of the host, the leader of a node adds",
    "computing efficiency: images per second on the same nodes, whatever a step's images are worth",
)
"""assumptions where nothing could be found in HSGD's paper; its statements are in its abstract"""


@dataclass(frozen=True)
class Row:
    """The result of one run.

    Args:
        changes: Changes of the scenario, ``path=value``.
        batch: Images per step of all workers.
        step_s: Seconds between the starts of a worker's steps.
        time_fraction: Fractions of a worker's time, by activity.
    """

    name: str
    words: str
    changes: tuple[str, ...]
    batch: int
    step_s: float
    time_fraction: dict[str, float]

    @property
    def images_per_s(self) -> float:
        """Images per second of all workers, from their first step to their last. Startup before the first step counts
        in no row.
        """
        return self.batch / self.step_s

    @property
    def s_per_1000(self) -> float:
        """Seconds for a thousand images."""
        return 1000 / self.images_per_s


def simulated(name: str, words: str, changes: Sequence[str], *, batch: int, images: int) -> Row:
    """Simulates the scenario with changes. The batch is divided evenly."""
    workers = load(SCENARIO, changes).cluster.workers
    each = max(1, round(batch / workers))
    changes = (*changes, f"workload.batch_per_worker={each}", f"stop.samples={images}")
    (run,) = simulate(load(SCENARIO, changes))
    step_s = run.summary["step_s"]["mean"]
    assert step_s is not None, f"found {images} images, expected several steps of {batch}"
    return Row(name, words, changes, each * workers, step_s, dict(run.summary["time_fraction"]))


def waterfall(
    changes: Sequence[str] = (),
    *,
    instead: Mapping[str, Sequence[str]] | None = None,
    small: int = SMALL,
    large: int = LARGE,
    images: int,
) -> list[Row]:
    """Returns the native strategy, and one more row for each feature.

    Args:
        changes: Changes of all rows.
        instead: Changes by feature that replace its own `without`.
        small: Images per step without LARS.
        large: Images per step with LARS.
        images: The minimum of each run, in whole steps.
    """
    rows = []
    for have in range(len(FEATURES) + 1):
        missing = FEATURES[have:]
        name, words = (FEATURES[have - 1].name, FEATURES[have - 1].words) if have else ("native", "none of them")
        given = [*changes, *_without(missing, instead or {})]
        rows.append(simulated(name, words, given, batch=small if missing else large, images=images))
    return rows


def left_out(changes: Sequence[str] = (), *, images: int) -> list[Row]:
    """Returns HSGD without each one of its features."""
    return [
        simulated(
            feature.name,
            f"without it: {feature.words}",
            [*changes, *feature.without],
            batch=SMALL if feature.name == "LARS" else LARGE,
            images=images,
        )
        for feature in FEATURES
    ]


def _without(missing: Sequence[Feature], instead: Mapping[str, Sequence[str]]) -> list[str]:
    """Returns the changes for missing features. Of two that change the same key, the first one's counts."""
    return [change for feature in reversed(missing) for change in instead.get(feature.name, feature.without)]


def factors(rows: Sequence[Row]) -> list[tuple[float, float]]:
    """Returns for each row the images per second relative to the previous row and to the first one."""
    rates = [row.images_per_s for row in rows]
    return [(rate / before, rate / rates[0]) for before, rate in zip([rates[0], *rates], rates, strict=False)]


# --- what hangs on what is assumed -----------------------------------------------------------------------------------


def offloaded() -> str:
    """Returns a Phi that copies the gradient to the host and the weights back in every step, at PCIe's rate."""
    workload = load(SCENARIO).workload
    name = "xeon-phi-31s1p"
    phi, rate = device_of(name, workload), named(name).host_bytes_per_s
    assert rate is not None, "the catalogue says what a copy from the host reaches"
    batch = workload.batch_per_worker
    per_sample_s = (phi.compute_s(2 * batch) - phi.compute_s(batch)) / batch
    overhead_s = phi.compute_s(batch) - batch * per_sample_s + 2 * 4 * find_model(workload.model).parameters / rate
    given = f"name: offloaded, overhead: {overhead_s!r} s, per_sample: {per_sample_s!r} s"
    return f"cluster.nodes[0].device={{{given}}}"


def variants() -> dict[str, dict[str, Any]]:
    """Returns other assumptions, each as arguments of `waterfall`."""
    slow = "{name: slow-loopback, latency: 60 us, bandwidth: 1 GB/s}"
    halving = (RING, "cluster.network.allreduce_algorithm=halving-doubling")
    return {
        "native: a flat ring, laid along the nodes": {"instead": {"two levels": (RING,)}},
        "native: flat, by halving and doubling": {"instead": {"two levels": halving}},
        "native: a server, one worker a node": {
            "instead": {"two levels": (SERVER, "cluster.nodes[0].workers_per_node=1")}
        },
        "16 nodes": {"changes": ["cluster.nodes[0].count=16"]},
        "56 nodes": {"changes": ["cluster.nodes[0].count=56"]},
        "4K with LARS": {"large": 4096},
        "16K with LARS": {"large": 2 * LARGE},
        "weights and gradients cross PCIe": {"changes": [offloaded()]},
        "sockets of 1 GB/s": {"instead": {"shared memory": (f"cluster.network.intra_node_link={slow}",)}},
        "a P100 in place of each Phi": {"changes": ["cluster.nodes[0].device=p100"]},
        "every picture in a file of its own": {"instead": {"contiguous": (*SCATTERED, FILES)}},
        "a hard disk in each node": {"changes": ["cluster.storage=hdd"]},
        "ResNet-50": {"changes": ["workload.model=resnet50"]},
    }
