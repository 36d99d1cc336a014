"""Which algorithm reaches a target first: the target, unfinished runs, ties, and what the seeds distinguish.

* A run that ended before the longest period of its method had passed once does not contain the method's rarest
  operation, such as the average of all workers in hbs-sgd, so it is faster than the method. Its figures are shown with
  a mark, but no sentence compares them with others.
* Two figures are equal if they look the same when shown, with half of their intervals if they have them. Without this
  rule the order of the algorithms in the scenario would decide which of two equal ones is called best.
* Two figures that look different, of which the intervals over seeds overlap, are not equal: the seeds do not
  distinguish them. A figure with a wide interval may be far from the best, so it is always shown with its interval.
* If one seed has no value, the figure is missing; the number of seeds that reached the target is shown beside it.
* Algorithms are compared seed by seed, since runs of the same seed share initial weights, samples and jitter: two are
  different if the interval of the mean difference excludes 0.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from paceline.records import Run
from paceline.records.figures import (
    TIME_TO_ACCURACY,
    TIME_TO_ACCURACY_RESOLUTION,
    TIME_TO_LOSS,
    TIME_TO_LOSS_RESOLUTION,
    Figure,
    half_width,
    number,
)
from paceline.records.metrics import interval
from paceline.reports.comparison.prediction_errors import AIMS, figure, together
from paceline.reports.words import listed

FEW = 5
"""so many evaluations at least show when a target is reached: the start, the end and three between, of which a mean of
three is known; provenance: ours"""


@dataclass(frozen=True, slots=True)
class Aim:
    """A target.

    Args:
        kind: accuracy or loss.
        value: the accuracy, 0 … 1, or the loss.
        of: which problem has it, if that is a stand-in for the scenario's model; else "".

    >>> Aim("accuracy", 0.93, "digits-mlp on digits standing in for resnet50").words
    '93 % accuracy of digits-mlp on digits standing in for resnet50'
    >>> Aim("accuracy", 0.93).words, Aim("loss", 0.1).words, Aim("loss", 0.1).path
    ('93 % accuracy', 'a loss of 0.1', 'time_to_loss_s')
    """

    kind: Literal["accuracy", "loss"]
    value: float
    of: str = ""

    @property
    def words(self) -> str:
        said = f"{100 * self.value:g} % accuracy" if self.kind == "accuracy" else f"a loss of {self.value:g}"
        return f"{said} of {self.of}" if self.of and self.kind == "accuracy" else said + f" ({self.of})" * bool(self.of)

    @property
    def figure(self) -> Figure:
        """The time to the target."""
        return TIME_TO_ACCURACY if self.kind == "accuracy" else TIME_TO_LOSS

    @property
    def resolution(self) -> Figure:
        """The resolution of that time."""
        return TIME_TO_ACCURACY_RESOLUTION if self.kind == "accuracy" else TIME_TO_LOSS_RESOLUTION

    @property
    def path(self) -> str:
        """The key of the time to the target in a summary."""
        return self.figure.key


def aim_of(summary: Mapping[str, Any]) -> Aim | None:
    """Returns the target accuracy of a run, or the target loss if it has no accuracy; None without a target."""
    accuracy, loss = summary.get("target_accuracy"), summary.get("target_loss")
    of = summary.get("stand_in") or ""
    if accuracy is not None and (loss is None or summary.get("final_accuracy") is not None):
        return Aim("accuracy", accuracy, of)
    return None if loss is None else Aim("loss", loss, of)


def rarely_evaluated(rows: Iterable[tuple[str, Mapping[str, Any]]]) -> str:
    """Describes which algorithms were evaluated too rarely to tell when they reach a target; "" if none.

    Args:
        rows: the name and the summary of each run; those that learn nothing, or that older versions stored,
            have no number.

    >>> rarely_evaluated([("sync-sgd", {"evaluations": 20}), ("diloco", {"evaluations": 3})])
    'diloco was evaluated only 3 times, so whether and when it reaches the target is uncertain; evaluate more often.'
    """
    few = [(name, int(count)) for name, row in rows if 0 < (count := row.get("evaluations") or 0) < FEW]
    if not few:
        return ""
    names, numbers = list(dict(few)), sorted({count for _, count in few})
    counts = " to ".join(str(number) for number in dict.fromkeys((numbers[0], numbers[-1])))
    were, they = ("was", "it reaches") if len(names) == 1 else ("were", "they reach")
    return (
        f"{listed(names)} {were} evaluated only {counts} times, so whether and when {they} the target is uncertain; "
        "evaluate more often."
    )


def common_aim(summaries: Iterable[Mapping[str, Any]]) -> Aim | None:
    """Returns the target of runs if it is the same for all of them, else None.

    >>> common_aim([{"target_loss": 0.8}, {"target_loss": 0.8}]), common_aim([{"target_loss": 0.8}, {}])
    (Aim(kind='loss', value=0.8, of=''), None)
    """
    aims = {aim_of(summary) for summary in summaries}
    return aims.pop() if len(aims) == 1 else None


MARK = "*"
"""follows the algorithm in tables"""


def is_unfinished(summary: Mapping[str, Any]) -> bool:
    """Whether a run, or the seeds of an algorithm together, ended before the longest period had passed once."""
    return (number(summary["periods"]) or 0.0) < 1


def marked(name: str, summary: Mapping[str, Any]) -> str:
    """Returns an algorithm's name in a table, with a mark if it is unfinished."""
    return name + MARK if is_unfinished(summary) else name


