"""What a study has measured, as plain values: a row for each configuration, a document for each machine.

* Errors are (predicted − measured) / measured; a missing figure is None.
* Nothing here identifies the machine or its user: no host name, no path, no message of an error.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from paceline.algorithms.core.errors import InputError
from paceline.records import Run
from paceline.records.figures import ACTIVITIES, STEP_TIME, number
from paceline.records.machine import machine_facts, package_versions
from paceline.records.prediction_interval import bounds_of
from paceline.reports.comparison.comparison import ComparedLine
from paceline.reports.comparison.predict import WRONG_MODELS

FORMAT = 1
"""of a document"""
OURS, CORRECTED = "prediction", "corrected"
MODELS = (OURS, CORRECTED, *WRONG_MODELS)
"""the predictions of a configuration: ours, ours with the change of the machine's speed taken out, and simpler ones"""
VERSIONS = ("paceline", "python", "torch", "numpy")


@dataclass(frozen=True, slots=True)
class Errors:
    """The errors of one prediction of a configuration.

    Args:
        step: of the mean step time.
        time: of the time to accuracy, as means over the seeds; None if one seed did not reach it.
        staleness: the total variation between the predicted and the measured distribution of staleness, 0 to 1.
    """

    step: float | None = None
    time: float | None = None
    staleness: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One configuration.

    Args:
        setting, group, method, model: their names.
        workers: their number.
        batch: samples of a gradient.
        seeds: their number.
        length: of the runs; learning rates are divided by it.
        run_s: the mean real time of the measured runs.
        step_predicted_s, step_measured_s: the mean step time.
        step_low_s, step_high_s: the interval that the prediction states for it; None if it states none.
        within: the share of the measured runs whose step time lies in the interval of its prediction.
        machine_change: the relative change of the machine's speed between calibration and run, above 0 if the run was
            slower; None if it is not known.
        times_predicted_s, times_measured_s: the times to accuracy by seed; None for one that did not reach it.
        time_predicted_s, time_measured_s: their means; None if a seed did not reach it.
        share_points: the largest difference of a fraction of the workers' time, in percentage points.
        communication_points: that of communication, predicted less measured.
        errors: by the names of `MODELS`.
    """

    setting: str
    group: str
    method: str
    model: str
    workers: int
    batch: int
    seeds: int
    length: int
    run_s: float
    step_predicted_s: float
    step_measured_s: float
    step_low_s: float | None = None
    step_high_s: float | None = None
    within: float | None = None
    machine_change: float | None = None
    times_predicted_s: tuple[float | None, ...] = ()
    times_measured_s: tuple[float | None, ...] = ()
    time_predicted_s: float | None = None
    time_measured_s: float | None = None
    share_points: float = 0.0
    communication_points: float = 0.0
    errors: Mapping[str, Errors]

    def error(self, model: str = OURS) -> Errors:
        """Returns the errors of a prediction; a prediction that is not known has none."""
        return self.errors.get(model, Errors())


def row_of(line: ComparedLine, names: Mapping[str, Any]) -> Row:
    """Returns the row of a compared method.

    Args:
        line: the compared method.
        names: what the row says about its setting.
    """
    trees = {OURS: line.error, **line.wrong_models}
    if line.corrected is not None:
        trees[CORRECTED] = line.corrected
    simulated, measured = line.simulated, line.measured
    fractions = simulated["time_fraction"], measured["time_fraction"]
    points = {
        name: 100 * ((number(fractions[0][name]) or 0) - (number(fractions[1][name]) or 0)) for name in ACTIVITIES
    }
    bounds = bounds_of(simulated, STEP_TIME)
    return Row(
        **names,
        run_s=sum(run.summary["wall_s"] for run in line.measured_runs) / max(1, len(line.measured_runs)),
        step_predicted_s=number(simulated["step_s"]["mean"]) or 0.0,
        step_measured_s=number(measured["step_s"]["mean"]) or 0.0,
        step_low_s=None if bounds is None else bounds["low"],
        step_high_s=None if bounds is None else bounds["high"],
        within=line.within,
        machine_change=line.machine_change,
        times_predicted_s=_times(line.predicted_runs),
        times_measured_s=_times(line.measured_runs),
        time_predicted_s=number(simulated["time_to_accuracy_s"]),
        time_measured_s=number(measured["time_to_accuracy_s"]),
        share_points=max(map(abs, points.values())),
        communication_points=points["communication"],
        errors={model: _errors(tree) for model, tree in trees.items()},
    )


def _errors(tree: Mapping[str, Any]) -> Errors:
    return Errors(
        step=number(tree["step_s"]["mean"]),
        time=number(tree.get("time_to_accuracy_s")),
        staleness=number(tree.get("staleness_tv")),
    )


def _times(runs: Sequence[Run]) -> tuple[float | None, ...]:
    return tuple(run.summary["time_to_accuracy_s"] for run in sorted(runs, key=lambda run: run.seed))


# --- machines and documents -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The machine of a measurement, without anything that identifies it or its user."""

    processor: str
    cores: int
    memory_bytes: int
    system: str
    kernel: str
    architecture: str
    versions: Mapping[str, str]

    @property
    def words(self) -> str:
        """Describes the hardware."""
        return f"{self.processor}, {self.cores} core{'s' * (self.cores != 1)}"


