"""Calibrates, predicts and then measures configurations that have no row yet; a row each in a CSV file.

Calibrations are stored beside the results, one for each cell, so that a later start and a later model use the same.
Unpaced runs are predicted from a machine file of `paceline calibrate`, with the emulated network if there is one; paced
ones from the probe of `paceline compare`, which is paced by the devices of the cell.
"""

from __future__ import annotations

import csv
import io
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import yaml

from fidelity_runs.settings import CALIBRATED, Cell, Configuration, Setting, calibration_scenario
from paceline.algorithms.core.errors import InputError, PacelineError
from paceline.backend.calibration.calibrate import calibrate
from paceline.backend.calibration.emulation_costs import emulation_task
from paceline.backend.training import train
from paceline.records import Run, store
from paceline.records.figures import ACTIVITIES, number
from paceline.records.machine import OtherLoad, machine_facts, package_versions
from paceline.reports.comparison.compare import probed
from paceline.reports.comparison.comparison import ComparedLine, ComparisonResult, assemble
from paceline.reports.comparison.predict import predict
from paceline.scenarios import Scenario
from paceline.scenarios.machine_file import MachinePart, MadePart, save_machine, sections_of
from paceline.scenarios.resolution.machine_costs import emulated_part
from paceline.simulator.runs.dry_run import dry_run
from paceline.topologies.catalogue.machine_profile import MeasuredCosts

NOTABLE_LOAD = 0.05
"""share of other programs from which on a calibration is reported as disturbed; as in `paceline compare`"""
Row = dict[str, Any]
"""the figures of one configuration. Errors are (predicted − measured) / measured; a missing figure is None"""
Compare = Callable[[Scenario, MeasuredCosts, Path], ComparisonResult]
Measure = Callable[[Cell, Scenario, float], MachinePart]


# --- calibrations -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Calibration:
    """The costs for a cell, and the share of all cores that other programs used while they were measured."""

    costs: MeasuredCosts
    other_load: float


def measure(cell: Cell, scenario: Scenario, seconds: float) -> MachinePart:
    """Measures the costs for a cell; `paceline calibrate` begins no further round after these seconds."""
    if not cell.paced:
        return calibrate(scenario, dry_run(scenario.plans()), batches=CALIBRATED, seconds=seconds)
    with OtherLoad() as other:
        costs = probed(scenario)
    facts = machine_facts()
    made = {"date": datetime.now(UTC).isoformat(timespec="seconds"), "processor": str(facts["processor"])}
    part = MachinePart.model_construct(
        format=1,
        made=MadePart.model_construct(**made, other_load=other.share),
        model=cell.model,
        ranks=sum(cell.nodes),
        cores=int(facts["cores"]),
        torch_threads=1,
        gradients=(),  # which are those of the paced devices
        **sections_of(costs),
    )
    if costs.emulation is None:
        return part
    network = emulated_part(emulation_task(scenario).plan, costs.emulation)
    return part.model_copy(update={"emulated": network})


def read(path: Path) -> Calibration:
    """Returns the calibration in a file."""
    machine = MachinePart.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    return Calibration(machine.alone(), machine.made.other_load)


# --- the study --------------------------------------------------------------------------------------------------------


def predict_then_measure(scenario: Scenario, costs: MeasuredCosts, out: Path) -> ComparisonResult:
    """Predicts all seeds of a scenario, then measures them and stores the runs in a folder, and compares both."""
    predicted = predict(scenario, costs)
    with OtherLoad() as other:
        runs = train(scenario, keep=lambda run: store.save(run, out))
    sides = {"simulated": predicted.simulated, "measured": runs, "wrong": predicted.wrong}
    return assemble(scenario.name, **sides, other_load=other.share)


