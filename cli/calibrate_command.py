"""``paceline calibrate``: measures this machine for predictions of runs on it and on more like it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from paceline.algorithms.core.errors import InputError
from paceline.backend.transports.launch_environment import Joined, joined
from paceline.cli.actions import ScenarioOptions, reported, together
from paceline.cli.options import Algorithms, Json, Quiet, Set, Verbose, complete_scenarios, output

if TYPE_CHECKING:
    from paceline.backend.calibration.machine_imports import Imported
    from paceline.cli.output import Output
    from paceline.reports.blocks import Table
    from paceline.scenarios.resolution.schema import Scenario
    from paceline.scenarios.sections.machine_file import MachinePart


METHODS = ("sync-sgd", {"name": "layerwise-sgd", "bucket": None}, "easgd", "async-sgd")
"""the methods whose collectives are measured for a model without a scenario: of all weights and of single layers"""
WORKERS = 2
"""ranks for a model without a scenario"""


def calibrate(
    ctx: typer.Context,
    scenario: Annotated[
        str | None,
        typer.Argument(
            metavar="[SCENARIO|MODEL,…]",
            help="A scenario with the model, ranks and threads; or models of [bold]paceline list models[/], which are "
            "calibrated one after the other into one file. Default with --run: the scenario of the run.",
            show_default=False,
            autocompletion=complete_scenarios,
        ),
    ] = None,
    changes: Set = None,
    algorithms: Algorithms = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Ranks on this host, for models; default: 2.", show_default=False)
    ] = None,
    batches: Annotated[
        str | None,
        typer.Option(
            metavar="B,B,…",
            help="Batch sizes at which gradients are measured; default: a quarter of the scenario's, its own, and four "
            "times as many.",
        ),
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=1, help="No further round begins after this time; at least three are made.")
    ] = 180.0,
    nccl_tests: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[PROGRAM,RANKS/HOSTS=]LOG",
            help="Import collectives from a log of nccl-tests; may be repeated. The program (all_reduce=LOG), or the "
            "ranks and hosts (16/2=LOG), are needed if the log does not contain them.",
        ),
    ] = None,
    osu: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[RANKS/HOSTS=]LOG",
            help="Import messages and collectives from a log of OSU micro-benchmarks; may be repeated. The ranks and "
            "hosts (16/2=LOG, or 16=LOG on one host) are needed if the command lines in the log do not tell them.",
        ),
    ] = None,
    torch_profile: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[BATCH=]TRACE",
            help="Import gradients from a trace of torch.profiler; may be repeated. Default batch: the scenario's.",
        ),
    ] = None,
    run: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="RUN", help="Import gradients and collectives from a run of paceline train; may be repeated."
        ),
    ] = None,
    import_only: Annotated[
        bool, typer.Option("--import-only", help="Measure nothing: the file has only what is imported.")
    ] = False,
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="The file to write; an existing one is replaced.", dir_okay=False)
    ] = Path("machine.yaml"),
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Measure gradients, messages and collectives on this machine, and write them to a file.

    If `torchrun`, `srun` or `mpirun` has started the command, its processes measure together, on one host or on
    several; messages and collectives between hosts are then measured, too. The ranks, threads and model are those of
    the scenario. Gradients are measured with one rank busy, with two, and so on, because ranks share cores, caches and
    memory. Rounds of all measurements take turns until the intervals of the gradients are narrow. What is imported is
    not measured.

    \b
    Examples:
      paceline calibrate my.yaml
      paceline calibrate my.yaml --batches 16,64,256 --out node.yaml
      paceline calibrate digits-cnn,digits-mlp --workers 2
      paceline calibrate my.yaml --nccl-tests all-reduce.txt --import-only
      paceline calibrate my.yaml --torch-profile trace.json --import-only
      paceline calibrate my.yaml --osu 16/2=osu.txt --import-only
      paceline calibrate --run runs/my-sync-sgd-1-measured-1 --import-only
      srun --nodes=2 --ntasks-per-node=3 paceline calibrate my.yaml
      paceline simulate my.yaml --machine node.yaml
      paceline compare my.yaml --no-pace --machine node.yaml
    """

    def request() -> CalibrationRequest:
        return CalibrationRequest(
            source=scenario,
            changes=changes or [],
            algorithms=algorithms,
            workers=workers,
            batches=batches_of(batches),
            nccl_tests=nccl_tests or [],
            osu=osu or [],
            torch_profile=torch_profile or [],
            runs=run or [],
            import_only=import_only,
        )

    shown = output(ctx, as_json, quiet, verbose)
    if (started := joined(os.environ)) is None:
        check_folder(out)
        _answer(made(request(), shown, seconds), out, shown)
    elif (machine := _joined(request, out, seconds, shown, started)) is not None:
        _answer(machine, out, shown)


