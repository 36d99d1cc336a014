"""The ranges that the planner searches if the scenario gives none. All of them are ours (INFERENCE), not fitted.

They only decide where the planner looks; a result at the end of a range is reported, so that the range can be widened.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

ALTERNATIVES = ("sync-sgd", "async-sgd", "k-avg", "agd", "sync-easgd3", "hbs-sgd")
"""one method of each family: all-reduce, parameter server, local steps, delayed all-reduce, elastic averaging,
hierarchical; provenance: INFERENCE, the simplest of each family that needs no further hyper-parameter"""

RATE_FACTOR = 4.0
"""the learning rate is searched from the scenario's divided by this factor to the scenario's times it; provenance:
INFERENCE: the linear scaling rule moves a rate by as much as the batch, here at most by 2 in each direction, and as
much again is left for the scenario's own value"""

PERIODS: dict[tuple[str, str], tuple[int, ...]] = {
    ("agd", "delay"): (1, 2),
    ("layerwise-agd", "delay"): (1, 2),
    ("k-avg", "k"): (2, 4, 8, 16),
    ("sasgd", "period"): (2, 4, 8, 16),
    ("eamsgd", "period"): (2, 4, 8, 16),
    ("post-local-sgd", "period"): (2, 4, 8, 16),
    ("slowmo", "period"): (2, 4, 8, 16),
    ("diloco", "period"): (4, 8, 16, 32),
    ("streaming-diloco", "period"): (4, 8, 16, 32),
    ("eager-diloco", "period"): (4, 8, 16, 32),
    ("noloco", "period"): (4, 8, 16, 32),
    ("async-diloco", "period"): (4, 8, 16, 32),
    ("co2", "period"): (2, 4, 8, 16),
    ("acco", "accumulate"): (1, 2, 4),
    ("hbs-sgd", "k2"): (4, 8, 16),
    ("ssp", "slack"): (1, 3, 8),
    ("softsync", "n"): (1, 2, 4),
}
"""numbers of steps between exchanges, in powers of two around the methods' defaults; provenance: INFERENCE"""


def powers_of_two(largest: int) -> tuple[int, ...]:
    """Returns 1, 2, 4, … up to a number, and the number itself.

    >>> powers_of_two(6)
    (1, 2, 4, 6)
    """
    return tuple(sorted({*(2**power for power in range(largest.bit_length()) if 2**power <= largest), largest}))


def batches_near(batch: int) -> tuple[int, ...]:
    """Returns half of a batch, the batch and twice the batch; provenance: INFERENCE.

    >>> batches_near(32), batches_near(1)
    ((16, 32, 64), (1, 2))
    """
    return tuple(sorted({max(1, batch // 2), batch, 2 * batch}))


def learning_rates_near(rate: float) -> tuple[float, float]:
    """Returns the ends of the interval around a learning rate.

    >>> learning_rates_near(0.2)
    (0.05, 0.8)
    """
    return rate / RATE_FACTOR, rate * RATE_FACTOR


def values_near(method: str, name: str, own: Any) -> tuple[Any, ...]:
    """Returns the values of a method's period, with the scenario's own; empty if it is not tuned by default.

    >>> values_near("agd", "delay", 3), values_near("agd", "momentum", 0.9)
    ((1, 2, 3), ())
    """
    known = PERIODS.get((method, name), ())
    return tuple(sorted({*known, own})) if known else ()


def usual_methods(own: Sequence[str]) -> tuple[str, ...]:
    """Returns the methods of a scenario, and the usual alternatives.

    >>> usual_methods(["easgd", "agd"])
    ('easgd', 'agd', 'sync-sgd', 'async-sgd', 'k-avg', 'sync-easgd3', 'hbs-sgd')
    """
    return tuple(dict.fromkeys([*own, *ALTERNATIVES]))
