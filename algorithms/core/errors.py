"""What can go wrong, by whose fault it is.

`PacelineError` is the base of every error that a user may see without a traceback. Exceptions that cross SimPy
processes are made again from their `args`, so each class here keeps `args` equal to its constructor's arguments.
"""

from __future__ import annotations

from typing import Any


class PacelineError(Exception):
    """Base of all errors that Paceline raises on purpose."""

    trace: Any = None
    """of an error that ended a run: what had been recorded until then"""
    rank: int | None = None
    """of an error that ended a run: whose it was, where it was one rank's"""


class InputError(PacelineError):
    """The input is wrong: scenario, option or file. The command exits with 2."""


class ProgramError(PacelineError):
    """A program asked for something that makes no sense: an unknown operation, mismatched collectives."""


class DeadlockError(PacelineError):
    """Every rank that is left waits for something that nobody will do."""


class TimedOut(PacelineError):
    """A `Receive` with a time-out got no message by then."""


class PeerFailed(PacelineError):
    """A rank that an operation needed has died or gone silent; `rank` says which, where it is known.

    >>> failure = PeerFailed("rank 1 died", 1)
    >>> str(failure), failure.rank
    ('rank 1 died', 1)
    """

    def __init__(self, message: str, rank: int | None = None) -> None:
        super().__init__(message, rank)
        self.message, self.rank = message, rank

    def __str__(self) -> str:
        return self.message


class RunFailed(PacelineError):
    """A run ended before its time; what it had recorded until then is kept. The command exits with 1."""
