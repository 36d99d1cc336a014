"""Steps that are granted ahead, where those who take them are on several hosts.

Rules of this file:

* The store holds the one truth, changed by atomic operations alone; a host asks it once for several steps, which its
  ranks then take without asking. How many is a matter of time: as many as were taken in `AHEAD_S` before.
* Where everybody takes the same steps (`Lease`) the store says how far anybody may go. Whoever ends the run closes it
  there: all go on up to the furthest lease and no further, so that all stop at the same step.
* Where steps count together (`Shares`) each host takes some of what is left, fewer towards the end, so that no host is
  left with many when the others have none. Whoever ends the run closes the counter; what a host has taken is its own.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, cast

from paceline.records.trace import Reason

AHEAD_S = 0.1
"""steps are leased for about so long, which is also by how much a run may go on after its end is called; ours"""
MOST = 64
"""steps of one lease"""


@dataclass(frozen=True, slots=True)
class Bound:
    """How far steps are granted on a host, and why not further, if that is so for good."""

    steps: int
    closed: Reason | None = None


class Across(ABC):
    """What hosts agree on about steps.

    Args:
        store: of torch.distributed, this process's own connection.
        limit: steps that the budget has.
    """

    def __init__(self, store: Any, limit: int) -> None:
        self._store, self._limit = store, limit
        self._ahead, self._asked_s = 1, -math.inf

    @abstractmethod
    def extend(self, reached: int) -> Bound:
        """Asks for more, where a host has come as far as it may."""

    @abstractmethod
    def close(self, why: Reason, reached: int) -> Bound | None:
        """Ends the run after what has been granted; None where that is all the budget has anyway."""

    def _pace(self) -> int:
        """How many steps to ask for: twice as many as last time if those lasted too short, half if too long."""
        now_s = time.monotonic()
        if now_s - self._asked_s < AHEAD_S / 2:
            self._ahead = min(2 * self._ahead, MOST)
        elif now_s - self._asked_s > 2 * AHEAD_S:
            self._ahead = max(self._ahead // 2, 1)
        self._asked_s = now_s
        return self._ahead


class Lease(Across):
    """Steps that everybody takes: "12" is open up to step 12, "12 accuracy" closed there."""

    def extend(self, reached: int) -> Bound:
        ahead = self._pace()
        known = self._swap("", "0")
        while True:
            steps, why = _parted(known)
            if why is not None or steps > reached:
                return Bound(steps, why)
            wanted = str(min(max(reached, steps) + ahead, self._limit))
            if wanted == known or (known := self._swap(known, wanted)) == wanted:
                return Bound(int(wanted))

    def close(self, why: Reason, reached: int) -> Bound | None:
        known = self._swap("", "0")
        while True:
            steps, before = _parted(known)
            if before is not None:
                return Bound(steps, before)
            if steps >= self._limit:
                return None
            if (known := self._swap(known, wanted := f"{steps} {why}")) == wanted:
                return Bound(steps, why)

    def _swap(self, known: str, wanted: str) -> str:
        """Writes what is wanted where the store still has what is known; answers what it has then."""
        return cast("bytes", self._store.compare_set("lease", known, wanted)).decode()


class Shares(Across):
    """Steps that count together.

    Args:
        hosts: that take some.
    """

    def __init__(self, store: Any, limit: int, hosts: int) -> None:
        super().__init__(store, limit)
        self._hosts = hosts
        self._taken = 0
        """by all, as far as is known here"""

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


def _parted(text: str) -> tuple[int, Reason | None]:
    """A lease in parts.

    >>> _parted("12"), _parted("12 accuracy")
    ((12, None), (12, 'accuracy'))
    """
    steps, _, why = text.partition(" ")
    return int(steps), cast("Reason", why) if why else None
