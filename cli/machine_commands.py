"""``paceline calibrate`` and ``paceline doctor``: measure this machine, and say what it can do."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.algorithms.core.errors import InputError
from paceline.backend.transports.launchers import joined
from paceline.cli.actions import reported, together
from paceline.cli.options import EXIT_FAILED, Only, ScenarioOptions, complete_scenarios
from paceline.cli.output import Output

if TYPE_CHECKING:
    from paceline.scenarios.machine_file import MachinePart


def calibrate(
    *,
    scenario: Annotated[
        str | None,
        typer.Argument(
            metavar="[SCENARIO|MODEL,…]",
            help="A scenario with the model, ranks and threads; or models of [bold]paceline list models[/], which are "
            "calibrated one after the other into one file. Default with --run: the scenario of the run.",
            autocompletion=complete_scenarios,
        ),
    ] = None,
    options: Annotated[ScenarioOptions, Only("changes", "algorithms")],
    workers: Annotated[int | None, typer.Option(min=1, help="Ranks on this host, for models; default: 2.")] = None,
    batches: Annotated[
        str | None,
        typer.Option(
            metavar="B,B,…",
            help="Batch sizes at which gradients are measured; default: a quarter of the scenario's, its own, and four "
            "times as many.",
        ),
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=1, help="No further round begins after this time; at least three are made.")
    ] = 180.0,
    nccl_tests: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[PROGRAM,RANKS/HOSTS=]LOG",
            help="Import collectives from a log of nccl-tests; may be repeated. The program (all_reduce=LOG), or the "
            "ranks and hosts (16/2=LOG), are needed if the log does not contain them.",
        ),
    ] = None,
    osu: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[RANKS/HOSTS=]LOG",
            help="Import messages and collectives from a log of OSU micro-benchmarks; may be repeated. The ranks and "
            "hosts (16/2=LOG, or 16=LOG on one host) are needed if the command lines in the log do not tell them.",
        ),
    ] = None,
    torch_profile: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[BATCH=]TRACE",
            help="Import gradients from a trace of torch.profiler or an execution trace of Chakra; may be repeated. "
            "Default batch: the scenario's.",
        ),
    ] = None,
    run: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="RUN", help="Import gradients and collectives from a run of paceline train; may be repeated."
        ),
    ] = None,
    steps: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Measure nothing: fit how step times vary between workers and over time, from a table (CSV, Parquet) "
            "with the columns worker, step and seconds, and optionally begin, node and job; a stored run; or traces of "
            "torch.profiler or Chrome. May be repeated. Default file to write: step-time.yaml.",
        ),
    ] = None,
    import_only: Annotated[
        bool, typer.Option("--import-only", help="Measure nothing: the file has only what is imported.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The file to write; an existing one is replaced. Default: machine.yaml.",
            dir_okay=False,
            show_default=False,
        ),
    ] = None,
    output: Annotated[Output, Only("as_json", "quiet", "verbose")],
) -> None:
    """Measure gradients, messages and collectives on this machine, and write them to a file.

    If `torchrun`, `srun` or `mpirun` has started the command, its processes measure together, on one host or on
    several; messages and collectives between hosts are then measured, too. The ranks, threads and model are those of
    the scenario. Gradients are measured with one rank busy, with two, and so on, because ranks share cores, caches and
    memory. Rounds of all measurements take turns until the intervals of the gradients are narrow. What is imported is
    not measured.

    \b
    Examples:
      paceline calibrate my.yaml
      paceline calibrate my.yaml --batches 16,64,256 --out node.yaml
      paceline calibrate digits-cnn,digits-mlp --workers 2
      paceline calibrate my.yaml --nccl-tests all-reduce.txt --import-only
      paceline calibrate my.yaml --torch-profile trace.json --import-only
      paceline calibrate my.yaml --osu 16/2=osu.txt --import-only
      paceline calibrate --run runs/my-sync-sgd-1-measured-1 --import-only
      paceline calibrate --steps steps.csv
      paceline simulate my.yaml --set "cluster.step_time={file: step-time.yaml}"
      srun --nodes=2 --ntasks-per-node=3 paceline calibrate my.yaml
      paceline simulate my.yaml --machine node.yaml
      paceline compare my.yaml --no-pace --machine node.yaml
    """
    if steps:
        out = out or Path("step-time.yaml")
        _fit_steps(steps, out, output, beside=scenario or nccl_tests or osu or torch_profile or run)
        return
    started, out = joined(os.environ), out or Path("machine.yaml")
    from paceline.reports.machine_answer import CalibrationRequest, calibrate_joined, calibration_answer
    from paceline.reports.machine_answer import calibrate as calibrated
    from paceline.scenarios.machine_file import save_machine

    with reported(started):
        request = CalibrationRequest(
            source=scenario,
            changes=options.changes or [],
            algorithms=options.names(),
            workers=workers,
            batches=batches_of(batches),
            nccl_tests=nccl_tests or [],
            osu=osu or [],
            torch_profile=torch_profile or [],
            runs=run or [],
            import_only=import_only,
        )
        measured = None if started is None else request.measured()
        if (started is None or started.process == 0) and not out.parent.is_dir():  # no other process writes
            raise InputError(f"--out: found {str(out)!r}, expected a file in an existing folder")
        with (
            together(None if measured is None else started, output) as (world, speaking),
            speaking.progress() as stage,
        ):
            if world is None or measured is None:
                machine: MachinePart | None = calibrated(request, seconds=seconds, stage=stage)
            else:
                machine = calibrate_joined(measured, world, batches=request.batches, seconds=seconds, stage=stage)
    if machine is None:
        return
    save_machine(machine, out)
    output.give(calibration_answer(machine))
    for text in (machine.made.verdict, *machine.assumed):
        output.note(text)
    if not output.as_json:
        output.note(f"stored in {out}")


def _fit_steps(paths: list[Path], out: Path, output: Output, beside: object) -> None:
    """Fits how steps vary, and writes it to a file."""
    from paceline.reports.step_fit_answer import fit_all, fits_answer, save_fits

    with reported(None):
        if beside:
            raise InputError("--steps: found beside a scenario or files to import; expected --steps alone")
        if not out.parent.is_dir():
            raise InputError(f"--out: found {str(out)!r}, expected a file in an existing folder")
        fits = fit_all(paths)
    save_fits(fits, out)
    output.give(fits_answer(fits))
    if not output.as_json:
        output.note(f"stored in {out}")


def batches_of(text: str | None) -> list[int]:
    """Parses batch sizes.

    >>> batches_of("64,16"), batches_of(None)
    ([16, 64], [])
    """
    if text is None:
        return []
    try:
        workers = sorted({int(part) for part in text.split(",")})
    except ValueError:
        workers = [0]
    if workers[0] < 1:
        raise InputError(f"--batches: found {text!r}, expected whole numbers of 1 or more, such as 16,64")
    return workers


def doctor(
    *,
    everything: Annotated[
        bool, typer.Option("--all", help="Also show what is needed for each part that is there.")
    ] = False,
    output: Annotated[Output, Only("as_json")],
) -> None:
    """Show what this machine can do: torch, gloo, NCCL, GPUs, emulated networks, launchers, optional packages.

    For each missing part: the commands that need it, and how to install it.
    Nothing is installed or changed. Exit status 1 if train and compare cannot
    work, and 0 otherwise: most parts are optional.

    \b
    Examples:
      paceline doctor
      paceline doctor --json | jq '.checks[] | select(.status != "ok")'
    """
    from paceline.backend.machine_checks import checks
    from paceline.reports.machine_answer import doctor_answer

    answer = doctor_answer(checks(), everything=everything)
    output.give(answer)
    if not answer.data()["ready"]:
        raise typer.Exit(EXIT_FAILED)
