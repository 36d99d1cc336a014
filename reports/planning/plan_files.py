"""The files of a plan: scenarios, the table of trials, and the folder, which is renamed when the plan is complete."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.files import replacing, write_whole
from paceline.records import store
from paceline.records.store import NumberedFolder
from paceline.reports.planning.objectives import UNITS, Objective

if TYPE_CHECKING:
    from paceline.reports.planning.search import Trial

UNFINISHED = "-unfinished"
TABLE = "trials.csv"


def write_scenario(path: Path, scenario: Mapping[str, Any]) -> None:
    """Writes a scenario as YAML, which the commands read."""
    path.parent.mkdir(exist_ok=True)
    write_whole(path, yaml.safe_dump(dict(scenario), sort_keys=False, allow_unicode=True))


def write_trials(path: Path, trials: Sequence[Trial], objectives: Sequence[Objective]) -> None:
    """Writes a table with a row for each trial."""
    names = sorted({name for one in trials for name in one.choice.hyperparameters})
    figures = [f"{name}_{UNITS[name].lower()}" for name in objectives]
    with replacing(path) as hidden, hidden.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(
            ["trial", "method", "nodes", "workers", "batch_per_worker", *names, *figures, "best", "bound_s", "reason"]
        )
        for one in trials:
            choice = one.choice
            table.writerow(
                [one.number, choice.method, choice.nodes, choice.workers, choice.batch_per_worker]
                + [choice.hyperparameters.get(name, "") for name in names]
                + (["" for _ in figures] if one.values is None else list(one.values))
                + [one.rows[-1]["best"] if one.rows else "", one.bound_s or "", one.reason]
            )


@contextmanager
def resumed_folder(path: Path) -> Iterator[NumberedFolder]:
    """Yields an unfinished folder, which is renamed to ``stem-N`` when the block succeeds, and kept otherwise.

    Args:
        path: the folder, ``stem-unfinished-N``.

    Raises:
        InputError: it is the folder of a complete plan.
    """
    stem, found, _ = path.name.rpartition(UNFINISHED)
    if not found:
        words = f"expected an unfinished plan, whose folder is called NAME-plan{UNFINISHED}-N"
        raise InputError(f"--resume: found {str(path)!r}, {words}")
    made = NumberedFolder(path, keep=True)
    yield made
    while made.path is None:
        folder = store.place(path.parent, stem)
        try:
            if folder.exists():
                continue
            path.rename(folder)
            made.path = folder
        except OSError:
            if not folder.exists():
                raise
