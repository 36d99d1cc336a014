"""Max-min fair sharing of links among flows, solved incrementally: the core of the network engine.

* Invariant: after each `solve`, every flow has a bottleneck, that is a full link on which no flow is faster. Rates are
  max-min fair exactly if this holds.
* Rejected: solving the whole network again after each change. A flow that begins or ends usually changes the rates of
  few other flows, and progressive filling from zero visits all of them.
* Source: Bertsekas and Gallager, Data Networks, 6.5.2, for max-min fairness and progressive filling. The incremental
  form is ours.

Progressive filling raises all rates together from zero; when a link is full, the flows on it are frozen. The
incremental form goes through the same filling, from low rates to high, but most flows keep their rates. A flow is
freed, and rises until it finds a new bottleneck, in two cases. Each is detected when the filling has reached the rate
concerned, when all lower rates are final:

* A link is full, and a flow that has kept its rate is faster than the flows that rise on this link. It has to share.
* The filling has reached the rate at which a link held its flows back, and the link will not be full. It releases them.

So each flow is freed and frozen at most once per solution, and flows that a change does not affect are not visited.

* The module has no clock: the caller passes the time. `flow_engine` connects it to SimPy. In the functions of the
  solver, `net` is the network, `number` that of a flow or link, and `now` the time in seconds.
* A network is a few tables: of links, of flows, and of entries that connect them; rows are referred to by number. A
  link has a capacity only. The limit of a single flow is represented by a link that only this flow uses.
* There is one solver, in two forms: plain Python on tables that are lists of objects, and machine code, compiled by
  numba, on arrays of records with the same fields. Its source consists of indexing, arithmetic and loops alone, so a
  test of one form tests the other. Both forms stay, because neither is fast enough for all runs. (Measured, CPU time
  per flow at a server: 26 µs in plain Python and 39 µs compiled with 16 flows at a time, 86 and 34 µs with 300, 3,700
  and 90 µs with 3,000. Loading compiled code takes 1 to 2 s in each process, more than most runs with few flows.)
* A flow ends when the time of its end in the queue has come, not when its remaining bytes are zero. So rounding errors
  cannot keep a flow alive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableSequence, Sequence
from dataclasses import dataclass, fields
from functools import cache
from operator import attrgetter
from types import FunctionType
from typing import Any, NamedTuple, TypeVar, cast, get_args, get_type_hints

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.float64]
Floats = MutableSequence[float]
Ints = MutableSequence[int]
Tables = TypeVar("Tables", bound=tuple[Any, ...])
"""a named tuple of tables, each annotated with the kind of its rows: a dataclass, numbers, or a queue"""
NONE = -1
"""marks the absence of a flow, link, entry, position or solution"""
CLOSE = 1e-12
"""relative tolerance for equal rates and full links, because sums differ in their last bits"""
TICK = 1e-15
"""relative tolerance for equal times, about the resolution of the clock"""


@dataclass(slots=True)
class FlowLink:
    """A resource that flows share."""

    capacity: float
    """bytes per second"""
    room: float
    """capacity that is not used by flows that keep their rates"""
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
    since: float = 0.0
    """the time at which `remaining` was updated"""
    rate: float = 0.0
    bottleneck: int = NONE
    turn: int = NONE
    """the latest solution in which it was freed"""
    rising: int = 0
    """1 from when it is freed until it has its new rate"""


@dataclass(slots=True)
class FlowOnLink:
    """One flow on one link: an element of the link's linked list of flows."""

    link: int
    flow: int
    after: int = NONE
    before: int = NONE


class Queue(NamedTuple):
    """An indexed binary heap: the position of each item is stored, so that its key can change."""

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

    links: MutableSequence[FlowLink]
    flows: MutableSequence[Flow]
    entries: MutableSequence[FlowOnLink]
    levels: Queue
    """links by a lower bound of the rate at which they are full"""
    holds: Queue
    """links by the rate of the flows that they hold back"""
    ends: Queue
    """flows by the time at which they end"""
    turn: Ints
    """one number: that of the present solution"""


# --- tables ----------------------------------------------------------------------------------------------------------


def network(capacity: Iterable[float]) -> Net:
    """Returns a network of lists, with links of these capacities (bytes per second) and no flows."""
    levels, holds, ends = (Queue([], [], [], [0]) for _ in range(3))
    net = Net([], [], [], levels, holds, ends, [0])
    for bytes_per_s in capacity:
        add_link(net, bytes_per_s)
    return net