def _joined(
    asked_for: Callable[[], CalibrationRequest], out: Path, seconds: float, shown: Output, started: Joined
) -> MachinePart | None:
    """Measures as one process of several; returns the machine in the first one."""
    with reported(started):
        request = asked_for()
        scenario = request.measured()
        if started.process == 0:  # no other one writes
            check_folder(out)
        with together(started, shown) as (world, speaking):
            from paceline.backend.calibration.calibrate import calibrate_hosts
            from paceline.simulator.runs.dry_run import dry_run

            with speaking.progress() as stage:
                asked = dry_run(scenario.plans(), by_hosts=len(world.hosts) > 1)
                progress, batches = stage("calibrating"), request.batches
                return calibrate_hosts(scenario, asked, world, batches=batches, seconds=seconds, progress=progress)


def check_folder(out: Path) -> None:
    """Raises `InputError` if the folder of a file does not exist."""
    if not out.parent.is_dir():
        raise InputError(f"--out: found {str(out)!r}, expected a file in an existing folder")


def _answer(machine: MachinePart, out: Path, shown: Output) -> None:
    """Writes the file and prints the figures."""
    from paceline.scenarios.sections.machine_store import save_machine

    save_machine(machine, out)
    shown.answer(machine.model_dump(mode="json"), [table(machine.of_model(name)) for name in machine.names()])
    shown.note(machine.made.verdict)
    for line in machine.assumed:
        shown.note(line)
    if not shown.as_json:
        shown.note(f"stored in {out}")


def made(request: CalibrationRequest, shown: Output, seconds: float) -> MachinePart:
    """Returns the machine that is asked for.

    Args:
        request: what is calibrated and imported.
        shown: where progress is printed.
        seconds: the time after which no further round begins, of all models together.
    """
    from paceline.backend.calibration.calibrate import calibrate as measure
    from paceline.backend.calibration.machine_imports import only_imports
    from paceline.backend.calibration.several_models import joined
    from paceline.simulator.runs.dry_run import dry_run

    scenarios = request.scenarios()
    imported = [request.imported(one) for one in scenarios]
    if request.import_only:
        return joined([only_imports(*pair) for pair in zip(scenarios, imported, strict=True)])
    found = []
    with shown.progress() as stage:
        for loaded, costs in zip(scenarios, imported, strict=True):
            progress = stage(f"calibrating {loaded.workload.model}")
            asked, time_s = dry_run(loaded.plans()), seconds / len(scenarios)
            found.append(
                measure(loaded, asked, batches=request.batches, seconds=time_s, imported=costs, progress=progress)
            )
    return joined(found)


def batches_of(text: str | None) -> list[int]:
    """Parses batch sizes.

    >>> batches_of("64,16"), batches_of(None)
    ([16, 64], [])
    """
    if text is None:
        return []
    try:
        found = sorted({int(part) for part in text.split(",")})
    except ValueError:
        found = [0]
    if found[0] < 1:
        raise InputError(f"--batches: found {text!r}, expected whole numbers of 1 or more, such as 16,64")
    return found


