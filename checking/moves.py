"""Moves, and choosers that select among them.

A run without a clock is a sequence of moves; the chooser selects one of all possible runs. A chooser is a callable that
takes the possible moves, at least one, and returns one of them.

`Priorities` is the probabilistic concurrency testing of Burckhardt et al., "A randomized scheduler with probabilistic
guarantees of finding bugs" (ASPLOS 2010): a random priority for everything that can move, and a few random moves at
which the priority of the one that moves becomes the lowest. A bug that needs few changes of order is found with a
probability that is far above that of uniformly random moves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from paceline.algorithms.core.errors import ProgramError
from paceline.algorithms.core.fast_values import fast_constructor
from paceline.algorithms.core.operations import Op
from paceline.algorithms.core.values import Rank

if TYPE_CHECKING:
    from hypothesis import strategies as st


@fast_constructor
@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One thing that can happen next.

    "go": the lane's operation is answered; "deliver": the oldest message in flight from `source` reaches `rank`;
    "time out": the timeout of the lane's `Receive` expires. Moves of different runs can be equal.
    """

    act: Literal["go", "deliver", "time out"]
    rank: Rank
    lane: str = "main"
    source: Rank | None = None
    op: Op[Any] | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        if self.act == "deliver":
            return f"deliver {self.source} -> {self.rank}"
        return f"{self.act} {self.rank}/{self.lane} {type(self.op).__name__}"


@cache
def delivery(source: Rank, to: Rank) -> Move:
    """Returns the move that delivers the oldest message in flight between two ranks."""
    return Move(act="deliver", rank=to, source=source)


Chooser = Callable[[Sequence[Move]], Move]


def first(ready: Sequence[Move]) -> Move:
    """Selects the first move of the lowest rank: the simplest order."""
    return ready[0]


class RoundRobin:
    """Selects ranks in turn, and the first possible move of each."""

    def __init__(self) -> None:
        self._last = -1

    def __call__(self, ready: Sequence[Move]) -> Move:
        """Selects a move of the next rank after the last one that moved, cyclically.

        >>> turn = RoundRobin()
        >>> moves = [Move(act="go", rank=Rank(0)), Move(act="go", rank=Rank(2))]
        >>> [turn(moves).rank for _ in range(3)]
        [0, 2, 0]
        """
        move = min(ready, key=lambda m: (m.rank <= self._last, m.rank))
        self._last = move.rank
        return move


class Fair:
    """Selects what has waited longest for its turn: a rank or a connection, and of a rank the lane."""

    def __init__(self) -> None:
        self._turns, self._count = dict[tuple[object, ...], int](), 0

    def __call__(self, ready: Sequence[Move]) -> Move:
        """Selects the move whose like was selected the longest time ago, or never.

        >>> turn = Fair()
        >>> moves = [Move(act="deliver", rank=Rank(2), source=Rank(source)) for source in (0, 1)]
        >>> [turn(moves).source for _ in range(3)]
        [0, 1, 0]
        """
        move = min(ready, key=lambda candidate: [self._turns.get(turn, -1) for turn in _turns(candidate)])
        self._count += 1
        self._turns.update(dict.fromkeys(_turns(move), self._count))
        return move


def _turns(move: Move) -> tuple[tuple[object, ...], ...]:
    mover = (move.act, move.rank, move.source)
    return mover, (*mover, move.lane)


