"""The compiled event loop: replays templates with the events, and their order, of `simulator.interpreter`.

* `go_on` lets one rank go on through its nodes until it waits. `run` processes events and calls it.
* Both return an `Exit` if something has to be done outside of machine code; the rank then goes on where it was.
* The steps of a message are those of `interpreter.mail` and `network.ClusterNetwork`, with the same events, so that
  events of equal times have the same order.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from paceline.simulator.flows.compiled import compiled
from paceline.simulator.servers import event_heap, messages, port_sharing, recording
from paceline.simulator.servers.event_heap import queued_first, schedule, take_first, take_queued
from paceline.simulator.servers.machine_state import Activity, Count, Exit, Kind, Message, Phase, Second, State, What
from paceline.simulator.servers.messages import arrive, passed, post, take_from_inbox
from paceline.simulator.servers.port_sharing import NEVER, NEXT_END, ORDER, advance_port, end_flow, ends_now, share_port
from paceline.simulator.servers.recording import note, note_gradient

LOAD, COMPUTE, UPDATE, SEND, RECEIVE = (int(one) for one in Activity)
UNDERIVED, LOADS, COMPUTES, CHARGES, SENDS, RECEIVES, DECIDES, UPDATES_KIND, NEXT_STEPS, ENDS_KIND, OUTSIDE = (
    int(one) for one in Kind
)
BEGINS, RESTED, ENDS, WAITS, HEARD, BUSY, OVER = (int(one) for one in Phase)
RANK, TURN, ARRIVAL, SENT, LATENCY, PASSED = (
    int(one) for one in (What.RANK, What.TURN, What.ARRIVAL, What.SENT, What.LATENCY, What.PASSED)
)
KINDS = int(What.KINDS)
DONE, EXIT_UNDERIVED, NEW_MESSAGE, STEP_TIMES, RECORDS, MESSAGES, SERVER, STOP, BAD_RECEIVER = (
    int(one) for one in Exit
)
NOW, LIMIT_S = int(Second.NOW), int(Second.LIMIT)
SPANS, UPDATES, RESUME, LIMIT = (int(one) for one in (Count.SPANS, Count.UPDATES, Count.RESUME, Count.LIMIT))
EVENTS, OPERATIONS, MADE, UNUSED, FREE = (
    int(one) for one in (Count.EVENTS, Count.OPERATIONS, Count.UPDATES_MADE, Count.UNUSED, Count.FREE)
)
CLASSES, QUEUE, HEAP = int(Count.CLASSES), int(Count.QUEUE), int(Count.HEAP)
GRADIENTS, BYTES_SENT = int(Count.GRADIENTS), int(Count.BYTES_SENT)
SOURCE, TO, KIND, STEP, NEXT = (
    int(one) for one in (Message.SOURCE, Message.TO, Message.KIND, Message.STEP, Message.NEXT)
)
WAITING = -2
"""the answer of `go_on` if the rank waits or has ended"""
ADD, REMAINDER, QUOTIENT, SET = 0, 1, 2, 3
"""kinds of instructions"""
TEMPORARIES = 16
"""registers for numbers that a node computes; they come before the others"""
FIRST_OF_STATE = TEMPORARIES + 1
"""the register of the first integer of a state, after that of the rank"""


def operand(state: State, base: int, number: int) -> int:
    """Returns the value of an operand: a register plus a constant."""
    register = state.operands[number, 0]
    constant = state.operands[number, 1]
    return int(constant if register < 0 else state.registers[base + register] + constant)


def compute_temporaries(state: State, base: int, first: int, count: int) -> None:
    """Computes the numbers of a node that are more than a register plus a constant."""
    for line in range(first, first + count):
        kind, target = state.instructions[line, 0], base + state.instructions[line, 1]
        source, number = state.instructions[line, 2], state.instructions[line, 3]
        if kind == SET:
            state.registers[target] = number
        elif kind == ADD:
            state.registers[target] += state.registers[base + source] * number
        elif kind == REMAINDER:
            state.registers[target] = state.registers[base + source] % number
        else:
            state.registers[target] = state.registers[base + source] // number


def go_on(state: State, rank: int) -> int:
    """Lets a rank go on until it waits.

    Args:
        state: the state.
        rank: the rank.

    Returns:
        `WAITING`, or an exit.
    """
    server = len(state.step) - 1
    base = state.base[rank]
    while True:
        node, phase = state.node[rank], state.phase[rank]
        kind = state.nodes[node, 0]
        if state.counts[SPANS] + 2 >= len(state.spans) or state.counts[GRADIENTS] + 2 >= len(state.gradients) > 1:
            return RECORDS
        if phase == BEGINS:
            state.counts[OPERATIONS] += 1
            if state.nodes[node, 7] > 0:
                compute_temporaries(state, base, state.nodes[node, 6], state.nodes[node, 7])
        then = state.nodes[node, 1]

        if kind == LOADS:
            if phase == BEGINS and state.rest_s[rank] > 0.0:
                state.phase[rank] = RESTED
                schedule(state, state.rest_s[rank], RANK, rank)
                return WAITING
            if phase != ENDS:
                state.begun_s[rank] = state.seconds[NOW]
                if state.load_s[rank] > 0.0:
                    state.phase[rank] = ENDS
                    schedule(state, state.load_s[rank], RANK, rank)
                    return WAITING
            note(state, rank, LOAD, operand(state, base, state.nodes[node, 2]), 0, -1, -1.0)

        elif kind == COMPUTES:
            step = operand(state, base, state.nodes[node, 2])
            if phase == BEGINS:
                if step >= state.step_until[rank]:
                    state.counts[OPERATIONS] -= 1
                    return STEP_TIMES
                state.begun_s[rank] = state.seconds[NOW]
                work_s = state.step_s[step % len(state.step_s), rank]
                if work_s > 0.0:
                    state.phase[rank] = ENDS
                    schedule(state, work_s, RANK, rank)
                    return WAITING
            note(state, rank, COMPUTE, step, 0, -1, -1.0)
            note_gradient(state, rank, step)

        elif kind == CHARGES:
            if phase == BEGINS:
                state.begun_s[rank] = state.seconds[NOW]
                work_s = state.charge_s[state.nodes[node, 2], rank]
                if work_s > 0.0:
                    state.phase[rank] = ENDS
                    schedule(state, work_s, RANK, rank)
                    return WAITING
            note(state, rank, UPDATE, state.step[rank], 0, -1, -1.0)

        elif kind == SENDS:
            to, what = operand(state, base, state.nodes[node, 2]), state.nodes[node, 3]
            worker = rank if rank != server else to
            if phase == BEGINS:
                if to < 0 or to > server or to == rank:
                    return BAD_RECEIVER
                if state.counts[UNUSED] == 0:
                    state.counts[OPERATIONS] -= 1
                    return MESSAGES
                state.begun_s[rank] = state.seconds[NOW]
                message = state.counts[FREE]
                state.counts[FREE] = state.messages[message, NEXT]
                state.counts[UNUSED] -= 1
                state.messages[message, SOURCE] = rank
                state.messages[message, TO] = to
                state.messages[message, KIND] = what
                state.messages[message, STEP] = state.step[rank]
                state.sent_s[message] = state.seconds[NOW]
                first = state.nodes[node, 4]
                for place in range(state.nodes[node, 5]):
                    state.payload[message, place] = operand(state, base, first + place)
                post(state, message)
                if state.send_s.shape[0] > 1 and state.send_s[what, worker] > 0.0:
                    state.phase[rank] = BUSY
                    schedule(state, state.send_s[what, worker], RANK, rank)
                    return WAITING
            note(state, rank, SEND, state.step[rank], state.kind_bytes[what], -1, -1.0)
            state.counts[BYTES_SENT] += state.kind_bytes[what]

        elif kind == RECEIVES:
            if phase == BEGINS:
                state.begun_s[rank] = state.seconds[NOW]
                state.held[rank] = take_from_inbox(state, rank)
                if state.held[rank] < 0:
                    state.phase[rank] = WAITS
                    return WAITING
            message = state.held[rank]
            if phase == BEGINS or phase == WAITS:
                if state.receive_s.shape[0] > 1:
                    what = state.messages[message, KIND]
                    worker = state.messages[message, SOURCE] if rank == server else rank
                    taken_s = max(state.begun_s[rank], state.sent_s[message]) + state.receive_s[what, worker]
                    done_s = max(taken_s, state.seconds[NOW] + state.copy_s[what, worker])
                    left_s = max(0.0, done_s - state.seconds[NOW])
                    if left_s > 0.0:
                        state.phase[rank] = ENDS
                        schedule(state, left_s, RANK, rank)
                        return WAITING
            what = state.messages[message, KIND]
            if phase != HEARD:
                source = state.messages[message, SOURCE]
                note(state, rank, RECEIVE, state.step[rank], state.kind_bytes[what], source, state.sent_s[message])
                state.phase[rank] = HEARD
            then = state.children[state.nodes[node, 2], what]
            if then < 0:
                return NEW_MESSAGE
            first = base + state.nodes[node, 3]
            state.registers[first] = state.messages[message, SOURCE]
            for place in range(state.kind_integers[what]):
                state.registers[first + 1 + place] = state.payload[message, place]
            state.messages[message, NEXT] = state.counts[FREE]
            state.counts[FREE] = message
            state.counts[UNUSED] += 1

        elif kind == DECIDES:
            difference, relation = operand(state, base, state.nodes[node, 2]), state.nodes[node, 3]
            holds = difference < 0 or (relation == 1 and difference == 0)
            if relation == 2:
                holds = difference == 0
            then = state.nodes[node, 4] if holds else state.nodes[node, 5]

        elif kind == UPDATES_KIND:
            count, first = state.nodes[node, 4], state.nodes[node, 3]
            if state.counts[UPDATES] + count > len(state.updates):
                state.counts[OPERATIONS] -= 1
                return RECORDS
            held = operand(state, base, state.nodes[node, 2])
            for place in range(count):
                row = state.counts[UPDATES]
                state.updates[row, 0] = operand(state, base, first + 4 * place)
                state.updates[row, 1] = operand(state, base, first + 4 * place + 1)
                state.updates[row, 2] = operand(state, base, first + 4 * place + 2)
                state.updates[row, 3] = held
                state.updates[row, 4] = operand(state, base, first + 4 * place + 3)
                state.updates_s[row] = state.seconds[NOW]
                state.counts[UPDATES] = row + 1
            state.counts[MADE] += 1

        elif kind == NEXT_STEPS:
            step = operand(state, base, state.nodes[node, 2])
            if phase == BEGINS:
                first, count = state.nodes[node, 3], state.nodes[node, 4]
                spare = state.spare[rank]
                for place in range(count):
                    state.registers[spare + place] = operand(state, base, first + place)
                for place in range(count):
                    state.registers[base + FIRST_OF_STATE + place] = state.registers[spare + place]
                state.step[rank] = step
                if rank == server and (step >= state.counts[LIMIT] or state.seconds[NOW] >= state.seconds[LIMIT_S]):
                    state.phase[rank] = ENDS
                    return STOP

        elif kind == ENDS_KIND:
            state.phase[rank] = OVER
            return WAITING

        elif kind == OUTSIDE:
            return SERVER
        else:
            state.counts[OPERATIONS] -= 1
            return EXIT_UNDERIVED

        state.node[rank] = then
        state.phase[rank] = BEGINS


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
                return left
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
        if what == RANK or what == TURN:
            if what == RANK and state.phase[number] == BUSY:
                state.phase[number] = ENDS
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
    if state.counts[QUEUE] > 0 and order > state.queue[state.counts[event_heap.QUEUE_FIRST], 0]:
        return -1
    if state.counts[HEAP] > 0:
        if state.heap_s[0] < at_s or (state.heap_s[0] == at_s and state.heap[0, 0] < order):
            return -1
    return best


def flows_end(state: State, which: int) -> None:
    """Ends the flows of a class that end now; at least one does."""
    state.seconds[NOW] = max(state.seconds[NOW], state.class_s[which, NEXT_END])
    port = state.class_port[which]
    advance_port(state, port)
    message = end_flow(state, which)
    passed(state, PASSED, message)
    while ends_now(state, which):
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
        *(messages.set_out, messages.passed, messages.post),
        *(operand, compute_temporaries, go_on, next_flow_end, flows_end),
    )
    return compiled(run, parts)
