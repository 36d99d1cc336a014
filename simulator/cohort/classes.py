"""Classes of ranks, each of which runs one program for all its ranks, the tasks of a class, and what they report."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator, Hashable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.algorithms.core.method import RankContext
from paceline.algorithms.core.program import Branches, Lane
from paceline.algorithms.core.values import Group, Rank
from paceline.algorithms.runtime.handles import HandleTable, Promise
from paceline.algorithms.runtime.weights_owner import LayerUpdate, Update, UpdateLog
from paceline.records.recorder import Recorder
from paceline.simulator.cohort.values import (
    Diverges,
    NotACohort,
    Places,
    Ranks,
    Times,
    Varying,
    of_ranks,
    ranks_of,
    vary,
)
from paceline.simulator.kernel.timing import ManyAtOnce, Timing

Steps = Generator[Promise, None, Any]
"""the part of a task that performs one operation; it yields promises that have not settled"""


@dataclass(eq=False, slots=True)
class TimedPromise(Promise):
    """The outcome of something that a class has started."""

    what: Callable[[], str] = lambda: "what the ranks of a class have started"
    ends_s: Times | None = None
    """when it ended at each rank; None before it has settled"""
    waiter: object = None
    """the task that has waited for it last"""
    limits_s: tuple[float, float] = (math.inf, math.inf)
    """its first and its last end at all ranks"""

    def end_at(self, ends_s: Times, answer: Any = None) -> None:
        """Settles it.

        Args:
            ends_s: when it ended at each rank.
            answer: its answer.
        """
        self.ends_s, self.limits_s = ends_s, (float(ends_s.min()), float(ends_s.max()))
        self.end(answer)


class LaneNames:
    """The lanes in use at the ranks of a class.

    Which number is free depends on when operations end, so names may differ between the ranks.
    """

    def __init__(self) -> None:
        self._users: list[list[tuple[TimedPromise, NDArray[np.bool_], Times]]] = []
        """what uses each number, at which ranks, and since when"""

    def take(self, now_s: Times, promise: TimedPromise, starter: object) -> Any:
        """Returns the name of a new lane: a text, or an array of numbers if it differs between ranks.

        Args:
            now_s: the time at each rank.
            promise: ends when the lane is not used any more.
            starter: the task that begins something in it.
        """
        names = np.zeros(len(now_s), dtype=np.int64)
        for number in count():
            if number == len(self._users):
                self._users.append([])
            free = (names == 0) & ~self._used(number, now_s, starter)
            if free.any():
                self._users[number].append((promise, free, now_s))
                names[free] = number + 1
                if names.all():
                    break
        return str(names[0]) if (names == names[0]).all() else names

    def _used(self, number: int, now_s: Times, starter: object) -> NDArray[np.bool_]:
        """Returns at which ranks a number is in use; forgets what has ended at all ranks."""
        used, kept, first_s, last_s = np.zeros(len(now_s), dtype=bool), [], now_s.min(), now_s.max()
        for user in self._users[number]:
            promise, here, begun_s = user
            earliest_s, latest_s = promise.limits_s
            if latest_s < first_s:
                continue
            if promise.ends_s is not None and earliest_s <= last_s:
                same = here & (promise.ends_s == now_s)
                here = here & (promise.ends_s > now_s)
                if promise.waiter is not starter and same.any():  # else it has given its lane back
                    if promise.waiter is not None or (same & (begun_s < now_s)).any():
                        raise NotACohort("an operation begins at the instant at which another one of its rank ends")
                    here |= same
            if here.all():
                return here
            if here.any():
                kept.append(user)
                used |= here
        self._users[number] = kept
        return used


class OwnWork:
    """The seconds of the work of a class.

    Args:
        timing: the seconds of each rank's work.
        ranks: the ranks of the class.
    """

    def __init__(self, timing: Timing, ranks: Places) -> None:
        self._timing, self._ranks = timing, [Rank(rank) for rank in ranks.tolist()]
        self._many = timing.many(ranks.tolist()) if isinstance(timing, ManyAtOnce) else None
        self._known: dict[tuple[Hashable, ...], Times] = {}

    def each(self, of: Callable[..., float], *about: Any) -> Times:
        """Returns the seconds of something at each rank; equal questions are asked once.

        Args:
            of: returns the seconds of a rank, given the rank and what it is about.
            about: what it is about; a `Varying` if it differs between ranks.
        """
        key = of, *[value.values.tobytes() if isinstance(value, Varying) else value for value in about]
        if key not in self._known:
            columns = [value.values.tolist() if isinstance(value, Varying) else repeat(value) for value in about]
            self._known[key] = np.fromiter(map(of, self._ranks, *columns), np.float64, len(self._ranks))
        return self._known[key]

    def compute_s(self, step: int, samples: Any, pauses_s: Times, starts_s: Times, *, started: bool = False) -> Times:
        """Returns the seconds of a gradient.

        Args:
            step: the step.
            samples: its samples; a `Varying` if they differ.
            pauses_s: the seconds since each rank's previous gradient.
            starts_s: when it begins at each rank.
            started: whether the program has started it, and does not wait for it at once.
        """
        if self._many is not None:
            work_s = self._many.compute_s(step, samples.values if isinstance(samples, Varying) else samples, starts_s)
        else:
            timing, counts = self._timing, of_ranks(samples, len(self._ranks)).tolist()
            work_s = np.array(
                [
                    timing.compute_s(rank, step, count, start_s) + timing.paused_s(count, pause_s)
                    for rank, count, pause_s, start_s in zip(
                        self._ranks, counts, pauses_s.tolist(), starts_s.tolist(), strict=True
                    )
                ],
                dtype=np.float64,
            )
        return work_s * self.each(self._started_factor, samples) if started else work_s

    def _started_factor(self, _: Rank, samples: int) -> float:
        return self._timing.started_factor(samples)


class OneOfClass(Varying):
    """The rank in the handles of a class, which may be a key, because each rank has a table of its own."""

    __slots__ = ()

    def __hash__(self) -> int:  # type: ignore[override]  # of other numbers it raises `Diverges`
        return 0


@dataclass(eq=False)
class RankClass:
    """The ranks of a class, and what all their tasks share.

    Args:
        number: of the class.
        ranks: the ranks in ascending order.
        me: the context of all of them.
        work: the seconds of their work.
        log: their updates; the versions are equal at all ranks.
        handles: what their programs have started.
    """

    number: int
    ranks: Places
    me: RankContext
    work: OwnWork
    log: UpdateLog
    handles: HandleTable[TimedPromise]
    branches: Branches = field(default_factory=Branches)
    names: LaneNames = field(default_factory=LaneNames)
    device: TimedPromise | None = None
    """the last gradient, after which the next one begins"""
    requested_s: Times | None = None
    """when the last gradient was requested"""
    ended_s: Times | None = None
    """when each rank's last gradient ended"""
    advanced_s: Times | None = None
    """when the last update was recorded"""

    @property
    def count(self) -> int:
        return len(self.ranks)

    @property
    def first(self) -> Rank:
        """Returns a rank that stands for all of them."""
        return Rank(int(self.ranks[0]))


