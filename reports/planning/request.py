"""What is asked of a plan: target, limits and objectives (time, price, energy), and the files that store it.

A plan has constant price and power, so its figures at time t are (t, price · t, power · t). It is dominated from the
time on at which each of them exceeds that of another plan. This time is known before the trial runs, so a trial gets it
as the end of its run: Optuna itself prunes no studies with several objectives.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import yaml

from paceline.algorithms.core.checksums import parsed, reading
from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.files import replacing, write_whole
from paceline.records import store
from paceline.records.document import to_json
from paceline.records.figures import OF_PLANS
from paceline.records.store import NumberedFolder
from paceline.reports.comparison.ranking import Aim
from paceline.reports.run_cost import HOUR_S, JOULES_PER_KWH, PriceRates
from paceline.scenarios import Scenario, load

if TYPE_CHECKING:
    from paceline.reports.planning.search import PlanTrial

Objective = Literal["time", "cost", "energy"]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)
SLACK = 1.5
"""a trial is stopped when it is worse than another plan in every objective by this factor; provenance: ours. It is
above 1, so that the best plan of each method is found as well, and not only the best plan of all"""

LEAST_SHORT, MOST_SHORT = 1e-9, 10.0
"""range of a shortfall; the largest is that of a trial that could not run"""


def shortfall(target: Aim, best: float | None) -> float:
    """Returns how far from the target a run ended, above 0: differences of accuracies, logarithms of losses.

    Args:
        target: the target.
        best: the best smoothed value of the run; None if there is none.

    >>> round(shortfall(Aim("accuracy", 0.93), 0.9), 3), shortfall(Aim("loss", 0.1), None)
    (0.03, 10.0)
    """
    if best is None or not math.isfinite(best):
        return MOST_SHORT
    missing = target.value - best if target.kind == "accuracy" else math.log(best / target.value) if best > 0 else 0.0
    return min(max(missing, LEAST_SHORT), MOST_SHORT)


def stored_target(document: Mapping[str, Any]) -> Aim:
    """Returns the target in a stored request or plan."""
    return Aim(document["aim"], document["value"], document.get("of", ""))


def target_document(target: Aim) -> dict[str, Any]:
    """Returns a target as it is stored."""
    return {"aim": target.kind, "value": target.value, "of": target.of}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The most that a plan may take; infinite where there is no limit."""

    within_s: float = math.inf
    budget_usd: float = math.inf

    def most_s(self, rates: PriceRates) -> float:
        """Returns the longest time of a plan with these rates.

        >>> Limits(within_s=7200.0, budget_usd=200.0).most_s(PriceRates(usd_per_hour=400.0, watts=None))
        1800.0
        """
        paid = math.inf
        if rates.usd_per_hour and math.isfinite(self.budget_usd):
            paid = self.budget_usd / rates.usd_per_hour * HOUR_S
        return min(self.within_s, paid)


def parse_target(text: str) -> Aim:
    """Parses ``accuracy=0.93`` or ``loss=0.1``.

    >>> parse_target("accuracy=0.93")
    Aim(kind='accuracy', value=0.93, of='')
    """
    aim, equals, number = (part.strip() for part in text.partition("="))
    right = "expected accuracy=A with 0 < A <= 1, or loss=L with L > 0, such as accuracy=0.93"
    try:
        value = float(number)
    except ValueError:
        raise InputError(f"--target: found {text!r}, {right}") from None
    if not equals or aim not in ("accuracy", "loss") or not 0 < value < math.inf or (aim == "accuracy" and value > 1):
        raise InputError(f"--target: found {text!r}, {right}")
    return Aim("accuracy" if aim == "accuracy" else "loss", value)


