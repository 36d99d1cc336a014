"""The main job: every algorithm of a scenario predicted and measured, side by side.

Rules of this file:

* The prediction is made before the measurement and knows nothing of it but the machine: where the real messages cross
  this machine, the simulated network is this machine's, from a probe at the start; where they cross an emulated
  network, it is that network, with what this machine adds to it.
* Beside our prediction stand two that leave something out, messages or spread. A prediction that is no nearer than they
  are proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from paceline.algorithms.core.errors import InputError
from paceline.checking.own_methods import check_own_methods
from paceline.records import Run
from paceline.records.machine import OtherLoad
from paceline.reports.comparison.prediction_errors import Tree, error, together
from paceline.reports.comparison.targets import Aim, aim_of
from paceline.reports.comparison.words import kind_of
from paceline.scenarios import Scenario, load
from paceline.scenarios.resolution.real_run_validation import refuse_simulated_only
from paceline.topologies.catalogue.machine_profile import EmulatedProfile, Profile

WRONG_MODELS: tuple[str, str] = ("no_message_cost", "no_spread")
"""predictions that leave something out, to show what it is worth"""

Report = Callable[[str, float], None]
"""told what is being done, and how much of it is done, 0 … 1"""

Stage = Callable[[str], Report | None]
"""told of each stage of a comparison as it begins; answers what the stage reports its progress to"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One algorithm: what was predicted, what was measured, and how far apart they are."""

    name: str
    simulated: Tree
    """its summary; with several seeds every figure is ``{mean, low, high}``"""
    measured: Tree
    error: Tree
    wrong_models: dict[str, Tree]
    """errors of predictions that leave something out, by name"""
    predicted_runs: Sequence[Run] = ()
    measured_runs: Sequence[Run] = ()

    def answer(self) -> dict[str, Any]:
        """As it stands in a JSON answer."""
        return {
            "name": self.name,
            "simulated": self.simulated,
            "measured": self.measured,
            "error": self.error,
            "wrong_models": self.wrong_models,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A scenario's algorithms, predicted and measured."""

    scenario: str
    predicts: Literal["this machine", "emulated network"]
    lines: tuple[Line, ...]
    other_load: float
    """share of all cores that other processes took while the runs were measured, 0 … 1"""

    @property
    def target(self) -> float | None:
        """The accuracy that time to accuracy is measured against."""
        target: float | None = self.lines[0].measured["target_accuracy"]
        return target

    @property
    def aim(self) -> Aim | None:
        """What the algorithms are judged by: the target accuracy or the target loss."""
        return aim_of(self.lines[0].measured)

    @property
    def has_accuracy(self) -> bool:
        """Whether what is learned has an accuracy at all."""
        return any(line.measured["final_accuracy"] is not None for line in self.lines)

    @property
    def measured_kind(self) -> str:
        """How the measured side was made."""
        return kind_of(self.lines[0].measured)

    def answer(self) -> dict[str, Any]:
        """The JSON answer of ``paceline compare``."""
        return {
            "scenario": self.scenario,
            "predicts": self.predicts,
            "algorithms": [line.answer() for line in self.lines],
            "other_load": self.other_load,
        }


def line(name: str, *, simulated: Sequence[Run], measured: Sequence[Run], wrong: dict[str, Sequence[Run]]) -> Line:
    """One algorithm's line from its runs.

    Args:
        name: of the algorithm in this scenario.
        simulated: one run per seed.
        measured: one run per seed, the same seeds.
        wrong: simulated runs that leave something out, by what they leave out; the same seeds.
    """
    ours, real = _summaries(simulated), _summaries(measured)
    return Line(
        name=name,
        simulated=together(ours),
        measured=together(real),
        error=error(ours, real),
        wrong_models={model: error(_summaries(runs), real) for model, runs in wrong.items()},
        predicted_runs=simulated,
        measured_runs=measured,
    )


def _summaries(runs: Sequence[Run]) -> list[dict[str, Any]]:
    return [dict(run.summary) for run in sorted(runs, key=lambda run: run.seed)]


def compare(
    scenario: Scenario | Mapping[str, Any] | str | Path,
    *,
    stage: Stage = lambda _: None,
    keep: Callable[[Run], Run] = lambda run: run,
) -> Comparison:
    """Predicts and measures every algorithm and seed of a scenario.

    Args:
        scenario: a scenario, or whatever `paceline.scenarios.load` takes.
        stage: called with the name of each stage; what it answers is given to the stage as its progress callback.
        keep: called with each simulated and measured run when its stage is over, to store it; answers it as stored.

    Raises:
        InputError: with every mistake of the scenario, that its runs are not paced, that it has what only a simulation
            has, or that its network cannot be emulated here.
        RunsFailed: a measured run failed.
    """
    from paceline.backend.training.run import train
    from paceline.simulator.runs.run import simulate

    scenario = scenario if isinstance(scenario, Scenario) else load(scenario)
    if scenario.train.pace != "device":
        raise InputError(
            f"{scenario.name}: train.pace: found '{scenario.train.pace}', expected device: how long this machine's own "
            "gradients take is not probed yet, so only paced runs can be predicted"
        )
    refuse_simulated_only(scenario)
    check_own_methods(scenario)
    network = _probed(scenario, stage)
    simulated = simulate(scenario, network=network, progress=stage("predicting"), keep=keep)
    told = stage("predicting without message cost")
    free = simulate(scenario, network=network, message_cost=False, progress=told)
    even = simulate(scenario, network=network, jitter=False, progress=stage("predicting without spread"))
    wrong = dict(zip(WRONG_MODELS, (free, even), strict=True))
    with OtherLoad() as other:
        measured = train(scenario, progress=stage("measuring"), keep=keep)
    return assemble(scenario.name, simulated=simulated, measured=measured, wrong=wrong, other_load=other.share)


def _probed(scenario: Scenario, stage: Stage) -> Profile | EmulatedProfile:
    """This machine, and what it adds to a network that it emulates where the scenario asks for one."""
    from paceline.simulator.runs.dry_run import dry_run

    plans = scenario.plans(paced=True)
    if scenario.train.network == "local":
        from paceline.backend.calibration.message_costs import probe

        return probe(scenario, dry_run(plans), progress=stage("probing this machine"))
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
) -> Comparison:
    """The comparison of runs that are there already, in the order in which the algorithms come in `simulated`."""
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
    emulated = all(line.measured["emulated_network"] for line in lines)
    predicts: Literal["this machine", "emulated network"] = "emulated network" if emulated else "this machine"
    return Comparison(scenario=scenario, predicts=predicts, lines=lines, other_load=other_load)


def _of(name: str, runs: Sequence[Run]) -> list[Run]:
    return [run for run in runs if run.algorithm == name]
