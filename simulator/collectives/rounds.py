"""Message patterns as data: rounds of messages among the places of a group.

These rules are carried out by `state_machine`:

* Members are named by their places in the group, 0 … p − 1.
* Every member goes through the rounds in which it appears, in order. It enters a round when it is done with the one
  before, and all its messages of a round are under way at once.
* A message starts when both its ends have entered its round. A buffered message, as in rings, starts when its sender
  has entered.
* A receiver is done with a message when it has arrived and, where the round reduces, has been added. A sender is done
  when the bytes have left it or, where sends block, as in trees, when they have arrived.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Places = NDArray[np.int64]
Amounts = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Round:
    """Messages that are under way together, repeated so many times.

    Args:
        sources: the place of each message's sender.
        targets: the place of its receiver.
        nbytes: its bytes.
        reduces: whether receivers add what they receive.
        blocking: whether senders wait for arrivals.
        buffered: whether senders begin before receivers have entered.
        times: repetitions.
    """

    sources: Places
    targets: Places
    nbytes: Amounts
    reduces: bool = False
    blocking: bool = False
    buffered: bool = False
    times: int = 1


Rounds = tuple[Round, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """Parts are lists of rounds that are carried out at the same time; the collective is done when all parts are."""

    parts: tuple[Rounds, ...]

    @property
    def messages(self) -> int:
        """How many there are in all."""
        return sum(len(one.sources) * one.times for part in self.parts for one in part)

    @property
    def largest(self) -> float:
        """Bytes of the largest message."""
        return max((float(one.nbytes.max(initial=0.0)) for part in self.parts for one in part), default=0.0)


def one_round(pairs: Sequence[tuple[int, int]], nbytes: float, reduces: bool = False, blocking: bool = False) -> Round:
    """A round of equal messages."""
    ends = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return Round(ends[:, 0], ends[:, 1], np.full(len(ends), float(nbytes)), reduces, blocking)


def side_by_side(lists: Sequence[Rounds]) -> Rounds:
    """Rounds of groups that have no rank in common, as rounds of all of them; all lists have the same shape."""
    return tuple(
        replace(
            rounds[0],
            sources=np.concatenate([one.sources for one in rounds]),
            targets=np.concatenate([one.targets for one in rounds]),
            nbytes=np.concatenate([one.nbytes for one in rounds]),
        )
        for rounds in zip(*lists, strict=True)
    )


def among(places: Sequence[int], rounds: Rounds) -> Rounds:
    """The same rounds among some members of a larger group."""
    at = np.array(places, dtype=np.int64)
    return tuple(replace(one, sources=at[one.sources], targets=at[one.targets]) for one in rounds)