def add_link(net: Net, bytes_per_s: float) -> int:
    """Adds a link to a network of lists, given its capacity; returns its number."""
    net.links.append(FlowLink(float(bytes_per_s), float(bytes_per_s)))
    _make_room(net.levels)
    _make_room(net.holds)
    return len(net.links) - 1


def add_flow(net: Net, route: Sequence[int], nbytes: float) -> int:
    """Adds a flow that has not entered to a network of lists, and returns its number.

    Args:
        net: the network.
        route: the numbers of its links.
        nbytes: its bytes.
    """
    number = len(net.flows)
    net.flows.append(Flow(len(net.entries), len(route), float(nbytes)))
    net.entries.extend([FlowOnLink(link, number) for link in route])
    _make_room(net.ends)
    return number


def _make_room(queue: Queue) -> None:
    queue.key.append(0.0)
    queue.order.append(0)
    queue.place.append(NONE)


def whole_network(capacity: Any, hops: Any, routes: Any) -> Net:
    """Returns a network of arrays, with flows that have not entered.

    Args:
        capacity: bytes per second of each link.
        hops: the number of links that each flow passes.
        routes: the numbers of these links, flow after flow.
    """
    links = records(FlowLink, capacity=capacity, room=capacity)
    flows = records(Flow, first=np.cumsum(hops) - hops, hops=hops, remaining=0.0)
    entries = records(FlowOnLink, link=routes, flow=np.repeat(np.arange(len(hops)), hops))
    levels, holds, ends = (empty_queue(len(items)) for items in (links, links, flows))
    return Net(links, flows, entries, levels, holds, ends, np.zeros(1, dtype=np.int64))  # type: ignore[arg-type]


def empty_queue(size: int) -> Queue:
    """Returns an empty heap of arrays for `size` items."""
    return Queue(np.zeros(size), np.zeros(size, dtype=np.int64), np.full(size, NONE), np.zeros(1, dtype=np.int64))  # type: ignore[arg-type]


def records(kind: Any, **columns: Any) -> Any:
    """Returns an array of records.

    Args:
        kind: the dataclass of a row.
        columns: the values of its fields; fields that are not given have their defaults.
    """
    table = np.zeros(len(next(iter(columns.values()))), dtype=_types(kind))
    for field in fields(kind):
        table[field.name] = columns.get(field.name, field.default)
    return table.view(np.recarray)


def as_arrays(tables: Tables) -> Tables:
    """Returns a copy whose tables are arrays, for compiled code."""
    return type(tables)._make(map(_array, _kinds(type(tables)), tables))  # type: ignore[attr-defined,no-any-return]


def as_lists(tables: Tables) -> Tables:
    """Returns them as lists, which can grow and which plain Python reads faster than arrays; copies arrays only."""
    return type(tables)._make(map(_list, _kinds(type(tables)), tables))  # type: ignore[attr-defined,no-any-return]


def _array(kind: Any, table: Any) -> Any:
    if kind is None:
        return as_arrays(table)
    if isinstance(table, np.ndarray):
        return table.copy()
    if kind in (int, float):
        return np.array(table, dtype=kind)
    rows = list(map(attrgetter(*(field.name for field in fields(kind))), table))
    return np.array(rows, dtype=_types(kind)).view(np.recarray)


def _list(kind: Any, table: Any) -> Any:
    if kind is None:
        return as_lists(table)
    if isinstance(table, list):
        return table
    return table.tolist() if kind in (int, float) else [kind(*row) for row in table.tolist()]


@cache
def _kinds(tables: type) -> list[Any]:
    """Returns the kind of the rows of each table; None for a queue, which has tables itself."""
    return [next(iter(get_args(hint)), None) for hint in get_type_hints(tables).values()]


@cache
def _types(kind: Any) -> np.dtype[Any]:
    return np.dtype([(field.name, "i4" if field.type == "int" else "f8") for field in fields(kind)], align=True)


# --- plain Python, or machine code: queues ----------------------------------------------------------------------------

# `item` is the number of an item and `at` a position in `Queue.order`.


def put(queue: Queue, item: int, key: float) -> None:
    """Inserts an item, or moves it to the position of its new key."""
    at = queue.place[item]
    if at < 0:
        at = queue.size[0]
        queue.size[0] += 1
    queue.key[item] = key
    sift_down(queue, item, sift_up(queue, item, at))


