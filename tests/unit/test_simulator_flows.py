"""Flows in virtual time that are limited, slowed down, stopped and rerouted: their end times."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest
import simpy
from simpy.events import ProcessGenerator

from paceline.algorithms.core.errors import InputError
from paceline.simulator.flows.flow_engine import Flows
from tests.traffic import CountedFlows

Act = Callable[[Flows, list[simpy.Event]], None]


def ends(
    capacity: dict[str, float], begin: Sequence[Callable[[Flows], simpy.Event]], acts: dict[float, Act], until: float
) -> tuple[list[float | None], CountedFlows]:
    """Returns when flows that begin at 0 end, with these events."""
    env = simpy.Environment(0.0)
    flows = CountedFlows(env, capacity)
    events = [one(flows) for one in begin]
    found: list[float | None] = [None] * len(events)

    def watch(number: int) -> ProcessGenerator:
        yield events[number]
        found[number] = env.now

    def perform(when_s: float, act: Act) -> ProcessGenerator:
        yield env.timeout(when_s)
        act(flows, events)

    for number in range(len(events)):
        env.process(watch(number))
    for when_s, act in acts.items():
        env.process(perform(when_s, act))
    env.run(until)
    return found, flows


def test_a_limit_leaves_the_rest_to_others() -> None:
    begin = [lambda flows: flows.begin(("a",), 6, limit_bytes_per_s=2.0), lambda flows: flows.begin(("a",), 18)]
    found, flows = ends({"a": 8.0}, begin, {}, 9.0)
    assert found == [3.0, 3.0]
    assert flows.carried_bytes == {"a": 24.0}


def test_a_limit_is_enough_of_a_path_and_no_path_takes_no_time() -> None:
    begin = [lambda flows: flows.begin((), 6, limit_bytes_per_s=2.0), lambda flows: flows.begin((), 6)]
    assert ends({}, begin, {}, 9.0)[0] == [3.0, 0.0]


def test_a_limit_is_forgotten_with_its_flow() -> None:
    env = simpy.Environment(0.0)
    flows = Flows(env, {"a": 8.0})
    for limit_bytes_per_s, bytes_per_s in ((2.0, 2.0), (4.0, 4.0), (16.0, 8.0), (1.0, 1.0)):
        began_s = env.now
        env.run(flows.begin(("a",), 16, limit_bytes_per_s=limit_bytes_per_s))
        assert env.now - began_s == 16 / bytes_per_s


def test_a_link_is_slowed_down_and_repaired() -> None:
    begin = [lambda flows: flows.begin(("a",), 20), lambda flows: flows.begin(("a", "b"), 20)]
    # 4 each until 2; 1 each until 6; the rest, 8 each, at 4
    acts: dict[float, Act] = {
        2.0: lambda flows, _: flows.change("a", 2.0),
        6.0: lambda flows, _: flows.change("a", 8.0),
    }
    assert ends({"a": 8.0, "b": 100.0}, begin, acts, 99.0)[0] == [8.0, 8.0]


def test_who_was_held_back_elsewhere_feels_only_what_reaches_him() -> None:
    begin = [lambda flows: flows.begin(("a", "b"), 10), lambda flows: flows.begin(("b",), 30)]
    # a gives 1, b the other 3; from 2 on a gives 2, so b is shared by halves
    assert ends({"a": 1.0, "b": 4.0}, begin, {2.0: lambda flows, _: flows.change("a", 9.0)}, 99.0)[0] == [6.0, 10.0]


def test_flows_on_a_broken_link_stand_still_and_leave_the_rest_to_others() -> None:
    begin = [lambda flows: flows.begin(("a", "b"), 8), lambda flows: flows.begin(("b",), 16)]
    acts: dict[float, Act] = {
        1.0: lambda flows, _: flows.change("a", 0.0),
        9.0: lambda flows, _: flows.change("a", 4.0),
    }
    found, flows = ends({"a": 4.0, "b": 4.0}, begin, acts, 99.0)  # 2 each until 1; then 14 at 4
    assert found == [10.5, 4.5]
    assert flows.carried_bytes == {"a": 8.0, "b": 24.0}


def test_what_begins_on_a_broken_link_waits_for_its_repair() -> None:
    acts: dict[float, Act] = {5.0: lambda flows, _: flows.change("a", 2.0)}
    assert ends({"a": 0.0}, [lambda flows: flows.begin(("a",), 8)], acts, 99.0)[0] == [9.0]
    assert ends({"a": 0.0}, [lambda flows: flows.begin(("a",), 8)], {}, 99.0)[0] == [None]


def test_a_flow_that_ends_as_its_link_breaks_is_through() -> None:
    acts: dict[float, Act] = {2.0: lambda flows, _: flows.change("a", 0.0)}
    assert ends({"a": 4.0}, [lambda flows: flows.begin(("a",), 8)], acts, 99.0)[0] == [2.0]


def test_what_is_left_goes_on_another_way() -> None:
    def act(flows: Flows, events: list[simpy.Event]) -> None:
        flows.change("a", 0.0)
        flows.move(events[0], ("b", "c"))

    begin = [lambda flows: flows.begin(("a",), 8), lambda flows: flows.begin(("b",), 6)]
    # the first moves 4 until 1 and then shares b
    found, flows = ends({"a": 4.0, "b": 2.0, "c": 9.0}, begin, {1.0: act}, 99.0)
    assert found == [5.0, 5.0]
    assert flows.carried_bytes == {"a": 4.0, "b": 10.0, "c": 4.0}


def test_a_limit_goes_along() -> None:
    begin = [lambda flows: flows.begin(("a",), 8, limit_bytes_per_s=2.0)]
    assert ends({"a": 1.0, "b": 9.0}, begin, {2.0: lambda flows, events: flows.move(events[0], ("b",))}, 99.0)[0] == [
        5.0
    ]


def test_whom_a_flow_held_back_before_it_moved_is_faster_after() -> None:
    begin = [lambda flows: flows.begin(("a",), 8), lambda flows: flows.begin(("a",), 8)]
    acts: dict[float, Act] = {2.0: lambda flows, events: flows.move(events[0], ("b",))}
    assert ends({"a": 4.0, "b": 1.0}, begin, acts, 99.0)[0] == [6.0, 3.0]


def test_moving_what_has_yet_to_begin_what_is_through_and_to_where_nothing_is_shared() -> None:
    def at_once(flows: Flows) -> simpy.Event:
        event = flows.begin(("a",), 8)
        flows.move(event, ("b",))
        return event

    def all_of_them(flows: Flows, events: list[simpy.Event]) -> None:
        for event in events:
            flows.move(event, ("a",))

    acts: dict[float, Act] = {1.0: lambda flows, events: flows.move(events[1], ()), 6.0: all_of_them}
    begin = [at_once, lambda flows: flows.begin(("a",), 8)]
    found, flows = ends({"a": 1.0, "b": 2.0}, begin, acts, 99.0)
    assert found == [4.0, 1.0]
    assert flows.carried_bytes == {"a": 1.0, "b": 8.0}


def test_changes_of_one_instant_are_one_change() -> None:
    def act(flows: Flows, events: list[simpy.Event]) -> None:
        for bytes_per_s in (0.0, 1.0, 4.0):
            flows.change("a", bytes_per_s)
        for ports in (("b",), ("a",)):
            flows.move(events[0], ports)

    assert ends({"a": 4.0, "b": 1.0}, [lambda flows: flows.begin(("a",), 8)], {1.0: act}, 99.0)[0] == [2.0]


@pytest.mark.parametrize("bytes_per_s", [-1.0, float("inf"), float("nan")])
def test_a_link_cannot_carry_that(bytes_per_s: float) -> None:
    with pytest.raises(InputError) as caught:
        Flows(simpy.Environment(), {"a": 1.0}).change("a", bytes_per_s)
    assert str(caught.value) == f"port 'a': found {bytes_per_s} bytes/s, expected 0 or more, finite"


@pytest.mark.parametrize("limited", [False, True])
def test_machine_code_goes_on_where_very_many_flows_are_under_way(
    monkeypatch: pytest.MonkeyPatch, limited: bool
) -> None:
    """Waves of flows of two lengths: arrays have to grow, and indices are reused."""

    def finish_s() -> list[float]:
        env = simpy.Environment(0.0)
        flows = CountedFlows(env, {"all": 50.0} | {f"own {number}": 1.0 + number % 7 for number in range(60)})
        ended: list[float] = []

        def begin() -> ProcessGenerator:
            for wave in range(4):
                for number in range(60):
                    limit = 0.5 + number if limited and (number + wave) % 3 == 0 else math.inf
                    ports = (f"own {number}", "all") if (number + wave) % 2 else ("all",)
                    event = flows.begin(ports, 5 + (7 * number + wave) % 11, limit)
                    assert event.callbacks is not None
                    event.callbacks.append(lambda _: ended.append(env.now))
                yield env.timeout(4.0 + wave)
                flows.change("all", 60.0 + wave)

        env.process(begin())
        env.run()
        return [*ended, *flows.carried_bytes.values()]

    as_it_stands = finish_s()
    monkeypatch.setattr("paceline.simulator.flows.flow_engine.MANY", 20)
    assert finish_s() == as_it_stands
    assert len(as_it_stands) == 4 * 60 + 61
