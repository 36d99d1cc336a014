"""Error messages for invalid operations of programs, the same in every interpreter.

A check raises `InvalidOperation` with a message that does not contain the place. The interpreter that performs the
operation knows the current line of the program; it adds the place with `at` and raises the resulting `ProgramError`.
"""

from __future__ import annotations

from typing import Any, ClassVar

from paceline.algorithms.core.errors import MismatchedCollectives, ProgramError, TimedOut
from paceline.algorithms.core.method import RankContext
from paceline.algorithms.core.operations import OPERATIONS, Handle, Op, Receive, Send
from paceline.algorithms.core.program import Routine
from paceline.algorithms.core.values import Group, Rank


class InvalidOperation(Exception):
    """An invalid operation; its message does not contain the place in the program yet."""

    kind: ClassVar[type[ProgramError]] = ProgramError

    def at(self, place: str) -> ProgramError:
        """Returns the error to raise, with the place in front of the message.

        >>> str(InvalidOperation("sends to rank 9").at("rank 0 (worker) at method.py:7 in worker, step 2"))
        'rank 0 (worker) at method.py:7 in worker, step 2: sends to rank 9'
        """
        return self.kind(f"{place}: {self}")


def place_of(me: RankContext, lane: str, line: str, step: int) -> str:
    """Formats the current position of a rank's program for messages.

    Args:
        me: the rank.
        lane: its lane; "main" is omitted.
        line: the line of the program.
        step: the step of the program.
    """
    return f"rank {me.rank} ({me.role}){'' if lane == 'main' else f', lane {lane}'} at {line}, step {step}"


# --- operations -------------------------------------------------------------------------------------------------------


def unknown_operation(words: str) -> InvalidOperation:
    """Returns the error for an operation that is not in `OPERATIONS`, described in `words`."""
    known = ", ".join(kind.__name__ for kind in OPERATIONS)
    return InvalidOperation(f"asks for {words}, which no interpreter knows; operations are {known}")


def check_start(what: object) -> None:
    """Raises `InvalidOperation` unless `what` is an operation or a program."""
    if not isinstance(what, Op | Routine):
        raise InvalidOperation(f"starts {what!r}; only an operation or a program can be started")


# --- messages ---------------------------------------------------------------------------------------------------------


def check_peer(op: Send | Receive, everyone: Group) -> None:
    """Checks that the other rank of a message exists.

    Args:
        op: the operation.
        everyone: all ranks of the run.

    Raises:
        InvalidOperation: there is no such rank.
    """
    rank = op.to if isinstance(op, Send) else op.source
    if rank is not None and rank not in everyone:
        verb = "sends to" if isinstance(op, Send) else "receives from"
        raise InvalidOperation(f"{verb} rank {rank}; there are {everyone}")


def message_wanted(op: Receive) -> str:
    """Describes the sender and the tag that a receive waits for.

    >>> message_wanted(Receive(Rank(1), tag="ready")), message_wanted(Receive())
    ("rank 1 with tag 'ready'", 'anyone')
    """
    return ("anyone" if op.source is None else f"rank {op.source}") + (f" with tag {op.tag!r}" if op.tag else "")


def timed_out(op: Receive, place: str) -> TimedOut:
    """Returns the error for a receive without a message in time."""
    return TimedOut(f"{place}: no message from {message_wanted(op)} within {op.timeout_s} s")


# --- handles ----------------------------------------------------------------------------------------------------------


def unknown_handle(handle: Handle[Any], rank: Rank) -> InvalidOperation:
    """Returns the error for a handle that is not from this rank."""
    return InvalidOperation(f"uses {handle}, which stands for nothing that rank {rank} has started")


def too_few_handles(least: int, given: int) -> InvalidOperation:
    """Returns the error for a wait that needs more handles than it has, or fewer than 0."""
    return InvalidOperation(f"waits for {least} of {given} handles; ask for 0 to {given}")


def cancelled(what: str) -> InvalidOperation:
    """Returns the error for a wait for something that was cancelled."""
    return InvalidOperation(f"waits for {what}, which was cancelled; there is no answer to wait for")


# --- collectives ------------------------------------------------------------------------------------------------------


def mismatch(rank: Rank, line: str, words: str, other: Rank, other_line: str, other_words: str) -> ProgramError:
    """Returns the error for two members of a group that enter different collectives; it names both places.

    Args:
        rank: the member that entered last.
        line: the line of its program.
        words: its collective.
        other: the member that entered first.
        other_line: the line of its program.
        other_words: its collective.
    """
    return MismatchedCollectives(
        f"mismatched collectives: rank {rank} at {line} enters {words}, where rank {other} at {other_line} entered "
        f"{other_words}; all members of a group must issue the same collectives in the same order"
    )
