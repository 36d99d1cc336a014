"""``paceline report``: one HTML file of stored results; and the reports that other commands write by default."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.cli.options import Only
from paceline.cli.output import Output

if TYPE_CHECKING:
    from paceline.reports.run_results import SimulatedRuns

REPORT = "report.html"
MOST_RUNS = 200
"""runs of a simulation of which a report is written by default; provenance: ours"""


def report(
    *,
    sources: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="SOURCE...",
            help="Folders of runs, a folder that contains the runs of one scenario, the folder of one comparison, "
            "sweep or plan, or counterexamples of [bold]paceline check[/].",
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="The HTML file; an earlier report there is replaced.")
    ] = Path(REPORT),
    output: Annotated[Output, Only("as_json", "quiet")],
) -> None:
    """Write one HTML file that shows stored results, for a browser without a network.

    A report of runs has a summary in words, accuracy and loss against time, samples
    and updates, a timeline of every rank, staleness, shares of time, the scenario
    with the sources of its values, and versions. A comparison adds the errors of
    predictions and their causes; a sweep has scaling curves with crossing points, a
    plan the Pareto front, a check the story of each counterexample.

    \b
    Examples:
      paceline report runs/quickstart-comparison-1
      paceline report runs/quickstart-async-sgd-*-simulated-1 --out async.html
      paceline report runs/my-sweep-1 --out sweep.html
      paceline report counterexamples
    """
    from paceline.reports.blocks import Answer, Claim
    from paceline.reports.html import write_report
    from paceline.reports.stored_answers import stored_answer

    made = stored_answer(sources or [])
    path = write_report(made, out)
    sections = [section.title for section in made.whole()]
    document = {"path": str(path), "bytes": path.stat().st_size, "title": made.title, "sections": sections}
    words = f"{path}: {made.title}; {', '.join(sections)}; {path.stat().st_size / 1e6:.1f} MB"
    output.give(Answer("Report", [Claim(words)], lambda: document))


def say_report(folder: Path, shown: Output) -> None:
    """Prints where the report of a command is, if there is one.

    Args:
        folder: the folder of its results.
        shown: where the note is printed.
    """
    if (folder / REPORT).exists():
        shown.note(f"Report, for a browser: {folder / REPORT}")


def report_of_simulation(runs: SimulatedRuns, name: str, shown: Output) -> None:
    """Writes the report of simulated runs into a new folder beside theirs, and names it.

    Args:
        runs: the stored runs.
        name: the scenario's name.
        shown: where the runs are stored and the note is printed.
    """
    if len(runs) > MOST_RUNS:
        shown.note(f"no report of {len(runs)} runs is written; paceline report RUN... writes one of some of them")
        return
    from paceline.records import store

    folder = store.place(shown.folder, f"{store.slug(name)}-simulation")
    with store.new_folder(folder) as building:
        runs.report(building / REPORT)
    if not shown.as_json:
        say_report(folder, shown)
