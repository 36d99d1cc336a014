"""The search: an Optuna study draws choices, each is simulated with the tuning seeds, and the trials are recorded.

* Choices are drawn in batches of a fixed size. The sampler of a batch is new and has a seed of its own, so what it
  draws depends only on the trials of the earlier batches: not on the number of processes, their speed, or kills.
* The journal holds only trials that have ended, in the order of their numbers. A batch is drawn in memory, in a copy of
  the study. After a kill, the study continues as if nothing had happened: the batch that was being evaluated is drawn
  again, with the same choices. Only one process may write a study at a time.
* Every trial has a bound on its virtual time, from the trials of earlier batches: see `request.bound_s`. A trial
  that reaches its bound before the target is stopped and recorded as pruned, with the reason.
* A choice whose scenario is wrong (too little memory, too few samples) is recorded with the error, and stops nothing.
* The scenario of every trial is stored in ``trials/``; simulating it gives the same rows.
"""

from __future__ import annotations

import fcntl
import math
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

from paceline.algorithms.core.checksums import reading
from paceline.algorithms.core.errors import InputError
from paceline.reports.planning.request import MOST_SHORT, PlanRequest, bound_s, shortfall, values_of, write_scenario
from paceline.reports.planning.search_space import (
    ENGINE,
    Range,
    Row,
    SearchChoice,
    SearchInterval,
    SearchPiece,
    Space,
    Values,
    evaluate,
    offered_nodes,
    scenario_of,
    tuning_seeds,
)
from paceline.reports.run_cost import PriceRates, rates_of
from paceline.reports.sweeps.parallel_tasks import TaskFailure, each
from paceline.scenarios import load

if TYPE_CHECKING:
    import optuna
    from optuna.trial import FrozenTrial
    from optuna.trial import Trial as OptunaTrial

Direction = Literal["minimize", "maximize"]
JOURNAL, LOCK = "study.log", "study.lock"
STUDY = "plan"
"""the name of the study in the journal"""
RANDOM_TRIALS = 10
"""trials that are drawn at random, after the usual ones; provenance: default of Optuna's TPESampler"""
SHORTFALL = "shortfall"
"""the name of the constraint of a trial that does not reach the target"""
TRIALS, POINTS = "trials", "points"
"""folders of the trials' scenarios and of the stored rows"""
Report = Callable[[str, float], None]
"""called with a text and the completed fraction, 0 … 1"""


@dataclass(frozen=True, slots=True)
class DrawnPoint:
    """A choice that was drawn, with the number of its trial."""

    number: int
    choice: SearchChoice
    params: Mapping[str, Any]
    distributions: Mapping[str, Any]


class PlanStudy:
    """The study in a folder.

    Args:
        folder: the folder, with the journal or without.
        space: the search space.
        objectives: number of objectives.
        seed: of the sampler.
        batch: number of choices that are drawn at a time.
    """

    def __init__(self, folder: Path, space: Space, *, objectives: int, seed: int, batch: int) -> None:
        import optuna
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._space, self._seed, self.batch = space, seed, batch
        self._directions: list[Direction] = ["minimize"] * objectives
        _repair(folder / JOURNAL)
        with warnings.catch_warnings(), reading(folder / JOURNAL, "the trials of a plan, as Paceline stored them"):
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            storage = JournalStorage(JournalFileBackend(str(folder / JOURNAL)))
            self._study = optuna.create_study(
                storage=storage, study_name=STUDY, directions=self._directions, load_if_exists=True
            )
            self._study.get_trials()

    @property
    def trials(self) -> list[FrozenTrial]:
        """The trials that have ended, by number."""
        return self._study.get_trials(deepcopy=False)

    def next_batch(self, trials: int) -> tuple[int, list[DrawnPoint]]:
        """Draws the batch in which the next trial is.

        Args:
            trials: the number of trials of the whole study; the last batch may be smaller.

        Returns:
            The number of the first trial of the batch, and the choices that have not ended.
        """
        done = self.trials
        first = len(done) // self.batch * self.batch
        drawn = _draw(self._space, done[:first], self._directions, self._seed + first, self.batch)
        return first, [trial for trial in drawn if len(done) <= trial.number < trials]

    def add(
        self, drawn: DrawnPoint, *, values: Sequence[float] | None, missing: float, attributes: Mapping[str, Any]
    ) -> None:
        """Adds a trial that has ended; trials are added in the order of their numbers.

        Args:
            drawn: the choice.
            values: its figures; None if the target was not reached, or the trial was stopped.
            missing: how far it was from the target; 0 if it was reached.
            attributes: what else is recorded.
        """
        from optuna.trial import TrialState, create_trial

        assert drawn.number == len(self.trials), "trials are added in order"
        self._study.add_trial(
            create_trial(
                state=TrialState.PRUNED if values is None else TrialState.COMPLETE,
                values=values,
                params=dict(drawn.params),
                distributions=dict(drawn.distributions),
                user_attrs=dict(attributes),
                constraints={SHORTFALL: missing},
            )
        )


