"""Claims on HSGD: its hierarchical strategy against native ones, its features, shared memory, reading, and LARS.

Rules of this file:

* A factor is a ratio of images per second on the same nodes, with the same number of images in a step unless LARS is
  part of the claim. What a step's images are worth is not part of it.
* What "the native distributed strategy" was is not known, so there is a claim for each of three readings.
* A missing feature or another assumption is a change of the scenario; no time is computed outside the simulator. One
  input at a time is changed from the central values, and the interval of a figure contains all results.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import pairwise
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
from paceline.papers.claim import Curve, Effort, Predicted, claims_like, over_range, over_seeds, ranging
from paceline.papers.runs import simulated, step_s
from paceline.records.trace import Schedule
from paceline.scenarios import load
from paceline.scenarios.sections.devices import device_of
from paceline.topologies.catalogue.device_names import named
from paceline.workloads import build, find_model
from paceline.workloads.reading import Order, Strategy
from paceline.workloads.reading.reader import Opened, Reader

PAPER, SCENARIO = "hsgd", "hsgd-tianhe2"
PUBLISHED = 20.0
"""FOUND in the abstract: "about 20 times" the computing efficiency of the native distributed strategy"""
SLOW_SOCKETS = "{name: slow-loopback, latency: 60 us, bandwidth: 1 GB/s}"
PHI, CORES, PHIS = "xeon-phi-31s1p", 57, 3
SMALL, LARGE = 1056, 8160
"""images in a step without and with LARS, as in the inputs file"""


@dataclass(frozen=True, slots=True)
class Setting:
    """A machine, a model and a batch.

    Args:
        nodes: The number of nodes.
        replicas: Replicas on each node, which share its 171 cores.
        serial: s of Amdahl's law over cores.
        model: The model.
        images: Images in a step of all nodes.
        sockets: The link between processes of a node over sockets.
        storage: The storage.
        allreduce: The all-reduce of native strategies.
    """

    nodes: int = 32
    replicas: int = PHIS
    serial: float = 0.01
    model: str = "alexnet"
    images: int = SMALL
    sockets: str = "loopback"
    storage: str = "lustre"
    allreduce: str = "ring"

    def changes(self, replicas: int, *, link: str) -> list[str]:
        """Returns the changes of the scenario.

        Args:
            replicas: Replicas on each node; 1 is one process over all cores.
            link: The link between processes of a node.
        """
        return [
            f"cluster.nodes=[{{device: {self.device(replicas)}, workers_per_node: {replicas}, count: {self.nodes}}}]",
            f"workload.model={self.model}",
            f"workload.batch_per_worker={max(1, round(self.images / self.nodes / replicas))}",
            f"cluster.network.intra_node_link={link}",
            f"cluster.storage={self.storage}",
        ]

    def device(self, replicas: int) -> str:
        """Returns a device with its part of a node's cores, as YAML.

        The catalogue's Phi gives the time of 57 cores for a third of a node's images. Each core computes as many images
        however the cores are divided, so its efficiency is the same, and Amdahl's law gives the rest:

            t(c, b) = t(57, B / 3) · b / (B / 3) · (s + (1 − s) / c) / (s + (1 − s) / 57)

        Args:
            replicas: Replicas on each node.
        """
        if replicas == PHIS:
            return PHI
        workload = load(SCENARIO, [f"workload.model={self.model}"]).workload
        phi_s = device_of(PHI, workload).compute_s(max(1, round(self.images / self.nodes / PHIS)))
        law = self._amdahl(PHIS * CORES / replicas) / self._amdahl(CORES)
        memory = named(PHI).sustained_bytes_per_s * PHIS / replicas / 1e9
        return (
            f"{{name: cores-{PHIS * CORES // replicas}, overhead: {phi_s * PHIS / replicas * law!r} s, "
            f"per_sample: 0 s, memory_bandwidth: {memory!r} GB/s}}"
        )

    def _amdahl(self, cores: float) -> float:
        return self.serial + (1 - self.serial) / cores


Rate = Callable[[Setting], float]
"""images per second of a strategy"""


def images_per_s(
    setting: Setting, algorithm: str | tuple[tuple[str, object], ...], replicas: int, changes: list[str]
) -> float:
    """Returns the images per second of an algorithm with this many replicas on each node."""
    each = max(1, round(setting.images / setting.nodes / replicas))
    return each * replicas * setting.nodes / step_s(SCENARIO, algorithm, changes, steps=4)


@cache
def hierarchical(setting: Setting) -> float:
    """Returns the images per second of two-level sums through shared memory, without LARS."""
    changes = setting.changes(setting.replicas, link="shared-memory")
    return images_per_s(setting, (("name", "hsgd"), ("lars", "null")), setting.replicas, changes)


@cache
def one_process(setting: Setting) -> float:
    """Returns the images per second of native (a): one process over all cores of a node, a ring among the nodes."""
    changes = [*setting.changes(1, link=setting.sockets), f"cluster.network.allreduce_algorithm={setting.allreduce}"]
    return images_per_s(setting, "sync-sgd", 1, changes)


@cache
def sockets(setting: Setting) -> float:
    """Returns the images per second of native (b): a replica for each NUMA domain, a flat ring over sockets."""
    changes = setting.changes(setting.replicas, link=setting.sockets)
    changes.append(f"cluster.network.allreduce_algorithm={setting.allreduce}")
    return images_per_s(setting, "sync-sgd", setting.replicas, changes)


@cache
def server(setting: Setting) -> float:
    """Returns the images per second of native (c): a parameter server on one node, every replica for itself."""
    return images_per_s(
        setting, "sync-sgd-ps", setting.replicas, setting.changes(setting.replicas, link=setting.sockets)
    )


NATIVE: dict[str, tuple[Rate, str]] = {
    "one-process": (one_process, "one process over all cores of a node"),
    "sockets": (sockets, "one replica for each NUMA domain, over sockets"),
    "server": (server, "a parameter server, every replica for itself"),
}


def _alternatives(effort: Effort, native: Rate) -> dict[str, Setting]:
    """Returns the settings with one input changed."""
    plain = Setting()
    settings = {"16 nodes": replace(plain, nodes=16), "56 nodes": replace(plain, nodes=56)}
    if native is one_process:
        settings |= {f"s = {serial:g}": replace(plain, serial=serial) for serial in (0.0, 0.1)}
    if effort.quick:
        return settings
    settings |= {
        "ResNet-50": replace(plain, model="resnet50"),
        "528 images in a step": replace(plain, images=SMALL // 2),
        "8160 images in a step": replace(plain, images=LARGE),
        "sockets of 1 GB/s": replace(plain, sockets=SLOW_SOCKETS),
    }
    if native is not server:
        settings["an all-reduce by halving and doubling"] = replace(plain, allreduce="halving-doubling")
        settings["8 replicas on each node"] = replace(plain, replicas=8)
    return settings


def _factor(native: Rate, setting: Setting) -> float:
    """Returns the images per second of the hierarchical strategy over those of a native one."""
    return hierarchical(setting) / native(setting)


def _listed(ratios: Mapping[Any, float], joint: str = "with") -> str:
    return ", ".join(f"{ratio:.3g} {joint} {words}" for words, ratio in ratios.items())


def over_native(native: Rate, effort: Effort) -> Predicted:
    """Returns the images per second of the hierarchical strategy over those of a native one.

    Args:
        native: The native strategy.
        effort: Decides on the changed inputs.
    """
    factors = {words: _factor(native, setting) for words, setting in _alternatives(effort, native).items()}
    by_native = {words: _factor(other, Setting()) for other, words in NATIVE.values()}
    reason = f"The native strategy decides, which was not found: {_listed(by_native, 'over')}."
    if native is one_process:
        reason += (
            " One process over c cores loses at most a factor of the number of replicas against several, by Amdahl's "
            "law."
        )
    details = (f"With one input changed: {_listed(factors)}.",)
    return ranging(_factor(native, Setting()), factors.values(), reason=reason, details=details)


def _whole_rate(setting: Setting, images: int, changes: tuple[str, ...] = ()) -> float:
    """Returns the images per second of the shipped scenario, with LARS and reading ahead, for a number of images."""
    given = replace(setting, images=images)
    method = (("name", "hsgd"), ("learning_rate", 10))
    return images_per_s(given, method, given.replicas, [*given.changes(given.replicas, link="shared-memory"), *changes])


def lars(_: Effort) -> Predicted:
    """Returns what the larger steps that LARS permits bring: images per second with it over those without."""
    ratios = {images: _whole_rate(Setting(), images) / hierarchical(Setting()) for images in (4128, LARGE, 16416)}
    return ranging(
        ratios[LARGE],
        ratios.values(),
        reason="Communication was not a bottleneck.",
        details=(
            f"By images in a step: {_listed(ratios)}.",
            "That the images of larger steps are worth as much is the claim of LARS's author; it is not tested here.",
        ),
    )


def reading(_: Effort) -> Predicted:
    """Returns what contiguous reading ahead brings to a step: images per second over those of scattered reading."""
    plain = ("workload.reading.strategy=scattered", "workload.reading.prefetch=0")
    lustre, disk = (
        _whole_rate(setting, SMALL) / _whole_rate(setting, SMALL, plain)
        for setting in (Setting(storage="lustre"), Setting(storage="hdd"))
    )
    details = (f"{lustre:.3g} from Lustre, {disk:.3g} from a hard disk in each node.",)
    return ranging(lustre, [disk], reason="Reading is a small part of a step.", details=details)


def whole(_: Effort) -> Predicted:
    """Returns the whole system, with LARS and contiguous reading ahead, over native strategies that read scattered."""
    ours = _whole_rate(Setting(), LARGE)
    ratios = {words: ours / native(Setting()) for native, words in NATIVE.values()}
    return ranging(
        ratios[NATIVE["sockets"][1]],
        ratios.values(),
        reason=f"The native strategy decides, which was not found: {_listed(ratios, 'over')}.",
        details=("The hierarchical strategy, LARS and reading are separate claims.",),
    )


# --- feature by feature -----------------------------------------------------------------------------------------------

SCATTERED = "workload.reading.strategy=scattered"
RING, SERVER = "algorithms=[sync-sgd]", "algorithms=[sync-sgd-ps]"
WITHOUT: Mapping[str, Sequence[str]] = {
    "two levels": (SERVER,),
    "shared memory": ("cluster.network.intra_node_link=loopback",),
    "contiguous": (SCATTERED,),
    "prefetch": ("workload.reading.prefetch=0",),
    "LARS": ("algorithms=[{name: hsgd, lars: null}]",),
}
"""the changes of the scenario without each feature, in the order in which features are added"""
FILES = "cluster.storage={name: lustre, latency: 1.7 ms}"
"""one file to open for every picture: 0.7 ms and 1 ms, both MEMORY medium"""
ACTIVITIES = ("compute", "load", "update", "communication", "wait")


@dataclass(frozen=True, slots=True)
class Assumed:
    """Other assumptions about the steps from a native strategy to the whole system.

    Args:
        changes: Changes of all rows.
        instead: Changes by feature that replace those of `WITHOUT`.
        large: Images per step with LARS. FOUND, AlexNet in NVIDIA/caffe of LARS's author: 8K with LARS and a ramp, 1K
            with LARS and without one. That SGD without LARS tolerates 1K is INFERENCE.
    """

    changes: Sequence[str] = ()
    instead: Mapping[str, Sequence[str]] = field(default_factory=dict)
    large: int = 8192


@dataclass(frozen=True, slots=True)
class Row:
    """A run with some features."""

    batch: int
    step_s: float
    shares: Mapping[str, float]

    @property
    def images_per_s(self) -> float:
        """Images per second of all workers, without the start before the first step."""
        return self.batch / self.step_s


def waterfall(assumed: Assumed, images: int) -> list[Row]:
    """Returns the native strategy, and one more row for each feature.

    Args:
        assumed: The assumptions.
        images: The minimum of each run, in whole steps.
    """
    rows = []
    for have in range(len(WITHOUT) + 1):
        missing = list(WITHOUT)[have:]
        # of two changes of the same key, the first feature's counts
        lacking = [change for name in reversed(missing) for change in assumed.instead.get(name, WITHOUT[name])]
        rows.append(_row([*assumed.changes, *lacking], 1024 if missing else assumed.large, images))
    return rows


def _row(changes: Sequence[str], batch: int, images: int) -> Row:
    workers = load(SCENARIO, changes).cluster.workers
    each = max(1, round(batch / workers))
    (run,) = simulated(SCENARIO, [*changes, f"workload.batch_per_worker={each}", f"stop.samples={images}"])
    mean_s = run.summary["step_s"]["mean"]
    assert mean_s is not None, f"found {images} images, expected several steps of {batch}"
    return Row(each * workers, mean_s, run.summary["time_fraction"])


def _assumptions(effort: Effort) -> dict[str, Assumed]:
    """Returns the central assumptions, and others by their description."""
    halving = (RING, "cluster.network.allreduce_algorithm=halving-doubling")
    others = {
        "as above": Assumed(),
        "native: a flat ring, laid along the nodes": Assumed(instead={"two levels": (RING,)}),
        "native: flat, by halving and doubling": Assumed(instead={"two levels": halving}),
        "native: a server, one worker a node": Assumed(
            instead={"two levels": (SERVER, "cluster.nodes[0].workers_per_node=1")}
        ),
        "16 nodes": Assumed(["cluster.nodes[0].count=16"]),
        "56 nodes": Assumed(["cluster.nodes[0].count=56"]),
        "4K with LARS": Assumed(large=4096),
        "16K with LARS": Assumed(large=16384),
        "weights and gradients cross PCIe": Assumed([_offloaded()]),
        "sockets of 1 GB/s": Assumed(instead={"shared memory": (f"cluster.network.intra_node_link={SLOW_SOCKETS}",)}),
        "a P100 in place of each Phi": Assumed(["cluster.nodes[0].device=p100"]),
        "every picture in a file of its own": Assumed(instead={"contiguous": (SCATTERED, FILES)}),
        "a hard disk in each node": Assumed(["cluster.storage=hdd"]),
        "ResNet-50": Assumed(["workload.model=resnet50"]),
    }
    return dict(list(others.items())[: effort.choose(len(others), 2)])


def _offloaded() -> str:
    """Returns a Phi that copies the gradient to the host and the weights back in every step, at PCIe's rate."""
    workload = load(SCENARIO).workload
    phi, rate = device_of(PHI, workload), named(PHI).host_bytes_per_s
    assert rate is not None, "the catalogue says what a copy from the host reaches"
    batch = workload.batch_per_worker
    per_sample_s = (phi.compute_s(2 * batch) - phi.compute_s(batch)) / batch
    overhead_s = phi.compute_s(batch) - batch * per_sample_s + 2 * 4 * find_model(workload.model).parameters / rate
    return f"cluster.nodes[0].device={{name: offloaded, overhead: {overhead_s!r} s, per_sample: {per_sample_s!r} s}}"