def take(queue: Queue, item: int) -> None:
    """Removes an item."""
    at = queue.place[item]
    queue.place[item] = NONE
    queue.size[0] -= 1
    last = queue.order[queue.size[0]]
    if last != item:
        sift_down(queue, last, sift_up(queue, last, at))


def least(queue: Queue) -> float:
    """Returns the smallest key; infinity if the heap is empty."""
    return queue.key[queue.order[0]] if queue.size[0] > 0 else float("inf")


def sift_up(queue: Queue, item: int, at: int) -> int:
    """Returns the position, from `at` towards the root, where the item belongs; moves the items on the way down."""
    key = queue.key[item]
    while at > 0:
        parent = (at - 1) // 2
        other = queue.order[parent]
        if queue.key[other] <= key:
            break
        queue.order[at] = other
        queue.place[other] = at
        at = parent
    return at


def sift_down(queue: Queue, item: int, at: int) -> None:
    """Stores the item where its key is in order, from `at` towards the leaves."""
    key, size = queue.key[item], queue.size[0]
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and queue.key[queue.order[child + 1]] < queue.key[queue.order[child]]:
            child += 1
        other = queue.order[child]
        if key <= queue.key[other]:
            break
        queue.order[at] = other
        queue.place[other] = at
        at = child
    queue.order[at] = item
    queue.place[item] = at


# --- plain Python, or machine code: changes ---------------------------------------------------------------------------


def enter(net: Net, number: int, now: float) -> None:
    """Lets a flow begin. Its rate is 0 until `solve`."""
    flow = net.flows[number]
    flow.since, flow.rate, flow.bottleneck = now, 0.0, NONE
    for at in range(flow.first, flow.first + flow.hops):
        entry = net.entries[at]
        link = net.links[entry.link]
        entry.before, entry.after = NONE, link.head
        if link.head != NONE:
            net.entries[link.head].before = at
        link.head = at
    free(net, number)


def enter_anew(net: Net, number: int, nbytes: float, route: Sequence[int], now: float) -> None:
    """Lets a flow begin with the number and the entries of one with as many hops that has left.

    Args:
        net: the network.
        number: the flow's number.
        nbytes: its bytes.
        route: the numbers of its links.
        now: the time, seconds.
    """
    flow = net.flows[number]
    flow.remaining = nbytes
    for hop in range(flow.hops):
        net.entries[flow.first + hop].link = route[hop]
    enter(net, number, now)


def leave(net: Net, number: int, now: float) -> None:
    """Removes a flow that has ended."""
    flow = net.flows[number]
    account(net, number, now)
    take(net.ends, number)
    net.links[flow.bottleneck].holding -= 1
    for at in range(flow.first, flow.first + flow.hops):
        entry = net.entries[at]
        link = net.links[entry.link]
        if entry.before != NONE:
            net.entries[entry.before].after = entry.after
        else:
            link.head = entry.after
        if entry.after != NONE:
            net.entries[entry.after].before = entry.before
        link.room = link.room + flow.rate if link.head != NONE else link.capacity
        if link.holding > 0 and net.holds.place[entry.link] == NONE:
            put(net.holds, entry.link, link.held)


def change(net: Net, number: int, capacity: float) -> None:
    """Sets the capacity of a link and frees its flows. Flows that end at this time have to be removed before.

    Args:
        net: the network.
        number: the link's number.
        capacity: its new capacity, bytes per second.
    """
    link = net.links[number]
    at = link.head
    while at != NONE:
        free(net, net.entries[at].flow)
        at = net.entries[at].after
    link.capacity = link.room = capacity
    if link.waiting > 0:
        put(net.levels, number, capacity / link.waiting)


def free(net: Net, number: int) -> None:
    """Frees a flow: it gives up its rate and rises until it has a new bottleneck."""
    flow = net.flows[number]
    if flow.turn == net.turn[0]:
        return
    if flow.bottleneck != NONE:
        net.links[flow.bottleneck].holding -= 1
    flow.turn, flow.rising, flow.bottleneck = net.turn[0], 1, NONE
    for at in range(flow.first, flow.first + flow.hops):
        index = net.entries[at].link
        link = net.links[index]
        link.room += flow.rate
        link.waiting += 1
        level = max(link.room, 0.0) / link.waiting
        if link.waiting == 1 or level < net.levels.key[index]:
            put(net.levels, index, level)
        if link.holding > 0 and net.holds.place[index] == NONE:
            put(net.holds, index, link.held)


def account(net: Net, number: int, now: float) -> None:
    """Subtracts the bytes that a flow has moved since the last call, or since its rate was set."""
    flow = net.flows[number]
    flow.remaining -= flow.rate * (now - flow.since)
    flow.since = now