def _draw(
    space: Space, done: Sequence[FrozenTrial], directions: Sequence[Direction], seed: int, count: int
) -> list[DrawnPoint]:
    """Draws choices from a copy of the study in memory."""
    import optuna

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.TPESampler(
            seed=seed,
            multivariate=True,
            group=True,
            constant_liar=True,
            n_startup_trials=len(space.usual) + RANDOM_TRIALS,
        )
    copy: optuna.Study = optuna.create_study(sampler=sampler, directions=list(directions))
    copy.add_trials(done)
    for params in space.usual[len(done) : len(done) + count]:
        copy.enqueue_trial(dict(params))
    drawn = []
    for _ in range(count):
        trial = copy.ask()
        choice = _suggested(trial, space)
        drawn.append(DrawnPoint(trial.number, choice, trial.params, trial.distributions))
    return drawn


def _suggested(trial: OptunaTrial, space: Space) -> SearchChoice:
    method = trial.suggest_categorical("method", list(space.methods))
    nodes = trial.suggest_categorical("nodes", list(space.nodes))
    alone = method in space.alone
    workers = 1 if alone else trial.suggest_categorical("workers", list(space.workers))
    batch = trial.suggest_categorical("batch_per_worker", list(space.batches))
    own = {name: _one_of(trial, f"{method}.{name}", given) for name, given in space.methods[method].items()}
    return SearchChoice(method=method, nodes=nodes, workers=workers, batch_per_worker=batch, hyperparameters=own)


def _one_of(trial: OptunaTrial, name: str, given: Range) -> Any:
    if isinstance(given, Values):
        return trial.suggest_categorical(name, list(given.values))
    if given.whole:
        return trial.suggest_int(name, int(given.low), int(given.high), log=given.log)
    return trial.suggest_float(name, given.low, given.high, log=given.log)


def at_an_end(given: Range, value: Any, share: float = 0.05) -> bool:
    """Whether a value is so close to an end of its interval that a better one may lie beyond.

    Args:
        given: the range.
        value: the value.
        share: the part of the interval at each end that counts.

    >>> interval = SearchInterval(low=0.1, high=10.0, log=True)
    >>> at_an_end(interval, 9.0), at_an_end(interval, 1.0)
    (True, False)
    """
    if not isinstance(given, SearchInterval):
        return False
    low, high, at = ((math.log(value) if given.log else value) for value in (given.low, given.high, value))
    return not low + share * (high - low) <= at <= high - share * (high - low)


@contextmanager
def only_process(folder: Path) -> Iterator[None]:
    """Holds the lock of a study; raises `InputError` if another process has it."""
    with (folder / LOCK).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"--resume: found {str(folder)!r}, which another process is continuing") from None
        yield


