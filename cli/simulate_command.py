"""``paceline simulate`` and ``paceline explain``: runs in virtual time, and where the time of their steps goes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from paceline.cli.actions import answer_runs, keeper, logging, naming_stored, run_names
from paceline.cli.options import Loggers, Only, Scenario, ScenarioOptions
from paceline.cli.output import Output
from paceline.cli.report_command import report_of_simulation

if TYPE_CHECKING:
    from paceline.cli.progress import ExpectedTime
    from paceline.records import Run
    from paceline.reports.comparison.predict import Report as ProgressReport


def simulate(
    scenario: Scenario,
    options: Annotated[ScenarioOptions, Only("changes", "algorithms", "seed", "seeds", "machine")],
    *,
    engine: Annotated[
        Literal["auto", "events", "cohort"],
        typer.Option(
            help="The interpreter: event by event, or vectorised over ranks (cohort) where the run allows it, with the "
            "same records; auto chooses by the number of ranks, and extrapolates long runs of methods with a server."
        ),
    ] = "auto",
    log: Loggers = None,
    output: Output,
) -> None:
    """Run a scenario in virtual time on its modelled cluster: one run per algorithm and seed.

    All runs and a report of them are stored: throughput, shares of time, a timeline of every rank, learning, staleness.

    \b
    Examples:
      paceline simulate quickstart
      paceline simulate quickstart --algorithms sync-sgd,async-sgd --seeds 3
      paceline simulate my.yaml --set cluster.nodes[0].count=4 --set stop.epochs=5
      paceline simulate runs/quickstart-agd-1-simulated-1/run.json
      paceline simulate my.yaml --set "workload={trace: a.et, trace_batch: 64}"
      paceline simulate my.yaml --machine machine.yaml   # of paceline calibrate
      paceline simulate my.yaml --log wandb,tensorboard
    """
    loaded = options.read(scenario)
    output.make_folder()
    from paceline.cli.progress import ExpectedTime
    from paceline.reports.comparison.run_table import RunRows
    from paceline.reports.run_results import simulate as simulated
    from paceline.scenarios.resolution.plan import names_of

    names = names_of(loaded.algorithms)
    rows = RunRows(names, loaded.seeds, each=loaded.seeds == 1 or output.verbose, width=output.out.width)
    expected = ExpectedTime([name for name in names for _ in range(loaded.seeds)])

    stored: list[Run] = []
    with naming_stored(stored, output), logging(log, output) as logs, output.progress() as stage:
        save = keeper(stored, output.folder, logs)

        def keep(run: Run) -> Run:
            saved = save(run)
            expected.ended()
            if (row := rows.add(saved)) is not None:  # printed before the next runs begin
                output.row(row)
            return saved

        report = stage("simulating", run_names(names, loaded.seed, loaded.seeds))
        runs = simulated(loaded, progress=_estimating(expected, report, output), keep=keep, engine=engine)
    output.end_of_rows()
    for table in rows.later:
        output.row(table)
    answer_runs(runs, output, streamed=True)
    if output.report:
        report_of_simulation(runs, loaded.name, output)


def _estimating(expected: ExpectedTime, report: ProgressReport | None, output: Output) -> ProgressReport | None:
    """Adds the expected remaining time to a stage's progress, and prints a note if the duration is long."""
    if report is None:
        return None
    from paceline.cli.progress import LONG_S
    from paceline.reports.words import duration

    said = False

    def estimated(name: str, done: float) -> None:
        nonlocal said
        left = expected.left(done)
        if left is None:
            report(name, done)
            return
        runs = "1 run of another method is" if left.untimed == 1 else f"{left.untimed} runs of other methods are"
        total_s = expected.total_s(left)
        if not said and total_s >= LONG_S:
            said = True
            rest = f", and {runs} not timed yet" if left.untimed else ""
            output.note(f"expected duration: about {duration(total_s)}{rest}")
        more = "1 more run" if left.untimed == 1 else f"{left.untimed} more runs"
        rest = f" and {more}" if left.untimed else ""
        report(f"{name}, about {duration(left.seconds)}{rest} left" if said else name, done)

    return estimated


def explain(
    scenario: Scenario,
    options: Annotated[ScenarioOptions, Only("changes", "algorithms")],
    *,
    steps: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Steps of each worker that are evaluated, rounded up to whole periods of the method; default: 4 to "
            "100, and at least two periods.",
        ),
    ] = None,
    output: Annotated[Output, Only("as_json", "quiet")],
) -> None:
    """Explain where the predicted time of a step goes, and which change would shorten it most.

    The mean time of a step is divided into parts that add up to it:

    \b
      gradient     by layer
      loading      batches that prefetching does not hide
      charge       updates, compression, copies, access to shared memory
      collective   by operation, size and number of members
      message      by role of sender and receiver, and size
      waiting      for the slowest worker
      queue        for a server, a lock, or an earlier collective

    Communication during a gradient costs no time and is shown as hidden. Each part has its formula with the numbers
    put in, and the provenance of the values. Then each part of the cluster is changed alone and simulated again:
    faster devices, links, storage and servers, no jitter, no stragglers.

    \b
    Examples:
      paceline explain quickstart --algorithms sync-sgd,async-sgd
      paceline explain dgx1-p100 --algorithms sync-sgd
      paceline explain my.yaml --set cluster.network.link=ib-edr --steps 200
      paceline explain my.yaml --json | jq '.algorithms[].conclusion'
    """
    loaded = options.read(scenario)
    from paceline.checking.own_methods import check_own_methods
    from paceline.reports.attribution.explain import answer_of_explanations
    from paceline.reports.attribution.explain import explain as run

    check_own_methods(loaded)
    with output.progress() as stage:
        explanations = run(loaded, steps=steps, progress=stage("explaining"))
    output.give(answer_of_explanations(loaded.name, explanations))
