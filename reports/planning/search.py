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

import dataclasses
import fcntl
import math
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

from paceline.algorithms.core.checksums import reading
from paceline.algorithms.core.errors import InputError
from paceline.reports.planning.request import PlanRequest, bound_s, shortfall, values_of, write_scenario
from paceline.reports.planning.search_space import (
    ENGINE,
    Offered,
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
from paceline.scenarios import Scenario, load

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
Drawn = tuple["OptunaTrial", SearchChoice]
"""a trial of a copy of the study in memory, and its choice"""
Report = Callable[[str, float], None]
"""called with a text and the completed fraction, 0 … 1"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTrial:
    """A choice, which gets rows when it is simulated, and then figures or a reason why it has none."""

    number: int
    choice: SearchChoice
    scenario: Scenario | None = None
    """None if it cannot run; a stored trial has it in a file"""
    bound_s: float | None = None
    rows: Sequence[Row] = ()
    values: tuple[float, ...] | None = None
    """its figures on the tuning seeds; None if it did not reach the target"""
    reason: str = ""


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

    def next_batch(self, trials: int) -> tuple[int, list[Drawn]]:
        """Draws the batch in which the next trial is.

        Args:
            trials: the number of trials of the whole study; the last batch may be smaller.

        Returns:
            The number of the first trial of the batch, and the choices that have not ended.
        """
        done = self.trials
        first = len(done) // self.batch * self.batch
        drawn = _draw(self._space, done[:first], self._directions, self._seed + first, self.batch)
        return first, [(trial, choice) for trial, choice in drawn if len(done) <= trial.number < trials]

    def add(self, drawn: OptunaTrial, ended: PlanTrial, missing: float) -> None:
        """Adds a trial that has ended; trials are added in the order of their numbers.

        Args:
            drawn: the parameters that were drawn.
            ended: the trial.
            missing: how far it was from the target; 0 if it was reached.
        """
        from optuna.trial import TrialState, create_trial

        assert ended.number == len(self.trials), "trials are added in order"
        self._study.add_trial(
            create_trial(
                state=TrialState.PRUNED if ended.values is None else TrialState.COMPLETE,
                values=ended.values,
                params=drawn.params,
                distributions=drawn.distributions,
                user_attrs={
                    "choice": dataclasses.asdict(ended.choice),
                    "reason": ended.reason,
                    "rows": list(ended.rows),
                    "bound_s": ended.bound_s,
                    "scenario": None if ended.scenario is None else f"{TRIALS}/{ended.number:04d}.yaml",
                },
                constraints={SHORTFALL: missing},
            )
        )


def _draw(
    space: Space, done: Sequence[FrozenTrial], directions: Sequence[Direction], seed: int, count: int
) -> list[Drawn]:
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
    return [(trial, _suggested(trial, space)) for trial in (copy.ask() for _ in range(count))]


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


def trials_of(study: PlanStudy) -> list[PlanTrial]:
    """Returns the trials of a study, by number."""
    return [
        PlanTrial(
            number=trial.number,
            choice=SearchChoice(**trial.user_attrs["choice"]),
            values=None if trial.user_attrs["reason"] else tuple(trial.values),
            **{name: trial.user_attrs[name] for name in ("reason", "rows", "bound_s")},
        )
        for trial in study.trials
    ]


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
    while (done := len(study.trials)) < request.trials:
        first, batch = study.next_batch(request.trials)
        known = [trial.values for trial in trials_of(study)[:first] if trial.values is not None]
        trials = [_prepared(request, drawn.number, choice, kinds, known) for drawn, choice in batch]
        scenarios = [trial.scenario for trial in trials if trial.scenario is not None]
        outcomes = simulated(
            request,
            scenarios,
            folder,
            jobs,
            counting(progress, request.trials, "trials", done + len(trials) - len(scenarios)),
        )
        for (drawn, _), trial in zip(batch, trials, strict=True):
            ended = trial if trial.scenario is None else _ended(request, trial, trial.scenario, outcomes.pop(0))
            if ended.scenario is not None:
                write_scenario(folder / TRIALS / f"{trial.number:04d}.yaml", ended.scenario.dump())
            best = ended.rows[-1]["best"] if ended.rows else None
            study.add(drawn, ended, 0.0 if ended.values is not None else shortfall(request.target, best))
    return trials_of(study)


def _prepared(
    request: PlanRequest,
    number: int,
    choice: SearchChoice,
    kinds: Mapping[str, Offered],
    known: Sequence[Sequence[float]],
) -> PlanTrial:
    """Returns a trial with its scenario and its bound, or the reason why it cannot run."""
    seeds = tuning_seeds(request.scenario["seed"], request.tuning_seeds)
    try:
        scenario = load(made := scenario_of(request.scenario, kinds, choice, request.target, seeds))
    except InputError as error:
        return PlanTrial(number=number, choice=choice, reason=f"cannot run: {_short(error)}")
    bound = bound_s(request.objectives, rates_of_run(scenario), known, request.limits)
    if not math.isfinite(bound):
        return PlanTrial(number=number, choice=choice, scenario=scenario)
    if scenario.stop.seconds is None or bound < scenario.stop.seconds:
        made["stop"] = {**made["stop"], "seconds": f"{bound!r} s"}
        scenario = load(made)
    return PlanTrial(number=number, choice=choice, scenario=scenario, bound_s=bound)


def simulated(
    request: PlanRequest,
    scenarios: Sequence[Scenario],
    folder: Path,
    jobs: int,
    ended: Callable[[], None],
    *,
    all_seeds: bool = False,
) -> list[list[Row] | TaskFailure]:
    """Simulates scenarios in parallel; returns the rows of each, or its error.

    Args:
        request: the request.
        scenarios: the scenarios, each with the seeds to simulate.
        folder: the folder of the study, which keeps the rows.
        jobs: number of parallel processes.
        ended: called when a scenario has been simulated.
        all_seeds: whether later seeds are simulated even if one misses the target.
    """
    pieces = [
        SearchPiece(scenario=scenario.dump(), target=request.target, store=folder / POINTS, all_seeds=all_seeds)
        for scenario in scenarios
    ]
    outcomes: dict[int, list[Row] | TaskFailure] = {}
    for position, came in each(evaluate, pieces, jobs=jobs, preload=[__name__, ENGINE]):
        outcomes[position] = came if isinstance(came, TaskFailure) else came.result
        ended()
    return [outcomes[position] for position in range(len(pieces))]


def _ended(request: PlanRequest, trial: PlanTrial, scenario: Scenario, outcome: list[Row] | TaskFailure) -> PlanTrial:
    """Returns a trial with its rows, and with its figures or the reason why it has none."""
    if isinstance(outcome, TaskFailure):
        return replace(trial, reason=f"cannot run: {_short(outcome.message)}")
    times = [row["time_s"] for row in outcome if row["time_s"] is not None]
    if len(times) == len(outcome) == request.tuning_seeds:
        return replace(trial, rows=outcome, values=values_of(request.objectives, rates_of_run(scenario), fmean(times)))
    return replace(trial, rows=outcome, reason=_why(outcome[-1], trial.bound_s or math.inf, request.target.words))


def rates_of_run(scenario: Scenario) -> PriceRates:
    """Returns the price and the power of the nodes that the only algorithm of a scenario uses."""
    return rates_of(scenario, alone=scenario.algorithms[0].alone)


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


def counting(progress: Report | None, total: int, what: str, done: int = 0) -> Callable[[], None]:
    """Returns a function that reports the end of one more of them.

    Args:
        progress: the callback; None: nothing is reported.
        total: number of all.
        what: what they are.
        done: number of those that have ended.
    """
    numbers = count(done + 1)

    def ended() -> None:
        number = next(numbers)
        if progress is not None:
            progress(f"{number} of {total} {what}", number / total)

    return ended
