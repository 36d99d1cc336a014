"""Runs of shipped scenarios for the claims of several papers: simulations, trainings of stand-ins, step times."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from paceline.algorithms.core.method import SgdMethod
from paceline.algorithms.core.values import Rank
from paceline.records import Run
from paceline.records.trace import Schedule
from paceline.scenarios import load
from paceline.simulator.runs.run import perform, simulate
from paceline.simulator.runs.short_runs import Length, mean_of, shortened, windows_of
from paceline.simulator.runs.stand_in_training import alone, reached, stood_in
from paceline.simulator.runs.step_interval import ScaledTiming
from paceline.workloads.learners.stand_in import StandIn
from paceline.workloads.models.threads import torch_threads


def simulated(
    scenario: str, changes: Iterable[str] = (), *, algorithms: Sequence[Any] | None = None, seed: int = 1
) -> list[Run]:
    """Simulates the algorithms of a shipped scenario with one seed.

    Args:
        scenario: Its name.
        changes: Changes ``path=value``, as in ``--set``.
        algorithms: Names or methods; default: those of the scenario.
        seed: Of initial weights, samples and jitter.

    >>> [run.algorithm for run in simulated("quickstart", ["stop.epochs=1"], algorithms=["agd"])]
    ['agd']
    """
    changes = [*changes, f"seed={seed}", "seeds=1"]
    return simulate(load(scenario, changes, algorithms=algorithms))


def accuracy_of(run: Run) -> float:
    """Returns the final held-out accuracy of a run in per cent; that of a guess of ten classes if it diverged."""
    final = run.summary["final_accuracy"]
    return 10.0 if final is None else 100.0 * float(final)


def rate_of(run: Run) -> float:
    """Returns the samples per second of all workers."""
    rate = run.summary["samples_per_s"]
    return 0.0 if rate is None else float(rate)


@dataclass(frozen=True, slots=True)
class Trained:
    """What one training of a stand-in showed."""

    samples: Mapping[float, float]
    """samples of the stand-in to each accuracy; infinity if it was not reached"""
    accuracy: float
    """final accuracy in per cent"""


def trained(
    scenario: str,
    method: SgdMethod,
    accuracies: Sequence[float],
    *,
    seed: int,
    epochs: float,
    one_worker: bool = False,
    stop: bool = True,
) -> Trained:
    """Trains the stand-in of a shipped scenario.

    Args:
        scenario: The scenario's name.
        method: The method, with its learning rate.
        accuracies: The targets whose samples are counted.
        seed: Of initial weights, samples and jitter.
        epochs: The limit of the training, in epochs of the stand-in.
        one_worker: Whether one worker trains alone, with the reference's batch; the method is then not used except for
            its learning rate.
        stop: Whether the training ends when the largest target is reached.
    """
    last = max(accuracies) if stop else 0.999
    changes = [f"extrapolate.stand_in.accuracy={last}", f"extrapolate.stand_in.epochs={epochs}", f"seed={seed}"]
    loaded = load(scenario, changes, algorithms=[method])
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
    counted = learner.stand_for / learner.batch if isinstance(learner, StandIn) else 1.0
    needed = {accuracy: reached(shots, accuracy) for accuracy in accuracies}
    scores = [shot.score.accuracy for shot in shots if shot.score is not None and shot.score.accuracy is not None]
    return Trained(
        samples={accuracy: math.inf if target is None else target[0] * counted for accuracy, target in needed.items()},
        accuracy=100.0 * float(sum(scores[-3:]) / len(scores[-3:])) if scores else 10.0,
    )


def best_rate(cost: Callable[[float], float], rates: Sequence[float], start: float) -> float:
    """Returns the learning rate of a grid with the least cost, if the cost has one valley.

    From the start, neighbours are tried as long as they are better. Infinite costs (the target was not reached) are
    passed over, downwards first.

    Args:
        cost: The cost of a rate; called once for each rate that is tried.
        rates: The grid, ascending.
        start: The rate of the grid to start from.

    >>> best_rate(lambda rate: abs(rate - 0.25), [0.1, 0.2, 0.3, 0.4], start=0.4)
    0.3
    >>> best_rate(lambda rate: 1.0 if rate < 0.15 else float("inf"), [0.1, 0.2, 0.3], start=0.3)
    0.1
    """
    known: dict[int, float] = {}

    def at(index: int) -> float:
        if not 0 <= index < len(rates):
            return math.inf
        if index not in known:
            known[index] = cost(rates[index])
        return known[index]

    first = rates.index(start)
    outward = [*range(first, -1, -1), *range(first + 1, len(rates))]
    place = next((index for index in outward if at(index) < math.inf), first)
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

    >>> _written({"name": "agd", "delay": 1})
    '{name: agd, delay: 1}'
    """
    if isinstance(algorithm, str):
        return algorithm
    return "{" + ", ".join(f"{key}: {value}" for key, value in algorithm.items()) + "}"
