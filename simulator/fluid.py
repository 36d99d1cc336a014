"""Max-min fair sharing, solved again only where a change reaches. The heart of the network engine.

Rules of this file:

* It knows flows and links by number, and no clock but the seconds it is told: `flows` puts SimPy around it, `transfers`
  runs a whole list of flows at once.
* Everything is indexing, arithmetic and loops, so that the same source runs on lists, as it stands, and on arrays, as
  machine code. Whoever compiles it needs no second version, and every test of one is a test of the other.
* A flow ends when its turn comes in the queue of ends, not when what remains is nought: no rounding can lose one.

How a change is solved. Rates are max-min fair exactly if every flow has a bottleneck: a link that is full and on which
nobody is faster (Bertsekas & Gallager, Data Networks, 6.5.2). So: free the flows that the change may move, share among
them what the others leave (progressive filling), and look whether every flow on their links still has its bottleneck.
Those that have not are freed too, and so on until none is left. Links that are not full pass nothing on; a connected
component is solved as a whole only where all of it moves.
"""

from __future__ import annotations

from paceline.simulator.net import NONE, Floats, Ints, Net, Queue

FIXED, FILLED, FREED = 0, 1, 2
"""a flow that keeps its rate; one that shares what is spare; one that will, from the next filling on"""
UNTOUCHED, SURVEYED, CHANGED = 0, 1, 2
"""a link that no change has reached; one that has been looked at since; one that has not"""
CLOSE = 1e-12
"""rates this near to each other are equal, and links this near to full are: sums differ in their last bits"""
TICK = 1e-15
"""ends this near to each other, relative to the clock, cannot be told apart"""


# --- queues ----------------------------------------------------------------------------------------------------------


def put(queue: Queue, item: int, key: float) -> None:
    """Takes the item in, or moves it to its new place."""
    at = queue.place[item]
    if at < 0:
        at = queue.size[0]
        queue.size[0] += 1
    queue.key[item] = key
    sink(queue, item, rise(queue, item, at))


def take(queue: Queue, item: int) -> None:
    """Takes the item out."""
    at = queue.place[item]
    queue.place[item] = NONE
    queue.size[0] -= 1
    last = queue.order[queue.size[0]]
    if last != item:
        sink(queue, last, rise(queue, last, at))


def rise(queue: Queue, item: int, at: int) -> int:
    """The place, from `at` towards the front, at which the item's key is in order; moves the others back."""
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


def sink(queue: Queue, item: int, at: int) -> None:
    """Puts the item where its key is in order, from `at` towards the back."""
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


# --- changes ---------------------------------------------------------------------------------------------------------


def enter(net: Net, flow: int, now: float) -> None:
    """A flow begins; it has no rate until the change is solved."""
    net.since[flow] = now
    net.rate[flow] = 0.0
    net.bottleneck[flow] = NONE
    for entry in range(net.first[flow], net.first[flow] + net.hops[flow]):
        front = net.head[net.link[entry]]
        net.before[entry] = NONE
        net.after[entry] = front
        if front != NONE:
            net.before[front] = entry
        net.head[net.link[entry]] = entry
    free(net, flow)


def leave(net: Net, flow: int, now: float) -> None:
    """A flow ends; who shared with it learns of that from `wake`, when all that end together have left."""
    account(net, flow, now)
    take(net.ends, flow)
    for entry in range(net.first[flow], net.first[flow] + net.hops[flow]):
        before, after = net.before[entry], net.after[entry]
        if before != NONE:
            net.after[before] = after
        else:
            net.head[net.link[entry]] = after
        if after != NONE:
            net.before[after] = before


def wake(net: Net, flow: int) -> None:
    """Frees those whom the links of a flow that has left held back."""
    for entry in range(net.first[flow], net.first[flow] + net.hops[flow]):
        link = net.link[entry]
        other = net.head[link]
        while other != NONE:
            if net.bottleneck[net.owner[other]] == link:
                free(net, net.owner[other])
            other = net.after[other]


def disturb(net: Net, link: int) -> None:
    """Frees everybody on a link whose capacity has changed."""
    entry = net.head[link]
    while entry != NONE:
        free(net, net.owner[entry])
        entry = net.after[entry]


def free(net: Net, flow: int) -> None:
    """The flow is to get a new rate."""
    if net.state[flow] != FIXED:
        return
    net.state[flow] = FREED
    net.flows[net.sizes[1]] = flow
    net.sizes[1] += 1
    for entry in range(net.first[flow], net.first[flow] + net.hops[flow]):
        link = net.link[entry]
        if net.reached[link] == UNTOUCHED:
            net.links[net.sizes[0]] = link
            net.sizes[0] += 1
        net.reached[link] = CHANGED


def account(net: Net, flow: int, now: float) -> None:
    """Books what the flow has moved since its rate was set."""
    moved = net.rate[flow] * (now - net.since[flow])
    net.since[flow] = now
    net.remaining[flow] -= moved
    for entry in range(net.first[flow], net.first[flow] + net.hops[flow]):
        net.carried[net.link[entry]] += moved


# --- solving ---------------------------------------------------------------------------------------------------------


def solve(net: Net, now: float) -> None:
    """New rates, and new ends, for all whom the changes at this time reach."""
    fill(net)
    while widen(net):
        fill(net)
    for at in range(net.sizes[1]):
        flow = net.flows[at]
        net.state[flow] = FIXED
        if net.fresh[flow] != net.rate[flow] or net.ends.place[flow] == NONE:
            account(net, flow, now)
            net.rate[flow] = net.fresh[flow]
            put(net.ends, flow, now + until(net.remaining[flow], net.rate[flow]))
    for at in range(net.sizes[0]):
        net.reached[net.links[at]] = UNTOUCHED
    net.sizes[0] = net.sizes[1] = 0


