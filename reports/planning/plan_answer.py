"""The answer of a plan: the candidates on fresh seeds, their Pareto front, its words, and real runs of the best.

Only figures of the reported seeds are shown. The trials decide which plans are candidates: those of the front, the best
few by each objective, and the best of each method.

A verified plan is trained for real, with the pace of its devices. With ``train.time_dilation`` of the scenario all
steps take that many times as long, so that this machine holds the pace; measured times are divided by it.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from paceline.records.document import to_json
from paceline.records.figures import OF_PLANS, PERCENT, SECONDS, TIME_TO_TARGET, number, signed_percent, significant
from paceline.records.metrics import interval
from paceline.records.pace import say_pace
from paceline.records.step_errors import StepErrors, sentence
from paceline.records.store import slug
from paceline.reports.comparison.ranking import rarely_evaluated, told_apart
from paceline.reports.planning.request import (
    OBJECTIVES,
    SLACK,
    Objective,
    PlanRequest,
    pareto_front,
    rate_of,
    target_document,
    trial_rows,
    values_of,
)
from paceline.reports.planning.search import PlanTrial, at_an_end, rates_of_run
from paceline.reports.planning.search_space import OWN_NODES, Row, SearchChoice, Space
from paceline.reports.result import Result
from paceline.reports.run_cost import PriceRates
from paceline.reports.words import listed
from paceline.scenarios import Scenario, load

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from paceline.reports.blocks import Answer

PLANS = "plans"
"""folder of the candidates' scenarios"""
MOST_OF_FRONT = 8
"""plans of the trials' front that become candidates; provenance: ours"""
BEST_OF_EACH = 3
"""trials with the lowest figure of each objective that become candidates, since a figure on few seeds is uncertain;
provenance: ours"""


@dataclass(frozen=True, kw_only=True)
class PlanCandidate:
    """A plan that was simulated on the reported seeds."""

    trial: PlanTrial
    document: Mapping[str, Any]
    """its scenario, as it is stored"""
    rows: Sequence[Row]
    reason: str = ""
    """why it is no plan: it misses the target with some seed, or a limit"""

    @property
    def path(self) -> str:
        """The file of its scenario, in the folder of the plan."""
        return f"{PLANS}/{self.trial.number:04d}-{slug(self.choice.method)}.yaml"

    @cached_property
    def scenario(self) -> Scenario:
        return load(self.document)

    @cached_property
    def rates(self) -> PriceRates:
        return rates_of_run(self.scenario)

    @property
    def choice(self) -> SearchChoice:
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

    @property
    def published_errors(self) -> list[StepErrors]:
        """The errors of the published steps that are most similar to those of the plan; all seeds have the same."""
        errors: list[StepErrors] = self.rows[0].get("published_errors", [])  # rows of an earlier version have none
        return errors

    def values(self, objectives: Sequence[Objective]) -> tuple[float, ...]:
        """Returns the means of the objectives; only of a plan that reaches the target."""
        assert self.time_s is not None
        return values_of(objectives, self.rates, self.time_s)


