"""The printed tables: errors of each group and family beside those of the simpler models, and the order of methods."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.table import Table

from fidelity_runs.error_statistics import SIMPLER, Sizes, WrongPair, grouped, orders, sizes, wrong_pairs
from fidelity_runs.results import Row
from fidelity_runs.settings import GROUPS

ALL = "all"
MISSING = "–"
SIMPLER_HEADS = ("without messages", "without spread", "α–β model")


def tables(rows: Sequence[Row]) -> Iterator[Table]:
    """Yields the tables of all rows."""
    yield step_table(rows)
    yield time_table(rows)
    yield behaviour_table(rows)
    yield order_table(rows)
    if pairs := wrong_pairs(rows):
        yield pair_table(pairs)


def families(rows: Sequence[Row]) -> Iterator[tuple[str, str, list[Row]]]:
    """Yields a group's name, a method or "all", and the rows: of each group all rows, and then those of each method."""
    by_group = grouped(rows, lambda one: one.group)
    for group in GROUPS:
        if mine := by_group.get(group):
            yield group, ALL, mine
            for method, found in grouped(mine, lambda one: one.method).items():
                yield group, method, found


def step_table(rows: Sequence[Row]) -> Table:
    """Returns the table of errors of step times."""
    return _errors("Error of the step time, %", "step_error", rows)


def time_table(rows: Sequence[Row]) -> Table:
    """Returns the table of errors of times to accuracy."""
    return _errors("Error of the time to accuracy, %", "time_error", rows)


def _errors(title: str, column: str, rows: Sequence[Row]) -> Table:
    table = _table(title, ("n", "mean", "p90", "worst", *(f"{head}, mean" for head in SIMPLER_HEADS)))
    for group, method, mine in families(rows):
        ours = sizes(getattr(one, column) for one in mine)
        simpler = [sizes(getattr(one, f"{column}_{model}") for one in mine) for model in SIMPLER]
        table.add_row(*_names(group, method), *_cells(ours, 100), *(_mean(one, 100) for one in simpler))
    return table


def behaviour_table(rows: Sequence[Row]) -> Table:
    """Returns the table of staleness and of time fractions."""
    columns = (
        ("staleness_tv", "staleness TV", 1.0),
        ("share_points", "time fraction, points", 1.0),
        ("communication_points", "communication, points", 1.0),
    )
    heads = [f"{head}, {kind}" for _, head, _ in columns for kind in ("mean", "worst")]
    table = _table("Staleness (total variation) and fractions of time (the largest difference)", ("n", *heads))
    for group, method, mine in families(rows):
        cells = [str(len(mine))]
        for column, _, factor in columns:
            found = sizes(getattr(one, column) for one in mine)
            digits = 3 if column == "staleness_tv" else 1
            cells += [_mean(found, factor, digits), _worst(found, factor, digits)]
        table.add_row(*_names(group, method), *cells)
    return table


def order_table(rows: Sequence[Row]) -> Table:
    """Returns the table of Kendall's τ."""
    table = Table(title="Order of the methods by time to accuracy: Kendall's τ", title_justify="left", box=None)
    for head in ("setting", "group", "target not reached"):
        table.add_column(head)
    for head in ("methods", "τ", *SIMPLER_HEADS):
        table.add_column(head, justify="right")
    for one in orders(rows):
        taus = [MISSING if tau is None else f"{tau:.2f}" for tau in (one.tau, *one.simpler)]
        table.add_row(one.setting, one.group, ", ".join(one.unreached) or MISSING, str(one.methods), *taus)
    return table


def pair_table(pairs: Sequence[WrongPair]) -> Table:
    """Returns the table of pairs of methods whose order was predicted wrongly."""
    table = Table(title="Pairs of methods in the wrong order", title_justify="left", box=None)
    for head in ("setting", "sooner", "later"):
        table.add_column(head)
    for head in ("later by, measured %", "predicted %", "error of sooner, %", "error of later, %"):
        table.add_column(head, justify="right")
    table.add_column("seeds distinguish them")
    for one in pairs:
        figures = (one.measured, one.predicted, one.error_sooner, one.error_later)
        cells = [MISSING if value is None else f"{100 * value:+.1f}" for value in figures]
        apart = {None: MISSING, True: "yes", False: "no"}[one.apart]
        table.add_row(one.setting, one.sooner, one.later, *cells, apart)
    return table


def _table(title: str, heads: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", box=None)
    table.add_column("group", no_wrap=True)
    table.add_column("method", no_wrap=True)
    for head in heads:
        table.add_column(head, justify="right")
    return table


def _names(group: str, method: str) -> tuple[str, str]:
    return (group, ALL) if method == ALL else ("", method)


def _cells(found: Sizes | None, factor: float) -> list[str]:
    if found is None:
        return ["0", MISSING, MISSING, MISSING]
    return [str(found.count), *(f"{factor * value:.1f}" for value in (found.mean, found.p90, found.worst))]


def _mean(found: Sizes | None, factor: float, digits: int = 1) -> str:
    return MISSING if found is None else f"{factor * found.mean:.{digits}f}"


def _worst(found: Sizes | None, factor: float, digits: int) -> str:
    return MISSING if found is None else f"{factor * found.worst:.{digits}f}"
