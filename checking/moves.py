"""Moves, and choosers that select among them.

A run without a clock is a sequence of moves; the chooser selects one of all possible runs. A chooser is a callable that
takes the possible moves, at least one, and returns one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

import numpy as np

from paceline.algorithms.core.errors import ProgramError
from paceline.algorithms.core.fast_values import fast_constructor
from paceline.algorithms.core.operations import Op
from paceline.algorithms.core.values import Rank


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
        move = min(ready, key=lambda one: [self._turns.get(turn, -1) for turn in _turns(one)])
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
