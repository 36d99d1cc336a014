"""Step times of shipped scenarios with changes, for claims about speed only.

Weights have sizes and no numbers, runs are cut to a few steps after a warm-up, and the prediction interval of
`simulate` is left out, since a claim varies its inputs itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache
from typing import Any

from paceline.algorithms.core.values import Rank
from paceline.records.trace import Schedule
from paceline.scenarios import load
from paceline.simulator.runs.run import perform
from paceline.simulator.runs.short_runs import Length, mean_of, shortened, windows_of
from paceline.simulator.runs.step_interval import ScaledTiming


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
