"""The result of `compare`: each algorithm predicted and measured, and the errors of the prediction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from paceline.records import Run
from paceline.records.figures import IN_SUMMARY, STEP_TIME
from paceline.records.prediction_interval import bounds_of
from paceline.reports.attribution.error_sources import ErrorSources, error_sources
from paceline.reports.attribution.variation import VariationWaiting
from paceline.reports.comparison.error_table import describe_error
from paceline.reports.comparison.prediction_errors import Tree, error, together
from paceline.reports.comparison.ranking import Aim, aim_of
from paceline.reports.comparison.turns import MachineChange
from paceline.reports.result import Result
from paceline.reports.run_results import MeasuredRuns, SimulatedRuns
from paceline.reports.words import kind_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from paceline.reports.blocks import Answer

Predicts = Literal["this machine", "emulated network", "calibrated machine", "hosts of this run"]
"""what predictions are for; a calibrated machine is that of a file, beside runs that were measured before"""


STORED = (
    "name", "simulated", "measured", "error", "wrong_models", "explanation", "machine_change", "corrected", "within",
)  # fmt: skip
"""what a JSON document has of an algorithm"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedLine:
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
    variation: VariationWaiting | None = None
    """the predicted waiting by part of the variation of steps; None if it was not asked for, or steps have no parts"""
    explanation: Mapping[str, Any] | None = None
    """both as they are stored, in figures and words"""
    machine_change: float | None = None
    """by how much the machine was slower in the runs than predicted, over the latter; None if it is not known"""
    corrected: Tree | None = None
    """the errors of the same predictions at the speed that the machine had during the runs; None if it is not known"""
    within: float | None = None
    """the share of the measured runs whose step time lies in the interval of its prediction; None without intervals"""

    def document(self) -> dict[str, Any]:
        """Returns the line for a JSON answer."""
        return {key: getattr(self, key) for key in STORED}


@dataclass(frozen=True, kw_only=True, repr=False)
class ComparisonResult(Result):
    """What `paceline.compare` returns: the predicted and measured algorithms of a scenario."""

    scenario: str
    predicts: Predicts
    lines: tuple[ComparedLine, ...]
    other_load: float
    """fraction of all cores that other processes used while the runs were measured, 0 … 1"""
    transports: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """of the measured collectives and messages: shared memory, gloo, NCCL; empty if the runs do not say it"""

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
            "transports": {traffic: list(names) for traffic, names in self.transports.items()},
            "calibration": self.calibration,
        }

    @property
    def simulated(self) -> SimulatedRuns:
        """The predicted runs."""
        return SimulatedRuns(run for line in self.lines for run in line.predicted_runs)

    @property
    def measured(self) -> MeasuredRuns:
        """The measured runs."""
        return MeasuredRuns(run for line in self.lines for run in line.measured_runs)

    @property
    def words(self) -> str:
        """The conclusion in sentences."""
        from paceline.reports.comparison.conclusion import conclusion

        return conclusion(self)

    def frame(self) -> pd.DataFrame:
        """Returns a row for each algorithm and figure: simulated, measured, and the error of the prediction.

        The error is (simulated − measured) / measured; of an accuracy and of a time fraction see the guide. With
        several seeds, values are means, and columns with ``_low`` and ``_high`` are their 95 % intervals.
        """
        import pandas as pd

        rows = [
            {
                "algorithm": line.name,
                "figure": figure.column,
                **_columns("simulated", figure.of(line.simulated)),
                **_columns("measured", figure.of(line.measured)),
                **_columns("error", figure.of(line.error)),
            }
            for line in self.lines
            for figure in IN_SUMMARY
            if figure.error is not None or figure.type == "Float64"
        ]
        return pd.DataFrame(rows)

    def plot(self) -> Figure:
        """Draws the accuracies against time, or the step times if nothing with an accuracy was learned."""
        from paceline.reports.comparison_answer import comparison_chart
        from paceline.reports.png import figure_of

        return figure_of([comparison_chart(self)], title=self.scenario)

    def answer(self) -> Answer:
        """Returns the answer of the command: predicted and measured figures, and the conclusion."""
        from paceline.reports.comparison_answer import answer_of_comparison

        return answer_of_comparison(self)

    @property
    def _report_name(self) -> str:
        return f"{self.scenario}-comparison.html"


def _columns(name: str, value: Any) -> dict[str, float | None]:
    """Returns the columns of a figure: the value, or its mean and interval."""
    if isinstance(value, dict):
        return {name: value["mean"], f"{name}_low": value["low"], f"{name}_high": value["high"]}
    return {name: value}


