"""`EagerProcess` against SimPy's processes: the same steps at the same times, and fewer entries of the queue."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import pytest
import simpy

from paceline.simulator.kernel.clock import VirtualClock
from paceline.simulator.kernel.simpy_events import EagerProcess

Begin = Callable[[VirtualClock, Generator[simpy.Event, Any, Any]], simpy.Process]
BOTH = pytest.mark.parametrize("begin", [EagerProcess, simpy.Process], ids=["activity", "process"])


@BOTH
def test_waits_for_events_and_ends_with_an_answer(begin: Begin) -> None:
    clock, seen = VirtualClock(), []

    def steps() -> Generator[simpy.Event, Any, str]:
        seen.append(((yield clock.timeout(2.0, "two")), clock.now))
        seen.append(((yield clock.event().succeed("now")), clock.now))
        return "answer"

    def waits(other: simpy.Process) -> Generator[simpy.Event, Any, None]:
        seen.append(((yield other), clock.now))

    clock.process(waits(begin(clock, steps())))
    clock.process_all()
    assert seen == [("two", 2.0), ("now", 2.0), ("answer", 2.0)]


@BOTH
def test_an_interrupt_arrives_where_it_waits(begin: Begin) -> None:
    clock, seen = VirtualClock(), []

    def steps() -> Generator[simpy.Event, Any, None]:
        try:
            yield clock.timeout(5.0)
        except simpy.Interrupt:
            seen.append(clock.now)
        yield clock.timeout(1.0)
        seen.append(clock.now)

    activity = begin(clock, steps())

    def interrupts() -> Generator[simpy.Event, Any, None]:
        yield clock.timeout(3.0)
        activity.interrupt()

    clock.process(interrupts())
    clock.process_all()
    assert seen == [3.0, 4.0] and activity.processed and not activity.is_alive
    with pytest.raises(RuntimeError):
        activity.interrupt()


@BOTH
def test_a_failure_ends_the_run(begin: Begin) -> None:
    clock = VirtualClock()

    def steps() -> Generator[simpy.Event, Any, None]:
        yield clock.timeout(1.0)
        raise KeyError("a bug")

    begin(clock, steps())
    with pytest.raises(KeyError, match="a bug"):
        clock.process_all()
    assert clock.now == 1.0


def test_an_activity_without_events_takes_no_entry_of_the_queue() -> None:
    clock, seen = VirtualClock(), []

    def steps() -> Generator[simpy.Event, Any, int]:
        seen.append(clock.now)
        yield from list[simpy.Event]()
        return 3

    activity = EagerProcess(clock, steps())
    assert seen == [0.0] and activity.processed and activity.value == 3
    assert clock.process_all() == 0


def test_the_loop_ends_when_it_is_halted() -> None:
    clock = VirtualClock()

    def steps() -> Generator[simpy.Event, Any, None]:
        yield clock.timeout(1.0)
        clock.halt()
        yield clock.timeout(1.0)

    EagerProcess(clock, steps())
    assert clock.process_all() == 1 and clock.now == 1.0
