"""Versions, machines and where the runs are stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from paceline.records import Run
from paceline.records.machine import package_versions
from paceline.reports.html.grids import facts, flat
from paceline.reports.html.report_parts import Grid, Section
from paceline.reports.timeline_data import label_of

HIDDEN = ("warnings", "assumptions", "gradient_times", "collectives")
"""facts about a run that have other places in a report, or are long"""


def versions_section(runs: Sequence[Run] = (), source: Mapping[str, Any] | None = None) -> Section:
    """Returns the section.

    Args:
        runs: all runs of the report.
        source: further facts about what the report was made from, by name.
    """
    parts: list[Grid] = []
    if source:
        parts.append(facts("What this report was made from", source))
    parts += _compared("Versions", {label_of(run): dict(run.versions) for run in runs}, folded=False)
    parts += _compared("Machine and engine", {label_of(run): _machine(run) for run in runs}, folded=True)
    if any(run.path for run in runs):
        rows = [[label_of(run), run.path.name if run.path else "–"] for run in runs]
        parts.append(Grid(title="Folders of the runs", columns=["run", "folder"], rows=rows, folded=True))
    written = {"written": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC", **package_versions()}
    parts.append(facts("This report", written, folded=bool(runs)))
    return Section(id="versions", title="Versions", parts=parts)


def _machine(run: Run) -> dict[str, str]:
    shown = {name: value for name, value in run.machine.items() if name not in HIDDEN and name != "events"}
    return {name: text for name, text in flat(shown).items() if name != "operations"}


def _compared(title: str, values: Mapping[str, Mapping[str, str]], *, folded: bool) -> list[Grid]:
    """Returns the facts that all runs have in common, and a table of those that differ.

    Args:
        title: what the facts are about.
        values: facts of each run, by the name of the run.
        folded: whether the tables are hidden until the reader opens them.
    """
    if not values:
        return []
    names = dict.fromkeys(name for mine in values.values() for name in mine)
    same = {name for name in names if len({mine.get(name) for mine in values.values()}) == 1}
    common = {name: next(iter(values.values()))[name] for name in names if name in same}
    made = [facts(f"{title} of all runs", common, folded=folded)] if common else []
    if other := [name for name in names if name not in same]:
        rows = [[label, *(mine.get(name, "–") for name in other)] for label, mine in values.items()]
        made.append(Grid(title=f"{title}: what differs between runs", columns=["run", *other], rows=rows, folded=True))
    return made