@dataclass(frozen=True, kw_only=True, repr=False)
class PlanResult(Result):
    """What `paceline.plan` returns: the plans, their Pareto front, and the trials of the search."""

    request: PlanRequest
    space: Space
    trials: Sequence[PlanTrial]
    candidates: Sequence[PlanCandidate]
    """those that are plans, by the first objective, then the others"""

    @property
    def plans(self) -> list[PlanCandidate]:
        """The candidates that reach the target with every seed and stay inside the limits."""
        return [candidate for candidate in self.candidates if not candidate.reason]

    @cached_property
    def front(self) -> list[PlanCandidate]:
        """The plans that no other plan dominates, ordered by the first objective."""
        plans = self.plans
        return [plans[at] for at in pareto_front([plan.values(self.request.objectives) for plan in plans])]

    @property
    def best(self) -> PlanCandidate:
        return self.plans[0]

    @property
    def second(self) -> PlanCandidate | None:
        """The best plan of another method or, if there is none, the next plan."""
        others = [plan for plan in self.plans if plan.choice.method != self.best.choice.method]
        return (others or self.plans[1:] or [None])[0]  # type: ignore[list-item]

    @cached_property
    def best_of_methods(self) -> dict[str, PlanCandidate]:
        """The best plan of each method that has one."""
        best: dict[str, PlanCandidate] = {}
        for plan in self.plans:
            best.setdefault(plan.choice.method, plan)
        return best

    @property
    def shown(self) -> list[PlanCandidate]:
        """The front, and the best plan of each method."""
        own = {id(plan) for plan in [*self.front, *self.best_of_methods.values()]}
        return [plan for plan in self.plans if id(plan) in own]

    def apart(self, plan: PlanCandidate, other: PlanCandidate) -> bool | None:
        """Whether the seeds distinguish the times of two plans; None with one seed."""
        return told_apart(plan.times_s, other.times_s) if len(plan.times_s) > 1 else None

    def document(self) -> dict[str, Any]:
        """Returns the JSON document of ``paceline plan``."""
        return {
            "target": target_document(self.request.target),
            "objectives": list(self.request.objectives),
            "seeds": {
                "tuning": sorted({row["seed"] for trial in self.trials for row in trial.rows}),
                "reported": sorted({row["seed"] for candidate in self.candidates for row in candidate.rows}),
            },
            "best": self._described(self.best),
            "second": None if self.second is None else self._described(self.second),
            "plans": [self._described(candidate) for candidate in self.candidates],
            "trials": {
                "count": len(self.trials),
                "reached": sum(trial.values is not None for trial in self.trials),
                "reasons": dict(Counter(trial.reason for trial in self.trials if trial.reason)),
            },
            "extrapolated": extrapolated(self),
        }

    def _described(self, candidate: PlanCandidate) -> dict[str, Any]:
        figures: Mapping[str, Any] = {OF_PLANS[name].key: candidate.figure(name) for name in self.request.objectives}
        return {
            "trial": candidate.trial.number,
            "choice": dataclasses.asdict(candidate.choice),
            "scenario": candidate.path,
            "pareto": any(candidate is other for other in self.front),
            **figures,
            "seeds_reached": len(candidate.times_s),
            "samples_per_s": candidate.mean("samples_per_s"),
            "samples_to_target": candidate.mean("samples_to_target"),
            "usd_per_hour": candidate.rates.usd_per_hour,
            "watts": candidate.rates.watts,
            "reason": candidate.reason or None,
            "rows": [dict(row) for row in candidate.rows],
        }

    def scenario(self, plan: PlanCandidate | None = None) -> Scenario:
        """Returns the scenario of a plan, for `paceline.simulate` or `paceline.compare`.

        Args:
            plan: one of `candidates`; None: the best plan.
        """
        return (plan or self.best).scenario

    @property
    def words(self) -> str:
        """The answer in sentences."""
        return plan_words(self)

    def frame(self) -> pd.DataFrame:
        """Returns a row for each candidate, the best first: its choice and the mean figures of the reported seeds.

        Objectives have their unit in the name, such as ``time_s`` and ``cost_usd``; intervals of 95 % have columns with
        ``_low`` and ``_high``.
        """
        import pandas as pd

        rows = []
        for plan in self.document()["plans"]:
            choice = dict(plan["choice"])
            tuned = choice.pop("hyperparameters")
            row = {"trial": plan["trial"], **choice, **tuned}
            for figure in (OF_PLANS[name] for name in self.request.objectives):
                value = figure.of(plan)
                row[figure.column] = number(value)
                if isinstance(value, Mapping):
                    row |= {f"{figure.column}_{end}": value[end] for end in ("low", "high")}
            row |= {name: plan[name] for name in ("samples_per_s", "samples_to_target", "usd_per_hour")}
            rows.append({**row, "power_w": plan["watts"], "pareto": plan["pareto"], "reason": plan["reason"]})
        return pd.DataFrame(rows)

    def plot(self) -> Figure:
        """Draws the plans: each further objective against the first, or bars if there is one."""
        from paceline.reports.planning.plan_blocks import plan_charts
        from paceline.reports.png import figure_of

        return figure_of(plan_charts(self._stored(), self._trials()), title=self._title)

    def answer(self) -> Answer:
        """Returns the table of plans, what is said about them, and the charts of plans and trials."""
        from paceline.reports.planning.plan_blocks import answer_of_plan, plans_section

        stored = self._stored()
        answer = answer_of_plan(stored, self.request.scenario["name"])
        # the table of trials is made when the charts are, not to print the table of plans
        return dataclasses.replace(answer, sections=lambda: [plans_section(stored, self._trials())])

    def _stored(self) -> dict[str, Any]:
        """Returns the content of plan.json."""
        document: dict[str, Any] = json.loads(to_json({**self.document(), "words": self.words}))
        return document

    @property
    def _title(self) -> str:
        return f"{self.request.scenario['name']}: plans for {self.request.target.words}"

    def _reported(self) -> Answer:
        from paceline.reports.provenance import with_provenance

        return with_provenance(self.answer(), self.request.scenario)

    def _trials(self) -> list[dict[str, Any]]:
        return trial_rows(self.trials, self.request.objectives)

    @property
    def _report_name(self) -> str:
        return f"{self.request.scenario['name']}-plan.html"


