"""`compare` and its result."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from paceline.records import Run
from paceline.records.figures import IN_SUMMARY
from paceline.reports.comparison.compare import Comparison
from paceline.reports.comparison.compare import compare as compared
from paceline.reports.results.result import Result
from paceline.reports.results.run_results import MeasuredRuns, SimulatedRuns, Source

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from paceline.reports.blocks import Answer
    from paceline.reports.comparison.predict import Stage
    from paceline.scenarios.sections.machine_file import MachinePart


@dataclass(frozen=True, kw_only=True, repr=False)
class ComparisonResult(Result, Comparison):
    """What `paceline.compare` returns: predicted and measured algorithms."""

    @staticmethod
    def of(comparison: Comparison) -> ComparisonResult:
        """Returns a comparison as a result."""
        return ComparisonResult(
            **{field.name: getattr(comparison, field.name) for field in dataclasses.fields(comparison)}
        )

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


def compare(
    scenario: Source,
    *,
    machine: MachinePart | None = None,
    stage: Stage = lambda _: None,
    keep: Callable[[Run], Run] = lambda run: run,
) -> ComparisonResult:
    """Predicts and measures every algorithm and seed of a scenario.

    Args:
        scenario: a scenario, or an argument of `paceline.load`.
        machine: the machine as `paceline calibrate` measured it; None: that of the scenario, or else it is probed.
        stage: called with the name of each stage; returns the stage's progress callback.
        keep: called with each simulated and measured run after its stage, to store it; returns the stored run.

    Returns:
        The comparison.

    Raises:
        InputError: the scenario is wrong, does not fit this machine, or needs what only a simulation has.
        RunsFailed: a measured run failed.
    """
    return ComparisonResult.of(compared(scenario, machine=machine, stage=stage, keep=keep))
