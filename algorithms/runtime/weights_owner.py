"""Records updates and follows the weights being learned: the semantics of `RecordUpdate`.

One rank owns the weights being learned: the first living one of `Job.owners`. If the run can lose it, the other owners
count their own weights from the beginning, so that the next one takes over. An update of a single layer is recorded,
and changes no weights: the update of the whole vector does. `stop_rule.next_step` decides which steps begin. An
interpreter adds the time, and what it does with the weights that are evaluated.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from paceline.algorithms.core.job import Job
from paceline.algorithms.core.operations import RecordUpdate
from paceline.algorithms.core.values import Rank
from paceline.algorithms.runtime.update_log import LayerUpdate, Update, UpdateLog

S_co = TypeVar("S_co", covariant=True)


class LearnedWeights(Protocol[S_co]):
    """The weights of an owner; `records.learned.Learned` is the implementation."""

    def applied(self, op: RecordUpdate, version: int, rows: Sequence[Update], now_s: float) -> S_co | None:
        """Notes an update; returns the weights to evaluate, if an evaluation is due."""
        ...

    def show(self) -> S_co | None:
        """Returns the latest weights for an evaluation; None if they were returned before."""
        ...


L = TypeVar("L", bound=LearnedWeights[Any])


def followed(job: Job, spare: int) -> tuple[Rank, ...]:
    """Returns the ranks whose weights are those being learned, or may become so after deaths.

    Args:
        job: the run's job.
        spare: the number of workers that the run can lose.
    """
    return job.owners if spare else job.owners[:1]


class WeightsOwner(Generic[L]):
    """The updates of the ranks of a process, and the weights being learned, if one of the ranks owns them.

    Args:
        job: the run's job.
        learned: the weights of those of its ranks that are `followed`, in their order.
        record: takes the rows of an update, or of the update of a layer.
        keep: takes the weights to evaluate.
    """

    def __init__(
        self,
        job: Job,
        learned: Mapping[Rank, L],
        record: Callable[[Sequence[Update], Sequence[LayerUpdate]], object],
        keep: Callable[[Any], object],
    ) -> None:
        self.job, self._learned, self._record, self._keep = job, dict(learned), record, keep
        self.rank = next(iter(learned), job.weights_owner)
        """the owner of the weights being learned"""
        self.logs = defaultdict[Rank, UpdateLog](partial(UpdateLog, job.method.staleness_kind, job.workers))

    @property
    def learned(self) -> L:
        """The weights being learned."""
        return self._learned[self.rank]

    def applied(self, rank: Rank, op: RecordUpdate, now_s: float) -> int:
        """Records an update, or a layer's part of one; returns the version that the weights now have.

        Args:
            rank: the rank that makes it.
            op: the update.
            now_s: the present time on the clock of the run.
        """
        version, rows, layers = self.logs[rank].book(op, now_s)
        self._record(rows, layers)
        if op.layer is None:
            self.learn(rank, op, version, rows, now_s)
        return version

    def learn(self, rank: Rank, op: RecordUpdate, version: int, rows: Sequence[Update], now_s: float) -> None:
        """Notes an update of the whole vector.

        Args:
            rank: the rank that makes it.
            op: the update.
            version: the version that the weights now have.
            rows: the update's rows in the log.
            now_s: the present time on the clock of the run.
        """
        if (learned := self._learned.get(rank)) is not None:
            shot = learned.applied(op, version, rows, now_s)
            if shot is not None and rank == self.rank:
                self._keep(shot)

    def show(self) -> None:
        """Evaluates the weights at the start or the end of the run."""
        if self._learned and (shot := self.learned.show()) is not None:
            self._keep(shot)

    def lose(self, rank: Rank) -> None:
        """Continues without a dead rank: the weights of the next living owner are evaluated from now on."""
        if len(self._learned) > 1 and self._learned.pop(rank, None) is not None:
            self.rank = next(iter(self._learned))
