"""``paceline sweep``: simulates a grid of scenarios; prints a table, figures and a conclusion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from paceline.algorithms.core.errors import InputError, RunFailed
from paceline.cli.options import Jobs, Only, Scenario, ScenarioOptions
from paceline.cli.output import Output
from paceline.cli.report_command import REPORT, say_report
from paceline.records.document import to_json

if TYPE_CHECKING:
    from paceline.reports.sweeps.sweep import SweepResult
    from paceline.reports.sweeps.sweep_table import PartialTable
    from paceline.scenarios.resolution.grid import Point

RECORDS = "runs"
"""the folder of the runs' records in the sweep's folder"""
POINTS = "sweep-points"
"""the folder of the results of points in the folder of all runs"""
MOST_NAMED = 20
"""largest number of failed runs that are listed; sweep.json has all of them"""


def sweep(
    *,
    scenario: Scenario,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH=VALUES",
            help="An axis of the grid: the values that a path takes; may be repeated, for all combinations.",
        ),
    ] = None,
    gpus: Annotated[
        str | None,
        typer.Option(
            metavar="VALUES",
            help="An axis of cluster sizes, as 1..16x2: numbers of GPUs, each a worker, in nodes of the scenario's "
            "kind.",
        ),
    ] = None,
    scaling: Annotated[
        Literal["strong", "weak"] | None,
        typer.Option(
            help="What stays when the number of workers changes. strong: the total batch of the scenario, divided "
            "among the workers; weak: the batch of each worker, as without this option."
        ),
    ] = None,
    options: Annotated[ScenarioOptions, Only("changes", "algorithms", "seed", "seeds", "machine")],
    engine: Annotated[
        Literal["processes", "dask"],
        typer.Option(
            help="Where runs are made: in processes of this machine, or on a Dask cluster (paceline\\[dask])."
        ),
    ] = "processes",
    scheduler: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="With --engine dask: the scheduler of an existing cluster, as tcp://login1:8786; default: a cluster "
            "on this machine for the duration of the sweep.",
        ),
    ] = None,
    jobs: Jobs = None,
    keep_runs: Annotated[
        bool, typer.Option("--keep-runs", help="Also store the record of each run, in runs/ of the sweep's folder.")
    ] = False,
    fresh: Annotated[
        bool,
        typer.Option("--fresh", help="Simulate every run, also those whose results earlier sweeps have left in --out."),
    ] = False,
    output: Output,
) -> None:
    """Simulate a scenario at every point of a grid, in parallel, to see what scales.

    Each --vary is an axis, PATH=VALUES with any path that --set takes; the grid
    is all combinations. VALUES are separated by commas: 1,2,4 or eth-10g,ib-edr;
    1..8 is an inclusive range; 1..64+8 has steps of 8; 1..64x2 doubles: 1, 2, 4 …
    64; 0.1..0.5:5 are 5 values, evenly; 0.001..1:7log are 7 on a logarithmic scale.
    Two axes joined by " with " change together. --gpus 1..16x2 is an axis of
    cluster sizes. Quote brackets, blanks and braces for your shell.

    A new folder contains one table (sweep.csv and sweep.parquet with the same
    content: a row for each point, algorithm and seed), figures of speed-up,
    efficiency, throughput, staleness, communication and waiting, sweep.json, and
    report.html, which shows all of this.
    Speed-up is samples per second divided by those of the same algorithm on the
    smallest cluster.

    Results are stored when a run ends. The same command continues an interrupted
    sweep, and a larger sweep computes only what is new. While it runs,
    sweep-partial.csv in the folder of the sweep has the table so far.

    \b
    Examples:
      paceline sweep quickstart --vary "cluster.nodes[1].count=1..8x2"
      paceline sweep my.yaml --gpus 1..64x2 --scaling strong --seeds 5
      paceline sweep my.yaml --vary "cluster.nodes[0].count=1..64x2" \\
          --vary cluster.network.link=eth-10g,ib-edr --algorithms sync-sgd,agd
      paceline sweep my.yaml --vary "cluster.nodes[0].count=1..8x2 with \\
          workload.batch_per_worker=64,48,32,16"
      paceline sweep my.yaml --vary algorithms.agd.delay=1..4 --algorithms agd
      paceline sweep my.yaml --vary hyperparameters.learning_rate=0.001..1:7log
      paceline sweep my.yaml --vary "cluster.network.link=eth-1g,{latency: 2 us, \\
          bandwidth: 40 Gbit/s}" --jobs 2 --keep-runs --json
      paceline sweep my.yaml --engine dask --scheduler tcp://login1:8786
    """
    _check(jobs, scheduler, engine)
    from paceline.scenarios.resolution.grid import grid

    axes = [*([] if gpus is None else [f"gpus={gpus}"]), *(vary or [])]
    points = grid(scenario, axes, options.all_changes(), algorithms=options.names(), scaling=scaling)
    output.make_folder()
    from paceline.checking.own_methods import check_own_methods
    from paceline.records import store
    from paceline.reports.sweeps.point_store import PointStore
    from paceline.reports.sweeps.sweep import run
    from paceline.reports.sweeps.sweep_table import PartialTable, sweep_folder

    check_own_methods(*(point.scenario for point in points))
    stem = f"{store.slug(points[0].scenario.name)}-sweep"
    with sweep_folder(output.folder, stem, points) as folder:
        partial = PartialTable(folder.building, points)
        try:
            with output.progress() as stage:
                swept = run(
                    points,
                    jobs=jobs,
                    records=folder.building / RECORDS if keep_runs else None,
                    store=PointStore(output.folder / POINTS),
                    fresh=fresh,
                    engine=engine,
                    scheduler=scheduler,
                    progress=stage("sweeping"),
                    ended=partial.add,
                )
            if swept.reused:
                count = len(swept.entries) + len(swept.failed)
                output.note(f"{swept.reused} of {count} results are of earlier sweeps (--fresh computes them again)")
            if not swept.entries:
                raise RunFailed(_failures(swept, output))
            said = _keep(swept, folder.building, points[0].scenario.dump(), report=output.report)
            partial.remove()
        except (KeyboardInterrupt, OSError) as error:
            folder.keep = partial.succeeded > 0
            _say_unfinished(error, partial, points, output)
            raise
    output.give(replace(swept.answer(), notes=[text for entry in swept.entries for text in entry.warnings]))
    output.note(f"{said} stored in {folder.path}/")
    if folder.path is not None and not output.as_json:
        say_report(folder.path, output)
    if swept.failed:
        raise RunFailed(_failures(swept, output))


def _check(jobs: int | None, scheduler: str | None, engine: str) -> None:
    """Raises `InputError` if options do not fit together."""
    from paceline.scenarios.values.limits import MOST_JOBS

    if jobs is not None and jobs > MOST_JOBS:
        raise InputError(f"--jobs: found {jobs}, expected at most {MOST_JOBS}")
    if scheduler is not None and engine != "dask":
        raise InputError(f"--scheduler: found {scheduler!r} without --engine dask, expected both")
    if scheduler is not None and jobs is not None:
        raise InputError("--jobs: found also --scheduler, whose cluster has its own workers; expected one of them")


def _say_unfinished(
    error: KeyboardInterrupt | OSError, partial: PartialTable, points: Sequence[Point], output: Output
) -> None:
    """Writes the table of the runs that have ended, and adds its path to the error that ended a sweep."""
    count = sum(len(point.scenario.algorithms) * point.scenario.seeds for point in points)
    said = f"{partial.ended} of {count} runs had ended"
    if partial.succeeded:
        try:
            partial.write()
            said += f"; their table is {partial.path}"
        except OSError:  # a full disk
            pass
        said += "\nthe same command continues the sweep"
    if isinstance(error, KeyboardInterrupt):
        error.add_note(said)
    else:
        output.note(said)


def _keep(swept: SweepResult, folder: Path, scenario: Mapping[str, Any], *, report: bool) -> str:
    """Writes the table, the figures, the answer and the report; returns words for what was written."""
    from paceline.reports.html import write_report
    from paceline.reports.provenance import with_provenance
    from paceline.reports.sweeps.sweep_answer import save_pictures, sweep_document

    swept.table.save(folder)
    axes = [list(axis) for axis in swept.axes]
    request = {"scenario": scenario, "axes": axes, "scaling": swept.scaling}
    (folder / "sweep.json").write_text(to_json(sweep_document(swept, swept.table)) + "\n", encoding="utf-8")
    (folder / "request.json").write_text(to_json(request) + "\n", encoding="utf-8")
    if report:
        write_report(with_provenance(swept.answer(), scenario), folder / REPORT)
    drawn, wanted = save_pictures(swept.table, folder)
    if len(drawn) < wanted:
        return f"Table, answer and the first {len(drawn)} of {wanted} figures"
    return "Table, answer and " + ("figure" if len(drawn) == 1 else "figures")


def _failures(swept: SweepResult, output: Output) -> str:
    failed, count = swept.failed, len(swept.failed) + len(swept.entries)
    lines = [f"{entry}: {entry.trace.rstrip() if output.verbose and entry.trace else entry.error}" for entry in failed]
    more = [f"… and {len(lines) - MOST_NAMED} more"] if len(lines) > MOST_NAMED else []
    kept = "; the others are kept" if swept.entries else ""
    return "\n  ".join([f"{len(failed)} of {count} runs failed{kept}", *lines[:MOST_NAMED], *more])