def line(
    name: str,
    *,
    simulated: Sequence[Run],
    measured: Sequence[Run],
    wrong: dict[str, Sequence[Run]],
    variation: VariationWaiting | None = None,
    changes: Sequence[MachineChange] = (),
) -> ComparedLine:
    """Compares the runs of one algorithm.

    Args:
        name: the algorithm's name in this scenario.
        simulated: one run per seed.
        measured: one run per seed, the same seeds.
        wrong: runs of the simpler predictions, by what they leave out; the same seeds.
        variation: the predicted waiting by part of the variation of steps, if it is known.
        changes: the changes of the machine's speed, one per seed if they are known.

    Raises:
        ValueError: both sides have different seeds, so that runs cannot be paired.
    """
    seeds, others = (sorted(run.seed for run in side) for side in (simulated, measured))
    if seeds != others:
        raise ValueError(
            f"{name}: predicted seeds {seeds}, measured seeds {others}: errors need pairs of the same seed"
        )
    ours, real = _summaries(simulated), _summaries(measured)
    sources = error_sources(simulated, measured)
    return ComparedLine(
        name=name,
        simulated=together(ours),
        measured=together(real),
        error=error(ours, real),
        wrong_models={model: error(_summaries(runs), real) for model, runs in wrong.items()},
        predicted_runs=simulated,
        measured_runs=measured,
        error_sources=sources,
        variation=variation,
        explanation=None if sources is None else _explanation(name, sources, variation),
        machine_change=fmean(change.relative for change in changes) if changes else None,
        corrected=error(_summaries([change.run for change in changes]), real) if len(changes) == len(real) else None,
        within=_within(ours, real),
    )


def _within(ours: Sequence[Mapping[str, Any]], real: Sequence[Mapping[str, Any]]) -> float | None:
    """Returns the share of the measured step times that lie in the interval of their prediction."""
    bounds = [bounds_of(summary, STEP_TIME) for summary in ours]
    pairs = [(ends, STEP_TIME.of(summary)) for ends, summary in zip(bounds, real, strict=True) if ends is not None]
    return fmean(ends["low"] <= measured_s <= ends["high"] for ends, measured_s in pairs) if pairs else None


def _explanation(name: str, sources: ErrorSources, variation: VariationWaiting | None) -> dict[str, Any]:
    return {
        **sources.record(),
        "words": describe_error(name, sources),
        "variation": None if variation is None else variation.record(name, sources.waiting.measured_s),
    }


def _summaries(runs: Sequence[Run]) -> list[dict[str, Any]]:
    return [dict(run.summary) for run in sorted(runs, key=lambda run: run.seed)]


def assemble(
    scenario: str,
    *,
    simulated: Sequence[Run],
    measured: Sequence[Run],
    wrong: dict[str, list[Run]],
    other_load: float,
    predicts: Predicts | None = None,
    variation: Mapping[str, VariationWaiting] = MappingProxyType({}),
    changes: Mapping[tuple[str, int], MachineChange] = MappingProxyType({}),
) -> ComparisonResult:
    """Compares existing runs, in the order of the algorithms in `simulated`.

    Args:
        scenario: the name of the scenario.
        simulated: the predicted runs.
        measured: the measured runs, of the same algorithms and seeds.
        wrong: the runs of the simpler predictions, by name.
        other_load: the fraction of all cores that other processes used meanwhile.
        predicts: what was predicted; by default this machine or its emulated network, as the measured runs say.
        variation: the predicted waiting by part of the variation of steps, by algorithm, as far as it is known.
        changes: the changes of the machine's speed, by algorithm and seed, as far as they are known.
    """
    names = list(dict.fromkeys(run.algorithm for run in simulated))
    lines = tuple(
        line(
            name,
            simulated=_of(name, simulated),
            measured=_of(name, measured),
            wrong={model: _of(name, runs) for model, runs in wrong.items()},
            variation=variation.get(name),
            changes=[changes[key] for key in sorted(changes) if key[0] == name],
        )
        for name in names
    )
    if predicts is None:
        emulated = all(line.measured["emulated_network"] for line in lines)
        predicts = "emulated network" if emulated else "this machine"
    transports = transports_of(measured)
    return ComparisonResult(
        scenario=scenario, predicts=predicts, lines=lines, other_load=other_load, transports=transports
    )


def transports_of(runs: Sequence[Run]) -> dict[str, list[str]]:
    """Returns the transports of the collectives and of the messages of measured runs, as far as these say them.

    Args:
        runs: measured runs.
    """
    found: dict[str, dict[str, None]] = {}
    for run in runs:
        for traffic, names in run.machine.get("transports", {}).items():
            found.setdefault(traffic, {}).update(dict.fromkeys(names))
    return {traffic: sorted(names) for traffic, names in found.items() if names}


def _of(name: str, runs: Sequence[Run]) -> list[Run]:
    return [run for run in runs if run.algorithm == name]
