"""The events of a compiled run, in the order of SimPy: by time, then by the order in which they were scheduled.

Events at the present time are in a queue. All others are in a heap.
"""

from __future__ import annotations

from paceline.simulator.servers.machine_state import Count, Second, State, What

SEQUENCE, HEAP, QUEUE_FIRST, QUEUE = (int(one) for one in (Count.SEQUENCE, Count.HEAP, Count.QUEUE_FIRST, Count.QUEUE))
NOW = int(Second.NOW)
KINDS = int(What.KINDS)


def schedule(state: State, seconds: float, what: int, number: int) -> None:
    """Schedules an event.

    Args:
        state: the state.
        seconds: the delay.
        what: its kind.
        number: the rank or the message.
    """
    order = state.counts[SEQUENCE]
    state.counts[SEQUENCE] = order + 1
    now_s = state.seconds[NOW]
    at_s = now_s + seconds
    if at_s == now_s:
        place = (state.counts[QUEUE_FIRST] + state.counts[QUEUE]) & (len(state.queue) - 1)
        state.queue[place, 0] = order
        state.queue[place, 1] = number * KINDS + what
        state.counts[QUEUE] += 1
        return
    place = state.counts[HEAP]
    state.counts[HEAP] = place + 1
    while place > 0:
        above = (place - 1) >> 2
        if state.heap_s[above] <= at_s:  # equal times keep their order, because a new event is the latest
            break
        state.heap_s[place] = state.heap_s[above]
        state.heap[place, 0] = state.heap[above, 0]
        state.heap[place, 1] = state.heap[above, 1]
        place = above
    state.heap_s[place] = at_s
    state.heap[place, 0] = order
    state.heap[place, 1] = number * KINDS + what


def take_first(state: State) -> int:
    """Removes the first event of the heap; returns its kind and number, and sets the time."""
    state.seconds[NOW] = state.heap_s[0]
    found = state.heap[0, 1]
    last = state.counts[HEAP] - 1
    state.counts[HEAP] = last
    at_s, order, what = state.heap_s[last], state.heap[last, 0], state.heap[last, 1]
    place = 0
    while True:
        below = 4 * place + 1
        if below >= last:
            break
        least = below
        for other in range(below + 1, min(below + 4, last)):
            if state.heap_s[other] < state.heap_s[least] or (
                state.heap_s[other] == state.heap_s[least] and state.heap[other, 0] < state.heap[least, 0]
            ):
                least = other
        if at_s < state.heap_s[least] or (at_s == state.heap_s[least] and order < state.heap[least, 0]):
            break
        state.heap_s[place] = state.heap_s[least]
        state.heap[place, 0] = state.heap[least, 0]
        state.heap[place, 1] = state.heap[least, 1]
        place = least
    state.heap_s[place] = at_s
    state.heap[place, 0] = order
    state.heap[place, 1] = what
    return int(found)


def take_queued(state: State) -> int:
    """Removes the first event of the queue; returns its kind and number."""
    place = state.counts[QUEUE_FIRST]
    found = state.queue[place, 1]
    state.counts[QUEUE_FIRST] = (place + 1) & (len(state.queue) - 1)
    state.counts[QUEUE] -= 1
    return int(found)


def queued_first(state: State) -> bool:
    """Returns whether the next event is in the queue and not in the heap."""
    if state.counts[QUEUE] == 0:
        return False
    if state.counts[HEAP] == 0 or state.heap_s[0] > state.seconds[NOW]:
        return True
    return bool(state.heap[0, 0] > state.queue[state.counts[QUEUE_FIRST], 0])