def finished(runs: Iterable[Run]) -> list[Run]:
    """Returns the runs of the algorithms without unfinished runs."""
    runs = list(runs)
    short = {run.algorithm for run in runs if is_unfinished(run.summary)}
    return [run for run in runs if run.algorithm not in short]


def say_unfinished(periods: Mapping[str, int], where: str = "") -> str:
    """Describes which algorithms ended too early.

    Args:
        periods: the longest period of each such algorithm, in steps of a worker.
        where: words after the names that say which runs.

    >>> say_unfinished({"hbs-sgd": 8})
    'Not compared: hbs-sgd (8 steps) ended before the longest period of the method, in steps of a worker, had passed \
once. Its figures, marked *, leave out what it does least often; a later `stop` includes it.'
    """
    if not periods:
        return ""
    names = ", ".join(f"{name} ({steps} steps)" for name, steps in periods.items())
    its, it = ("Its", "it does") if len(periods) == 1 else ("Their", "they do")
    return (
        f"Not compared: {names} ended{where} before the longest period of the method, in steps of a worker, had passed "
        f"once. {its} figures, marked {MARK}, leave out what {it} least often; a later `stop` includes it."
    )


def say_unfinished_runs(runs: Iterable[Run]) -> str:
    """Describes which algorithms of these runs ended too early; empty if all runs had a whole period."""
    return say_unfinished({run.algorithm: run.summary["longest_period"] for run in runs if is_unfinished(run.summary)})


Key = TypeVar("Key")

SHOWN_ALIKE = "equally (to the precision shown)"
"""why several names are in the first place"""


class Leaders(NamedTuple, Generic[Key]):
    """The names in the first place, and those that the seeds do not distinguish from it."""

    first: list[Key]
    """the name with the best figure, and those whose figures are equal"""
    close: list[Key]
    """names whose figures differ, but whose intervals overlap that of the best"""

    @property
    def all(self) -> list[Key]:
        return [*self.first, *self.close]


def leaders(values: Mapping[Key, Any], figure: Figure, *, worst: bool = False) -> Leaders[Key]:
    """Returns the names that share the first place, that with the best value first.

    Args:
        values: a number or ``{mean, low, high}`` for each name, none of them missing.
        figure: the figure, which says what is shown of a value, and whether low or high values are better.
        worst: whether to take the worst value instead.

    >>> from paceline.records.figures import FINAL_ACCURACY, TIME_TO_LOSS
    >>> leaders({"agd": 0.9998, "ssp": 1.0, "easgd": 0.4}, FINAL_ACCURACY)
    Leaders(first=['ssp', 'agd'], close=[])
    >>> wide = {"mean": 1.35, "low": -0.92, "high": 3.62}
    >>> leaders({"agd": {"mean": 0.61, "low": 0.6, "high": 0.62}, "ssp": wide}, TIME_TO_LOSS)
    Leaders(first=['agd'], close=['ssp'])
    """
    means: dict[Key, float] = {name: number(value) or 0.0 for name, value in values.items()}
    least = (figure.better == "low") != worst
    best = (min if least else max)(means, key=lambda name: means[name])
    others = [name for name in values if name != best]
    same = [name for name in others if equal(values[best], values[name], figure)]
    close = [name for name in others if name not in same and overlap(values[best], values[name])]
    return Leaders([best, *same], close)


def equal(value: Any, other: Any, figure: Figure) -> bool:
    """Whether two values look the same when shown, with half of their intervals.

    >>> from paceline.records.figures import TIME_TO_LOSS
    >>> wide = {"mean": 1.0, "low": -1.0, "high": 3.0}
    >>> equal({"mean": 1.0, "low": 0.8, "high": 1.2}, wide, TIME_TO_LOSS), equal(1.0, 1.0, TIME_TO_LOSS)
    (False, True)
    """
    ends = ([half_width(value) or 0.0, half_width(other) or 0.0], [number(value) or 0.0, number(other) or 0.0])
    return all(figure.text(a) == figure.text(b) or math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12) for a, b in ends)


