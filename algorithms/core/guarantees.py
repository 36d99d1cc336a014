"""What methods promise, in one vocabulary: `paceline.checking.check_guarantees` reads it and holds runs to it.

Rules of this file:

* A guarantee says something about every run, whatever the cluster, the order of messages and the seed; of a run that
  has lost a worker, only that it goes on.
* One that needs a figure ("at most so many") takes it from the method's `bounds`, since it follows from
  hyper-parameters and the number of workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from math import isnan
from numbers import Real


class Guarantee(Enum):
    """What a method promises, in words that a checker can read."""

    DETERMINISTIC = "the same seed gives the same weights, regardless of the workers' speeds"
    SYNCHRONOUS = "every gradient is applied at the version it was computed at"
    EXACT_DELAY = "every gradient is applied exactly `delay` steps after it was computed"
    BOUNDED_STALENESS = "no update is staler than a bound that follows from the hyper-parameters"
    BOUNDED_CLOCK_GAP = "no worker completes a step more than `slack` + 1 steps ahead of the slowest"
    SAME_AS_SYNC_SGD = "the numbers of sync-sgd, to rounding"
    REPLICAS_EQUAL = "all workers hold the same weights after every step"
    REPLICAS_MEET = "all workers hold the same weights after every average of everyone"
    ROUND_ROBIN = "exchanges come in rank order"
    DISTINCT_WORKERS = "the gradients of one update come from different workers"
    FULL_UPDATES = "every update is made of the same number of gradients"
    CONSTANT_TOTAL = "whatever each worker's batch is, the batches of all together are the total"
    CONSERVES_SUM = "without gradients, centre plus workers is constant"
    CONSERVES_MEAN = "without gradients, the mean of all workers' weights is constant"
    CONSERVES_MESSAGES = "what is sent is applied, in flight or dropped"
    SURVIVES_WORKERS = "a real run goes on without workers that have died, as long as enough of them are left"

    @property
    def slug(self) -> str:
        """As commands and pages write it.

        >>> Guarantee.EXACT_DELAY.slug
        'exact-delay'
        """
        return self.name.lower().replace("_", "-")


WITH_FIGURE = frozenset(
    {
        Guarantee.EXACT_DELAY,
        Guarantee.BOUNDED_STALENESS,
        Guarantee.BOUNDED_CLOCK_GAP,
        Guarantee.SURVIVES_WORKERS,
    }
)
"""guarantees that say nothing without the figure that `Method.bounds` gives"""


def missing_figures(promised: Iterable[Guarantee], bounds: Mapping[Guarantee, float]) -> dict[Guarantee, str]:
    """The guarantees among these that need a figure and have none, each with what is wrong.

    Args:
        promised: what a method promises.
        bounds: what its `bounds` gives.

    >>> missing_figures([Guarantee.SYNCHRONOUS, Guarantee.EXACT_DELAY], {})[Guarantee.EXACT_DELAY]
    'found no figure in bounds(), expected a number, such as {Guarantee.EXACT_DELAY: 4}'
    """
    return {
        one: f"found {_shown(bounds.get(one))} in bounds(), expected a number, such as {{Guarantee.{one.name}: 4}}"
        for one in sorted(WITH_FIGURE.intersection(promised), key=lambda one: one.name)
        if not _is_figure(bounds.get(one))
    }


def _is_figure(value: object) -> bool:
    return isinstance(value, Real) and not isnan(value)


def _shown(value: object) -> str:
    return "no figure" if value is None else repr(value)
