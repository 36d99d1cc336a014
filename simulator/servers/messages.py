"""Messages of a compiled run, with the events of `interpreter.mail` and `network.ClusterNetwork`."""

from __future__ import annotations

from paceline.simulator.servers.event_heap import schedule
from paceline.simulator.servers.machine_state import Count, Message, Phase, Row, Second, State, What
from paceline.simulator.servers.port_sharing import begin_flow

SOURCE, TO, KIND, STEP, NEXT, BEHIND, ARRIVED, THROUGH, FOLLOWER = (int(one) for one in list(Message)[:9])
NOW, CLASSES = int(Second.NOW), int(Count.CLASSES)
WAITS = int(Phase.WAITS)
PHASE, HELD, FIRST, LAST = (int(one) for one in (Row.PHASE, Row.HELD, Row.INBOX_FIRST, Row.INBOX_LAST))
TURN, ARRIVAL, SENT, LATENCY, PASSED = (
    int(one) for one in (What.TURN, What.ARRIVAL, What.SENT, What.LATENCY, What.PASSED)
)


def pair_of(state: State, message: int) -> int:
    """Returns the number of the pair of ranks of a message: two for each worker, to the server and back."""
    source = state.messages[message, SOURCE]
    return int(2 * source if source != len(state.ranks) - 1 else 2 * state.messages[message, TO] + 1)


def take_from_inbox(state: State, rank: int) -> int:
    """Removes the oldest message from the inbox of a rank; returns it, or -1."""
    message = state.ranks[rank, FIRST]
    if message >= 0:
        state.ranks[rank, FIRST] = state.messages[message, NEXT]
    return int(message)


def deliver(state: State, message: int) -> None:
    """Gives a message to its receiver if that waits, else puts it into the inbox."""
    to = state.messages[message, TO]
    state.messages[message, NEXT] = -1
    if state.ranks[to, PHASE] == WAITS and state.ranks[to, HELD] < 0:
        state.ranks[to, HELD] = message
        schedule(state, 0.0, TURN, to)
    elif state.ranks[to, FIRST] < 0:
        state.ranks[to, FIRST] = message
        state.ranks[to, LAST] = message
    else:
        state.messages[state.ranks[to, LAST], NEXT] = message
        state.ranks[to, LAST] = message


def arrive(state: State, message: int) -> None:
    """Delivers a message that has arrived, and later ones of its pair, unless an earlier one is still in flight."""
    pair = pair_of(state, message)
    state.messages[message, ARRIVED] = 1
    while state.pairs[pair, 0] >= 0 and state.messages[state.pairs[pair, 0], ARRIVED] == 1:
        first = state.pairs[pair, 0]
        state.pairs[pair, 0] = state.messages[first, BEHIND]
        if state.pairs[pair, 2] == first:
            state.pairs[pair, 2] = -1  # it has passed the ports, and its number may be used again
        deliver(state, first)


def post(state: State, message: int) -> None:
    """Puts a message on its way."""
    pair, what = pair_of(state, message), state.messages[message, KIND]
    worker = pair >> 1
    state.message_counts[what, worker] += 1
    state.messages[message, ARRIVED] = 0
    state.messages[message, THROUGH] = 0
    state.messages[message, BEHIND] = -1
    state.messages[message, FOLLOWER] = -1
    if state.pairs[pair, 0] < 0:
        state.pairs[pair, 0] = message
    else:
        state.messages[state.pairs[pair, 1], BEHIND] = message
    state.pairs[pair, 1] = message
    if state.path_class.shape[0] <= 1:  # a network whose links are not shared
        schedule(state, state.message_s[what, worker], ARRIVAL, message)
        return
    before = state.pairs[pair, 2]
    state.pairs[pair, 2] = message
    if before < 0 or state.messages[before, THROUGH] == 1:
        set_out(state, message, worker)
    else:
        state.messages[before, FOLLOWER] = message


def serve(state: State, sending: bool, rank: int, seconds: float) -> float:
    """Adds a message to the work of a rank's processor; returns after how many seconds it has been processed."""
    now_s = state.seconds[NOW]
    if sending:
        end_s = max(now_s, state.sending_s[rank]) + seconds
        state.sending_s[rank] = end_s
    else:
        end_s = max(now_s, state.receiving_s[rank]) + seconds
        state.receiving_s[rank] = end_s
    return float(end_s - now_s)


def set_out(state: State, message: int, worker: int) -> None:
    """Starts a message: first the sender's processor, then the ports."""
    send_s = state.path_s[state.messages[message, KIND], worker, 0]
    if send_s > 0.0:
        schedule(state, serve(state, True, state.messages[message, SOURCE], send_s), SENT, message)
    else:
        carry(state, message, worker)


def carry(state: State, message: int, worker: int) -> None:
    """Lets the bytes of a message flow."""
    what = state.messages[message, KIND]
    which = state.path_class[what, worker]
    if which < 0:
        schedule(state, 0.0, PASSED, message)
    else:
        begin_flow(state, which, float(state.kind_bytes[what]), message)


def passed(state: State, what: int, message: int) -> None:
    """Processes the end of a part of a message's way.

    Args:
        state: the state.
        what: the part: the sender's processor, the ports, or the latency.
        message: the message.
    """
    kind, pair = state.messages[message, KIND], pair_of(state, message)
    worker = pair >> 1
    latency_s, receive_s = state.path_s[kind, worker, 1], state.path_s[kind, worker, 2]
    if what == SENT:
        carry(state, message, worker)
    elif what == PASSED:
        state.messages[message, THROUGH] = 1
        schedule(state, latency_s, LATENCY if receive_s > 0.0 else ARRIVAL, message)
        follower = state.messages[message, FOLLOWER]
        if follower >= 0:
            set_out(state, follower, worker)
    else:
        schedule(state, serve(state, False, state.messages[message, TO], receive_s), ARRIVAL, message)