def overlap(first: Any, second: Any) -> bool:
    """Whether two figures have intervals, and these overlap.

    >>> overlap({"mean": 1.0, "low": 0.8, "high": 1.2}, {"mean": 1.3, "low": 1.1, "high": 1.5}), overlap(1.0, 1.0)
    (True, False)
    """
    both = isinstance(first, Mapping) and isinstance(second, Mapping)
    return both and bool(first["low"] <= second["high"] and second["low"] <= first["high"])


def undecided(
    close: Iterable[tuple[str, Any]],
    figure: Figure,
    *,
    seeds: int | None = None,
    them: str = "it",
    most: int = 4,
) -> str:
    """Describes which figures the seeds do not distinguish from the best one, with their intervals; "" if none.

    Args:
        close: names and values.
        figure: the figure.
        seeds: the number of seeds, if it is known.
        them: a pronoun for what is best.
        most: number of figures that are listed; of more, the number is said.

    >>> from paceline.records.figures import TIME_TO_LOSS
    >>> undecided([("ssp", {"mean": 1.35, "low": -0.92, "high": 3.62})], TIME_TO_LOSS, seeds=3)
    '; 3 seeds do not distinguish it from ssp (1.35 ±2.3 s; 95 % intervals overlap)'
    """
    close = list(close)
    if not close:
        return ""
    said = [f"{name} ({figure.with_symbol(value)}" for name, value in close[:most]]
    words = [*(f"{phrase})" for phrase in said[:-1]), f"{said[-1]}; 95 % intervals overlap)"]
    if len(close) > most:
        words.append(f"{len(close) - most} more")
    return f"; {seeds or 'the'} seeds do not distinguish {them} from {listed(words)}"


Summaries = Sequence[Mapping[str, Any]]


def by_algorithm(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """Returns the runs of each algorithm, ordered by seed."""
    grouped: dict[str, list[Run]] = {}
    for run in runs:
        grouped.setdefault(run.algorithm, []).append(run)
    return {name: sorted(of_method, key=lambda run: run.seed) for name, of_method in grouped.items()}


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
    times = {name: [aim.figure.of(run.summary) for run in of_method] for name, of_method in by_algorithm(runs).items()}
    whole = {name: of_method for name, of_method in times.items() if None not in of_method}
    sentences = [_first(aim, whole, len(times))] if whole else []
    sentences += list(
        _missed(aim, {name: of_method for name, of_method in times.items() if None in of_method}, alone=not whole)
    )
    if whole:
        sentences.append(_how(aim, runs))
    sentences.append(rarely_evaluated((run.algorithm, run.summary) for run in runs))
    return " ".join(filter(None, sentences))


def _learns(run: Run) -> bool:
    """Whether a run has an accuracy or a loss, so that it could have reached a target."""
    return bool(run.scenario.get("workload", {}).get("learning") != "none")


def _first(aim: Aim, times: Mapping[str, Sequence[float]], algorithms: int) -> str:
    """Describes which algorithm is first on average, which are equal, and which the seeds distinguish from it."""
    figures_s = {name: figure(of_method) for name, of_method in times.items()}
    first = leaders(figures_s, aim.figure).first
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
    apart = [name for name in others if all(told_apart(times[leader], times[name]) for leader in first)]
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
    difference = interval([other - time for time, other in zip(times, others, strict=True)])
    return not difference["low"] <= 0 <= difference["high"]


def _missed(aim: Aim, times: Mapping[str, Sequence[float | None]], *, alone: bool) -> Iterable[str]:
    """Yields sentences about algorithms that missed the target with some seeds; `alone`: no algorithm reached it."""
    some = {name: of_method for name, of_method in times.items() if any(time is not None for time in of_method)}
    if alone:
        by = "with every seed by" if some else "by"
        yield f"{aim.words[0].upper()}{aim.words[1:]} was reached {by} no algorithm."
    for name, of_method in some.items():
        yield f"{name} reached it with {sum(time is not None for time in of_method)} of {len(of_method)} seeds."
    if (never := [name for name in times if name not in some]) and not alone:
        yield f"{listed(never)} did not reach it."


def _how(aim: Aim, runs: Sequence[Run]) -> str:
    """Describes the interpolation of the times and their resolution."""
    gaps = [gap for run in runs if (gap := aim.resolution.of(run.summary)) is not None]
    how = runs[0].summary["interpolation"]
    return f"Times are {how}; around the target, evaluations lie up to {aim.resolution.with_symbol(max(gaps))} apart."
