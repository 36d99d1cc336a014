"""The stop rule: the semantics of `NextStep`.

The rule applies only to the owners: the ranks in the role that owns the weights. The workers of a server receive the
stop from the server. After a stop is decided, no owner begins a step beyond the last one that any owner has begun, and
all owners get that far. If owners step independently, their steps are counted together and none begins another one. The
rule is here; the progress of the owners is in `Grants`, because real ranks have it in shared memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from paceline.algorithms.core.job import Job, Reason
from paceline.algorithms.core.method import RankContext
from paceline.algorithms.core.values import Rank, Step

NEVER = 2**63 - 1
"""not the number of any step: the largest 64-bit integer, so that it fits into shared memory"""


def next_step(
    job: Job,
    me: RankContext,
    step: int,
    now_s: float | None,
    grant: Callable[[Rank, int], bool],
    stop: Callable[[Reason], object],
) -> Step | None:
    """Returns the answer of `NextStep`.

    Args:
        job: defines the budget and the samples.
        me: the rank that asks.
        step: the number of steps that it has completed.
        now_s: time on the clock of the run, in seconds; None without a clock.
        grant: returns whether an owner may begin a step.
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
    """The progress of the owners, and the step at which they stop."""

    @property
    def begun(self) -> int:
        """Steps that owners have begun: of the furthest one, or of all if their steps are counted together."""
        ...

    @property
    def stop_at(self) -> int:
        """The first step that no owner begins because the run was stopped; `NEVER` before that."""
        ...

    def note(self, rank: Rank, steps: int) -> None:
        """Records the number of steps that an owner has begun.

        Args:
            rank: the owner.
            steps: the number.
        """
        ...

    def end(self, at: int, why: Reason) -> None:
        """Ends the run.

        Args:
            at: the first step that no owner begins.
            why: the reason.
        """
        ...


class OwnGrants:
    """The grants of a run whose ranks are all in one process.

    Args:
        together: whether the steps of the owners are counted together.
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

    def lose(self, rank: Rank, completed: int) -> None:
        """Gives back the step that a dead owner has begun and not completed, if the steps are counted together.

        Args:
            rank: the dead owner.
            completed: the number of steps that it completed.
        """
        if self._together and (begun := self._steps.get(rank, 0)) > completed:
            self._steps[rank] = completed
            self.begun -= begun - completed


class StopRule:
    """Decides which steps may begin.

    Args:
        limit: the maximum number of steps; None without a limit.
        together: whether the steps of the owners are counted together.
        grants: the progress of the owners.

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
        """The first step that no owner begins."""
        return min(self._limit, self._grants.stop_at)

    def position(self, step: int) -> int:
        """Returns the number of an owner's step as the limit counts it."""
        return self._grants.begun if self._together else step

    def grant(self, rank: Rank, step: int, until: int = NEVER) -> bool:
        """Returns whether an owner may begin this step, and records it as begun if so.

        Args:
            rank: the owner.
            step: the step that it requests.
            until: the step before which all owners pause.
        """
        if self.position(step) >= min(self.end, until):
            return False
        self._grants.note(rank, step + 1)
        return True

    def stop(self, why: Reason) -> None:
        """Ends the run after the last step that any owner has begun, unless it ends there anyway."""
        if (begun := self._grants.begun) < self.end:
            self._grants.end(begun, why)
