"""``paceline calibrate``: measures this machine for predictions of runs on it and on more like it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from paceline.algorithms.core.errors import InputError
from paceline.backend.transports.launch_environment import Joined, joined
from paceline.cli import completing
from paceline.cli.options import Algorithms, Json, Quiet, Set, Verbose, output

if TYPE_CHECKING:
    from paceline.cli.calibrate_request import Request
    from paceline.cli.output import Output
    from paceline.reports.blocks import Table
    from paceline.scenarios.sections.machine_file import MachinePart


def calibrate(
    ctx: typer.Context,
    scenario: Annotated[
        str | None,
        typer.Argument(
            metavar="[SCENARIO|MODEL,…]",
            help="A scenario with the model, ranks and threads; or models of [bold]paceline list models[/], which are "
            "calibrated one after the other into one file. Default with --run: the scenario of the run.",
            show_default=False,
            autocompletion=completing.scenarios,
        ),
    ] = None,
    changes: Set = None,
    algorithms: Algorithms = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Ranks on this host, for models; default: 2.", show_default=False)
    ] = None,
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
            help="Import gradients from a trace of torch.profiler; may be repeated. Default batch: the scenario's.",
        ),
    ] = None,
    run: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="RUN", help="Import gradients and collectives from a run of paceline train; may be repeated."
        ),
    ] = None,
    import_only: Annotated[
        bool, typer.Option("--import-only", help="Measure nothing: the file has only what is imported.")
    ] = False,
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="The file to write; an existing one is replaced.", dir_okay=False)
    ] = Path("machine.yaml"),
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
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
      srun --nodes=2 --ntasks-per-node=3 paceline calibrate my.yaml
      paceline simulate my.yaml --machine node.yaml
      paceline compare my.yaml --no-pace --machine node.yaml
    """
    from paceline.cli.calibrate_request import Request

    def request() -> Request:
        return Request(
            source=scenario,
            changes=changes or [],
            algorithms=algorithms,
            workers=workers,
            batches=batches_of(batches),
            nccl_tests=nccl_tests or [],
            osu=osu or [],
            torch_profile=torch_profile or [],
            runs=run or [],
            import_only=import_only,
        )

    shown = output(ctx, as_json, quiet, verbose)
    if (started := joined(os.environ)) is None:
        check_folder(out)
        _answer(made(request(), shown, seconds), out, shown)
    elif (machine := _joined(request, out, seconds, shown, started)) is not None:
        _answer(machine, out, shown)


def _joined(
    asked_for: Callable[[], Request], out: Path, seconds: float, shown: Output, started: Joined
) -> MachinePart | None:
    """Measures as one process of several; returns the machine in the first one."""
    from paceline.cli.joined_processes import reported, together

    with reported(started):
        request = asked_for()
        scenario = request.measured()
        if started.process == 0:  # no other one writes
            check_folder(out)
        with together(started, shown) as (world, speaking):
            from paceline.backend.calibration.calibrate import calibrate_hosts
            from paceline.simulator.runs.dry_run import dry_run

            with speaking.progress() as stage:
                asked = dry_run(scenario.plans(), by_hosts=len(world.hosts) > 1)
                progress, batches = stage("calibrating"), request.batches
                return calibrate_hosts(scenario, asked, world, batches=batches, seconds=seconds, progress=progress)


def check_folder(out: Path) -> None:
    """Raises `InputError` if the folder of a file does not exist."""
    if not out.parent.is_dir():
        raise InputError(f"--out: found {str(out)!r}, expected a file in an existing folder")


def _answer(machine: MachinePart, out: Path, shown: Output) -> None:
    """Writes the file and prints the figures."""
    from paceline.scenarios.sections.machine_store import save_machine

    save_machine(machine, out)
    shown.answer(machine.model_dump(mode="json"), [table(machine.of_model(name)) for name in machine.names()])
    shown.note(machine.made.verdict)
    for line in machine.assumed:
        shown.note(line)
    if not shown.as_json:
        shown.note(f"stored in {out}")


