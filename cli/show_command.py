"""``paceline show``: one stored run in words and tables."""

from __future__ import annotations

import typer

from paceline.cli.options import Json, Quiet, output
from paceline.cli.stored_arguments import StoredRun, folder_of, read


def show(ctx: typer.Context, run: StoredRun, as_json: Json = False, quiet: Quiet = False) -> None:
    """Show one stored run: what it was, why it ended, its figures, ranks, evaluations and files.

    The checksums of all its files are verified first.

    \b
    Examples:
      paceline show runs/quickstart-async-sgd-1-simulated-1
      paceline show runs/my-agd-1-simulated-1 --json | jq .summary.step_s
    """
    to = output(ctx, as_json, quiet)
    found = read(run)
    from paceline.cli.runs_command import describe
    from paceline.records.stored_runs import find_runs
    from paceline.reports.stored_runs import description, rank_rows

    (stored,) = find_runs([folder_of(run)]).runs
    answer = {
        **describe(stored),
        "ranks": rank_rows(found),
        "scenario_document": stored.record["scenario"],
        "versions": stored.record["versions"],
        "machine": stored.record["machine"],
    }
    to.answer(answer if as_json else {}, [] if as_json else description(found, stored))
