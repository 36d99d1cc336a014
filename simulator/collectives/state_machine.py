"""The state machine of a collective: when a message can start, what its arrival enables, when a member is done.

Both drivers run this code on the tables of `pattern_tables`: `standalone` with its own loop and network, `event_driver`
with SimPy events and the shared network. So a collective can change drivers while it runs (`contention`), and the rules
of `rounds` are implemented once.

A driver calls `handle` when an event of `tables.events` is due, and `bytes_through` when the transfer of a message has
ended. After each, it calls `advance`, which fills two queues for the driver: `tables.events` with later events, and
`tables.starts` with the messages whose transfer begins now.

Rejected: one implementation for each driver. Also rejected: callbacks into the driver, because numba compiles this code
and compiled code cannot call SimPy. For the same reason the code consists of indexing, arithmetic and loops, as in
`max_min`, and functions do not recurse: a member that has completed a round is put on a list.

In all functions, `tables` is the state of the collective and `now` the time in seconds.
"""

from __future__ import annotations

from paceline.simulator.collectives.pattern_tables import OPEN, READY, STARTS, Member, PatternTables
from paceline.simulator.flows.indexed_heap import put
from paceline.simulator.flows.network_state import NONE


def handle(tables: PatternTables, item: int, now: float) -> None:
    """Processes an event, given by its number, that has been taken from the queue."""
    count = len(tables.messages)
    if item < count:
        _arrive(tables, item, now)
    elif item < 2 * count:
        _complete_one(tables, tables.messages[item - count].target)
    elif item < 3 * count:
        bytes_through(tables, item - 2 * count, now)
    else:
        tables.ready[tables.counts[READY]] = item - 3 * count
        tables.counts[READY] += 1


def bytes_through(tables: PatternTables, index: int, now: float) -> None:
    """Processes the end of a transfer: the message arrives after the latency, and a sender that does not block is done.

    The repetitions of one message arrive in the order in which they were sent; only the first is in the queue.

    Args:
        tables: the state.
        index: the number of the message.
        now: the time, seconds.
    """
    message = tables.messages[index]
    due = now + message.latency_s
    tables.dues[message.due + message.sent % message.ahead] = due
    message.sent += 1
    if message.sent == message.arrived + 1:
        put(tables.events, index, due)
    if not tables.rounds[tables.members[message.source].round].blocking:
        _complete_one(tables, message.source)


def advance(tables: PatternTables, now: float) -> None:
    """Lets members that are ready enter their next repetition, and the one after it if that is complete at once."""
    while tables.counts[READY] > 0:
        tables.counts[READY] -= 1
        number = tables.ready[tables.counts[READY]]
        member = tables.members[number]
        while member.pending == 0 and _enter_next(tables, number, member, now):
            pass


def _enter_next(tables: PatternTables, number: int, member: Member, now: float) -> bool:
    """Lets a member enter its next repetition or round; returns False if it has completed all rounds.

    Its messages start, unless their other end has to enter first.
    """
    if member.round != NONE and member.repetition + 1 < member.times:
        member.repetition += 1
    elif member.next < member.last:
        member.round, member.repetition = member.next, 0
        member.times = tables.rounds[member.round].times
        member.next += 1
    else:
        member.round, member.finish_s = NONE, now
        tables.counts[OPEN] -= 1
        return False
    own = tables.rounds[member.round]
    member.pending = own.count
    tables.entered[3 * member.round + member.repetition % 3] = now
    for at in range(own.first, own.first + own.count):
        index = tables.own_messages[at]
        message = tables.messages[index]
        starts = message.source == number if own.buffered else message.waiting == 1
        if starts:
            message.waiting = 0
            tables.starts[tables.counts[STARTS]] = index
            tables.counts[STARTS] += 1
        elif not own.buffered:
            message.waiting = 1
        elif message.arrived > member.repetition:
            if message.adding_s > 0.0:
                put(tables.events, len(tables.messages) + index, now + message.adding_s)
            else:
                member.pending -= 1
    return True


def _arrive(tables: PatternTables, index: int, now: float) -> None:
    """Processes an arrival. The receiver takes the message now, or when it enters the message's repetition.

    A sender that blocks is done with it.
    """
    message = tables.messages[index]
    message.arrived += 1
    if message.sent > message.arrived:
        put(tables.events, index, tables.dues[message.due + message.arrived % message.ahead])
    sender, receiver = tables.members[message.source], tables.members[message.target]
    if sender.round != NONE:
        its = tables.rounds[sender.round]
        if its.round == message.round and its.blocking:
            _complete_one(tables, message.source)
    if receiver.round != NONE:
        its = tables.rounds[receiver.round]
        if its.round == message.round and (not its.buffered or receiver.repetition == message.arrived - 1):
            if message.adding_s > 0.0:
                put(tables.events, len(tables.messages) + index, now + message.adding_s)
            else:
                _complete_one(tables, message.target)


def _complete_one(tables: PatternTables, number: int) -> None:
    """Marks one message of a member as complete; after the last, the member is ready for the next repetition."""
    member = tables.members[number]
    member.pending -= 1
    if member.pending == 0:
        tables.ready[tables.counts[READY]] = number
        tables.counts[READY] += 1


COMPILED = (_complete_one, _arrive, bytes_through, _enter_next, advance, handle)
"""the functions that a compiled driver calls, callees first"""
