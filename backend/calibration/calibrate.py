"""Calibrates this machine, or several hosts, for a scenario: gradients, messages and collectives, in rounds that take
turns.

Rules of this file:

* A round launches every probe once, so that a disturbance of some seconds falls on all of them and not on one.
* Rounds end when the intervals of all gradient times are narrow, or when the time is over. At least `FEWEST_ROUNDS` are
  made, because launches differ in how the processes are placed on cores.
* The calibrations of several models share the costs of messages and collectives.
"""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import fmean, median

import numpy as np

from paceline.backend.calibration.emulation_costs import (
    emulation_task,
    refuse_probes,
)
from paceline.backend.calibration.gradient_costs import (
    LaunchGradients,
    available_cores,
    means_s,
    ratios_of,
)
from paceline.backend.calibration.imported_costs import NOTHING, Imported, with_imports
from paceline.backend.calibration.probe_runner import Progress, Runner
from paceline.backend.calibration.recorded_costs import UPDATE, Costs
from paceline.backend.calibration.rounds import NARROW, Consistent, ProbeRounds, unadjusted, verdict
from paceline.backend.calibration.step_time_laws import Correlations, fitted, words
from paceline.backend.multihost.world import HostLoads, World
from paceline.records.machine import OtherLoad, machine_facts, package_versions
from paceline.scenarios.machine_file import (
    BusyPart,
    BytesPart,
    CurvePart,
    EmulatedPart,
    GradientPart,
    HostPart,
    MachinePart,
    MadePart,
    ModelPart,
    OriginPart,
    PausePart,
    RatePart,
    RatesPart,
    StartPart,
    sections_of,
)
from paceline.scenarios.resolution.machine_costs import emulated_part
from paceline.scenarios.resolution.schema import Scenario
from paceline.topologies.catalogue.gradient_times import GradientTimes
from paceline.topologies.catalogue.machine_profile import Asked, JoinedHosts, MeasuredCosts


def joined(machines: Sequence[MachinePart]) -> MachinePart:
    """Returns one machine with the models of several calibrations.

    Curves are joined: a size that several calibrations measured takes the mean of their times. The verdicts of all are
    kept, each with its model. Rates and start-up are those of the first model.

    Args:
        machines: one calibration of each model, with the same ranks and threads.
    """
    first, *others = machines
    if not others:
        return first
    verdicts = [f"{machine.model}: {machine.made.verdict}" for machine in machines]
    made = first.made.model_copy(
        update={
            "verdict": "\n".join(verdicts),
            "seconds": sum(machine.made.seconds for machine in machines),
            "other_load": max(machine.made.other_load for machine in machines),
            "slowness": None,  # each calibration had its own
        }
    )
    origins: dict[OriginPart, None] = dict.fromkeys(origin for machine in machines for origin in machine.imported)
    return first.model_copy(
        update={
            "made": made,
            "costs": _joined_curves([curve for machine in machines for curve in machine.costs]),
            "imported": tuple(origins),
            "models": tuple(
                ModelPart.model_construct(model=other.model, own=other.own, gradients=other.gradients)
                for other in others
            ),
        }
    )


def _joined_curves(curves: Sequence[CurvePart]) -> tuple[CurvePart, ...]:
    alike: dict[tuple[str, int, bool, int], list[CurvePart]] = defaultdict(list)
    for curve in curves:
        alike[curve.operation, curve.ranks, curve.shared_memory, curve.hosts].append(curve)
    return tuple(same[0].model_copy(update={"points": _mean_points(same)}) for same in alike.values())


def _mean_points(curves: Sequence[CurvePart]) -> tuple[BytesPart, ...]:
    times: dict[int, list[float]] = defaultdict(list)
    for point in itertools.chain.from_iterable(curve.points for curve in curves):
        times[point.bytes].append(point.time)
    return tuple(
        BytesPart.model_construct(bytes=nbytes, time=sum(same) / len(same)) for nbytes, same in sorted(times.items())
    )


FEWEST_ROUNDS = 3
SECONDS = 180.0
"""after which no further round begins"""


def calibrate(
    scenario: Scenario,
    asked: Sequence[Asked],
    *,
    batches: Sequence[int] = (),
    seconds: float = SECONDS,
    imported: Imported = NOTHING,
    progress: Progress | None = None,
    consistent: Consistent = unadjusted,
) -> MachinePart:
    """Measures this machine for the runs of a scenario.

    Args:
        scenario: the scenario with its model, ranks and threads.
        asked: the collectives of its runs.
        batches: batch sizes at which gradients are measured; by default a quarter of the scenario's, its own, and four
            times as many. Those that were imported are not measured.
        seconds: the time after which no further round begins.
        imported: costs from logs, traces and stored runs, which take the place of measured ones.
        progress: called with what is being measured and the completed share, 0 … 1.
        consistent: as for `ProbeRounds`.

    Returns:
        The machine as a section, which can be written to a file.

    Raises:
        InputError: the scenario has an emulated network, which is not possible here.
    """
    begun_s = time.monotonic()
    with OtherLoad() as other:
        measured = _measured(Runner(), scenario, asked, batches, seconds, imported, progress, consistent)
    return with_imports(_machine(scenario, measured, other.share, time.monotonic() - begun_s), imported)


