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
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from math import ceil, log2
from statistics import median
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from common.harness import between
from paceline.algorithms.core.errors import PacelineError
from paceline.algorithms.core.job import Budget, Evaluation, Job, OneByOne
from paceline.algorithms.core.method import Method
from paceline.algorithms.core.operations import Charge
from paceline.algorithms.core.values import Layer, Layout, Rank, Samples
from paceline.algorithms.methods.baseline import SyncSgd
from paceline.algorithms.methods.local_sgd import Hsgd
from paceline.backend.calibration.recorded_costs import lasting, late, uncovered
from paceline.backend.emulation.emulated_hosts import Hosts, hosts
from paceline.backend.local.launch import Launch, run_job
from paceline.backend.posix.network_namespaces import NoHosts
from paceline.records.machine import OtherLoad
from paceline.records.trace import Schedule, Trace
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
Array = NDArray[np.float32]
ITEM_BYTES = 4
PAYLOAD = 1448 / 1514
"""share of a full frame: 1500 bytes with 20 of IP and 32 of TCP with time stamps, after 14 of Ethernet"""
SETTLING = 2
"""steps at the start that are not counted: buffers are new, and TCP has not found its window"""
TINY_BYTES = 64 * ITEM_BYTES
LEAST_S = 1e-6
"""factor by which a gradient takes longer than a number inside a host, even if the medians of the probes are closer"""
Stage = Literal["flat", "up", "across", "down"]