def this_machine() -> Machine:
    """Returns this machine."""
    facts, versions = machine_facts(), package_versions()
    return Machine(
        processor=str(facts["processor"]),
        cores=int(facts["cores"]),
        memory_bytes=int(facts["memory_bytes"]),
        system=str(facts["system"]),
        kernel=kernel_of(str(facts["release"])),
        architecture=str(facts["architecture"]),
        versions={name: versions[name] for name in VERSIONS if name in versions},
    )


def kernel_of(release: str) -> str:
    """Returns the numbers of a kernel's release, without the words that who has built it may have added.

    >>> kernel_of("6.8.0-45-generic"), kernel_of("6.1.0-office-pc")
    ('6.8.0-45', '6.1.0')
    """
    match = re.match(r"\d+(\.\d+)*(-\d+(\.\d+)*)?(?![^-.+])", release)
    return match[0] if match else ""


@cache
def commit() -> str:
    """Returns the short name of the product's commit, with a plus sign if its working tree has changes.

    Without a repository of the product it is the version, as in an installed wheel.
    """
    file = Path(__file__).resolve()
    try:
        name, _, changes = (
            subprocess.run(["git", "-C", str(file.parent), *command], capture_output=True, text=True, check=True).stdout
            for command in (
                ["rev-parse", "--short", "HEAD"],
                ["ls-files", "--error-unmatch", file.name],  # a wheel may lie in a repository of the user's
                ["status", "--porcelain", "--untracked-files=no"],
            )
        )
    except (OSError, subprocess.CalledProcessError):
        return package_versions().get("paceline", "")
    return name.strip() + "+" * bool(changes.strip())


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A finished setting.

    Args:
        setting: its name.
        methods: those that were compared.
        seeds: their number.
        seconds: the time of the whole setting.
        other_load: the fraction of all cores that other programs used while the runs were measured, 0 to 1.
        steal: the fraction of all cores that a hypervisor gave to other machines during the setting, 0 to 1.
        date: the day, in UTC.
        commit: of the product, or its version.
        machine: where it was measured.
        rows: one for each method.
    """

    setting: str
    methods: tuple[str, ...]
    seeds: int
    seconds: float
    other_load: float
    steal: float
    date: str
    commit: str
    machine: Machine
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """What a study has measured on a machine: the content of the file that a user sends in."""

    measured: tuple[Measured, ...]
    format: int = FORMAT

    @property
    def rows(self) -> list[Row]:
        """All rows."""
        return [row for measured in self.measured for row in measured.rows]

    @property
    def machine(self) -> Machine:
        """The machine, of several that of the latest measurement."""
        return max(self.measured, key=lambda measured: measured.date).machine

    def of_groups(self, groups: Sequence[str]) -> Document:
        """Returns the document with the rows of some groups only, of all if none is given."""
        if not groups:
            return self
        kept = (replace(each, rows=tuple(row for row in each.rows if row.group in groups)) for each in self.measured)
        return Document(measured=tuple(each for each in kept if each.rows))


def today() -> str:
    """Returns the day in UTC."""
    return datetime.now(UTC).date().isoformat()


def plain(value: Measured | Document) -> dict[str, Any]:
    """Returns plain values, from which `read_measured` and `read_document` make the value again."""
    return asdict(value)


def read_measured(path: Path) -> Measured:
    """Reads a finished setting.

    Raises:
        InputError: the file is none.
    """
    return _read(path, Measured, "a setting of `paceline fidelity`")  # type: ignore[no-any-return]


def read_document(path: Path) -> Document:
    """Reads the file of a machine.

    Raises:
        InputError: the file is none, or has the format of another version.
    """
    read: Document = _read(path, Document, "a fidelity.json of `paceline fidelity`")
    if read.format != FORMAT or not read.measured:
        problem = f"format {read.format}" if read.format != FORMAT else "no finished setting"
        raise InputError(f"{path}: found {problem}, expected a fidelity.json of format {FORMAT} with finished settings")
    return read


def _read(path: Path, kind: type, what: str) -> Any:
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(kind).validate_python(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); expected {what}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise InputError(f"{path}: {where or 'whole file'}: {first['msg']}; expected {what}") from error
    except ValueError as error:
        raise InputError(f"{path}: found no JSON ({error}); expected {what}") from error
