"""Predicts the runs of a scenario from measured costs: by simulation, and by three simpler models.

Two of these are simulations that leave a part out. The third is the α–β model of a step, as it is used for
DistributedDataParallel:

* The formula is the same for every method: mean gradient, update, and one all-reduce of the gradient by all workers,
  one after the other. There is no overlap, no jitter, no queue and no server.
* It gets the same measured costs as the simulation. What a simulation adds to it is the method.
* What is learned after how many samples is that of our prediction: these models differ in times only.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from paceline.records import Run
from paceline.records.figures import ACTIVITIES
from paceline.reports.attribution.variation import MeanStep, VariationWaiting, variation_waiting
from paceline.scenarios import Scenario
from paceline.scenarios.resolution.plan import Plan
from paceline.topologies.catalogue.gradient_times import shared_cores
from paceline.topologies.catalogue.machine_profile import (
    MeasuredCosts,
    Points,
    Profile,
    seconds_of_members,
)
from paceline.topologies.closed_forms import ring_all_reduce_s

if TYPE_CHECKING:
    from paceline.simulator.runs.short_runs import Length

PARTIAL_MODELS = ("no_message_cost", "no_spread")
"""names of the simulations that leave a part out"""
WRONG_MODELS: tuple[str, ...] = (*PARTIAL_MODELS, "alpha_beta")
"""names of the simpler predictions"""

Report = Callable[[str, float], None]
"""called with the current task and the completed fraction, 0 … 1"""

Stage = Callable[[str], Report | None]
"""called with the name of each stage when it begins; returns the stage's progress callback"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The predicted runs of a scenario.

    Args:
        simulated: one run for each algorithm and seed.
        wrong: the runs of the simpler predictions, by the names of `WRONG_MODELS`.
        variation: the waiting by part of the variation of steps, by algorithm; empty if it was not asked for.
    """

    simulated: list[Run]
    wrong: dict[str, list[Run]]
    variation: dict[str, VariationWaiting] = field(default_factory=dict)


def predict(
    scenario: Scenario,
    costs: MeasuredCosts,
    *,
    stage: Stage = lambda _: None,
    keep: Callable[[Run], Run] = lambda run: run,
    explain: bool = False,
) -> Prediction:
    """Predicts every algorithm and seed of a scenario.

    Args:
        scenario: the scenario.
        costs: the measured costs of the machine, and of the network that it emulates.
        stage: called with the name of each stage; returns the stage's progress callback.
        keep: called with each simulated run, to store it; returns the stored run.
        explain: whether to find out which part of the variation of steps makes workers wait.
    """
    from paceline.simulator.runs.run import simulate

    simulated = simulate(scenario, machine=costs, progress=stage("predicting"), records="full", keep=keep)
    progress = stage("predicting without message cost")
    free = simulate(scenario, machine=costs, message_cost=False, progress=progress, learned=simulated)
    progress = stage("predicting without spread")
    even = simulate(scenario, machine=costs, jitter=False, progress=progress, learned=simulated)
    lines = alpha_beta_runs(scenario, costs, simulated)
    return Prediction(
        simulated=simulated,
        wrong=dict(zip(WRONG_MODELS, (free, even, lines), strict=True)),
        variation=predicted_waiting(scenario, costs, stage("predicting the waiting")) if explain else {},
    )


def predicted_waiting(
    scenario: Scenario, costs: MeasuredCosts, progress: Report | None = None
) -> dict[str, VariationWaiting]:
    """Returns the predicted waiting by part of the variation of steps, the mean over seeds, by algorithm.

    Runs are as short as those of `paceline explain`. Gradients that were measured on the machine have no parts.

    Args:
        scenario: the scenario.
        costs: the measured costs of the machine, and of the network that it emulates.
        progress: called with the algorithm and the completed fraction.
    """
    from paceline.reports.attribution.recording import mean_step, short_trace
    from paceline.simulator.runs.short_runs import length_of

    if costs.host.gradients:
        return {}
    plans = scenario.plans(paced=costs.paced)
    seeds: dict[str, list[VariationWaiting]] = defaultdict(list)
    for number, plan in enumerate(plans):
        length = length_of(plan)

        def simulated(changed: Plan, length: Length = length) -> MeanStep:
            return mean_step(short_trace(changed, length, machine=costs), changed.job.workers, length)

        if (waiting := variation_waiting(plan, simulated)) is not None:
            seeds[plan.name].append(waiting)
        if progress is not None:
            progress(plan.name, (number + 1) / len(plans))
    return {name: VariationWaiting.pooled(each) for name, each in seeds.items()}


ALL_REDUCE = "AllReduce"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlphaBeta:
    """The time of a step by the α–β model.

    step = gradient + update + α + n β

    Source: R. W. Hockney, "The communication challenge for MPP: Intel Paragon and Meiko CS-2", Parallel Computing
    20(3), 1994, for the time α + n β of n bytes; α and β correspond to 2 o + L and G of LogGP (A. Alexandrov et al.,
    SPAA 1995), which extends LogP (D. Culler et al., PPoPP 1993). Provenance of the citations: MEMORY high.

    Args:
        gradient_s: the mean seconds of a gradient.
        update_s: the seconds of an update.
        alpha_s: the seconds of an all-reduce without bytes.
        beta_s: the seconds that each byte adds.
        nbytes: the bytes of a gradient.

    >>> model = AlphaBeta(gradient_s=0.02, update_s=0.001, alpha_s=0.0005, beta_s=1e-9, nbytes=4_000_000)
    >>> round(model.step_s, 6)
    0.0255
    """

    gradient_s: float
    update_s: float
    alpha_s: float
    beta_s: float
    nbytes: int

    @property
    def all_reduce_s(self) -> float:
        """The seconds of the all-reduce: α + n β."""
        return self.alpha_s + self.nbytes * self.beta_s

    @property
    def step_s(self) -> float:
        """The seconds of a step."""
        return self.gradient_s + self.update_s + self.all_reduce_s

    @property
    def fractions(self) -> dict[str, float]:
        """The fractions of a step by activity."""
        spent = {"compute": self.gradient_s, "update": self.update_s, "communication": self.all_reduce_s}
        return {activity: spent.get(activity, 0.0) / self.step_s for activity in ACTIVITIES}


def line_through(points: Points) -> tuple[float, float]:
    """Returns α and β of the least-squares line α + n β through measured points, neither of them negative.

    Points of one size determine no line; then α is their mean and β is 0.

    Args:
        points: (bytes, seconds).

    Returns:
        α in seconds and β in seconds per byte.

    >>> alpha, beta = line_through(((1000, 0.002), (3000, 0.004)))
    >>> round(alpha, 9), round(beta, 12)
    (0.001, 1e-06)
    >>> line_through(((1000, 0.002),))
    (0.002, 0.0)
    """
    sizes, times = (np.array(column, dtype=np.float64) for column in zip(*points, strict=True))
    if len(set(sizes)) < 2:
        return float(times.mean()), 0.0
    scale = sizes.max()  # both columns of the same magnitude
    from scipy.optimize import nnls  # slow to import, and simulations do without

    (alpha, beta), _ = nnls(np.stack([np.ones_like(sizes), sizes / scale], axis=1), times)
    return float(alpha), float(beta / scale)


def ring(alpha_s: float, beta_s: float, members: int) -> tuple[float, float]:
    """Returns α and β of a ring all-reduce from those of its messages.

    They are those of the closed form that the simulation is tested against, without bytes and without latency.

    Args:
        alpha_s: the seconds of a message without bytes.
        beta_s: the seconds that each byte adds.
        members: the number of ranks.

    >>> ring(0.001, 1e-6, 4)
    (0.006, 1.5e-06)
    """
    return ring_all_reduce_s(members, 0, alpha_s, 0.0), ring_all_reduce_s(members, 1, 0.0, beta_s)


def model_of(plan: Plan, costs: MeasuredCosts) -> AlphaBeta:
    """Returns the model of a run.

    Args:
        plan: the run; of its method only the number of workers and the batch are used.
        costs: the measured costs of the machine, and of the network that it emulates.

    Raises:
        KeyError: neither all-reduces nor messages were measured, and there are several workers.
    """
    machine = costs.host
    workers = plan.job.workers
    alpha_s, beta_s = (0.0, 0.0) if workers < 2 else _all_reduce(plan, costs)
    return AlphaBeta(
        gradient_s=plan.job.method.micro_batches * mean_gradient_s(plan, machine),
        update_s=machine.update_s,
        alpha_s=alpha_s,
        beta_s=beta_s,
        nbytes=int(plan.job.learner.initial().nbytes),
    )


def mean_gradient_s(plan: Plan, machine: Profile) -> float:
    """Returns the mean seconds of a gradient over the workers.

    In a run that is not paced, it is measured with all workers of the host busy; in a paced run, it is that of the
    devices.

    Args:
        plan: the run.
        machine: the measured costs.
    """
    batches, workers = plan.job.batches, [me for me in plan.job.team if me.role == "worker"]
    if not machine.gradients:
        even = replace(plan, cluster=plan.cluster.without_jitter())
        return fmean(even.compute_s(me.rank, 0, batches[me.rank]) for me in workers)
    one_machine = plan.real.network == "emulated"  # whose cores the ranks of all hosts share
    places = [0 if one_machine else me.host for me in workers]
    speeds = {batch: shared_cores(machine.cores, machine.gradient(batch)) for batch in set(batches)}
    busy = Counter(places)
    return fmean(
        machine.gradient_s(batch) / speeds[batch](busy[place]) for batch, place in zip(batches, places, strict=True)
    )


def _all_reduce(plan: Plan, costs: MeasuredCosts) -> tuple[float, float]:
    """Returns α and β of an all-reduce of all workers."""
    workers = plan.job.workers
    if costs.emulation is None and costs.joined is None:
        return _on_host(plan, costs.host)
    between = costs.between(tuple(len(node) for node in plan.cluster.placement))
    if between is not None and (between.collectives or between.messages):
        return _on_host(plan, between)
    lines = plan.lines
    if lines.slowest is None:
        return _on_host(plan, costs.host)
    alpha_s, beta_s = ring(lines.longest_s, 1 / lines.slowest.bytes_per_s, workers)
    if costs.emulation is not None:  # the measured all-reduce of a few bytes includes all latencies
        alpha_s = max(0.0, costs.emulation.all_reduce_s - costs.emulation.few_bytes * beta_s)
    return alpha_s, beta_s


def _on_host(plan: Plan, machine: Profile) -> tuple[float, float]:
    """Returns α and β from the measured all-reduces, or from messages if there are none."""
    workers, inside = plan.job.workers, plan.inside(plan.job.team[0].workers)
    for shared in (inside, not inside):
        measured = {count: points for (name, count), points in machine.measured(shared).items() if name == ALL_REDUCE}
        if measured:
            near = min(measured, key=lambda count: abs(count - workers))
            points = measured[near]
            of_all = (seconds_of_members(points, ALL_REDUCE, near, workers, nbytes) for nbytes, _ in points)
            return line_through(tuple((nbytes, seconds) for (nbytes, _), seconds in zip(points, of_all, strict=True)))
    for shared in (inside, not inside):
        if points := machine.measured_messages(shared):
            return ring(*line_through(points), workers)
    raise KeyError("the profile has neither all-reduces nor messages")


def alpha_beta_runs(scenario: Scenario, costs: MeasuredCosts, simulated: Sequence[Run]) -> list[Run]:
    """Returns the simulated runs with the times of the α–β model.

    The time to a target is the number of steps of a worker until then, in the simulation, times the step time.

    Args:
        scenario: the scenario.
        costs: the measured costs.
        simulated: the simulated runs of the scenario.
    """
    plans = {(plan.name, plan.seed): plan for plan in scenario.plans(paced=scenario.train.pace == "device")}
    return [_with_times(run, plans[run.algorithm, run.seed], costs) for run in simulated]


def _with_times(run: Run, plan: Plan, costs: MeasuredCosts) -> Run:
    summary: Mapping[str, Any] = with_times(run.summary, model_of(plan, costs), plan.job.workers, plan.job.global_batch)
    return replace(run, summary=summary)  # type: ignore[arg-type]  # a summary without the keys that it lacks


def with_times(summary: Mapping[str, Any], model: AlphaBeta, workers: int, samples_per_step: int) -> dict[str, Any]:
    """Returns a summary whose times are those of the model; staleness, of which the model says nothing, is missing.

    Args:
        summary: the summary of a simulated run.
        model: the model.
        workers: the number of workers.
        samples_per_step: the samples of one step of all workers.
    """
    step_s = model.step_s
    times = {
        f"time_to_{aim}_s": None if (samples := summary[f"samples_to_{aim}"]) is None else samples / samples_per_step
        for aim in ("accuracy", "loss")
    }
    return {
        **summary,
        **{key: None if steps is None else steps * step_s for key, steps in times.items()},
        "wall_s": summary["steps"] / workers * step_s,
        "samples_per_s": samples_per_step / step_s,
        "step_s": {"mean": step_s, "p50": step_s, "p95": step_s},
        "time_fraction": model.fractions,
        "staleness": {**summary["staleness"], "mean": None, "mean_of_ranks": None, "max": None}
        | {"histogram": [], "by_rank": []},
    }
