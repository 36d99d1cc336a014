"""``paceline compare``: predicts a scenario, measures it and shows both side by side; or compares stored runs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paceline.algorithms.core.errors import InputError
from paceline.backend.transports.launch_environment import joined
from paceline.cli.actions import ScenarioOptions, keeper, naming_stored, reported, say_where, together
from paceline.cli.options import (
    RUNS,
    Algorithms,
    Csv,
    Json,
    Machine,
    Network,
    Out,
    Pace,
    Quiet,
    Report,
    Seed,
    Seeds,
    Set,
    Verbose,
    output,
    scenario_argument,
)

if TYPE_CHECKING:
    from paceline.backend.transports.launch_environment import Joined
    from paceline.cli.output import Output
    from paceline.records import Run
    from paceline.reports.comparison.comparison import ComparisonResult

ScenarioOrMeasured = Annotated[str | None, scenario_argument(more="; not allowed with --measured")]
MeasuredRuns = Annotated[
    list[Path] | None,
    typer.Option(
        "--measured",
        metavar="RUN",
        help="Compare this stored run of [bold]paceline train[/] with a prediction from --machine, and start nothing; "
        "may be repeated, for further seeds and algorithms of the same scenario.",
        show_default=False,
    ),
]


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
    scenario: ScenarioOrMeasured = None,
    changes: Set = None,
    algorithms: Algorithms = None,
    seed: Seed = None,
    seeds: Seeds = None,
    pace: Pace = None,
    network: Network = None,
    machine: Machine = None,
    measured: MeasuredRuns = None,
    explain: Explain = False,
    report: Report = True,
    out: Out = RUNS,
    as_json: Json = False,
    as_csv: Csv = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Predict a scenario, measure it, and show both side by side, with the predictions of simpler models.

    The prediction is for this machine. Its costs are probed first, or taken from a file of `paceline calibrate`.
    Tables, a figure of accuracy against time, a report and all runs are stored. With --measured, runs that were
    measured before, here or elsewhere, are compared with the prediction from a machine file. With --explain, the error
    of a step time is divided among activities, ranks and phases. If `torchrun`, `srun` or `mpirun` has started the
    command, its processes are the ranks, on one host or on several.

    \b
    Examples:
      paceline compare quickstart
      paceline compare quickstart --seeds 3 --algorithms async-sgd,easgd
      paceline compare my.yaml --explain
      paceline compare my.yaml --json > answer.json
      paceline compare --measured runs/my-easgd-1-measured-1 --machine node.yaml
    """
    shown = output(ctx, as_json, quiet, verbose, as_csv=as_csv)
    given = {
        "SCENARIO": scenario,
        "--set": changes,
        "--algorithms": algorithms,
        "--seed": seed,
        "--seeds": seeds,
        "--pace": pace,
        "--network": network,
    }
    options = ScenarioOptions(
        scenario or "",
        changes=changes,
        algorithms=algorithms,
        seed=seed,
        seeds=seeds,
        machine=machine,
        out=out,
        pace=pace,
        network=network,
    )
    if measured:
        too_many = [name for name, value in given.items() if value not in (None, [])]
        show_measured(measured, options, shown, too_many, explain, report)
        return
    if scenario is None:
        raise InputError("SCENARIO: missing; give a scenario file, the name of one, or --measured RUN")
    if (started := joined(os.environ)) is not None:
        show_joined(options, shown, started, explain=explain, report=report)
        return
    show(options, shown, explain=explain, report=report)


def show(options: ScenarioOptions, shown: Output, *, explain: bool, report: bool = False) -> None:
    """Predicts and measures every algorithm; stores the runs, the answer and the figure, and prints the answer.

    Args:
        options: the scenario and changes to it.
        shown: where the answer is printed.
        explain: whether to print the sources of errors, too; they are always in the JSON answer.
        report: whether to write a report.
    """
    scenario = options.load()
    from paceline.reports.comparison.compare import compare as run

    kept: list[Run] = []
    with naming_stored(kept, shown):
        with shown.progress() as stage:
            comparison = run(scenario, stage=stage, keep=keeper(kept, options.out))
        folder = _store_comparison(comparison, kept, options.out, report=report)
    _answer(comparison, kept, folder, options, shown, explain=explain)


