"""``paceline doctor``: what this machine can do, and what is missing for what."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.cli.options import Json, output

if TYPE_CHECKING:
    from paceline.backend.machine_checks.result import MachineCheck
    from paceline.reports.blocks import Table, Tone

EXIT_MISSING = 1
TONES: dict[str, Tone] = {"ok": "good", "limited": "fair", "missing": "fair"}
All = Annotated[bool, typer.Option("--all", help="Also show what is needed for each part that is there.")]


def doctor(ctx: typer.Context, everything: All = False, as_json: Json = False) -> None:
    """Show what this machine can do: torch, gloo, NCCL, GPUs, emulated networks, launchers, optional packages.

    For each missing part: the commands that need it, and how to install it.
    Nothing is installed or changed. Exit status 1 if train and compare cannot
    work, and 0 otherwise: most parts are optional.

    \b
    Examples:
      paceline doctor
      paceline doctor --json | jq '.checks[] | select(.status != "ok")'
    """
    to = output(ctx, as_json)
    from paceline.backend.machine_checks.checks import checks

    found = list(checks())
    lacking = [one for one in found if one.required and one.status == "missing"]
    answer = {"ready": not lacking, "checks": [dataclasses.asdict(one) for one in found]}
    to.answer(answer, [] if as_json else [_table(found), *_advice(found, everything=everything), _conclusion(found)])
    if lacking:
        raise typer.Exit(EXIT_MISSING)


def _table(found: list[MachineCheck]) -> Table:
    from paceline.reports.blocks import Cell, Column, Table

    rows = [(one.name, Cell(one.status, tone="bad" if _bad(one) else TONES[one.status]), one.found) for one in found]
    return Table("This machine", [Column("part"), Column("status"), Column("found")], rows)


def _bad(one: MachineCheck) -> bool:
    return one.required and one.status == "missing"


def _advice(found: list[MachineCheck], *, everything: bool) -> list[Table]:
    """Returns the table of what needs each part that is not ok, and of how to get it; nothing if all parts are ok."""
    shown = [one for one in found if one.status != "ok" or everything]
    if not shown:
        return []
    from paceline.reports.blocks import Column, Table

    columns = [Column("part"), Column("needed for"), Column("how to get it")]
    rows = [(one.name, one.needed_for, one.remedy) for one in shown]
    return [Table("All parts" if everything else "Missing or limited parts", columns, rows)]


def _conclusion(found: list[MachineCheck]) -> str:
    if lacking := [one.name for one in found if _bad(one)]:
        return f"train and compare cannot work without: {', '.join(lacking)}."
    return "simulate, train and compare work here. Parts that are missing are optional."
