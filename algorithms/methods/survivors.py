"""Going on without workers that have died: what the programs share whose methods promise it.

Rules of this file:

* A death is heard once, as `PeerFailed`, by whoever waits for anyone, and by whoever waits for the dead. Nothing of the
  dead is heard after it, and what is sent to them is lost without a word.
* Whoever hears of a death that it cannot do without, or of the same one again, lets the failure pass: the run ends.
* Who is left is no part of a state: a program that is entered again begins with all its workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from paceline.algorithms.core.errors import PeerFailed
from paceline.algorithms.core.guarantees import Guarantee
from paceline.algorithms.core.method import RankContext
from paceline.algorithms.core.operations import Receive
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.values import Group, Message, Rank
from paceline.algorithms.runtime.collective_matching import Collective


def survives(spare: int) -> Mapping[Guarantee, float]:
    """The figure of `SURVIVES_WORKERS`: how many workers a run can lose."""
    return {Guarantee.SURVIVES_WORKERS: max(0, spare)}


def without(living: Iterable[Rank], failure: PeerFailed) -> frozenset[Rank]:
    """Those who are left after a death; raises the failure where it is not the death of one of them.

    >>> sorted(without([0, 1, 2], PeerFailed("rank 1 died", 1)))
    [0, 2]
    """
    before = frozenset(living)
    if failure.rank is None or failure.rank not in before:
        raise failure
    return before - {Rank(failure.rank)}


class Crew:
    """The workers that a server's program has left."""

    def __init__(self, me: RankContext) -> None:
        self.living = frozenset(me.workers)

    @program
    def hear(self) -> Program[Message | None]:
        """The next message from anyone; None where a worker was lost instead, who is then no longer of the living."""
        try:
            return (yield from Receive())
        except PeerFailed as failure:
            self.living = without(self.living, failure)
            return None

    @program
    def message(self) -> Program[Message]:
        """The next message from anyone who is left."""
        while (message := (yield from self.hear())) is None:
            pass
        return message


@program
def among_living(make: Callable[[Group], Collective], group: Group) -> Program[tuple[Any, Group]]:
    """A collective's answer, and the group that had it: once more without them where members have died."""
    while True:
        try:
            return (yield from make(group)), group
        except PeerFailed as failure:
            left = without(group, failure)
            group = Group(tuple(rank for rank in group if rank in left))
