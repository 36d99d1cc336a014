"""Compares stored measured runs with predictions from the file of a calibrated machine; nothing is launched.

Rules of this file:

* The scenario is that of the runs: they may differ in the algorithm and the seed only.
* The prediction uses the machine file and the scenario, and nothing that the runs have measured.
* Ranks of a run that a launcher started on several hosts are predicted on as many hosts like the calibrated one, joined
  by the links of the scenario; ranks of one host on that host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from paceline.algorithms.core.errors import InputError
from paceline.checking.own_methods import check_own_methods
from paceline.records import Run
from paceline.records.store import read_run
from paceline.reports.comparison.compare import Comparison, assemble
from paceline.reports.comparison.predict import WRONG_MODELS, Prediction, Stage, predict
from paceline.scenarios import Scenario, load
from paceline.scenarios.resolution.real_run_validation import refuse_simulated_only
from paceline.scenarios.sections.machine_file import MachinePart
from paceline.topologies.catalogue.machine_profile import EmulatedProfile, LinkedProfile, Profile

OWN_KEYS = ("algorithms", "hyperparameters", "seed", "seeds")
"""keys of a scenario in which the runs of a comparison may differ"""
EXPECTED = "expected a run of `paceline train`"


@dataclass(frozen=True, slots=True)
class Measured:
    """A measured run, and the means to predict it.

    Args:
        run: the run.
        scenario: its scenario, with only its algorithm and seed.
        costs: the calibrated machine, alone or with its emulated network, or several like it.
    """

    run: Run
    scenario: Scenario
    costs: Profile | EmulatedProfile | LinkedProfile


def compare_measured(
    folders: Sequence[Path],
    machine: MachinePart,
    *,
    stage: Stage = lambda _: None,
    keep: Callable[[Run], Run] = lambda run: run,
) -> Comparison:
    """Predicts stored measured runs from a machine file, and compares both; runs of several seeds are pooled.

    Args:
        folders: the folders of the runs, or the run.json in them.
        machine: the machine on which they ran, as `paceline calibrate` measured it.
        stage: called with the name of each stage; returns the stage's progress callback.
        keep: called with each simulated run, to store it; returns the stored run.

    Raises:
        InputError: a folder holds no complete measured run, the runs have different scenarios, or the machine does not
            fit them; all mistakes are reported.
    """
    found = measured_runs(folders, machine)
    predicted: dict[tuple[str, int], Prediction] = {}
    for one in found:
        if (key := (one.run.algorithm, one.run.seed)) not in predicted:
            predicted[key] = _named(predict(one.scenario, one.costs, stage=stage), one.run.algorithm, keep)
    each = [predicted[one.run.algorithm, one.run.seed] for one in found]
    return assemble(
        found[0].run.name,
        simulated=[run for one in each for run in one.simulated],
        measured=[one.run for one in found],
        wrong={model: [run for one in each for run in one.wrong[model]] for model in WRONG_MODELS},
        other_load=fmean(one.run.machine.get("other_load", 0.0) for one in found),
        predicts="calibrated machine",
    )


def measured_runs(folders: Sequence[Path], machine: MachinePart) -> list[Measured]:
    """Reads measured runs and checks that a machine file can predict them.

    Args:
        folders: the folders of the runs, or the run.json in them.
        machine: the calibrated machine.

    Raises:
        InputError: as for `compare_measured`.
    """
    found: list[Measured] = []
    mistakes: dict[str, None] = {}
    for folder in folders:
        try:
            found.append(_read(folder, machine))
        except InputError as error:
            mistakes |= dict.fromkeys(f"--measured {folder}: {line}" for line in str(error).splitlines())
    for other in found[1:]:
        for line in differences(other.run.scenario, found[0].run.scenario):
            mistakes[f"--measured {other.run.path}: {line} as in {found[0].run.path}"] = None
    if mistakes:
        raise InputError("\n".join(mistakes))
    return found


def _read(folder: Path, machine: MachinePart) -> Measured:
    from paceline.simulator.runs.machines import hosts_like, this_host

    run = read_run(folder.parent if folder.name == "run.json" else folder)
    if run.kind != "measured":
        raise InputError(f"found a {run.kind} run, {EXPECTED}")
    if run.summary["stop_reason"] == "failure":
        raise InputError(f"found a run that failed, {EXPECTED} that has ended")
    scenario = load(run.scenario)
    run = check_own_methods(scenario).marked(run)
    refuse_simulated_only(scenario)
    here = this_host(machine, scenario)
    several = len({seat["host"] for seat in run.machine.get("seats", ())}) > 1
    return Measured(run, scenario, hosts_like(machine, scenario) if several else here)


def differences(found: Mapping[str, Any], expected: Mapping[str, Any]) -> list[str]:
    """Returns the sections in which the scenarios of two runs differ, besides the algorithm and the seed.

    Args:
        found: the scenario of a run.
        expected: that of another one.

    >>> differences({"seed": 2, "stop": {"epochs": 3}}, {"seed": 1, "stop": {"epochs": 2}})
    ["stop: found {'epochs': 3}, expected {'epochs': 2}"]
    """
    keys = [key for key in dict.fromkeys([*expected, *found]) if key not in OWN_KEYS]
    return [
        f"{key}: found {found.get(key)!r}, expected {expected.get(key)!r}"
        for key in keys
        if found.get(key) != expected.get(key)
    ]


def _named(predicted: Prediction, name: str, keep: Callable[[Run], Run]) -> Prediction:
    """Returns a prediction with the measured run's name of the algorithm, with the simulated runs stored.

    The name differs if the scenario had the method several times, such as ``agd delay=4``.
    """
    return Prediction(
        simulated=[keep(replace(run, algorithm=name)) for run in predicted.simulated],
        wrong={model: [replace(run, algorithm=name) for run in runs] for model, runs in predicted.wrong.items()},
    )


def unlike(run: Run, machine: MachinePart) -> list[str]:
    """Returns notes on how the host of a run differs from the calibrated one.

    Args:
        run: a measured run.
        machine: the calibrated machine.
    """
    pairs = (
        ("processor", run.machine.get("processor"), machine.made.processor),
        ("number of cores", run.machine.get("cores"), machine.cores),
    )
    return [
        f"note: the {what} of the measured run is {theirs}, that of the machine file {ours}"
        for what, theirs, ours in pairs
        if theirs is not None and ours and theirs != ours
    ]
