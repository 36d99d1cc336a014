"""The conclusion of a comparison, in sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from paceline.records.figures import SECONDS, STEP_TIME, number, written
from paceline.reports.comparison.comparison import ComparedLine, ComparisonResult, Predicts
from paceline.reports.comparison.predict import WRONG_MODELS
from paceline.reports.comparison.prediction_errors import Tree
from paceline.reports.comparison.ranking import (
    SHOWN_ALIKE,
    Aim,
    Leaders,
    is_unfinished,
    leaders,
    rarely_evaluated,
    say_unfinished,
    undecided,
)
from paceline.reports.words import listed, worst
from paceline.topologies.catalogue.machine_profile import caution, is_poor

CLEAN_LOAD = 0.05
"""load by other programs above which measured times are unreliable: one busy core of two made steps 5–14 % longer"""


def conclusion(comparison: ComparisonResult) -> str:
    """Returns the conclusion of a comparison in sentences."""
    sentences = (
        _soonest(comparison),
        _rarely_evaluated(comparison),
        _unfinished(comparison),
        _accuracy_of_prediction(comparison),
        say_speed(comparison.lines),
        say_load(comparison.other_load, "the measured" if comparison.predicts == "calibrated machine" else "this"),
        say_machine(comparison.predicts),
        say_transports(comparison.transports),
        say_calibration(comparison.calibration),
    )
    return " ".join(sentence for sentence in sentences if sentence)


def say_speed(lines: Sequence[ComparedLine]) -> str:
    """Describes which part of the errors is the machine's change of speed; "" if it is not known.

    Args:
        lines: the algorithms.
    """
    known = [line for line in lines if line.machine_change is not None and line.corrected is not None]
    if not known:
        return ""
    changes = [abs(line.machine_change or 0.0) for line in known]
    before, after = (
        fmean(abs(number(STEP_TIME.of(errors or {})) or 0.0) for errors in side)
        for side in ([line.error for line in known], [line.corrected for line in known])
    )
    return (
        f"Between calibration and runs, the speed of this machine changed by {100 * fmean(changes):.0f} % on average. "
        f"At the speed that it had in each run, the mean error of the step times is {100 * after:.1f} % instead of "
        f"{100 * before:.1f} %."
    )


def say_machine(predicts: Predicts) -> str:
    """Returns a sentence about the machine whose runs the simulation predicted, which is not the scenario's cluster.

    Args:
        predicts: of the comparison.

    >>> say_machine("calibrated machine")
    "Simulated times are those of the calibrated machine; `paceline simulate` predicts the scenario's own cluster."
    """
    machine = {
        "this machine": "this machine, whose messages were timed before the runs",
        "emulated network": "this machine and the network that it emulates, which were timed before the runs",
        "calibrated machine": "the calibrated machine",
        "hosts of this run": "the hosts of these runs, which were timed before the runs",
    }[predicts]
    return f"Simulated times are those of {machine}; `paceline simulate` predicts the scenario's own cluster."


def say_transports(transports: Mapping[str, Sequence[str]]) -> str:
    """Returns a sentence about the transports that were measured; "" if they are not known.

    Args:
        transports: of collectives and of messages.

    >>> say_transports({"collectives": ["shared memory"], "messages": ["gloo", "shared memory"]})
    'Measured were collectives over shared memory, and messages over gloo and shared memory.'
    """
    parts = [f"{traffic} over {listed(names)}" for traffic, names in transports.items() if names]
    return f"Measured were {', and '.join(parts)}." if parts else ""


def _rarely_evaluated(comparison: ComparisonResult) -> str:
    """Describes whose evaluations are too few for an answer about the target; "" without a target."""
    if comparison.aim is None:
        return ""
    return rarely_evaluated((line.name, side) for line in comparison.lines for side in (line.simulated, line.measured))


def _soonest(comparison: ComparisonResult) -> str:
    aim = comparison.aim
    early = {line.name for line in comparison.lines if is_unfinished(line.simulated) or is_unfinished(line.measured)}
    compared = [line for line in comparison.lines if line.name not in early]
    if aim is None or not compared:
        return ""
    goal = aim.words
    predicted = _times({line.name: line.simulated for line in compared}, aim.path)
    measured = _times({line.name: line.measured for line in compared}, aim.path)
    if not predicted or not measured:
        sides = "in no measured run" if predicted else "in no simulated run" if measured else "by no algorithm"
        return f"{goal} was reached {sides}."
    expected, actual = (leaders(side, aim.figure) for side in (predicted, measured))
    first, best = expected.first[0], actual.first[0]
    unsure = _unsure(aim, expected, predicted, "simulated") + _unsure(aim, actual, measured, "measured")
    names, equally = listed(actual.first), f", {SHOWN_ALIKE}" if len(actual.first) > 1 else ""
    same = set(expected.first) == set(actual.first) or (first == best and bool(unsure))
    if same and set(expected.all) == set(actual.all):
        reach = f"reach {goal} soonest{equally}," if equally else f"reaches {goal} soonest,"
        times = f"{_time(predicted, best)} simulated, {_time(measured, best)} measured"
        return f"{names} {reach} as predicted: {times}{unsure}."
    return (
        f"{names} reached {goal} soonest{equally}, in {_time(measured, best)}; "
        f"predicted soonest {'was' if len(expected.first) == 1 else 'were'} {listed(expected.first)} "
        f"with {_time(predicted, first)} "
        f"({best}: {_time(predicted, best)} predicted; {first}: {_time(measured, first)} measured){unsure}."
    )


def _unsure(aim: Aim, leaders: Leaders[str], times_s: Mapping[str, Any], side: str) -> str:
    """Describes which algorithms the seeds do not distinguish from the first, on one side; "" if none."""
    close = [(name, times_s[name]) for name in leaders.close]
    return undecided(close, aim.figure, them=f"{listed(leaders.first)} as {side}")


def say_calibration(verdict: str | None) -> str:
    """Describes how far the costs can be trusted that predictions rest on; "" if that was not judged, or is good.

    Args:
        verdict: of the calibration or of the probe.

    >>> say_calibration("fair: other programs used 10 % of the cores during the probe")
    'The measured costs that predictions rest on are fair: other programs used 10 % of the cores during the probe.'
    """
    if not verdict or (verdict.startswith("good") and "quietest of" not in verdict and not is_poor(verdict)):
        return ""
    return f"The measured costs that predictions rest on are {caution(verdict) or verdict}."


def _unfinished(comparison: ComparisonResult) -> str:
    return say_unfinished(
        {
            line.name: int(line.simulated["longest_period"])
            for line in comparison.lines
            if is_unfinished(line.simulated) or is_unfinished(line.measured)
        }
    )


def _times(summaries: Mapping[str, Tree], path: str) -> dict[str, Any]:
    """Returns the seconds to the target of algorithms that reached it: numbers or, with several seeds, intervals."""
    return {name: summary[path] for name, summary in summaries.items() if summary[path] is not None}


def _time(times_s: Mapping[str, Any], name: str) -> str:
    return f"{written(times_s[name], SECONDS)} s" if name in times_s else "not reached"


def _accuracy_of_prediction(comparison: ComparisonResult) -> str:
    errors = {
        line.name: abs(value) for line in comparison.lines if (value := number(STEP_TIME.of(line.error))) is not None
    }
    if not errors:
        return ""
    name = max(errors, key=lambda name: errors[name])
    words = f"Step times were predicted within {100 * errors[name]:.1f} % (worst: {name})"
    wrong = [
        worst([number(STEP_TIME.of(line.wrong_models[model])) for line in comparison.lines]) for model in WRONG_MODELS
    ]
    if None in wrong:
        return f"{words}."
    free, even, line = map(_size, wrong)
    return (
        f"{words}; without message cost it would have been {free} %, without spread {even} %, "
        f"by the α–β model {line} %."
    )


def say_load(share: float, which: str = "this") -> str:
    """Describes the load by other programs while runs were measured.

    Args:
        share: the fraction of all cores that they used, 0 … 1.
        which: a word before "machine" that says on which machine.

    >>> say_load(0.012)
    'Other programs took 1.2 % of this machine meanwhile.'
    """
    words = f"Other programs took {100 * share:.1f} % of {which} machine meanwhile"
    return f"{words}, so take the measured times with care." if share > CLEAN_LOAD else f"{words}."


def _size(value: float | None) -> str:
    return f"{100 * abs(value or 0.0):.1f}"
