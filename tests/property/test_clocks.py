"""Clocks of several hosts: the error of the offsets is within the stated bound, for all message delays."""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.backend.supervision.clock_sync import Alignment, ClockReading, ClockRound, answer, ask, read

DELAYS = st.floats(0.0, 0.5)
ROUNDS = st.lists(st.tuples(DELAYS, DELAYS, DELAYS), min_size=1, max_size=20)
OFFSETS = st.floats(-1e5, 1e5)
SLACK = 1e-9
"""of sums of floating-point numbers as large as these"""


def rounds(ways: Sequence[tuple[float, float, float]], offset_s: float, drift: float = 0.0) -> list[ClockRound]:
    """The duration of a request and a reply; the third value is a pause before the next one."""
    now_s, found = 1000.0, []
    for there_s, back_s, pause_s in ways:
        said_s = now_s + there_s
        found.append(ClockRound(now_s, said_s * (1 + drift) + offset_s, said_s + back_s))
        now_s = said_s + back_s + pause_s
    return found


@given(ROUNDS, OFFSETS)
def test_an_offset_is_within_its_error(ways: list[tuple[float, float, float]], offset_s: float) -> None:
    found = read(rounds(ways, offset_s))
    assert abs(found.offset_s - offset_s) <= found.error_s + SLACK
    assert found.error_s == pytest.approx(min(there + back for there, back, _ in ways) / 2, abs=SLACK)


@given(ROUNDS, ROUNDS, OFFSETS, st.floats(-1e-4, 1e-4), st.floats(0.0, 1.0))
def test_between_two_readings_an_even_drift_is_followed(
    before: list[tuple[float, float, float]],
    after: list[tuple[float, float, float]],
    offset_s: float,
    drift: float,
    share: float,
) -> None:
    """The leader's clock is own · (1 + drift) + offset; a time in between is aligned within the stated error."""
    start = read(rounds(before, offset_s, drift))
    later = rounds(after, offset_s + 100 * drift, drift)  # 100 s later, on the clock that asks
    later = [ClockRound(one.asked_s + 100, one.said_s + 100, one.heard_s + 100) for one in later]
    end = read(later)
    clock = Alignment(start, end, start_s=start.at_s)
    own_s = start.at_s + share * (end.at_s - start.at_s)
    leader_start_s = start.at_s + start.offset_s  # where the leader said that the run begins
    true_s = own_s * (1 + drift) + offset_s - leader_start_s
    # what the middle of a round is off by is bounded by half of it, at either clock's speed
    assert abs(clock.aligned(own_s - start.at_s) - true_s) <= clock.error_s * (1 + abs(drift)) + SLACK


def test_drift_counts_from_the_reading_and_not_from_the_start_of_the_run() -> None:
    clock = Alignment(ClockReading(100.0, 5.0, 1e-4), ClockReading(200.0, 6.0, 1e-4), start_s=110.0)
    assert clock.shift_s(50.0) == pytest.approx(0.01 * 60.0)


def test_without_a_second_reading_the_first_one_stands() -> None:
    clock = Alignment(ClockReading(10.0, 3.0, 1e-4), None, start_s=12.0)
    assert (clock.drift, clock.aligned(5.0), clock.error_s) == (0.0, 5.0, 1e-4)


def test_two_ends_of_a_connection() -> None:
    """Over a real connection: the answering clock is 1000 s ahead, and this offset is found."""
    import time

    one, other = socket.socketpair()
    with one, other:
        ahead = threading.Thread(target=answer, args=(other,), kwargs={"clock": lambda: time.monotonic() + 1000.0})
        ahead.start()
        found = ask(one)
        ahead.join()
    assert abs(found.offset_s - 1000.0) <= found.error_s + SLACK
    assert 0 < found.error_s < 10.0