def features(effort: Effort) -> Predicted:
    """Returns the whole system over the native strategy that is a parameter server, with its features one by one."""
    images = effort.choose(200_000, 20_000)
    waterfalls = {words: waterfall(assumed, images) for words, assumed in _assumptions(effort).items()}
    central = waterfalls["as above"]
    total, *totals = (rows[-1].images_per_s / rows[0].images_per_s for rows in waterfalls.values())
    s_per_1000 = [1000 / row.images_per_s for row in central]
    return ranging(
        total,
        totals,
        reason="Most of it is the assumption that the native strategy is a parameter server, whose one link carries "
        "the gradients of all workers.",
        details=(
            f"Features are added in this order: {', '.join(WITHOUT)}.",
            *(_described(name, row) for name, row in zip(("native", *WITHOUT), central, strict=True)),
            "Factors of the features and of all, by what is assumed.",
            *(_factors(words, rows) for words, rows in waterfalls.items()),
        ),
        curve=Curve(
            x=f"features added: {', '.join(WITHOUT)}",
            y="seconds per 1,000 images",
            lines={"simulated": [(float(have), seconds) for have, seconds in enumerate(s_per_1000)]},
            published=s_per_1000[0] / PUBLISHED,
            log_y=True,
        ),
    )


def _described(name: str, row: Row) -> str:
    shares = ", ".join(f"{activity} {100 * row.shares[activity]:.2g} %" for activity in ACTIVITIES)
    return f"{name}: {row.batch} images a step, {row.step_s:.3f} s, {row.images_per_s:.0f} images/s; {shares}."


