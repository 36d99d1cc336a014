"""A collective's pattern as tables of numbers: the state of the state machine.

* Messages, rounds and members are rows of tables and are referred to by number, as links and flows in `network_state`.
  A table is a list of objects, or an array of records with the same fields for compiled code.
* A message that is repeated is one row, because its sender does not send it again before its bytes have left.
* Events are numbered, so that an indexed heap can hold them. With M messages: m is the arrival of message m, M + m the
  end of adding it, 2 M + m the end of the transfer of a message m that takes no time, 3 M + q the entry of member q.
"""

from __future__ import annotations

from collections.abc import MutableSequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from paceline.simulator.collectives.collective_plan import CollectivePlan
from paceline.simulator.collectives.message_paths import Numbers
from paceline.simulator.collectives.rounds import Amounts
from paceline.simulator.flows.indexed_heap import put
from paceline.simulator.flows.network_state import NONE, Floats, Ints, Queue, as_records, empty_queue, records

READY, STARTS, OPEN = range(3)
"""indices into `PatternTables.counts`"""


@dataclass(slots=True)
class Message:
    """A message from one member to another in a round, sent once in each repetition."""

    round: int
    """number of the round, counted over all parts"""
    source: int
    """the member that sends it"""
    target: int
    due: int
    """index of its first arrival in `dues`"""
    ahead: int
    """largest number of its repetitions that may be in flight at once"""
    nbytes: float
    adding_s: float
    """seconds that its receiver needs to add it"""
    latency_s: float = 0.0
    """of its path; set by the driver before the end of the transfer"""
    sent: int = 0
    """number of repetitions whose transfer has ended"""
    arrived: int = 0
    """number of repetitions that have arrived"""
    waiting: int = 0
    """1 if only one of its ends has entered the round"""


@dataclass(slots=True)
class MemberRound:
    """One member's part in a round."""

    round: int
    first: int
    count: int
    """its messages are first, first + 1, …, first + count - 1 of `own_messages`"""
    times: int
    buffered: int
    blocking: int


@dataclass(slots=True)
class Member:
    """A member of the group in one part of the pattern."""

    next: int
    """its next round"""
    last: int
    """the end of its rounds"""
    round: int = NONE
    """its present round"""
    times: int = 0
    repetition: int = 0
    pending: int = 0
    """number of messages of this repetition that are not complete"""
    finish_s: float = 0.0


class PatternTables(NamedTuple):
    """The state of a collective. Times count from the instant at which its messages may begin."""

    messages: MutableSequence[Message]
    rounds: MutableSequence[MemberRound]
    members: MutableSequence[Member]
    own_messages: Ints
    """the messages of each member in each of its rounds"""
    dues: Floats
    """when the repetitions of messages in flight arrive"""
    entered: Floats
    """for each round of each member: when it entered the last three repetitions"""
    events: Queue
    """events by the time at which they are due"""
    ready: Ints
    """members that have entered, or have completed a repetition, and can proceed"""
    starts: Ints
    """messages whose transfer begins now; the driver takes them"""
    counts: Ints
    """three numbers: members that are ready, messages that start, members that have not completed all rounds"""


def build_tables(plan: CollectivePlan) -> PatternTables:
    """Returns the state before any member has entered, as arrays."""
    columns = _message_columns(plan)
    none = np.zeros(len(columns[0]))
    ahead = columns[3]
    due = np.cumsum(ahead) - ahead
    messages = records(Message, [*columns[:3], due, *columns[3:], none, none, none, none])
    rounds, members, own = _member_rounds(plan, messages)
    count = len(messages)
    return PatternTables(
        messages=messages,
        rounds=rounds,
        members=members,
        own_messages=own,
        dues=np.zeros(int(ahead.sum())),  # type: ignore[arg-type]
        entered=np.zeros(3 * len(rounds)),  # type: ignore[arg-type]
        events=empty_queue(3 * count + len(members)),
        ready=np.zeros(len(members), dtype=np.int64),  # type: ignore[arg-type]
        starts=np.zeros(count, dtype=np.int64),  # type: ignore[arg-type]
        counts=np.zeros(3, dtype=np.int64),  # type: ignore[arg-type]
    )


