"""Records of a compiled run: spans of the kept ranks, and sums over all ranks."""

from __future__ import annotations

from paceline.simulator.servers.machine_state import Count, Second, State

SPANS, NOW, END = int(Count.SPANS), int(Second.NOW), int(Second.END)


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
    state.activity_s[rank, activity] += now_s - start_s
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


def note_gradient(state: State, rank: int) -> None:
    """Counts a gradient that ends now."""
    start_s = state.begun_s[rank]
    if state.gradients[rank] == 0:
        state.starts_s[rank, 0] = start_s
    state.starts_s[rank, 1] = start_s
    state.gradients[rank] += 1
