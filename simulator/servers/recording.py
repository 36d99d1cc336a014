"""Records of a compiled run: spans of the kept ranks, and sums over all ranks."""

from __future__ import annotations

from paceline.simulator.servers.machine_state import Activity, Count, Second, State

SPANS, GRADIENTS, NOW, END = int(Count.SPANS), int(Count.GRADIENTS), int(Second.NOW), int(Second.END)
RECEIVE, COMMUNICATION, WAIT = int(Activity.RECEIVE), int(Activity.SEND), int(Activity.RECEIVE)
"""sends and receives are communication; the last column of the seconds is that of waits"""


def note(state: State, rank: int, activity: int, step: int, nbytes: int, source: int, ready_s: float) -> None:
    """Records an activity that ends now.

    Args:
        state: the state.
        rank: the rank.
        activity: the activity.
        step: its step.
        nbytes: the bytes of a message.
        source: the sender of a received message; -1 for other activities.
        ready_s: when a received message was sent.
    """
    now_s, start_s = state.seconds[NOW], state.begun_s[rank]
    state.seconds[END] = max(state.seconds[END], now_s)
    state.ended_s[rank] = now_s
    state.span_counts[activity] += 1
    if activity == RECEIVE:  # it waits until the message has been sent
        turn_s = min(max(ready_s, start_s), now_s)
        state.activity_s[rank, WAIT] += turn_s - start_s
        start_of_share_s = turn_s
    else:
        start_of_share_s = start_s
    state.activity_s[rank, min(activity, COMMUNICATION)] += now_s - start_of_share_s
    if state.kept[rank]:
        row = state.counts[SPANS]
        state.counts[SPANS] = row + 1
        state.spans[row, 0] = rank
        state.spans[row, 1] = activity
        state.spans[row, 2] = step
        state.spans[row, 3] = nbytes
        state.spans[row, 4] = source
        state.spans_s[row, 0] = start_s
        state.spans_s[row, 1] = now_s
        state.spans_s[row, 2] = ready_s


def note_gradient(state: State, rank: int, step: int) -> None:
    """Records a gradient that ends now, if gradients of all ranks are counted."""
    if len(state.gradients) > 1:
        row = state.counts[GRADIENTS]
        state.counts[GRADIENTS] = row + 1
        state.gradients[row, 0] = rank
        state.gradients[row, 1] = step
        state.gradients_s[row, 0] = state.begun_s[rank]
        state.gradients_s[row, 1] = state.seconds[NOW]
