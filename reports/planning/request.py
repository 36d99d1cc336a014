"""The files of a plan: its request, which decides what trials are made, scenarios, the table of trials, its folder."""

from __future__ import annotations

import csv
import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from paceline.algorithms.core.checksums import parsed, reading
from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.files import replacing, write_whole
from paceline.records import store
from paceline.records.document import to_json
from paceline.records.figures import OF_PLANS
from paceline.records.store import NumberedFolder
from paceline.reports.planning.objectives import Limits, Objective, Target
from paceline.scenarios import Scenario, load

if TYPE_CHECKING:
    from paceline.reports.planning.search import Trial

REQUEST, TABLE = "request.json", "trials.csv"
UNFINISHED = "-unfinished"
BATCH = 8
"""choices that are drawn at a time: enough for the cores of a small machine, few enough that the sampler learns soon;
provenance: ours"""
TRIALS_PER_METHOD = 15
"""default number of trials for each method; provenance: ours"""
TUNING_SEEDS, REPORTED_SEEDS = 2, 5
"""default numbers of seeds of a trial and of a reported plan; provenance: ours"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is planned."""

    scenario: Mapping[str, Any]
    """the resolved scenario, with an entry for each method that is considered"""
    part: Mapping[str, Any]
    """its section `plan`"""
    target: Target
    objectives: tuple[Objective, ...]
    limits: Limits = field(default_factory=Limits)
    trials: int
    tuning_seeds: int = TUNING_SEEDS
    reported_seeds: int = REPORTED_SEEDS
    batch: int = BATCH

    def load(self) -> Scenario:
        """Returns the scenario with its section `plan`."""
        return load({**self.scenario, "plan": self.part})

    def document(self) -> dict[str, Any]:
        """Returns the content of the stored request, without limits that do not limit."""
        document = dataclasses.asdict(self)
        document["limits"] = {key: value for key, value in document["limits"].items() if math.isfinite(value)}
        return document

    def store(self, folder: Path) -> None:
        """Writes the request to a folder."""
        write_whole(folder / REQUEST, to_json(self.document()) + "\n")


def stored_request(folder: Path) -> Request:
    """Reads the request of a study.

    Args:
        folder: the folder of the study.

    Raises:
        InputError: there is none, or it cannot be read.
    """
    right = "expected the folder of an unfinished plan, such as runs/quickstart-plan-unfinished-1"
    try:
        document = parsed((folder / REQUEST).read_text(encoding="utf-8"), REQUEST, "the request of a plan")
        return Request(
            **{
                **document,
                "target": Target(**document["target"]),
                "objectives": tuple(document["objectives"]),
                "limits": Limits(**document["limits"]),
            }
        )
    except OSError as error:
        raise InputError(f"--resume: found {str(folder)!r} ({error.strerror}), {right}") from error
    except (InputError, ValueError, TypeError, KeyError) as error:
        raise InputError(f"--resume: found a damaged {REQUEST} in {str(folder)!r}, {right}") from error


def write_scenario(path: Path, scenario: Mapping[str, Any]) -> None:
    """Writes a scenario as YAML, which the commands read."""
    path.parent.mkdir(exist_ok=True)
    write_whole(path, yaml.safe_dump(dict(scenario), sort_keys=False, allow_unicode=True))


def write_trials(path: Path, trials: Sequence[Trial], objectives: Sequence[Objective]) -> None:
    """Writes a table with a row for each trial."""
    names = sorted({name for one in trials for name in one.choice.hyperparameters})
    figures = [OF_PLANS[name].key for name in objectives]
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


def stored_trials(folder: Path) -> list[dict[str, Any]]:
    """Returns the rows of the table of trials of a plan; none if there is no table.

    Args:
        folder: the folder of the plan.
    """
    import pandas as pd

    path = folder / TABLE
    if not path.is_file():
        return []
    with reading(path, "the table of trials of `paceline plan`"):
        rows = pd.read_csv(path).to_dict("records")
    return [{str(name): value for name, value in row.items()} for row in rows]


@contextmanager
def resumed_folder(path: Path) -> Iterator[NumberedFolder]:
    """Yields an unfinished folder, which is renamed to ``stem-N`` when the block succeeds, and kept otherwise.

    Args:
        path: the folder, ``stem-unfinished-N``.

    Raises:
        InputError: it is the folder of a complete plan.
    """
    stem, ending, _ = path.name.rpartition(UNFINISHED)
    if not ending:
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