def candidates_of(trials: Sequence[PlanTrial]) -> list[PlanTrial]:
    """Returns the trials whose plans are simulated on the reported seeds, by number.

    Args:
        trials: all trials.
    """
    reached = {repr(trial.choice): trial for trial in reversed(trials) if trial.values is not None}  # the first of each
    figures = {trial.number: trial.values or () for trial in sorted(reached.values(), key=lambda trial: trial.number)}
    numbers = list(figures)
    front = [numbers[at] for at in pareto_front(list(figures.values()))]
    chosen = {*front[:: max(1, -(-len(front) // MOST_OF_FRONT))], *front[-1:]}
    for objective in range(len(next(iter(figures.values()), ()))):
        chosen |= set(sorted(numbers, key=lambda number: figures[number][objective])[:BEST_OF_EACH])
    by_number = {trial.number: trial for trial in reached.values()}
    best_first = sorted(numbers, key=figures.__getitem__)
    of_methods = {by_number[number].choice.method: number for number in reversed(best_first)}
    return [by_number[number] for number in numbers if number in chosen | set(of_methods.values())]


SIMILAR = 0.02
"""relative difference of rates or samples below which they count as equal in sentences; provenance: ours"""
MOST_REASONS = 3
"""reasons that are listed for a method without a plan"""


def plan_words(answer: PlanResult) -> str:
    """Describes the best and the second-best plan, what they cost, why the others lose, and what is extrapolated.

    Lines that begin with spaces belong to the line above them that ends with a colon.

    Args:
        answer: the plan.
    """
    best, second = answer.best, answer.second
    several = answer.request.reported_seeds > 1
    level = "± is half of the 95 % interval" if several else "one seed does not say how much of that is chance"
    lines = [f"Best: {best.choice.words}: {answer.request.target.words} in {_costs(best)}; {level}."]
    if second is not None:
        other = second.choice.method != best.choice.method
        lines.append(
            f"Second best{' (best plan of another method)' * other}: {second.choice.words}: {_costs(second)}. "
            f"{_compared(answer, best, second)}"
        )
    lines += _other_ends(answer)
    losers = list(_losers(answer))
    if losers:
        lines += ["Why the others lose:", *(f"  {loser}" for loser in losers)]
    lines += _cautions(answer)
    lines += dict.fromkeys(sentence(errors) for plan in answer.shown for errors in plan.published_errors)
    lines += ["What is extrapolated or assumed:", *(f"  {line}" for line in extrapolated(answer))]
    return "\n".join(lines)


def _costs(candidate: PlanCandidate) -> str:
    """Formats all figures of a plan whose rates are known, with their intervals."""
    known = {
        "time": True,
        "cost": candidate.rates.usd_per_hour is not None,
        "energy": candidate.rates.watts is not None,
    }
    return ", ".join(OF_PLANS[name].with_symbol(candidate.figure(name)) for name in OBJECTIVES if known[name])


def _compared(answer: PlanResult, best: PlanCandidate, other: PlanCandidate) -> str:
    """Describes the difference of two times, and whether the seeds distinguish them."""
    assert best.time_s is not None
    assert other.time_s is not None
    more = other.time_s / best.time_s - 1
    apart = answer.apart(best, other)
    said = f"It takes {PERCENT.with_symbol(abs(more))} {'longer' if more >= 0 else 'less time'}"
    if apart is None:
        return f"{said}; one seed does not say how much of that is chance."
    seeds = len(best.times_s)
    sure = "distinguish" if apart else "do not distinguish"
    return f"{said}; {seeds} seeds {sure} the two (paired differences, 95 %)."


def _other_ends(answer: PlanResult) -> list[str]:
    """Names the plan with the lowest figure of each further objective."""
    said = []
    for name in answer.request.objectives[1:]:
        at = answer.request.objectives.index(name)
        lowest = min(answer.front, key=lambda plan: plan.values(answer.request.objectives)[at])
        if lowest is not answer.best:
            said.append(f"Least {name}: {lowest.choice.words}: {_costs(lowest)}.")
    return said


def _losers(answer: PlanResult) -> Iterator[str]:
    """Yields a sentence for each method other than those of the best plan."""
    best = answer.best
    for method in answer.space.methods:
        if method == best.choice.method:
            continue
        other = answer.best_of_methods.get(method)
        if other is not None:
            close = (
                f"; {len(best.times_s)} seeds do not distinguish the two" if answer.apart(best, other) is False else ""
            )
            yield f"{method}: {_why_slower(best, other)}{close}"
            continue
        reasons = [trial.reason for trial in answer.trials if trial.choice.method == method]
        count = len(reasons)
        most = Counter(filter(None, reasons)).most_common(MOST_REASONS)
        said = [f"{reason} ({times})" for reason, times in most]
        said = said or [
            candidate.reason
            for candidate in answer.candidates
            if candidate.choice.method == method and candidate.reason
        ]
        why = "; ".join(said) or "give more --trials"
        yield f"{method}: no plan in {count} trial{'s' * (count != 1)}: {why}"


def _why_slower(best: PlanCandidate, other: PlanCandidate) -> str:
    """Explains a plan's time by its rate and by the samples that it needs, relative to the best plan."""
    assert best.time_s is not None
    assert other.time_s is not None
    parts = []
    rates = best.mean("samples_per_s"), other.mean("samples_per_s")
    if rates[0] and rates[1] and abs(rates[1] / rates[0] - 1) > SIMILAR:
        parts.append(f"{significant(rates[1] / rates[0])} times the samples per second")
    needs = best.mean("samples_to_target"), other.mean("samples_to_target")
    if needs[0] and needs[1] and abs(needs[1] / needs[0] - 1) > SIMILAR:
        parts.append(f"{significant(needs[1] / needs[0])} times the samples to the target")
    idle = [sum(_share(plan, name) for name in ("communication", "wait")) for plan in (best, other)]
    if idle[1] > idle[0] + SIMILAR:
        best_idle, its_idle = map(PERCENT.with_symbol, idle)
        parts.append(f"its workers communicate or wait {its_idle} of the time, those of the best {best_idle}")
    where = other.choice.words.partition(" on ")[2]
    said = f"{significant(other.time_s / best.time_s)} times the time ({where})"
    return f"{said}: {', '.join(parts)}" if parts else said


def _share(candidate: PlanCandidate, name: str) -> float:
    return fmean(float(row["time_fraction"].get(name, 0.0)) for row in candidate.rows)


def _cautions(answer: PlanResult) -> list[str]:
    """Returns what should be checked: hyper-parameters at an end of their range, stopped trials, coarse evaluations."""
    said = []
    for place, plan in (("best", answer.best), ("second-best", answer.second)):
        ranges = {} if plan is None else answer.space.methods[plan.choice.method]
        chosen = {} if plan is None else plan.choice.hyperparameters
        if names := [name for name, value in chosen.items() if at_an_end(ranges[name], value)]:
            said.append(
                f"Take care: {listed(names)} of the {place} plan is at an end of its range; a wider "
                "plan.hyperparameters may give a better plan."
            )
    if few := rarely_evaluated(
        (plan.choice.words, row) for plan in answer.shown for row in plan.rows if row["extrapolated"] is None
    ):
        said.append(f"Take care: {few}")
    gaps = [row["resolution_s"] for plan in answer.shown for row in plan.rows if row["resolution_s"] is not None]
    if gaps:
        said.append(
            f"Times are interpolated between evaluations, which lie up to {SECONDS.with_symbol(max(gaps))} apart "
            "around the target."
        )
    stopped = sum(trial.reason.startswith("stopped") for trial in answer.trials)
    if stopped:
        said.append(
            f"{stopped} of {len(answer.trials)} trials were stopped when they were {SLACK:g} times as bad as another "
            "plan in every objective, or beyond a limit."
        )
    return said


def extrapolated(answer: PlanResult) -> list[str]:
    """Returns sentences about what the figures of the shown plans assume."""
    given = answer.request.load()
    said = [_learning(given)]
    for plan in answer.shown:
        devices = [device for _, device in plan.scenario.cluster.devices(plan.scenario.workload)]
        said += [f"Time of a gradient on {device.name}: {device.provenance}." for device in devices]
        intervals = plan.rows[0]["prediction_interval"] or {}
        if (bounds := intervals.get("step_s")) is not None:
            said.append(
                f"{plan.choice.words}: steps of similar predictions took {SECONDS.text(bounds['low'])} to "
                f"{SECONDS.with_symbol(bounds['high'])} ({PERCENT.with_symbol(intervals['share'])} of them)."
            )
        said += [f"{text[0].upper()}{text[1:]}." for text in plan.rates.sources]
        said += [
            f"Outside the range of the model: {text}."
            for row in plan.rows
            for text in row["warnings"]
            if text not in said
        ]
        said += [f"Extrapolated: {text}" for row in plan.rows for text in row["extrapolated"] or ()]
        workers = plan.choice.workers
        if plan.choice.nodes == OWN_NODES and workers > given.cluster.workers:
            said.append(
                f"{workers} workers are more than the {given.cluster.workers} of the scenario's cluster: more such "
                "nodes on the same network are assumed."
            )
    return list(dict.fromkeys(said))


def _learning(scenario: Scenario) -> str:
    """Describes how learning is simulated."""
    workload = scenario.workload
    if workload.learning == "quadratic":
        return (
            "Learning is that of a noisy quadratic, not of a data set: samples to the target are those of this model."
        )
    if workload.learning == "none":
        return "Nothing is learned: times to the target are extrapolated from a published training."
    if workload.stood_in is not None:
        return workload.stood_in_note
    return (
        f"Learning is not extrapolated: every run trains {workload.model} on {workload.dataset or 'its data set'} "
        "inside the simulation."
    )


LONGER = 1.5
"""a real run ends after this multiple of the samples that the slowest seed needs in the simulation; provenance: ours"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """A plan with its predicted and measured times."""

    candidate: PlanCandidate
    measured_s: Sequence[float | None]
    """the time to the target with each seed, on the clock of the devices; None if it was not reached"""
    notes: Sequence[str] = ()
    """where the pace of the devices was not held"""

    @property
    def mean_s(self) -> float | None:
        """The mean measured time; None if a seed did not reach the target."""
        times_s = [time_s for time_s in self.measured_s if time_s is not None]
        return fmean(times_s) if times_s and len(times_s) == len(self.measured_s) else None

    @property
    def error(self) -> float | None:
        """The relative error of the prediction: predicted / measured − 1."""
        mean_s, predicted_s = self.mean_s, self.candidate.time_s
        return None if mean_s is None or predicted_s is None else predicted_s / mean_s - 1

    def document(self) -> dict[str, Any]:
        """Returns the plan for the JSON document."""
        return {
            "choice": self.candidate.choice.words,
            "predicted_s": self.candidate.time_s,
            "measured_s": self.mean_s,
            "error": self.error,
            "measured_by_seed_s": list(self.measured_s),
            "notes": list(self.notes),
        }


def verified(
    answer: PlanResult, folder: Path, *, progress: Callable[[str, float], None] | None = None
) -> list[Verified]:
    """Trains the best and the second-best plan with the reported seeds.

    Args:
        answer: the plan.
        folder: its folder.
        progress: called with what is running and the completed share of all runs.
    """
    from paceline.backend.training import train

    chosen = [plan for plan in (answer.best, answer.second) if plan is not None]
    verified = []
    for place, plan in enumerate(chosen):
        most = max(row["samples_to_target"] for row in plan.rows)
        scenario = load(folder / plan.path, [f"stop.samples={int(LONGER * most)}"])

        def report(now: str, done: float, place: int = place) -> None:
            if progress is not None:
                progress(now, (place + done) / len(chosen))

        runs = train(scenario, progress=report)
        by_seed = sorted(runs, key=lambda run: run.seed)
        times = [answer.request.target.figure.of(run.summary) for run in by_seed]
        slower = scenario.train.time_dilation
        notes = [said for run in runs if "pace" in run.summary and (said := say_pace(run.summary["pace"], slower))]
        measured = [None if time_s is None else time_s / slower for time_s in times]
        verified.append(Verified(candidate=plan, measured_s=measured, notes=notes[:1]))
    return verified


def verified_words(verified: Sequence[Verified]) -> str:
    """Describes the measured times, their errors, and whether the order is the predicted one.

    Args:
        verified: the verified plans, the best first.
    """
    lines = ["Trained for real, paced:"]
    for plan in verified:
        reached = sum(time is not None for time in plan.measured_s)
        predicted_s = plan.candidate.time_s
        if plan.mean_s is None or plan.error is None or predicted_s is None:
            lines.append(f"  {plan.candidate.choice.words}: reached with {reached} of {len(plan.measured_s)} seeds")
        else:
            lines.append(
                f"  {plan.candidate.choice.words}: predicted {TIME_TO_TARGET.with_symbol(predicted_s)}, measured "
                f"{TIME_TO_TARGET.with_symbol(plan.mean_s)} (error of the prediction {signed_percent(plan.error)} %)"
            )
    lines += [f"  note: {text}" for text in dict.fromkeys(text for plan in verified for text in plan.notes)]
    means = [plan.mean_s for plan in verified]
    if len(verified) == 2 and None not in means:
        kept = means[0] <= means[1]  # type: ignore[operator]
        lines.append(f"  The order is {'the predicted one' if kept else 'the opposite of the predicted one'}.")
    return "\n".join(lines)
