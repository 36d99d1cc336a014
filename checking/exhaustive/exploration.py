"""Explores every inequivalent order of a small job exactly once.

Programs are generators and cannot be copied, so each order is a run from the beginning: a run repeats the events of a
prefix of the last one, makes one event that was not made there, and goes on with any events. After each run, `races`
finds the continuations that it shows to be possible, and the wakeup trees keep those that lead to new orders.

How many sequences of events a job has without reduction is counted, too. Every sequence is an order of exactly one
partial order of events, so the number is the sum, over the inequivalent orders, of the number of linear extensions of
each. `brute_force` makes all runs instead, for comparison.

Source: Abdulla, Aronis, Jonsson, Sagonas, "Optimal Dynamic Partial Order Reduction", POPL 2014, algorithm 2. The
difference: events are not those of processes but of lanes with a choice, because a receive can take messages of several
sources, as in Enea, Giannakopoulou, Kokologiannakis, Majumdar, "Model Checking Distributed Protocols in Must", OOPSLA
2024.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import NamedTuple

from paceline.algorithms.core.errors import DeadlockError, ProgramError
from paceline.algorithms.core.job import Job
from paceline.checking.driver import LoggedMove
from paceline.checking.exhaustive.events import (
    Key,
    LaneEvent,
    LaneId,
    Marks,
    Objects,
    Options,
    RunWithEvents,
    Unrepeated,
    put_in_order,
)
from paceline.checking.exhaustive.races import PLENTY, Branch, Races, Reversal, insert, without
from paceline.records.trace import Trace

Visit = Callable[[Trace, Sequence[LoggedMove]], None]
Failed = Callable[[Exception, Sequence[LoggedMove]], None]


@dataclass(frozen=True, kw_only=True)
class Orders:
    """The result of an exploration."""

    explored: int
    """inequivalent orders"""
    blocked: int
    """runs that were cut off because all of their orders were known; 0 if the exploration was optimal"""
    without_reduction: int | None
    """all sequences of events of the orders whose sequences were counted; None if there is no such order"""
    counted: int
    """orders whose sequences were counted: if fewer than `explored`, `without_reduction` is a lower bound"""
    seconds: float
    complete: bool
    """whether these are all orders"""


class Sleeper(NamedTuple):
    """An event whose orders have been explored, after some prefix."""

    before: Marks
    """its marks as far as they are known before its answer"""
    marks: Marks
    grant: bool


@dataclass(slots=True, eq=False)
class Prefix:
    """A prefix of the present run, and the event that follows it."""

    options: Options
    sleep: dict[Key, Sleeper]
    tree: list[Branch]
    """the events that follow in the present run and in later ones"""

    @property
    def key(self) -> Key:
        return self.tree[0].key


class Blocked(Exception):
    """All orders that begin like this run are known."""


def explore(
    job: Job,
    *,
    visit: Visit,
    failed: Failed | None = None,
    most: int | None = None,
    seconds: float | None = None,
    count_sets: int = 0,
) -> Orders:
    """Runs a job in every inequivalent order, each one once.

    Args:
        job: the job; its budget is in samples.
        visit: receives the trace and the log of each run.
        failed: receives the exception of each run that fails, and its log; None: the first exception is raised.
        most: the exploration ends after this many runs; None: after all.
        seconds: the exploration ends after this time; None: after all runs.
        count_sets: sets of events that are examined to count the sequences of events of these orders, see
            `sequences_of`; a set takes some microseconds, which are not part of `seconds`. 0: nothing is counted.

    Raises:
        DeadlockError: in some order no rank can proceed, and `failed` is None.
        ProgramError: in some order a program makes a mistake, and `failed` is None; or a program did not repeat its
            operations.

    >>> from paceline.algorithms import find
    >>> from paceline.algorithms.core.job import Budget
    >>> from paceline.algorithms.core.values import Rank
    >>> from paceline.checking.small_runs import Slopes
    >>> job = Job.of(find("async-sgd")(), [[Rank(0)], [Rank(1)]], Slopes(), batch=4, budget=Budget(samples=8))
    >>> first_updates = set()
    >>> orders = explore(job, visit=lambda trace, log: first_updates.add(int(trace.updates[0].rank)))
    >>> orders.explored, orders.blocked, orders.complete, first_updates
    (8, 0, True, {0, 1})
    """
    exploration = Exploration(job, visit, failed, count_sets)
    begun_s = monotonic()
    while exploration.is_open:
        late = seconds is not None and monotonic() - begun_s - exploration.counting_s >= seconds
        if late or (most is not None and exploration.explored + exploration.blocked >= most):
            break
        exploration.next_run()
    return Orders(
        explored=exploration.explored,
        blocked=exploration.blocked,
        without_reduction=exploration.sequences if exploration.counted else None,
        counted=exploration.counted,
        seconds=monotonic() - begun_s - exploration.counting_s,
        complete=not exploration.is_open and exploration.complete,
    )


@dataclass(slots=True, eq=False)
class Exploration:
    """The state of an exploration between two runs."""

    job: Job
    visit: Visit
    failed: Failed | None
    count_sets: int
    """that may still be examined"""
    is_open: bool = True
    complete: bool = True
    """whether no run was cut short or ambiguous so far"""
    explored: int = 0
    blocked: int = 0
    sequences: int = 0
    counted: int = 0
    counting_s: float = 0.0
    _objects: Objects = field(default_factory=Objects)
    _nodes: list[Prefix] = field(default_factory=list)
    _events: list[LaneEvent] = field(default_factory=list)
    """of the last run"""

    def next_run(self) -> None:
        """Makes one run and plans the following ones."""
        start = max(0, len(self._nodes) - 1)
        run = RunWithEvents(self.job, self._objects)

        def pick(options: Options) -> Key:
            if len(run.events) == len(self._nodes):
                self._nodes.append(self._node(run, options))
            key = self._nodes[len(run.events)].key
            if key not in options:
                raise Blocked
            return key

        blocked = False
        try:
            trace = run.perform(pick, [node.key for node in self._nodes[:start]])
        except Blocked:
            blocked = True
        except Unrepeated:
            raise _unrepeated(run) from None
        except Exception as error:
            self._fail(error, run)
        else:
            self.visit(trace, run.log)
        self._plan(run, start)
        if blocked:
            self.blocked += 1
        else:
            self.explored += 1
            self._count()

    def _fail(self, error: Exception, run: RunWithEvents) -> None:
        if self.failed is None:
            raise error
        self.complete = self.complete and isinstance(error, DeadlockError)  # others end the run before all events
        self.failed(error, run.log)

    def _node(self, run: RunWithEvents, options: Options) -> Prefix:
        """Returns the node of a prefix that is new."""
        sleep, tree = dict[Key, Sleeper](), list[Branch]()
        if self._nodes:
            parent, event = self._nodes[-1], run.events[-1]
            tree = parent.tree[0].following
            sleep = {
                key: option
                for key, option in parent.sleep.items()
                if key in options and options[key].marks == option.before and not option.marks.conflicts(event.marks)
            }
        if not tree:
            awake = next((key for key in options if key not in sleep), None)
            if awake is None:
                raise Blocked
            tree = [Branch(awake, options[awake].marks, options[awake].grant)]
        return Prefix(options, sleep, tree)

    def _plan(self, run: RunWithEvents, start: int) -> None:
        """Adds the reversals of a run to the wakeup trees, and moves to the next prefix."""
        for old, new in zip(self._events[:start], run.events, strict=False):
            if (type(old.request.op), old.marks, old.took) != (type(new.request.op), new.marks, new.took):
                raise _unrepeated(run)
            new.before = old.before
        put_in_order(run.events, start)
        for node, event in zip(self._nodes[start:], run.events[start:], strict=False):
            node.tree[0].marks = event.marks  # the answer may have settled a handle
        self._events = run.events
        self.complete = self.complete and not run.ambiguous
        for reversal in Races(run, start).all():
            self._add(reversal)
        self._go_back()

    def _count(self) -> None:
        """Counts the sequences of the last order, unless enough sets have been examined or there are too many."""
        begun_s = monotonic()
        if self.count_sets > 0:
            number, examined = sequences_of(self._events)
            self.count_sets -= examined
            self.sequences += number or 0
            self.counted += number is not None
        self.counting_s += monotonic() - begun_s

    def _add(self, reversal: Reversal) -> None:
        """Adds a continuation to the wakeup trees, unless its orders are known.

        It follows the present run as far as its events are weak initials of the sequence. Sleeping events count in each
        of these nodes, not in the first one only: events of a planned sequence are removed from the tree when they have
        been explored, so only the sleep set of their node still says that the orders that begin with them are known.
        """
        at, sequence = reversal.at, reversal.sequence
        spare = PLENTY
        if self.job.method.independent:
            taken = sum(event.grant for event in self._events[:at])
            spare = (self.job.limit or 0) - taken - sum(item.grant for item in sequence)
        while True:
            node = self._nodes[at]
            for key, option in node.sleep.items():
                if without(key, option.marks, option.grant, sequence, spare) is not None:
                    return
            current = node.tree[0]
            rest = without(current.key, current.marks, current.grant, sequence, spare)
            at += 1
            if rest is None or at == len(self._nodes) or self._nodes[at].tree is not current.following:
                insert(node.tree, sequence, spare)
                return
            if current.grant and len(rest) == len(sequence):
                spare -= 1
            sequence = rest

    def _go_back(self) -> None:
        """Leaves the explored branches: the next run follows the deepest tree that has another branch."""
        while self._nodes:
            node = self._nodes[-1]
            if len(self._nodes) <= len(self._events):  # else the run was cut off before this event
                event = self._events[len(self._nodes) - 1]
                node.sleep[node.key] = Sleeper(node.options[node.key].marks, event.marks, event.grant)
            del node.tree[0]
            if node.tree:
                return
            self._nodes.pop()
        self.is_open = False


def _unrepeated(run: RunWithEvents) -> ProgramError:
    last = run.log[-1].move if run.log else "the beginning"
    return ProgramError(
        f"up to {last}, the programs did not repeat the operations of an earlier run with the same answers; "
        "they must not read clocks, draw unseeded random numbers, or keep anything from one run to the next"
    )


MOST_SETS = 100_000
"""limit of memory: sets of events that can come first, of one size"""


def sequences_of(events: Sequence[LaneEvent], most_sets: int = MOST_SETS) -> tuple[int | None, int]:
    """Returns the number of sequences of these events that are equivalent: the linear extensions of `before`.

    It counts, for each set of n events that can come first, the number of their sequences, from n = 0 upwards.

    Args:
        events: the events of a run, with `before`.
        most_sets: the largest number of such sets.

    Returns:
        The number, None if there are more sets of one size; and the number of sets that were examined.
    """
    lanes: dict[LaneId, list[int]] = {}
    for index, event in enumerate(events):
        lanes.setdefault(event.key.lane, []).append(index)
    each = list(lanes.values())
    counts, examined = {0: ((0,) * len(each), 1)}, 0
    for _ in events:
        examined += len(counts)
        following: dict[int, tuple[tuple[int, ...], int]] = {}
        for done, (at, ways) in counts.items():
            for lane, position in enumerate(at):
                if position == len(each[lane]) or events[each[lane][position]].before & ~done:
                    continue
                longer = done | 1 << each[lane][position]
                before = following.get(longer)
                moved = (*at[:lane], position + 1, *at[lane + 1 :])
                following[longer] = (moved, ways) if before is None else (before[0], before[1] + ways)
        if len(following) > most_sets:
            return None, examined
        counts = following
    return sum(ways for _, ways in counts.values()), examined


def brute_force(job: Job, most: int) -> int:
    """Counts the sequences of events of a job by making all of these runs, without reduction.

    Args:
        job: the job; its budget is in samples.
        most: the largest number of runs.

    Returns:
        The number of sequences, or `most` + 1 if there are more.
    """
    return sum(1 for _ in zip(range(most + 1), all_runs(job), strict=False))


def all_runs(job: Job) -> Iterator[tuple[RunWithEvents, Exception | None]]:
    """Yields the run of every sequence of events, without reduction, and its exception if it failed."""
    objects = Objects()
    path: list[list[Key]] = []
    while True:
        run = RunWithEvents(job, objects)
        yield run, _follow(run, path)
        while path and len(path[-1]) == 1:
            path.pop()
        if not path:
            return
        del path[-1][0]


def _follow(run: RunWithEvents, path: list[list[Key]]) -> Exception | None:
    """Makes the run that begins with the first events of `path`, and adds the choices of the later ones to it."""
    at = 0

    def pick(options: Options) -> Key:
        nonlocal at
        if at == len(path):
            path.append(list(options))
        at += 1
        return path[at - 1][0]

    try:
        run.perform(pick)
    except Exception as error:  # it is one of the results
        return error
    return None
