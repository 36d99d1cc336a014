"""Compares stored runs: their figures, relative to the first run, and the keys of their scenarios that differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.algorithms.core.errors import InputError
from paceline.records.figures import significant
from paceline.reports.comparison.words import MISSING, milli, per_cent, plain, seconds, signed
from paceline.reports.export.csv_tables import flat
from paceline.reports.stored_runs.filter_runs import figure
from paceline.reports.stored_runs.find_runs import StoredRun

MOST = 6
"""runs that fit side by side in a terminal; DERIVED: 6 columns of 18 characters and names of 24 are 132"""


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure that is compared: its name with unit, its path in the summary, and its format."""

    name: str
    path: str
    unit: Callable[[float], str]


def _whole(value: float) -> str:
    return f"{value:,.0f}"


FIGURES = (
    Figure("duration, s", "wall_s", seconds),
    Figure("updates", "updates", _whole),
    Figure("samples", "samples", _whole),
    Figure("samples per s", "samples_per_s", _whole),
    Figure("step time, mean, ms", "step_s.mean", milli),
    Figure("step time, 95 %, ms", "step_s.p95", milli),
    Figure("time computing, %", "time_fraction.compute", per_cent),
    Figure("time communicating, %", "time_fraction.communication", per_cent),
    Figure("time waiting, %", "time_fraction.wait", per_cent),
    Figure("MB sent", "bytes_sent", lambda value: significant(value / 1e6, 4)),
    Figure("staleness, mean", "staleness.mean", plain),
    Figure("time to accuracy, s", "time_to_accuracy_s", seconds),
    Figure("time to loss, s", "time_to_loss_s", seconds),
    Figure("accuracy at the end, %", "final_accuracy", per_cent),
    Figure("loss at the end", "final_loss", lambda value: significant(value, 4)),
)


@dataclass(frozen=True, slots=True)
class RunComparison:
    """The figures of several runs and the keys in which they differ; None stands for a missing value."""

    runs: list[StoredRun]
    figures: list[tuple[Figure, list[float | None]]]
    differences: list[tuple[str, list[Any]]]

    def cells(self, values: Sequence[float | None], unit: Callable[[float], str]) -> Iterator[str]:
        """Yields the text of each run's value, with its difference from the first run in per cent.

        Args:
            values: the values of a figure.
            unit: its format.
        """
        first = values[0]
        for number, value in enumerate(values):
            shown = MISSING if value is None else unit(value)
            relative = number > 0 and value is not None and first
            yield f"{shown} ({signed(value / first - 1)} %)" if relative and value is not None and first else shown

    def record(self) -> dict[str, Any]:
        """Returns the comparison for a JSON answer."""
        return {
            "runs": [str(run.path) for run in self.runs],
            "figures": [{"name": one.name, "path": one.path, "values": values} for one, values in self.figures],
            "differences": [{"key": key, "values": values} for key, values in self.differences],
        }


def compare_runs(runs: Sequence[StoredRun]) -> RunComparison:
    """Compares stored runs.

    Args:
        runs: the runs; the first is the reference.

    Raises:
        InputError: there are fewer than two runs, or more than fit side by side.
    """
    if not 2 <= len(runs) <= MOST:
        raise InputError(
            f"--compare: found {len(runs)} run{'s' * (len(runs) != 1)}; expected 2 to {MOST}: give their folders, or "
            "select them with --scenario, --algorithm, --seed, --kind or --where"
        )
    figures = []
    for one in FIGURES:
        values = [_number(figure(run.summary, one.path)) for run in runs]
        if any(value is not None for value in values):
            figures.append((one, values))
    return RunComparison(list(runs), figures, list(differences(runs)))


def differences(runs: Sequence[StoredRun]) -> Iterator[tuple[str, list[Any]]]:
    """Yields the keys in which runs differ, with the value of each run: of the scenario, versions and the machine.

    Args:
        runs: the runs.
    """
    found = [dict(_facts(run)) for run in runs]
    for key in dict.fromkeys(key for one in found for key in one):
        values = [one.get(key) for one in found]
        if any(value != values[0] for value in values):
            yield key, values


MACHINE = ("processor", "cores", "memory_bytes", "system", "release", "architecture")


def _facts(run: StoredRun) -> Iterator[tuple[str, Any]]:
    yield "kind", run.kind
    yield "algorithm", run.algorithm
    yield "seed", run.seed
    own = ("algorithms", "seed", "seeds")
    yield from flat({key: value for key, value in run.record["scenario"].items() if key not in own})
    yield from ((f"algorithm.{key}", value) for key, value in flat(_hyperparameters(run)))
    yield from ((f"versions.{key}", value) for key, value in run.record["versions"].items())
    yield from ((f"machine.{key}", value) for key, value in run.record["machine"].items() if key in MACHINE)


def _hyperparameters(run: StoredRun) -> Mapping[str, Any]:
    """Returns the hyper-parameters of a run; its scenario holds its own algorithm only."""
    algorithms = run.record["scenario"].get("algorithms", ())
    return {key: value for one in algorithms[:1] for key, value in one.items() if key not in ("name", "label")}


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None
