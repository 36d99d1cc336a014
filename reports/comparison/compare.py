"""Predicts and measures every algorithm of a scenario, side by side.

Rules of this file:

* The prediction is made before the measurement and uses only the machine: if the real messages stay on this machine,
  the simulated network is this machine's, from a probe at the start; if they cross an emulated network, it is that
  network with the costs that this machine adds.
* Three simpler predictions are made for comparison: without message cost, without jitter, and by the α–β model. A
  prediction that is not better than they are proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from paceline.checking.own_methods import check_own_methods
from paceline.records import Run
from paceline.records.machine import OtherLoad, least_disturbed
from paceline.reports.attribution.error_sources import ErrorSources, error_sources
from paceline.reports.comparison.error_words import describe_error
from paceline.reports.comparison.predict import Stage, predict
from paceline.reports.comparison.prediction_errors import Tree, error, together
from paceline.reports.comparison.time_to_target import Aim, aim_of
from paceline.reports.comparison.words import kind_of
from paceline.scenarios import Scenario, load
from paceline.scenarios.resolution.real_run_validation import refuse_simulated_only
from paceline.scenarios.sections.machine_file import MachinePart
from paceline.scenarios.sections.machine_store import load_machine
from paceline.topologies.catalogue.machine_profile import EmulatedProfile, LinkedProfile, Profile

Probed = TypeVar("Probed", Profile, EmulatedProfile, LinkedProfile, Profile | EmulatedProfile, Profile | LinkedProfile)

Predicts = Literal["this machine", "emulated network", "calibrated machine", "hosts of this run"]
"""what predictions are for; a calibrated machine is that of a file, beside runs that were measured before"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One algorithm: the predicted and the measured summary, and their errors."""

    name: str
    simulated: Tree
    """the summary; with several seeds every figure is ``{mean, low, high}``"""
    measured: Tree
    error: Tree
    wrong_models: dict[str, Tree]
    """errors of the simpler predictions, by name"""
    predicted_runs: Sequence[Run] = ()
    measured_runs: Sequence[Run] = ()
    error_sources: ErrorSources | None = None
    """what is responsible for the error of the step time; None if the runs have no step in common"""

    def document(self) -> dict[str, Any]:
        """Returns the line for a JSON answer."""
        return {
            "name": self.name,
            "simulated": self.simulated,
            "measured": self.measured,
            "error": self.error,
            "wrong_models": self.wrong_models,
            "explanation": self._explanation(),
        }

    def _explanation(self) -> dict[str, Any] | None:
        found = self.error_sources
        return None if found is None else {**found.record(), "words": describe_error(self.name, found)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The predicted and measured algorithms of a scenario."""

    scenario: str
    predicts: Predicts
    lines: tuple[Line, ...]
    other_load: float
    """fraction of all cores that other processes used while the runs were measured, 0 … 1"""

    @property
    def target(self) -> float | None:
        """The target of the time to accuracy."""
        target: float | None = self.lines[0].measured["target_accuracy"]
        return target

    @property
    def aim(self) -> Aim | None:
        """The criterion of the algorithms: the target accuracy or the target loss."""
        return aim_of(self.lines[0].measured)

    @property
    def calibration(self) -> str | None:
        """The verdict of the calibration or of the probe from which runs were predicted; None if it is not known."""
        said: str | None = self.lines[0].simulated.get("calibration")
        return said

    @property
    def has_accuracy(self) -> bool:
        """Whether the problem has an accuracy."""
        return any(line.measured["final_accuracy"] is not None for line in self.lines)

    @property
    def measured_kind(self) -> str:
        """The kind of the measured runs."""
        return kind_of(self.lines[0].measured)

    def document(self) -> dict[str, Any]:
        """Returns the JSON document of ``paceline compare``."""
        return {
            "scenario": self.scenario,
            "predicts": self.predicts,
            "algorithms": [line.document() for line in self.lines],
            "other_load": self.other_load,
            "calibration": self.calibration,
        }


def line(name: str, *, simulated: Sequence[Run], measured: Sequence[Run], wrong: dict[str, Sequence[Run]]) -> Line:
    """Compares the runs of one algorithm.

    Args:
        name: the algorithm's name in this scenario.
        simulated: one run per seed.
        measured: one run per seed, the same seeds.
        wrong: runs of the simpler predictions, by what they leave out; the same seeds.

    Raises:
        ValueError: both sides have different seeds, so that runs cannot be paired.
    """
    seeds, others = (sorted(run.seed for run in side) for side in (simulated, measured))
    if seeds != others:
        raise ValueError(
            f"{name}: predicted seeds {seeds}, measured seeds {others}: errors need pairs of the same seed"
        )
    ours, real = _summaries(simulated), _summaries(measured)
    return Line(
        name=name,
        simulated=together(ours),
        measured=together(real),
        error=error(ours, real),
        wrong_models={model: error(_summaries(runs), real) for model, runs in wrong.items()},
        predicted_runs=simulated,
        measured_runs=measured,
        error_sources=error_sources(simulated, measured),
    )


def _summaries(runs: Sequence[Run]) -> list[dict[str, Any]]:
    return [dict(run.summary) for run in sorted(runs, key=lambda run: run.seed)]


def compare(
    scenario: Scenario | Mapping[str, Any] | str | Path,
    *,
    machine: MachinePart | None = None,
    stage: Stage = lambda _: None,
    keep: Callable[[Run], Run] = lambda run: run,
) -> Comparison:
    """Predicts and measures every algorithm and seed of a scenario.

    Args:
        scenario: a scenario, in any form that `paceline.scenarios.load` accepts.
        machine: the machine as `paceline calibrate` measured it; None: `cluster.machine` of the scenario, or else it is
            probed first.
        stage: called with the name of each stage; returns the stage's progress callback.
        keep: called with each simulated and measured run after its stage, to store it; returns the stored run.

    Raises:
        InputError: the scenario is wrong or does not fit the machine, has sections that only simulations support, or
            its network cannot be emulated here.
        RunsFailed: a measured run failed.
    """
    from paceline.backend.training.run import train
    from paceline.simulator.runs.machines import this_host

    scenario = scenario if isinstance(scenario, Scenario) else load(scenario)
    refuse_simulated_only(scenario)
    keep = check_own_methods(scenario).marking(keep)
    if machine is None and scenario.cluster.machine is not None:
        machine = load_machine(scenario.cluster.machine)
    network = this_host(machine, scenario) if machine is not None else probed_quietly(scenario, stage)
    predicted = predict(scenario, network, stage=stage, keep=keep)
    with OtherLoad() as other:
        measured = train(scenario, progress=stage("measuring"), keep=keep)
    return assemble(
        scenario.name,
        simulated=predicted.simulated,
        measured=measured,
        wrong=predicted.wrong,
        other_load=other.share,
    )


def probed_quietly(scenario: Scenario, stage: Stage = lambda _: None) -> Profile | EmulatedProfile:
    """Returns the result of `probed`, repeated if other programs disturbed it; its verdict says so."""
    return judged(*least_disturbed(lambda: probed(scenario, stage)))


def judged(found: Probed, verdict: str) -> Probed:
    """Returns probed costs with their verdict."""
    one: Any = found
    linked = isinstance(found, EmulatedProfile | LinkedProfile)
    made: Probed = replace(one, machine=judged(one.machine, verdict)) if linked else replace(one, verdict=verdict)
    return made


def probed(scenario: Scenario, stage: Stage = lambda _: None) -> Profile | EmulatedProfile:
    """Probes this machine, or its costs on top of the emulated network if the scenario requests one.

    Args:
        scenario: the scenario.
        stage: called with the name of each stage; returns the stage's progress callback.

    Raises:
        InputError: the network cannot be emulated here.
    """
    from paceline.simulator.runs.dry_run import dry_run

    plans = scenario.plans(paced=True)
    if scenario.train.network == "local":
        from paceline.backend.calibration.message_costs import probe

        profile = probe(scenario, dry_run(plans), progress=stage("probing this machine"))
        if scenario.train.pace == "device":
            return profile
        from paceline.backend.calibration.gradient_costs import available_cores, gradient_times

        times = gradient_times(scenario, progress=stage("measuring gradients"))
        return replace(profile, gradients=times, cores=available_cores())
    from paceline.backend.calibration.emulation_costs import probe_emulated
    from paceline.backend.emulation.emulated_network import refuse_emulation

    for plan in plans:
        refuse_emulation(plan)
    return probe_emulated(scenario, dry_run(plans), progress=stage("probing the emulated network"))


def assemble(
    scenario: str,
    *,
    simulated: Sequence[Run],
    measured: Sequence[Run],
    wrong: dict[str, list[Run]],
    other_load: float,
    predicts: Predicts | None = None,
) -> Comparison:
    """Compares existing runs, in the order of the algorithms in `simulated`.

    Args:
        scenario: the name of the scenario.
        simulated: the predicted runs.
        measured: the measured runs, of the same algorithms and seeds.
        wrong: the runs of the simpler predictions, by name.
        other_load: the fraction of all cores that other processes used meanwhile.
        predicts: what was predicted; by default this machine or its emulated network, as the measured runs say.
    """
    names = list(dict.fromkeys(run.algorithm for run in simulated))
    lines = tuple(
        line(
            name,
            simulated=_of(name, simulated),
            measured=_of(name, measured),
            wrong={model: _of(name, runs) for model, runs in wrong.items()},
        )
        for name in names
    )
    if predicts is None:
        emulated = all(line.measured["emulated_network"] for line in lines)
        predicts = "emulated network" if emulated else "this machine"
    return Comparison(scenario=scenario, predicts=predicts, lines=lines, other_load=other_load)


def _of(name: str, runs: Sequence[Run]) -> list[Run]:
    return [run for run in runs if run.algorithm == name]
