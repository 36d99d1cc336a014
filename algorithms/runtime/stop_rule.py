"""Where runs stop: what `NextStep` means.

Rules of this file:

* Only ranks in the role that keeps the weights being learned are held against the stop rule. The workers of a server
  hear of the stop from the server.
* Once a stop is decided, no keeper begins a step beyond the last one that any keeper has begun, and all keepers get
  that far. Where keepers step independently, their steps are counted together, and none begins another one.
* The rule is here; how far the keepers have come is in `Grants`, because real ranks keep that in shared memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from paceline.algorithms.core.job import Job, Reason
from paceline.algorithms.core.method import RankContext
from paceline.algorithms.core.values import Rank, Step

NEVER = 2**63 - 1
"""no step has this number: the largest integer of 64 bits, so that it fits into shared memory"""


def next_step(
    job: Job,
    me: RankContext,
    step: int,
    now_s: float | None,
    grant: Callable[[Rank, int], bool],
    stop: Callable[[Reason], object],
) -> Step | None:
    """The answer of `NextStep`.

    Args:
        job: whose budget and samples count.
        me: the rank that asks.
        step: steps that it has completed.
        now_s: on the clock of the run, in seconds; None where there is no clock.
        grant: answers whether a keeper may begin a step.
        stop: ends the run.

    Returns:
        The step, or None for a stop.
    """
    if me.role == job.method.weights_owner:
        seconds = job.budget.seconds
        if seconds is not None and now_s is not None and now_s >= seconds:
            stop("seconds")
        if not grant(me.rank, step):
            return None
    return Step(step, job.samples(me, step))


class Grants(Protocol):
    """How far the keepers have come, and where they are to stop."""

    @property
    def begun(self) -> int:
        """Steps that keepers have begun: of the furthest one, or of all where their steps count together."""
        ...

    @property
    def stop_at(self) -> int:
        """The step that none begins because the run was ended; `NEVER` before that."""
        ...

    def note(self, rank: Rank, steps: int) -> None:
        """A keeper has begun so many steps."""
        ...

    def end(self, at: int, why: Reason) -> None:
        """The run ends before this step."""
        ...


class OwnGrants:
    """The grants of a run whose ranks are all in one process.

    Args:
        together: whether the steps of the keepers count together.
    """

    def __init__(self, *, together: bool) -> None:
        self._together, self._steps = together, dict[Rank, int]()
        self.begun, self.stop_at = 0, NEVER
        self.why: Reason | None = None

    def note(self, rank: Rank, steps: int) -> None:
        more = steps - self._steps.get(rank, 0)
        if more > 0:
            self._steps[rank] = steps
            self.begun = self.begun + more if self._together else max(self.begun, steps)

    def end(self, at: int, why: Reason) -> None:
        self.stop_at, self.why = at, why


class StopRule:
    """Decides which steps are begun.

    Args:
        limit: steps after which none is granted; None without such a limit.
        together: whether the steps of the keepers count together.
        grants: how far they have come.

    >>> grants = OwnGrants(together=False)
    >>> rule = StopRule(4, together=False, grants=grants)
    >>> rule.grant(Rank(0), 0), rule.grant(Rank(0), 1)
    (True, True)
    >>> rule.stop("accuracy")
    >>> rule.grant(Rank(0), 2), rule.grant(Rank(1), 0), rule.grant(Rank(1), 1), grants.why
    (False, True, True, 'accuracy')
    """

    def __init__(self, limit: int | None, *, together: bool, grants: Grants) -> None:
        self._limit, self._together, self._grants = NEVER if limit is None else limit, together, grants

    @property
    def end(self) -> int:
        """The step that none begins."""
        return min(self._limit, self._grants.stop_at)

    def position(self, step: int) -> int:
        """The number of a keeper's step in the sense of the limit."""
        return self._grants.begun if self._together else step

    def grant(self, rank: Rank, step: int, until: int = NEVER) -> bool:
        """Whether a keeper may begin this step; it has then begun it.

        Args:
            rank: the keeper.
            step: that it asks for.
            until: a step before which all pause.
        """
        if self.position(step) >= min(self.end, until):
            return False
        self._grants.note(rank, step + 1)
        return True

    def stop(self, why: Reason) -> None:
        """Ends the run after the last step that any keeper has begun, unless it ends there anyway."""
        if (begun := self._grants.begun) < self.end:
            self._grants.end(begun, why)
