"""Predicts the rows of sets of measurements, several groups at a time, and keeps what has been predicted.

Predicted groups are stored by the hash of their rows and of the product's files. So a run that is interrupted, or
repeated with more sets, computes only what is missing, and a change of the product computes all again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.files import write_whole
from paceline.algorithms.core.naming import near_miss
from paceline.records.document import to_json
from paceline.reports.sweeps.parallel_tasks import TaskFailure, each
from paceline.validation.outcome import LeftOut, Outcome
from paceline.validation.sets import ALONE, OWN, SETS, MeasurementSet, columns_of, set_named, set_of_columns

STORED = "predicted"
"""the folder of stored groups"""
Report = Callable[[str, float], None]
"""called with a text and the completed fraction, 0 … 1"""


@dataclass(frozen=True, slots=True)
class Task:
    """A group of rows of a set, which one process predicts."""

    set: str
    rows: tuple[Any, ...]

    @property
    def digest(self) -> str:
        """A hash of the rows and of the product."""
        whole = f"{product_digest()} {self.set} {self.rows!r}"
        return hashlib.sha256(whole.encode()).hexdigest()[:32]


@dataclass(frozen=True, kw_only=True)
class Validation:
    """The outcomes of sets.

    Args:
        sets: Their names.
        outcomes: The predicted rows.
        left_out: Those that are not predicted.
        quick: Whether only a sample was predicted.
    """

    sets: tuple[str, ...]
    outcomes: tuple[Outcome, ...]
    left_out: tuple[LeftOut, ...]
    quick: bool = False


@cache
def product_digest() -> str:
    """Returns a hash of the product's program and data files, without the errors that follow from predictions."""
    whole = hashlib.sha256()
    root = Path(__file__).resolve().parent.parent
    folders = ("algorithms", "records", "scenarios", "simulator", "topologies", "validation", "workloads")
    for path in sorted(path for folder in folders for path in (root / folder).rglob("*")):
        if path.parent != root / "records" / "data" and path.suffix in (".py", ".csv", ".yaml", ".npz", ".gz", ".json"):
            whole.update(str(path.relative_to(root)).encode() + path.read_bytes())
    return whole.hexdigest()


def sets_named(names: Sequence[str]) -> tuple[str, ...]:
    """Returns the names of sets in their order, all if none is given.

    Raises:
        InputError: Names are unknown; with all of them.
    """
    if unknown := [name for name in names if name not in SETS]:
        expected = f"expected some of {', '.join(SETS)}"
        raise InputError("\n".join(f"unknown set {name!r}{near_miss(name, SETS)}; {expected}" for name in unknown))
    return tuple(name for name in SETS if not names or name in names)


def tables(names: Sequence[str], files: Sequence[Path]) -> list[tuple[MeasurementSet, Path | None]]:
    """Returns the sets to predict, and the file of each; None for its own table.

    Args:
        names: Names of sets; with files, only those of the files if there are none.
        files: Tables of the user, whose columns say to which set they belong.

    Raises:
        InputError: A name is unknown, a file is no table of a set, or rows of the user's own cannot be read.
    """
    given = [(set_of_columns(columns_of(file), file), file) for file in files]
    mistakes = [
        f"{file}, {left.name}: {left.reason}"
        for known, file in given
        if known.name == OWN
        for left in known.groups(known.lines(file))[1]
        if left.reason != ALONE
    ]
    if mistakes:
        raise InputError("\n".join(mistakes))
    chosen = [] if files and not names else list(sets_named(names))
    return [*((set_named(name), None) for name in chosen), *given]


def tasks_of(known: MeasurementSet, file: Path | None, *, quick: bool) -> tuple[list[Task], list[LeftOut]]:
    """Returns the groups of a set, of a quick run a sample of them, and the rows that belong to none."""
    groups, left_out = known.groups(known.lines(file))
    chosen = known.quick(groups) if quick else groups
    return [Task(known.name, tuple(rows)) for rows in chosen], left_out


