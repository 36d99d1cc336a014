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

* The module has no clock: the caller passes the time. `flow_engine` connects it to SimPy; `transfers` runs a whole list
  of flows. In all functions, `net` is the network, `number` that of a flow or link, and `now` the time in seconds.
* The code consists of indexing, arithmetic and loops alone. So the same source runs as plain Python on lists and,
  compiled by numba, on arrays of records, and a test of one form tests the other.
* A flow ends when the time of its end in the queue has come, not when its remaining bytes are zero. So rounding errors
  cannot keep a flow alive.
"""

from __future__ import annotations

from collections.abc import Sequence

from paceline.simulator.flows.indexed_heap import least, put, take
from paceline.simulator.flows.network_state import NONE, Floats, Net

CLOSE = 1e-12
"""relative tolerance for equal rates and full links, because sums differ in their last bits"""
TICK = 1e-15
"""relative tolerance for equal times, about the resolution of the clock"""


# --- changes ---------------------------------------------------------------------------------------------------------


def enter(net: Net, number: int, now: float) -> None:
    """Lets a flow begin. Its rate is 0 until `solve`."""
    flow = net.flows[number]
    flow.since, flow.rate, flow.moved, flow.bottleneck = now, 0.0, 0.0, NONE
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
        link.carried += flow.moved
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
    """Adds the bytes that a flow has moved since the last call, or since its rate was set."""
    flow = net.flows[number]
    moved = flow.rate * (now - flow.since)
    flow.since, flow.moved = now, flow.moved + moved
    flow.remaining -= moved


# --- solving ---------------------------------------------------------------------------------------------------------


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


# --- a whole list of flows -------------------------------------------------------------------------------------------


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