@dataclass(eq=False, slots=True)
class CohortTask:
    """One concurrent activity of a class: a program or a single operation."""

    own: RankClass
    name: Any
    """its lane in the record: a text, or an array of numbers if it differs between ranks"""
    promise: TimedPromise
    now_s: Times
    """the time at each rank"""
    lane: Lane | None = None
    """drives its program; None for a single operation"""
    line: str = ""
    """its name by `Branches`"""
    stream: str = ""
    """the program in whose order its collectives are counted"""
    step: int = 0
    """the step of the program; for what it started, the step at the start"""

    def pass_s(self, seconds: Times) -> None:
        """Lets time pass."""
        self.now_s = self.now_s + seconds

    def wait(self, promise: TimedPromise) -> Steps:
        """Waits until something has ended, and returns its answer."""
        promise.waiter = self
        if not promise.settled:
            yield promise
        self.now_s = np.maximum(self.now_s, promise.ends_s)  # type: ignore[arg-type]  # it has settled
        return promise.result()


def divided(classes: Sequence[Places], diverges: Diverges) -> list[Places]:
    """Returns the classes with one of them divided.

    Args:
        classes: the ranks of each class.
        diverges: the class to divide, and the part of each of its ranks.

    >>> [ranks.tolist() for ranks in divided([np.arange(4)], Diverges(np.array([True, False, True, False]), 0))]
    [[0, 2], [1, 3]]
    """
    assert diverges.of is not None, "the task that ran knows its class"
    before, after = classes[: diverges.of], classes[diverges.of + 1 :]
    own = classes[diverges.of]
    return [*before, own[diverges.mask], own[~diverges.mask], *after]


