"""Records updates and follows the weights being learned: the semantics of `RecordUpdate`.

One rank owns the weights being learned: the first living one of `Job.owners`. If the run can lose it, the other owners
count their own weights from the beginning, so that the next one takes over. An update of a single layer is recorded,
and changes no weights: the update of the whole vector does. `stop_rule.next_step` decides which steps begin. An
interpreter adds the time, and what it does with the weights that are evaluated.

Converts `RecordUpdate` to table rows and measures staleness from the versions of weights and gradients.

With several servers, each makes the updates of its shard of the weights, and counts their versions. Version k of the
whole weights consists of the shards after k updates each, and is learned when the last shard gets there. The rows of
updates are those of the first server; the rows of layers have those of every server, with the layers of its shard.

An update and the update of a single layer within it are recorded separately, so that no gradient is counted twice. Rows
are tuples because there are many, and tuples are the fastest to create and to write to disk. The age of a gradient in
seconds is not recorded: `records.tables` computes it from the spans.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from paceline.algorithms.core.fast_values import replace
from paceline.algorithms.core.job import Job
from paceline.algorithms.core.method import StalenessKind
from paceline.algorithms.core.operations import RecordUpdate
from paceline.algorithms.core.values import Rank, Weights, join


class Update(NamedTuple):
    """One input of one update: a row of ``updates.parquet``. `rank` and `step` are those of its computation."""

    time_s: float
    rank: Rank
    step: int
    version_read: int
    version_applied: int
    staleness: int
    samples: int


class LayerUpdate(NamedTuple):
    """One input of the update of one layer, in a method that applies layers separately: a row of ``layers.parquet``.

    With several servers, it is one input of the update of the layers of one of them, which count their own versions.
    """

    time_s: float
    rank: Rank
    step: int
    layer: str
    version_read: int
    version_applied: int
    staleness: int


class Booked(NamedTuple):
    """The result of one `RecordUpdate`."""

    version: int
    """the new version of the weights"""
    updates: list[Update]
    """one row for each input; none for the update of a single layer"""
    layers: list[LayerUpdate]
    """one row for each input of the update of a single layer"""


class UpdateLog:
    """One rank's log of updates: the semantics of `RecordUpdate`.

    Args:
        staleness_kind: the definition of staleness.
        workers: number of workers of the run. With one worker, every local step is also an average of all workers.
    """

    __slots__ = ("age", "staleness_kind", "workers")

    def __init__(self, staleness_kind: StalenessKind, workers: int) -> None:
        self.staleness_kind, self.workers = staleness_kind, workers
        self.age = 0
        """local steps since the version last advanced; 0 with one worker"""

    def book(self, op: RecordUpdate, time_s: float) -> Booked:
        """Records an update, or the update of one layer within it.

        Args:
            op: the operation.
            time_s: time on the clock of the run, in seconds.

        >>> from paceline.algorithms.core.values import Contribution, Weights
        >>> log = UpdateLog(StalenessKind.VERSION_LAG, workers=3)
        >>> gradient = Contribution(Rank(2), 3, version=5, samples=32)
        >>> version, (row,), _ = log.book(RecordUpdate(Weights(None, version=7), [gradient]), time_s=1.0)
        >>> version, row.staleness
        (8, 2)
        >>> version, _, (row,) = log.book(RecordUpdate(Weights(None, version=7), [gradient], layer="fc"), time_s=1.0)
        >>> version, row.layer, row.staleness
        (7, 'fc', 2)
        """
        held, layer = op.weights.version, op.layer
        if layer is not None:
            landed = [LayerUpdate(time_s, c.rank, c.step, layer, c.version, held, held - c.version) for c in op.inputs]
            return Booked(held, [], landed)
        age = self.age if self.staleness_kind is StalenessKind.LOCAL_AGE else None
        rows = [
            Update(time_s, c.rank, c.step, c.version, held, held - c.version if age is None else age, c.samples)
            for c in op.inputs
        ]
        self.age = 0 if op.advance or self.workers == 1 else self.age + 1
        return Booked(held + 1 if op.advance else held, rows, [])


S_co = TypeVar("S_co", covariant=True)


P = TypeVar("P")


class WholeVersions(Generic[P]):
    """Combines what belongs to the same version of all shards of the weights.

    Args:
        servers: the ranks that hold the shards, in order.

    >>> whole = WholeVersions((Rank(2), Rank(3)))
    >>> whole.add(Rank(2), 1, "a1"), whole.add(Rank(2), 2, "a2"), whole.add(Rank(3), 1, "b1")
    (None, None, ['a1', 'b1'])
    """

    def __init__(self, servers: Sequence[Rank]) -> None:
        self._servers, self._parts = servers, defaultdict[int, dict[Rank, P]](dict)

    def add(self, server: Rank, version: int, part: P) -> list[P] | None:
        """Adds a server's part of a version; returns all parts if this is the last one, otherwise None."""
        parts = self._parts[version]
        parts[server] = part
        if len(parts) < len(self._servers):
            return None
        del self._parts[version]
        return [parts[rank] for rank in self._servers]


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
    return job.owners if spare and not job.method.has_server else job.owners[:1]


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
        """the owner of the weights being learned; with several servers, the first one stands for the whole weights"""
        self._whole = WholeVersions[tuple[RecordUpdate, Sequence[Update]]](job.owners)
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
        if (shard := self.job.team[rank].shard) is not None:
            name = shard.range_name
            layers = [LayerUpdate(r.time_s, r.rank, r.step, name, *r[3:6]) for r in rows]
            self._record(rows if rank == self.job.weights_owner else [], layers)
            self.learn_shard(rank, op, version, rows, now_s)
            return version
        self._record(rows, layers)
        if op.layer is None:
            self.learn(rank, op, version, rows, now_s)
        return version

    def learn_shard(self, rank: Rank, op: RecordUpdate, version: int, rows: Sequence[Update], now_s: float) -> None:
        """Notes the update of one of several servers; arguments as for `learn`."""
        if (parts := self._whole.add(rank, version, (op, rows))) is not None:
            vector = join([of_shard.weights.vector for of_shard, _ in parts])
            first, rows_of_first = parts[0]
            whole = replace(first, weights=Weights(vector, version - 1))
            self.learn(self.rank, whole, version, rows_of_first, now_s)

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