def table(machine: MachinePart) -> Table:
    """Returns the measured figures as a table."""
    from paceline.records.figures import BYTES, BYTES_PER_SECOND, MILLISECONDS
    from paceline.reports.blocks import Cell, Column, Row, Table

    def timed(cost: str, of: str, spread: Spread) -> Row:
        low, high = (spread.time if end is None else end for end in (spread.low, spread.high))
        return cost, of, Cell(spread.time, low=low, high=high)

    rows: list[Row] = []
    for part in machine.gradients:
        for one in part.busy:
            ranks = f"{one.ranks} rank{'s' * (one.ranks > 1)} busy"
            rows.append(timed("gradient", f"{part.batch} samples, {ranks}", Spread(one.mean, one.low, one.high)))
    for curve in machine.costs:
        where = " in shared memory" * (curve.shared_memory and curve.origin is None)
        where += f", {curve.origin.file}" if curve.origin is not None else ""
        name = f"{curve.operation} of {curve.ranks} ranks" if curve.operation[0].isupper() else curve.operation
        name += f" on {curve.hosts} hosts" * (curve.hosts > 1)
        rows += [(name, f"{BYTES.text(point.bytes)}{where}", point.time) for point in curve.points]
    own = ((name, getattr(machine.own, name)) for name in type(machine.own).model_fields)
    rows += [(f"own work: {name}", "", seconds) for name, seconds in own if seconds or not machine.imported]
    if (start := machine.startup) is not None:
        rows.append(timed("start-up", "launch to first step", Spread(start.time, start.low, start.high)))
    for name in type(machine.rates).model_fields:
        if (rate := getattr(machine.rates, name)) is not None:
            rows.append((f"rate: {name.replace('_', ' ')}", BYTES_PER_SECOND.text(rate.rate), Cell("")))
    title = f"{machine.model} on {machine.made.processor or 'an unnamed machine'}, {machine.ranks} ranks"
    columns = [Column("cost"), Column("of"), Column("time", MILLISECONDS, code="time_s")]
    words = "A range below a time: from the shortest to the longest launch."
    return Table(title, columns, rows, keys=2, words=words)


