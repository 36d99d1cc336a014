"""Answers about this machine: what it can do, and the costs that `calibrate` measures or imports."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.algorithms.core.errors import InputError, Mistakes
from paceline.records.figures import BYTES, BYTES_PER_SECOND, MILLISECONDS
from paceline.reports.blocks import Answer, Block, Claim, Column, Row, Table, TableCell, Tone
from paceline.scenarios import load

if TYPE_CHECKING:
    from paceline.backend.calibration.imported_costs import Imported
    from paceline.backend.machine_checks import MachineCheck
    from paceline.backend.multihost.world import World
    from paceline.reports.comparison.predict import Stage
    from paceline.scenarios.machine_file import MachinePart
    from paceline.scenarios.resolution.schema import Scenario

TONES: dict[str, Tone] = {"ok": "good", "limited": "fair", "missing": "fair"}
METHODS = ("sync-sgd", {"name": "layerwise-sgd", "bucket": None}, "easgd", "async-sgd")
"""the methods whose collectives are measured for a model without a scenario: of all weights and of single layers"""
WORKERS = 2
"""ranks for a model without a scenario"""


def doctor_answer(checks: Iterable[MachineCheck], *, everything: bool = False) -> Answer:
    """Returns the answer of `paceline doctor`; its document says whether train and compare can work, as ``ready``.

    Args:
        checks: what was found of each part.
        everything: whether parts that are there have a row of what needs them, too.
    """
    checks = list(checks)
    lacking = [check.name for check in checks if check.required and check.status == "missing"]
    rows = [
        (check.name, TableCell(check.status, tone="bad" if check.name in lacking else TONES[check.status]), check.found)
        for check in checks
    ]
    blocks: list[Block] = [Table("This machine", [Column("part"), Column("status"), Column("found")], rows)]
    if advice := [
        (check.name, check.needed_for, check.remedy) for check in checks if check.status != "ok" or everything
    ]:
        columns = [Column("part"), Column("needed for"), Column("how to get it")]
        blocks.append(Table("All parts" if everything else "Missing or limited parts", columns, advice))
    words = "simulate, train and compare work here. Parts that are missing are optional."
    if lacking:
        words = f"train and compare cannot work without: {', '.join(lacking)}."
    document = {"ready": not lacking, "checks": [dataclasses.asdict(check) for check in checks]}
    return Answer("This machine", [*blocks, Claim(words)], lambda: document)


def calibration_answer(machine: MachinePart) -> Answer:
    """Returns the answer of `paceline calibrate`: the costs of each model.

    Args:
        machine: the machine.
    """
    blocks = [table(machine.of_model(name)) for name in machine.names()]
    return Answer("Calibration", blocks, lambda: machine.model_dump(mode="json"))


def table(machine: MachinePart) -> Table:
    """Returns the measured figures as a table."""

    def timed(cost: str, of: str, time: float, low: float | None, high: float | None) -> Row:
        # of a single launch no range is known
        return cost, of, TableCell(time, low=time if low is None else low, high=time if high is None else high)

    rows: list[Row] = []
    for part in machine.gradients:
        for process in part.busy:
            ranks = f"{process.ranks} rank{'s' * (process.ranks > 1)} busy"
            rows.append(timed("gradient", f"{part.batch} samples, {ranks}", process.mean, process.low, process.high))
    for curve in machine.costs:
        where = " in shared memory" * (curve.shared_memory and curve.origin is None)
        where += f", {curve.origin.file}" if curve.origin is not None else ""
        name = f"{curve.operation} of {curve.ranks} ranks" if curve.operation[0].isupper() else curve.operation
        name += f" on {curve.hosts} hosts" * (curve.hosts > 1)
        rows += [(name, f"{BYTES.text(point.bytes)}{where}", point.time) for point in curve.points]
    own = ((name, getattr(machine.own, name)) for name in type(machine.own).model_fields)
    rows += [(f"own work: {name}", "", seconds) for name, seconds in own if seconds or not machine.imported]
    if (start := machine.startup) is not None:
        rows.append(timed("start-up", "launch to first step", start.time, start.low, start.high))
    for name in type(machine.rates).model_fields:
        if (rate := getattr(machine.rates, name)) is not None:
            rows.append((f"rate: {name.replace('_', ' ')}", BYTES_PER_SECOND.text(rate.rate), TableCell("")))
    title = f"{machine.model} on {machine.made.processor or 'an unnamed machine'}, {machine.ranks} ranks"
    columns = [Column("cost"), Column("of"), Column("time", MILLISECONDS, code="time_s")]
    words = "A range below a time: from the shortest to the longest launch."
    return Table(title, columns, rows, keys=2, words=words)


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationRequest:
    """What is calibrated and imported.

    Args:
        source: a scenario, or names of models joined by commas; None: the scenario of the first run.
        changes: changes to the scenario, as for `paceline.load`.
        algorithms: the names of the methods; None: those of the scenario.
        workers: the ranks, for models.
        batches: the batch sizes to be measured; empty: by the scenario.
        nccl_tests, osu, torch_profile: logs and traces to import.
        runs: stored runs to import.
        import_only: whether nothing is measured.
    """

    source: str | None
    changes: Sequence[str] = ()
    algorithms: Sequence[str] | None = None
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
        return [load(source, [*self.changes, "train.pace=none"], algorithms=self.algorithms) for source in sources]

    def measured(self) -> Scenario:
        """Returns the scenario of processes that a launcher has started, which measure one model and import nothing.

        Raises:
            InputError: there are several models, or something to import; or as for `scenarios`.
        """
        loaded = self.scenarios()
        imports = [*self.nccl_tests, *self.osu, *self.torch_profile, *self.runs]
        with Mistakes() as mistakes:
            if imports:
                mistakes.append(f"--import-only, {imports[0]}: found files to import, which need no launcher")
            if len(loaded) > 1:
                mistakes.append(f"SCENARIO: found {len(loaded)} models, expected one in processes of a launcher")
        return loaded[0]

    def imported(self, scenario: Scenario) -> Imported:
        """Reads the files to import.

        Args:
            scenario: the scenario, whose batch, layers and ranks traces take.

        Raises:
            InputError: a file is wrong; with the mistakes of all files.
        """
        from paceline.backend.calibration.imported_costs import NOTHING, nccl_log, osu_log, trace

        imported = NOTHING
        readers: list[Callable[[], Imported]] = [partial(nccl_log, given) for given in self.nccl_tests]
        readers += [partial(osu_log, given) for given in self.osu]
        if self.torch_profile:
            plan, busy = scenario.plans()[0], max(len(ranks) for ranks in scenario.cluster.placement)
            readers += [partial(trace, given, plan, busy) for given in self.torch_profile]
        readers += [partial(_run_costs, path, scenario) for path in self.runs]
        with Mistakes() as mistakes:
            for read in readers:
                with mistakes.noted():
                    imported = imported + read()
        return imported

    def _check(self, models: Sequence[str]) -> None:
        with Mistakes() as mistakes:
            if self.source is None and not self.runs:
                mistakes.append("SCENARIO: missing; expected a scenario, the name of a model, or a run as --run")
            if self.workers is not None and not models:
                mistakes.append(
                    f"--workers: found {self.workers} without the name of a model; the ranks are those of the "
                    "scenario: --set 'cluster.nodes[0].workers_per_node=…'"
                )
            if len(models) > 1 and (self.torch_profile or self.runs):
                mistakes.append(
                    f"--torch-profile, --run: found beside {len(models)} models, expected one, whose gradients they are"
                )
            if self.import_only and not (self.nccl_tests or self.osu or self.torch_profile or self.runs):
                mistakes.append(
                    "--import-only: found nothing to import; expected --nccl-tests, --osu, --torch-profile or --run"
                )

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
        from paceline.backend.calibration.imported_costs import stored_run

        return dict(stored_run(self.runs[0]).scenario)


def calibrate(request: CalibrationRequest, *, seconds: float = 180.0, stage: Stage = lambda _: None) -> MachinePart:
    """Measures and imports the costs of a machine.

    Args:
        request: what is calibrated and imported.
        seconds: the time after which no further round begins, of all models together.
        stage: called with the name of each stage; returns the stage's progress callback.

    Raises:
        InputError: the request or a file is wrong.
    """
    from paceline.backend.calibration.calibrate import calibrate as measure
    from paceline.backend.calibration.calibrate import joined
    from paceline.backend.calibration.imported_costs import only_imports
    from paceline.simulator.runs.consistency import consistent
    from paceline.simulator.runs.dry_run import dry_run

    scenarios = request.scenarios()
    imported = [request.imported(scenario) for scenario in scenarios]
    if request.import_only:
        return joined([only_imports(*pair) for pair in zip(scenarios, imported, strict=True)])
    lines = []
    for loaded, costs in zip(scenarios, imported, strict=True):
        progress = stage(f"calibrating {loaded.workload.model}")
        asked, time_s = dry_run(loaded.plans()), seconds / len(scenarios)
        lines.append(
            measure(
                loaded,
                asked,
                batches=request.batches,
                seconds=time_s,
                imported=costs,
                progress=progress,
                consistent=consistent,
            )
        )
    return joined(lines)


def calibrate_joined(
    scenario: Scenario, world: World, *, batches: Sequence[int], seconds: float, stage: Stage = lambda _: None
) -> MachinePart | None:
    """Measures as one process of several; returns the machine in the first one.

    Args:
        scenario: that of `CalibrationRequest.measured`, the same in all processes.
        world: the processes.
        batches: the batch sizes to be measured; empty: by the scenario.
        seconds: as for `calibrate`.
        stage: as for `calibrate`.
    """
    from paceline.backend.calibration.calibrate import calibrate_hosts
    from paceline.simulator.runs.dry_run import dry_run

    asked = dry_run(scenario.plans(), by_hosts=len(world.hosts) > 1)
    progress = stage("calibrating")
    return calibrate_hosts(scenario, asked, world, batches=batches, seconds=seconds, progress=progress)


def _run_costs(path: Path, scenario: Scenario) -> Imported:
    """Returns the costs in a stored run.

    Raises:
        InputError: the run is of another model or number of threads, or cannot be used.
    """
    from paceline.backend.calibration.imported_costs import costs_of_run, stored_run
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
