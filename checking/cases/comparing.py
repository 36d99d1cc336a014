"""Compares the ends of two runs of a method, bit for bit."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from paceline.algorithms.core.values import Rank
from paceline.checking.cases.case import Case
from paceline.checking.cases.outcomes import Outcome
from paceline.checking.cases.performing import in_any_order, performed
from paceline.checking.kept_results import KeptResults
from paceline.checking.moves import Adversary, Chooser, RoundRobin, Shuffled
from paceline.checking.small_runs import ended

MOST = 256
"""number of reference runs that are kept"""

ORDERS: tuple[Callable[[], Chooser], ...] = (
    RoundRobin,
    lambda: Shuffled(0),
    lambda: Adversary(Rank(0)),
    lambda: Adversary(Rank(1)),
)

reference_of = KeptResults(performed, MOST)
"""returns the outcome of a case, and keeps it for the next comparison with the same case"""


def order_is_irrelevant(case: Case) -> bool:
    """Returns whether the case, without its stops, ends with the same weights in several orders of moves."""
    return _has_one_end(dataclasses.replace(case, choices=(), stops=()))


def _ends_equally(whole: Case) -> bool:
    reference = reference_of(whole)
    others = (in_any_order(whole, make()) for make in ORDERS)
    return reference.error is None and all(one.error is None and unlike(one, reference) is None for one in others)


_has_one_end = KeptResults(_ends_equally, MOST)


def unlike(one: Outcome, other: Outcome) -> float | None:
    """Returns the largest difference of the weights at the ends of two runs; None if every bit is the same."""
    return ended(one.job, one.trace).away(ended(other.job, other.trace))
