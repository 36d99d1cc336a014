"""Flows that share a port equally, in virtual time: O(log n) for the begin and the end of a flow.

* All flows of a class pass the same bottleneck and have the same limit, so at any time they have one rate. The bytes
  that a flow of the class would have passed since 0 are the class's virtual time. A flow ends when that has grown by
  its bytes, so the order of the ends is known when flows begin, and rates need not be stored for each flow.
* The rates of the classes of a port are max-min fair: a class gets its limit, or an equal share of what is left.
* Source: Parekh and Gallager, 'A generalized processor sharing approach to flow control', 1993 (virtual time).
"""

from __future__ import annotations

from paceline.simulator.flows.max_min import CLOSE, TICK
from paceline.simulator.servers.machine_state import Count, Second, State

RATE, PASSED, SINCE, NEXT_END = 0, 1, 2, 3
FLOWS, ORDER = 0, 1
NOW, SEQUENCE, BEGUN, CLASSES = int(Second.NOW), int(Count.SEQUENCE), int(Count.FLOWS_BEGUN), int(Count.CLASSES)
NEVER = 1e300


def begin_flow(state: State, which: int, nbytes: float, message: int) -> None:
    """Begins a flow.

    Args:
        state: the state.
        which: its class.
        nbytes: its bytes.
        message: the message that it carries.
    """
    port = state.class_port[which]
    advance_port(state, port)
    end = state.class_s[which, PASSED] + nbytes
    number = state.counts[BEGUN]
    state.counts[BEGUN] = number + 1
    place = state.class_counts[which, FLOWS]
    state.class_counts[which, FLOWS] = place + 1
    while place > 0:
        above = (place - 1) >> 1
        if state.class_heap_s[which, above] <= end:
            break
        state.class_heap_s[which, place] = state.class_heap_s[which, above]
        state.class_heap[which, place, 0] = state.class_heap[which, above, 0]
        state.class_heap[which, place, 1] = state.class_heap[which, above, 1]
        place = above
    state.class_heap_s[which, place] = end
    state.class_heap[which, place, 0] = number
    state.class_heap[which, place, 1] = message
    share_port(state, port)


def end_flow(state: State, which: int) -> int:
    """Ends the first flow of a class; returns its message."""
    found = state.class_heap[which, 0, 1]
    last = state.class_counts[which, FLOWS] - 1
    state.class_counts[which, FLOWS] = last
    end, number, message = (
        state.class_heap_s[which, last],
        state.class_heap[which, last, 0],
        state.class_heap[which, last, 1],
    )
    place = 0
    while True:
        least = 2 * place + 1
        if least >= last:
            break
        other = least + 1
        if other < last and (
            state.class_heap_s[which, other] < state.class_heap_s[which, least]
            or (
                state.class_heap_s[which, other] == state.class_heap_s[which, least]
                and state.class_heap[which, other, 0] < state.class_heap[which, least, 0]
            )
        ):
            least = other
        if end < state.class_heap_s[which, least] or (
            end == state.class_heap_s[which, least] and number < state.class_heap[which, least, 0]
        ):
            break
        state.class_heap_s[which, place] = state.class_heap_s[which, least]
        state.class_heap[which, place, 0] = state.class_heap[which, least, 0]
        state.class_heap[which, place, 1] = state.class_heap[which, least, 1]
        place = least
    state.class_heap_s[which, place] = end
    state.class_heap[which, place, 0] = number
    state.class_heap[which, place, 1] = message
    if last == 0:
        state.class_s[which, PASSED] = 0.0  # keeps the numbers small, and so exact
    return int(found)


def advance_port(state: State, port: int) -> None:
    """Lets the flows of a port pass their bytes up to now."""
    now_s = state.seconds[NOW]
    for which in range(state.counts[CLASSES]):
        if state.class_port[which] == port:
            if state.class_counts[which, FLOWS] > 0:
                state.class_s[which, PASSED] += state.class_s[which, RATE] * (now_s - state.class_s[which, SINCE])
            state.class_s[which, SINCE] = now_s


def share_port(state: State, port: int) -> None:
    """Computes the rates of the classes of a port, and when their next flows end."""
    classes = state.counts[CLASSES]
    left, flows = state.port_rate[port], 0
    for which in range(classes):
        if state.class_port[which] == port:
            flows += state.class_counts[which, FLOWS]
            state.class_s[which, RATE] = -1.0
    limited = True
    while limited and flows > 0:  # classes whose limit is below an equal share get their limit
        limited = False
        for which in range(classes):
            if (
                state.class_port[which] == port
                and state.class_s[which, RATE] < 0.0
                and state.class_counts[which, FLOWS] > 0
                and state.class_limit[which] * flows <= left
            ):
                state.class_s[which, RATE] = state.class_limit[which]
                left -= state.class_limit[which] * state.class_counts[which, FLOWS]
                flows -= state.class_counts[which, FLOWS]
                limited = True
    for which in range(classes):
        if state.class_port[which] == port:
            if state.class_counts[which, FLOWS] == 0:
                state.class_s[which, NEXT_END] = NEVER
                continue
            if state.class_s[which, RATE] < 0.0:
                state.class_s[which, RATE] = left / flows
            missing = state.class_heap_s[which, 0] - state.class_s[which, PASSED]
            state.class_s[which, NEXT_END] = state.seconds[NOW] + max(missing, 0.0) / state.class_s[which, RATE]
            state.class_counts[which, ORDER] = state.counts[SEQUENCE]
    state.counts[SEQUENCE] += 1


def ends_now(state: State, which: int, lasted_s: float) -> bool:
    """Returns whether the first flow of a class has passed its bytes, up to the tolerance of `max_min.together`.

    Args:
        state: the state, advanced to the present time.
        which: the class.
        lasted_s: how long the rates have been as they are.
    """
    if state.class_counts[which, FLOWS] == 0:
        return False
    missing = state.class_heap_s[which, 0] - state.class_s[which, PASSED]
    tolerance_s = CLOSE * lasted_s + TICK * state.seconds[NOW]
    return bool(missing <= tolerance_s * state.class_s[which, RATE])