def show_joined(
    options: ScenarioOptions, output: Output, started: Joined, *, explain: bool, report: bool = False
) -> None:
    """Predicts and measures as one process of several, of which only the first writes files and prints.

    Args:
        options: the scenario and changes to it.
        output: where the answer is printed.
        started: how this process was started.
        explain: whether to print the sources of errors, too.
        report: whether to write a report.
    """
    with reported(started):
        scenario = options.load() if started.process == 0 else options.read()
        with together(started, output) as (world, shown):
            from paceline.reports.comparison.compare import compare_hosts

            kept: list[Run] = []
            with naming_stored(kept, shown, speaks=world.leads):
                with shown.progress() as stage:
                    keep = keeper(kept, options.out)
                    comparison = compare_hosts(scenario, world, stage=stage, keep=keep, note=shown.note)
                folder = None if comparison is None else _store_comparison(comparison, kept, options.out, report=report)
    if comparison is not None and folder is not None:
        _answer(comparison, kept, folder, options, output, explain=explain)


def show_measured(
    folders: Sequence[Path],
    options: ScenarioOptions,
    shown: Output,
    given: Sequence[str],
    explain: bool = False,
    report: bool = False,
) -> None:
    """Predicts stored runs; stores the simulated runs, the answer and the figure, and prints the answer.

    Args:
        folders: the folders of the measured runs.
        options: the scenario and changes to it, of which only the machine and the folder for records are used.
        shown: where the answer is printed.
        given: the names of further options that were given, none of which goes with stored runs.
        explain: whether to print the sources of errors, too.
        report: whether to write a report.

    Raises:
        InputError: an option is missing or too many, or a run or the machine file is wrong.
    """
    mistakes = [f"{name}: found beside --measured; the scenario is that of the measured runs" for name in given]
    if options.machine is None:
        mistakes.append("--machine: missing; --measured needs the file of `paceline calibrate` for the same machine")
    if mistakes or options.machine is None:
        raise InputError("\n".join(mistakes))
    from paceline.reports.comparison.compare import compare_measured, unlike
    from paceline.scenarios.machines.machine_store import load_machine

    machine = load_machine(options.machine)
    options.make_out()
    kept: list[Run] = []
    with naming_stored(kept, shown):
        with shown.progress() as stage:
            comparison = compare_measured(folders, machine, stage=stage, keep=keeper(kept, options.out))
        measured = [run for line in comparison.lines for run in line.measured_runs]
        folder = _store_comparison(comparison, [*kept, *measured], options.out, report=report)
    _answer(comparison, kept, folder, options, shown, explain=explain)
    for text in dict.fromkeys(text for run in measured for text in unlike(run, machine)):
        shown.note(text)


def _answer(
    comparison: ComparisonResult,
    kept: Sequence[Run],
    folder: Path,
    options: ScenarioOptions,
    shown: Output,
    *,
    explain: bool,
) -> None:
    """Prints the tables, the conclusion and where everything is stored."""
    from paceline.cli.report_command import say_report
    from paceline.reports.comparison_answer import answer_of_comparison

    shown.give(answer_of_comparison(comparison, kept, explain=explain))
    if not shown.as_json:
        shown.note(f"{'Figure and answer' if comparison.has_accuracy else 'Answer'} stored in {folder}/")
        say_report(folder, shown)
        say_where(kept, options, shown)


def _store_comparison(comparison: ComparisonResult, runs: Sequence[Run], out: Path, *, report: bool) -> Path:
    """Writes the answer, the figure and the report to a new folder; returns the folder."""
    from paceline.cli.report_command import add_report
    from paceline.records import store
    from paceline.records.document import to_json
    from paceline.reports.comparison.conclusion import conclusion
    from paceline.reports.comparison_answer import answer_of_comparison, comparison_chart
    from paceline.reports.png import save

    folder = store.place(out, f"{store.slug(comparison.scenario)}-comparison")
    with store.new_folder(folder) as building:
        record: Mapping[str, Any] = {
            **comparison.document(),
            "words": conclusion(comparison),
            "runs": [str(run.path) for run in runs],
        }
        (building / "comparison.json").write_text(to_json(record) + "\n", encoding="utf-8")
        if comparison.has_accuracy:
            save([comparison_chart(comparison)], building / "accuracy.png", title=comparison.scenario)
        if report:
            add_report(building, lambda: answer_of_comparison(comparison))
    return folder
