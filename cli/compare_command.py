"""``paceline compare``: predicts a scenario, measures it and shows both side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paceline.cli.options import (
    RUNS,
    Algorithms,
    Json,
    Machine,
    Network,
    Out,
    Pace,
    Quiet,
    Scenario,
    Seed,
    Seeds,
    Set,
    Verbose,
    output,
)

if TYPE_CHECKING:
    from paceline.cli.actions import Ask
    from paceline.cli.output import Output
    from paceline.records import Run
    from paceline.reports.comparison.compare import Comparison

Explain = Annotated[
    bool,
    typer.Option(
        "--explain",
        help="Also show which activity, rank and phase is responsible for errors of step times above 3 %, and what to "
        "calibrate.",
    ),
]


def compare(
    ctx: typer.Context,
    scenario: Scenario,
    changes: Set = None,
    algorithms: Algorithms = None,
    seed: Seed = None,
    seeds: Seeds = None,
    pace: Pace = None,
    network: Network = None,
    machine: Machine = None,
    explain: Explain = False,
    out: Out = RUNS,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Predict a scenario, measure it, and show both side by side, with the predictions of simpler models.

    The prediction is for this machine. Its costs are probed first, or taken from a file of `paceline calibrate`.
    Tables, a figure of accuracy against time and all runs are stored. With --explain, the error of a step time is
    divided among activities, ranks and phases.

    \b
    Examples:
      paceline compare quickstart
      paceline compare quickstart --seeds 3 --algorithms async-sgd,easgd
      paceline compare my.yaml --explain
      paceline compare my.yaml --json > answer.json
    """
    from paceline.cli.actions import Ask

    ask = Ask(
        scenario,
        changes=changes or [],
        algorithms=algorithms,
        seed=seed,
        seeds=seeds,
        machine=machine,
        out=out,
        pace=pace,
        network=network,
    )
    show(ask, output(ctx, as_json, quiet, verbose), explain=explain)


def show(ask: Ask, shown: Output, *, explain: bool) -> None:
    """Predicts and measures every algorithm; stores the runs, the answer and the figure, and prints the answer.

    Args:
        ask: the request.
        shown: where the answer is printed.
        explain: whether to print the sources of errors, too; they are always in the JSON answer.
    """
    scenario = ask.load()
    from paceline.cli import actions
    from paceline.records import RunsFailed
    from paceline.reports.comparison.compare import compare as run
    from paceline.reports.comparison.conclusion import conclusion
    from paceline.reports.comparison.run_table import comparison_tables

    kept: list[Run] = []
    with actions.stored_if_interrupted(kept):
        try:
            with shown.progress() as stage:
                comparison = run(scenario, stage=stage, keep=actions.keeper(kept, ask.out))
        except RunsFailed as failure:
            actions.say_kept(failure, shown)
            raise
        answer = comparison.answer()
        folder = _store_comparison(scenario.name, comparison, answer, kept, ask.out)
    shown.answer(answer, [*comparison_tables(comparison), *_explained(comparison, explain), conclusion(comparison)])
    actions.say_times(kept, shown)
    actions.say_warnings(chain.from_iterable(map(actions.warnings_of, kept)), shown)
    actions.say_lost(kept, shown)
    if not shown.as_json:
        shown.note(f"{'Figure and answer' if comparison.has_accuracy else 'Answer'} stored in {folder}/")
        actions.say_where(kept, ask, shown)


def _explained(comparison: Comparison, explain: bool) -> list[Any]:
    """Returns the tables and sentences about the sources of errors, if they are requested."""
    from paceline.reports.comparison.error_table import error_tables

    if not explain:
        return []
    return [
        part
        for line in comparison.lines
        if line.error_sources is not None
        for part in error_tables(line.name, line.error_sources)
    ]


def _store_comparison(
    name: str, comparison: Comparison, answer: Mapping[str, Any], kept: Sequence[Run], out: Path
) -> Path:
    """Writes the answer and the figure to a new folder; returns the folder."""
    from paceline.records import store
    from paceline.records.document import to_json
    from paceline.reports.comparison.accuracy_figure import save_figure

    folder = store.place(out, f"{store.slug(name)}-comparison")
    with store.new_folder(folder) as building:
        record = {**answer, "runs": [str(run.path) for run in kept]}
        (building / "comparison.json").write_text(to_json(record) + "\n", encoding="utf-8")
        if comparison.has_accuracy:
            save_figure(comparison, building / "accuracy.png")
    return folder