class Shuffled:
    """Selects moves at random with equal probability, from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(np.random.SeedSequence((seed, 11)))

    def __call__(self, ready: Sequence[Move]) -> Move:
        return ready[int(self._random.integers(len(ready)))]


class Adversary:
    """Delays one rank: its operations and its messages proceed only when no other move is possible."""

    def __init__(self, victim: Rank) -> None:
        self.victim = victim
        self._others = RoundRobin()

    def __call__(self, ready: Sequence[Move]) -> Move:
        others = [move for move in ready if self.victim not in (move.rank, move.source)]
        return self._others(others or ready)


class Recorded:
    """Repeats the moves of an earlier run, one by one."""

    def __init__(self, moves: Iterable[Move]) -> None:
        self._moves = iter(moves)
        self._count = 0

    def __call__(self, ready: Sequence[Move]) -> Move:
        """Returns the recorded move; raises `ProgramError` if it is not possible now."""
        move = next(self._moves, None)
        for possible in ready:
            if possible == move:
                self._count += 1
                return possible
        now = ", ".join(map(repr, ready))
        raise ProgramError(
            f"move {self._count} of the record is {move}, but possible are {now}: another program or job"
        )


CHANGED_WITHIN = 64
"""the moves among which the priorities change; provenance: ours, a small run takes 20 to 200"""


class Priorities:
    """Always selects the move with the highest priority.

    Args:
        random: draws the priorities, and the moves at which one changes.
        changes: number of changes.
    """

    def __init__(self, random: np.random.Generator, changes: int) -> None:
        self._random, self._count = random, 0
        self._changes = set(random.integers(CHANGED_WITHIN, size=changes).tolist())
        self._priorities: dict[tuple[int, int, str], float] = {}

    def __call__(self, ready: Sequence[Move]) -> Move:
        move = max(ready, key=self._priority)
        if self._count in self._changes:
            self._priorities[_mover(move)] = -float(self._count)
        self._count += 1
        return move

    def _priority(self, move: Move) -> float:
        mover = _mover(move)
        if mover not in self._priorities:
            self._priorities[mover] = float(self._random.random())
        return self._priorities[mover]


def _mover(move: Move) -> tuple[int, int, str]:
    """Identifies what has a priority: the rank with all of its lanes, a connection of two ranks, or a timeout."""
    return (move.rank, -1 if move.source is None else move.source, move.act)


class Persistent:
    """Continues with the rank that has moved last while it can, except for a change with this probability."""

    def __init__(self, random: np.random.Generator, change: float) -> None:
        self._random, self._change, self._last = random, change, Rank(-1)

    def __call__(self, ready: Sequence[Move]) -> Move:
        same = [move for move in ready if move.rank == self._last]
        if same and self._random.random() >= self._change:
            return same[0]
        move = ready[int(self._random.integers(len(ready)))]
        self._last = move.rank
        return move


class Noted:
    """Wraps a chooser, and lists the indices of the selected moves in `made`."""

    def __init__(self, choose: Chooser) -> None:
        self._choose, self.made = choose, list[int]()

    def __call__(self, ready: Sequence[Move]) -> Move:
        move = self._choose(ready)
        self.made.append(ready.index(move) if len(ready) > 1 else 0)
        return move

    @property
    def choices(self) -> tuple[int, ...]:
        """The choices of a case."""
        return without_defaults(self.made)


def without_defaults(choices: Sequence[int]) -> tuple[int, ...]:
    """Returns choices without the zeros at their end, because 0 is the default after the last choice.

    >>> without_defaults([0, 2, 0, 0])
    (0, 2)
    """
    last = len(choices)
    while last and choices[last - 1] == 0:
        last -= 1
    return tuple(choices[:last])


def random_chooser(random: np.random.Generator, ranks: int) -> Chooser:
    """Returns a random kind of chooser for a run with this many ranks.

    Args:
        random: selects the kind, and seeds the chooser.
        ranks: number of ranks, with the server.
    """
    makers: tuple[Callable[[], Chooser], ...] = (
        lambda: Shuffled(int(random.integers(2**31))),
        lambda: Priorities(random, int(random.integers(4))),
        lambda: Priorities(random, int(random.integers(4))),
        lambda: Persistent(random, float(random.choice([0.02, 0.1, 0.3]))),
        lambda: Adversary(Rank(int(random.integers(ranks)))),
        RoundRobin,
    )
    return makers[int(random.integers(len(makers)))]()


def drawn(data: st.DataObject) -> Chooser:
    """Returns a chooser that draws each move from `data`; a failure shrinks to the order of `moves.first`."""

    from hypothesis import strategies as st  # an extra

    def choose(ready: Sequence[Move]) -> Move:
        if len(ready) == 1:
            return ready[0]
        named = {repr(move): move for move in ready}  # drawn by name, so that a failure prints short names
        return named[data.draw(st.sampled_from(list(named)), label="move")]

    return choose
