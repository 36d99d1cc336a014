"""`plan` and its result."""

from __future__ import annotations

import dataclasses
import json
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from paceline.algorithms.core.errors import InputError
from paceline.records import store
from paceline.records.document import to_json
from paceline.records.figures import OF_PLANS
from paceline.reports.planning.objectives import Objective
from paceline.reports.planning.options import Listed, request_of
from paceline.reports.planning.plan_answer import Candidate, PlanAnswer
from paceline.reports.planning.planner import make_plan
from paceline.reports.planning.request import REPORTED_SEEDS, TABLE, TUNING_SEEDS, stored_trials, write_trials
from paceline.reports.planning.search import Report
from paceline.reports.result import Result
from paceline.reports.run_results import Source
from paceline.scenarios import Scenario, load
from paceline.scenarios.builders.run_builders import Target

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from paceline.reports.blocks import Answer


@dataclass(frozen=True, kw_only=True, repr=False)
class PlanResult(Result, PlanAnswer):
    """What `paceline.plan` returns: the plans, their Pareto front, and the trials of the search."""

    documents: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """the scenario of each candidate by its path"""

    @staticmethod
    def of(answer: PlanAnswer, documents: Mapping[str, Mapping[str, Any]]) -> PlanResult:
        """Returns an answer as a result.

        Args:
            answer: the answer.
            documents: the scenario of each candidate by its path.
        """
        values = {one.name: getattr(answer, one.name) for one in dataclasses.fields(answer)}
        return PlanResult(**values, documents=documents)

    def scenario(self, plan: Candidate | None = None) -> Scenario:
        """Returns the scenario of a plan, for `paceline.simulate` or `paceline.compare`.

        Args:
            plan: one of `candidates`; None: the best plan.
        """
        return load(self.documents[(plan or self.best).path])

    @property
    def words(self) -> str:
        """The answer in sentences."""
        from paceline.reports.planning.plan_words import plan_words

        return plan_words(self)

    def frame(self) -> pd.DataFrame:
        """Returns a row for each candidate, the best first: its choice and the mean figures of the reported seeds.

        Objectives have their unit in the name, such as ``time_s`` and ``cost_usd``; intervals of 95 % have columns with
        ``_low`` and ``_high``.
        """
        import pandas as pd

        front = {id(one) for one in self.front}
        return pd.DataFrame([self._row(one, pareto=id(one) in front) for one in self.candidates])

    def _row(self, one: Candidate, *, pareto: bool) -> dict[str, Any]:
        row: dict[str, Any] = {
            "trial": one.trial.number,
            "method": one.choice.method,
            "nodes": one.choice.nodes,
            "workers": one.choice.workers,
            "batch_per_worker": one.choice.batch_per_worker,
            **one.choice.hyperparameters,
        }
        for name in self.request.objectives:
            column, figure = OF_PLANS[name].column, one.figure(name)
            if isinstance(figure, Mapping):
                row |= {column: figure["mean"], f"{column}_low": figure["low"], f"{column}_high": figure["high"]}
            else:
                row[column] = figure
        return {
            **row,
            "samples_per_s": one.mean("samples_per_s"),
            "samples_to_target": one.mean("samples_to_target"),
            "usd_per_hour": one.rates.usd_per_hour,
            "power_w": one.rates.watts,
            "pareto": pareto,
            "reason": one.reason or None,
        }

    def plot(self) -> Figure:
        """Draws the plans: each further objective against the first, or bars if there is one."""
        from paceline.reports.planning.plan_blocks import plan_charts
        from paceline.reports.png import figure_of

        return figure_of(plan_charts(self._stored(), self._trials()), title=self._title)

    def answer(self) -> Answer:
        """Returns the table of plans, what is said about them, and the charts of plans and trials."""
        from paceline.reports.planning.plan_blocks import answer_of_plan, plans_section

        stored = self._stored()
        answer = answer_of_plan(stored, self.request.scenario["name"])
        # the table of trials is made when the charts are, not to print the table of plans
        return dataclasses.replace(answer, sections=lambda: [plans_section(stored, self._trials())])

    def _stored(self) -> dict[str, Any]:
        """Returns the content of plan.json."""
        document: dict[str, Any] = json.loads(to_json({**self.document(), "words": self.words}))
        return document

    @property
    def _title(self) -> str:
        return f"{self.request.scenario['name']}: plans for {self.request.target.words}"

    def _reported(self) -> Answer:
        from paceline.reports.provenance import with_provenance

        return with_provenance(self.answer(), self.request.scenario)

    def _trials(self) -> list[dict[str, Any]]:
        """Returns the rows of the table of trials as a stored plan has them."""
        with tempfile.TemporaryDirectory() as folder:
            write_trials(Path(folder) / TABLE, self.trials, self.request.objectives)
            return stored_trials(Path(folder))

    @property
    def _report_name(self) -> str:
        return f"{self.request.scenario['name']}-plan.html"


