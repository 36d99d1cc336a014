"""Claims on HSGD: the whole system against the native strategy, its features, shared memory, and reading.

Rules of this file:

* A factor is a ratio of images per second on the same nodes. What an image in a larger step is worth is not part of it.
* What "the native distributed strategy" was is not known: its readings are the plausible values of an input.
* No time is computed outside the simulator. A device is a part of a node's cores, see `_device`.
* Processes of a node that communicate through shared memory do so as those of the real backend: each writes a slot, and
  reads the others' with its own core (`simulator.collectives.shared_slots`).
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from paceline.algorithms.core.job import Budget, Job
from paceline.algorithms.core.method import Method, RankContext, Replica, StalenessKind
from paceline.algorithms.core.operations import AllReduce, NextStep, Now
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.values import Rank, Samples
from paceline.backend.calibration.storage_costs import Readers, scratch
from paceline.backend.local.launch import Launch, run_job
from paceline.papers.claim import Curve, Given, claims_like
from paceline.papers.runs import step_s
from paceline.records.trace import Schedule
from paceline.scenarios import load
from paceline.scenarios.sections.devices import device_of
from paceline.topologies.catalogue.device_names import named
from paceline.workloads import build
from paceline.workloads.reading import Order, Strategy
from paceline.workloads.reading.reader import Opened, Reader

PAPER, SCENARIO = "hsgd", "hsgd-tianhe2"
PUBLISHED = 20.0
"""FOUND in the abstract: "about 20 times" the computing efficiency of the native distributed strategy"""
NODES = {"cpus": ("xeon-e5-2692v2", 2), "phis": ("xeon-phi-31s1p", 3)}
"""the chips that compute in a node, and their number"""
HOST, SOCKETS = "xeon-e5-2692v2", 2
STEPS = 1
"""evaluated steps of each run, after one of warm-up; all are alike, since step times do not vary"""
HSGD, LARS = (("name", "hsgd"), ("lars", "null")), (("name", "hsgd"), ("learning_rate", 10))
SCATTERED, UNREAD = "workload.reading.strategy=scattered", "workload.reading.prefetch=0"
STORAGE = "lustre"
"""of claims that do not list it, since it hardly matters there"""
PLAIN = (SCATTERED, UNREAD)
"""reading without HSGD's features"""


# --- images per second ------------------------------------------------------------------------------------------------


def _amdahl(serial: float, cores: float) -> float:
    """Returns the time of c cores relative to that of one, by Amdahl's law."""
    return serial + (1 - serial) / cores


def _device(given: Given, *, processes: int, cores: float, images: float) -> str:
    """Returns a part of a node's cores as a device, as YAML, whose gradient takes

        t(c, b) = t(C, b') · b / b' · (s + (1 − s) / c) / (s + (1 − s) / C)

    for b images on c cores, where t(C, b') is the catalogue's time of a whole chip of C cores for its share b' of the
    node's images: each core computes as many images however the cores are divided, so its efficiency is the same.

    Args:
        given: The inputs.
        processes: Processes on each node that compute.
        cores: Cores of each.
        images: Images of each.
    """
    chip, count = NODES[given.word("node")]
    spec, serial = named(chip), given.number("serial")
    share = max(1, round(processes * images / count))
    chip_s = device_of(chip, load(SCENARIO, [f"workload.model={given.word('model')}"]).workload).compute_s(share)
    law = _amdahl(serial, cores) / _amdahl(serial, spec.cores or 1)
    bandwidth = spec.sustained_bytes_per_s * count / processes / 1e9
    return (
        f"{{name: cores-{round(cores)}, overhead: {chip_s * images / share * law!r} s, per_sample: 0 s, "
        f"memory_bandwidth: {bandwidth!r} GB/s}}"
    )


def _cores(given: Given) -> int:
    chip, count = NODES[given.word("node")]
    return count * (named(chip).cores or 1)


