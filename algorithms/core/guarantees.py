"""The guarantees that methods can declare; `paceline.checking.check_guarantees` checks runs against them.

A guarantee holds for every run, regardless of the cluster, the order of messages and the seed. After a worker has died,
the only guarantee is that the run continues. The number of a guarantee ("at most so many") comes from the method's
`bounds`, since it follows from hyper-parameters and the number of workers. A method can also promise guarantees of its
own: functions that `custom_guarantee` has named.

The weight of one gradient in the weights: what a method declares and `paceline check` measures.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from math import isnan
from numbers import Real
from typing import Any

Check = Callable[[Any, Any], Iterable[str]]
"""checks a run, given its `Job` and its `Trace`; this package knows neither interpreters nor records"""


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


@dataclass(frozen=True, slots=True)
class CustomGuarantee:
    """A guarantee that is not one of `Guarantee`; created by `custom_guarantee`.

    Args:
        slug: the name that commands and pages use.
        value: a description.
        check: yields a sentence for each violation, given a job and the trace of a run of it.
        needs_times: whether only runs with times in seconds are checked.
    """

    slug: str
    value: str
    check: Check
    needs_times: bool = False

    @property
    def name(self) -> str:
        """The name in the form of the members of `Guarantee`."""
        return self.slug.upper().replace("-", "_")

    def applies_to(self, trace: Any) -> bool:
        """Whether a run is checked, given its trace."""
        return trace.in_seconds or not self.needs_times

    def __call__(self, job: Any, trace: Any) -> Iterator[str]:
        """Yields a sentence for each violation; none if the guarantee does not apply to the run.

        Args:
            job: the method, its ranks and its learner.
            trace: the record of a run, from any interpreter.
        """
        if self.applies_to(trace):
            yield from self.check(job, trace)


AnyGuarantee = Guarantee | CustomGuarantee
"""what `Method.guarantees` contains"""


def custom_guarantee(name: str, description: str, *, needs_times: bool = False) -> Callable[[Check], CustomGuarantee]:
    """Decorates a function that checks a run, so that methods can promise it beside the members of `Guarantee`.

    `paceline check`, `paceline.checking.broken` and `paceline list algorithms` treat it like a built-in guarantee.

    Args:
        name: small letters, digits and '-'; not the name of a built-in guarantee.
        description: one sentence.
        needs_times: whether the function compares times in seconds. Then simulated and real runs are checked, and runs
            of the any-order interpreter are not: their times are numbers of moves.

    Returns:
        The decorator. The function gets the job and the trace of a run, and yields a sentence for each violation.

    Raises:
        ValueError: the name is not of this form, or is that of a built-in guarantee.

    >>> @custom_guarantee("first-version-used", "the first update is computed from version 0")
    ... def first_version_used(job, trace):
    ...     if trace.updates and trace.updates[0].version_read != 0:
    ...         yield f"the first update was computed from version {trace.updates[0].version_read}"
    >>> first_version_used.slug, first_version_used.value
    ('first-version-used', 'the first update is computed from version 0')
    """
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
        raise ValueError(f"found the name {name!r}, expected small letters and digits, in words joined by '-'")
    if name in {guarantee.slug for guarantee in Guarantee}:
        raise ValueError(f"found the name {name!r}, which is a built-in guarantee's; expected another")

    def decorated(check: Check) -> CustomGuarantee:
        return CustomGuarantee(name, description, check, needs_times)

    return decorated


WITH_FIGURE = frozenset(
    {
        Guarantee.EXACT_DELAY,
        Guarantee.BOUNDED_STALENESS,
        Guarantee.BOUNDED_CLOCK_GAP,
        Guarantee.SURVIVES_WORKERS,
    }
)
"""guarantees that need a number from `Method.bounds`"""


def missing_figures(promised: Iterable[AnyGuarantee], bounds: Mapping[Guarantee, float]) -> dict[Guarantee, str]:
    """Returns the guarantees that need a number and have none, each with an error text.

    Args:
        promised: the guarantees of a method.
        bounds: the result of its `bounds`.

    >>> missing_figures([Guarantee.SYNCHRONOUS, Guarantee.EXACT_DELAY], {})[Guarantee.EXACT_DELAY]
    'found no figure in bounds(), expected a number, such as {Guarantee.EXACT_DELAY: 4}'
    """
    given = "found {} in bounds(), expected a number, such as {{Guarantee.{}: 4}}"
    return {
        guarantee: given.format(_shown(bounds.get(guarantee)), guarantee.name)
        for guarantee in sorted(WITH_FIGURE.intersection(promised), key=lambda guarantee: guarantee.name)
        if not _is_figure(bounds.get(guarantee))
    }


def _is_figure(value: object) -> bool:
    return isinstance(value, Real) and not isnan(value)


def _shown(value: object) -> str:
    return "no figure" if value is None else repr(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedGradient:
    """A gradient that an update has applied, as `Method.gradient_weight` is asked about it.

    Args:
        step: of its worker, from 0.
        version: of the weights to which it was applied: the number of updates before this one.
        staleness: of the update, of the method's own kind.
        together: gradients in the same update.
        workers: of the run.
        living: those among them that have not died.
        layers: layers of the weights.
        layer: the index of the layer, of `layers`, whose weight is asked for.
    """

    step: int
    version: int
    staleness: int
    together: int
    workers: int
    living: int
    layers: int
    layer: int