def plan(
    scenario: Source,
    *,
    target: str | Target | None = None,
    budget: str | float | None = None,
    within: str | float | None = None,
    minimise: Objective | Sequence[Objective] | None = None,
    overrides: Sequence[str] = (),
    algorithms: Sequence[str] | None = None,
    workers: Listed | None = None,
    devices: Listed | None = None,
    batches: Listed | None = None,
    tune: Mapping[str, Listed] | None = None,
    trials: int | None = None,
    tuning_seeds: int = TUNING_SEEDS,
    seeds: int = REPORTED_SEEDS,
    jobs: int | None = None,
    out: str | Path | None = None,
    progress: Report | None = None,
) -> PlanResult:
    """Searches methods, cluster sizes, devices, batches and hyper-parameters for the best way to a target.

    A script that calls this needs ``if __name__ == "__main__":``, like every script that starts processes. It needs
    Optuna: ``pip install 'paceline[planning]'``.

    Args:
        scenario: a scenario, or an argument of `paceline.load`.
        target: what every plan must reach, such as ``Target(accuracy=0.93)`` or ``"loss=0.1"``; None: the scenario's.
        budget: the most that a run may cost, as text or in US dollars; None: no limit.
        within: the longest time of a run, as text or in seconds; None: no limit.
        minimise: time, cost or energy, the most important first; None: time, and cost if all prices are known.
        overrides: changes ``path=value`` to the scenario.
        algorithms: the methods to consider; None: the usual ones.
        workers: numbers of workers, such as ``"1..64x2"``; None: 1, 2, 4, … up to those of the cluster.
        devices: devices of the catalogue instead of those of the cluster.
        batches: batches per worker; None: half, once and twice the scenario's.
        tune: ranges of hyper-parameters, such as ``{"learning_rate": "0.01..1", "agd.delay": [1, 2]}``.
        trials: number of trials; None: 15 for each method.
        tuning_seeds: number of seeds of a trial; they are never reported.
        seeds: number of fresh seeds of a reported plan.
        jobs: number of parallel processes; the answer does not depend on it. None: the number of cores.
        out: the folder in which a new folder with the study is made; None: the study is not kept.
        progress: called with what is done and the completed share of a stage.

    Returns:
        The plans.

    Raises:
        InputError: an argument is wrong, or Optuna is not installed.
        RunFailed: no plan reaches the target.
    """
    if find_spec("optuna") is None:
        raise InputError("paceline.plan needs Optuna, which is not installed: pip install 'paceline[planning]'")
    with names_of_arguments():
        request = request_of(
            scenario,
            overrides,
            algorithms,
            target=target,
            budget=budget,
            within=within,
            minimise=minimise,
            workers=workers,
            devices=devices,
            batches=batches,
            tune=tune or {},
            trials=trials,
            tuning_seeds=tuning_seeds,
            seeds=seeds,
        )
    with _folder(out, f"{store.slug(request.scenario['name'])}-plan") as folder:
        answer = make_plan(request, folder, jobs=jobs, stage=lambda _: progress)
        documents = {
            one.path: yaml.safe_load((folder / one.path).read_text(encoding="utf-8")) for one in answer.candidates
        }
    return PlanResult.of(answer, documents)


@contextmanager
def _folder(out: str | Path | None, stem: str) -> Iterator[Path]:
    """Yields a new folder, which is removed if `out` is None."""
    if out is None:
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder)
        return
    Path(out).mkdir(parents=True, exist_ok=True)
    with store.numbered_folder(Path(out), stem) as numbered:
        yield numbered.building


@contextmanager
def names_of_arguments() -> Iterator[None]:
    """Replaces names of options in messages by those of arguments: ``--tune`` by ``tune``."""
    try:
        yield
    except InputError as error:
        text = re.sub(r"(?m)^--([a-z][a-z-]*)", lambda found: found[1].replace("-", "_"), str(error))
        raise type(error)(text) from None
