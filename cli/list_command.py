"""``paceline list``: algorithms, devices, links, topologies, models, data sets, scenarios and storage."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from paceline.cli.options import Csv, Json, output

Listing = Literal["algorithms", "devices", "links", "topologies", "models", "datasets", "scenarios", "storage"]


def list_(
    ctx: typer.Context,
    kind: Annotated[Listing, typer.Argument(help="What to list.", show_default=False)],
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Only these; algorithms with all that is known of them."),
    ] = None,
    as_json: Json = False,
    as_csv: Csv = False,
) -> None:
    """List algorithms, devices, links, topologies, models, data sets, scenarios or storage.

    With names of algorithms, their hyper-parameters, defaults and guarantees are shown.

    \b
    Examples:
      paceline list algorithms
      paceline list algorithms diloco
      paceline list scenarios --json
    """
    from paceline.reports.catalogue_answer import listing

    output(ctx, as_json, as_csv=as_csv).give(listing(kind, names or []))