@dataclass(frozen=True)
class Bowl(OneByOne):
    """The loss |w − 1|² / 2 in float32: a gradient of any size that costs one subtraction."""

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
class Times(GradientsOnly):
    """The times of every rank: the pace of a real run, and the timing of a simulated one."""

    gradient_s: float
    update_s: float = 0.0
    between_s: float = 0.0
    """time of a rank beside gradient, exchange and update"""

    def compute_s(self, rank: Rank, step: int, samples: int) -> float:
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
        job = Job.of(method, self.nodes, Bowl(self.nbytes // ITEM_BYTES), batch=1, budget=Budget())
        return replace(job, budget=Budget(samples=job.samples_in(self.steps)))

    def run(self, method: Method, made: Hosts | None, *, shared: bool) -> tuple[Job, Trace]:
        """Runs the job for real on these hosts; without hosts, entirely on this machine."""
        job, pace = self.job(method), Times(gradient_s=self.gradient_s)
        return job, run_job(Launch(job=job, schedule=never, pace=pace, hosts=made, shared_memory=shared))


def never() -> Schedule:
    """Takes no snapshots."""
    return Schedule(every=float("inf"))


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
        for one, other in zip(made.crossed(), before, strict=True)
        for after, earlier in ((one.sent, other.sent), (one.received, other.received))
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
            for kind in (lambda one: lasting(one, "load"), lambda one: late(one, job.batches[0], pace), uncovered)
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


@dataclass(slots=True)
class Round:
    """Runs every way and every probe once, one after the other."""

    other_load: float
    probes: dict[str, Probe]
    runs: dict[str, Measured]


def one_round(setting: Setting, made: Hosts, number: int) -> Round:
    """Rotates the ways, so that each begins a round in turn."""
    turn = number % len(WAYS)
    ways = WAYS[turn:] + WAYS[:turn]
    with OtherLoad() as other:
        probes = {way.name: probed(way, setting, made) for way in ways}
        runs = {way.name: measured(way, setting, made) for way in ways}
    return Round(other.share, probes, runs)


def rounds(setting: Setting, made: Hosts, options: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    """Returns the measured and the predicted figures of every way."""
    kept: list[Round] = []
    for number in range(MOST_TRIES * options.repeats):
        tried = one_round(setting, made, number)
        say(f"{setting.nbytes / 1e6:g} MB, round {number + 1}: other programs took {100 * tried.other_load:.1f} %")
        if tried.other_load <= options.quiet:
            kept.append(tried)
        if len(kept) == options.repeats:
            break
    if not kept:
        raise Busy(f"other programs took more than {100 * options.quiet:g} % of the machine in every round")
    probes = {way.name: [kept_round.probes[way.name] for kept_round in kept] for way in WAYS}
    machines = {way.name: machine(way, setting, probes) for way in WAYS}
    rows = [row(way, setting, [kept_round.runs[way.name] for kept_round in kept], machines[way.name]) for way in WAYS]
    for one_row in rows:
        one_row |= beside(one_row, rows[0])
    return {
        "megabytes": setting.nbytes / 1e6,
        "rounds": len(kept),
        "tried": number + 1,
        "other_load": median(kept_round.other_load for kept_round in kept),
        "rows": rows,
        "machine": {name: shown(on) for name, on in machines.items()},
    }


def shown(on: Machine) -> dict[str, float]:
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
    steps, foreseen = [run_of_way.step_s for run_of_way in runs], predicted(way, setting, on)
    low, high = between(steps)
    theory = way.crossing(setting.nbytes, setting.per_host)
    return {
        "way": way.name,
        "step_s": median(steps),
        "step_low_s": low,
        "step_high_s": high,
        "predicted_s": foreseen.step_s,
        "error": foreseen.step_s / median(steps) - 1,
        "crossed_bytes": median(run_of_way.sent for run_of_way in runs),
        "theory_bytes": theory,
        "theory_with_headers_bytes": theory / PAYLOAD,
        "stages_s": {
            stage: {"measured": median(run_of_way.stages_s[stage] for run_of_way in runs), "predicted": seconds}
            for stage, seconds in foreseen.stages_s.items()
        },
        "runs": [asdict(run_of_way) for run_of_way in runs],
    }


def beside(of_way: dict[str, Any], flat: dict[str, Any]) -> dict[str, Any]:
    """Returns the step time of a way relative to the flat one: for runs of the same round, and predicted."""
    ratios = [
        run_of_way["step_s"] / flat_run["step_s"]
        for run_of_way, flat_run in zip(of_way["runs"], flat["runs"], strict=True)
    ]
    low, high = between(ratios)
    return {
        "of_flat": median(ratios),
        "of_flat_low": low,
        "of_flat_high": high,
        "of_flat_predicted": of_way["predicted_s"] / flat["predicted_s"],
    }


def tables(size: dict[str, Any]) -> Iterator[Table]:
    """Renders the measurements for one size."""
    heads = ("median, ms", "from", "to", "predicted", "off, %", "of flat", "from", "to", "predicted")
    made = _table(f"{size['megabytes']:g} MB of gradients: a step", "exchange", heads)
    for one in size["rows"]:
        times = [f"{1e3 * one[key]:.1f}" for key in ("step_s", "step_low_s", "step_high_s", "predicted_s")]
        shares = [f"{one[key]:.2f}" for key in ("of_flat", "of_flat_low", "of_flat_high", "of_flat_predicted")]
        made.add_row(one["way"], *times, f"{100 * one['error']:+.1f}", *shares)
    yield made
    made = _table("A step's bytes over each host's link, each way", "exchange", ("MB", "theory", "with headers"))
    for one in size["rows"]:
        sent = [f"{one[key] / 1e6:.3f}" for key in ("crossed_bytes", "theory_bytes", "theory_with_headers_bytes")]
        made.add_row(one["way"], *sent)
    yield made
    made = _table("Its collectives", "exchange", ("collective", "median, ms", "predicted"))
    for one in size["rows"]:
        for name, seconds in one["stages_s"].items():
            made.add_row(one["way"], name, f"{1e3 * seconds['measured']:.1f}", f"{1e3 * seconds['predicted']:.1f}")
    yield made


def _table(title: str, first: str, heads: Sequence[str]) -> Table:
    made = Table(box=None, title=title, title_justify="left")
    made.add_column(first, no_wrap=True)
    for head in heads:
        made.add_column(head, justify="right")
    return made


def run(options: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    """Runs everything that was requested."""
    sizes = []
    with hosts(HOSTS, bytes_per_s=options.rate) as made:
        for megabytes in options.megabytes:
            setting = Setting(
                bytes_per_s=options.rate,
                per_host=options.ranks_per_host,
                nbytes=round(megabytes * 1e6 / ITEM_BYTES) * ITEM_BYTES,
                steps=options.steps,
                gradient_s=options.gradient_ms / 1e3,
            )
            sizes.append(rounds(setting, made, options, say))
    return {
        "rate_bytes_per_s": options.rate,
        "ranks_per_host": options.ranks_per_host,
        "gradient_s": options.gradient_ms / 1e3,
        "sizes": sizes,
    }


def show(found: dict[str, Any], console: Console) -> None:
    """Prints the tables and the inputs of the predictions."""
    for size in found["sizes"]:
        for one in tables(size):
            console.print(one)
        for name, on in size["machine"].items():
            console.print(
                f"Probed, {name}: {1e6 * on['latency_s']:.0f} µs a message between hosts, "
                f"{1e6 * on['inside_latency_s']:.0f} µs and {on['inside_bytes_per_s'] / 1e9:.2f} GB/s inside, "
                f"{1e3 * on['update_s']:.1f} ms an update, {1e3 * on['rest_s']:.1f} ms of a step beside."
            )
        console.print(
            f"{size['rounds']} rounds of {size['tried']} counted; in them other programs took "
            f"{100 * size['other_load']:.1f} % of the machine."
        )


def rate(text: str) -> float:
    """Parses a rate into bytes per second."""
    try:
        return RATE.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected {error}") from error


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    """Parses the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=rate, default=rate("1 Gbit/s"), help="rate of the links, with its unit")
    parser.add_argument("--ranks-per-host", type=int, default=2, choices=range(2, 9), metavar="2 … 8")
    parser.add_argument("--megabytes", type=float, nargs="+", default=[0.8, 8.0], help="sizes of the gradient")
    parser.add_argument("--repeats", type=int, default=7, help="rounds; one run of each way in each")
    parser.add_argument(
        "--quiet",
        type=float,
        default=1.0,
        help="rounds in which other programs took a larger share of the machine are repeated",
    )
    parser.add_argument("--steps", type=int, default=20, help=f"of a run; the first {SETTLING} are not counted")
    parser.add_argument("--gradient-ms", type=float, default=20.0, help="time of a paced gradient")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(given)
    if options.steps < SETTLING + 3 or options.repeats < 1 or min(options.megabytes) * 1e6 < TINY_BYTES:
        parser.error(
            f"found too little to measure; expected {SETTLING + 3} steps, 1 round and {TINY_BYTES} bytes or more"
        )
    return options


def main(given: Sequence[str] | None = None) -> int:
    """Runs the command. Returns 2 if this machine cannot make hosts, 1 if a run fails."""
    options = arguments(given)
    try:
        found = run(options, lambda words: print(words, file=sys.stderr))
    except PacelineError as error:
        print(error, file=sys.stderr)
        return 2 if isinstance(error, NoHosts) else 1
    if options.json:
        print(json.dumps(found))
    else:
        show(found, Console())
    return 0


if __name__ == "__main__":
    sys.exit(main())
