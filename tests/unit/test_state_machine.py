"""The state machine of collectives, driven by hand: when messages start, and when members are done."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from paceline.algorithms.core.values import Rank
from paceline.simulator.collectives.execution import (
    OPEN,
    STARTS,
    PatternTables,
    advance,
    begun,
    bytes_through,
    handle,
)
from paceline.simulator.collectives.patterns import Pattern, Round, one_round
from paceline.simulator.collectives.plans import CollectivePlan
from paceline.simulator.flows.max_min import as_lists, least, take
from paceline.simulator.flows.path_tables import Path, stacked

HOP = one_round([(0, 1)], 8.0)
ADDING_S = 0.5
LATENCY_S = 0.25


def tables_of(*rounds: Round, entries_s: tuple[float, ...] = (0.0, 1.0)) -> PatternTables:
    plan = CollectivePlan(
        Pattern((rounds,)),
        tuple(map(Rank, range(2))),
        lambda sources, *_: stacked([Path((), 0.0)] * len(sources)),
        ADDING_S / 8.0,
    )
    tables = as_lists(begun(plan, np.array(entries_s)).tables)
    for message in tables.messages:
        message.latency_s = LATENCY_S
    return tables


def next_event(tables: PatternTables) -> float:
    """Processes the event that is due first; its time."""
    now = least(tables.events)
    item = tables.events.order[0]
    take(tables.events, item)
    handle(tables, item, now)
    advance(tables, now)
    return now


def started(tables: PatternTables) -> list[int]:
    """The messages that have started since the last call."""
    count, tables.counts[STARTS] = tables.counts[STARTS], 0
    return list(tables.starts[:count])


def through(tables: PatternTables, index: int, now: float) -> None:
    bytes_through(tables, index, now)
    advance(tables, now)


def finished_s(tables: PatternTables) -> list[float]:
    return [member.finish_s for member in tables.members]


def test_a_message_starts_when_both_ends_have_entered() -> None:
    tables = tables_of(HOP)
    assert next_event(tables) == 0.0 and started(tables) == []
    assert next_event(tables) == 1.0 and started(tables) == [0]


def test_a_buffered_message_starts_when_its_sender_has_entered_and_waits_for_its_receiver() -> None:
    tables = tables_of(replace(HOP, buffered=True))
    assert next_event(tables) == 0.0 and started(tables) == [0]
    through(tables, 0, 0.5)
    assert next_event(tables) == 0.5 + LATENCY_S and tables.counts[OPEN] == 1
    assert next_event(tables) == 1.0 and tables.counts[OPEN] == 0
    assert finished_s(tables) == [0.5, 1.0]


@pytest.mark.parametrize(("blocking", "sender_s"), [(False, 3.0), (True, 3.0 + LATENCY_S)])
def test_a_sender_is_done_when_the_bytes_have_left_or_have_arrived(blocking: bool, sender_s: float) -> None:
    tables = tables_of(replace(HOP, blocking=blocking))
    next_event(tables)
    next_event(tables)
    through(tables, 0, 3.0)
    assert next_event(tables) == 3.0 + LATENCY_S
    assert finished_s(tables) == [sender_s, 3.0 + LATENCY_S] and tables.counts[OPEN] == 0


def test_a_receiver_that_reduces_is_done_when_it_has_added() -> None:
    tables = tables_of(replace(HOP, reduces=True))
    next_event(tables)
    next_event(tables)
    through(tables, 0, 3.0)
    assert next_event(tables) == 3.0 + LATENCY_S and tables.counts[OPEN] == 1
    assert next_event(tables) == 3.0 + LATENCY_S + ADDING_S and tables.counts[OPEN] == 0


def test_a_sender_of_buffered_messages_runs_ahead_and_arrivals_keep_their_order() -> None:
    """The second repetition takes a path of no latency, and still arrives after the first."""
    tables = tables_of(replace(HOP, buffered=True, times=2), entries_s=(0.0, 0.0))
    next_event(tables)
    next_event(tables)
    assert started(tables) == [0]
    through(tables, 0, 1.0)
    assert started(tables) == [0]
    tables.messages[0].latency_s = 0.0
    through(tables, 0, 1.1)
    assert tables.members[0].finish_s == 1.1
    assert next_event(tables) == 1.0 + LATENCY_S and tables.members[1].repetition == 1
    next_event(tables)
    assert tables.counts[OPEN] == 0


def test_a_member_enters_its_next_round_when_all_its_messages_are_complete() -> None:
    both_ways = one_round([(0, 1), (1, 0)], 8.0)
    tables = tables_of(both_ways, HOP, entries_s=(0.0, 0.0))
    next_event(tables)
    next_event(tables)
    assert sorted(started(tables)) == [0, 1]
    through(tables, 0, 1.0)
    next_event(tables)
    assert started(tables) == [], "member 1 has received, but its own message is not complete"
    through(tables, 1, 2.0)
    assert started(tables) == [], "member 0 has not received"
    next_event(tables)
    assert started(tables) == [2]
