"""Compares flat with two-level all-reduce on two hosts joined by a network of known rate: real and simulated.

    python benchmarks/two_level.py                          # 1 Gbit/s, 0.8 and 8 MB, two ranks a host: five minutes
    python benchmarks/two_level.py --rate "200 Mbit/s" --megabytes 0.8 --repeats 3 --json

Needs root: the hosts are network namespaces of this machine (`backend/emulation/emulated_hosts.py`). Workers are paced.
A step is 20 ms of gradient and then the exchange, in one of three ways: a flat ring of all ranks by gloo (sync-sgd),
two levels with gloo inside the host, and two levels with shared memory inside the host (hsgd without LARS). The ways
and the probes for the predictions take turns, one run each per round. Every run is a job of the package itself, run by
the real launcher or by the simulator.

The inputs of a prediction are: the rate that was set for the links, less the share of Ethernet, IP and TCP headers; the
latency of a message between hosts, from small all-reduces; and, from runs of the same method on this machine without
hosts, the collectives inside a host and the work of a rank beside the gradient. Nothing is fitted to a run that is
predicted. gloo's all-reduce and its reduce are rings in rank order, its broadcast is a binomial tree. The simulator's
patterns are ring, binomial tree and binomial tree; for the two ranks of a host the reduce of a ring takes as long as
that of a tree. In shared memory, the simulator's ranks write and read slots as the real ones do.

The tables show medians over the rounds with an interval of order statistics, which contains the true median with 95 %
probability from six rounds on; the bytes that crossed the link of each host in a step beside the theoretical value; and
the time of each collective. Other programs on the machine disturb the measurement: their share of the processor time is
printed, and with --quiet 0.05 a round in which they took more than 5 % is repeated.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from math import ceil, log2
from statistics import median
from typing import Any, Literal

from rich.console import RenderableType

from common.harness import Answer, at_least, between, ratio, run_command, say, table
from common.local_programs import Flat, never
from paceline.algorithms.core.errors import InputError, PacelineError
from paceline.algorithms.core.job import Budget, Job
from paceline.algorithms.core.method import Method
from paceline.algorithms.core.operations import Charge
from paceline.algorithms.core.values import Rank
from paceline.algorithms.methods.baseline import SyncSgd
from paceline.algorithms.methods.local_sgd import Hsgd
from paceline.backend.calibration.recorded_costs import lasting, late, uncovered
from paceline.backend.emulation.emulated_hosts import Hosts, hosts
from paceline.backend.local.launch import Launch, run_job
from paceline.records.machine import OtherLoad
from paceline.records.trace import Trace
from paceline.scenarios.values.units import RATE
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.kernel.timing import GradientsOnly
from paceline.simulator.network.network import ClusterNetwork
from paceline.topologies.catalogue.device import DeviceModel
from paceline.topologies.catalogue.host_memory import PIECE_BYTES, HostMemory
from paceline.topologies.closed_forms import shared_memory_passes
from paceline.topologies.cluster import on_a_star
from paceline.topologies.graphs.links import LinkModel

HOSTS = 2
ITEM_BYTES = 4
PAYLOAD = 1448 / 1514
"""share of a full frame: 1500 bytes with 20 of IP and 32 of TCP with time stamps, after 14 of Ethernet"""
SETTLING = 2
"""steps at the start that are not counted: buffers are new, and TCP has not found its window"""
TINY_BYTES = 64 * ITEM_BYTES
LEAST_S = 1e-6
"""factor by which a gradient takes longer than a number inside a host, even if the medians of the probes are closer"""
Stage = Literal["flat", "up", "across", "down"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Times(GradientsOnly):
    """The times of every rank: the pace of a real run, and the timing of a simulated one."""

    gradient_s: float
    update_s: float = 0.0
    between_s: float = 0.0
    """time of a rank beside gradient, exchange and update"""

    def compute_s(self, rank: Rank, step: int, samples: int, start_s: float = 0.0) -> float:
        return self.gradient_s

    def end_s(self, rank: Rank, start_s: float, work_s: float) -> float:
        return start_s + work_s

    def layer_shares(self) -> tuple[Sequence[float], Sequence[float]]:
        return [1 / 3], [2 / 3]

    def work_s(self, rank: Rank, op: Charge) -> float:
        return self.update_s

    def rest_s(self, rank: Rank) -> float:
        return self.between_s


@dataclass(frozen=True, slots=True)
class Way:
    """A way to average gradients."""

    name: str
    method: Method
    shared: bool
    """whether ranks of one host reduce in shared memory"""

    def crossing(self, nbytes: int, per_host: int) -> float:
        """Returns the theoretical bytes of gradients that cross the link of each host in a step, per direction.

        A ring over all p ranks crosses each link once: 2 (p − 1) / p · n; one over h leaders 2 (h − 1) / h · n.
        """
        members = HOSTS if isinstance(self.method, Hsgd) else HOSTS * per_host
        return 2 * (members - 1) / members * nbytes


GLOO = Way("two-level, gloo inside", Hsgd(lars=None), False)
WAYS = (Way("flat", SyncSgd(), False), GLOO, Way("two-level, shared memory", Hsgd(lars=None), True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The model, the hosts and their links."""

    bytes_per_s: float
    """rate of the links, headers included"""
    per_host: int
    nbytes: int
    """parameters of a gradient"""
    steps: int
    gradient_s: float

    @property
    def nodes(self) -> list[list[Rank]]:
        return [[Rank(host * self.per_host + place) for place in range(self.per_host)] for host in range(HOSTS)]

    def job(self, method: Method) -> Job:
        """Returns the method's job on both hosts with this many steps."""
        job = Job.of(method, self.nodes, Flat(self.nbytes // ITEM_BYTES), batch=1, budget=Budget())
        return replace(job, budget=Budget(samples=job.samples_in(self.steps)))

    def run(self, method: Method, made: Hosts | None, *, shared: bool) -> tuple[Job, Trace]:
        """Runs the job for real on these hosts; without hosts, entirely on this machine."""
        job, pace = self.job(method), Times(gradient_s=self.gradient_s)
        return job, run_job(Launch(job=job, schedule=never, pace=pace, hosts=made, shared_memory=shared))


# --- measured ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Measured:
    """The figures of one run, real or simulated."""

    step_s: float
    """median over ranks and steps"""
    stages_s: dict[Stage, float]
    """times of each collective: from its last entry to its last exit, median over steps and hosts"""
    sent: float = 0.0
    """bytes that crossed the link of each host in a step, per direction, mean over hosts and directions"""


def read(trace: Trace) -> Measured:
    """Returns the step time and the stages of a run."""
    starts: dict[Rank, list[float]] = defaultdict(list)
    together: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for span in trace.spans:
        if span.activity == "compute":
            starts[span.rank].append(span.start_s)
        elif span.activity == "collective" and span.step >= SETTLING:
            assert span.key is not None
            together[span.key].append((span.start_s, span.end_s))
    steps = [after - before for starts_s in starts.values() for before, after in pairwise(sorted(starts_s)[SETTLING:])]
    stages: dict[Stage, list[float]] = defaultdict(list)
    for key, spans in together.items():
        stages[_stage(key)].append(max(end for _, end in spans) - max(start for start, _ in spans))
    return Measured(median(steps), {stage: median(times) for stage, times in stages.items()})


def _stage(key: str) -> Stage:
    words = key.split()
    return next((stage for stage in ("up", "across", "down") if stage in words), "flat")


def measured(way: Way, setting: Setting, made: Hosts) -> Measured:
    """Runs a way once for real."""
    before = made.crossed()
    _, trace = setting.run(way.method, made, shared=way.shared)
    crossed = [
        after - earlier
        for now, then in zip(made.crossed(), before, strict=True)
        for after, earlier in ((now.sent, then.sent), (now.received, then.received))
    ]
    return replace(read(trace), sent=sum(crossed) / len(crossed) / setting.steps)


# --- predicted --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Probe:
    """The costs of a way apart from the network."""

    alone_s: dict[Stage, float]
    """its collectives on this machine without hosts"""
    update_s: float
    rest_s: float
    """other time of a rank in a step beside gradient and exchange"""
    small_s: dict[Stage, float]
    """the collectives of a two-level step between the hosts, of vectors of a few numbers"""


def probed(way: Way, setting: Setting, made: Hosts) -> Probe:
    """Runs a way once without hosts, and once with a tiny gradient."""
    job, alone = setting.run(way.method, None, shared=way.shared)
    pace = Times(gradient_s=setting.gradient_s)
    # without keys, because `uncovered` reads the form that only programs of the probe have
    spans = [[span._replace(key=None) for span in alone.spans if span.rank == me.rank] for me in job.team]
    _, small = replace(setting, nbytes=TINY_BYTES).run(Hsgd(lars=None), made, shared=way.shared)
    return Probe(
        read(alone).stages_s,
        median(span.end_s - span.start_s for span in alone.spans if span.activity == "update"),
        sum(
            median(seconds for of_rank in spans for seconds in kind(of_rank))
            for kind in (lambda own: lasting(own, "load"), lambda own: late(own, job.batches[0], pace), uncovered)
        ),
        read(small).stages_s,
    )


@dataclass(frozen=True, slots=True)
class Machine:
    """The inputs of a prediction."""

    across: LinkModel
    inside: LinkModel
    """messages inside a host, or, in shared memory, the latency of a counter and what a core reads and writes"""
    update_s: float
    rest_s: float


def machine(way: Way, setting: Setting, probes: Mapping[str, Sequence[Probe]]) -> Machine:
    """Returns the inputs for a way: medians over several probes of every way.

    A ring of two takes 2 (α + n/2 β), a tree of p ⌈lg p⌉ (α + n β), a collective in memory α + passes · n β: so two
    sizes give α and β. A two-level step has a reduce and a broadcast inside a host, which are measured together. The
    messages of a flat ring use gloo inside a host.
    """
    own, inside = probes[way.name], probes[way.name if isinstance(way.method, Hsgd) else GLOO.name]
    times, moved = 2 * ceil(log2(setting.per_host)), 2.0 * ceil(log2(setting.per_host))
    if way.shared:
        times, pieces = 2, max(1.0, setting.nbytes / PIECE_BYTES)
        moved = sum(shared_memory_passes(kind, setting.per_host, pieces) for kind in ("Reduce", "Broadcast"))
    small_s = median(probe.small_s["up"] + probe.small_s["down"] for probe in inside)
    whole_s = median(probe.alone_s["up"] + probe.alone_s["down"] for probe in inside)
    bytes_per_s = moved * setting.nbytes / max(whole_s - small_s, LEAST_S)
    return Machine(
        LinkModel(
            name="veth",
            latency_s=median(probe.small_s["across"] for of_way in probes.values() for probe in of_way) / 2,
            bytes_per_s=setting.bytes_per_s * PAYLOAD,
            provenance="the rate that was set, less headers; latency probed",
        ),
        LinkModel(
            name="inside",
            latency_s=small_s / times,
            bytes_per_s=bytes_per_s,
            provenance="probed",
            medium="memory" if way.shared else "network",
        ),
        median(probe.update_s for probe in own),
        max(0.0, median(probe.rest_s for probe in own)),
    )


def predicted(way: Way, setting: Setting, on: Machine) -> Measured:
    """Simulates a way once."""
    device = DeviceModel(name="paced", overhead_s=setting.gradient_s, per_sample_s=0.0)
    cluster = on_a_star([(device, setting.per_host)] * HOSTS, link=on.across, local=on.inside)
    rate = on.inside.bytes_per_s
    memory = HostMemory(bytes_per_s=setting.per_host * rate, core_bytes_per_s=rate, provenance="probed")
    cluster = replace(cluster, nodes=tuple(replace(node, memory=memory) for node in cluster.nodes))
    times = Times(gradient_s=setting.gradient_s, update_s=on.update_s, between_s=on.rest_s)
    return read(simulate_job(setting.job(way.method), times, ClusterNetwork(cluster, "ring"), never()))


MOST_TRIES = 10
"""limit of all rounds, as a multiple of the requested ones, if many are disturbed"""


class Busy(PacelineError):
    """No round was as quiet as requested."""


@dataclass(frozen=True, slots=True)
class Round:
    """Every way and every probe, run once, one after the other."""

    other_load: float
    probes: dict[str, Probe]
    runs: dict[str, Measured]


def round_of(setting: Setting, made: Hosts, number: int) -> Round:
    """Makes a round; each way begins a round in turn."""
    turn = number % len(WAYS)
    ways = WAYS[turn:] + WAYS[:turn]
    with OtherLoad() as other:
        probes = {way.name: probed(way, setting, made) for way in ways}
        runs = {way.name: measured(way, setting, made) for way in ways}
    say(f"{setting.nbytes / 1e6:g} MB, round {number + 1}: other programs took {100 * other.share:.1f} %")
    return Round(other.share, probes, runs)


def figures_of(setting: Setting, made: Hosts, options: argparse.Namespace) -> dict[str, Any]:
    """Returns the measured and the predicted figures of every way."""
    rounds: list[Round] = []
    for number in range(MOST_TRIES * options.repeats):
        made_round = round_of(setting, made, number)
        rounds += [made_round] * (made_round.other_load <= options.quiet)
        if len(rounds) == options.repeats:
            break
    if not rounds:
        raise Busy(f"other programs took more than {100 * options.quiet:g} % of the machine in every round")
    probes = {way.name: [made_round.probes[way.name] for made_round in rounds] for way in WAYS}
    machines = {way.name: machine(way, setting, probes) for way in WAYS}
    rows = [row(way, setting, [each.runs[way.name] for each in rounds], machines[way.name]) for way in WAYS]
    return {
        "megabytes": setting.nbytes / 1e6,
        "rounds": len(rounds),
        "tried": number + 1,
        "other_load": median(made_round.other_load for made_round in rounds),
        "rows": [way_row | of_flat(way_row, rows[0]) for way_row in rows],
        "machine": {name: inputs(on) for name, on in machines.items()},
    }


def inputs(on: Machine) -> dict[str, float]:
    """Returns the figures of the probes."""
    return {
        "latency_s": on.across.latency_s,
        "payload_bytes_per_s": on.across.bytes_per_s,
        "inside_latency_s": on.inside.latency_s,
        "inside_bytes_per_s": on.inside.bytes_per_s,
        "update_s": on.update_s,
        "rest_s": on.rest_s,
    }


def row(way: Way, setting: Setting, runs: Sequence[Measured], on: Machine) -> dict[str, Any]:
    """Returns the figures of one way."""
    steps, foreseen = [run.step_s for run in runs], predicted(way, setting, on)
    low, high = between(steps)
    theory = way.crossing(setting.nbytes, setting.per_host)
    return {
        "way": way.name,
        "step_s": median(steps),
        "step_low_s": low,
        "step_high_s": high,
        "predicted_s": foreseen.step_s,
        "error": foreseen.step_s / median(steps) - 1,
        "crossed_bytes": median(run.sent for run in runs),
        "theory_bytes": theory,
        "theory_with_headers_bytes": theory / PAYLOAD,
        "stages_s": {
            stage: {"measured": median(run.stages_s[stage] for run in runs), "predicted": seconds}
            for stage, seconds in foreseen.stages_s.items()
        },
        "runs": [asdict(run) for run in runs],
    }


def of_flat(way_row: dict[str, Any], flat: dict[str, Any]) -> dict[str, Any]:
    """Returns the step time of a way relative to the flat one: for runs of the same round, and predicted."""
    ratios = ratio(*([run["step_s"] for run in of_way["runs"]] for of_way in (flat, way_row)))
    return {
        "of_flat": ratios["ratio"],
        "of_flat_low": ratios["low"],
        "of_flat_high": ratios["high"],
        "of_flat_predicted": way_row["predicted_s"] / flat["predicted_s"],
    }


STEPS = {
    "exchange": "way", "median, ms": "step_s*1e3:.1f", "from": "step_low_s*1e3:.1f", "to": "step_high_s*1e3:.1f",
    "predicted": "predicted_s*1e3:.1f", "error": "error:+.1%", "of flat": "of_flat:.2f", "at least": "of_flat_low:.2f",
    "at most": "of_flat_high:.2f", "predicted of flat": "of_flat_predicted:.2f",
}  # fmt: skip
CROSSED = {
    "exchange": "way", "MB": "crossed_bytes*1e-6:.3f", "theory": "theory_bytes*1e-6:.3f",
    "with headers": "theory_with_headers_bytes*1e-6:.3f",
}  # fmt: skip
STAGES = {
    "exchange": "way", "collective": "stage", "median, ms": "measured*1e3:.1f", "predicted": "predicted*1e3:.1f",
}  # fmt: skip


def shown(size: dict[str, Any]) -> Iterator[RenderableType]:
    """Yields the tables for one size of gradients, and the inputs of its predictions."""
    rows = size["rows"]
    yield table(f"{size['megabytes']:g} MB of gradients: a step", rows, STEPS)
    yield table("A step's bytes over each host's link, each way", rows, CROSSED)
    stages = [
        {"way": of_way["way"], "stage": name, **times} for of_way in rows for name, times in of_way["stages_s"].items()
    ]
    yield table("Its collectives", stages, STAGES)
    for name, on in size["machine"].items():
        yield (
            f"Probed, {name}: {1e6 * on['latency_s']:.0f} µs a message between hosts, "
            f"{1e6 * on['inside_latency_s']:.0f} µs and {on['inside_bytes_per_s'] / 1e9:.2f} GB/s inside, "
            f"{1e3 * on['update_s']:.1f} ms an update, {1e3 * on['rest_s']:.1f} ms of a step beside."
        )
    yield (
        f"{size['rounds']} rounds of {size['tried']} counted; in them other programs took "
        f"{100 * size['other_load']:.1f} % of the machine."
    )


def body(options: argparse.Namespace) -> Answer:
    """Measures and predicts every requested size."""
    if options.steps < SETTLING + 3 or min(options.megabytes) * 1e6 < TINY_BYTES:
        raise InputError(f"found too little to measure; expected {SETTLING + 3} steps and {TINY_BYTES} bytes or more")
    common = {"per_host": options.ranks_per_host, "steps": options.steps, "gradient_s": options.gradient_ms / 1e3}
    with hosts(HOSTS, bytes_per_s=options.rate) as made:
        settings = [
            Setting(bytes_per_s=options.rate, nbytes=round(megabytes * 1e6 / ITEM_BYTES) * ITEM_BYTES, **common)
            for megabytes in options.megabytes
        ]
        sizes = [figures_of(setting, made, options) for setting in settings]
    figures = {
        "rate_bytes_per_s": options.rate,
        "ranks_per_host": options.ranks_per_host,
        "gradient_s": options.gradient_ms / 1e3,
        "sizes": sizes,
    }
    return Answer(figures, [part for size in sizes for part in shown(size)])


def rate(text: str) -> float:
    """Parses a rate into bytes per second."""
    try:
        return RATE.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected {error}") from error


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rate", type=rate, default=rate("1 Gbit/s"), help="rate of the links, with its unit")
    parser.add_argument("--ranks-per-host", type=int, default=2, choices=range(2, 9), metavar="2 … 8")
    parser.add_argument("--megabytes", type=float, nargs="+", default=[0.8, 8.0], help="sizes of the gradient")
    parser.add_argument("--repeats", type=at_least(1), default=7, help="rounds; one run of each way in each")
    parser.add_argument(
        "--quiet", type=float, default=1.0, help="largest share of other programs in a round that counts"
    )
    parser.add_argument("--steps", type=int, default=20, help=f"of a run; the first {SETTLING} are not counted")
    parser.add_argument("--gradient-ms", type=float, default=20.0, help="time of a paced gradient")


if __name__ == "__main__":
    sys.exit(run_command(__doc__, body, add_options))
