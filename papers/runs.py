"""Runs of shipped scenarios for the claims of several papers: simulations, trainings of stand-ins, step times."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from paceline.algorithms.core.job import Evaluation, Job
from paceline.algorithms.core.method import SgdMethod
from paceline.algorithms.core.values import Rank
from paceline.records import Run
from paceline.records.metrics import smoothed
from paceline.records.targets import SMOOTHING, crossing
from paceline.records.trace import Schedule, Snapshot, Trace
from paceline.scenarios import load
from paceline.simulator.kernel.garbage_collection import collected_seldom
from paceline.simulator.runs.run import perform, simulate
from paceline.simulator.runs.short_runs import Length, mean_of, shortened, windows_of
from paceline.simulator.runs.stand_in_training import alone, stood_in
from paceline.simulator.runs.step_interval import ScaledTiming
from paceline.workloads.learners.stand_in import StandIn
from paceline.workloads.models.threads import torch_threads

NEVER = 0.999
"""an accuracy that no training of a stand-in reaches"""


def simulated(
    scenario: str, changes: Iterable[str] = (), *, algorithms: Sequence[Any] | None = None, seed: int = 1
) -> list[Run]:
    """Simulates the algorithms of a shipped scenario with one seed, without the intervals of predictions.

    Args:
        scenario: Its name.
        changes: Changes ``path=value``, as in ``--set``.
        algorithms: Names or methods; default: those of the scenario.
        seed: Of initial weights, samples and jitter.

    >>> [run.algorithm for run in simulated("quickstart", ["stop.epochs=1"], algorithms=["agd"])]
    ['agd']
    """
    changes = [*changes, f"seed={seed}", "seeds=1"]
    return simulate(load(scenario, changes, algorithms=algorithms), intervals=False)


def recorded(
    scenario: str, changes: Iterable[str] = (), *, algorithms: Sequence[Any] | None = None, seed: int = 1
) -> tuple[Job, Trace]:
    """Simulates an algorithm of a shipped scenario; returns its job and its record, without tables and figures.

    Weights are not evaluated unless an evaluation may end the run; see `evaluations`.

    Args:
        scenario: Its name.
        changes: Changes ``path=value``, as in ``--set``.
        algorithms: The name of the algorithm, or the method; default: that of the scenario.
        seed: Of initial weights, samples and jitter.

    >>> job, trace = recorded("quickstart", ["stop.epochs=1", "stop.divergence=false"], algorithms=["agd"])
    >>> len(trace.snapshots), trace.snapshots[-1].score, round(evaluations(job, trace.snapshots[-1:])[0].loss, 1)
    (7, None, 1.2)
    """
    (plan,) = load(scenario, [*changes, f"seed={seed}", "seeds=1"], algorithms=algorithms).plans()
    with collected_seldom(), torch_threads(1):
        return plan.job, perform(plan, plan.schedule())


def evaluations(job: Job, shots: Iterable[Snapshot]) -> list[Evaluation]:
    """Returns the evaluations of weights that a run has recorded.

    Args:
        job: The job of the run.
        shots: Some of its snapshots.
    """
    with torch_threads(1):
        return [shot.score or job.learner.evaluate(shot.vector) for shot in shots]


def final_accuracy(scenario: str, changes: Iterable[str], *, algorithms: Sequence[Any], seed: int) -> float:
    """Returns the final held-out accuracy of a run in per cent; that of a guess of ten classes if it diverged.

    The arguments are those of `recorded`.
    """
    job, trace = recorded(scenario, changes, algorithms=algorithms, seed=seed)
    (score,) = evaluations(job, trace.snapshots[-1:])
    return 10.0 if score.accuracy is None or math.isnan(score.accuracy) else 100.0 * score.accuracy


def rate_of(run: Run) -> float:
    """Returns the samples per second of all workers."""
    rate = run.summary["samples_per_s"]
    return 0.0 if rate is None else float(rate)


@dataclass(frozen=True, slots=True)
class Trained:
    """The evaluations of one training of a stand-in."""

    samples: tuple[float, ...]
    """of the stand-in until each evaluation"""
    accuracies: tuple[float, ...]
    """NaN if the training has diverged"""

    def samples_to(self, accuracy: float) -> float:
        """Returns the samples to an accuracy; infinity if it was not reached.

        Accuracies and samples are both means of the last evaluations, so that infrequent evaluations do not make a
        method look slow.

        Args:
            accuracy: 0 … 1.

        >>> Trained((0.0, 100.0, 200.0), (0.0, 0.6, 1.2)).samples_to(0.45)
        75.0
        """
        crossed = crossing(accuracy, smoothed(self.accuracies, SMOOTHING).tolist())
        return math.inf if crossed is None else crossed.at(smoothed(self.samples, SMOOTHING).tolist())

    @property
    def highest(self) -> float:
        """The highest mean accuracy of some successive evaluations, 0 … 1; 0 if there is none."""
        means = smoothed(self.accuracies, SMOOTHING)
        return max((float(mean) for mean in means if not math.isnan(mean)), default=0.0)

    def accuracy_after(self, samples: float) -> float:
        """Returns the mean accuracy of the last evaluations until then, in per cent; that of a guess if it diverged.

        Args:
            samples: Of the stand-in.

        >>> Trained((0.0, 100.0, 200.0, 300.0), (0.25, 0.5, 0.75, 1.0)).accuracy_after(200.0)
        50.0
        """
        until = [accuracy for seen, accuracy in zip(self.samples, self.accuracies, strict=True) if seen <= samples]
        mean = sum(until[-SMOOTHING:]) / len(until[-SMOOTHING:])
        return 10.0 if math.isnan(mean) else 100.0 * mean


def trained(
    scenario: str,
    method: SgdMethod,
    changes: Iterable[str] = (),
    *,
    seed: int,
    epochs: float,
    accuracy: float = NEVER,
    one_worker: bool = False,
) -> Trained:
    """Trains the stand-in of a shipped scenario.

    Args:
        scenario: The scenario's name.
        method: The method, with its learning rate.
        changes: Changes ``path=value``, as in ``--set``.
        seed: Of initial weights, samples and jitter.
        epochs: The limit of the training, in epochs of the stand-in.
        accuracy: The training ends when it is reached.
        one_worker: Whether one worker trains alone, with the reference's batch; the method is then not used except for
            its learning rate.
    """
    limits = [f"extrapolate.stand_in.accuracy={accuracy}", f"extrapolate.stand_in.epochs={epochs}", f"seed={seed}"]
    loaded = load(scenario, [*changes, *limits], algorithms=[method])
    assert loaded.extrapolate is not None and loaded.extrapolate.stand_in is not None
    part, (plan,) = loaded.extrapolate.stand_in, loaded.plans()
    problem = part.learner(seed)
    run = stood_in(plan, part, problem)
    if one_worker:
        run = alone(plan, part, problem, loaded.extrapolate.reference.batch)
        own = replace(run.job.method, learning_rate=method.learning_rate)  # type: ignore[call-arg]
        run = replace(run, job=replace(run.job, method=own))
    learner = run.job.learner
    with torch_threads(1):
        shots = perform(run, part.evaluate.schedule(learner.num_samples)).snapshots
    each = learner.stand_for / learner.batch if isinstance(learner, StandIn) else 1.0
    scores = [None if shot.score is None else shot.score.accuracy for shot in shots]
    return Trained(
        samples=tuple(shot.samples * each for shot in shots),
        accuracies=tuple(math.nan if score is None else float(score) for score in scores),
    )


Cost = tuple[float, float]
"""what is compared first, and what decides among equals; (∞, 0): nothing good can be said of it"""
NOTHING: Cost = (math.inf, 0.0)


def best_rate(cost: Callable[[float], float | Cost], rates: Sequence[float], start: float) -> float:
    """Returns the learning rate of a grid with the least cost, if the cost has one valley.

    From the start, neighbours are tried as long as they are better. Infinite costs (the target was not reached) without
    a second number are passed over, downwards first. With one, such as how far the target was missed, the search goes
    on from there, so that a target that no rate reaches does not take the whole grid.

    Args:
        cost: The cost of a rate; called once for each rate that is tried.
        rates: The grid, ascending.
        start: The rate of the grid to start from.

    >>> best_rate(lambda rate: abs(rate - 0.25), [0.1, 0.2, 0.3, 0.4], start=0.4)
    0.3
    >>> best_rate(lambda rate: 1.0 if rate < 0.15 else float("inf"), [0.1, 0.2, 0.3], start=0.3)
    0.1
    >>> tried = []
    >>> best_rate(lambda rate: tried.append(rate) or (float("inf"), -rate), [0.1, 0.2, 0.3, 0.4], start=0.3), tried
    (0.4, [0.3, 0.2, 0.4])
    """
    known: dict[int, Cost] = {}

    def at(index: int) -> Cost:
        if not 0 <= index < len(rates):
            return (math.inf, math.inf)
        if index not in known:
            found = cost(rates[index])
            known[index] = found if isinstance(found, tuple) else (found, 0.0)
        return known[index]

    first = rates.index(start)
    outward = [*range(first, -1, -1), *range(first + 1, len(rates))]
    place = next((index for index in outward if at(index) < NOTHING), first)
    while (step := min((-1, 1), key=lambda step: at(place + step))) and at(place + step) < at(place):
        place += step
    return rates[place]


def step_s(
    scenario: str,
    algorithm: str | tuple[tuple[str, Any], ...],
    changes: Iterable[str] = (),
    *,
    steps: int = 6,
    gradient_factor: float = 1.0,
    seed: int = 1,
) -> float:
    """Returns the mean time between the starts of successive gradients of a worker, in seconds.

    Args:
        scenario: The name of a shipped scenario.
        algorithm: A name, or the items of a mapping with ``name`` and hyper-parameters.
        changes: Changes ``path=value``, as in ``--set``.
        steps: The number of evaluated steps of each worker, after as many of warm-up as the method's longest period.
        gradient_factor: A factor on the time of every gradient.
        seed: Of the jitter.

    Returns:
        The mean over all workers; they take one gradient in each step.

    >>> slow, quick = (step_s("dgx1-p100", "sync-sgd", steps=2, gradient_factor=factor) for factor in (2.0, 1.0))
    >>> 1.5 < slow / quick < 2.0  # communication stays
    True
    """
    return _step_s(scenario, algorithm, tuple(changes), steps, gradient_factor, seed)


@cache
def _step_s(
    scenario: str,
    algorithm: str | tuple[tuple[str, Any], ...],
    changes: tuple[str, ...],
    steps: int,
    gradient_factor: float,
    seed: int,
) -> float:
    given: Any = algorithm if isinstance(algorithm, str) else dict(algorithm)
    settings = [*changes, f"seed={seed}", "seeds=1", "workload.learning=none"]
    (plan,) = load(scenario, [f"algorithms=[{_written(given)}]", *settings]).plans()
    length = Length(steps, plan.job.method.longest_period(plan.job.workers))
    run = shortened(plan, length)
    factors = {Rank(rank): gradient_factor for rank in range(plan.job.workers)}
    trace = perform(run, Schedule(every=math.inf), timing=ScaledTiming(run, factors=factors))
    return mean_of(windows_of(trace, plan.job.workers, length))


def _written(algorithm: str | dict[str, Any]) -> str:
    """Returns an algorithm as YAML.

    >>> _written({"name": "layerwise-agd", "delay": 1, "bucket": None})
    '{name: layerwise-agd, delay: 1, bucket: null}'
    """
    if isinstance(algorithm, str):
        return algorithm
    return "{" + ", ".join(f"{key}: {'null' if value is None else value}" for key, value in algorithm.items()) + "}"