def _replicas(given: Given) -> int:
    """Returns the replicas on each node; fewer of more cores in quick runs."""
    return max(2, int(given.number("replicas")) // given.choose(1, 4))


def _sockets(given: Given) -> str:
    """Returns the link between processes of a node over sockets."""
    return f"{{name: sockets, latency: 60 us, bandwidth: {given.number('sockets')} GB/s}}"


def images_per_s(
    given: Given,
    algorithm: str | tuple[tuple[str, object], ...],
    *,
    processes: int,
    images: float,
    link: str = "shared-memory",
    changes: Sequence[str] = (),
    cores: float | None = None,
) -> float:
    """Returns the simulated images per second of a strategy.

    Args:
        given: The inputs.
        algorithm: Its method.
        processes: On each node.
        images: In a step of all nodes.
        link: Between processes of a node.
        changes: Further changes of the scenario.
        cores: Of each process; all cores of the node divided among them if not given.
    """
    nodes = int(given.number("nodes"))
    each = max(1, round(images / nodes / processes))
    device = _device(given, processes=processes, cores=cores or _cores(given) / processes, images=each)
    every = [
        f"cluster.nodes=[{{device: {device}, workers_per_node: {processes}, count: {nodes}}}]",
        f"cluster.charges={{host: {HOST}, sockets: {SOCKETS}, core_bandwidth: {given.number('shared-memory')} GB/s}}",
        f"cluster.network.intra_node_link={link}",
        f"workload.model={given.word('model')}",
        f"workload.batch_per_worker={each}",
        f"cluster.storage={given.word('storage') if 'storage' in dict(given.values) else STORAGE}",
        *changes,
    ]
    return each * processes * nodes / step_s(SCENARIO, algorithm, every, steps=STEPS)


def hierarchical(given: Given, *, link: str = "shared-memory", reading: Sequence[str] = ()) -> float:
    """Returns the images per second of two-level sums, without LARS."""
    replicas, images = _replicas(given), given.number("images")
    return images_per_s(given, HSGD, processes=replicas, images=images, link=link, changes=reading)


def whole(given: Given) -> float:
    """Returns the images per second of the whole system: two levels, reading ahead, and the steps that LARS permits."""
    return images_per_s(given, LARS, processes=_replicas(given), images=given.number("lars-images"))


def flat_ring(given: Given, reading: Sequence[str] = ()) -> float:
    """Returns the images per second of the same replicas in one ring over sockets."""
    replicas, images = _replicas(given), given.number("images")
    return images_per_s(given, "sync-sgd", processes=replicas, images=images, link=_sockets(given), changes=reading)


def native(given: Given) -> float:
    """Returns the images per second of the native strategy, as the input says."""
    images, link = given.number("images"), _sockets(given)
    alone: Any = {"processes": 1, "images": images, "link": link, "changes": PLAIN}
    match given.word("native"):
        case "ring":
            return flat_ring(given, PLAIN)
        case "server":
            return images_per_s(given, "sync-sgd-ps", **alone)
        case "one-process":
            return images_per_s(given, "sync-sgd", **alone)
        case "one-thread":
            return images_per_s(given, "sync-sgd", cores=1, **alone)
        case _:
            replicas = _replicas(given)
            return images_per_s(given, "sync-sgd-ps", processes=replicas, images=images, link=link, changes=PLAIN)


def efficiency(given: Given) -> float:
    """Returns the images per second of the whole system over those of the native strategy."""
    return whole(given) / native(given)


# --- feature by feature -----------------------------------------------------------------------------------------------


def features(given: Given) -> dict[str, float]:
    """Returns the images per second of the native strategy, and with one more feature in each row.

    Args:
        given: The inputs.
    """
    link = _sockets(given)
    return {
        "native": native(given),
        "two levels of replicas": hierarchical(given, link=link, reading=PLAIN),
        "shared memory": hierarchical(given, reading=PLAIN),
        "contiguous reading": hierarchical(given, reading=(UNREAD,)),
        "reading ahead": hierarchical(given),
        "LARS": whole(given),
    }


def _feature_by_feature(given: Given) -> Iterator[str]:
    rows = features(given)
    listed = "; ".join(f"{name} {rate:.0f}, {rate / rows['native']:.2f} times" for name, rate in rows.items())
    yield f"Images per second, each row with one more feature: {listed}."


def _by_feature(given: Given) -> Curve:
    s_per_1000 = {name: 1000 / rate for name, rate in features(given).items()}
    return Curve(
        x=f"features added: {', '.join([*s_per_1000][1:])}",
        y="seconds per 1,000 images",
        lines={"simulated": [(float(have), seconds) for have, seconds in enumerate(s_per_1000.values())]},
        published=s_per_1000["native"] / PUBLISHED,
        log_y=True,
    )


def two_levels(given: Given) -> float:
    """Returns the images per second of two-level sums in shared memory over those of a flat ring over sockets."""
    return hierarchical(given) / flat_ring(given)


def larger_steps(given: Given) -> float:
    """Returns what the larger steps that LARS permits bring: images per second with it over those without."""
    return whole(given) / hierarchical(given)


def contiguous_reading(given: Given) -> float:
    """Returns what contiguous reading ahead brings to a step: images per second over those of scattered reading."""
    return hierarchical(given) / hierarchical(given, reading=PLAIN)


# --- measured ---------------------------------------------------------------------------------------------------------

RANKS = 2
NUMBERS = (5_000, 200_000, 2_000_000)
"""lengths of the vectors, of 20 kB, 0.8 MB and 8 MB: from a layer of a small network to a part of a large one"""
TIMES = 30
PICTURE_BYTES = 3072
"""bytes of a sample's inputs: a picture of CIFAR-10"""
BATCH, BUFFER = 64, 1024
MEBIBYTES = 48
"""of the file that is read"""
SCATTERED_SHARE = 16
"""scattered reading takes this part of the batches, because it is slow"""


@dataclass(frozen=True, kw_only=True)
class TimedAllReduces(Method):
    """A method of one step that times all-reduces of several sizes; its state has the median times in seconds."""

    name = "timed-all-reduces"
    staleness_kind = StalenessKind.STEPS
    source = "a measurement"
    guarantees = frozenset()

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        medians_s: list[float] = []
        while (yield from NextStep(state)):
            for length in NUMBERS:
                vector, times_s = np.ones(length, np.float32), []
                for number in range(TIMES):
                    start = yield from Now()
                    yield from AllReduce(value=vector, group=me.workers, key=f"{length} numbers, {number}", op="sum")
                    times_s.append((yield from Now()) - start)
                medians_s.append(median(times_s))
            state = Replica(state.step + 1, state.weights, medians_s)
        return state


def _all_reduce_s(*, shared_memory: bool) -> list[float]:
    """Returns the median time of an all-reduce of each size in one launch, in seconds."""
    learner = build("digits-mlp", dataset="digits", learning="train", seed=1)
    nodes = [[Rank(rank) for rank in range(RANKS)]]
    job = Job.of(TimedAllReduces(), nodes, learner, batch=1, budget=Budget(samples=RANKS))
    trace = run_job(Launch(job=job, schedule=lambda: Schedule(every=float("inf")), shared_memory=shared_memory))
    medians_s: list[float] = trace.states[Rank(0)].optimizer_state
    return medians_s


@cache
def _ratios(seed: int) -> tuple[float, ...]:
    """Returns the time of an all-reduce of each size over sockets, over that in shared memory."""
    ways = (False, True) if seed % 2 else (True, False)  # one after the other, by turns
    times = {way: _all_reduce_s(shared_memory=way) for way in ways}
    return tuple(slow / fast for slow, fast in zip(times[False], times[True], strict=True))


def sockets_over_memory(given: Given) -> float:
    """Returns the geometric mean over the sizes of the time of an all-reduce over sockets, over that in shared memory.

    Args:
        given: Its seed is the number of the round.
    """
    return math.exp(float(np.log(_ratios(given.seed)).mean()))


def _by_size(given: Given) -> Iterator[str]:
    sizes = ", ".join(
        f"{ratio:.1f} for {length * 4 / 1000:,.0f} kB"
        for length, ratio in zip(NUMBERS, _ratios(given.seed), strict=True)
    )
    yield f"Median times of {TIMES} all-reduces among {RANKS} processes; in the first round {sizes}."


@dataclass(frozen=True, slots=True)
class Reading:
    """The batches that one process reads."""

    strategy: Strategy
    num_samples: int
    first: int
    steps: int

    def ready(self, opened: Opened) -> Callable[[], None]:
        """Returns the reading, prepared so that only the requests and the handling of their bytes are timed."""
        order = Order(strategy=self.strategy, num_samples=self.num_samples, seed=1, buffer=BUFFER)
        reader = Reader(opened.file, order, opened=opened)
        batches = [Samples(0, 1, self.first + number, BATCH) for number in range(self.steps)]
        order.positions(batches[0])

        def run() -> None:
            for samples in batches:
                reader.records(samples)

        return run


def contiguous_over_scattered(given: Given) -> float:
    """Returns the records per second of contiguous reading over those of scattered reading, past the page cache.

    Args:
        given: Its seed is the number of the round, which chooses the records.
    """
    with (
        scratch(Path(tempfile.gettempdir()), mebibytes=MEBIBYTES, inputs=PICTURE_BYTES) as file,
        Readers(file, 1) as readers,
    ):
        batches = file.num_samples // BATCH
        part = max(2, batches // SCATTERED_SHARE)
        turn = (given.seed - 1) % SCATTERED_SHARE
        rates = [
            read.steps * BATCH / readers.seconds([read])
            for read in (
                Reading("scattered", file.num_samples, turn * part, part),
                Reading("contiguous", file.num_samples, 0, batches),
            )
        ]
    return rates[1] / rates[0]


# --- the claims -------------------------------------------------------------------------------------------------------

MACHINE = ("nodes", "node", "replicas", "serial", "model", "shared-memory")
COMMON = {"section": "abstract", "scenario": SCENARIO, "command": f"paceline reproduce NAME  # from {SCENARIO}"}
_simulated = claims_like(
    PAPER,
    hardware="32 nodes of Tianhe-2, assumed",
    model="AlexNet, assumed",
    batch="1024 images in a step without LARS, 8192 with it, assumed",
    seeds=1,
    shares="hsgd",
    **COMMON,
)
_measured = claims_like(
    PAPER,
    kind="supporting",
    hardware="this machine",
    model="none",
    batch="none",
    inputs=("this-machine",),
    measured=True,
    holds_if="order",
    **COMMON,
)


def _feature(name: str, sentence: str, figure: Callable[[Given], float], *inputs: str) -> Any:
    """Returns the claim on one feature."""
    return _simulated(name, sentence, figure, kind="supporting", holds_if="order", inputs=(*MACHINE, *inputs))


CLAIMS = (
    _simulated(
        "efficiency",
        "about 20 times the computing efficiency of the native distributed strategy",
        efficiency,
        published=PUBLISHED,
        holds_if="within 25 %",
        inputs=(*MACHINE, "images", "lars-images", "native", "sockets", "storage"),
        explain=_feature_by_feature,
        curve=_by_feature,
    ),
    _feature(
        "two-levels",
        "two-level synchronisation through shared memory is faster than one level over sockets",
        two_levels, "images", "sockets",
    ),
    _feature("lars", "LARS permits larger steps", larger_steps, "images", "lars-images"),
    _feature(
        "reading", "parallel reading, as contiguous as possible, helps", contiguous_reading, "images", "storage"
    ),
    _measured(
        "shared-memory",
        "parameters that travel in shared memory have less overhead than over sockets: the time of an all-reduce over "
        "sockets, over that in shared memory",
        sockets_over_memory,
        explain=_by_size,
    ),
    _measured(
        "contiguous",
        "reading as contiguously as possible is faster: records per second, over those of scattered reading",
        contiguous_over_scattered,
    ),
)  # fmt: skip
