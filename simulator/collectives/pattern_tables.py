"""A play as tables of numbers, for carrying it out alone, without SimPy: what `solo` works on.

Rules of this file:

* As in `net`, each kind stands in a table and is named by its number there; tables are lists of objects, or arrays of
  records with the same fields, which machine code takes.
* A message that is sent several times is one row: its sender sends it again only when its bytes are through.
* What is to happen has a number, too, so that a queue can hold it. Of message m: its arrival (m), the end of being
  added (M + m), being through at once (2 M + m); of player q: coming (3 M + q).
"""

from __future__ import annotations

from collections.abc import Mapping, MutableSequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from paceline.simulator.collectives.message_paths import Courses, Numbers
from paceline.simulator.collectives.performance import Play
from paceline.simulator.collectives.rounds import Amounts
from paceline.simulator.flows.flow_engine import Port
from paceline.simulator.flows.network_state import (
    NONE,
    Floats,
    Ints,
    Net,
    Queue,
    as_lists,
    empty_queue,
    records,
    whole_network,
)


@dataclass(slots=True)
class Message:
    """What one place sends another in a round, once in each repetition."""

    round: int
    source: int
    """the player"""
    target: int
    flow: int
    """in the network; NONE where it passes nothing"""
    due: int
    """where its arrivals stand in `dues`, as many as it may be ahead"""
    ahead: int
    nbytes: float
    latency_s: float
    adding_s: float
    """what its receiver needs then"""
    sent: int = 0
    arrived: int = 0
    waiting: int = 0
    """1 where one of its ends has come"""


@dataclass(slots=True)
class Turn:
    """A round in which a player takes part."""

    round: int
    first: int
    count: int
    """its messages are first, first + 1, …, first + count - 1 of `parts`"""
    times: int
    buffered: int
    blocking: int


@dataclass(slots=True)
class Player:
    """A place in one part of the pattern."""

    next: int
    """the turn that it has yet to come to, as far as `last`"""
    last: int
    turn: int = NONE
    """the one that it is in"""
    times: int = 0
    repetition: int = 0
    pending: int = 0
    """messages that keep it there"""
    finish_s: float = 0.0


class Evaluation(NamedTuple):
    """The tables, and what is to happen."""

    messages: MutableSequence[Message]
    turns: MutableSequence[Turn]
    players: MutableSequence[Player]
    parts: Ints
    """messages by turn"""
    carries: Ints
    """the message that a flow moves"""
    dues: Floats
    """when messages arrive that are on their way"""
    entered: Floats
    """of each turn: when it was come to, in the last three repetitions"""
    events: Queue
    ready: Ints
    """players that nothing keeps any more"""
    size: Ints
    """how many of those"""


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """All messages of a play, one column each."""

    round: Numbers
    source: Numbers
    target: Numbers
    path: Numbers
    flow: Numbers
    ahead: Numbers
    nbytes: Amounts
    adding_s: Amounts


def score(play: Play, courses: Courses, capacity: Mapping[Port, float], *, lists: bool) -> tuple[Evaluation, Net]:
    """The tables of a play, and a network of its own for it, as lists or as arrays."""
    rows = _rows(play, courses)
    net = _network(courses, rows, capacity)
    moved = (courses.hops[rows.path] > 0) | np.isfinite(courses.limit_bytes_per_s[rows.path])
    due, none = np.cumsum(rows.ahead) - rows.ahead, np.zeros_like(rows.round)
    flow = np.where(moved, rows.flow, NONE)
    given = [rows.round, rows.source, rows.target, flow, due, rows.ahead, rows.nbytes]
    messages = records(Message, [*given, courses.latency_s[rows.path], rows.adding_s, none, none, none])
    turns, players, parts = _turns(play, rows)
    columns = [np.zeros(len(net.flows), dtype=np.int64), np.zeros(int(rows.ahead.sum())), np.zeros(3 * len(turns))]
    events, ready = empty_queue(3 * len(messages) + len(players)), np.zeros(len(players), dtype=np.int64)
    tables = Evaluation._make([messages, turns, players, parts, *columns, events, ready, np.zeros(1, dtype=np.int64)])
    return (_as_lists(tables), as_lists(net)) if lists else (tables, net)


