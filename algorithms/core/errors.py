"""Exceptions, by cause.

`PacelineError` is the base of every error that a user may see without a traceback. Exceptions that cross SimPy
processes are created again from their `args`, so in each class `args` is equal to the arguments of the constructor.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self


class PacelineError(Exception):
    """Base of all errors that Paceline raises on purpose."""

    trace: Any = None
    """of an error that ended a run: the records up to the error"""
    rank: int | None = None
    """of an error that ended a run: the rank on which it occurred, if it was one"""


class InputError(PacelineError):
    """A scenario, an option or a file is wrong. The command exits with 2."""


class Mistakes(list[str]):
    """Mistakes in one request of a user. At the end of a block they are raised together, if there are any.

    >>> with Mistakes() as mistakes:
    ...     mistakes.append("--seed: found -1, expected 0 or more")
    ...     with mistakes.noted("--run a: "):
    ...         raise InputError("found no run")
    Traceback (most recent call last):
    ...
    paceline.algorithms.core.errors.InputError: --seed: found -1, expected 0 or more
    --run a: found no run
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and self:
            raise InputError("\n".join(dict.fromkeys(self)))

    @contextmanager
    def noted(self, place: str = "") -> Iterator[None]:
        """Adds the input error of a block, if it ends with one; what is behind the block goes on.

        Args:
            place: what stands before each of its lines.
        """
        try:
            yield
        except InputError as error:
            self += (f"{place}{line}" for line in str(error).splitlines())


class ProgramError(PacelineError):
    """A program made an invalid request, such as an unknown operation or mismatched collectives."""


class MismatchedCollectives(ProgramError):
    """The members of a group entered different collectives, or in different orders."""


class DeadlockError(PacelineError):
    """All remaining ranks wait for each other."""


class TimedOut(PacelineError):
    """A `Receive` with a timeout got no message in time."""


class PeerFailed(PacelineError):
    """A rank that an operation needed has died or stopped responding; `rank` is its number if known.

    >>> failure = PeerFailed("rank 1 died", 1)
    >>> str(failure), failure.rank
    ('rank 1 died', 1)
    """

    def __init__(self, message: str, rank: int | None = None) -> None:
        super().__init__(message, rank)
        self.message, self.rank = message, rank

    def __str__(self) -> str:
        return self.message


class MethodWarning(UserWarning):
    """Something about a user's own method that makes figures of its runs mean less than they seem to."""


class RunFailed(PacelineError):
    """A run ended early; its records up to then are kept. The command exits with 1."""