def validate(
    sets: Sequence[tuple[MeasurementSet, Path | None]],
    *,
    folder: Path | None = None,
    quick: bool = False,
    jobs: int = 1,
    progress: Report | None = None,
) -> Validation:
    """Predicts all rows of some sets.

    A script that calls this needs ``if __name__ == "__main__":``, like every script that starts processes.

    Args:
        sets: From `tables`.
        folder: Where predicted groups are stored; None: nowhere.
        quick: Whether only a sample is predicted.
        jobs: The number of parallel processes.
        progress: Called after each group.
    """
    tasks, left_out = [], []
    for known, file in sets:
        own, unread = tasks_of(known, file, quick=quick)
        tasks += own
        left_out += unread
    results = dict(_stored(tasks, folder))
    missing = [task for number, task in enumerate(tasks) if number not in results]
    places = [number for number in range(len(tasks)) if number not in results]
    done, rows = sum(len(tasks[number].rows) for number in results), sum(len(task.rows) for task in tasks)
    for position, answer in each(_predicted, missing, jobs=jobs, preload=["paceline.validation.steps"]):
        task = missing[position]
        if isinstance(answer, TaskFailure):
            results[places[position]] = [
                LeftOut(task.set, str(getattr(row, "name", row)), answer.message) for row in task.rows
            ]
        else:
            results[places[position]] = answer.result
            _store(task, answer.result, folder)
        done += len(task.rows)
        if progress is not None:
            progress(f"{task.set}: {done} of {rows} rows", done / rows)
    all_results = [result for number in range(len(tasks)) for result in results[number]]
    return Validation(
        sets=tuple(dict.fromkeys(known.name for known, _ in sets)),
        outcomes=tuple(result for result in all_results if isinstance(result, Outcome)),
        left_out=(*left_out, *(result for result in all_results if isinstance(result, LeftOut))),
        quick=quick,
    )


def _predicted(task: Task) -> list[Outcome | LeftOut]:
    return set_named(task.set).predict(task.rows)


def _stored(tasks: Sequence[Task], folder: Path | None) -> Iterator[tuple[int, list[Outcome | LeftOut]]]:
    """Yields the number and the results of each task that was predicted earlier."""
    for number, task in enumerate(tasks if folder is not None else ()):
        assert folder is not None
        path = folder / STORED / f"{task.digest}.json"
        if path.exists():
            yield number, [_result(document) for document in json.loads(path.read_text(encoding="utf-8"))["rows"]]


def _store(task: Task, results: Sequence[Outcome | LeftOut], folder: Path | None) -> None:
    if folder is None:
        return
    (folder / STORED).mkdir(parents=True, exist_ok=True)
    documents = [
        result.document() if isinstance(result, Outcome) else {"left_out": [result.set, result.name, result.reason]}
        for result in results
    ]
    write_whole(folder / STORED / f"{task.digest}.json", to_json({"rows": documents}) + "\n")


def _result(document: Mapping[str, Any]) -> Outcome | LeftOut:
    return LeftOut(*document["left_out"]) if "left_out" in document else Outcome.of(document)


def scenario_text(sets: Sequence[tuple[MeasurementSet, Path | None]], name: str) -> str:
    """Returns the scenario of a row as YAML.

    Args:
        sets: From `tables`.
        name: The name of the row.

    Raises:
        InputError: No row has this name, or its prediction is no simulation of a scenario.
    """
    names = []
    for known, file in sets:
        for rows in known.groups(known.lines(file))[0]:
            names += [row.name for row in rows]
            if any(row.name == name for row in rows):
                return _yaml(name, known.predict(rows))
    raise InputError(f"--scenario: found {name!r}, which is no row{near_miss(name, names)}; --json lists the rows")


def _yaml(name: str, results: Sequence[Outcome | LeftOut]) -> str:
    import yaml

    for result in results:
        if isinstance(result, LeftOut) and result.name == name:
            raise InputError(f"--scenario: row {name!r} is not predicted: {result.reason}")
        if isinstance(result, Outcome) and result.name == name and result.scenario is not None:
            return yaml.safe_dump(dict(result.scenario), sort_keys=False, allow_unicode=True)
    raise InputError(f"--scenario: row {name!r} is given to the others, or its prediction is no single simulation")