def column(table: Any, name: str) -> Any:
    """A field of all rows of a table, be it a list or an array."""
    return [getattr(row, name) for row in table] if isinstance(table, list) else table[name]


def _rows(play: Play, courses: Courses) -> Rows:
    p, gamma, number = len(play.ranks), play.reduce_s_per_byte, 0
    found: list[tuple[Any, ...]] = []
    for part, (rounds, paths) in enumerate(zip(play.pattern.parts, courses.of, strict=True)):
        for one, path in zip(rounds, paths, strict=True):
            like, ahead = np.ones_like(path), one.times if one.buffered else 1
            adding_s = one.nbytes * (gamma if one.reduces else 0.0)
            ends = one.sources + part * p, one.targets + part * p
            found.append((like * number, *ends, path, like * part, like * ahead, one.nbytes, adding_s))
            number += 1
    number_of, source, target, path, part_of, ahead_of, nbytes, adding = map(np.concatenate, zip(*found, strict=True))
    flow = _flows(number_of, part_of * len(courses.source) + path)
    return Rows(number_of, source, target, path, flow, ahead_of, nbytes, adding)


def _flows(number: Numbers, way: Numbers) -> Numbers:
    """One for all messages of one part on one path, but for those that one round has several of."""
    order = np.lexsort((way, number))
    like = np.flatnonzero(np.r_[True, (np.diff(way[order]) != 0) | (np.diff(number[order]) != 0)])
    same = np.empty_like(way)
    same[order] = np.arange(len(way)) - np.repeat(like, np.diff(np.r_[like, len(way)]))
    return np.unique(way * (same.max() + 1) + same, return_inverse=True)[1]


def _network(courses: Courses, rows: Rows, capacity: Mapping[Port, float]) -> Net:
    """Its links are the ports, then the limits of flows that have one."""
    path = np.zeros(rows.flow.max() + 1, dtype=np.int64)
    path[rows.flow] = rows.path
    hops = courses.hops[path]
    ends = np.cumsum(hops)
    at = np.arange(int(hops.sum())) + np.repeat(courses.first[path] - (ends - hops), hops)
    limits = courses.limit_bytes_per_s[path]
    limited = np.isfinite(limits)
    own = len(courses.ports) + np.arange(int(limited.sum()))
    routes = np.insert(courses.passes[at], ends[limited], own)
    return whole_network(np.r_[courses.capacities(capacity), limits[limited]], hops + limited, routes)


def _turns(play: Play, rows: Rows) -> tuple[Any, Any, Any]:
    """Who takes part in which rounds, with which messages."""
    rounds = [one for part in play.pattern.parts for one in part]
    message = np.tile(np.arange(len(rows.round)), 2)
    player, number = np.r_[rows.source, rows.target], np.tile(rows.round, 2)
    order = np.lexsort((message, number, player))
    player, number = player[order], number[order]
    first = np.flatnonzero(np.r_[True, (np.diff(player) != 0) | (np.diff(number) != 0)])
    facts = np.array([(one.times, one.buffered, one.blocking) for one in rounds], dtype=np.int64)[number[first]]
    turns = records(Turn, [number[first], first, np.diff(np.r_[first, len(player)]), *facts.T])
    begins = np.searchsorted(player[first], np.arange(len(play.ranks) * len(play.pattern.parts) + 1))
    none = np.zeros(len(begins) - 1)
    return turns, records(Player, [begins[:-1], begins[1:], none + NONE, none, none, none, none]), message[order]


def _as_lists(tables: Any) -> Evaluation:
    messages, turns, players, *rest = tables
    kinds = ((Message, messages), (Turn, turns), (Player, players))
    rows: Any = [[kind(*row) for row in table.tolist()] for kind, table in kinds]
    return Evaluation(*rows, *map(_listed, rest))


def _listed(column: Any) -> Any:
    return Queue._make(map(_listed, column)) if isinstance(column, Queue) else column.tolist()