class Contexts:
    """Creates the contexts of classes of ranks.

    Args:
        team: the contexts of all ranks.
    """

    def __init__(self, team: Sequence[RankContext]) -> None:
        self._team = team
        self._like = {me.role: self._common(me) for me in {me.role: me for me in reversed(team)}.values()}

    def _common(self, me: RankContext) -> RankContext:
        """Returns a context whose groups of all ranks of a role can be searched for a `Varying`."""
        workers, leaders, world = (Group(Ranks(group.ranks)) for group in (me.workers, me.leaders, me.world))
        return replace(me, workers=workers, leaders=leaders, world=world, batches=Ranks(me.batches))

    def roles(self) -> list[Places]:
        """Returns the ranks of each role: the classes with which a run begins."""
        roles = np.array([me.role for me in self._team])
        return [np.flatnonzero(roles == role) for role in self._like][::-1]

    def of(self, ranks: Places) -> RankContext:
        """Returns the context of a class of ranks of one role."""
        members = [self._team[rank] for rank in ranks.tolist()]
        nodes: dict[Group, int] = {}
        node_of = np.array([nodes.setdefault(me.node, len(nodes)) for me in members])
        node: Any = Group(ranks_of([tuple(node.ranks) for node in nodes], node_of))
        before = vary(np.array([me.before for me in members]))
        return replace(self._like[members[0].role], rank=vary(ranks), node=node, before=before)


class ClassRecorder:
    """Reports the gradients and updates of classes of ranks to the recorder of the run.

    The recorder takes the k-th gradients of all workers at once, and the updates that use them afterwards. With several
    classes of ranks, the gradients and updates of a class wait here until the other classes have come as far.

    Args:
        recorder: writes the record of the run.
        classes: all classes of ranks.
        workers: the number of workers.
    """

    def __init__(self, recorder: Recorder, classes: Sequence[RankClass], workers: int) -> None:
        self._recorder, self._workers = recorder, workers
        self._waiting: list[deque[tuple[Any, ...]]] = [deque() for _ in classes]
        """gradients (three values) and updates of each class that have not been reported"""
        self._computing = [own for own in classes if own.me.role == "worker"]

    def gradient(self, own: RankClass, step: int, starts_s: Times, ends_s: Times) -> None:
        """Notes a gradient of every rank of a class.

        Args:
            own: the class.
            step: its step.
            starts_s: the start of its first span.
            ends_s: the end of its last span.
        """
        if own.me.role == "worker":
            self._waiting[own.number].append((step, starts_s, ends_s))
            self._report()

    def update(self, own: RankClass, rows: Sequence[Update], layers: Sequence[LayerUpdate]) -> None:
        """Records an update, or the update of a layer.

        Args:
            own: the class.
            rows: a row for each input, whose values may differ between ranks.
            layers: as `rows`, for the update of a layer.
        """
        self._waiting[own.number].extend(tuple(of_ranks(value, own.count) for value in row) for row in rows)
        self._report()
        for row in layers:
            columns = [of_ranks(value, own.count).tolist() for value in row]
            self._recorder.update((), list(map(LayerUpdate._make, zip(*columns, strict=True))))

    def close(self) -> None:
        """Ends the reports; raises `NotACohort` if some workers have computed more gradients than others."""
        if any(self._waiting):
            raise NotACohort("its workers do not compute the same number of gradients")

    def _report(self) -> None:
        """Reports what all classes have: each class's updates, then the next gradient of all."""
        while True:
            for waiting in self._waiting:
                while waiting and len(waiting[0]) > 3:
                    self._recorder.updates(*waiting.popleft())
            if not all(self._waiting[own.number] for own in self._computing):
                return
            step, starts_s, ends_s = 0, np.empty(self._workers), np.empty(self._workers)
            for own in self._computing:
                step, starts_s[own.ranks], ends_s[own.ranks] = self._waiting[own.number].popleft()
            self._recorder.gradients(step, starts_s, ends_s)
