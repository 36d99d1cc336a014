"""What `two_level.py` runs: three ways to average gradients, for real on two hosts and simulated on the same two.

Rules of this file:

* Every run is a job of the package itself: the method's own program, by the real launcher or by the simulator.
* A prediction is made with: the rate that the links were given, less the share of Ethernet, IP and TCP headers; a
  message's latency between hosts, from small all-reduces; and what runs of the same method on this machine alone,
  without hosts, say of collectives inside a host and of a rank's own work beside the gradient. Nothing is fitted to a
  run that is predicted.
* gloo's all-reduce and its reduce are rings in rank order, its broadcast is a binomial tree. The simulator's patterns
  are ring, binomial tree and binomial tree; for the two ranks of a host a ring's reduce is as long as a tree's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil, log2
from statistics import median
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from paceline.algorithms.core.job import Budget, Evaluation, Job, OneByOne
from paceline.algorithms.core.method import Method
from paceline.algorithms.core.operations import Charge
from paceline.algorithms.core.values import Layer, Layout, Rank, Samples
from paceline.algorithms.methods.baseline import SyncSgd
from paceline.algorithms.methods.two_level import Hsgd
from paceline.backend.calibration.span_costs import lasting, late, uncovered
from paceline.backend.emulation.emulated_hosts import Hosts
from paceline.backend.local.launch import Launch, run_job
from paceline.records.trace import Schedule, Trace
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.kernel.crash_timeline import Timeline
from paceline.simulator.network.network import ClusterNetwork
from paceline.topologies.catalogue.device import Device
from paceline.topologies.cluster import on_a_star
from paceline.topologies.graphs.links import Link

HOSTS = 2
Array = NDArray[np.float32]
ITEM_BYTES = 4
PAYLOAD = 1448 / 1514
"""of a full frame: 1500 bytes with 20 of IP and 32 of TCP with time stamps, after 14 of Ethernet"""
SETTLING = 2
"""steps at the start that are not counted: buffers are new, TCP has not found its window"""
TINY_BYTES = 64 * ITEM_BYTES
LEAST_S = 1e-6
"""a gradient takes so much longer than a number inside a host, even where the probes' medians say otherwise"""
Stage = Literal["flat", "up", "across", "down"]


