"""Printed results of a plan: the table, the answer in sentences, and what is extrapolated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import fmean
from typing import Any

from rich.table import Table

from paceline.records.figures import significant
from paceline.reports.comparison.time_to_target import rarely_evaluated
from paceline.reports.comparison.words import MISSING, listed
from paceline.reports.plain_table import plain_table
from paceline.reports.planning.objectives import SLACK, UNITS, Objective
from paceline.reports.planning.plan_answer import Candidate, PlanAnswer
from paceline.reports.planning.search_space import OWN_NODES

SIMILAR = 0.02
"""relative difference of rates or samples below which they count as equal in sentences; provenance: ours"""
SHORT = 8
"""characters of the longest name of nodes up to which it is written beside the number of workers without a break"""
MOST_REASONS = 3
"""reasons that are listed for a method without a plan"""


def quantity(value: float, unit: str) -> str:
    """Formats a figure with three digits.

    >>> quantity(1.2345, "s"), quantity(7200.0, "s"), quantity(0.00041, "USD")
    ('1.23 s', '2 h', '0.00041 USD')
    """
    if unit == "s" and value >= 5400:
        return f"{significant(value / 3600)} h"
    return f"{significant(value)} {unit}"


def figure_text(figure: Any, unit: str) -> str:
    """Formats a figure with its interval.

    >>> figure_text({"mean": 2.0, "low": 1.5, "high": 2.5}, "s"), figure_text(2.0, "s"), figure_text(None, "s")
    ('2 s (1.5 to 2.5)', '2 s', '–')
    """
    if figure is None:
        return MISSING
    if not isinstance(figure, Mapping):
        return quantity(figure, unit)
    return f"{quantity(figure['mean'], unit)} ({significant(figure['low'])} to {significant(figure['high'])})"


def plan_table(answer: PlanAnswer) -> Table:
    """Returns a table of the Pareto front and of the best plan of each other method."""
    objectives = answer.request.objectives
    table = plain_table(
        f"Plans for {answer.request.target.words}: {len(answer.front)} on the Pareto front (*), "
        f"{answer.request.reported_seeds} fresh seeds",
        first="method",
    )
    names = max(answer.space.nodes, key=len)
    missed = any(len(one.times_s) < len(one.rows) for one in answer.candidates)
    wide = len(objectives) == 1  # for 80 columns; plan.json has the other figures
    table.add_column("work-\ners", justify="right", no_wrap=len(answer.space.nodes) < 2 or len(names) < SHORT)
    table.add_column("batch", justify="right")
    table.add_column("hyper-\nparameters", no_wrap=True)
    headers = [f"{name}\n{UNITS[name]}" for name in objectives]
    headers += ["samples\n/s", "samples\nneeded"] if wide else []
    for header in [*headers, *(["reach"] if missed else [])]:
        table.add_column(header, justify="right", no_wrap=True)
    front = {id(one) for one in answer.front}
    for one in [*answer.shown, *(other for other in answer.candidates if other.reason)]:
        cells = _cells(one, objectives, mark="*" if id(one) in front else "", wide=wide)
        table.add_row(*cells, *([f"{len(one.times_s)}/{len(one.rows)}"] if missed else []))
    return table


def _cells(one: Candidate, objectives: tuple[Objective, ...], *, mark: str, wide: bool) -> list[str]:
    choice = one.choice
    own = "\n".join(
        f"{name} {significant(value)}" if isinstance(value, float) else f"{name} {value}"
        for name, value in choice.hyperparameters.items()
    )
    rate, needed = one.mean("samples_per_s"), one.mean("samples_to_target")
    further = [MISSING if value is None else f"{value:,.0f}" for value in (rate, needed)]
    return [
        choice.method + mark,
        str(choice.workers) if choice.nodes == OWN_NODES else f"{choice.workers} {choice.nodes}",
        str(choice.batch_per_worker),
        own,
        *(_cell(one.figure(name)) for name in objectives),
        *(further if wide else []),
    ]


def _cell(figure: Any) -> str:
    if figure is None:
        return MISSING
    if not isinstance(figure, Mapping):
        return significant(figure)
    half = (figure["high"] - figure["low"]) / 2
    return f"{significant(figure['mean'])} ±{half:.1g}"


def plan_words(answer: PlanAnswer) -> str:
    """Describes the best and the second-best plan, what they cost, why the others lose, and what is extrapolated."""
    best, second = answer.best, answer.second
    several = answer.request.reported_seeds > 1
    level = "95 % intervals in brackets" if several else "one seed does not say how much of that is chance"
    lines = [f"Best: {best.choice.words}: {answer.request.target.words} in {_costs(best)}; {level}."]
    if second is not None:
        lines.append(
            f"Second best{_kind_of_second(answer, second)}: {second.choice.words}: {_costs(second)}. "
            f"{_compared(answer, best, second)}"
        )
    lines += _other_ends(answer)
    losers = list(_losers(answer))
    if losers:
        lines += ["Why the others lose:", *(f"  {one}" for one in losers)]
    lines += _cautions(answer)
    lines += ["What is extrapolated or assumed:", *(f"  {one}" for one in extrapolated(answer))]
    return "\n".join(lines)


def _kind_of_second(answer: PlanAnswer, second: Candidate) -> str:
    return " (best plan of another method)" if second.choice.method != answer.best.choice.method else ""


def _costs(one: Candidate) -> str:
    """Formats all figures of a plan whose rates are known, the objectives with their intervals."""
    said = [figure_text(one.figure("time"), UNITS["time"])]
    if one.rates.usd_per_hour is not None:
        said.append(figure_text(one.figure("cost"), UNITS["cost"]))
    if one.rates.watts is not None:
        said.append(figure_text(one.figure("energy"), UNITS["energy"]))
    return ", ".join(said)


def _compared(answer: PlanAnswer, best: Candidate, other: Candidate) -> str:
    """Describes the difference of two times, and whether the seeds distinguish them."""
    assert best.time_s is not None
    assert other.time_s is not None
    more = other.time_s / best.time_s - 1
    apart = answer.apart(best, other)
    said = f"It takes {100 * abs(more):.0f} % {'longer' if more >= 0 else 'less time'}"
    if apart is None:
        return f"{said}; one seed does not say how much of that is chance."
    seeds = len(best.times_s)
    sure = "distinguish" if apart else "do not distinguish"
    return f"{said}; {seeds} seeds {sure} the two (paired differences, 95 %)."


def _other_ends(answer: PlanAnswer) -> list[str]:
    """Names the plan with the lowest figure of each further objective."""
    said = []
    for name in answer.request.objectives[1:]:
        at = answer.request.objectives.index(name)
        lowest = min(answer.front, key=lambda one: one.values(answer.request.objectives)[at])
        if lowest is not answer.best:
            said.append(f"Least {name}: {lowest.choice.words}: {_costs(lowest)}.")
    return said


def _losers(answer: PlanAnswer) -> Iterator[str]:
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
        reasons = answer.reasons(method)
        count = sum(one.choice.method == method for one in answer.trials)
        said = "; ".join(f"{reason} ({times})" for reason, times in reasons.most_common(MOST_REASONS))
        failed = [one.reason for one in answer.candidates if one.choice.method == method and one.reason]
        yield f"{method}: no plan in {count} trial{'s' * (count != 1)}: {said or '; '.join(failed)}"


def _why_slower(best: Candidate, other: Candidate) -> str:
    """Explains a plan's time by its rate and by the samples that it needs, relative to the best plan."""
    assert best.time_s is not None
    assert other.time_s is not None
    parts = []
    rates = best.mean("samples_per_s"), other.mean("samples_per_s")
    if rates[0] and rates[1] and abs(rates[1] / rates[0] - 1) > SIMILAR:
        parts.append(f"{rates[1] / rates[0]:.2f} times the samples per second")
    needs = best.mean("samples_to_target"), other.mean("samples_to_target")
    if needs[0] and needs[1] and abs(needs[1] / needs[0] - 1) > SIMILAR:
        parts.append(f"{needs[1] / needs[0]:.2f} times the samples to the target")
    idle = [sum(_share(one, name) for name in ("communication", "wait")) for one in (best, other)]
    if idle[1] > idle[0] + SIMILAR:
        best_idle, its_idle = (f"{100 * share:.0f} %" for share in idle)
        parts.append(f"its workers communicate or wait {its_idle} of the time, those of the best {best_idle}")
    ratio = other.time_s / best.time_s
    where = other.choice.words.partition(" on ")[2]
    said = f"{ratio:.2f} times the time ({where})"
    return f"{said}: {', '.join(parts)}" if parts else said


