"""The compiled event loop: replays templates with the events, and their order, of `simulator.interpreter`.

* `go_on` lets one rank go on through its nodes until it waits. `run` processes events and calls it.
* Both return if something has to be done outside of machine code; the rank then goes on where it was.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from paceline.simulator.flows.compiled import compiled
from paceline.simulator.servers import event_heap, messages, node_steps, port_sharing, recording
from paceline.simulator.servers.event_heap import queued_first, take_first, take_queued
from paceline.simulator.servers.machine_state import Count, Exit, Kind, Phase, Row, Second, State, What
from paceline.simulator.servers.messages import arrive, passed
from paceline.simulator.servers.node_steps import (
    LEFT,
    WAITING,
    charge,
    compute,
    compute_temporaries,
    decide,
    load,
    next_step,
    receive,
    send,
    update,
)
from paceline.simulator.servers.port_sharing import (
    NEVER,
    NEXT_END,
    ORDER,
    SINCE,
    advance_port,
    end_flow,
    ends_now,
    share_port,
)

UNDERIVED, LOADS, COMPUTES, CHARGES, SENDS, RECEIVES, DECIDES, UPDATES_KIND, NEXT_STEPS, ENDS_KIND, OUTSIDE = (
    int(one) for one in Kind
)
BEGINS, BUSY, ENDS, OVER = int(Phase.BEGINS), int(Phase.BUSY), int(Phase.ENDS), int(Phase.OVER)
NODE, PHASE, BASE = int(Row.NODE), int(Row.PHASE), int(Row.BASE)
RANK, TURN, ARRIVAL, PASSED = (int(one) for one in (What.RANK, What.TURN, What.ARRIVAL, What.PASSED))
KINDS = int(What.KINDS)
DONE, EXIT_UNDERIVED, RECORDS, SERVER = (int(one) for one in (Exit.DONE, Exit.UNDERIVED, Exit.RECORDS, Exit.SERVER))
NOW = int(Second.NOW)
SPANS, RESUME, EVENTS, OPERATIONS = (int(one) for one in (Count.SPANS, Count.RESUME, Count.EVENTS, Count.OPERATIONS))
CLASSES, QUEUE, QUEUE_FIRST, HEAP = (int(one) for one in (Count.CLASSES, Count.QUEUE, Count.QUEUE_FIRST, Count.HEAP))
GRADIENTS = int(Count.GRADIENTS)


def go_on(state: State, rank: int) -> int:
    """Lets a rank go on until it waits.

    Args:
        state: the state.
        rank: the rank.

    Returns:
        `WAITING`, or `LEFT` minus an exit.
    """
    while True:
        node, phase = state.ranks[rank, NODE], state.ranks[rank, PHASE]
        if state.counts[SPANS] + 2 >= len(state.spans) or state.counts[GRADIENTS] + 2 >= len(state.gradients) > 1:
            return LEFT - RECORDS
        if phase == BEGINS and state.nodes[node, 7] > 0:
            compute_temporaries(state, state.ranks[rank, BASE], state.nodes[node, 6], state.nodes[node, 7])
        then = perform(state, rank, node, phase)
        if then < 0:
            return then
        state.counts[OPERATIONS] += 1
        state.ranks[rank, NODE] = then
        state.ranks[rank, PHASE] = BEGINS


def perform(state: State, rank: int, node: int, phase: int) -> int:
    """Performs a node; returns what the functions of `node_steps` return."""
    kind = state.nodes[node, 0]
    if kind == LOADS:
        then = load(state, rank, node, phase)
    elif kind == COMPUTES:
        then = compute(state, rank, node, phase)
    elif kind == CHARGES:
        then = charge(state, rank, node, phase)
    elif kind == SENDS:
        then = send(state, rank, node, phase)
    elif kind == RECEIVES:
        then = receive(state, rank, node, phase)
    elif kind == DECIDES:
        then = decide(state, rank, node)
    elif kind == UPDATES_KIND:
        then = update(state, rank, node)
    elif kind == NEXT_STEPS:
        then = next_step(state, rank, node, phase)
    elif kind == ENDS_KIND:
        state.ranks[rank, PHASE] = OVER
        then = WAITING
    else:
        then = LEFT - (SERVER if kind == OUTSIDE else EXIT_UNDERIVED)
    return then


def run(state: State) -> int:
    """Processes events until none are left.

    Args:
        state: the state.

    Returns:
        An exit.
    """
    while True:
        rank = state.counts[RESUME]
        if rank >= 0:
            left = go_on(state, rank)
            if left != WAITING:
                return LEFT - left
            state.counts[RESUME] = -1
        which = next_flow_end(state)
        if which >= 0:
            flows_end(state, which)
            continue
        if queued_first(state):
            found = take_queued(state)
        elif state.counts[HEAP] > 0:
            found = take_first(state)
        else:
            return DONE
        state.counts[EVENTS] += 1
        what, number = found % KINDS, found // KINDS
        if what == RANK or what == TURN:  # noqa: SIM109  # machine code is faster without a tuple
            if state.ranks[number, PHASE] == BUSY:
                state.ranks[number, PHASE] = ENDS
            state.counts[RESUME] = number
        elif what == ARRIVAL:
            arrive(state, number)
        else:
            passed(state, what, number)


def next_flow_end(state: State) -> int:
    """Returns the class whose next flow ends before all other events; -1 if there is none."""
    best = -1
    for which in range(state.counts[CLASSES]):
        if state.class_s[which, NEXT_END] < NEVER and (
            best < 0
            or state.class_s[which, NEXT_END] < state.class_s[best, NEXT_END]
            or (
                state.class_s[which, NEXT_END] == state.class_s[best, NEXT_END]
                and state.class_counts[which, ORDER] < state.class_counts[best, ORDER]
            )
        ):
            best = which
    if best < 0:
        return -1
    at_s, order = state.class_s[best, NEXT_END], state.class_counts[best, ORDER]
    if state.counts[QUEUE] > 0 and at_s > state.seconds[NOW]:
        return -1
    if state.counts[QUEUE] > 0 and order > state.queue[state.counts[QUEUE_FIRST], 0]:
        return -1
    if state.counts[HEAP] == 0 or state.heap_s[0] > at_s:
        return best
    return -1 if state.heap_s[0] < at_s or state.heap[0, 0] < order else best


def flows_end(state: State, which: int) -> None:
    """Ends the flows of a class that end now; at least one does."""
    state.seconds[NOW] = max(state.seconds[NOW], state.class_s[which, NEXT_END])
    port = state.class_port[which]
    lasted_s = state.seconds[NOW] - state.class_s[which, SINCE]
    advance_port(state, port)
    passed(state, PASSED, end_flow(state, which))
    while ends_now(state, which, lasted_s):
        passed(state, PASSED, end_flow(state, which))
    share_port(state, port)
    state.counts[EVENTS] += 1


@cache
def machine_code() -> Callable[[State], int]:
    """Returns `run`, compiled."""
    parts = (
        *(event_heap.schedule, event_heap.take_first, event_heap.take_queued, event_heap.queued_first),
        *(port_sharing.advance_port, port_sharing.share_port, port_sharing.begin_flow, port_sharing.end_flow),
        *(port_sharing.ends_now, recording.note, recording.note_gradient, messages.pair_of),
        *(messages.take_from_inbox, messages.deliver, messages.arrive, messages.serve, messages.carry),
        *(messages.set_out, messages.passed, messages.post, node_steps.operand, node_steps.compute_temporaries),
        *(node_steps.works, load, compute, charge, send, receive, node_steps.takes_processor, decide, update),
        *(next_step, perform, go_on, next_flow_end, flows_end),
    )
    return compiled(run, parts)