class Spread(NamedTuple):
    """A time with the shortest and the longest of several launches; None if there was one launch."""

    time: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationRequest:
    """The arguments and options of the command that decide what is calibrated.

    Args:
        source: a scenario, or names of models joined by commas; None: the scenario of the first run.
        changes: as for --set.
        algorithms: as for --algorithms.
        workers: the ranks, for models.
        batches: the batch sizes to be measured; empty: by the scenario.
        nccl_tests, osu, torch_profile: logs and traces to import.
        runs: stored runs to import.
        import_only: whether nothing is measured.
    """

    source: str | None
    changes: Sequence[str] = ()
    algorithms: str | None = None
    workers: int | None = None
    batches: Sequence[int] = ()
    nccl_tests: Sequence[str] = ()
    osu: Sequence[str] = ()
    torch_profile: Sequence[str] = ()
    runs: Sequence[Path] = ()
    import_only: bool = False

    def scenarios(self) -> list[Scenario]:
        """Returns one scenario for each model.

        Raises:
            InputError: options are missing or contradict each other, or the scenario is wrong; with all mistakes.
        """
        models = models_of(self.source)
        self._check(models)
        if models:
            sources: list[Any] = [self._for_model(model) for model in models]
        else:
            sources = [self.source if self.source is not None else self._of_run()]
        return [
            ScenarioOptions(source, changes=[*self.changes, "train.pace=none"], algorithms=self.algorithms).read()
            for source in sources
        ]

    def measured(self) -> Scenario:
        """Returns the scenario of processes that a launcher has started, which measure one model and import nothing.

        Raises:
            InputError: there are several models, or something to import; or as for `scenarios`.
        """
        found = self.scenarios()
        imports = [*self.nccl_tests, *self.osu, *self.torch_profile, *self.runs]
        mistakes = [f"--import-only, {imports[0]}: found files to import, which need no launcher"] if imports else []
        if len(found) > 1:
            mistakes.append(f"SCENARIO: found {len(found)} models, expected one in processes of a launcher")
        if mistakes:
            raise InputError("\n".join(mistakes))
        return found[0]

    def imported(self, scenario: Scenario) -> Imported:
        """Reads the files to import.

        Args:
            scenario: the scenario, whose batch, layers and ranks traces take.

        Raises:
            InputError: a file is wrong; with the mistakes of all files.
        """
        from paceline.backend.calibration.imported_costs import nccl_log, osu_log, trace
        from paceline.backend.calibration.machine_imports import NOTHING

        found, mistakes = NOTHING, list[str]()
        readers: list[Callable[[], Imported]] = [partial(nccl_log, given) for given in self.nccl_tests]
        readers += [partial(osu_log, given) for given in self.osu]
        if self.torch_profile:
            plan, busy = scenario.plans()[0], max(len(ranks) for ranks in scenario.cluster.placement)
            readers += [partial(trace, given, plan, busy) for given in self.torch_profile]
        readers += [partial(run_costs, path, scenario) for path in self.runs]
        for read in readers:
            try:
                found = found + read()
            except InputError as error:
                mistakes += str(error).splitlines()
        if mistakes:
            raise InputError("\n".join(mistakes))
        return found

    def _check(self, models: Sequence[str]) -> None:
        mistakes = []
        if self.source is None and not self.runs:
            mistakes.append("SCENARIO: missing; expected a scenario, the name of a model, or a run as --run")
        if self.workers is not None and not models:
            mistakes.append(
                f"--workers: found {self.workers} without the name of a model; the ranks are those of the scenario: "
                "--set 'cluster.nodes[0].workers_per_node=…'"
            )
        if len(models) > 1 and (self.torch_profile or self.runs):
            mistakes.append(
                f"--torch-profile, --run: found beside {len(models)} models, expected one, whose gradients they are"
            )
        if self.import_only and not (self.nccl_tests or self.osu or self.torch_profile or self.runs):
            mistakes.append(
                "--import-only: found nothing to import; expected --nccl-tests, --osu, --torch-profile or --run"
            )
        if mistakes:
            raise InputError("\n".join(mistakes))

    def _for_model(self, model: str) -> dict[str, Any]:
        workload: dict[str, Any] = {"model": model}
        if self.batches:
            workload["batch_per_worker"] = sorted(self.batches)[len(self.batches) // 2]
        if self.import_only:
            workload["learning"] = "none"
        device = {"name": "measured", "overhead": "1 s", "per_sample": "0 s"}  # not used: runs are not paced
        return {
            "name": f"calibration-{model}",
            "algorithms": list(METHODS),
            "workload": workload,
            "cluster": {"nodes": [{"device": device, "workers_per_node": self.workers or WORKERS}]},
            "stop": {"epochs": 1},
        }

    def _of_run(self) -> dict[str, Any]:
        from paceline.backend.calibration.run_costs import stored_run

        return dict(stored_run(self.runs[0]).scenario)


def run_costs(path: Path, scenario: Scenario) -> Imported:
    """Returns the costs in a stored run.

    Args:
        path: the folder of the run.
        scenario: the scenario of the calibration, with the same model and threads.

    Raises:
        InputError: the run is of another model or number of threads, or cannot be used.
    """
    from paceline.backend.calibration.run_costs import costs_of_run, stored_run
    from paceline.scenarios import load
    from paceline.simulator.runs.dry_run import dry_run

    run = stored_run(path)
    own = load(run.scenario)
    if own.workload.model != scenario.workload.model:
        raise InputError(
            f"--run {path}: found gradients of {own.workload.model}, expected those of {scenario.workload.model}"
        )
    if (threads := own.train.torch_threads) != scenario.train.torch_threads:
        raise InputError(
            f"--run {path}: found {threads} threads per rank, expected train.torch_threads, "
            f"{scenario.train.torch_threads}"
        )
    return costs_of_run(run, own.cluster.workers, dry_run(own.plans()))


def models_of(source: str | None) -> list[str]:
    """Returns the models that an argument names; none if it is a scenario.

    >>> models_of("digits-cnn,digits-mlp"), models_of("quickstart"), models_of("my.yaml")
    (['digits-cnn', 'digits-mlp'], [], [])
    """
    from paceline.scenarios.values.text import SHIPPED
    from paceline.workloads import MODELS

    if source is None or Path(source).exists() or source in SHIPPED:
        return []
    names = [part.strip() for part in source.split(",")]
    known = [name for name in names if name in MODELS]
    if known and len(known) < len(names):
        from paceline.algorithms.core.naming import near_miss

        unknown = next(name for name in names if name not in MODELS)
        raise InputError(f"SCENARIO: found {unknown!r} among models{near_miss(unknown, list(MODELS))}")
    return list(dict.fromkeys(known))
