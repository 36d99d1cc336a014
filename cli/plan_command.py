"""``paceline plan`` and its options, for typer; the implementation is in `plan_actions`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from paceline.cli import completing
from paceline.cli.options import RUNS, Algorithms, Json, Out, Quiet, Report, Seed, Set, Verbose, output

PlannedScenario = Annotated[
    str | None,
    typer.Argument(
        metavar="[SCENARIO]",
        help="A scenario file (YAML), the name of one that comes with Paceline ([bold]paceline list scenarios[/]), "
        "or the run.json of an earlier run; not allowed with --resume.",
        show_default=False,
        autocompletion=completing.scenarios,
    ),
]
TargetOption = Annotated[
    str | None,
    typer.Option(
        "--target",
        metavar="accuracy=A|loss=L",
        help="What every plan must reach; default: the target of the scenario.",
        show_default=False,
    ),
]
Budget = Annotated[
    str | None,
    typer.Option(metavar="USD", help="The most that a run may cost, such as '200 USD'.", show_default=False),
]
Within = Annotated[
    str | None, typer.Option(metavar="TIME", help="The longest time of a run, such as '2 h'.", show_default=False)
]
Minimise = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,…",
        help="time, cost, energy: the most important first; default: time, and cost if all prices are known.",
        show_default=False,
    ),
]
Workers = Annotated[
    str | None,
    typer.Option(
        metavar="RANGE",
        help="Numbers of workers, such as 1..64x2; default: 1, 2, 4, … up to those of the cluster.",
        show_default=False,
    ),
]
Devices = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,…",
        help="Devices of [bold]paceline list devices[/] instead of those of the cluster; plan.nodes gives them prices.",
        show_default=False,
    ),
]
Batches = Annotated[
    str | None,
    typer.Option(
        metavar="RANGE", help="Batches per worker, such as 16..64x2; default: half, once and twice the scenario's."
    ),
]
Tune = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=LOW..HIGH",
        help="A hyper-parameter to tune on a logarithmic scale, or NAME=A,B,C; METHOD.NAME for one method; may be "
        "repeated. Default: learning_rate and periods.",
        show_default=False,
    ),
]
Trials = Annotated[
    int | None, typer.Option(min=1, help="Number of trials; default: 15 for each method.", show_default=False)
]
TuningSeeds = Annotated[int, typer.Option(min=1, max=100, help="Number of seeds of a trial; they are never reported.")]
ReportedSeeds = Annotated[
    int, typer.Option("--seeds", min=1, max=1000, help="Number of fresh seeds of a reported plan.")
]
Jobs = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Number of parallel runs; default: one per core. The answer does not depend on it.",
        show_default=False,
    ),
]
ResumePlan = Annotated[
    Path | None,
    typer.Option(
        "--resume",
        metavar="FOLDER",
        help="Continue an interrupted plan from its folder; only --trials, --jobs and --verify may be given with it.",
        show_default=False,
    ),
]
Verify = Annotated[
    bool, typer.Option("--verify", help="Then train the best two plans for real, paced, and compare their times.")
]


def plan(
    ctx: typer.Context,
    scenario: PlannedScenario = None,
    target: TargetOption = None,
    budget: Budget = None,
    within: Within = None,
    minimise: Minimise = None,
    changes: Set = None,
    algorithms: Algorithms = None,
    workers: Workers = None,
    devices: Devices = None,
    batches: Batches = None,
    tune: Tune = None,
    trials: Trials = None,
    tuning_seeds: TuningSeeds = 2,
    seeds: ReportedSeeds = 5,
    seed: Seed = None,
    jobs: Jobs = None,
    resume: ResumePlan = None,
    verify: Verify = False,
    report: Report = True,
    out: Out = RUNS,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Search methods, cluster sizes, devices, batches and hyper-parameters for the best way to a target.

    Optuna draws the trials, each is simulated, and trials that are worse than
    another plan in every objective are stopped. The best plans are then simulated
    again with seeds that no trial used; only these figures are shown. Prices and
    power come from the scenario (cluster.nodes[].price_per_hour, power) or from
    the catalogue. The section plan of the scenario gives ranges.

    A new folder contains the study (study.log), all trials (trials.csv, and the
    scenario of each in trials/), the plans (plans/), plan.json, plan.png and
    report.html, which shows all of this. An
    interrupted plan continues with --resume and makes the same trials.
    Needs paceline[planning].

    \b
    Examples:
      paceline plan quickstart --target accuracy=0.93
      paceline plan my.yaml --target accuracy=0.93 --budget '200 USD' --within 2h
      paceline plan my.yaml --minimise cost,time --workers 1..64x2
      paceline plan my.yaml --devices v100-sxm2,a100-sxm4-40 --minimise time,cost
      paceline plan my.yaml --tune learning_rate=0.01..1 --tune agd.delay=1,2,4
      paceline plan --resume runs/my-plan-unfinished-1
    """
    from paceline.cli import plan_actions
    from paceline.reports.planning.options import Options

    shown = output(ctx, as_json, quiet, verbose)
    options = Options(
        target=target,
        budget=budget,
        within=within,
        minimise=minimise,
        workers=workers,
        devices=devices,
        batches=batches,
        tune=tune or [],
        trials=trials,
        tuning_seeds=tuning_seeds,
        reported_seeds=seeds,
    )
    if resume is not None:
        given = {"SCENARIO": scenario, "--set": changes, "--algorithms": algorithms, "--seed": seed}
        plan_actions.resume(resume, options, given, shown, jobs=jobs, verify=verify, report=report)
        return
    plan_actions.run(
        scenario, changes or [], algorithms, seed, options, out, shown, jobs=jobs, verify=verify, report=report
    )
