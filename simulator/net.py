"""The columns that the network engine works on: links, flows, and the entries where they meet.

Rules of this file:

* Columns are lists, which grow while a run goes on and are quick to index one by one, or arrays, which machine code
  takes. Both are filled here and nowhere else.
* A link is not more than its capacity. A limit on each single flow is a link of that flow's own.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableSequence, Sequence
from typing import Any, NamedTuple

import numpy as np

Floats = MutableSequence[float]
Ints = MutableSequence[int]
NONE = -1
"""no flow, no link, no entry, no place"""


class Queue(NamedTuple):
    """A binary heap whose items know their places, so that a key can change."""

    key: Floats
    order: Ints
    place: Ints
    size: Ints


class Net(NamedTuple):
    """Links, flows and their meetings (a flow's entry on a link), as columns."""

    # of a link
    capacity: Floats
    carried: Floats
    """bytes so far, as rates times durations"""
    head: Ints
    """its first entry"""
    reached: Ints
    spare: Floats
    """what those that keep their rates leave"""
    sharers: Ints
    """entries of flows that do not"""
    quickest: Floats
    """the highest rate kept"""
    held: Floats
    """the lowest rate kept for the sake of this link; infinite where there is none"""
    room: Floats
    """what is left for those that still rise"""
    waiting: Ints
    """their entries"""
    level: Floats
    """the rate at which the last one stopped"""
    full: Ints
    # of a flow
    first: Ints
    hops: Ints
    """its entries are first, first + 1, …, first + hops - 1"""
    remaining: Floats
    since: Floats
    """the time at which so much remained"""
    rate: Floats
    fresh: Floats
    """its rate to be"""
    bottleneck: Ints
    state: Ints
    # of an entry
    link: Ints
    owner: Ints
    after: Ints
    before: Ints
    # what is being solved
    links: Ints
    flows: Ints
    sizes: Ints
    """how many of `links` and of `flows` are meant"""
    levels: Queue
    """links by the rate at which they are full"""
    ends: Queue
    """flows by the time at which they end"""


def network(capacity: Iterable[float]) -> Net:
    """Links of such capacities (bytes per second), and no flow yet."""
    columns: list[Any] = [[] for _ in Net._fields[:-3]]
    others: list[Any] = [[0, 0], Queue([], [], [], [0]), Queue([], [], [], [0])]
    net = Net(*columns, *others)
    for bytes_per_s in capacity:
        add_link(net, bytes_per_s)
    return net


def add_link(net: Net, bytes_per_s: float) -> int:
    """A link more; says its number."""
    net.capacity.append(float(bytes_per_s))
    net.head.append(NONE)
    for amounts in (net.carried, net.spare, net.quickest, net.held, net.room, net.level):
        amounts.append(0.0)
    for counts in (net.reached, net.sharers, net.waiting, net.full, net.links):
        counts.append(0)
    _make_room(net.levels)
    return len(net.capacity) - 1


def add_flow(net: Net, route: Sequence[int], nbytes: float) -> int:
    """A flow more, which has yet to enter; says its number."""
    flow = len(net.first)
    net.first.append(len(net.link))
    net.hops.append(len(route))
    net.remaining.append(float(nbytes))
    for amounts in (net.since, net.rate, net.fresh):
        amounts.append(0.0)
    net.bottleneck.append(NONE)
    for counts in (net.state, net.flows):
        counts.append(0)
    net.link.extend(route)
    for entries, value in ((net.owner, flow), (net.after, NONE), (net.before, NONE)):
        entries.extend([value] * len(route))
    _make_room(net.ends)
    return flow


def _make_room(queue: Queue) -> None:
    queue.key.append(0.0)
    queue.order.append(0)
    queue.place.append(NONE)


def as_arrays(net: Net) -> Net:
    """A copy whose columns are arrays."""
    columns: list[Any] = [np.array(column) for column in net[:-2]]
    queues: list[list[Any]] = [[np.array(column) for column in queue] for queue in (net.levels, net.ends)]
    return Net(*columns, *(Queue(*queue) for queue in queues))
