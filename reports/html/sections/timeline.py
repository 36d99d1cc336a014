"""The timeline of every rank."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.records import Run
from paceline.reports.html.report_parts import Section, Timeline
from paceline.reports.timeline_data import timeline_of


def first_seeds(runs: Sequence[Run]) -> list[Run]:
    """Returns the run with the lowest seed of each algorithm and kind, in the order of the runs."""
    found: dict[tuple[str, str], Run] = {}
    for run in sorted(runs, key=lambda run: run.seed):
        found.setdefault((run.algorithm, run.kind), run)
    return [run for run in runs if found[run.algorithm, run.kind] is run]


def timeline_section(runs: Sequence[Run]) -> Section | None:
    """Returns the section; None if no run recorded spans.

    Args:
        runs: all runs of the report.
    """
    shown = first_seeds(runs)
    found = [data for run in shown if (data := timeline_of(run, len(shown))) is not None]
    if not found:
        return None
    seed = f"Of each method seed {shown[0].seed} is shown. " if len(shown) < len(runs) else ""
    return Section(
        id="timeline",
        title="Timeline",
        parts=[
            Timeline(
                title="What every rank does during the run",
                words=f"{seed}Each row is a rank; ranks after the workers are servers, and a rank that does several "
                "things at once has a row for each lane. A long stretch of waiting means that the rank depends on a "
                "slower one or on the network. Drag over the chart, or use the buttons, to look at a shorter time: "
                "then each bar is one operation, and pointing at it shows its step, length and size.",
                alt=f"Timelines of {len(found)} runs: coloured bars show what each rank does against time. The shares "
                "of time in the section Time have the same content as figures.",
                runs=found,
            )
        ],
    )
