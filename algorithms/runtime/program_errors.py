"""What a program can do wrong, in words: one sentence for each mistake, the same in every interpreter.

Rules of this file:

* A check raises `InvalidOperation`, whose text is the sentence alone. The interpreter that performs the operation knows
  where the program stands; it adds the place in front (`at`) and raises the resulting `ProgramError`, once.
* Checks need the operation and what the run knows of the ranks; they need no clock, network or process.
"""

from __future__ import annotations

from typing import Any, ClassVar

from paceline.algorithms.core.errors import ProgramError, TimedOut
from paceline.algorithms.core.method import RankContext
from paceline.algorithms.core.operations import OPERATIONS, Access, Handle, Op, Receive, Send
from paceline.algorithms.core.program import Routine
from paceline.algorithms.core.values import Group, Rank

ACTIONS = frozenset({"read", "add", "swap"})


class InvalidOperation(Exception):
    """An operation that makes no sense; its text does not say yet where the program asked for it."""

    kind: ClassVar[type[ProgramError]] = ProgramError

    def at(self, place: str) -> ProgramError:
        """The error that the program is told.

        >>> str(InvalidOperation("sends to rank 9").at("rank 0 (worker) at method.py:7 in worker, step 2"))
        'rank 0 (worker) at method.py:7 in worker, step 2: sends to rank 9'
        """
        return self.kind(f"{place}: {self}")


def place_of(me: RankContext, lane: str, line: str, step: int) -> str:
    """Where a rank's program stands, for messages.

    Args:
        me: the rank.
        lane: its lane; the program itself is "main", which goes without saying.
        line: of the program.
        step: of the program.
    """
    return f"rank {me.rank} ({me.role}){'' if lane == 'main' else f', lane {lane}'} at {line}, step {step}"


# --- operations -------------------------------------------------------------------------------------------------------


def unknown_operation(words: str) -> InvalidOperation:
    """An operation that is none of `OPERATIONS`, described in `words`."""
    known = ", ".join(kind.__name__ for kind in OPERATIONS)
    return InvalidOperation(f"asks for {words}, which no interpreter knows; operations are {known}")


def check_start(what: object) -> None:
    """Refuses to start anything but an operation or a program."""
    if not isinstance(what, Op | Routine):
        raise InvalidOperation(f"starts {what!r}; only an operation or a program can be started")


# --- messages ---------------------------------------------------------------------------------------------------------


def check_peer(op: Send | Receive, everyone: Group) -> None:
    """Refuses a message to or from a rank that the run does not have."""
    rank = op.to if isinstance(op, Send) else op.source
    if rank is not None and rank not in everyone:
        verb = "sends to" if isinstance(op, Send) else "receives from"
        raise InvalidOperation(f"{verb} rank {rank}; there are {everyone}")


def message_wanted(op: Receive) -> str:
    """The sender and the tag that a receive is for.

    >>> message_wanted(Receive(Rank(1), tag="ready")), message_wanted(Receive())
    ("rank 1 with tag 'ready'", 'anyone')
    """
    return ("anyone" if op.source is None else f"rank {op.source}") + (f" with tag {op.tag!r}" if op.tag else "")


def timed_out(op: Receive, place: str) -> TimedOut:
    """No message has come in time."""
    return TimedOut(f"{place}: no message from {message_wanted(op)} within {op.timeout_s} s")


# --- handles ----------------------------------------------------------------------------------------------------------


def unknown_handle(handle: Handle[Any], rank: Rank) -> InvalidOperation:
    """The handle is none of this rank's."""
    return InvalidOperation(f"uses {handle}, which stands for nothing that rank {rank} has started")


def too_few_handles(least: int, given: int) -> InvalidOperation:
    """A wait for more handles than it is given, or for fewer than none."""
    return InvalidOperation(f"waits for {least} of {given} handles; ask for 0 to {given}")


def cancelled(what: str) -> InvalidOperation:
    """A wait for what the program has cancelled."""
    return InvalidOperation(f"waits for {what}, which was cancelled; there is no answer to wait for")


# --- collectives ------------------------------------------------------------------------------------------------------


def mismatch(rank: Rank, line: str, words: str, other: Rank, other_line: str, other_words: str) -> ProgramError:
    """Two members of a group that enter different collectives; the sentence names both places itself."""
    return ProgramError(
        f"mismatched collectives: rank {rank} at {line} enters {words}, where rank {other} at {other_line} entered "
        f"{other_words}; all members of a group must issue the same collectives in the same order"
    )


# --- shared cells -----------------------------------------------------------------------------------------------------


def check_access(op: Access, cell_bytes: int) -> None:
    """Refuses an unknown action, an action without its value, and a value of another size than the cell's.

    Args:
        op: the access.
        cell_bytes: size of the cell in bytes; 0 before it has a value.
    """
    name = op.cell.name
    if op.action not in ACTIONS:
        raise InvalidOperation(f"asks cell {name!r} to {op.action}; actions are read, add and swap")
    if op.action == "read":
        return
    if op.value is None:
        raise InvalidOperation(f"gives no value to {op.action} in cell {name!r}")
    if cell_bytes and cell_bytes != op.value.nbytes:
        raise InvalidOperation(f"gives cell {name!r} {op.value.nbytes} bytes; it has {cell_bytes} and keeps its size")


def not_the_holder(name: str) -> InvalidOperation:
    """An unlock by a rank that does not hold the lock."""
    return InvalidOperation(f"unlocks cell {name!r}, which it does not hold; Lock it first")
