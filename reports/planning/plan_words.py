"""The answer of a plan in sentences: the best plans, why the others lose, cautions, and what is extrapolated."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

from paceline.records.figures import OF_PLANS, PERCENT, SECONDS, significant
from paceline.reports.comparison.ranking import rarely_evaluated
from paceline.reports.planning.objectives import OBJECTIVES, SLACK
from paceline.reports.planning.plan_answer import Candidate, PlanAnswer
from paceline.reports.planning.search_space import OWN_NODES
from paceline.reports.words import listed

SIMILAR = 0.02
"""relative difference of rates or samples below which they count as equal in sentences; provenance: ours"""
MOST_REASONS = 3
"""reasons that are listed for a method without a plan"""


def plan_words(answer: PlanAnswer) -> str:
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
        lines += ["Why the others lose:", *(f"  {one}" for one in losers)]
    lines += _cautions(answer)
    lines += ["What is extrapolated or assumed:", *(f"  {one}" for one in extrapolated(answer))]
    return "\n".join(lines)


def _costs(one: Candidate) -> str:
    """Formats all figures of a plan whose rates are known, with their intervals."""
    known = {"time": True, "cost": one.rates.usd_per_hour is not None, "energy": one.rates.watts is not None}
    return ", ".join(OF_PLANS[name].with_symbol(one.figure(name)) for name in OBJECTIVES if known[name])


def _compared(answer: PlanAnswer, best: Candidate, other: Candidate) -> str:
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
        parts.append(f"{significant(rates[1] / rates[0])} times the samples per second")
    needs = best.mean("samples_to_target"), other.mean("samples_to_target")
    if needs[0] and needs[1] and abs(needs[1] / needs[0] - 1) > SIMILAR:
        parts.append(f"{significant(needs[1] / needs[0])} times the samples to the target")
    idle = [sum(_share(one, name) for name in ("communication", "wait")) for one in (best, other)]
    if idle[1] > idle[0] + SIMILAR:
        best_idle, its_idle = map(PERCENT.with_symbol, idle)
        parts.append(f"its workers communicate or wait {its_idle} of the time, those of the best {best_idle}")
    where = other.choice.words.partition(" on ")[2]
    said = f"{significant(other.time_s / best.time_s)} times the time ({where})"
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
            f"Times are interpolated between evaluations, which lie up to {SECONDS.with_symbol(max(gaps))} apart "
            "around the target."
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
        intervals = one.rows[0]["prediction_interval"] or {}
        if (bounds := intervals.get("step_s")) is not None:
            said.append(
                f"{one.choice.words}: steps of similar predictions took {SECONDS.text(bounds['low'])} to "
                f"{SECONDS.with_symbol(bounds['high'])} ({PERCENT.with_symbol(intervals['share'])} of them)."
            )
        said += [f"{text[0].upper()}{text[1:]}." for text in one.rates.sources]
        said += [f"Outside the range of the model: {text}." for row in one.rows for text in row["warnings"]]
        said += [f"Extrapolated: {text}" for row in one.rows for text in row["extrapolated"] or ()]
        if one.choice.nodes == OWN_NODES and one.choice.workers > answer.workers:
            said.append(
                f"{one.choice.workers} workers are more than the {answer.workers} of the scenario's cluster: more such "
                "nodes on the same network are assumed."
            )
    return list(dict.fromkeys(said))