def enter_all(tables: PatternTables, entries_s: Amounts) -> None:
    """Schedules the entry of every member, in all parts in which it has messages.

    Args:
        tables: the state before any member has entered.
        entries_s: when each member of the group enters, seconds.
    """
    rounds = zip(column(tables.members, "next"), column(tables.members, "last"), strict=True)
    entering = [number for number, (first, last) in enumerate(rounds) if first < last]
    times_s, first_entry = entries_s.tolist(), 3 * len(tables.messages)
    for number in entering:
        put(tables.events, first_entry + number, times_s[number % len(times_s)])
    tables.counts[OPEN] = len(entering)


def finish_s(tables: PatternTables, entries_s: Amounts) -> Amounts:
    """Returns when each member of the group has completed all parts, in seconds.

    Args:
        tables: the final state.
        entries_s: when each member entered; also the result for a member without messages.
    """
    through_s = np.reshape(column(tables.members, "finish_s"), (-1, len(entries_s)))
    found: Amounts = np.maximum(entries_s, through_s.max(axis=0, initial=0.0))
    return found


def column(table: Any, name: str) -> Any:
    """Returns the field `name` of all rows of a table, which is a list or an array."""
    return [getattr(row, name) for row in table] if isinstance(table, list) else table[name]


def as_lists(tables: Any) -> PatternTables:
    """Returns a copy whose tables are lists, which plain Python reads faster than arrays."""
    messages, rounds, members, *rest = tables
    if isinstance(messages, list):
        return PatternTables._make(tables)
    kinds = ((Message, messages), (MemberRound, rounds), (Member, members))
    rows: Any = [[kind(*row) for row in table.tolist()] for kind, table in kinds]
    return PatternTables(*rows, *map(_listed, rest))


def as_arrays(tables: PatternTables) -> PatternTables:
    """Returns a copy whose tables are arrays, as those of `build_tables`."""
    key, *places = tables.events
    return PatternTables(
        messages=as_records(Message, tables.messages),
        rounds=as_records(MemberRound, tables.rounds),
        members=as_records(Member, tables.members),
        own_messages=_ints(tables.own_messages),
        dues=np.array(tables.dues, dtype=float),  # type: ignore[arg-type]
        entered=np.array(tables.entered, dtype=float),  # type: ignore[arg-type]
        events=Queue(np.array(key, dtype=float), *map(_ints, places)),  # type: ignore[arg-type]
        ready=_ints(tables.ready),
        starts=_ints(tables.starts),
        counts=_ints(tables.counts),
    )


def _ints(numbers: Ints) -> Any:
    return np.array(numbers, dtype=np.int64)


def _listed(column: Any) -> Any:
    return Queue._make(map(_listed, column)) if isinstance(column, Queue) else column.tolist()


def _message_columns(plan: CollectivePlan) -> list[Any]:
    """Returns columns with one entry per message: round, source, target, ahead, bytes, seconds to add it."""
    found: list[tuple[Any, ...]] = [(np.zeros(0, dtype=np.int64),) * 4 + (np.zeros(0),) * 2]
    number = 0
    for part, rounds in enumerate(plan.pattern.parts):
        first = part * len(plan.ranks)
        for one in rounds:
            like = np.ones_like(one.sources)
            ahead = like * (one.times if one.buffered else 1)
            adding_s = one.nbytes * (plan.reduce_s_per_byte if one.reduces else 0.0)
            found.append((like * number, one.sources + first, one.targets + first, ahead, one.nbytes, adding_s))
            number += 1
    return list(map(np.concatenate, zip(*found, strict=True)))


def _member_rounds(plan: CollectivePlan, messages: Any) -> tuple[Any, Any, Any]:
    """Builds the tables of the members' rounds, of the members, and of their messages in each round."""
    rounds = [one for part in plan.pattern.parts for one in part]
    message: Numbers = np.tile(np.arange(len(messages)), 2)
    member, number = np.r_[messages["source"], messages["target"]], np.tile(messages["round"], 2)
    order = np.lexsort((message, number, member))
    member, number = member[order], number[order]
    first = np.flatnonzero(np.r_[True, (np.diff(member) != 0) | (np.diff(number) != 0)][: len(member)])
    facts = np.array([(one.times, one.buffered, one.blocking) for one in rounds], dtype=np.int64).reshape(-1, 3)
    facts = facts[number[first]]
    turns = records(MemberRound, [number[first], first, np.diff(np.r_[first, len(member)]), *facts.T])
    begins = np.searchsorted(member[first], np.arange(len(plan.ranks) * len(plan.pattern.parts) + 1))
    none = np.zeros(len(begins) - 1)
    return turns, records(Member, [begins[:-1], begins[1:], none + NONE, none, none, none, none]), message[order]