@dataclass(frozen=True)
class Bowl(OneByOne):
    """|w − 1|² / 2 in float32: a gradient of any size that costs one subtraction."""

    size: int
    num_samples: int = 1 << 20

    @property
    def layout(self) -> Layout:
        return Layout((Layer("whole", 0, self.size),))

    def initial(self) -> Array:
        return np.zeros(self.size, np.float32)

    def load(self, samples: Samples) -> None:
        return None

    def gradient(self, vector: Array, data: None) -> tuple[Array, float]:
        return vector - np.float32(1), 0.0

    def layer_gradients(self, vector: Array, data: None, ready: Any) -> float:
        raise NotImplementedError("no method here asks for layers")

    def evaluate(self, vector: Array) -> Evaluation:
        return Evaluation(float(np.mean((vector - 1) ** 2)) / 2, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Every rank's own times: the pace of a real run, and the timing of a simulated one."""

    gradient_s: float
    update_s: float = 0.0
    between_s: float = 0.0
    """what a rank does beside gradient, exchange and update"""

    def compute_s(self, rank: Rank, step: int, samples: int) -> float:
        return self.gradient_s

    def end_s(self, rank: Rank, start_s: float, work_s: float) -> float:
        return start_s + work_s

    def layer_shares(self) -> tuple[Sequence[float], Sequence[float]]:
        return [1 / 3], [2 / 3]

    def timeline(self, rank: Rank) -> Timeline | None:
        return None

    def work_s(self, rank: Rank, op: Charge) -> float:
        return self.update_s

    def load_s(self, rank: Rank, samples: int) -> float:
        return 0.0

    def rest_s(self, rank: Rank) -> float:
        return self.between_s


@dataclass(frozen=True, slots=True)
class Way:
    """A way to average gradients."""

    name: str
    method: Method
    shared: bool
    """whether ranks of one host reduce in memory that they share"""

    def crossing(self, nbytes: int, per_host: int) -> float:
        """Bytes of gradients that cross each host's link in a step, each way, by theory.

        A ring over all p ranks crosses each link once: 2 (p − 1) / p · n; one over h leaders 2 (h − 1) / h · n.
        """
        members = HOSTS if isinstance(self.method, Hsgd) else HOSTS * per_host
        return 2 * (members - 1) / members * nbytes


GLOO = Way("two-level, gloo inside", Hsgd(lars=None), False)
WAYS = (Way("flat", SyncSgd(), False), GLOO, Way("two-level, shared memory", Hsgd(lars=None), True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What is run on which hosts."""

    bytes_per_s: float
    """of the links, headers included"""
    per_host: int
    nbytes: int
    """of a gradient"""
    steps: int
    gradient_s: float

    @property
    def nodes(self) -> list[list[Rank]]:
        return [[Rank(host * self.per_host + place) for place in range(self.per_host)] for host in range(HOSTS)]

    def job(self, method: Method) -> Job:
        """The method on both hosts, for so many steps."""
        job = Job.of(method, self.nodes, Bowl(self.nbytes // ITEM_BYTES), batch=1, budget=Budget())
        return replace(job, budget=Budget(samples=self.steps * job.samples_per_step))

    def run(self, method: Method, made: Hosts | None, *, shared: bool) -> tuple[Job, Trace]:
        """The job for real, on these hosts; without, all of it on this machine."""
        job, pace = self.job(method), Times(gradient_s=self.gradient_s)
        return job, run_job(Launch(job=job, schedule=never, pace=pace, hosts=made, shared_memory=shared))


def never() -> Schedule:
    """No snapshots."""
    return Schedule(every=float("inf"))


# --- measured ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Measured:
    """One real run, or one simulated."""

    step_s: float
    """median over ranks and steps"""
    stages_s: dict[Stage, float]
    """of each collective: from its last entry to its last exit, median over steps and hosts"""
    sent: float = 0.0
    """bytes that crossed each host's link in a step, each way, mean over hosts and directions"""


def read(trace: Trace) -> Measured:
    """Step time and stages of a run."""
    starts: dict[Rank, list[float]] = defaultdict(list)
    together: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for span in trace.spans:
        if span.activity == "compute":
            starts[span.rank].append(span.start_s)
        elif span.activity == "collective" and span.step >= SETTLING:
            assert span.key is not None
            together[span.key].append((span.start_s, span.end_s))
    steps = [after - before for one in starts.values() for before, after in pairwise(sorted(one)[SETTLING:])]
    stages: dict[Stage, list[float]] = defaultdict(list)
    for key, spans in together.items():
        stages[_stage(key)].append(max(end for _, end in spans) - max(start for start, _ in spans))
    return Measured(median(steps), {stage: median(times) for stage, times in stages.items()})


def _stage(key: str) -> Stage:
    words = key.split()
    return next((stage for stage in ("up", "across", "down") if stage in words), "flat")


def measured(way: Way, setting: Setting, made: Hosts) -> Measured:
    """One real run."""
    before = made.crossed()
    _, trace = setting.run(way.method, made, shared=way.shared)
    crossed = [
        after - earlier
        for one, other in zip(made.crossed(), before, strict=True)
        for after, earlier in ((one.sent, other.sent), (one.received, other.received))
    ]
    return replace(read(trace), sent=sum(crossed) / len(crossed) / setting.steps)


# --- predicted --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Probe:
    """What a way costs but for the network."""

    alone_s: dict[Stage, float]
    """its collectives on this machine without hosts"""
    update_s: float
    rest_s: float
    """what else a rank does in a step beside gradient and exchange"""
    small_s: dict[Stage, float]
    """the collectives of a two-level step between the hosts, of vectors of a few numbers"""


def probed(way: Way, setting: Setting, made: Hosts) -> Probe:
    """Once without hosts, and once with hardly a gradient."""
    job, alone = setting.run(way.method, None, shared=way.shared)
    pace = Times(gradient_s=setting.gradient_s)
    # without keys, which only the probe's own programs have in the form that `uncovered` reads
    spans = [[span._replace(key=None) for span in alone.spans if span.rank == me.rank] for me in job.team]
    _, small = replace(setting, nbytes=TINY_BYTES).run(Hsgd(lars=None), made, shared=way.shared)
    return Probe(
        read(alone).stages_s,
        median(span.end_s - span.start_s for span in alone.spans if span.activity == "update"),
        sum(
            median(seconds for of_rank in spans for seconds in kind(of_rank))
            for kind in (lambda one: lasting(one, "load"), lambda one: late(one, job.batch, pace), uncovered)
        ),
        read(small).stages_s,
    )


@dataclass(frozen=True, slots=True)
class Machine:
    """What a prediction is made with."""

    across: Link
    inside: Link
    update_s: float
    rest_s: float


def machine(way: Way, setting: Setting, probes: Mapping[str, Sequence[Probe]]) -> Machine:
    """What predicts a way, from several probes of every way: medians.

    A ring of two takes 2 (α + n/2 β), a tree of p ⌈lg p⌉ (α + n β): so α and β from two sizes. A message inside a host
    is half a reduce and half a broadcast, as a two-level step has one of each; a flat ring's go by gloo there.
    """
    rounds = ceil(log2(setting.per_host))
    own, inside = probes[way.name], probes[way.name if isinstance(way.method, Hsgd) else GLOO.name]
    small_s = median(one.small_s["up"] + one.small_s["down"] for one in inside) / 2 / rounds
    whole_s = median(one.alone_s["up"] + one.alone_s["down"] for one in inside) / 2 / rounds
    return Machine(
        Link(
            name="veth",
            latency_s=median(one.small_s["across"] for of_way in probes.values() for one in of_way) / 2,
            bytes_per_s=setting.bytes_per_s * PAYLOAD,
            provenance="the rate that was set, less headers; latency probed",
        ),
        Link(
            name="inside",
            latency_s=small_s,
            bytes_per_s=setting.nbytes / max(whole_s - small_s, LEAST_S),
            provenance="probed",
            medium="memory",
        ),
        median(one.update_s for one in own),
        max(0.0, median(one.rest_s for one in own)),
    )


def predicted(way: Way, setting: Setting, on: Machine) -> Measured:
    """One simulated run."""
    device = Device(name="paced", overhead_s=setting.gradient_s, per_sample_s=0.0)
    cluster = on_a_star([(device, setting.per_host)] * HOSTS, link=on.across, local=on.inside)
    times = Times(gradient_s=setting.gradient_s, update_s=on.update_s, between_s=on.rest_s)
    return read(simulate_job(setting.job(way.method), times, ClusterNetwork(cluster, "ring"), never()))