def _share(one: Candidate, name: str) -> float:
    return fmean(float(row["time_fraction"].get(name, 0.0)) for row in one.rows)


def _cautions(answer: PlanAnswer) -> list[str]:
    """Returns what should be checked: hyper-parameters at an end of their range, stopped trials, coarse evaluations."""
    said = []
    for place, one in (("best", answer.best), ("second-best", answer.second)):
        if one is not None and (names := answer.wide_enough(one)):
            said.append(
                f"Take care: {listed(names)} of the {place} plan is at an end of its range; a wider "
                "plan.hyperparameters may give a better plan."
            )
    if few := rarely_evaluated(
        (one.choice.words, row) for one in answer.shown for row in one.rows if row["extrapolated"] is None
    ):
        said.append(f"Take care: {few}")
    gaps = [row["resolution_s"] for one in answer.shown for row in one.rows if row["resolution_s"] is not None]
    if gaps:
        said.append(
            "Times are interpolated between evaluations, which lie up to "
            f"{significant(max(gaps))} s apart around the target."
        )
    stopped = sum(one.reason.startswith("stopped") for one in answer.trials)
    if stopped:
        said.append(
            f"{stopped} of {len(answer.trials)} trials were stopped when they were {SLACK:g} times as bad as another "
            "plan in every objective, or beyond a limit."
        )
    return said


def extrapolated(answer: PlanAnswer) -> list[str]:
    """Returns sentences about what the figures of the shown plans assume."""
    said = [answer.learning]
    for one in answer.shown:
        said += [f"Time of a gradient on {text}." for text in one.devices]
        said += [
            f"{one.choice.words}: steps of similar predictions took {significant(found['low'])} to "
            f"{significant(found['high'])} s ({100 * found['share']:.0f} % of them)."
            for row in one.rows[:1]
            if (found := _step_range(row)) is not None
        ]
        said += [f"{text[0].upper()}{text[1:]}." for text in one.rates.sources]
        said += [f"Outside the range of the model: {text}." for row in one.rows for text in row["warnings"]]
        said += [f"Extrapolated: {text}" for row in one.rows for text in row["extrapolated"] or ()]
        if one.choice.nodes == OWN_NODES and one.choice.workers > answer.workers:
            said.append(
                f"{one.choice.workers} workers are more than the {answer.workers} of the scenario's cluster: more such "
                "nodes on the same network are assumed."
            )
    return list(dict.fromkeys(said))


def _step_range(row: Mapping[str, Any]) -> Mapping[str, float] | None:
    """Returns the interval of the mean step time, ``{low, high, share}``; None if it is not known."""
    found = row["prediction_interval"]
    step = None if found is None else found.get("step_s", {}).get("mean")
    return None if step is None or found is None else {**step, "share": found["share"]}