# --- plain Python, or machine code: solving --------------------------------------------------------------------------


def solve(net: Net, now: float) -> None:
    """Computes new rates and ends for the flows that the changes at this time affect: fills from low rates to high."""
    while net.levels.size[0] > 0 or net.holds.size[0] > 0:
        if net.holds.size[0] == 0 or least(net.levels) < least(net.holds):
            fill(net, net.levels.order[0], now)
        else:
            release_held(net, net.holds.order[0])
    net.turn[0] += 1


def fill(net: Net, number: int, now: float) -> None:
    """Processes a link when the filling has reached the rate at which the link may be full."""
    link = net.links[number]
    level = net.levels.key[number] * (1.0 + CLOSE)
    if link.room <= level * link.waiting and link.turn != net.turn[0]:
        recount(net, number)
    share = max(link.room, 0.0) / link.waiting
    if share > level:
        put(net.levels, number, share)  # flows that were frozen by other links use less of this one
    elif link.fastest > share * (1.0 + CLOSE):
        free_fastest(net, number)
    else:
        freeze(net, number, share, now)


def recount(net: Net, number: int) -> None:
    """Recomputes the unused capacity of a link, so that rounding errors do not add up.

    Also finds the fastest rate of the flows that have kept theirs.
    """
    link = net.links[number]
    room, fastest = link.capacity, 0.0
    at = link.head
    while at != NONE:
        entry = net.entries[at]
        flow = net.flows[entry.flow]
        if not flow.rising:
            room -= flow.rate
            if flow.turn != net.turn[0]:
                fastest = max(fastest, flow.rate)
        at = entry.after
    link.turn, link.room, link.fastest = net.turn[0], room, fastest


def free_fastest(net: Net, number: int) -> None:
    """Frees the fastest flows of a full link, because they have to share it with flows that rise."""
    link = net.links[number]
    quick = link.fastest * (1.0 - CLOSE)
    at = link.head
    while at != NONE:
        entry = net.entries[at]
        flow = net.flows[entry.flow]
        if flow.rate >= quick and flow.turn != net.turn[0]:
            free(net, entry.flow)
        at = entry.after
    recount(net, number)
    put(net.levels, number, max(link.room, 0.0) / link.waiting)


def freeze(net: Net, number: int, rate: float, now: float) -> None:
    """Freezes the rising flows of a full link at its rate; their other links have more capacity left."""
    full = net.links[number]
    full.held = rate
    at = full.head
    while at != NONE:
        entry = net.entries[at]
        flow = net.flows[entry.flow]
        if flow.rising:
            flow.rising, flow.bottleneck = 0, number
            full.holding += 1
            for hop in range(flow.first, flow.first + flow.hops):
                index = net.entries[hop].link
                link = net.links[index]
                link.room -= rate
                link.waiting -= 1
                if link.waiting == 0:
                    take(net.levels, index)
            if rate != flow.rate or net.ends.place[entry.flow] == NONE:
                account(net, entry.flow, now)
                flow.rate = rate
                put(net.ends, entry.flow, now + until(flow.remaining, rate))
        at = entry.after


def release_held(net: Net, number: int) -> None:
    """Frees the flows that a link holds back, if it would not be full with them and the rising flows at their rate."""
    link = net.links[number]
    take(net.holds, number)
    if link.turn != net.turn[0]:
        recount(net, number)
    asked = link.waiting * link.held
    if link.room - asked <= CLOSE * (asked if link.waiting > 0 else link.capacity):
        return
    at = link.head
    while at != NONE:
        entry = net.entries[at]
        if net.flows[entry.flow].bottleneck == number:
            free(net, entry.flow)
        at = entry.after


def until(remaining: float, rate: float) -> float:
    """Returns the seconds for the remaining bytes: 0 without bytes, otherwise infinity at rate 0."""
    if remaining <= 0.0:
        return 0.0
    return remaining / rate if rate > 0.0 else float("inf")


# --- plain Python, or machine code: a whole list of flows ------------------------------------------------------------


def together(soonest: float, now: float) -> float:
    """Returns the latest time that counts as simultaneous with the time `soonest`.

    >>> together(1.0, now=0.0) - 1.0 < 1e-11
    True
    """
    return soonest + CLOSE * (soonest - now) + TICK * soonest


