"""Prints extrapolations from simulated runs: a table, marked as extrapolated in its header, and all assumptions.

Throughput and statistical efficiency are shown side by side, so that a reader sees the factors of a time. If one seed's
evidence did not reach the target, it is "not reached", since a mean over the others would be biased.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from paceline.records import Run
from paceline.records.extrapolated import Extrapolated
from paceline.records.figures import HOURS, MILLIONS, PERCENT, PLAIN, THROUGHPUT, TIME_TO_TARGET, number
from paceline.reports.blocks import Column, Table, TableCell
from paceline.reports.comparison.prediction_errors import figure
from paceline.reports.comparison.ranking import SHOWN_ALIKE, is_unfinished, leaders, undecided
from paceline.reports.words import listed

PENALTY, TO_TARGET = "statistical_penalty", ("samples_to_target", "time_to_target_s")
KEYS = (PENALTY, *TO_TARGET, "samples_per_s")
NAMED = ("label", "method", "reference", "single_run", "relation_errors")
"""what is equal for all seeds; the last two are missing in runs of earlier versions"""
NOT_REACHED = "not reached"


def lines_of(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Returns one line per algorithm for a JSON answer, with the figures of its seeds combined."""
    by_name: dict[str, list[Extrapolated]] = {}
    periods: dict[str, list[float]] = {}
    for run in runs:
        if "extrapolated" in run.summary:
            by_name.setdefault(run.algorithm, []).append(run.summary["extrapolated"])
            periods.setdefault(run.algorithm, []).append(run.summary["periods"])
    return [{**_line(name, blocks), "periods": figure(periods[name])} for name, blocks in by_name.items()]


def _line(name: str, blocks: Sequence[Extrapolated]) -> dict[str, Any]:
    first = blocks[0]
    figures = {path: figure([block[path] for block in blocks]) for path in KEYS}  # type: ignore[literal-required]
    assumptions = list(dict.fromkeys(sentence for block in blocks for sentence in block["assumptions"]))
    every: dict[str, Any] = dict(first)
    named = {key: every[key] for key in NAMED if key in every}
    evidence = {key: _together([block["evidence"][key] for block in blocks]) for key in first["evidence"]}
    return {"algorithm": name, **named, **figures, "evidence": evidence, "assumptions": assumptions}


def _together(values: Sequence[Any]) -> Any:
    """Returns a value that all seeds share unchanged, and different figures as their interval."""
    return values[0] if all(value == values[0] for value in values) else figure(values)


def extrapolation_table(lines: Sequence[dict[str, Any]]) -> Table:
    """Returns the table of times to the target and their two factors."""
    first = lines[0]
    columns = [
        Column("algorithm"), Column.of(THROUGHPUT), Column("samples against the reference", PLAIN, code=PENALTY),
        Column("samples", MILLIONS, code="samples_to_target"), Column("time", HOURS, code="time_to_target_s"),
    ]  # fmt: skip
    rows = [
        (line["algorithm"], line["samples_per_s"], _or_not(line[PENALTY]), _or_not(line[TO_TARGET[0]]), _time(line))
        for line in lines
    ]
    title = f"Extrapolated, not trained, from a {first['method']}: {first['reference']['reaches']}"
    words = ""
    if "single_run" in first:
        words = f"Below a time: {PERCENT.with_symbol(first['single_run']['share'])} of single runs."
    return Table(title, columns, rows, words=words)


def _or_not(value: Any) -> TableCell:
    return TableCell(value, words=NOT_REACHED if value is None else "")


def _time(line: dict[str, Any]) -> TableCell:
    """Returns the cell of a time to the target, with the interval of a single run."""
    cell, factors, mean = _or_not(line[TO_TARGET[1]]), line.get("single_run"), number(line[TO_TARGET[1]])
    if factors is None or mean is None:
        return cell
    return replace(cell, low=mean * factors["low"], high=mean * factors["high"])


def words(lines: Sequence[dict[str, Any]]) -> str:
    """Describes the fastest algorithm and all assumptions, those that all lines share only once."""
    times = {
        line["algorithm"]: line["time_to_target_s"]
        for line in lines
        if line["time_to_target_s"] is not None and not is_unfinished(line)
    }
    said = ["Extrapolated: no run here trained this model."]
    if times:
        hours = replace(TIME_TO_TARGET, unit=HOURS)
        first, close = leaders(times, hours)
        equally = f", {SHOWN_ALIKE}," if len(first) > 1 else ""
        said[0] += f" Soonest {'are' if equally else 'is'} {listed(first)}{equally} with "
        said[0] += hours.with_symbol(times[first[0]])
        said[0] += undecided([(name, times[name]) for name in close], hours, them="them" if equally else "it")
        by = ", by the samples that a stand-in needs" if lines[0]["method"] == "stand-in" else ""
        said[0] += f"{by}, if all of this holds:"
    else:
        said[0] += " Nothing reached its target; what this would rest on:"
    everything = list(dict.fromkeys(sentence for line in lines for sentence in line["assumptions"]))
    shared = [sentence for sentence in everything if all(sentence in line["assumptions"] for line in lines)]
    said += [
        f"- {sentence}" for sentence in (*shared, *(sentence for sentence in everything if sentence not in shared))
    ]
    return "\n".join(said)
