"""Runs of several seeds: the figures of each algorithm with their intervals, and which reaches the target first.

Rules of this file:

* If one seed has no value, the figure is missing; the number of seeds that reached the target is shown beside it.
* Algorithms that ended before their longest period had passed once are not compared. Algorithms whose shown figures are
  the same, with half of their intervals, are equal; this is not the same as not distinguished by the seeds.
* Algorithms are compared seed by seed, since runs of the same seed share initial weights, samples and jitter: two are
  different if the interval of the mean difference excludes 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from paceline.records import Run
from paceline.records.metrics import interval
from paceline.reports.comparison.periods import finished
from paceline.reports.comparison.prediction_errors import AIMS, figure, together
from paceline.reports.comparison.ties import SHOWN_ALIKE, leaders
from paceline.reports.comparison.time_to_target import Aim, aim_of, rarely_evaluated
from paceline.reports.comparison.words import listed

Summaries = Sequence[Mapping[str, Any]]


def by_algorithm(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """Returns the runs of each algorithm, ordered by seed."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(run.algorithm, []).append(run)
    return {name: sorted(mine, key=lambda run: run.seed) for name, mine in found.items()}


def figures(summaries: Summaries) -> dict[str, Any]:
    """Returns all figures of one algorithm's seeds for a JSON answer."""
    return {
        "seeds": len(summaries),
        "reached": {aim: _reached(summaries, aim) for aim in AIMS},
        "stop_reason": dict(
            Counter(summary["stop_reason"] for summary in summaries if summary["stop_reason"] is not None)
        ),
        "summary": together(summaries),
    }


def _reached(summaries: Summaries, aim: str) -> int | None:
    """Returns how many seeds reached a target; None without a target."""
    if summaries[0][f"target_{aim}"] is None:
        return None
    return sum(summary[f"time_to_{aim}_s"] is not None for summary in summaries)


def soonest(runs: Sequence[Run]) -> str:
    """Describes which algorithm reaches the target first, and whether the seeds distinguish it from the others."""
    aim, runs = aim_of(runs[0].summary), finished(runs)
    if aim is None or not runs or not any(map(_learns, runs)):
        return ""
    times = {name: [aim.figure.of(run.summary) for run in mine] for name, mine in by_algorithm(runs).items()}
    whole = {name: mine for name, mine in times.items() if None not in mine}
    sentences = [_first(aim, whole, len(times))] if whole else []
    sentences += list(_missed(aim, {name: mine for name, mine in times.items() if None in mine}, alone=not whole))
    if whole:
        sentences.append(_how(aim, runs))
    sentences.append(rarely_evaluated((run.algorithm, run.summary) for run in runs))
    return " ".join(filter(None, sentences))


def _learns(run: Run) -> bool:
    """Whether a run has an accuracy or a loss, so that it could have reached a target."""
    return bool(run.scenario.get("workload", {}).get("learning") != "none")


def _first(aim: Aim, times: Mapping[str, Sequence[float]], algorithms: int) -> str:
    """Describes which algorithm is first on average, which are equal, and which the seeds distinguish from it."""
    figures_s = {name: figure(mine) for name, mine in times.items()}
    first = leaders(figures_s, aim.figure.text, least=True).first
    best = first[0]
    seeds = len(times[best])
    taken = aim.figure.with_symbol(figures_s[best])
    if len(first) > 1:
        said = f"{listed(first)} reach {aim.words} soonest, {SHOWN_ALIKE}, in {taken}"
    else:
        said = f"{best} reaches {aim.words}{' soonest' if algorithms > 1 else ''}, in {taken}"
    them, they = ("them", "they are") if len(first) > 1 else ("it", "it is")
    others = [name for name in times if name not in first]
    if not others:
        return f"{said}."
    if seeds == 1:
        return f"{said}; one seed does not say how much of that is chance."
    apart = [name for name in others if all(told_apart(times[one], times[name]) for one in first)]
    close = [name for name in others if name not in apart]
    if not close:
        return f"{said}; {seeds} seeds distinguish {them} from the others (paired differences, 95 %)."
    others = [f"{name} ({aim.figure.with_symbol(figures_s[name])})" for name in close]
    return f"{said}; {they} not distinguished from {listed(others)} by {seeds} seeds (paired differences, 95 %)."


def told_apart(times: Sequence[float], others: Sequence[float]) -> bool:
    """Whether the 95 % interval of the mean paired difference excludes 0.

    >>> told_apart([1.0, 2.0, 3.0], [2.0, 3.1, 4.0]), told_apart([1.0, 2.0, 3.0], [0.5, 3.0, 4.0])
    (True, False)
    """
    found = interval([other - one for one, other in zip(times, others, strict=True)])
    return not found["low"] <= 0 <= found["high"]


def _missed(aim: Aim, times: Mapping[str, Sequence[float | None]], *, alone: bool) -> Iterable[str]:
    """Yields sentences about algorithms that missed the target with some seeds; `alone`: no algorithm reached it."""
    some = {name: mine for name, mine in times.items() if any(time is not None for time in mine)}
    if alone:
        by = "with every seed by" if some else "by"
        yield f"{aim.words[0].upper()}{aim.words[1:]} was reached {by} no algorithm."
    for name, mine in some.items():
        yield f"{name} reached it with {sum(time is not None for time in mine)} of {len(mine)} seeds."
    if (never := [name for name in times if name not in some]) and not alone:
        yield f"{listed(never)} did not reach it."


def _how(aim: Aim, runs: Sequence[Run]) -> str:
    """Describes the interpolation of the times and their resolution."""
    gaps = [gap for run in runs if (gap := aim.resolution.of(run.summary)) is not None]
    how = runs[0].summary["interpolation"]
    return f"Times are {how}; around the target, evaluations lie up to {aim.resolution.with_symbol(max(gaps))} apart."