def until(remaining: float, rate: float) -> float:
    """The seconds that the rest takes: none where nothing is left, for ever where the flow stands still."""
    if remaining <= 0.0:
        return 0.0
    return remaining / rate if rate > 0.0 else float("inf")


def fill(net: Net) -> None:
    """Progressive filling: freed flows rise together; those on a link that is full stop; the rest rise on."""
    for at in range(net.sizes[1]):
        net.state[net.flows[at]] = FILLED
        net.fresh[net.flows[at]] = NONE
    for at in range(net.sizes[0]):
        link = net.links[at]
        if net.reached[link] == CHANGED:
            survey(net, link)
        net.room[link], net.waiting[link], net.full[link] = net.spare[link], net.sharers[link], 0
        put(net.levels, link, max(net.room[link], 0.0) / net.waiting[link])
    rising = net.sizes[1]
    while rising > 0:
        link = net.levels.order[0]
        level = net.levels.key[link]
        share = net.room[link] / max(net.waiting[link], 1)
        if net.waiting[link] > 0 and share > level * (1.0 + CLOSE):
            put(net.levels, link, share)  # flows that stopped elsewhere have left it more
            continue
        take(net.levels, link)
        if net.waiting[link] > 0:
            rising -= stop(net, link, max(level, share))
    for at in range(net.levels.size[0]):
        net.levels.place[net.levels.order[at]] = NONE
    net.levels.size[0] = 0


def survey(net: Net, link: int) -> None:
    """What the flows that keep their rates leave of a link, and what they ask of the others there."""
    spare, sharers, quickest, held = net.capacity[link], 0, 0.0, float("inf")
    entry = net.head[link]
    while entry != NONE:
        flow = net.owner[entry]
        if net.state[flow] == FILLED:
            sharers += 1
        else:
            spare -= net.rate[flow]
            quickest = max(quickest, net.rate[flow])
            if net.bottleneck[flow] == link:
                held = min(held, net.rate[flow])
        entry = net.after[entry]
    net.spare[link], net.sharers[link], net.quickest[link], net.held[link] = spare, sharers, quickest, held
    net.reached[link] = SURVEYED


def stop(net: Net, full: int, level: float) -> int:
    """Those who still rise on a full link stop; what they leave on other links is for others. Says how many."""
    stopped = 0
    net.full[full] = 1
    entry = net.head[full]
    while entry != NONE:
        flow = net.owner[entry]
        if net.state[flow] == FILLED and net.fresh[flow] < 0.0:
            stopped += 1
            net.fresh[flow] = level
            net.bottleneck[flow] = full
            for hop in range(net.first[flow], net.first[flow] + net.hops[flow]):
                link = net.link[hop]
                net.room[link] -= level
                net.waiting[link] -= 1
                net.level[link] = level
        entry = net.after[entry]
    return stopped


def widen(net: Net) -> bool:
    """Frees the flows that have lost their bottleneck, or are faster than one allows; says whether there are any."""
    links, flows = net.sizes[0], net.sizes[1]
    for at in range(links):
        link = net.links[at]
        # levels only rise, so the last to stop on a link is the fastest of those that have a new rate
        level = net.level[link] * (1.0 + CLOSE)
        lost = net.room[link] > net.capacity[link] * CLOSE or net.held[link] * (1.0 + CLOSE) < net.level[link]
        if (lost and net.held[link] < float("inf")) or (net.full[link] and net.quickest[link] > level):
            entry = net.head[link]
            while entry != NONE:
                flow = net.owner[entry]
                if (lost and net.bottleneck[flow] == link) or (net.full[link] and net.rate[flow] > level):
                    free(net, flow)
                entry = net.after[entry]
    return net.sizes[1] > flows


# --- a whole list of flows -------------------------------------------------------------------------------------------


def next_end(net: Net, latest: float) -> int:
    """The flow that ends next and no later; NONE if there is none."""
    if net.ends.size[0] == 0 or net.ends.key[net.ends.order[0]] > latest:
        return NONE
    return net.ends.order[0]


def together(soonest: float, now: float) -> float:
    """The latest end that counts as simultaneous with the soonest, seen from now."""
    return soonest + CLOSE * (soonest - now) + TICK * soonest


def play(net: Net, order: Ints, start: Floats, finish: Floats, leaving: Ints) -> int:
    """Runs flows that start in this order to their ends; fills in when, and counts the times that were solved for."""
    now, arrived, solved = 0.0, 0, 0
    while arrived < len(order) or net.ends.size[0] > 0:
        soonest = net.ends.key[net.ends.order[0]] if net.ends.size[0] > 0 else float("inf")
        latest = together(soonest, now) if soonest < float("inf") else soonest
        now = min(soonest, start[order[arrived]]) if arrived < len(order) else soonest
        left = 0
        flow = next_end(net, latest) if now == soonest else NONE
        while flow != NONE:
            finish[flow] = net.ends.key[flow]
            leave(net, flow, now)
            leaving[left] = flow
            left += 1
            flow = next_end(net, latest)
        for at in range(left):
            wake(net, leaving[at])
        while arrived < len(order) and start[order[arrived]] <= now:
            enter(net, order[arrived], now)
            arrived += 1
        solve(net, now)
        solved += 1
    return solved
