"""What the planner minimises: the time to the target, its price and its energy; and when a trial can be stopped.

A plan has constant price and power, so its figures at time t are (t, price · t, power · t). It is dominated from the
time on at which each of them exceeds that of another plan. This time is known before the trial runs, so a trial gets it
as the end of its run: Optuna itself prunes no studies with several objectives.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from paceline.algorithms.core.errors import InputError
from paceline.reports.comparison.ranking import Aim as AimOfRuns
from paceline.reports.run_cost import HOUR_S, JOULES_PER_KWH, Rates

Objective = Literal["time", "cost", "energy"]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)
SLACK = 1.5
"""a trial is stopped when it is worse than another plan in every objective by this factor; provenance: ours. It is
above 1, so that the best plan of each method is found as well, and not only the best plan of all"""

Aim = Literal["accuracy", "loss"]


@dataclass(frozen=True, slots=True)
class Target:
    """The target of every plan: an accuracy or a loss, and the stand-in that has it, if the model is not learned."""

    aim: Aim
    value: float
    of: str = ""

    @property
    def words(self) -> str:
        """Describes the target.

        >>> Target("accuracy", 0.93).words, Target("loss", 0.1).words
        ('93 % accuracy', 'a loss of 0.1')
        """
        return AimOfRuns(self.aim, self.value, self.of).words

    def shortfall(self, best: float | None) -> float:
        """Returns how far from the target a run ended, above 0: differences of accuracies, logarithms of losses.

        Args:
            best: the best smoothed value of the run; None if there is none.

        >>> round(Target("accuracy", 0.93).shortfall(0.9), 3), Target("loss", 0.1).shortfall(None)
        (0.03, 10.0)
        """
        if best is None or not math.isfinite(best):
            return MOST_SHORT
        missing = self.value - best if self.aim == "accuracy" else math.log(best / self.value) if best > 0 else 0.0
        return min(max(missing, LEAST_SHORT), MOST_SHORT)


LEAST_SHORT, MOST_SHORT = 1e-9, 10.0
"""range of a shortfall; the largest is that of a trial that could not run"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The most that a plan may take; infinite where there is no limit."""

    within_s: float = math.inf
    budget_usd: float = math.inf

    def most_s(self, rates: Rates) -> float:
        """Returns the longest time of a plan with these rates.

        >>> Limits(within_s=7200.0, budget_usd=200.0).most_s(Rates(usd_per_hour=400.0, watts=None))
        1800.0
        """
        paid = math.inf
        if rates.usd_per_hour and math.isfinite(self.budget_usd):
            paid = self.budget_usd / rates.usd_per_hour * HOUR_S
        return min(self.within_s, paid)


def parse_target(text: str) -> Target:
    """Parses ``accuracy=0.93`` or ``loss=0.1``.

    >>> parse_target("accuracy=0.93")
    Target(aim='accuracy', value=0.93, of='')
    """
    aim, equals, number = (part.strip() for part in text.partition("="))
    right = "expected accuracy=A with 0 < A <= 1, or loss=L with L > 0, such as accuracy=0.93"
    try:
        value = float(number)
    except ValueError:
        raise InputError(f"--target: found {text!r}, {right}") from None
    if not equals or aim not in get_args(Aim) or not 0 < value < math.inf or (aim == "accuracy" and value > 1):
        raise InputError(f"--target: found {text!r}, {right}")
    return Target("accuracy" if aim == "accuracy" else "loss", value)


def parse_objectives(given: str | Sequence[str]) -> tuple[Objective, ...]:
    """Returns objectives, the most important first, from a list or from ``A,B,…``.

    >>> parse_objectives("cost,time")
    ('cost', 'time')
    """
    names = [part.strip() for part in (given.split(",") if isinstance(given, str) else map(str, given))]
    known: tuple[Objective, ...] = tuple(one for name in names for one in OBJECTIVES if one == name)
    if len(known) != len(names) or len(set(names)) != len(names) or not names:
        text = given if isinstance(given, str) else ",".join(names)
        raise InputError(f"--minimise: found {text!r}, expected one or more of {', '.join(OBJECTIVES)}, each once")
    return known


def values_of(objectives: Sequence[Objective], rates: Rates, time_s: float) -> tuple[float, ...]:
    """Returns the figures of a plan.

    Args:
        objectives: the objectives.
        rates: the price and the power of its nodes, which are known.
        time_s: the time to the target.

    >>> values_of(("time", "cost"), Rates(usd_per_hour=36.0, watts=None), 100.0)
    (100.0, 1.0)
    """
    return tuple(time_s * rate_of(one, rates) for one in objectives)


def rate_of(objective: Objective, rates: Rates) -> float:
    """Returns how much an objective grows in a second."""
    if objective == "time":
        return 1.0
    known = rates.usd_per_hour if objective == "cost" else rates.watts
    assert known is not None, "unknown prices are rejected before the search"
    return known / HOUR_S if objective == "cost" else known / JOULES_PER_KWH


def bound_s(
    objectives: Sequence[Objective],
    rates: Rates,
    others: Iterable[Sequence[float]],
    limits: Limits,
    slack: float = SLACK,
) -> float:
    """Returns the time at which a trial can be stopped: it is beyond a limit, or dominated by another plan.

    min(limit, slack · min over plans of max over objectives of value / rate)

    Args:
        objectives: the objectives.
        rates: of the trial's nodes.
        others: the figures of other plans that reach the target.
        limits: the limits.
        slack: the factor by which a trial may be worse.

    >>> bound_s(("time", "cost"), Rates(usd_per_hour=7.2, watts=None), [(10.0, 0.03)], Limits(), slack=1.0)
    15.0
    """
    return min([limits.most_s(rates), *(slack * _dominated_s(objectives, rates, values) for values in others)])


def _dominated_s(objectives: Sequence[Objective], rates: Rates, values: Sequence[float]) -> float:
    """Returns the time from which a plan with these rates is worse than `values` in every objective."""
    worst_s = 0.0
    for objective, value in zip(objectives, values, strict=True):
        rate = rate_of(objective, rates)
        worst_s = max(worst_s, value / rate if rate else math.inf if value else 0.0)
    return worst_s


def dominates(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether a plan is at least as good in every objective, and better in one.

    >>> dominates((1.0, 2.0), (1.0, 3.0)), dominates((1.0, 2.0), (1.0, 2.0))
    (True, False)
    """
    return all(a <= b for a, b in zip(one, other, strict=True)) and tuple(one) != tuple(other)


def pareto_front(values: Sequence[Sequence[float]]) -> list[int]:
    """Returns the positions of the plans that no other plan dominates, ordered by the first objective.

    >>> pareto_front([(3.0, 1.0), (1.0, 3.0), (2.0, 4.0)])
    [1, 0]
    """
    free = [at for at, one in enumerate(values) if not any(dominates(other, one) for other in values)]
    return sorted(free, key=lambda at: (tuple(values[at]), at))
