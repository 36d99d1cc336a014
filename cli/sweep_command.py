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
    Scenario,
    Seed,
    Seeds,
    Set,
    Verbose,
    output,
)

EngineName = Literal["local"]

Vary = Annotated[
    list[str],
    typer.Option(
        metavar="PATH=VALUES",
        help="An axis of the grid: the values that a path takes; may be repeated, for all combinations.",
        show_default=False,
    ),
]
Engine = Annotated[EngineName, typer.Option(help="Where runs are made: only in processes of this machine so far.")]
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


def sweep(
    ctx: typer.Context,
    scenario: Scenario,
    vary: Vary,
    changes: Set = None,
    algorithms: Algorithms = None,
    seed: Seed = None,
    seeds: Seeds = None,
    machine: Machine = None,
    engine: Engine = "local",  # noqa: ARG001  # the only one so far
    jobs: Jobs = None,
    keep_runs: KeepRuns = False,
    out: Out = RUNS,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Simulate a scenario at every point of a grid, in parallel, to see what scales.

    Each --vary is an axis, PATH=VALUES with any path that --set takes; the grid
    is all combinations. VALUES are separated by commas: 1,2,4 or eth-10g,ib-edr;
    1..8 is an inclusive range; 1..64x2 doubles: 1, 2, 4 … 64. Quote brackets,
    blanks and braces for your shell.

    A new folder contains one table (sweep.csv and sweep.parquet with the same
    content: a row for each point, algorithm and seed), figures of speed-up,
    efficiency, throughput, staleness, communication and waiting, and sweep.json.
    Speed-up is samples per second divided by those of the same algorithm on the
    smallest cluster.

    \b
    Examples:
      paceline sweep quickstart --vary "cluster.nodes[1].count=1..8x2"
      paceline sweep my.yaml --vary "cluster.nodes[0].count=1..64x2" \\
          --vary cluster.network.link=eth-10g,ib-edr --algorithms sync-sgd,agd
      paceline sweep my.yaml --vary workload.batch_per_worker=8..128x2 --seeds 3
      paceline sweep my.yaml --vary algorithms.agd.delay=1..4 --algorithms agd
      paceline sweep my.yaml --vary "cluster.network.link=eth-1g,{latency: 2 us, \\
          bandwidth: 40 Gbit/s}" --jobs 2 --keep-runs --json
    """
    from paceline.cli import actions
    from paceline.cli.sweep_actions import run

    ask = actions.Ask(
        scenario, changes=changes or [], algorithms=algorithms, seed=seed, seeds=seeds, out=out, machine=machine
    )
    run(ask, vary, output(ctx, as_json, quiet, verbose), jobs=jobs, keep_runs=keep_runs)