def parse_objectives(given: str | Sequence[str]) -> tuple[Objective, ...]:
    """Returns objectives, the most important first, from a list or from ``A,B,…``.

    >>> parse_objectives("cost,time")
    ('cost', 'time')
    """
    names = [part.strip() for part in (given.split(",") if isinstance(given, str) else map(str, given))]
    known: tuple[Objective, ...] = tuple(objective for name in names for objective in OBJECTIVES if objective == name)
    if len(known) != len(names) or len(set(names)) != len(names) or not names:
        text = given if isinstance(given, str) else ",".join(names)
        raise InputError(f"--minimise: found {text!r}, expected one or more of {', '.join(OBJECTIVES)}, each once")
    return known


def values_of(objectives: Sequence[Objective], rates: PriceRates, time_s: float) -> tuple[float, ...]:
    """Returns the figures of a plan.

    Args:
        objectives: the objectives.
        rates: the price and the power of its nodes, which are known.
        time_s: the time to the target.

    >>> values_of(("time", "cost"), PriceRates(usd_per_hour=36.0, watts=None), 100.0)
    (100.0, 1.0)
    """
    return tuple(time_s * rate_of(objective, rates) for objective in objectives)


def rate_of(objective: Objective, rates: PriceRates) -> float:
    """Returns how much an objective grows in a second."""
    if objective == "time":
        return 1.0
    known = rates.usd_per_hour if objective == "cost" else rates.watts
    assert known is not None, "unknown prices are rejected before the search"
    return known / HOUR_S if objective == "cost" else known / JOULES_PER_KWH


