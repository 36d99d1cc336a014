"""Helpers of methods whose runs continue after a worker has died.

A rank that waits for any rank, or for the one that died, gets `PeerFailed` once for each death. After that, no message
of the dead rank arrives, and messages to it are lost without an error. If a program needs the rank that died, or gets a
second failure for it, it does not catch the exception: the run ends. The living ranks are not part of a state: a
restarted program begins with all its workers.
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
    """Returns the bound of `SURVIVES_WORKERS`: the number of workers that a run can lose."""
    return {Guarantee.SURVIVES_WORKERS: max(0, spare)}


def without(living: Iterable[Rank], failure: PeerFailed) -> frozenset[Rank]:
    """Returns the ranks that remain after a failure.

    Args:
        living: the ranks before.
        failure: the failure.

    Raises:
        PeerFailed: the failure is not that of one of these ranks.

    >>> sorted(without([0, 1, 2], PeerFailed("rank 1 died", 1)))
    [0, 2]
    """
    before = frozenset(living)
    if failure.rank is None or failure.rank not in before:
        raise failure
    return before - {Rank(failure.rank)}


class LivingWorkers:
    """The living workers, as a server's program knows them.

    Args:
        me: the rank of the program.
        group: the workers that the server serves; None: all.
    """

    def __init__(self, me: RankContext, group: Group | None = None) -> None:
        self.living = frozenset(me.workers if group is None else group)

    @program
    def receive(self, timeout_s: float | None = None) -> Program[Message | None]:
        """Receives the next message from any rank; None if a worker died instead and was removed from `living`.

        Args:
            timeout_s: for how long it waits; None: as long as it takes.

        Raises:
            TimedOut: no message arrived in this time.
        """
        try:
            return (yield from Receive(timeout_s=timeout_s))
        except PeerFailed as failure:
            self.living = without(self.living, failure)
            return None

    @program
    def message(self) -> Program[Message]:
        """Receives the next message from any living worker."""
        while (message := (yield from self.receive())) is None:
            pass
        return message


@program
def among_living(make: Callable[[Group], Collective], group: Group) -> Program[tuple[Any, Group]]:
    """Runs a collective, and repeats it without the members that have died.

    Args:
        make: returns the collective for a group.
        group: the members at first.

    Returns:
        The answer, and the group that took part.
    """
    while True:
        try:
            return (yield from make(group)), group
        except PeerFailed as failure:
            left = without(group, failure)
            group = Group(tuple(rank for rank in group if rank in left))
