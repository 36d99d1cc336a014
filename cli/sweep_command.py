"""``paceline sweep`` and its options, for typer; the implementation is in `sweep_actions`."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from paceline.cli.options import (
    RUNS,
    Algorithms,
    Json,
    Machine,
    Out,
    Quiet,
    Report,
    Scenario,
    Seed,
    Seeds,
    Set,
    Verbose,
    output,
)

EngineName = Literal["processes", "dask"]
ScalingName = Literal["strong", "weak"]

Vary = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PATH=VALUES",
        help="An axis of the grid: the values that a path takes; may be repeated, for all combinations.",
        show_default=False,
    ),
]
Gpus = Annotated[
    str | None,
    typer.Option(
        metavar="VALUES",
        help="An axis of cluster sizes, as 1..16x2: numbers of GPUs, each a worker, in nodes of the scenario's kind.",
        show_default=False,
    ),
]
ScalingOption = Annotated[
    ScalingName | None,
    typer.Option(
        help="What stays when the number of workers changes. strong: the total batch of the scenario, divided among "
        "the workers; weak: the batch of each worker, as without this option.",
        show_default=False,
    ),
]
Engine = Annotated[
    EngineName,
    typer.Option(help="Where runs are made: in processes of this machine, or on a Dask cluster (paceline\\[dask])."),
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="With --engine dask: the scheduler of an existing cluster, as tcp://login1:8786; default: a cluster on "
        "this machine for the duration of the sweep.",
        show_default=False,
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Number of parallel runs; default: one per core. The answer does not depend on it.",
        show_default=False,
    ),
]
KeepRuns = Annotated[
    bool, typer.Option("--keep-runs", help="Also store the record of each run, in runs/ of the sweep's folder.")
]
Fresh = Annotated[
    bool,
    typer.Option("--fresh", help="Simulate every run, also those whose results earlier sweeps have left in --out."),
]


def sweep(
    ctx: typer.Context,
    scenario: Scenario,
    vary: Vary = None,
    gpus: Gpus = None,
    scaling: ScalingOption = None,
    changes: Set = None,
    algorithms: Algorithms = None,
    seed: Seed = None,
    seeds: Seeds = None,
    machine: Machine = None,
    engine: Engine = "processes",
    scheduler: Scheduler = None,
    jobs: Jobs = None,
    keep_runs: KeepRuns = False,
    fresh: Fresh = False,
    report: Report = True,
    out: Out = RUNS,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
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
    from paceline.cli import actions
    from paceline.cli.sweep_actions import SweepOptions, run

    ask = actions.Ask(
        scenario, changes=changes or [], algorithms=algorithms, seed=seed, seeds=seeds, out=out, machine=machine
    )
    options = SweepOptions(
        vary=[*([] if gpus is None else [f"gpus={gpus}"]), *(vary or [])],
        scaling=scaling,
        engine=engine,
        scheduler=scheduler,
        jobs=jobs,
        keep_runs=keep_runs,
        fresh=fresh,
        report=report,
    )
    run(ask, options, output(ctx, as_json, quiet, verbose))
