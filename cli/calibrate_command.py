"""``paceline calibrate``: measures this machine for predictions of runs on it and on more like it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.algorithms.core.errors import InputError
from paceline.cli.options import Algorithms, Json, Quiet, Scenario, Set, Verbose, output

if TYPE_CHECKING:
    from rich.table import Table

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

    The ranks, threads and model are those of the scenario. Gradients are measured with one rank busy, with two, and so
    on, because ranks share cores, caches and memory. Rounds of all measurements take turns until the intervals of the
    gradients are narrow.

    \b
    Examples:
      paceline calibrate my.yaml
      paceline calibrate my.yaml --batches 16,64,256 --out node.yaml
      paceline simulate my.yaml --machine node.yaml
      paceline compare my.yaml --no-pace --machine node.yaml
    """
    from paceline.backend.calibration.calibrate import calibrate as measure
    from paceline.cli.actions import Ask
    from paceline.scenarios.resolution.load_machine import save_machine
    from paceline.simulator.runs.dry_run import dry_run

    sizes = batches_of(batches)
    if not out.parent.is_dir():
        raise InputError(f"--out: found {str(out)!r}, expected a file in an existing folder")
    loaded = Ask(scenario, changes=changes or [], algorithms=algorithms).read()
    loaded = loaded.model_copy(update={"train": loaded.train.model_copy(update={"pace": "none"})})
    shown = output(ctx, as_json, quiet, verbose)
    with shown.progress() as stage:
        asked = dry_run(loaded.plans())
        machine = measure(loaded, asked, batches=sizes, seconds=seconds, progress=stage("calibrating"))
    save_machine(machine, out)
    shown.answer(machine.model_dump(mode="json"), [table(machine)])
    shown.note(machine.made.verdict)
    if not as_json:
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
        where = " in shared memory" * curve.shared_memory
        for point in curve.points:
            name = f"{curve.operation} of {curve.ranks} ranks" if curve.operation[0].isupper() else curve.operation
            shown.add_row(name, f"{point.bytes:,} bytes{where}", f"{1e3 * point.time:.4g}", "")
    for name in type(machine.own).model_fields:
        shown.add_row(f"own work: {name}", "", f"{1e3 * getattr(machine.own, name):.4g}", "")
    return shown