def _factors(words: str, rows: Sequence[Row]) -> str:
    each = ", ".join(f"{after.images_per_s / before.images_per_s:.2f}" for before, after in pairwise(rows))
    return f"{words}: {each}; {rows[-1].images_per_s / rows[0].images_per_s:.1f}."


# --- measured ---------------------------------------------------------------------------------------------------------

RANKS = 2
NUMBERS = (5_000, 200_000, 2_000_000)
"""lengths of the vectors, of 20 kB, 0.8 MB and 8 MB: from a layer of a small network to a part of a large one"""
TIMES = 30
PICTURE_BYTES = 3072
"""bytes of a sample's inputs: a picture of CIFAR-10"""
BATCH, BUFFER = 64, 1024
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


def sockets_over_memory(effort: Effort) -> Predicted:
    """Returns the time of an all-reduce over sockets divided by that in shared memory.

    It is the geometric mean over the sizes and rounds, with the interval over rounds.

    Args:
        effort: Decides on the number of rounds; in each, both ways are launched one after the other.
    """
    ratios = []
    for number in range(effort.choose(9, 4)):
        ways = (False, True) if number % 2 else (True, False)
        times = {way: np.array(_all_reduce_s(shared_memory=way)) for way in ways}
        ratios.append(times[False] / times[True])
    every = np.array(ratios)
    by_size = ", ".join(
        f"{ratio:.1f} for {length * 4 / 1000:,.0f} kB"
        for length, ratio in zip(NUMBERS, np.median(every, 0), strict=True)
    )
    return replace(
        over_seeds(np.log(every).mean(axis=1).tolist()).mapped(math.exp),
        reason=f"Rounds differ, as while other programs use the cores. By size: {by_size}.",
        details=(f"Median times of {TIMES} all-reduces among {RANKS} processes; ratio {by_size}.",),
    )


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