def bound_s(
    objectives: Sequence[Objective],
    rates: PriceRates,
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

    >>> bound_s(("time", "cost"), PriceRates(usd_per_hour=7.2, watts=None), [(10.0, 0.03)], Limits(), slack=1.0)
    15.0
    """
    return min([limits.most_s(rates), *(slack * _dominated_s(objectives, rates, values) for values in others)])


def _dominated_s(objectives: Sequence[Objective], rates: PriceRates, values: Sequence[float]) -> float:
    """Returns the time from which a plan with these rates is worse than `values` in every objective."""
    worst_s = 0.0
    for objective, value in zip(objectives, values, strict=True):
        rate = rate_of(objective, rates)
        worst_s = max(worst_s, value / rate if rate else math.inf if value else 0.0)
    return worst_s


def dominates(values: Sequence[float], other: Sequence[float]) -> bool:
    """Whether a plan is at least as good in every objective, and better in one.

    >>> dominates((1.0, 2.0), (1.0, 3.0)), dominates((1.0, 2.0), (1.0, 2.0))
    (True, False)
    """
    return all(a <= b for a, b in zip(values, other, strict=True)) and tuple(values) != tuple(other)


def pareto_front(values: Sequence[Sequence[float]]) -> list[int]:
    """Returns the positions of the plans that no other plan dominates, ordered by the first objective.

    >>> pareto_front([(3.0, 1.0), (1.0, 3.0), (2.0, 4.0)])
    [1, 0]
    """
    free = [at for at, value in enumerate(values) if not any(dominates(other, value) for other in values)]
    return sorted(free, key=lambda at: (tuple(values[at]), at))


REQUEST, TABLE = "request.json", "trials.csv"
UNFINISHED = "-unfinished"
BATCH = 8
"""choices that are drawn at a time: enough for the cores of a small machine, few enough that the sampler learns soon;
provenance: ours"""
TRIALS_PER_METHOD = 15
"""default number of trials for each method; provenance: ours"""
TUNING_SEEDS, REPORTED_SEEDS = 2, 5
"""default numbers of seeds of a trial and of a reported plan; provenance: ours"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """What is planned."""

    scenario: Mapping[str, Any]
    """the resolved scenario, with an entry for each method that is considered"""
    part: Mapping[str, Any]
    """its section `plan`"""
    target: Aim
    objectives: tuple[Objective, ...]
    limits: Limits = field(default_factory=Limits)
    trials: int
    tuning_seeds: int = TUNING_SEEDS
    reported_seeds: int = REPORTED_SEEDS
    batch: int = BATCH

    def load(self) -> Scenario:
        """Returns the scenario with its section `plan`."""
        return load({**self.scenario, "plan": self.part})

    def document(self) -> dict[str, Any]:
        """Returns the content of the stored request, without limits that do not limit."""
        document = {**dataclasses.asdict(self), "target": target_document(self.target)}
        document["limits"] = {key: value for key, value in document["limits"].items() if math.isfinite(value)}
        return document

    def store(self, folder: Path) -> None:
        """Writes the request to a folder."""
        write_whole(folder / REQUEST, to_json(self.document()) + "\n")


def stored_request(folder: Path) -> PlanRequest:
    """Reads the request of a study.

    Args:
        folder: the folder of the study.

    Raises:
        InputError: there is none, or it cannot be read.
    """
    right = "expected the folder of an unfinished plan, such as runs/quickstart-plan-unfinished-1"
    try:
        document = parsed((folder / REQUEST).read_text(encoding="utf-8"), REQUEST, "the request of a plan")
        return PlanRequest(
            **{
                **document,
                "target": stored_target(document["target"]),
                "objectives": tuple(document["objectives"]),
                "limits": Limits(**document["limits"]),
            }
        )
    except OSError as error:
        raise InputError(f"--resume: found {str(folder)!r} ({error.strerror}), {right}") from error
    except (InputError, ValueError, TypeError, KeyError) as error:
        raise InputError(f"--resume: found a damaged {REQUEST} in {str(folder)!r}, {right}") from error


def write_scenario(path: Path, scenario: Mapping[str, Any]) -> None:
    """Writes a scenario as YAML, which the commands read."""
    path.parent.mkdir(exist_ok=True)
    write_whole(path, yaml.safe_dump(dict(scenario), sort_keys=False, allow_unicode=True))


def trial_rows(trials: Sequence[PlanTrial], objectives: Sequence[Objective]) -> list[dict[str, Any]]:
    """Returns the rows of the table of trials, whose figures are None if the target was not reached."""
    names = sorted({name for trial in trials for name in trial.choice.hyperparameters})
    figures = [OF_PLANS[name].key for name in objectives]
    return [
        {
            "trial": trial.number,
            **{name: getattr(trial.choice, name) for name in ("method", "nodes", "workers", "batch_per_worker")},
            **{name: trial.choice.hyperparameters.get(name) for name in names},
            **dict(zip(figures, trial.values or [None] * len(figures), strict=True)),
            "best": trial.rows[-1]["best"] if trial.rows else None,
            "bound_s": trial.bound_s,
            "reason": trial.reason,
        }
        for trial in trials
    ]


def write_trials(path: Path, trials: Sequence[PlanTrial], objectives: Sequence[Objective]) -> None:
    """Writes a table with a row for each trial."""
    import pandas as pd

    with replacing(path) as hidden:  # the numbers of objects are written as they are
        pd.DataFrame(trial_rows(trials, objectives), dtype=object).to_csv(hidden, index=False)


def stored_trials(folder: Path) -> list[dict[str, Any]]:
    """Returns the rows of the table of trials of a plan; none if there is no table.

    Args:
        folder: the folder of the plan.
    """
    import pandas as pd

    path = folder / TABLE
    if not path.is_file():
        return []
    with reading(path, "the table of trials of `paceline plan`"):
        rows = pd.read_csv(path).to_dict("records")
    return [{str(name): value for name, value in row.items()} for row in rows]


@contextmanager
def resumed_folder(path: Path) -> Iterator[NumberedFolder]:
    """Yields an unfinished folder, which is renamed to ``stem-N`` when the block succeeds, and kept otherwise.

    Args:
        path: the folder, ``stem-unfinished-N``.

    Raises:
        InputError: it is the folder of a complete plan.
    """
    stem, ending, _ = path.name.rpartition(UNFINISHED)
    if not ending:
        words = f"expected an unfinished plan, whose folder is called NAME-plan{UNFINISHED}-N"
        raise InputError(f"--resume: found {str(path)!r}, {words}")
    with store.numbered_folder(path.parent, stem, building=path) as folder:
        folder.keep = True
        yield folder
