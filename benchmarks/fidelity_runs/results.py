"""The rows of results: one for each configuration, appended to a CSV file as soon as it has been measured."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

from paceline.records import Run
from paceline.records.figures import ACTIVITIES, number
from paceline.reports.comparison.comparison import ComparedLine


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where, when and with what a configuration was measured."""

    date: str
    commit: str
    processor: str
    cores: int
    python: str
    torch: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The errors of one configuration. Errors are (predicted − measured) / measured; a missing figure is None.

    Args:
        configuration: its name.
        group: the group, which depends on the cores of the machine.
        setting: the name of the setting.
        method: the method.
        model: the model.
        workers: the number of workers.
        batch: samples of a gradient.
        seeds: the number of seeds.
        step_predicted_s: the predicted mean step time.
        step_measured_s: the measured one.
        step_error: its error, and those of the simpler models.
        staleness_tv: total variation of the predicted and the measured staleness, and that of the simpler models.
        share_points: the largest difference of a time fraction, in percentage points.
        communication_points: predicted less measured communication, in percentage points.
        time_predicted_s: the predicted time to the target accuracy.
        time_measured_s: the measured one.
        times_predicted: the predicted times of all seeds in seconds, separated by spaces; "-" if the target was missed.
        times_measured: the measured ones, of the same seeds.
        time_error: its error, and those of the simpler models.
        other_load: the fraction of all cores that other programs used during the measurement.
        calibration_load: the same during the calibration.
    """

    configuration: str
    group: str
    setting: str
    method: str
    model: str
    workers: int
    batch: int
    seeds: int
    step_predicted_s: float | None
    step_measured_s: float | None
    step_error: float | None
    step_error_no_message_cost: float | None
    step_error_no_spread: float | None
    step_error_alpha_beta: float | None
    staleness_tv: float | None
    staleness_tv_no_message_cost: float | None
    staleness_tv_no_spread: float | None
    share_points: float | None
    communication_points: float | None
    time_predicted_s: float | None
    time_measured_s: float | None
    times_predicted: str
    times_measured: str
    time_error: float | None
    time_error_no_message_cost: float | None
    time_error_no_spread: float | None
    time_error_alpha_beta: float | None
    other_load: float
    calibration_load: float
    date: str
    commit: str
    processor: str
    cores: int
    python: str
    torch: str

    @property
    def key(self) -> tuple[str, int]:
        """What identifies a finished configuration: its name and the number of seeds."""
        return self.configuration, self.seeds


MISSED = "-"
"""the time of a run that did not reach the target"""
COLUMNS = tuple(field.name for field in dataclasses.fields(Row))


def row(line: ComparedLine, known: Mapping[str, Any], *, other_load: float, place: Place) -> Row:
    """Returns the row of a compared configuration.

    Args:
        line: the comparison of its method.
        known: the fields from `configuration` to `seeds`, and `calibration_load`.
        other_load: the fraction of all cores that other programs used during the measurement.
        place: where it was measured.
    """
    wrong = line.wrong_models
    points = {
        activity: 100 * (number(line.simulated["time_fraction"][activity]) or 0.0)
        - 100 * (number(line.measured["time_fraction"][activity]) or 0.0)
        for activity in ACTIVITIES
    }
    return Row(
        **known,
        step_predicted_s=number(line.simulated["step_s"]["mean"]),
        step_measured_s=number(line.measured["step_s"]["mean"]),
        step_error=number(line.error["step_s"]["mean"]),
        step_error_no_message_cost=number(wrong["no_message_cost"]["step_s"]["mean"]),
        step_error_no_spread=number(wrong["no_spread"]["step_s"]["mean"]),
        step_error_alpha_beta=number(wrong["alpha_beta"]["step_s"]["mean"]),
        staleness_tv=number(line.error["staleness_tv"]),
        staleness_tv_no_message_cost=number(wrong["no_message_cost"]["staleness_tv"]),
        staleness_tv_no_spread=number(wrong["no_spread"]["staleness_tv"]),
        share_points=max(map(abs, points.values())),
        communication_points=points["communication"],
        time_predicted_s=number(line.simulated["time_to_accuracy_s"]),
        time_measured_s=number(line.measured["time_to_accuracy_s"]),
        times_predicted=times_of(line.predicted_runs),
        times_measured=times_of(line.measured_runs),
        time_error=number(line.error["time_to_accuracy_s"]),
        time_error_no_message_cost=number(wrong["no_message_cost"]["time_to_accuracy_s"]),
        time_error_no_spread=number(wrong["no_spread"]["time_to_accuracy_s"]),
        time_error_alpha_beta=number(wrong["alpha_beta"]["time_to_accuracy_s"]),
        other_load=other_load,
        **dataclasses.asdict(place),
    )


def times_of(runs: Sequence[Run]) -> str:
    """Returns the times to accuracy of runs as text, ordered by seed."""
    times = (run.summary["time_to_accuracy_s"] for run in sorted(runs, key=lambda run: run.seed))
    return " ".join(MISSED if time is None else f"{time:.6g}" for time in times)


def parsed_times(text: str) -> list[float | None]:
    """Returns the times of a text that `times_of` has written.

    >>> parsed_times("1.5 -")
    [1.5, None]
    """
    return [None if part == MISSED else float(part) for part in text.split()]


def append(path: Path, made: Row) -> None:
    """Appends a row; the first one comes with the header.

    Args:
        path: the file.
        made: the row.
    """
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    if not path.exists():
        writer.writeheader()
    writer.writerow(dataclasses.asdict(made))
    with path.open("a", encoding="utf-8", newline="") as file:
        file.write(text.getvalue())


def finished(path: Path) -> list[Row]:
    """Returns the rows of a file, and removes a last line whose writing was interrupted.

    Raises:
        ValueError: the file has other columns.
    """
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    if not text.endswith("\n"):
        text = text[: text.rfind("\n") + 1]
        path.write_text(text, encoding="utf-8", newline="")
    if not text:
        path.unlink()
        return []
    reader = csv.DictReader(io.StringIO(text, newline=""))
    if (found := tuple(reader.fieldnames or ())) != COLUMNS:
        raise ValueError(
            f"{path}: found columns of another version; missing: {_listed(COLUMNS, found)}; "
            f"unknown: {_listed(found, COLUMNS)}"
        )
    return [_parsed(line) for line in reader]


def _listed(names: Sequence[str], known: Sequence[str]) -> str:
    """Returns the names that are not known, as text."""
    return ", ".join(name for name in names if name not in known) or "none"


def _parsed(line: Mapping[str, str]) -> Row:
    kinds = get_type_hints(Row)
    return Row(**{name: _value(line[name], kinds[name]) for name in COLUMNS})


def _value(text: str, kind: Any) -> Any:
    if kind is str:
        return text
    if kind is int:
        return int(text)
    return float(text) if text else None


def latest(rows: Sequence[Row]) -> list[Row]:
    """Returns the last row of each configuration, in the order of their first rows."""
    return list({one.configuration: one for one in rows}.values())
