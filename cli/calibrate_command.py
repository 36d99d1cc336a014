"""``paceline calibrate``: measures this machine for predictions of runs on it and on more like it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.algorithms.core.errors import InputError
from paceline.backend.transports.launch_environment import Joined, joined
from paceline.cli.options import Algorithms, Json, Quiet, Scenario, Set, Verbose, output

if TYPE_CHECKING:
    from rich.table import Table

    from paceline.cli.actions import Ask
    from paceline.cli.output import Output
    from paceline.scenarios import Scenario as ScenarioSection
    from paceline.scenarios.sections.machine_file import MachinePart


def calibrate(
    ctx: typer.Context,
    scenario: Scenario,
    changes: Set = None,
    algorithms: Algorithms = None,
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
    memory. Rounds of all measurements take turns until the intervals of the gradients are narrow.

    \b
    Examples:
      paceline calibrate my.yaml
      paceline calibrate my.yaml --batches 16,64,256 --out node.yaml
      srun --nodes=2 --ntasks-per-node=3 paceline calibrate my.yaml
      paceline simulate my.yaml --machine node.yaml
      paceline compare my.yaml --no-pace --machine node.yaml
    """
    from paceline.cli.actions import Ask

    ask, shown = Ask(scenario, changes=changes or [], algorithms=algorithms), output(ctx, as_json, quiet, verbose)
    if (started := joined(os.environ)) is None:
        _answer(_here(ask, out, batches, seconds, shown), out, shown)
    elif (machine := _joined(ask, out, batches, seconds, shown, started)) is not None:
        _answer(machine, out, shown)


def _here(ask: Ask, out: Path, batches: str | None, seconds: float, shown: Output) -> MachinePart:
    """Measures this machine with processes that are forked."""
    from paceline.backend.calibration.calibrate import calibrate as measure
    from paceline.simulator.runs.dry_run import dry_run

    sizes, scenario = batches_of(batches), _unpaced(ask)
    check_folder(out)
    with shown.progress() as stage:
        asked = dry_run(scenario.plans())
        return measure(scenario, asked, batches=sizes, seconds=seconds, progress=stage("calibrating"))


def _joined(
    ask: Ask, out: Path, batches: str | None, seconds: float, shown: Output, started: Joined
) -> MachinePart | None:
    """Measures as one process of several; returns the machine in the first one."""
    from paceline.cli.joined_processes import reported, together

    with reported(started):
        sizes, scenario = batches_of(batches), _unpaced(ask)
        if started.process == 0:  # no other one writes
            check_folder(out)
        with together(started, shown) as (world, speaking):
            from paceline.backend.calibration.calibrate import calibrate_hosts
            from paceline.simulator.runs.dry_run import dry_run

            with speaking.progress() as stage:
                asked = dry_run(scenario.plans(), by_hosts=len(world.hosts) > 1)
                progress = stage("calibrating")
                return calibrate_hosts(scenario, asked, world, batches=sizes, seconds=seconds, progress=progress)


def _unpaced(ask: Ask) -> ScenarioSection:
    """Returns the scenario, not paced."""
    loaded: ScenarioSection = ask.read()
    return loaded.model_copy(update={"train": loaded.train.model_copy(update={"pace": "none"})})


def check_folder(out: Path) -> None:
    """Raises `InputError` if the folder of a file does not exist."""
    if not out.parent.is_dir():
        raise InputError(f"--out: found {str(out)!r}, expected a file in an existing folder")


def _answer(machine: MachinePart, out: Path, shown: Output) -> None:
    """Writes the file and prints the figures."""
    from paceline.scenarios.resolution.load_machine import save_machine

    save_machine(machine, out)
    shown.answer(machine.model_dump(mode="json"), [table(machine)])
    shown.note(machine.made.verdict)
    if not shown.as_json:
        shown.note(f"stored in {out}")


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
    from paceline.reports.plain_table import plain_table

    shown = plain_table(f"{machine.model} on {machine.made.processor}, {machine.ranks} ranks", first="cost")
    for column in ("of", "time, ms", "launches, ms"):
        shown.add_column(column, justify="left" if column == "of" else "right")
    for part in machine.gradients:
        for one in part.busy:
            low, high = (f"{1e3 * (one.mean if value is None else value):.4g}" for value in (one.low, one.high))
            ranks = f"{one.ranks} rank{'s' * (one.ranks > 1)} busy"
            shown.add_row("gradient", f"{part.batch} samples, {ranks}", f"{1e3 * one.mean:.4g}", f"{low} to {high}")
    for curve in machine.costs:
        where = " in shared memory" * curve.shared_memory + " between hosts" * curve.between
        for point in curve.points:
            name = f"{curve.operation} of {curve.ranks} ranks" if curve.operation[0].isupper() else curve.operation
            shown.add_row(name, f"{point.bytes:,} bytes{where}", f"{1e3 * point.time:.4g}", "")
    for name in type(machine.own).model_fields:
        shown.add_row(f"own work: {name}", "", f"{1e3 * getattr(machine.own, name):.4g}", "")
    return shown
