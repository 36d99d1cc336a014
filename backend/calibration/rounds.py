"""The probes of a scenario's runs in rounds: each round launches every probe once.

* A disturbance of some seconds falls on all probes of a round and not on one.
* Costs are pooled over rounds: the median over launches of each launch's mean, at slowness 1, times the mean slowness
  of the machine. So the speed of the machine, which changes from second to second, does not decide which launch is the
  median.
* Paced runs have no slowness: their gradients take the times of their devices.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

import numpy as np
from scipy.stats import t as student_t

from paceline.algorithms.core.values import Group, Rank
from paceline.backend.calibration.emulation_costs import (
    asked_inside,
    emulation_task,
    medians,
    refuse_probes,
    without_overlap,
)
from paceline.backend.calibration.gradient_costs import (
    GradientTask,
    LaunchGradients,
    available_cores,
    gradient_tasks,
    means_s,
)
from paceline.backend.calibration.gradient_costs import pooled as pooled_gradients
from paceline.backend.calibration.message_costs import message_tasks
from paceline.backend.calibration.probe_runner import Progress, Runner
from paceline.backend.calibration.probes import ProbeCollectives, ProbeMessages
from paceline.backend.calibration.recorded_costs import COMPUTE, SLOWNESS, STEP, Costs, pooled, slowed
from paceline.backend.calibration.step_time_laws import correlations
from paceline.backend.multihost.world import World
from paceline.records.machine import BUSY, QUIET
from paceline.scenarios.resolution.machine_costs import Adjustment, ProbedSteps
from paceline.scenarios.resolution.schema import Scenario
from paceline.topologies.catalogue.gradient_times import GradientTimes
from paceline.topologies.catalogue.machine_profile import Asked, EmulationCosts, JoinedHosts, MeasuredCosts, Profile

Consistent = Callable[[MeasuredCosts, Sequence[ProbedSteps]], Adjustment]
MODEL_SPREAD = 0.06
"""the standard deviation of predicted step times around measured ones, over the time, on a machine whose speed is
known; provenance: INFERENCE, about what docs/results/fidelity.md shows after the correction of the speed"""


def unadjusted(_costs: MeasuredCosts, _probes: Sequence[ProbedSteps]) -> Adjustment:
    """Returns the adjustment that changes nothing: where no simulator is given, or several hosts were measured."""
    return Adjustment()


class ProbeRounds:
    """The probes of a scenario's runs, and what they have measured.

    Args:
        scenario: the scenario.
        asked: the collectives of its runs; if it emulates a network, those inside a host are measured.
        batches: the batch sizes at which gradients are measured; None: those of the runs, and none if they are paced.
        runner: the processes that perform the probes; by default each probe forks its own.
        consistent: returns the adjustment with which simulated probes take as long as the measured ones: that of the
            simulator, which this package does not know.
    """

    def __init__(
        self,
        scenario: Scenario,
        asked: Sequence[Asked],
        *,
        consistent: Consistent = unadjusted,
        batches: Sequence[int] | None = None,
        runner: Runner | None = None,
    ) -> None:
        self.runner = runner or Runner()
        emulates = scenario.train.network == "emulated"
        measures = scenario.train.pace == "none" if batches is None else bool(batches)
        self._gradients = gradient_tasks(scenario, batches or (), self.runner) if measures else []
        self._messages = message_tasks(scenario, asked_inside(scenario, asked) if emulates else asked, self.runner)
        self._emulation = emulation_task(scenario) if emulates else None
        self.job = self._messages[0].plan.job
        self.count = 0
        """the rounds that were made"""
        self._steps: dict[GradientTask, int] = {}
        self._launches: dict[GradientTask, list[LaunchGradients]] = {task: [] for task in self._gradients}
        self._costs = list[Costs]()
        self._network = list[EmulationCosts]()
        self._consistent = consistent
        self._adjusted = 0, Adjustment()
        """the rounds from which the adjustment was computed, and it"""

    @property
    def probes(self) -> int:
        """The probes of a round."""
        return len(self._gradients) + len(self._messages) + (self._emulation is not None)

    def perform(self, say: Progress = lambda _name, _share: None) -> None:
        """Performs a round.

        Args:
            say: called with the name of each probe before it begins, and the completed share of the round.
        """
        self.count += 1
        numbers = itertools.count()

        def begin(name: str) -> None:
            say(name, next(numbers) / self.probes)

        for task in self._gradients:
            begin(task.name)
            if task not in self._steps:
                self._steps[task] = task.steps()
            self._launches[task] += task.measure(self._steps[task])
        for probe in self._messages:
            begin(probe.name)
            self._costs += probe.measure(self.count)
        if self._emulation is not None:
            begin(self._emulation.name)
            self._network.append(self._emulation.measure(self.count))

    # --- what was measured --------------------------------------------------------------------------------------------

    @property
    def slowness(self) -> float | None:
        """The mean slowness of the machine during all launches; None if it is not known, as of paced ones."""
        each = self._each_slowness()
        return fmean(each) if each else None

    @property
    def latest_slowness(self) -> float:
        """The mean slowness during the latest round."""
        each = self._each_slowness()
        return fmean(each[-max(1, len(each) // max(1, self.count)) :] or [1.0])

    def _each_slowness(self) -> list[float]:
        """Returns the slowness of every launch, round by round."""
        by_task = [[launch.slowness for launch in times] for times in self._launches.values()]
        messages = len(self._messages)
        by_task += [
            [each[SLOWNESS][0] for each in self._costs[number::messages] if SLOWNESS in each]
            for number in range(messages)
        ]
        return [slowness for launches in zip(*filter(None, by_task), strict=False) for slowness in launches]

    @property
    def launches(self) -> Mapping[GradientTask, Sequence[LaunchGradients]]:
        """The gradients of each probe at the mean slowness of all launches."""
        factor = self.slowness or 1.0
        return {task: [each.slowed(factor) for each in times] for task, times in self._launches.items()}

    @property
    def launched(self) -> Sequence[Costs]:
        """The other costs of each launch at that slowness."""
        factor = self.slowness or 1.0
        return [slowed(each, factor) for each in self._costs]

    def emulation(self) -> EmulationCosts | None:
        """Returns the costs of the emulated network; None if there is none."""
        return medians(self._network) if self._network else None

    def gradient(self, task: GradientTask, launches: Sequence[LaunchGradients]) -> GradientTimes:
        """Returns the times of gradients of one batch size, with the correlations of successive and simultaneous ones.

        They are not adjusted.

        Args:
            task: the probe.
            launches: its launches.
        """
        times, together = (
            pooled_gradients(task.batch, launches),
            correlations([each.sequences for each in launches]),
        )
        times = replace(times, between_steps=together.between_steps, between_ranks=together.between_ranks)
        return times if self._emulation is None else without_overlap(times)

    def profile(self, *, between: bool = False) -> Profile:
        """Returns the costs of a host without gradients, or those between hosts."""
        return pooled(self.launched, between=between)

    def costs(self, cores: int | None = None) -> MeasuredCosts:
        """Returns what was measured, at the mean slowness of all launches, adjusted to the steps of the probes.

        Args:
            cores: the cores that the ranks of a host share; by default those of this process.
        """
        gradients = tuple(self.gradient(task, times) for task, times in self.launches.items())
        host = replace(self.profile(), gradients=gradients, cores=cores or available_cores() if gradients else 1)
        placement = tuple(map(len, self.runner.workers_of_hosts(self.job).values()))
        made = MeasuredCosts(
            host,
            self.emulation(),
            JoinedHosts(self.profile(between=True), placement) if placement else None,
            slowness=self.slowness if gradients else None,
            spread=self.spread if gradients else None,
        )
        if not gradients or placement:
            return made
        if self._adjusted[0] != self.count:
            self._adjusted = self.count, self._consistent(made, self._probed_steps())
        return self._adjusted[1].of(made)

    def _probed_steps(self) -> list[ProbedSteps]:
        """Returns the programs of the probes with the medians of their mean steps."""
        launched, tasks, steps = self.launched, self._messages, []
        for number, task in enumerate(tasks):
            of_task = [each for each in launched[number :: len(tasks)] if STEP in each]
            if of_task and isinstance(task.method, ProbeMessages | ProbeCollectives):
                step_s, compute_s = (float(np.median([each[cost][0] for each in of_task])) for cost in (STEP, COMPUTE))
                plan = replace(task.plan, job=task.job)
                asked = task.method.asked if isinstance(task.method, ProbeCollectives) else ()
                groups = [(each.inside, Group(tuple(map(Rank, ranks)))) for each in asked for ranks in each.groups]
                crosses = any(plan.inside(group) is not inside for inside, group in groups)
                steps.append(ProbedSteps(plan, step_s, compute_s, beside=task.beside, crosses=crosses))
        return steps

    @property
    def spread(self) -> float | None:
        """The standard deviation of a run's mean step time around its prediction, over the time; None: one round.

        √(m² + s² + c²), with the error of the model m, the standard deviation s of the logarithm of the machine's
        slowness from launch to launch, and the standard error c of the gradient times.
        """
        if self.count < 2:
            return None
        speed = float(np.std(np.log(self._each_slowness() or [1.0])))
        return math.hypot(MODEL_SPREAD, speed, widest(self.launches, quantile=1.0))

    @property
    def width(self) -> float:
        """The largest relative half-width of the 95 % intervals of mean gradient times."""
        return widest(self.launches)


NARROW = 0.05
"""half the width of an interval over its median, from which on more rounds are not needed"""
LAUNCHES = 5
"""the rounds of a probe that is made once"""


def probe(
    scenario: Scenario,
    asked: Sequence[Asked],
    *,
    world: World | None = None,
    progress: Progress | None = None,
    name: str = "probes",
    consistent: Consistent = unadjusted,
) -> MeasuredCosts | None:
    """Measures this machine, or several hosts, once for the runs of a scenario; None if another process has the result.

    Args:
        scenario: the scenario; if the processes are on several hosts, its nodes are these hosts.
        asked: the collectives of its runs.
        world: processes that a launcher has started; None: probes are forked on this machine.
        progress: called with what is being measured and the completed share, 0 … 1.
        name: distinguishes the decisions of repeated probes of a world.
        consistent: as for `ProbeRounds`.

    Raises:
        InputError: there are too few processes, a node would be on several hosts, or the network cannot be emulated.
    """
    if world is not None:
        refuse_probes(scenario, world)
    runner = None if world is None else Runner(world, name=name)
    rounds = ProbeRounds(scenario, asked, runner=runner, consistent=consistent)
    for _ in range(LAUNCHES):
        rounds.perform(lambda what, share: progress and progress(what, (rounds.count - 1 + share) / LAUNCHES))
    if world is None:
        return rounds.costs()
    return rounds.costs(world.cores) if world.leads else None


def widest(launches: Mapping[GradientTask, Sequence[LaunchGradients]], quantile: float | None = None) -> float:
    """Returns the largest relative half-width of the intervals of mean gradient times.

    The interval is the median of the launches ± 1.25 q standard errors of a mean: a median's standard error is 1.25 of
    these.

    Args:
        launches: the times of each launch.
        quantile: q; None: Student's t of 95 %, because there are few launches.
    """
    widths = [0.0]
    for launch in launches.values():
        for count in launch[0].by_busy if launch else ():
            means = means_s(launch, count)
            spread = float(np.std(means, ddof=1)) if len(means) > 1 else float("inf")
            q = quantile or (float(student_t.ppf(0.975, len(means) - 1)) if len(means) > 1 else 1.0)
            widths.append(1.25 * q * spread / math.sqrt(len(means)) / float(np.median(means)))
    return max(widths)


def verdict(load: float, rounds: int, width: float) -> str:
    """Returns a sentence on the quality of a calibration.

    Args:
        load: the share of the cores that other programs used, 0 to 1.
        rounds: the rounds that were made.
        width: the largest relative half-width of the intervals of gradient times.

    >>> verdict(0.01, 4, 0.02)
    'good: other programs used 1 % of the cores, and gradient times are within ±2 % in 4 rounds'
    """
    quality = "good" if load <= QUIET and width <= NARROW else "poor" if load > BUSY or width > 4 * NARROW else "fair"
    return (
        f"{quality}: other programs used {100 * load:.0f} % of the cores, and gradient times are within "
        f"±{100 * width:.0f} % in {rounds} rounds"
    )