def made(request: Request, shown: Output, seconds: float) -> MachinePart:
    """Returns the machine that is asked for.

    Args:
        request: what is calibrated and imported.
        shown: where progress is printed.
        seconds: the time after which no further round begins, of all models together.
    """
    from paceline.backend.calibration.calibrate import calibrate as measure
    from paceline.backend.calibration.machine_imports import only_imports
    from paceline.backend.calibration.several_models import joined
    from paceline.simulator.runs.dry_run import dry_run

    scenarios = request.scenarios()
    imported = [request.imported(one) for one in scenarios]
    if request.import_only:
        return joined([only_imports(*pair) for pair in zip(scenarios, imported, strict=True)])
    found = []
    with shown.progress() as stage:
        for loaded, costs in zip(scenarios, imported, strict=True):
            progress = stage(f"calibrating {loaded.workload.model}")
            asked, time_s = dry_run(loaded.plans()), seconds / len(scenarios)
            found.append(
                measure(loaded, asked, batches=request.batches, seconds=time_s, imported=costs, progress=progress)
            )
    return joined(found)


def batches_of(text: str | None) -> list[int]:
    """Parses batch sizes.

    >>> batches_of("64,16"), batches_of(None)
    ([16, 64], [])
    """
    if text is None:
        return []
    try:
        found = sorted({int(part) for part in text.split(",")})
    except ValueError:
        found = [0]
    if found[0] < 1:
        raise InputError(f"--batches: found {text!r}, expected whole numbers of 1 or more, such as 16,64")
    return found


def table(machine: MachinePart) -> Table:
    """Returns the measured figures as a table."""
    from paceline.records.figures import BYTES, BYTES_PER_SECOND, MILLISECONDS
    from paceline.reports.blocks import Cell, Column, Row, Table

    def timed(cost: str, of: str, spread: Spread) -> Row:
        low, high = (spread.time if end is None else end for end in (spread.low, spread.high))
        return cost, of, Cell(spread.time, low=low, high=high)

    rows: list[Row] = []
    for part in machine.gradients:
        for one in part.busy:
            ranks = f"{one.ranks} rank{'s' * (one.ranks > 1)} busy"
            rows.append(timed("gradient", f"{part.batch} samples, {ranks}", Spread(one.mean, one.low, one.high)))
    for curve in machine.costs:
        where = " in shared memory" * (curve.shared_memory and curve.origin is None)
        where += f", {curve.origin.file}" if curve.origin is not None else ""
        name = f"{curve.operation} of {curve.ranks} ranks" if curve.operation[0].isupper() else curve.operation
        name += f" on {curve.hosts} hosts" * (curve.hosts > 1)
        rows += [(name, f"{BYTES.text(point.bytes)}{where}", point.time) for point in curve.points]
    own = ((name, getattr(machine.own, name)) for name in type(machine.own).model_fields)
    rows += [(f"own work: {name}", "", seconds) for name, seconds in own if seconds or not machine.imported]
    if (start := machine.startup) is not None:
        rows.append(timed("start-up", "launch to first step", Spread(start.time, start.low, start.high)))
    for name in type(machine.rates).model_fields:
        if (rate := getattr(machine.rates, name)) is not None:
            rows.append((f"rate: {name.replace('_', ' ')}", BYTES_PER_SECOND.text(rate.rate), Cell("")))
    title = f"{machine.model} on {machine.made.processor or 'an unnamed machine'}, {machine.ranks} ranks"
    columns = [Column("cost"), Column("of"), Column("time", MILLISECONDS, code="time_s")]
    words = "A range below a time: from the shortest to the longest launch."
    return Table(title, columns, rows, keys=2, words=words)


class Spread(NamedTuple):
    """A time with the shortest and the longest of several launches; None if there was one launch."""

    time: float
    low: float | None
    high: float | None
