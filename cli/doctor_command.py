"""``paceline doctor``: what this machine can do, and what is missing for what."""

from __future__ import annotations

from typing import Annotated

import typer

from paceline.cli.options import EXIT_FAILED, Json, output

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
    shown = output(ctx, as_json)
    from paceline.backend.machine_checks.checks import checks
    from paceline.reports.machine_answer import doctor_answer

    answer = doctor_answer(checks(), everything=everything)
    shown.give(answer)
    if not answer.data()["ready"]:
        raise typer.Exit(EXIT_FAILED)
