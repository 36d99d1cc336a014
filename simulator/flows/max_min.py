"""Max-min fair sharing, solved again only where a change reaches. The heart of the network engine.

Rules of this file:

* It has no clock of its own: the caller passes seconds. `flow_engine` connects it to SimPy; `transfers` runs a whole
  list of flows.
* All is indexing, arithmetic and loops, so that the same source runs on lists, as it stands, and as machine code on
  arrays of records: every test of one is a test of the other.
* A flow ends when its turn comes in the queue of ends, not when what remains is nought: no rounding can lose one.

How a change is solved. Rates are max-min fair exactly if every flow has a bottleneck: a link that is full and on which
nobody is faster (Bertsekas & Gallager, Data Networks, 6.5.2). Progressive filling finds them: all rates rise together,
and who comes to a link that is full stops there. A turn goes through this filling, from low rates to high, but of most
flows it is known how it ends: they keep their rate. Two things free one to rise and find a new bottleneck, and each
shows when the filling has come to the rate in question, so that all below is settled:

* a link is full, and someone who keeps his rate is faster than those who rise there: he has to share;
* this is the rate of those whom a link holds back, and it will not be full: it lets them go.

So a flow is freed and stopped once at most, nothing is filled twice, and what no change reaches is not looked at.
"""

from __future__ import annotations

from collections.abc import Sequence

from paceline.simulator.flows.indexed_heap import least, put, take
from paceline.simulator.flows.network_state import NONE, Floats, Net

CLOSE = 1e-12
"""rates this near to each other are equal, and links this near to full are: sums differ in their last bits"""
TICK = 1e-15
"""ends this near to each other, relative to the clock, cannot be told apart"""


# --- changes ---------------------------------------------------------------------------------------------------------


def enter(net: Net, number: int, now: float) -> None:
    """A flow begins; it has no rate until the change is solved."""
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
    """A flow begins under the number, and with the entries, of one of as many hops that has left."""
    flow = net.flows[number]
    flow.remaining = nbytes
    for hop in range(flow.hops):
        net.entries[flow.first + hop].link = route[hop]
    enter(net, number, now)


def leave(net: Net, number: int, now: float) -> None:
    """A flow ends, and makes room."""
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
    """A link carries so much from now on. All on it are freed; who leaves now has to have left before."""
    link = net.links[number]
    at = link.head
    while at != NONE:
        free(net, net.entries[at].flow)
        at = net.entries[at].after
    link.capacity = link.room = capacity
    if link.waiting > 0:
        put(net.levels, number, capacity / link.waiting)


def free(net: Net, number: int) -> None:
    """The flow is to get a new rate, and leaves the old one to whom it may concern."""
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
    """Books what the flow has moved since its rate was set."""
    flow = net.flows[number]
    moved = flow.rate * (now - flow.since)
    flow.since, flow.moved = now, flow.moved + moved
    flow.remaining -= moved


# --- solving ---------------------------------------------------------------------------------------------------------


def solve(net: Net, now: float) -> None:
    """New rates, and new ends, for all whom the changes at this time reach: the filling, from low rates to high."""
    while net.levels.size[0] > 0 or net.holds.size[0] > 0:
        if net.holds.size[0] == 0 or least(net.levels) < least(net.holds):
            fill(net, net.levels.order[0], now)
        else:
            let_go(net, net.holds.order[0])
    net.turn[0] += 1


def fill(net: Net, number: int, now: float) -> None:
    """The filling has come to where a link may be full."""
    link = net.links[number]
    level = net.levels.key[number] * (1.0 + CLOSE)
    if link.room <= level * link.waiting and link.turn != net.turn[0]:
        survey(net, number)
    share = max(link.room, 0.0) / link.waiting
    if share > level:
        put(net.levels, number, share)  # flows that stopped elsewhere have left it more
    elif link.quickest > share * (1.0 + CLOSE):
        squeeze(net, number)
    else:
        stop(net, number, share, now)


def survey(net: Net, number: int) -> None:
    """Counts anew what is left of a link, lest rounding adds up, and finds the quickest that keep their rates."""
    link = net.links[number]
    room, quickest = link.capacity, 0.0
    at = link.head
    while at != NONE:
        entry = net.entries[at]
        flow = net.flows[entry.flow]
        if not flow.rising:
            room -= flow.rate
            if flow.turn != net.turn[0]:
                quickest = max(quickest, flow.rate)
        at = entry.after
    link.turn, link.room, link.quickest = net.turn[0], room, quickest


def squeeze(net: Net, number: int) -> None:
    """Those who are quickest on a full link have to share with those who rise."""
    link = net.links[number]
    quick = link.quickest * (1.0 - CLOSE)
    at = link.head
    while at != NONE:
        entry = net.entries[at]
        flow = net.flows[entry.flow]
        if flow.rate >= quick and flow.turn != net.turn[0]:
            free(net, entry.flow)
        at = entry.after
    survey(net, number)
    put(net.levels, number, max(link.room, 0.0) / link.waiting)


def stop(net: Net, number: int, rate: float, now: float) -> None:
    """Those who rise on a full link stop; what they leave on other links is for others."""
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


def let_go(net: Net, number: int) -> None:
    """Frees those whom a link has held back, if it has more to give than to them and, as much, to those who rise."""
    link = net.links[number]
    take(net.holds, number)
    if link.turn != net.turn[0]:
        survey(net, number)
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
    """The seconds that the rest takes, at a rate that may be none; nothing takes no time even so."""
    if remaining <= 0.0:
        return 0.0
    return remaining / rate if rate > 0.0 else float("inf")


# --- a whole list of flows -------------------------------------------------------------------------------------------


def together(soonest: float, now: float) -> float:
    """The latest end that counts as simultaneous with the soonest, seen from now."""
    return soonest + CLOSE * (soonest - now) + TICK * soonest


def play(net: Net, times: Floats) -> int:
    """Flows start in the order of their numbers, at times whose place their ends take; says how often it solved."""
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