def play(net: Net, times: Floats) -> int:
    """Runs flows that start in the order of their numbers.

    Args:
        net: the network, with flows that have not entered.
        times: the start of each flow, ascending; replaced by their ends.

    Returns:
        How often rates were solved.
    """
    now, arrived, solved = 0.0, 0, 0
    while arrived < len(times) or net.ends.size[0] > 0:
        soonest, latest = least(net.ends), together(least(net.ends), now)
        now = min(soonest, times[arrived]) if arrived < len(times) else soonest
        while now == soonest and least(net.ends) <= latest:
            flow = net.ends.order[0]
            times[flow] = net.ends.key[flow]
            leave(net, flow, now)
        while arrived < len(times) and times[arrived] <= now:
            enter(net, arrived, now)
            arrived += 1
        solve(net, now)
        solved += 1
    return solved


# --- compiling -------------------------------------------------------------------------------------------------------


class Code(NamedTuple):
    """The functions that a driver calls, as plain Python or compiled."""

    enter_anew: Callable[..., Any]
    leave: Callable[..., Any]
    change: Callable[..., Any]
    solve: Callable[..., Any]
    play: Callable[..., Any]


PLAIN_PYTHON = Code(enter_anew, leave, change, solve, play)
"""for tables that are lists; the compiled functions need tables that are arrays"""


@cache
def machine_code() -> Code:
    """Returns the compiled functions; numba compiles each one at its first call."""
    return Code._make(map(compiled, PLAIN_PYTHON))


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that numba compiles at its first call, with all functions that it calls.

    numba caches the compiled code on disk, beside its source. So only the first run on a machine waits for the
    compiler, some seconds per function.
    """
    import numba

    # each call of a part would pass all arrays and count references to them, which together would take most of the
    # time. So parts are inlined, and `_nrt` is off: references need not be counted, because nothing is allocated
    for part in called_by(function):
        _inlined(part)
    options: dict[str, Any] = {"cache": True, "_nrt": False}
    return cast(Callable[..., Any], numba.njit(**options)(function))


@cache
def _inlined(part: Callable[..., Any]) -> None:
    """Registers a function, once per process, as one that numba inlines into compiled callers."""
    import numba.extending

    numba.extending.register_jitable(forceinline=True)(part)


def called_by(function: Any) -> set[Callable[..., Any]]:
    """Returns the functions that a function calls, directly or indirectly."""
    known = map(function.__globals__.get, function.__code__.co_names)
    direct = {cast(Callable[..., Any], called) for called in known if isinstance(called, FunctionType)} - {function}
    return direct.union(*map(called_by, direct))


# --- results ---------------------------------------------------------------------------------------------------------


def fair_rates(routes: Sequence[Sequence[Any]], capacity: Mapping[Any, float]) -> list[float]:
    """Returns the max-min fair rate of each flow, in bytes per second.

    Args:
        routes: the names or numbers of the links of each flow.
        capacity: bytes per second of each link.

    >>> fair_rates([("a", "b"), ("a",), ("b",)], {"a": 1.0, "b": 2.0})
    [0.5, 0.5, 1.5]
    """
    number = {link: index for index, link in enumerate(capacity)}
    net = network(capacity.values())
    for route in routes:
        enter(net, add_flow(net, [number[link] for link in route], 1.0), 0.0)
    solve(net, 0.0)
    return [flow.rate for flow in net.flows]


def finish_times(
    capacity: Sequence[float], routes: Sequence[Sequence[int]], starts_s: Times, nbytes: Times, *, compiled: bool = True
) -> tuple[Times, int]:
    """Computes when flows end that begin at known times.

    Args:
        capacity: bytes per second of each link.
        routes: the numbers of the links of each flow, at least one.
        starts_s: the start of each flow.
        nbytes: its bytes.
        compiled: whether to run compiled code.

    Returns:
        The ends, and how often rates were solved.
    """
    order = np.argsort(starts_s, kind="stable")  # concurrent flows are near each other in memory
    ordered = [routes[number] for number in order.tolist()]
    hops, none = np.array(list(map(len, ordered)), dtype=np.int64), np.zeros(0, dtype=np.int64)
    net: Any = whole_network(np.array(capacity, dtype=float), hops, np.concatenate([none, *ordered]))
    net.flows["remaining"] = nbytes[order]
    times: Any = starts_s[order]
    if compiled:
        solved = machine_code().play(net, times)
    else:
        net, times = as_lists(net), times.tolist()
        solved = play(net, times)
    ends_s = np.empty(len(order))
    ends_s[order] = times
    return ends_s, int(solved)