def calibrate_hosts(
    scenario: Scenario,
    asked: Sequence[Asked],
    world: World,
    *,
    batches: Sequence[int] = (),
    seconds: float = SECONDS,
    progress: Progress | None = None,
) -> MachinePart | None:
    """Measures the hosts of processes that a launcher has started; every process calls this.

    Args:
        scenario: the scenario; if the processes are on several hosts, its nodes are these hosts.
        asked: the collectives of its runs; those between nodes apart from those inside a node.
        world: the processes.
        batches: as for `calibrate`.
        seconds: as for `calibrate`.
        progress: as for `calibrate`.

    Returns:
        The machine in the leading process, None in the others.

    Raises:
        InputError: there are too few processes, or a node would be on several hosts.
    """
    refuse_probes(scenario, world)
    begun_s = time.monotonic()
    with HostLoads(world, "calibration") as loads:
        measured = _measured(Runner(world), scenario, asked, batches, seconds, NOTHING, progress, unadjusted)
    if not world.leads:
        return None
    taken_s, placement = time.monotonic() - begun_s, measured.rounds.runner.workers_of_hosts(measured.rounds.job)
    machine = _machine(scenario, measured, loads.share, taken_s, cores=world.cores)
    if not placement:  # all on one host
        return machine
    hosts = tuple(HostPart.model_construct(ranks=len(ranks), **loads.hosts[host]) for host, ranks in placement.items())
    return machine.model_copy(update={"ranks": max(host.ranks for host in hosts), "hosts": hosts})


@dataclass(frozen=True, slots=True)
class _Found:
    """What the rounds of a calibration have measured."""

    rounds: ProbeRounds
    copies: CopyTask

    def emulated(self, scenario: Scenario) -> EmulatedPart | None:
        """Returns the costs of the emulated network; None if there is none."""
        added = self.rounds.emulation()
        return None if added is None else emulated_part(emulation_task(scenario).plan, added)


def _measured(
    runner: Runner,
    scenario: Scenario,
    asked: Sequence[Asked],
    batches: Sequence[int],
    seconds: float,
    imported: Imported,
    progress: Progress | None,
    consistent: Consistent,
) -> _Found:
    """Performs rounds of all probes until the intervals are narrow or the time is over."""
    begun_s, report = time.monotonic(), progress or (lambda _name, _share: None)
    known = {part.batch for part in imported.gradients}
    wanted = [size for size in batches or usual_batches(scenario.workload.batch_per_worker) if size not in known]
    asked = [collective for collective in asked if not imported.has(collective)]
    rounds = ProbeRounds(scenario, asked, batches=wanted, runner=runner, consistent=consistent)
    copies = CopyTask(rounds.job.learner.initial().nbytes)

    def goes_on() -> bool:
        return rounds.count < FEWEST_ROUNDS or (rounds.width > NARROW and time.monotonic() - begun_s < seconds)

    def say(name: str, share: float) -> None:
        finished = rounds.count - 1 + share
        report(f"round {rounds.count}: {name}", completed(finished, time.monotonic() - begun_s, seconds))

    while runner.decide(goes_on):
        rounds.perform(say)
        copies.measure()
    return _Found(rounds, copies)


def completed(rounds: float, elapsed_s: float, limit_s: float) -> float:
    """Returns the completed share of a calibration: it ends when both its fewest rounds and its time are over.

    It may end before its time, when the intervals are narrow, but not before its fewest rounds.

    Args:
        rounds: the rounds that have been made, with the part of the present one.
        elapsed_s: the time that it has taken.
        limit_s: the time after which no further round begins.

    >>> completed(1, 300.0, 180.0), completed(2, 600.0, 180.0)  # rounds that take longer than the time
    (0.3333333333333333, 0.6666666666666666)
    >>> completed(5, 90.0, 180.0)
    0.5
    """
    return min(0.99, rounds / FEWEST_ROUNDS, elapsed_s / limit_s)


def _machine(
    scenario: Scenario, measured: _Found, load: float, seconds: float, *, cores: int | None = None
) -> MachinePart:
    """Returns what was measured as a section of a file."""
    rounds = measured.rounds
    launches, nbytes, host = rounds.launches, rounds.job.learner.initial().nbytes, rounds.costs().host
    costs = MeasuredCosts(host, joined=JoinedHosts(rounds.profile(between=True)))
    parts = tuple(map(_gradient_part, host.gradients, launches.values()))
    starts = [launch.startup_s for times in launches.values() for launch in times if launch.startup_s is not None]
    return MachinePart.model_construct(
        format=1,
        made=_made(seconds, load, rounds, parts),
        model=str(scenario.workload.model),
        ranks=rounds.job.workers,
        cores=cores or available_cores(),
        torch_threads=scenario.train.torch_threads,
        gradients=parts,
        rates=rates_of(measured.copies, rounds.launched, nbytes),
        startup=start_of(starts),
        emulated=measured.emulated(scenario),
        **sections_of(costs, max(2, len(rounds.runner.workers_of_hosts(rounds.job)))),
    )


