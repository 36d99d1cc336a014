"""``paceline runs``, ``show`` and ``export``: list, filter, compare, delete, describe and export stored runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from paceline.algorithms.core.errors import InputError
from paceline.cli.options import (
    RUNS,
    HintingCommand,
    Only,
    RunArgument,
    complete_algorithms,
    complete_stored_runs,
    folder_of,
    read,
    split_names,
    value_of,
)
from paceline.cli.output import Output
from paceline.records.figures import significant

if TYPE_CHECKING:
    from paceline.records import Run
    from paceline.records.stored_runs import StoredRun

MANY_SPANS = 100_000
"""DERIVED: a trace of 1.2 million spans took 24 s of processor time, so this many take two"""
OPENED: dict[str, str] = {
    "chakra": "give ASTRA-sim its path and the name of the run as --workload-configuration, and its comm_group.json",
    "chrome": "open it at chrome://tracing, or https://ui.perfetto.dev, which sends it nowhere",
    "csv": "README.md in it gives the meaning and the unit of each column",
    "tensorboard": "show it with: tensorboard --logdir",
}


def runs(
    *,
    places: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[PATH]...",
            help="Folders of runs, or folders in which runs are stored. Default: runs/.",
            autocompletion=complete_stored_runs,
        ),
    ] = None,
    scenarios: Annotated[
        list[str] | None, typer.Option("--scenario", help="Only runs of this scenario; may be repeated.")
    ] = None,
    algorithms: Annotated[
        str | None,
        typer.Option(
            "--algorithm", metavar="A,B,…", help="Only runs of these algorithms.", autocompletion=complete_algorithms
        ),
    ] = None,
    seeds: Annotated[
        list[int] | None, typer.Option("--seed", help="Only runs with this seed; may be repeated.")
    ] = None,
    kind: Annotated[
        Literal["simulated", "measured"] | None, typer.Option(help="Only simulated, or only measured runs.")
    ] = None,
    older_than: Annotated[
        str | None, typer.Option(metavar="AGE", help="Only runs stored longer ago, such as '7 days' or '12 h'.")
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIGURE<VALUE",
            help="Only runs whose summary meets a condition with <, <=, >, >=, = or !=, such as 'step_s.mean<0.03'; "
            "may be repeated.",
        ),
    ] = None,
    sort: Annotated[
        str | None, typer.Option(metavar="FIGURE", help="Sort by a figure such as wall_s. Default: by time of storing.")
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Show the runs side by side, and the keys of their scenarios that differ.")
    ] = False,
    delete: Annotated[bool, typer.Option("--delete", help="Delete the runs, after a confirmation.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --delete: ask for no confirmation.")] = False,
    output: Annotated[Output, Only("as_json", "as_csv", "quiet")],
) -> None:
    """List stored runs; with filters only some of them. Compare them, or delete them.

    The figures in --where and --sort are those of the summary in run.json, with
    dots between names: wall_s, step_s.mean, staleness.mean, final_accuracy.

    \b
    Examples:
      paceline runs
      paceline runs --scenario quickstart --kind measured --sort final_accuracy
      paceline runs --algorithm sync-sgd,async-sgd --seed 1 --compare
      paceline runs runs/my-agd-1-simulated-1 runs/my-agd-1-simulated-2 --compare
      paceline runs --older-than '30 days' --where 'final_accuracy<0.5' --delete
    """
    from paceline.records.stored_runs import filter_of, find_runs, sorted_by
    from paceline.reports.stored_run_tables import answer_of_compared_runs, answer_of_stored_runs

    asked = filter_of(scenarios or (), split_names(algorithms), seeds or (), kind, older_than, where or ())
    if compare and delete:
        raise InputError("found --compare and --delete; expected one of them")
    if yes and not delete:
        raise InputError("found --yes without --delete; expected both, or neither")
    if not places and not RUNS.is_dir():
        raise InputError(f"found no folder {RUNS}/ here; expected one, or the folder of runs as an argument")
    stored = find_runs(places or [RUNS])
    for _, reason in stored.damaged:
        output.note(f"left out: {reason}")
    selected = sorted_by(asked.select(stored.runs), sort)
    if not selected and stored.runs:
        output.note(stored.nothing_selected)
    if delete:
        _delete(selected, output, yes=yes)
    else:
        output.give(answer_of_compared_runs(selected) if compare else answer_of_stored_runs(selected, stored))


def _delete(selected: list[StoredRun], output: Output, *, yes: bool) -> None:
    """Deletes runs after a confirmation, which needs a terminal."""
    from paceline.records.stored_runs import check_deletable, delete_runs
    from paceline.reports.blocks import Answer, Claim

    check_deletable(selected)
    for run in selected:
        output.note(f"{run.path}: {significant(run.bytes() / 1e6)} MB")
    count = f"{len(selected)} run{'s' * (len(selected) != 1)}"
    if selected and not yes:
        if not output.err.is_terminal or output.as_json:
            raise InputError(f"--delete: found no terminal to ask on; expected --yes to delete {count}")
        if not typer.confirm(f"Delete {count}? This cannot be undone.", err=True):
            output.note("nothing is deleted")
            return
    freed = delete_runs(selected)
    answer = {"deleted": [str(run.path) for run in selected], "bytes": freed}
    output.give(
        Answer("Deleted runs", [Claim(f"{count} deleted, {significant(freed / 1e6)} MB freed")], lambda: answer)
    )


def show(run: RunArgument, *, output: Annotated[Output, Only("as_json", "quiet")]) -> None:
    """Show one stored run: what it was, why it ended, its figures, ranks, evaluations and files.

    The checksums of all its files are verified first.

    \b
    Examples:
      paceline show runs/quickstart-async-sgd-1-simulated-1
      paceline show runs/my-agd-1-simulated-1 --json | jq .summary.step_s
    """
    from paceline.records.stored_runs import find_runs
    from paceline.reports.stored_run_tables import answer_of_stored_run

    document = read(run)
    (stored,) = find_runs([folder_of(run)]).runs
    output.give(answer_of_stored_run(document, stored))


class ExportCommand(HintingCommand):
    """``export``, which names the format that replaced ``perfetto``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parses the arguments; raises `InputError` for a format that is no longer written."""
        if value_of("--format", args) == "perfetto":
            raise InputError("--format: found 'perfetto'; expected chrome, whose JSON Perfetto opens")
        return super().parse_args(ctx, args)


def export(
    run: RunArgument,
    form: Annotated[
        Literal["chakra", "chrome", "csv", "mlflow", "tensorboard", "wandb"],
        typer.Option("--format", help="The format; see above."),
    ],
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="The new file with chrome, else the new folder. Default: the name of the run, in this folder. With "
            "wandb and mlflow: the folder for what they write on this machine. Default: that of the runs.",
        ),
    ] = None,
    output: Annotated[Output, Only("as_json", "quiet", "verbose")],
) -> None:
    """Write a stored run, simulated or measured, in the format of another program.

    \b
      chakra        an execution trace of each rank, with dependencies, for
                    ASTRA-sim (simulated runs; needs paceline[chakra])
      chrome        a trace for ui.perfetto.dev and chrome://tracing: ranks and
                    lanes as tracks, counters, arrows from a message to its
                    application
      csv           all tables and figures, with a README of the units
      mlflow        curves and figures as a run where MLFLOW_TRACKING_URI says,
                    or in mlflow.db beside the run (needs paceline[mlflow])
      tensorboard   the curves of the run (needs paceline[tensorboard])
      wandb         curves and figures as a run of Weights & Biases; offline
                    with WANDB_MODE=offline (needs paceline[wandb])

    Nothing is overwritten.

    \b
    Examples:
      paceline export runs/quickstart-async-sgd-1-simulated-1 --format chrome
      paceline export runs/my-agd-1-measured-1 --format chrome --out measured.json
      paceline export runs/my-agd-1-simulated-1 --format csv --out tables
      WANDB_MODE=offline paceline export runs/my-agd-1-simulated-1 --format wandb
    """
    from paceline.reports.blocks import Answer, Claim
    from paceline.reports.export.export_run import export_run

    stored = read(run)
    if form == "mlflow" or form == "wandb":
        _send(stored, form, out, output)
        return
    if (spans := len(stored.tables.spans)) >= MANY_SPANS:
        output.note(f"writing {spans:,} spans; a million of them take about half a minute")
    written = export_run(stored, form, out)
    size = sum(file.stat().st_size for file in ([written] if written.is_file() else written.rglob("*")))
    answer = {"run": str(stored.path), "format": form, "path": str(written), "bytes": size}
    output.give(Answer("Export", [Claim(f"{written}: {significant(size / 1e6)} MB")], lambda: answer))
    output.note(f"{OPENED[form]} {written}" if form == "tensorboard" else OPENED[form])


def _send(run: Run, service: Literal["mlflow", "wandb"], out: Path | None, output: Output) -> None:
    """Sends a stored run to a service, and prints where it is."""
    from paceline.reports.blocks import Answer, Claim
    from paceline.reports.export.loggers import send_run

    assert run.path is not None
    place = send_run(run, service, run.path.parent if out is None else out, output.note)
    answer = {"run": str(run.path), "format": service, "path": place}
    output.give(Answer("Export", [Claim(place)], lambda: answer))
