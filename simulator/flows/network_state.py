"""The tables of the network engine: links, flows, and the entries that connect them.

* There is one table for links, one for flows and one for entries; rows are referred to by number. A table is a list of
  objects, which can grow during a run, or an array of records with the same fields, for compiled code. Only this module
  builds them.
* A link has a capacity only. The limit of a single flow is represented by a link that only this flow uses.
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
"""marks the absence of a flow, link, entry, position or solution"""


@dataclass(slots=True)
class Link:
    """A resource that flows share."""

    capacity: float
    """bytes per second"""
    room: float
    """capacity that is not used by flows that keep their rates"""
    carried: float = 0.0
    """bytes of flows that have left, as rates times durations"""
    head: int = NONE
    """its first entry"""
    holding: int = 0
    """number of flows whose bottleneck it is"""
    held: float = 0.0
    """the rate of these flows"""
    waiting: int = 0
    """number of entries of flows that rise"""
    fastest: float = 0.0
    """the largest rate of the flows that keep theirs"""
    turn: int = NONE
    """the latest solution in which `room` and `fastest` were recomputed"""


@dataclass(slots=True)
class Flow:
    """A flow, with its remaining bytes and its rate."""

    first: int
    hops: int
    """its entries are first, first + 1, …, first + hops - 1"""
    remaining: float
    moved: float = 0.0
    """bytes moved since it entered"""
    since: float = 0.0
    """the time at which `remaining` and `moved` were updated"""
    rate: float = 0.0
    bottleneck: int = NONE
    turn: int = NONE
    """the latest solution in which it was freed"""
    rising: int = 0
    """1 from when it is freed until it has its new rate"""


@dataclass(slots=True)
class Entry:
    """One flow on one link: an element of the link's linked list of flows."""

    link: int
    flow: int
    after: int = NONE
    before: int = NONE


class Queue(NamedTuple):
    """An indexed binary heap (see `indexed_heap`)."""

    key: Floats
    """of each item"""
    order: Ints
    """the items, smallest key first"""
    place: Ints
    """the position of each item in `order`, or NONE"""
    size: Ints
    """one number: how many items are in the heap"""


class Net(NamedTuple):
    """The tables, and the queues of the solver."""

    links: MutableSequence[Link]
    flows: MutableSequence[Flow]
    entries: MutableSequence[Entry]
    levels: Queue
    """links by a lower bound of the rate at which they are full"""
    holds: Queue
    """links by the rate of the flows that they hold back"""
    ends: Queue
    """flows by the time at which they end"""
    turn: Ints
    """one number: that of the present solution"""


def network(capacity: Iterable[float]) -> Net:
    """Returns a network with links of these capacities (bytes per second) and no flows."""
    levels, holds, ends = (Queue([], [], [], [0]) for _ in range(3))
    net = Net([], [], [], levels, holds, ends, [0])
    for bytes_per_s in capacity:
        add_link(net, bytes_per_s)
    return net


def add_link(net: Net, bytes_per_s: float) -> int:
    """Adds a link and returns its number.

    Args:
        net: the network, as lists.
        bytes_per_s: the link's capacity.
    """
    net.links.append(Link(float(bytes_per_s), float(bytes_per_s)))
    _make_room(net.levels)
    _make_room(net.holds)
    return len(net.links) - 1


def add_flow(net: Net, route: Sequence[int], nbytes: float) -> int:
    """Adds a flow that has not entered and returns its number.

    Args:
        net: the network, as lists.
        route: the numbers of its links.
        nbytes: its bytes.
    """
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
    """Returns a copy whose tables are arrays of records."""
    tables = [as_records(kind, table) for kind, table in ((Link, net.links), (Flow, net.flows), (Entry, net.entries))]
    queues = [Queue._make(map(np.array, queue)) for queue in (net.levels, net.holds, net.ends)]
    return Net._make([*tables, *queues, np.array(net.turn)])


def with_room(net: Any, links: int, flows: int, hops: int) -> Net:
    """Returns a copy with unused rows for later use.

    Args:
        net: the network, as arrays.
        links: number of links to add.
        flows: number of flows to add.
        hops: number of links of each of these flows.
    """
    count = len(net.entries)
    own = [Entry(NONE, len(net.flows) + at // hops) for at in range(flows * hops)]
    more = [Flow(count + number * hops, hops, 0.0) for number in range(flows)]
    tables = [
        np.concatenate((table, as_records(kind, rows))).view(np.recarray) if rows else table
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
    """Returns a network as arrays, with flows that have not entered.

    Args:
        capacity: bytes per second of each link.
        hops: the number of links that each flow passes.
        routes: the numbers of these links, flow after flow.
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
    """Returns an empty heap of arrays for `size` items."""
    return Queue(np.zeros(size), np.zeros(size, dtype=np.int64), np.full(size, NONE), np.zeros(1, dtype=np.int64))  # type: ignore[arg-type]


def as_lists(net: Any) -> Net:
    """Returns a copy whose tables are lists of objects."""
    tables = [
        [kind(*row) for row in table.tolist()]
        for kind, table in ((Link, net.links), (Flow, net.flows), (Entry, net.entries))
    ]
    queues = [Queue._make(column.tolist() for column in queue) for queue in (net.levels, net.holds, net.ends)]
    return Net._make([*tables, *queues, net.turn.tolist()])


def records(kind: Any, table: Sequence[Any]) -> Any:
    """Returns an array of records.

    Args:
        kind: the dataclass of a row.
        table: one column for each of its fields.
    """
    found = np.zeros(len(table[0]), dtype=_types(kind))
    for (name, _), column in zip(_columns(kind), table, strict=True):
        found[name] = column
    return found.view(np.recarray)


def as_records(kind: Any, rows: Sequence[Any]) -> Any:
    """Returns an array of records with the fields of these objects.

    Args:
        kind: their dataclass.
        rows: the objects.
    """
    values = list(map(attrgetter(*(name for name, _ in _columns(kind))), rows))
    return np.array(values, dtype=_types(kind)).view(np.recarray)


@cache
def _columns(kind: Any) -> list[tuple[str, str]]:
    return [(field.name, "i4" if field.type == "int" else "f8") for field in fields(kind)]


@cache
def _types(kind: Any) -> np.dtype[Any]:
    return np.dtype(_columns(kind), align=True)
