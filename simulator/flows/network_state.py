"""What the network engine works on: links, flows, and the entries where they meet.

Rules of this file:

* Each kind stands in a table, and everything is named by its number there. Tables are lists of objects, which grow
  while a run goes on, or arrays of records with the same fields, which machine code takes. Both are filled here and
  nowhere else.
* A link is not more than its capacity. A limit on each single flow is a link of that flow's own.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableSequence, Sequence
from dataclasses import dataclass, fields
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

Floats = MutableSequence[float]
Ints = MutableSequence[int]
NONE = -1
"""no flow, no link, no entry, no place, no turn"""


@dataclass(slots=True)
class Link:
    """What flows share."""

    capacity: float
    room: float
    """what no flow has that keeps its rate"""
    carried: float = 0.0
    """bytes of flows that have left, as rates times durations"""
    head: int = NONE
    """its first entry"""
    holding: int = 0
    """how many flows it is the bottleneck of"""
    held: float = 0.0
    """their rate"""
    waiting: int = 0
    """entries of flows that rise"""
    quickest: float = 0.0
    """none of the others is faster"""
    turn: int = NONE
    """the latest in which that was found out, and the room counted"""


@dataclass(slots=True)
class Flow:
    """What remains of so many bytes, and how fast it goes."""

    first: int
    hops: int
    """its entries are first, first + 1, …, first + hops - 1"""
    remaining: float
    moved: float = 0.0
    """bytes since it entered"""
    since: float = 0.0
    """the time at which so much remained"""
    rate: float = 0.0
    bottleneck: int = NONE
    turn: int = NONE
    """the latest in which it was freed"""
    rising: int = 0
    """1 from then until it has its new rate"""


@dataclass(slots=True)
class Entry:
    """A flow's place in the list of those that a link carries."""

    link: int
    flow: int
    after: int = NONE
    before: int = NONE


class Queue(NamedTuple):
    """A binary heap whose items know their places, so that a key can change."""

    key: Floats
    order: Ints
    place: Ints
    size: Ints


class Net(NamedTuple):
    """The tables, and who is next."""

    links: MutableSequence[Link]
    flows: MutableSequence[Flow]
    entries: MutableSequence[Entry]
    levels: Queue
    """links by the rate at which they are full, or less"""
    holds: Queue
    """links by the rate of those that they hold back"""
    ends: Queue
    """flows by the time at which they end"""
    turn: Ints
    """the number of this one"""


def network(capacity: Iterable[float]) -> Net:
    """Links of such capacities (bytes per second), and no flow yet."""
    levels, holds, ends = (Queue([], [], [], [0]) for _ in range(3))
    net = Net([], [], [], levels, holds, ends, [0])
    for bytes_per_s in capacity:
        add_link(net, bytes_per_s)
    return net


def add_link(net: Net, bytes_per_s: float) -> int:
    """A link more; says its number."""
    net.links.append(Link(float(bytes_per_s), float(bytes_per_s)))
    _make_room(net.levels)
    _make_room(net.holds)
    return len(net.links) - 1


def add_flow(net: Net, route: Sequence[int], nbytes: float) -> int:
    """A flow more, which has yet to enter; says its number."""
    number = len(net.flows)
    net.flows.append(Flow(len(net.entries), len(route), float(nbytes)))
    net.entries.extend([Entry(link, number) for link in route])
    _make_room(net.ends)
    return number


def _make_room(queue: Queue) -> None:
    queue.key.append(0.0)
    queue.order.append(0)
    queue.place.append(NONE)


def as_arrays(net: Net) -> Net:
    """A copy whose tables are arrays of records."""
    tables = [_records(kind, table) for kind, table in ((Link, net.links), (Flow, net.flows), (Entry, net.entries))]
    queues = [Queue._make(map(np.array, queue)) for queue in (net.levels, net.holds, net.ends)]
    return Net._make([*tables, *queues, np.array(net.turn)])


def with_room(net: Any, links: int, flows: int, hops: int) -> Net:
    """A copy of tables that are arrays, with so many links and so many flows of so many hops more, for later use."""
    count = len(net.entries)
    own = [Entry(NONE, len(net.flows) + at // hops) for at in range(flows * hops)]
    more = [Flow(count + number * hops, hops, 0.0) for number in range(flows)]
    tables = [
        np.concatenate((table, _records(kind, rows))).view(np.recarray) if rows else table
        for table, kind, rows in (
            (net.links, Link, [Link(0.0, 0.0)] * links),
            (net.flows, Flow, more),
            (net.entries, Entry, own),
        )
    ]
    queues = [_roomier(queue, more) for queue, more in ((net.levels, links), (net.holds, links), (net.ends, flows))]
    return Net._make([*tables, *queues, net.turn])


def _roomier(queue: Any, more: int) -> Queue:
    spare: Any = empty_queue(more)
    grown = [np.concatenate(pair) for pair in list(zip(queue, spare, strict=True))[:3]]
    return Queue._make([*grown, queue.size])


def whole_network(capacity: Any, hops: Any, routes: Any) -> Net:
    """Links and flows all at once, as arrays; the flows have yet to enter.

    Args:
        capacity: bytes per second of each link.
        hops: how many links each flow passes.
        routes: their numbers, one flow's after the other's.
    """
    links, flows, size = np.zeros(len(capacity)), np.zeros(len(hops)), np.zeros(len(routes))
    number = np.repeat(np.arange(len(hops)), hops)
    tables = [
        records(Link, [capacity, capacity, links, links + NONE, links, links, links, links, links + NONE]),
        records(Flow, [np.cumsum(hops) - hops, hops, *[flows] * 4, flows + NONE, flows + NONE, flows]),
        records(Entry, [routes, number, size + NONE, size + NONE]),
    ]
    queues = [empty_queue(len(table)) for table in (capacity, capacity, hops)]
    return Net._make([*tables, *queues, np.zeros(1, dtype=np.int64)])


def empty_queue(size: int) -> Queue:
    """Room for so many items, as arrays."""
    return Queue(np.zeros(size), np.zeros(size, dtype=np.int64), np.full(size, NONE), np.zeros(1, dtype=np.int64))  # type: ignore[arg-type]


def as_lists(net: Any) -> Net:
    """A copy whose tables are lists of objects."""
    tables = [
        [kind(*row) for row in table.tolist()]
        for kind, table in ((Link, net.links), (Flow, net.flows), (Entry, net.entries))
    ]
    queues = [Queue._make(column.tolist() for column in queue) for queue in (net.levels, net.holds, net.ends)]
    return Net._make([*tables, *queues, net.turn.tolist()])


def records(kind: Any, table: Sequence[Any]) -> Any:
    """Columns, one for each field of a kind, as an array of records."""
    found = np.zeros(len(table[0]), dtype=_types(kind))
    for (name, _), column in zip(_columns(kind), table, strict=True):
        found[name] = column
    return found.view(np.recarray)


def _records(kind: Any, rows: Sequence[Any]) -> Any:
    values = list(map(attrgetter(*(name for name, _ in _columns(kind))), rows))
    return np.array(values, dtype=_types(kind)).view(np.recarray)


@cache
def _columns(kind: Any) -> list[tuple[str, str]]:
    return [(field.name, "i4" if field.type == "int" else "f8") for field in fields(kind)]


@cache
def _types(kind: Any) -> np.dtype[Any]:
    return np.dtype(_columns(kind), align=True)
