"""Carries out a collective: one state machine, with one driver for a network of its own and one for a shared network.

Read `patterns` before, which defines patterns and their rules. The state machine implements these rules once: when a
message can start, what its arrival enables, when a member is done. Its state is a few tables of numbers:

* Messages, rounds and members are rows of tables and are referred to by number, as links and flows in `max_min`. A
  table is a list of objects, or an array of records with the same fields for compiled code.
* A message that is repeated is one row, because its sender does not send it again before its bytes have left.
* Events are numbered, so that an indexed heap can hold them. With M messages: m is the arrival of message m, M + m the
  end of adding it, 2 M + m the end of the transfer of a message m that takes no time, 3 M + q the entry of member q.

A driver calls `handle` when an event of `tables.events` is due, and `bytes_through` when the transfer of a message has
ended. After each, it calls `advance`, which fills two queues for the driver: `tables.events` with later events, and
`tables.starts` with the messages whose transfer begins now. There are two drivers, because a collective that is alone
on its ports (most collectives of most runs) needs neither SimPy nor the flows of others: a message of a ring costs 13
to 25 µs with SimPy's events, 14 µs in the plain loop of `run`, and 0.4 µs in the same loop as machine code, which takes
a second to load. A collective changes drivers while it runs, with its `Progress` (`contention`).

* Invariant: all events of one instant are processed before rates are solved, once. Times that differ only by rounding
  count as one instant (`max_min.together`). So events need no priorities.
* Rejected: callbacks from the state machine into the driver, because numba compiles this code and compiled code cannot
  call SimPy. For the same reason the code consists of indexing, arithmetic and loops, as in `max_min`, and functions
  do not recurse: a member that has completed a round is put on a list.
* Source: the loop is that of `max_min.play`, with a second queue, and has no other source.

In the functions of the state machine, `tables` is the state and `now` the time in seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableSequence
from dataclasses import dataclass
from functools import cache
from math import inf
from typing import Any, NamedTuple

import numpy as np
import simpy

from paceline.algorithms.core.values import Rank
from paceline.simulator.collectives.patterns import Amounts
from paceline.simulator.collectives.plans import CollectivePlan
from paceline.simulator.flows.fabric import Fabric
from paceline.simulator.flows.flow_engine import Port
from paceline.simulator.flows.max_min import (
    NONE,
    Floats,
    Ints,
    Net,
    Queue,
    as_arrays,
    as_lists,
    compiled,
    empty_queue,
    enter,
    least,
    leave,
    put,
    records,
    solve,
    take,
    together,
    whole_network,
)
from paceline.simulator.flows.path_tables import Numbers, Path
from paceline.simulator.kernel.simpy_events import after, upon

MANY = 5000
"""number of messages from which compiled code is used, because most collectives are simulated several times"""
MANY_ONCE = 50_000
"""the same up to a given time, which is simulated once: loading takes as long as about this many messages in plain
Python"""
READY, STARTS, OPEN = range(3)
"""indices into `PatternTables.counts`"""
Carry = Callable[[Rank, Rank, float, Path], simpy.Event]
"""begins a transfer from one rank to another along a path; returns an event that is triggered at its end, not before"""
TakeBack = Callable[[simpy.Event], float]
"""ends a transfer that `Carry` has begun, and returns the bytes that are left of it"""


@dataclass(slots=True)
class RoundMessage:
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

    messages: MutableSequence[RoundMessage]
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


class Progress(NamedTuple):
    """A collective that has begun."""

    tables: PatternTables
    """its state"""
    left: Mapping[int, float] = {}
    """the bytes that are left of each message in flight, by its number"""
    time_s: float = 0.0
    """the time of this state, counted from the instant at which messages may begin"""

    def finish_s(self, entries_s: Amounts) -> Amounts:
        """Returns when each member of the group has completed all parts, in seconds.

        Args:
            entries_s: when each member entered; also the result for a member without messages.
        """
        through_s = np.reshape(column(self.tables.members, "finish_s"), (-1, len(entries_s)))
        finish_s: Amounts = np.maximum(entries_s, through_s.max(axis=0, initial=0.0))
        return finish_s

    def last_entries(self, number: int, times: int) -> list[Amounts]:
        """Returns when the members of a round entered its last three repetitions, in order.

        Args:
            number: the number of the round, counted over all parts.
            times: how often it was repeated.
        """
        rows = np.reshape(self.tables.entered, (-1, 3))[np.array(column(self.tables.rounds, "round")) == number]
        return [rows[:, (times - back) % 3] for back in (3, 2, 1)]


def column(table: Any, name: str) -> Any:
    """Returns the field `name` of all rows of a table, which is a list or an array."""
    return [getattr(row, name) for row in table] if isinstance(table, list) else table[name]


def begun(plan: CollectivePlan, entries_s: Amounts | None = None) -> Progress:
    """Returns the state in which the entry of every member is ahead, as arrays.

    Args:
        plan: the collective.
        entries_s: when each member enters, seconds; all at 0 by default.
    """
    p, parts = len(plan.ranks), plan.pattern.parts
    rounds = [round_ for own in parts for round_ in own]
    sizes = [len(round_.sources) for round_ in rounds]
    first = np.repeat([part * p for part, own in enumerate(parts) for _ in own], sizes).astype(np.int64)
    number = np.repeat(np.arange(len(rounds)), sizes)
    none: Numbers = np.zeros(0, dtype=np.int64)
    source, target = (
        first + np.concatenate([none, *ends])
        for ends in ([round_.sources for round_ in rounds], [round_.targets for round_ in rounds])
    )
    ahead = np.repeat([round_.times if round_.buffered else 1 for round_ in rounds], sizes).astype(np.int64)
    nbytes = np.concatenate([np.zeros(0), *(round_.nbytes for round_ in rounds)])
    adding_s = nbytes * np.repeat([plan.reduce_s_per_byte if round_.reduces else 0.0 for round_ in rounds], sizes)
    messages = records(
        RoundMessage, round=number, source=source, target=target, due=np.cumsum(ahead) - ahead, ahead=ahead,
        nbytes=nbytes, adding_s=adding_s,
    )  # fmt: skip
    # the messages of each member in each of its rounds: those that it sends and those that it receives
    message, member, turn = np.tile(np.arange(len(messages)), 2), np.r_[source, target], np.tile(number, 2)
    order = np.lexsort((message, turn, member))
    member, turn = member[order], turn[order]
    begins = np.flatnonzero(np.r_[True, (np.diff(member) != 0) | (np.diff(turn) != 0)][: len(member)])
    facts = np.array([(round_.times, round_.buffered, round_.blocking) for round_ in rounds], dtype=np.int64).reshape(
        -1, 3
    )
    times, buffered, blocking = facts[turn[begins]].T
    own = np.searchsorted(member[begins], np.arange(p * len(parts) + 1))
    tables = PatternTables(
        messages=messages,
        rounds=records(
            MemberRound, round=turn[begins], first=begins, count=np.diff(np.r_[begins, len(member)]), times=times,
            buffered=buffered, blocking=blocking,
        ),
        members=records(Member, next=own[:-1], last=own[1:]),
        own_messages=message[order],  # type: ignore[arg-type]
        dues=np.zeros(int(ahead.sum())),  # type: ignore[arg-type]
        entered=np.zeros(3 * len(begins)),  # type: ignore[arg-type]
        events=empty_queue(3 * len(messages) + p * len(parts)),
        ready=np.zeros(p * len(parts), dtype=np.int64),  # type: ignore[arg-type]
        starts=np.zeros(len(messages), dtype=np.int64),  # type: ignore[arg-type]
        counts=np.zeros(3, dtype=np.int64),  # type: ignore[arg-type]
    )  # fmt: skip
    times_s = [0.0] * p if entries_s is None else entries_s.tolist()
    entering = np.flatnonzero(own[:-1] < own[1:]).tolist()
    for place in entering:
        put(tables.events, 3 * len(messages) + place, times_s[place % p])
    tables.counts[OPEN] = len(entering)
    return Progress(tables)


# --- plain Python, or machine code: the state machine -----------------------------------------------------------------


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


# --- on a network of its own ------------------------------------------------------------------------------------------


class OwnNetwork(NamedTuple):
    """The network of a collective that is alone: links, and flows for all its messages."""

    net: Net
    flow_of: Ints
    """the flow of each message; NONE if its path has no ports and no limit"""
    message_of: Ints
    """the message that each flow moves at present"""


def simulate_alone(
    plan: CollectivePlan, fabric: Fabric, progress: Progress, until_s: float = inf, *, compiled: bool | None = None
) -> Progress:
    """Simulates a collective that nothing else disturbs.

    Args:
        plan: the collective.
        fabric: its network.
        progress: its state, which is not changed.
        until_s: the time, counted from that at which messages may begin; events at this time are not processed.
        compiled: whether to run compiled code; by default, if there are many messages.

    Returns:
        Its state at the given time, or at its end.
    """
    if compiled is None:
        compiled = plan.pattern.messages >= (MANY if until_s == inf else MANY_ONCE)
    tables, now, paths = as_arrays(progress.tables), progress.time_s, plan.message_paths
    tables.messages["latency_s"] = paths.latency_s[paths.of_message]  # type: ignore[call-overload]
    network = _own_network(plan, fabric.capacity)
    if not compiled:
        tables = as_lists(tables)
    if progress.left or not compiled:
        network = as_lists(network)
    for index, nbytes in progress.left.items():
        move(tables, network, index, nbytes, now)
    if progress.left:
        solve(network.net, now)
        network = as_arrays(network) if compiled else network
    (machine_code() if compiled else run)(tables, network, now, until_s)
    net, left = network.net, {}
    for number in net.ends.order[: int(net.ends.size[0])]:
        flow = net.flows[number]
        left[int(network.message_of[number])] = max(0.0, float(flow.remaining - flow.rate * (until_s - flow.since)))
    return Progress(tables, left, until_s)


def _own_network(plan: CollectivePlan, capacity: Mapping[Port, float]) -> OwnNetwork:
    """Returns the network, as arrays. Its links are the ports, followed by one link for each flow that has a limit.

    Messages of one part on one path share a flow, except for several such messages of one round.
    """
    paths, parts = plan.message_paths, plan.pattern.parts
    path_of = paths.of_message
    sizes = [len(round_.sources) for own in parts for round_ in own]
    number = np.repeat(np.arange(len(sizes)), sizes)
    way = np.repeat([part * len(paths.source) for part, own in enumerate(parts) for _ in own], sizes) + path_of
    order = np.lexsort((way, number))
    like = np.flatnonzero(np.r_[True, (np.diff(way[order]) != 0) | (np.diff(number[order]) != 0)])
    same = np.empty_like(way)
    same[order] = np.arange(len(way)) - np.repeat(like, np.diff(np.r_[like, len(way)]))
    flow = np.unique(way * (same.max() + 1) + same, return_inverse=True)[1]
    path = np.zeros(flow.max() + 1, dtype=np.int64)
    path[flow] = path_of
    hops, limits = paths.hops[path], paths.limit_bytes_per_s[path]
    ends, limited = np.cumsum(hops), np.isfinite(limits)
    at = np.arange(int(hops.sum())) + np.repeat(paths.first[path] - (ends - hops), hops)
    own = len(paths.ports) + np.arange(int(limited.sum()))
    routes = np.insert(paths.passes[at], ends[limited], own)
    net = whole_network(np.r_[paths.capacities(capacity), limits[limited]], hops + limited, routes)
    moves = ((hops > 0) | limited)[flow]
    return OwnNetwork(net, np.where(moves, flow, NONE), np.zeros(len(path), dtype=np.int64))  # type: ignore[arg-type]


@cache
def machine_code() -> Callable[..., Any]:
    """Returns `run`, which numba compiles at its first call."""
    return compiled(run)


def run(tables: PatternTables, network: OwnNetwork, now: float, until: float) -> None:
    """Processes all events before a time, in plain Python or as machine code.

    Args:
        tables: the state.
        network: the collective's network.
        now: the time at which it begins, or goes on.
        until: the time; events at this time are not processed.
    """
    net = network.net
    while min(least(tables.events), least(net.ends)) < until:
        soonest = min(least(tables.events), least(net.ends))
        latest = together(soonest, now)
        now = soonest
        while least(net.ends) <= latest:
            flow = net.ends.order[0]
            leave(net, flow, now)
            bytes_through(tables, network.message_of[flow], now)
        while least(tables.events) <= latest:
            item = tables.events.order[0]
            take(tables.events, item)
            handle(tables, item, now)
            if tables.counts[READY] > 0:
                proceed(tables, network, now)
        if tables.counts[READY] > 0:
            proceed(tables, network, now)
        solve(net, now)


def proceed(tables: PatternTables, network: OwnNetwork, now: float) -> None:
    """Lets members that are ready proceed, and starts messages."""
    advance(tables, now)
    for at in range(tables.counts[STARTS]):
        index = tables.starts[at]
        move(tables, network, index, tables.messages[index].nbytes, now)
    tables.counts[STARTS] = 0


def move(tables: PatternTables, network: OwnNetwork, index: int, nbytes: float, now: float) -> None:
    """Begins the transfer of a message, or of what is left of it; one without flow or bytes ends at once."""
    flow = network.flow_of[index]
    if flow == NONE or nbytes == 0.0:
        put(tables.events, 2 * len(tables.messages) + index, now)
    else:
        network.net.flows[flow].remaining = nbytes
        network.message_of[flow] = index
        enter(network.net, flow, now)


# --- on a shared network ----------------------------------------------------------------------------------------------


class EventDriver:
    """A collective on a shared network.

    Args:
        env: the clock.
        carry: begins a transfer on the network.
        plan: the collective.
        begun_s: the time at which its messages may begin, now or later; now by default.
        progress: its state; by default all members enter at `begun_s`.
    """

    def __init__(
        self,
        env: simpy.Environment,
        carry: Carry,
        plan: CollectivePlan,
        begun_s: float | None = None,
        progress: Progress | None = None,
    ) -> None:
        self._env, self._carry, self._plan = env, carry, plan
        self._begun_s = env.now if begun_s is None else begun_s
        progress = begun(plan) if progress is None else progress
        self._tables = as_lists(progress.tables)
        self.progress = Progress(self._tables)
        """its state, except for what is in flight"""
        self.done: simpy.Event = env.event()
        """triggered when every member has completed all its rounds"""
        self._processed_s = self._now
        """when events were processed for the last time"""
        self._due_s: float | None = None
        """when the next event is due; timers for other times are ignored"""
        self._moving: dict[int, simpy.Event] | None = {}
        """the transfers under way, by the number of their message; None after `stop`"""
        for index, nbytes in progress.left.items():
            self._start(index, nbytes)
        self._proceed()

    @property
    def _now(self) -> float:
        """The present time as the tables count it."""
        return self._env.now - self._begun_s

    def _start(self, index: int, nbytes: float) -> None:
        """Begins the transfer of a message, or of what is left of it, on its present path: links may have failed."""
        message, ranks = self._tables.messages[index], self._plan.ranks
        path = self._plan.present_paths().singly[index]
        message.latency_s = path.latency_s
        event = self._carry(ranks[message.source % len(ranks)], ranks[message.target % len(ranks)], nbytes, path)
        assert self._moving is not None, "a driver that was stopped starts nothing"
        self._moving[index] = event
        upon(event, lambda _: self._through(index))

    def stop(self, take_back: TakeBack) -> Progress:
        """Ends the driver, and all its transfers where they are.

        Args:
            take_back: ends a transfer, and returns the bytes that are left of it.

        Returns:
            The state.
        """
        assert self._moving is not None, "a driver is stopped once"
        left = {index: take_back(event) for index, event in self._moving.items()}
        self._moving = self._due_s = None
        return Progress(self._tables, left, self._now)

    def _through(self, index: int) -> None:
        if self._moving is None:
            return
        del self._moving[index]
        bytes_through(self._tables, index, self._now)
        self._proceed()

    def _process(self, due_s: float) -> None:
        """Processes all events that are due at this time."""
        if due_s != self._due_s:
            return
        tables, now = self._tables, self._now
        latest_s, self._processed_s, self._due_s = together(due_s, self._processed_s), now, None
        while least(tables.events) <= latest_s:
            item = tables.events.order[0]
            take(tables.events, item)
            handle(tables, item, now)
            advance(tables, now)
        self._proceed()

    def _proceed(self) -> None:
        """Lets members proceed, starts messages, and starts a timer for the next event."""
        tables, now = self._tables, self._now
        advance(tables, now)
        count, tables.counts[STARTS] = tables.counts[STARTS], 0
        for index in tables.starts[:count]:
            self._start(index, tables.messages[index].nbytes)
        due_s = least(tables.events)
        if not tables.counts[OPEN]:
            self.done.succeed()
        elif tables.events.size[0] and due_s != self._due_s:
            self._due_s = due_s
            after(self._env, max(0.0, due_s - now), lambda _: self._process(due_s))
