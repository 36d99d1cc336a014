"""Choosers that `paceline check` explores with, beside those of `moves`, and the record of their choices.

`Priorities` is the probabilistic concurrency testing of Burckhardt et al., "A randomized scheduler with probabilistic
guarantees of finding bugs" (ASPLOS 2010): a random priority for everything that can move, and a few random moves at
which the priority of the one that moves becomes the lowest. A bug that needs few changes of order is found with a
probability that is far above that of uniformly random moves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from paceline.algorithms.core.values import Rank
from paceline.checking.moves import Adversary, Chooser, Move, RoundRobin, Shuffled

LONGEST = 64
"""the moves among which the priorities change; provenance: ours, a small run takes 20 to 200"""


class Priorities:
    """Always selects the move with the highest priority.

    Args:
        random: draws the priorities, and the moves at which one changes.
        changes: number of changes.
    """

    def __init__(self, random: np.random.Generator, changes: int) -> None:
        self._random, self._count = random, 0
        self._changes = set(random.integers(LONGEST, size=changes).tolist())
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
