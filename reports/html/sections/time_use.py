"""Where the time goes: shares by activity, by method and rank; throughput and sent data against time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from plotly.graph_objects import Figure

from paceline.records import Run
from paceline.records.figures import significant
from paceline.reports.comparison.words import listed
from paceline.reports.html.charts.activity import rate_chart, shares_chart, shares_of_ranks, shares_of_runs
from paceline.reports.html.report_parts import Chart, Grid, Section
from paceline.reports.html.sections.timeline import first_seeds
from paceline.reports.timeline_data import label_of

MEGABYTES = 1e-6


def time_section(runs: Sequence[Run]) -> Section:
    """Returns the section.

    Args:
        runs: all runs of the report.
    """
    return Section(id="time", title="Time", parts=list(_parts(runs, first_seeds(runs))))


def _parts(runs: Sequence[Run], shown: Sequence[Run]) -> Iterator[Chart | Grid]:
    shares = shares_of_runs(runs)
    computing = listed([f"{name} {100 * mine['compute']:.1f} %" for name, mine in shares.items()])
    yield Chart(
        title="Where the workers' time goes",
        words="Only computing makes progress; communication and waiting are the price of working together. "
        "Communication that overlaps with computing counts as computing.",
        alt=f"Stacked bars of shares of time. Computing: {computing}.",
        variants={"": shares_chart(shares)},
        height=130 + 34 * len(shares),
    )
    by_rank = {label_of(run): shares_chart(mine) for run in shown if (mine := shares_of_ranks(run))}
    if by_rank:
        yield Chart(
            title="Where the time of each rank goes",
            words="A rank that computes nearly all the time while others wait is the one that holds them up. A server "
            "does not compute gradients.",
            alt="Stacked bars of the shares of time of each rank; the timeline shows the same against time.",
            variants=by_rank,
            choice="Run",
            height=130 + 34 * max(len(shares_of_ranks(run)) for run in shown),
        )
    rates = listed([f"{run.algorithm} ({run.kind}) {run.summary['samples_per_s'] or 0:,.0f}" for run in shown])
    if any(len(run.tables.updates) for run in shown):
        yield Chart(
            title="Throughput during the run",
            words="Training samples whose gradients were applied, per second. A steady line means that the rate of the "
            "whole run can be trusted; a falling line means that something slows the workers down.",
            alt=f"Line chart of samples per second. Means of whole runs: {rates}.",
            variants=_by_method(
                [run for run in shown if len(run.tables.updates)],
                lambda mine: rate_chart(mine, "samples", "samples/s"),
            ),
            choice="Method",
        )
    sending = [run for run in shown if run.tables.spans["bytes"].sum() > 0]
    if sending:
        yield Chart(
            title="Data sent by all ranks during the run",
            words="Messages and collectives count where they are sent, when they end. Of simulated runs, "
            "the section Links shows the load of single links.",
            alt="Line chart of megabytes per second that all recorded ranks send together.",
            variants=_by_method(sending, lambda mine: rate_chart(mine, "bytes", "MB/s", MEGABYTES)),
            choice="Method",
        )
    yield _grid(runs)


MOST_LINES = 4
"""lines that vary fast and can still be told apart in one chart; provenance: ours"""


def _by_method(runs: Sequence[Run], draw: Callable[[Sequence[Run]], Figure]) -> dict[str, Figure]:
    """Draws a few runs together; of more, each method alone, and then all of them."""
    if len(runs) <= MOST_LINES:
        return {"": draw(runs)}
    names = dict.fromkeys(run.algorithm for run in runs)
    return {name: draw([run for run in runs if run.algorithm == name]) for name in names} | {"all": draw(runs)}


def _grid(runs: Sequence[Run]) -> Grid:
    columns = ["run", "time, s", "samples/s", "step, ms", "compute, %", "load, %", "update, %", "comm., %", "wait, %"]
    rows = []
    for run in runs:
        found = run.summary
        step_s = found["step_s"]["mean"]
        rows.append(
            [
                label_of(run),
                significant(found["wall_s"], 4),
                "–" if found["samples_per_s"] is None else f"{found['samples_per_s']:,.0f}",
                "–" if step_s is None else significant(1e3 * step_s, 4),
                *(f"{100 * share:.1f}" for share in found["time_fraction"].values()),
            ]
        )
    return Grid(
        title="Time and throughput of every run",
        columns=columns,
        rows=rows,
        numeric=frozenset(range(1, 9)),
        folded=True,
    )
