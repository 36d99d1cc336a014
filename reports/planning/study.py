"""The Optuna study of a plan: a journal file; after a kill, the study continues as if nothing had happened.

* Choices are drawn in batches of a fixed size. The sampler of a batch is new and has a seed of its own, so what it
  draws depends only on the trials of the earlier batches: not on the number of processes, their speed, or kills.
* The journal holds only trials that have ended, in the order of their numbers. A batch is drawn in memory, in a copy of
  the study. After a kill, the batch that was being evaluated is drawn again, with the same choices.
* Only one process may write a study at a time.
"""

from __future__ import annotations

import fcntl
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from paceline.algorithms.core.checksums import reading
from paceline.algorithms.core.errors import InputError
from paceline.reports.planning.search_space import Choice, Interval, Range, Space, Values

if TYPE_CHECKING:
    import optuna
    from optuna.trial import FrozenTrial, Trial

Direction = Literal["minimize", "maximize"]
JOURNAL, LOCK = "study.log", "study.lock"
STUDY = "plan"
"""the name of the study in the journal"""
RANDOM_TRIALS = 10
"""trials that are drawn at random, after the usual ones; provenance: default of Optuna's TPESampler"""
SHORTFALL = "shortfall"
"""the name of the constraint of a trial that does not reach the target"""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A choice that was drawn, with the number of its trial."""

    number: int
    choice: Choice
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
        return first, [one for one in drawn if len(done) <= one.number < trials]

    def add(
        self, drawn: Drawn, *, values: Sequence[float] | None, shortfall: float, attributes: Mapping[str, Any]
    ) -> None:
        """Adds a trial that has ended; trials are added in the order of their numbers.

        Args:
            drawn: the choice.
            values: its figures; None if the target was not reached, or the trial was stopped.
            shortfall: how far it was from the target; 0 if it was reached.
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
                constraints={SHORTFALL: shortfall},
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
    drawn = []
    for _ in range(count):
        trial = copy.ask()
        choice = _suggested(trial, space)
        drawn.append(Drawn(trial.number, choice, trial.params, trial.distributions))
    return drawn


def _suggested(trial: Trial, space: Space) -> Choice:
    method = trial.suggest_categorical("method", list(space.methods))
    nodes = trial.suggest_categorical("nodes", list(space.nodes))
    alone = method in space.alone
    workers = 1 if alone else trial.suggest_categorical("workers", list(space.workers))
    batch = trial.suggest_categorical("batch_per_worker", list(space.batches))
    own = {name: _one_of(trial, f"{method}.{name}", given) for name, given in space.methods[method].items()}
    return Choice(method=method, nodes=nodes, workers=workers, batch_per_worker=batch, hyperparameters=own)


def _one_of(trial: Trial, name: str, given: Range) -> Any:
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

    >>> at_an_end(Interval(low=0.1, high=10.0, log=True), 9.0), at_an_end(Interval(low=0.1, high=10.0, log=True), 1.0)
    (True, False)
    """
    if not isinstance(given, Interval):
        return False
    import math

    low, high, at = ((math.log(one) if given.log else one) for one in (given.low, given.high, value))
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