def _repair(journal: Path) -> None:
    """Removes what a killed process left: its lock, and the beginning of a line."""
    Path(f"{journal}.lock").unlink(missing_ok=True)
    if journal.exists():
        content = journal.read_bytes()
        if not content.endswith(b"\n"):
            os.truncate(journal, content.rfind(b"\n") + 1)  # needs no room, unlike writing it anew


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTrial:
    """A trial that has ended."""

    number: int
    choice: SearchChoice
    values: tuple[float, ...] | None
    """its figures on the tuning seeds; None if it did not reach the target"""
    reason: str
    """why it has no figures; empty if it has"""
    rows: Sequence[Row]
    bound_s: float | None


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A choice with its scenario, or the reason why it has none."""

    drawn: DrawnPoint
    scenario: Mapping[str, Any] | None
    rates: PriceRates
    bound_s: float
    reason: str = ""


def trials_of(study: PlanStudy) -> list[PlanTrial]:
    """Returns the trials of a study, by number."""
    known = []
    for trial in study.trials:
        kept: Mapping[str, Any] = trial.user_attrs
        known.append(
            PlanTrial(
                number=trial.number,
                choice=SearchChoice(**kept["choice"]),
                values=None if kept["reason"] else tuple(trial.values),
                reason=kept["reason"],
                rows=kept["rows"],
                bound_s=kept["bound_s"],
            )
        )
    return known


def search(
    request: PlanRequest, study: PlanStudy, folder: Path, *, jobs: int, progress: Report | None = None
) -> list[PlanTrial]:
    """Makes the trials that are missing; returns all of them.

    Args:
        request: the request.
        study: its study, which gets the trials.
        folder: the folder for scenarios and rows.
        jobs: number of parallel processes; the trials do not depend on it.
        progress: called when a trial has ended.
    """
    (folder / TRIALS).mkdir(exist_ok=True)
    kinds = offered_nodes(request.load())
    while len(study.trials) < request.trials:
        first, drawn = study.next_batch(request.trials)
        known = [trial.values for trial in trials_of(study)[:first] if trial.values is not None]
        prepared = [_prepared(request, trial, kinds, known) for trial in drawn]
        rows = _simulated(request, prepared, folder, jobs, _counting(progress, drawn[0].number, request.trials))
        for trial, outcome in zip(prepared, rows, strict=True):
            _record(request, study, trial, outcome, folder)
    return trials_of(study)


def _prepared(
    request: PlanRequest, drawn: DrawnPoint, kinds: Mapping[str, Any], known: Sequence[Sequence[float]]
) -> _Prepared:
    seeds = tuning_seeds(request.scenario["seed"], request.tuning_seeds)
    target: dict[str, Any] = {request.target.kind: request.target.value}
    try:
        made = scenario_of(
            request.scenario, kinds, drawn.choice, stop=target, target=target, seed=seeds[0], seeds=len(seeds)
        )
        scenario = load(made)
    except InputError as error:
        return _Prepared(
            drawn, None, PriceRates(usd_per_hour=None, watts=None), math.inf, f"cannot run: {_short(error)}"
        )
    rates = rates_of(scenario, alone=scenario.algorithms[0].alone)
    bound = bound_s(request.objectives, rates, known, request.limits)
    own = scenario.stop.seconds
    if math.isfinite(bound) and (own is None or bound < own):
        made["stop"] = {**made["stop"], "seconds": f"{bound!r} s"}
        scenario = load(made)
    return _Prepared(drawn, scenario.dump(), rates, bound)


def _simulated(
    request: PlanRequest, prepared: Sequence[_Prepared], folder: Path, jobs: int, ended: Callable[[], None]
) -> list[list[Row] | str]:
    """Returns the rows of each choice, or its error."""
    outcomes: list[list[Row] | str] = [trial.reason for trial in prepared]
    runnable = [at for at, trial in enumerate(prepared) if trial.scenario is not None]
    for _ in range(len(prepared) - len(runnable)):
        ended()
    pieces = [
        SearchPiece(scenario=scenario, target=request.target, store=folder / POINTS)
        for at in runnable
        if (scenario := prepared[at].scenario) is not None
    ]
    for position, came in each(evaluate, pieces, jobs=jobs, preload=[__name__, ENGINE]):
        outcomes[runnable[position]] = (
            f"cannot run: {_short(came.message)}" if isinstance(came, TaskFailure) else came.result
        )
        ended()
    return outcomes


def _record(request: PlanRequest, study: PlanStudy, trial: _Prepared, rows: list[Row] | str, folder: Path) -> None:
    number, target = trial.drawn.number, request.target
    values, missing, reason = None, MOST_SHORT, ""
    kept: list[Row] = []
    if isinstance(rows, str):
        reason = rows
    else:
        kept = rows
        times = [row["time_s"] for row in rows if row["time_s"] is not None]
        if len(times) == len(rows) == request.tuning_seeds:
            mean_s = fmean(times)
            values, missing = values_of(request.objectives, trial.rates, mean_s), 0.0
        else:
            missing = shortfall(target, rows[-1]["best"])
            reason = _why(rows[-1], trial.bound_s, target.words)
    if trial.scenario is not None:
        write_scenario(folder / TRIALS / f"{number:04d}.yaml", trial.scenario)
    choice = trial.drawn.choice
    study.add(
        trial.drawn,
        values=values,
        missing=missing,
        attributes={
            "choice": {name: getattr(choice, name) for name in SearchChoice.__dataclass_fields__},
            "reason": reason,
            "rows": kept,
            "bound_s": trial.bound_s if math.isfinite(trial.bound_s) else None,
            "scenario": f"{TRIALS}/{number:04d}.yaml" if trial.scenario is not None else None,
        },
    )


def _why(row: Row, bound: float, target: str) -> str:
    """Describes why a run did not reach the target."""
    if row["diverged"]:
        return "diverged"
    if row["stop_reason"] == "seconds" and row["wall_s"] >= 0.99 * bound:
        return "stopped: worse than another plan or beyond a limit"
    return f"did not reach {target} before the end of the run"


def _short(error: object) -> str:
    """Returns the first line of an error."""
    return str(error).splitlines()[0]


def _counting(progress: Report | None, done: int, trials: int) -> Callable[[], None]:
    """Returns a function that reports the end of one more trial."""
    count = done

    def ended() -> None:
        nonlocal count
        count += 1
        if progress is not None:
            progress(f"{count} of {trials} trials", count / trials)

    return ended
