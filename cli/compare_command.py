"""``paceline compare``: predicts a scenario, measures it and shows both side by side; or compares stored runs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paceline.algorithms.core.errors import InputError
from paceline.backend.transports.launchers import joined
from paceline.cli.actions import keeper, logging, naming_stored, reported, say_where, together
from paceline.cli.options import Loggers, ScenarioOptions, given, scenario_argument
from paceline.cli.output import Output

if TYPE_CHECKING:
    from paceline.records import Run
    from paceline.reports.comparison.comparison import ComparisonResult


def compare(
    *,
    scenario: Annotated[str | None, scenario_argument(more="; not allowed with --measured")] = None,
    options: ScenarioOptions,
    measured: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="RUN",
            help="Compare this stored run of [bold]paceline train[/] with a prediction from --machine, and start "
            "nothing; may be repeated, for further seeds and algorithms of the same scenario.",
        ),
    ] = None,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="Also show which activity, rank and phase is responsible for errors of step times above 3 %, and "
            "what to calibrate; and which part of the variation of steps makes workers wait.",
        ),
    ] = False,
    log: Loggers = None,
    output: Output,
) -> None:
    """Predict a scenario, measure it, and show both side by side, with the predictions of simpler models.

    The prediction is for this machine. Its costs are probed first, or taken from a file of `paceline calibrate`.
    Tables, a figure of accuracy against time, a report and all runs are stored. With --measured, runs that were
    measured before, here or elsewhere, are compared with the prediction from a machine file. With --explain, the error
    of a step time is divided among activities, ranks and phases, and the predicted waiting among the parts of the
    variation of steps. If `torchrun`, `srun` or `mpirun` has started the
    command, its processes are the ranks, on one host or on several.

    \b
    Examples:
      paceline compare quickstart
      paceline compare quickstart --seeds 3 --algorithms async-sgd,easgd
      paceline compare my.yaml --explain
      paceline compare my.yaml --log wandb
      paceline compare my.yaml --json > answer.json
      paceline compare --measured runs/my-easgd-1-measured-1 --machine node.yaml
    """
    if measured:
        others = given(scenario, replace(options, machine=None), log=log)
        compare_stored(measured, options.machine, output, others, explain=explain)
        return
    if scenario is None:
        raise InputError("SCENARIO: missing; give a scenario file, the name of one, or --measured RUN")
    kept: list[Run] = []
    started = joined(os.environ)
    with reported(started):
        loaded = options.read(scenario)
        first = started is None or started.process == 0
        if first:
            output.make_folder()
        from paceline.reports.comparison.compare import compare as compare_here
        from paceline.reports.comparison.compare import compare_hosts

        with (
            logging(log if first else None, output) as logs,  # before the others wait for this process
            together(started, output) as (world, speaking),
            naming_stored(kept, speaking, speaks=world is None or world.leads),
        ):
            keep = keeper(kept, output.folder, logs)
            with speaking.progress() as stage:
                comparison = (
                    compare_here(loaded, stage=stage, keep=keep, explain=explain)
                    if world is None
                    else compare_hosts(loaded, world, stage=stage, keep=keep, note=speaking.note, explain=explain)
                )
            folder = None if comparison is None else _store(comparison, kept, output)
    if comparison is not None and folder is not None:  # the other processes of a launcher have no answer
        _answer(comparison, kept, folder, output, explain=explain)


def compare_stored(
    folders: Sequence[Path], machine_file: Path | None, output: Output, others: Sequence[str], *, explain: bool
) -> None:
    """Predicts stored runs; stores the simulated runs, the answer and the figure, and prints the answer.

    Args:
        folders: the folders of the measured runs.
        machine_file: the calibrated machine.
        output: where the answer is printed.
        others: the names of further options that were given, none of which goes with stored runs.
        explain: whether to print the sources of errors, too; they are always in the JSON answer.

    Raises:
        InputError: an option is missing or too many, or a run or the machine file is wrong.
    """
    mistakes = [f"{name}: found beside --measured; the scenario is that of the measured runs" for name in others]
    if machine_file is None:
        mistakes.append("--machine: missing; --measured needs the file of `paceline calibrate` for the same machine")
    if mistakes or machine_file is None:
        raise InputError("\n".join(mistakes))
    from paceline.reports.comparison.compare import compare_measured, unlike
    from paceline.scenarios.machine_file import load_machine

    machine = load_machine(machine_file)
    output.make_folder()
    kept: list[Run] = []
    with naming_stored(kept, output):
        with output.progress() as stage:
            comparison = compare_measured(folders, machine, stage=stage, keep=keeper(kept, output.folder))
        measured = [run for line in comparison.lines for run in line.measured_runs]
        folder = _store(comparison, [*kept, *measured], output)
    _answer(comparison, kept, folder, output, explain=explain)
    for text in dict.fromkeys(text for run in measured for text in unlike(run, machine)):
        output.note(text)


def _answer(comparison: ComparisonResult, kept: Sequence[Run], folder: Path, output: Output, *, explain: bool) -> None:
    """Prints the tables, the conclusion and where everything is stored."""
    from paceline.cli.report_command import say_report
    from paceline.reports.comparison_answer import answer_of_comparison

    output.give(answer_of_comparison(comparison, kept, explain=explain))
    if not output.as_json:
        output.note(f"{'Figure and answer' if comparison.has_accuracy else 'Answer'} stored in {folder}/")
        say_report(folder, output)
        say_where(kept, output)


def _store(comparison: ComparisonResult, runs: Sequence[Run], output: Output) -> Path:
    """Writes the answer, the figure and the report to a new folder; returns the folder."""
    from paceline.cli.report_command import REPORT
    from paceline.records import store
    from paceline.records.document import to_json
    from paceline.reports.comparison.conclusion import conclusion

    folder = store.place(output.folder, f"{store.slug(comparison.scenario)}-comparison")
    with store.new_folder(folder) as building:
        record: Mapping[str, Any] = {
            **comparison.document(),
            "words": conclusion(comparison),
            "runs": [str(run.path) for run in runs],
        }
        (building / "comparison.json").write_text(to_json(record) + "\n", encoding="utf-8")
        if comparison.has_accuracy:
            comparison.plot().savefig(building / "accuracy.png")
        if output.report:
            comparison.report(building / REPORT)
    return folder
