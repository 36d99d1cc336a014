"""What `paceline calibrate` is asked for: scenarios or models, and the files that are imported."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.algorithms.core.errors import InputError

if TYPE_CHECKING:
    from paceline.backend.calibration.machine_imports import Imported
    from paceline.scenarios.resolution.schema import Scenario

METHODS = ("sync-sgd", {"name": "layerwise-sgd", "bucket": None}, "easgd", "async-sgd")
"""the methods whose collectives are measured for a model without a scenario: of all weights and of single layers"""
WORKERS = 2
"""ranks for a model without a scenario"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
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
        from paceline.cli.actions import Ask

        models = models_of(self.source)
        self._check(models)
        if models:
            sources: list[Any] = [self._for_model(model) for model in models]
        else:
            sources = [self.source if self.source is not None else self._of_run()]
        return [
            Ask(source, changes=[*self.changes, "train.pace=none"], algorithms=self.algorithms).read()
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
