"""A violated guarantee and the case that shows it."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.checking.cases.case import Case


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A guarantee that a case violates.

    Args:
        guarantee: its name, such as ``bounded-staleness`` or, for every method, ``no-deadlock``.
        words: what was found, and what is right.
        case: the case that shows it.
    """

    guarantee: str
    words: str
    case: Case