def usual_batches(batch: int) -> tuple[int, ...]:
    """Returns the batch sizes at which gradients are measured.

    >>> usual_batches(64), usual_batches(2)
    ((16, 64, 256), (1, 2, 8))
    """
    return tuple(sorted({max(1, batch // 4), batch, 4 * batch}))


def _gradient_part(times: GradientTimes, launches: Sequence[LaunchGradients]) -> GradientPart:
    busy = []
    for count, mean_s in times.busy:
        means = means_s(launches, count)
        busy.append(BusyPart.model_construct(ranks=count, mean=mean_s, low=min(means), high=max(means)))
    laws = fitted(ratios_of(launches))
    return GradientPart.model_construct(
        batch=times.batch,
        busy=tuple(busy),
        factors=times.factors,
        layered=times.layered,
        beside=times.beside,
        overlap=times.overlap,
        started=times.started,
        pauses=tuple(PausePart.model_construct(pause=pause, longer=longer) for pause, longer in times.pauses),
        forward=times.forward,
        backward=times.backward,
        law=laws.law,
        fits=laws.fits,
        between_steps=times.between_steps,
        between_ranks=times.between_ranks,
    )


def _made(seconds: float, load: float, rounds: ProbeRounds, parts: Sequence[GradientPart]) -> MadePart:
    versions = package_versions()
    return MadePart.model_construct(
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        processor=str(machine_facts()["processor"]),
        versions={name: versions[name] for name in ("paceline", "torch", "python") if name in versions},
        seconds=seconds,
        other_load=load,
        slowness=rounds.slowness,
        spread=rounds.spread,
        verdict="; ".join([verdict(load, rounds.count, rounds.width), *said_of(parts)]),
    )


def said_of(parts: Sequence[GradientPart]) -> list[str]:
    """Returns sentences on correlations that are large, of the batch where they are largest."""
    largest = Correlations(
        max((part.between_steps for part in parts), default=0.0, key=abs),
        max((part.between_ranks for part in parts), default=0.0, key=abs),
    )
    return words(largest)


# Each round copies for `COPY_SECONDS` and gives one figure, so the interval of a rate is that of rounds, during which
# other measurements take turns. One core copies, in the process of the calibration. A rate is in bytes of the vector
# per second: a copy reads them and writes them.


MEMORY_BYTES = 128 * 2**20
"""a vector larger than the caches, as in `device_names`"""
COPY_SECONDS = 0.05
"""the shortest time of a round: INFERENCE, over a hundred copies of a small model's weights"""


class CopyTask:
    """A probe of copies, measured again in every round.

    Args:
        nbytes: bytes of the weights.
    """

    name = "copies"

    def __init__(self, nbytes: int) -> None:
        self.cached, self.large = _copier(nbytes), _copier(MEMORY_BYTES)
        self.cached_rates, self.large_rates = list[float](), list[float]()

    def measure(self) -> None:
        """Measures both rates once."""
        for copy, rates in ((self.cached, self.cached_rates), (self.large, self.large_rates)):
            rates.append(copy())


def _copier(nbytes: int) -> Callable[[], float]:
    """Returns a function that copies a vector of this size and returns bytes per second."""
    source = np.ones(max(1, nbytes // 4), dtype=np.float32)
    target = source.copy()

    def measure() -> float:
        count, begun_s = 0, time.perf_counter()
        while (now_s := time.perf_counter()) < begun_s + COPY_SECONDS or not count:
            np.copyto(target, source)
            count += 1
        return count * source.nbytes / (now_s - begun_s)

    return measure


def rates_of(copies: CopyTask, costs: Sequence[Costs], nbytes: int) -> RatesPart:
    """Returns the rates of all rounds.

    Args:
        copies: the measured copies.
        costs: the costs of each launch, with the times of updates of the whole weights.
        nbytes: bytes of the weights.
    """
    updates = [nbytes / fmean(times) for launch in costs if (times := launch.get(UPDATE)) and fmean(times)]
    return RatesPart.model_construct(
        update=_rate(updates), copy_in_cache=_rate(copies.cached_rates), copy_in_memory=_rate(copies.large_rates)
    )


def _rate(rates: Sequence[float]) -> RatePart | None:
    if not rates:
        return None
    return RatePart.model_construct(rate=median(rates), low=min(rates), high=max(rates))


def start_of(seconds: Sequence[float]) -> StartPart | None:
    """Returns how long processes need until their first step.

    Args:
        seconds: those of each launch.

    >>> start_of([0.5, 0.3, 0.4]).time
    0.4
    """
    if not seconds:
        return None
    return StartPart.model_construct(time=median(seconds), low=min(seconds), high=max(seconds))
