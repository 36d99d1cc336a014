"""The answer of `compare`: predicted and measured figures side by side, and what they say about the prediction."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.records import Run
from paceline.reports.blocks import Answer, Block, Claim
from paceline.reports.comparison.compare import Comparison
from paceline.reports.comparison.conclusion import conclusion
from paceline.reports.comparison.error_table import error_tables
from paceline.reports.comparison.run_table import comparison_tables
from paceline.reports.run_answer import notes_of


def answer_of_comparison(comparison: Comparison, runs: Sequence[Run] = (), *, explain: bool = False) -> Answer:
    """Returns the answer of a comparison.

    Args:
        comparison: the comparison.
        runs: the runs whose notes are shown; by default all of the comparison.
        explain: whether to show the sources of the errors of step times; they are always in the JSON document.
    """
    blocks: list[Block] = [*comparison_tables(comparison)]
    for line in comparison.lines if explain else ():
        if line.error_sources is not None:
            blocks += error_tables(line.name, line.error_sources)
    blocks.append(Claim(conclusion(comparison)))
    every = runs or [run for line in comparison.lines for run in (*line.predicted_runs, *line.measured_runs)]
    return Answer(
        f"{comparison.scenario}: predicted and measured", blocks, comparison.document, notes=list(notes_of(every))
    )
