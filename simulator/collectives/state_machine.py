"""The state machine of a collective: when a message can start, what its arrival enables, when a member is done.

Both drivers run this code on the tables of `pattern_tables`: `standalone` as plain arithmetic on a network of the
collective's own, `event_driver` on SimPy events and the network that all share. So a collective can change drivers on
its way (`contention`), and the rules of `rounds` are written once.

A driver tells the machine what has happened: an event of `tables.events` is due (`handle`), or the bytes of a message
are through (`bytes_through`). After each, it calls `advance`, which fills two lists for the driver: `tables.events`,
with what is due later, and `tables.starts`, with the messages whose bytes set out now.

The rejected alternative was one implementation for each driver. Callbacks into the driver were rejected, too: numba
compiles this code, and cannot call SimPy. For the same reason everything here is indexing, arithmetic and loops, as in
`max_min`, and functions do not recurse: a member that has completed a round is put on a list.
"""

from __future__ import annotations

from paceline.simulator.collectives.pattern_tables import OPEN, READY, STARTS, Member, PatternTables
from paceline.simulator.flows.indexed_heap import put
from paceline.simulator.flows.network_state import NONE


def handle(tables: PatternTables, item: int, now: float) -> None:
    """Processes an event that has been taken from the queue."""
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
    """A message has passed the network: it arrives after the latency. A sender that does not block is done with it.

    Arrivals of one message are queued one after the other, in the order in which they were sent.
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
    """Members that have completed a repetition enter the next, and the one after it where that is complete at once."""
    while tables.counts[READY] > 0:
        tables.counts[READY] -= 1
        number = tables.ready[tables.counts[READY]]
        member = tables.members[number]
        while member.pending == 0 and _enter_next(tables, number, member, now):
            pass


def _enter_next(tables: PatternTables, number: int, member: Member, now: float) -> bool:
    """A member enters its next repetition or round; false where there is none, and the member is done.

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
    """A message has arrived. Its receiver takes it if it is in the message's repetition, otherwise as it enters that.

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
    """A member is done with one of its messages; after the last, it is ready for the next repetition."""
    member = tables.members[number]
    member.pending -= 1
    if member.pending == 0:
        tables.ready[tables.counts[READY]] = number
        tables.counts[READY] += 1


COMPILED = (_complete_one, _arrive, bytes_through, _enter_next, advance, handle)
"""what a driver in machine code calls, callees first"""
