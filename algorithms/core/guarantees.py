"""The guarantees that methods can declare; `paceline.checking.check_guarantees` checks runs against them.

Rules of this file:

* A guarantee holds for every run, regardless of the cluster, the order of messages and the seed. After a worker has
  died, the only guarantee is that the run continues.
* The number of a guarantee ("at most so many") comes from the method's `bounds`, since it follows from hyper-parameters
  and the number of workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from math import isnan
from numbers import Real


class Guarantee(Enum):
    """A property that a method promises; the value describes it."""

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
        """The name that commands and pages use.

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
"""guarantees that need a number from `Method.bounds`"""


def missing_figures(promised: Iterable[Guarantee], bounds: Mapping[Guarantee, float]) -> dict[Guarantee, str]:
    """Returns the guarantees that need a number and have none, each with an error text.

    Args:
        promised: the guarantees of a method.
        bounds: the result of its `bounds`.

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
