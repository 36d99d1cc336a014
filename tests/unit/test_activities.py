"""`EagerProcess` and the clock's loop: fewer entries of the queue than SimPy's processes need, and an early end."""

from __future__ import annotations

from collections.abc import Generator

import simpy

from paceline.simulator.kernel.clock import VirtualClock
from paceline.simulator.kernel.simpy_events import EagerProcess


def test_an_activity_without_events_takes_no_entry_of_the_queue() -> None:
    clock, seen = VirtualClock(), []

    def steps() -> Generator[simpy.Event, None, int]:
        seen.append(clock.now)
        yield from list[simpy.Event]()
        return 3

    activity = EagerProcess(clock, steps())
    assert seen == [0.0] and activity.processed and activity.value == 3
    assert clock.process_all() == 0


def test_the_loop_ends_when_it_is_halted() -> None:
    clock = VirtualClock()

    def steps() -> Generator[simpy.Event, None, None]:
        yield clock.timeout(1.0)
        clock.halt()
        yield clock.timeout(1.0)

    EagerProcess(clock, steps())
    assert clock.process_all() == 1 and clock.now == 1.0
