"""Predicts and then measures configurations that have no row yet."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from fidelity_runs.calibrations import Calibrations
from fidelity_runs.configurations import Configuration
from fidelity_runs.results import Place, Row, append, finished, row
from fidelity_runs.settings import Cell, Setting
from paceline.algorithms.core.errors import PacelineError
from paceline.backend.training import train
from paceline.records import store
from paceline.records.machine import OtherLoad, machine_facts, package_versions
from paceline.reports.comparison.comparison import ComparisonResult, assemble
from paceline.reports.comparison.predict import predict
from paceline.scenarios import Scenario
from paceline.topologies.catalogue.machine_profile import MeasuredCosts

Compare = Callable[[Scenario, MeasuredCosts, Path], ComparisonResult]


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A folder of results and the way to obtain them.

    Args:
        folder: holds `results.csv`, `calibrations` and `runs`.
        seeds: the number of seeds of each configuration.
        calibrations: the costs.
        say: called with a line about each configuration.
        compare: predicts and measures.
    """

    folder: Path
    seeds: int
    calibrations: Calibrations
    say: Callable[[str], None]
    compare: Compare

    @property
    def path(self) -> Path:
        """The file of results."""
        return self.folder / "results.csv"


def unfinished(wanted: Sequence[Configuration], rows: Sequence[Row], seeds: int) -> list[Configuration]:
    """Returns the configurations that have no row with this number of seeds.

    Args:
        wanted: the configurations.
        rows: the rows of the file.
        seeds: the number of seeds.
    """
    done = {one.key for one in rows}
    return [one for one in wanted if (one.name, seeds) not in done]


def by_cell(settings: Sequence[Setting]) -> dict[Cell, tuple[Setting, ...]]:
    """Returns the settings of each cell."""
    found: dict[Cell, tuple[Setting, ...]] = {}
    for setting in settings:
        found[setting.cell] = (*found.get(setting.cell, ()), setting)
    return found


def run(study: Study, wanted: Sequence[Configuration], cores: int) -> list[str]:
    """Predicts and measures what is unfinished; appends a row for each configuration.

    Args:
        study: the study.
        wanted: all configurations, of which those with a row are skipped.
        cores: the cores of this machine.

    Returns:
        A message for each configuration that failed. The next start tries it again.
    """
    study.folder.mkdir(parents=True, exist_ok=True)
    left = unfinished(wanted, finished(study.path), study.seeds)
    settings = by_cell(list(dict.fromkeys(one.setting for one in wanted)))
    place, failures = here(), []
    for batch in together(left):
        names = f"{batch[0].name}" if len(batch) == 1 else f"{batch[0].setting.name}: {len(batch)} methods"
        study.say(f"{left.index(batch[0]) + 1} of {len(left)}: {names}")
        try:
            for one in measured(study, batch, settings[batch[0].setting.cell], place, cores):
                append(study.path, one)
        except PacelineError as error:
            failures.append(f"{names}: {error}")
            study.say(f"failed: {error}")
    return failures


def together(left: Sequence[Configuration]) -> list[list[Configuration]]:
    """Returns the configurations that are measured together: all methods of a setting whose order is studied.

    Others are measured one by one, so that a start can be interrupted after each.

    Args:
        left: the configurations, in order.
    """
    found = list[list[Configuration]]()
    for one in left:
        if found and one.setting.order and found[-1][0].setting == one.setting:
            found[-1].append(one)
        else:
            found.append([one])
    return found


def measured(
    study: Study, batch: Sequence[Configuration], settings: tuple[Setting, ...], place: Place, cores: int
) -> list[Row]:
    """Returns the rows of configurations of one setting, after predicting and measuring them.

    Args:
        study: the study.
        batch: the configurations.
        settings: all settings of their cell.
        place: where they are measured.
        cores: the cores of this machine.
    """
    setting = batch[0].setting
    calibration = study.calibrations.of(setting.cell, settings)
    scenario = setting.scenario(tuple(one.method for one in batch), seeds=study.seeds)
    comparison = study.compare(scenario, calibration.costs, study.folder / "runs")
    known = {
        "group": setting.group(cores),
        "setting": setting.name,
        "model": setting.model,
        "workers": setting.workers,
        "batch": setting.batch,
        "seeds": study.seeds,
        "calibration_load": calibration.other_load,
    }
    return [
        row(
            line,
            {**known, "configuration": one.name, "method": one.method},
            other_load=comparison.other_load,
            place=place,
        )
        for one, line in zip(batch, comparison.lines, strict=True)
    ]


def predict_then_measure(scenario: Scenario, costs: MeasuredCosts, out: Path) -> ComparisonResult:
    """Predicts all seeds of a scenario, measures them, and compares both.

    Args:
        scenario: the scenario.
        costs: the calibration.
        out: the folder for the measured runs.
    """
    predicted = predict(scenario, costs)
    with OtherLoad() as other:
        runs = train(scenario, keep=lambda run: store.save(run, out))
    return assemble(
        scenario.name,
        simulated=predicted.simulated,
        measured=runs,
        wrong=predicted.wrong,
        other_load=other.share,
    )


def here() -> Place:
    """Returns the facts about this machine and the working tree."""
    facts, versions = machine_facts(), package_versions()
    return Place(
        date=datetime.now(UTC).date().isoformat(),
        commit=commit(),
        processor=str(facts["processor"]),
        cores=int(facts["cores"]),
        python=versions["python"],
        torch=versions["torch"],
    )


def commit() -> str:
    """Returns the short name of the commit, with a plus sign if the working tree has changes; empty without git."""
    folder = Path(__file__).parent
    try:
        name, changes = (
            subprocess.run(["git", "-C", str(folder), *command], capture_output=True, text=True, check=True).stdout
            for command in (["rev-parse", "--short", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return name.strip() + "+" * bool(changes.strip())
