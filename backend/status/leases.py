"""Leases: steps that several hosts with owners of weights may begin without asking each other.

Rationale:

* Invariant: the store holds the only authoritative state, and only atomic operations change it. So hosts that ask at
  the same moment cannot be granted more than the budget, and a run stops at the same step on all hosts.
* A host asks the store once for several steps, which its ranks then begin without asking. The number follows the pace:
  as many steps as took about `AHEAD_S`.
* If all owners take the same steps (`Lease`), the store has the step up to which all may proceed. The host that ends
  the run closes the lease in the store. All hosts then proceed to the end of the longest lease and no further, so they
  stop at the same step.
* If the steps of the owners are counted together (`Shares`), each host takes some of the remaining steps, fewer towards
  the end, so that no host has many left when the others have none. The host that ends the run closes the counter; a
  host still takes the steps that it was granted before.
* Rejected: asking the store at every step, which costs a network round trip per step. Rejected: announcing a last step
  in advance, since a rank on another host may have passed it before the announcement arrives.
* Source: leases as in Gray and Cheriton (1989), here counted in steps and not in time; guided self-scheduling
  (Polychronopoulos and Kuck 1987) for the shrinking shares.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, cast

from paceline.algorithms.core.job import Reason

AHEAD_S = 0.1
"""how long a grant of steps lasts, and about how long a run may continue after it was ended; chosen by us"""
MOST = 64
"""the most steps of one grant"""


@dataclass(frozen=True, slots=True)
class Bound:
    """The step up to which a host's ranks may proceed, and the reason if the run ends there."""

    steps: int
    closed: Reason | None = None


class StepGrants(ABC):
    """Grants steps to the ranks of a host.

    Args:
        store: the store of torch.distributed, with a connection of this process's own.
        limit: the budget in steps.
    """

    def __init__(self, store: Any, limit: int) -> None:
        self._store, self._limit = store, limit
        self._ahead, self._asked_s = 1, -math.inf

    @abstractmethod
    def extend(self, reached: int) -> Bound:
        """Asks for more steps when the host has used up its own."""

    @abstractmethod
    def close(self, why: Reason, reached: int) -> Bound | None:
        """Ends the run after the granted steps; returns None if these are the whole budget anyway."""

    def _pace(self) -> int:
        """Returns how many steps to ask for: twice the last number if it was used up too soon, half if too late."""
        now_s = time.monotonic()
        if now_s - self._asked_s < AHEAD_S / 2:
            self._ahead = min(2 * self._ahead, MOST)
        elif now_s - self._asked_s > 2 * AHEAD_S:
            self._ahead = max(self._ahead // 2, 1)
        self._asked_s = now_s
        return self._ahead


class Lease(StepGrants):
    """Steps that all owners take. The store has "12" if open up to step 12, and "12 accuracy" if closed there."""

    def extend(self, reached: int) -> Bound:
        ahead = self._pace()
        known = self._swap("", "0")
        while True:
            steps, why = _parse(known)
            if why is not None or steps > reached:
                return Bound(steps, why)
            wanted = str(min(max(reached, steps) + ahead, self._limit))
            if wanted == known or (known := self._swap(known, wanted)) == wanted:
                return Bound(int(wanted))

    def close(self, why: Reason, reached: int) -> Bound | None:
        known = self._swap("", "0")
        while True:
            steps, before = _parse(known)
            if before is not None:
                return Bound(steps, before)
            if steps >= self._limit:
                return None
            if (known := self._swap(known, wanted := f"{steps} {why}")) == wanted:
                return Bound(steps, why)

    def _swap(self, known: str, wanted: str) -> str:
        """Compares and sets the lease; returns its value in the store afterwards."""
        return cast("bytes", self._store.compare_set("lease", known, wanted)).decode()


class Shares(StepGrants):
    """Steps of all owners, counted together.

    Args:
        hosts: how many hosts have owners.
    """

    def __init__(self, store: Any, limit: int, hosts: int) -> None:
        super().__init__(store, limit)
        self._hosts = hosts
        self._taken = 0
        """steps that all hosts have taken, as far as this host knows"""

    def extend(self, reached: int) -> Bound:
        if (why := self._closed()) is not None:
            return Bound(reached, why)
        fair = max((self._limit - self._taken) // (4 * self._hosts), 1)
        share = min(self._pace(), fair)
        self._taken = int(self._store.add("taken", share))
        over = max(self._taken - self._limit, 0)
        return Bound(reached + max(share - over, 0))

    def close(self, why: Reason, reached: int) -> Bound | None:
        if int(self._store.add("taken", 0)) >= self._limit:
            return None
        said = cast("bytes", self._store.compare_set("closed", "", why)).decode()
        return Bound(reached, cast("Reason", said))

    def _closed(self) -> Reason | None:
        said = cast("bytes", self._store.compare_set("closed", "", "")).decode()
        return cast("Reason", said) if said else None


def _parse(text: str) -> tuple[int, Reason | None]:
    """Parses a lease.

    >>> _parse("12"), _parse("12 accuracy")
    ((12, None), (12, 'accuracy'))
    """
    steps, _, why = text.partition(" ")
    return int(steps), cast("Reason", why) if why else None