def contiguous_over_scattered(effort: Effort) -> Predicted:
    """Returns the records per second of contiguous reading divided by those of scattered reading, past the page cache.

    Args:
        effort: Decides on the size of the file and the number of repeats.
    """
    ratios: list[float] = []
    folder, mebibytes = Path(tempfile.gettempdir()), effort.choose(128, 48)
    with scratch(folder, mebibytes=mebibytes, inputs=PICTURE_BYTES) as file, Readers(file, 1) as readers:
        whole = file.num_samples // BATCH
        part = max(2, whole // SCATTERED_SHARE)
        for turn in range(effort.choose(7, 3)):
            scattered = Reading("scattered", file.num_samples, turn * part, part)
            rates = {
                part_read.strategy: part_read.steps * BATCH / readers.seconds([part_read])
                for part_read in (scattered, Reading("contiguous", file.num_samples, 0, whole))
            }
            ratios.append(rates["contiguous"] / rates["scattered"])
        way = readers.past_cache
    return replace(
        over_range(ratios),
        reason="Both were read from a cache.",
        details=(
            f"One process, records of {PICTURE_BYTES} bytes, runs of {BUFFER} records against single ones; {way}.",
        ),
    )


# --- the claims -------------------------------------------------------------------------------------------------------

INPUTS = ("machine", "replicas", "law_over_cores", "model", "batch", "sockets")
SENTENCE = "about 20 times the computing efficiency of the native distributed strategy"
NATIVE_INPUTS = ("native_one_process", "native_sockets", "native_server")
COMMON = {"section": "abstract", "scenario": SCENARIO, "command": f"paceline reproduce NAME  # from {SCENARIO}"}
TWENTY = {"published": PUBLISHED, "holds_if": "within 25 %"}
ORDER = {"holds_if": "order"}
_simulated = claims_like(
    PAPER,
    hardware="32 nodes of Tianhe-2 with three Xeon Phi 31S1P each, assumed",
    model="AlexNet, assumed",
    batch=f"{SMALL} images in a step without LARS, {LARGE} with it, assumed",
    **COMMON,
)
_measured = claims_like(
    PAPER,
    hardware="this machine",
    model="none",
    batch="none",
    inputs=("this_machine",),
    measured=True,
    **COMMON,
    **ORDER,
)
CLAIMS = (
    *(
        _simulated(
            f"hierarchical-over-{name}",
            f"{SENTENCE}: the hierarchical strategy alone, if native means {words}",
            partial(over_native, native),
            inputs=(*INPUTS, f"native_{name.replace('-', '_')}"),
            shares="hsgd",
            **TWENTY,
        )
        for name, (native, words) in NATIVE.items()
    ),
    _simulated(
        "lars", "LARS permits larger steps", lars,
        inputs=("machine", "model", "batch", "lars"), shares="hsgd", **ORDER,
    ),
    _simulated(
        "reading", "parallel reading, as contiguous as possible, helps", reading,
        inputs=("machine", "model", "storage"), shares="hsgd", **ORDER,
    ),
    _simulated(
        "whole", f"{SENTENCE}: the whole system", whole,
        inputs=(*INPUTS, "lars", "storage", *NATIVE_INPUTS), shares="hsgd", **TWENTY,
    ),
    _simulated(
        "features", f"{SENTENCE}: the whole system, feature by feature, if native means a parameter server", features,
        inputs=(*INPUTS, "lars", "storage", "native_server"), shares="hsgd features", **TWENTY,
    ),
    _measured(
        "shared-memory",
        "parameters that travel in shared memory have less overhead than over sockets: the time of an all-reduce over "
        "sockets, over that in shared memory",
        sockets_over_memory,
    ),
    _measured(
        "contiguous",
        "reading as contiguously as possible is faster: records per second, over those of scattered reading",
        contiguous_over_scattered,
    ),
)  # fmt: skip
