"""Message patterns as data: rounds of messages among the members of a group.

`state_machine` implements these rules:

* Members are numbered by their places in the group, 0 … p − 1.
* Every member goes through the rounds in which it has messages, in order. It enters a round when it is done with the
  one before, and all its messages of a round are in flight at once.
* A message starts when both its ends have entered the round. A buffered message, as in rings, starts when its sender
  has entered.
* A receiver is done with a message when it has arrived and, if the round reduces, has been added. A sender is done when
  the bytes have left or, if sends block, as in trees, when they have arrived.
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
    """Messages that are in flight together, in each of `times` repetitions.

    Args:
        sources: the sender's place, for each message.
        targets: the receiver's place, for each message.
        nbytes: the bytes of each message.
        reduces: whether receivers add what they receive.
        blocking: whether senders wait for arrivals.
        buffered: whether senders begin before receivers have entered.
        times: number of repetitions.
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
    """A collective's messages. Its parts, each a list of rounds, run concurrently; it is done when all parts are."""

    parts: tuple[Rounds, ...]

    @property
    def messages(self) -> int:
        """The total number of messages."""
        return sum(len(one.sources) * one.times for part in self.parts for one in part)

    @property
    def largest(self) -> float:
        """The bytes of the largest message."""
        return max((float(one.nbytes.max(initial=0.0)) for part in self.parts for one in part), default=0.0)


def one_round(pairs: Sequence[tuple[int, int]], nbytes: float, reduces: bool = False, blocking: bool = False) -> Round:
    """Returns a round of messages of equal size.

    Args:
        pairs: the places of sender and receiver of each message.
        nbytes: bytes of each message.
        reduces: whether receivers add what they receive.
        blocking: whether senders wait for arrivals.
    """
    ends = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return Round(ends[:, 0], ends[:, 1], np.full(len(ends), float(nbytes)), reduces, blocking)


def side_by_side(lists: Sequence[Rounds]) -> Rounds:
    """Merges the rounds of groups that have no rank in common; all lists have the same shape."""
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
    """Renumbers rounds for some members of a larger group.

    Args:
        places: the place in the larger group of each place in `rounds`.
        rounds: the rounds.
    """
    at = np.array(places, dtype=np.int64)
    return tuple(replace(one, sources=at[one.sources], targets=at[one.targets]) for one in rounds)
