"""``paceline simulate``: one run in virtual time per algorithm and seed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from paceline.cli.actions import ScenarioOptions, answer_runs, keeper, naming_stored, run_names
from paceline.cli.options import (
    RUNS,
    Algorithms,
    Csv,
    Engine,
    EngineName,
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
from paceline.cli.output import Output
from paceline.cli.report_command import report_of_simulation

if TYPE_CHECKING:
    from paceline.cli.progress import ExpectedTime
    from paceline.records import Run
    from paceline.reports.comparison.predict import Report as ProgressReport


def simulate(
    ctx: typer.Context,
    scenario: Scenario,
    changes: Set = None,
    algorithms: Algorithms = None,
    seed: Seed = None,
    seeds: Seeds = None,
    machine: Machine = None,
    engine: Engine = "auto",
    report: Report = True,
    out: Out = RUNS,
    as_json: Json = False,
    as_csv: Csv = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Run a scenario in virtual time on its modelled cluster: one run per algorithm and seed.

    All runs and a report of them are stored: throughput, shares of time, a timeline of every rank, learning, staleness.

    \b
    Examples:
      paceline simulate quickstart
      paceline simulate quickstart --algorithms sync-sgd,async-sgd --seeds 3
      paceline simulate my.yaml --set cluster.nodes[0].count=4 --set stop.epochs=5
      paceline simulate runs/quickstart-agd-1-simulated-1/run.json
      paceline simulate my.yaml --machine machine.yaml   # of paceline calibrate
    """
    options = ScenarioOptions(
        scenario, changes=changes, algorithms=algorithms, seed=seed, seeds=seeds, out=out, machine=machine
    )
    run(options, output(ctx, as_json, quiet, verbose, as_csv=as_csv), engine, with_report=report)


def run(options: ScenarioOptions, output: Output, engine: EngineName = "auto", *, with_report: bool = False) -> None:
    """Simulates one run per algorithm and seed; prints each row of the table when its runs have ended.

    Args:
        options: the scenario and changes to it.
        output: where the answer is printed.
        engine: the interpreter, see `paceline.simulator.runs.engine`.
        with_report: whether to write a report of all runs.
    """
    scenario = options.load()
    from paceline.cli.progress import ExpectedTime
    from paceline.reports.comparison.run_table import Rows
    from paceline.reports.run_results import simulate as simulated
    from paceline.scenarios.resolution.plan import names_of

    names = names_of(scenario.algorithms)
    rows = Rows(names, scenario.seeds, each=scenario.seeds == 1 or output.verbose, width=output.out.width)
    expected = ExpectedTime([name for name in names for _ in range(scenario.seeds)])

    stored: list[Run] = []
    save = keeper(stored, options.out)

    def keep(run: Run) -> Run:
        saved = save(run)
        expected.ended()
        if (row := rows.add(saved)) is not None:
            output.row(row)
        return saved

    with naming_stored(stored, output), output.progress() as stage:
        report = stage("simulating", run_names(names, scenario.seed, scenario.seeds))
        runs = simulated(scenario, progress=_estimating(expected, report, output), keep=keep, engine=engine)
    output.end_of_rows()
    for table in rows.later:
        output.row(table)
    answer_runs(runs, options, output, streamed=True)
    if with_report:
        report_of_simulation(runs, scenario.name, options.out, output)


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