@dataclass(kw_only=True)
class Study:
    """A folder of results and the way to obtain them.

    Args:
        folder: holds `results.csv`, `calibrations` and `runs`.
        seeds: the number of seeds of each configuration.
        seconds: the time after which `paceline calibrate` begins no further round.
        say: called with lines about progress.
        measure: makes a calibration.
        compare: predicts and measures.
    """

    folder: Path
    seeds: int
    seconds: float
    say: Callable[[str], None]
    measure: Measure = field(default=measure)
    compare: Compare = field(default=predict_then_measure)

    @property
    def path(self) -> Path:
        """The file of results."""
        return self.folder / "results.csv"

    def calibration(self, cell: Cell, settings: tuple[Setting, ...]) -> Calibration:
        """Returns the calibration of a cell, which is made when it is first asked for."""
        path = self.folder / "calibrations" / f"{cell.name}.yaml"
        if not path.exists():
            self.say(f"calibrating {cell.name}")
            path.parent.mkdir(parents=True, exist_ok=True)
            save_machine(self.measure(cell, calibration_scenario(settings), self.seconds), path)
            if (load := read(path).other_load) > NOTABLE_LOAD:
                self.say(
                    f"note: other programs used {load:.0%} of the machine during the calibration {path}; remove the "
                    "file to repeat it"
                )
        return read(path)

    def run(self, wanted: Sequence[Configuration], cores: int) -> list[str]:
        """Predicts and measures the configurations without a row for this number of seeds; appends their rows.

        Returns:
            A message for each configuration that failed. The next start tries it again.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        done = {(row["configuration"], row["seeds"]) for row in finished(self.path)}
        left = [configuration for configuration in wanted if (configuration.name, self.seeds) not in done]
        settings = dict.fromkeys(configuration.setting for configuration in wanted)
        place, failures = here(), []
        for batch in together(left):
            names = batch[0].name if len(batch) == 1 else f"{batch[0].setting.name}: {len(batch)} methods"
            self.say(f"{left.index(batch[0]) + 1} of {len(left)}: {names}")
            cell = batch[0].setting.cell
            try:
                calibration = self.calibration(cell, tuple(setting for setting in settings if setting.cell == cell))
                for row in self.rows(batch, calibration, cores):
                    append(self.path, {**row, **place})
            except PacelineError as error:
                failures.append(f"{names}: {error}")
                self.say(f"failed: {error}")
        return failures

    def rows(self, batch: Sequence[Configuration], calibration: Calibration, cores: int) -> Iterator[Row]:
        """Predicts and measures configurations of one setting, and yields their rows."""
        setting = batch[0].setting
        scenario = setting.scenario(tuple(configuration.method for configuration in batch), seeds=self.seeds)
        comparison = self.compare(scenario, calibration.costs, self.folder / "runs")
        for configuration, line in zip(batch, comparison.lines, strict=True):
            yield {
                "configuration": configuration.name,
                "group": setting.group(cores),
                "setting": setting.name,
                "method": configuration.method,
                "model": setting.model,
                "workers": setting.workers,
                "batch": setting.batch,
                "seeds": self.seeds,
                **figures_of(line),
                "other_load": comparison.other_load,
                "calibration_load": calibration.other_load,
            }


def together(left: Sequence[Configuration]) -> list[list[Configuration]]:
    """Returns the configurations that are measured together: all methods of a setting whose order is studied.

    Others are measured one by one, so that a start can be interrupted after each.
    """

    def key(numbered: tuple[int, Configuration]) -> Any:
        place, configuration = numbered
        return configuration.setting.name if configuration.setting.order else place

    return [[configuration for _, configuration in group] for _, group in groupby(enumerate(left), key)]


# --- rows -------------------------------------------------------------------------------------------------------------

SIMPLER = ("no_message_cost", "no_spread", "alpha_beta")
COLUMNS = (
    "configuration", "group", "setting", "method", "model", "workers", "batch", "seeds", "step_predicted_s",
    "step_measured_s", "step_error", "step_error_no_message_cost", "step_error_no_spread", "step_error_alpha_beta",
    "staleness_tv", "staleness_tv_no_message_cost", "staleness_tv_no_spread", "share_points", "communication_points",
    "time_predicted_s", "time_measured_s", "times_predicted", "times_measured", "time_error",
    "time_error_no_message_cost", "time_error_no_spread", "time_error_alpha_beta", "other_load", "calibration_load",
    "date", "commit", "processor", "cores", "python", "torch",
)  # fmt: skip
"""of the file; benchmarks/README.md explains them"""
TEXTS = {
    "configuration", "group", "setting", "method", "model", "times_predicted", "times_measured", "date", "commit",
    "processor", "python", "torch",
}  # fmt: skip
MISSED = "-"
"""the time of a run that did not reach the target"""


def figures_of(line: ComparedLine) -> Row:
    """Returns the figures of a compared method."""
    row: Row = {}
    for suffix, errors in {"": line.error, **{f"_{name}": line.wrong_models[name] for name in SIMPLER}}.items():
        row[f"step_error{suffix}"] = number(errors["step_s"]["mean"])
        row[f"staleness_tv{suffix}"] = number(errors["staleness_tv"])
        row[f"time_error{suffix}"] = number(errors["time_to_accuracy_s"])
    del row["staleness_tv_alpha_beta"]  # that model has no staleness
    for name, side, runs in (
        ("predicted", line.simulated, line.predicted_runs),
        ("measured", line.measured, line.measured_runs),
    ):
        row[f"step_{name}_s"] = number(side["step_s"]["mean"])
        row[f"time_{name}_s"] = number(side["time_to_accuracy_s"])
        row[f"times_{name}"] = times_of(runs)
    sides = line.simulated["time_fraction"], line.measured["time_fraction"]
    points = {name: 100 * ((number(sides[0][name]) or 0.0) - (number(sides[1][name]) or 0.0)) for name in ACTIVITIES}
    largest = max(map(abs, points.values()))
    return {**row, "share_points": largest, "communication_points": points["communication"]}


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


def append(path: Path, row: Row) -> None:
    """Appends a row; the first one comes with the header."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    if not path.exists():
        writer.writeheader()
    writer.writerow(row)
    with path.open("a", encoding="utf-8", newline="") as file:
        file.write(text.getvalue())


def finished(path: Path) -> list[Row]:
    """Returns the rows of a file, and removes a last line whose writing was interrupted.

    Raises:
        InputError: the file has other columns.
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
    names = tuple(reader.fieldnames or ())
    if names != COLUMNS:
        missing, unknown = (
            ", ".join(sorted(set(a) - set(b))) or "none" for a, b in ((COLUMNS, names), (names, COLUMNS))
        )
        raise InputError(
            f"{path}: found columns of another version; missing: {missing}; unknown: {unknown}; use another folder"
        )
    return [{name: _value(name, value) for name, value in line.items()} for line in reader]


def _value(name: str, text: str) -> str | int | float | None:
    if name in TEXTS:
        return text
    return int(text) if text.isdigit() else float(text) if text else None


def here() -> Mapping[str, Any]:
    """Returns where, when and with what a configuration is measured."""
    facts, versions = machine_facts(), package_versions()
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "commit": commit(),
        "processor": str(facts["processor"]),
        "cores": int(facts["cores"]),
        "python": versions["python"],
        "torch": versions["torch"],
    }


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
