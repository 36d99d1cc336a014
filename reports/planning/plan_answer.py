"""The answer of a plan: the candidates on fresh seeds, their Pareto front, and why the other methods lose.

Only figures of the reported seeds are shown. The trials decide which plans are candidates: those of the front, the best
few by each objective, and the best of each method.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any

from paceline.records.figures import OF_PLANS
from paceline.records.metrics import interval
from paceline.reports.comparison.ranking import told_apart
from paceline.reports.planning.evaluation import Row
from paceline.reports.planning.objectives import Objective, pareto_front, rate_of, values_of
from paceline.reports.planning.request import Request
from paceline.reports.planning.search import Trial, at_an_end
from paceline.reports.planning.search_space import Choice, Space
from paceline.reports.run_cost import Rates

MOST_OF_FRONT = 8
"""plans of the trials' front that become candidates; provenance: ours"""
BEST_OF_EACH = 3
"""trials with the lowest figure of each objective that become candidates, since a figure on few seeds is uncertain;
provenance: ours"""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A plan that was simulated on the reported seeds."""

    trial: Trial
    rates: Rates
    rows: Sequence[Row]
    path: str
    """its scenario, in the folder of the plan"""
    reason: str = ""
    """why it is no plan: it misses the target with some seed, or a limit"""
    devices: Sequence[str] = ()
    """what is known about the times of its devices"""

    @property
    def choice(self) -> Choice:
        return self.trial.choice

    @cached_property
    def times_s(self) -> list[float]:
        """The time to the target with each seed that reached it."""
        return [row["time_s"] for row in self.rows if row["time_s"] is not None]

    @property
    def time_s(self) -> float | None:
        """The mean time to the target; None if a seed did not reach it."""
        return fmean(self.times_s) if self.times_s and len(self.times_s) == len(self.rows) else None

    def figure(self, objective: Objective) -> Any:
        """Returns an objective's mean with its interval, ``{mean, low, high}``, or a number for one seed."""
        if self.time_s is None:
            return None
        scale = rate_of(objective, self.rates)
        if len(self.times_s) == 1:
            return self.times_s[0] * scale
        return {name: value * scale for name, value in interval(self.times_s).items()}

    def mean(self, name: str) -> float | None:
        """Returns the mean of a figure of the rows; None if one is missing."""
        values = [row[name] for row in self.rows]
        return None if None in values else fmean(values)

    def values(self, objectives: Sequence[Objective]) -> tuple[float, ...]:
        """Returns the means of the objectives; only of a plan that reaches the target."""
        assert self.time_s is not None
        return values_of(objectives, self.rates, self.time_s)


@dataclass(frozen=True, kw_only=True)
class PlanAnswer:
    """All that is said about a plan."""

    request: Request
    space: Space
    trials: Sequence[Trial]
    candidates: Sequence[Candidate]
    """those that are plans, by the first objective, then the others"""
    workers: int
    """of the scenario's cluster"""
    learning: str
    """how learning is simulated"""

    @property
    def plans(self) -> list[Candidate]:
        """The candidates that reach the target with every seed and stay inside the limits."""
        return [one for one in self.candidates if not one.reason]

    @cached_property
    def front(self) -> list[Candidate]:
        """The plans that no other plan dominates, ordered by the first objective."""
        plans = self.plans
        return [plans[at] for at in pareto_front([one.values(self.request.objectives) for one in plans])]

    @property
    def best(self) -> Candidate:
        return self.plans[0]

    @property
    def second(self) -> Candidate | None:
        """The best plan of another method or, if there is none, the next plan."""
        others = [one for one in self.plans if one.choice.method != self.best.choice.method]
        return (others or self.plans[1:] or [None])[0]  # type: ignore[list-item]

    @cached_property
    def best_of_methods(self) -> dict[str, Candidate]:
        """The best plan of each method that has one."""
        found: dict[str, Candidate] = {}
        for one in self.plans:
            found.setdefault(one.choice.method, one)
        return found

    @property
    def shown(self) -> list[Candidate]:
        """The front, and the best plan of each method."""
        own = {id(one) for one in [*self.front, *self.best_of_methods.values()]}
        return [one for one in self.plans if id(one) in own]

    def apart(self, one: Candidate, other: Candidate) -> bool | None:
        """Whether the seeds distinguish the times of two plans; None with one seed."""
        return told_apart(one.times_s, other.times_s) if len(one.times_s) > 1 else None

    def reasons(self, method: str) -> Counter[str]:
        """Counts why trials of a method have no figures."""
        return Counter(one.reason for one in self.trials if one.choice.method == method and one.reason)

    def wide_enough(self, one: Candidate) -> list[str]:
        """Returns the hyper-parameters of a plan that are at an end of their range."""
        ranges = self.space.methods[one.choice.method]
        return [name for name, value in one.choice.hyperparameters.items() if at_an_end(ranges[name], value)]

    def document(self) -> dict[str, Any]:
        """Returns the JSON document of ``paceline plan``."""
        from paceline.reports.planning.plan_words import extrapolated

        front = {id(one) for one in self.front}
        return {
            "target": dataclasses.asdict(self.request.target),
            "objectives": list(self.request.objectives),
            "seeds": {
                "tuning": sorted({row["seed"] for one in self.trials for row in one.rows}),
                "reported": sorted({row["seed"] for one in self.candidates for row in one.rows}),
            },
            "best": self._described(self.best, front),
            "second": None if self.second is None else self._described(self.second, front),
            "plans": [self._described(one, front) for one in self.candidates],
            "trials": {
                "count": len(self.trials),
                "reached": sum(one.values is not None for one in self.trials),
                "reasons": dict(Counter(one.reason for one in self.trials if one.reason)),
            },
            "extrapolated": extrapolated(self),
        }

    def _described(self, one: Candidate, front: set[int]) -> dict[str, Any]:
        figures: Mapping[str, Any] = {OF_PLANS[name].key: one.figure(name) for name in self.request.objectives}
        return {
            "trial": one.trial.number,
            "choice": dataclasses.asdict(one.choice),
            "scenario": one.path,
            "pareto": id(one) in front,
            **figures,
            "seeds_reached": len(one.times_s),
            "samples_per_s": one.mean("samples_per_s"),
            "samples_to_target": one.mean("samples_to_target"),
            "usd_per_hour": one.rates.usd_per_hour,
            "watts": one.rates.watts,
            "reason": one.reason or None,
            "rows": [dict(row) for row in one.rows],
        }


def candidates_of(trials: Sequence[Trial]) -> list[Trial]:
    """Returns the trials whose plans are simulated on the reported seeds, by number.

    Args:
        trials: all trials.
    """
    reached = [one for one in trials if one.values is not None]
    unique = {repr(one.choice): one for one in reversed(reached)}  # the first trial of a choice
    reached = sorted(unique.values(), key=lambda one: one.number)
    values = [one.values or () for one in reached]
    front = pareto_front(values)
    step = max(1, -(-len(front) // MOST_OF_FRONT))
    chosen = {*front[::step], *front[-1:]}
    for objective in range(len(values[0]) if values else 0):
        order = sorted(range(len(reached)), key=lambda at: (values[at][objective], at))
        chosen |= set(order[:BEST_OF_EACH])
    methods: dict[str, int] = {}
    for at in sorted(range(len(reached)), key=lambda at: (values[at], at)):
        methods.setdefault(reached[at].choice.method, at)
    return [reached[at] for at in sorted(chosen | set(methods.values()))]
