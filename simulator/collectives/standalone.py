"""Drives the state machine on tables alone, for a collective that shares the network with nothing else.

* Invariant: everything that happens at one instant is processed before rates are solved, once, and instants that only
  rounding tells apart are one (`max_min.together`). So it needs no priorities among events.
* Rejected: SimPy for this, too. A message of a ring costs 13 µs in plain Python and 0.2 µs in machine code, but 23 µs
  with SimPy's events, and most collectives of most runs are simulated alone. The same code runs as plain Python and,
  compiled by numba, as machine code, which takes 0.7 s to load; compiling it once takes some seconds.
* Source: none for the loop, which is that of `max_min.play` with a second queue; progressive filling is from Bertsekas
  and Gallager (see `max_min`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import inf
from typing import Any

import numpy as np

from paceline.simulator.collectives import state_machine
from paceline.simulator.collectives.message_paths import Numbers
from paceline.simulator.collectives.pattern_tables import (
    READY,
    STARTS,
    PatternTables,
    as_lists,
    build_tables,
    column,
    enter_all,
    finish_s,
)
from paceline.simulator.collectives.plan import CollectivePlan
from paceline.simulator.collectives.rounds import Amounts
from paceline.simulator.collectives.standalone_network import OwnNetwork, own_network
from paceline.simulator.collectives.state_machine import advance, bytes_through, handle
from paceline.simulator.flows import compiled
from paceline.simulator.flows.fabric import Fabric
from paceline.simulator.flows.indexed_heap import least, put, take
from paceline.simulator.flows.max_min import enter, leave, solve, together
from paceline.simulator.flows.network_state import NONE

MANY = 5000
"""from so many messages on, machine code is worth loading, as most collectives are simulated several times"""
MANY_ONCE = 50_000
"""the same for a part of one simulation: loading takes as long as about so many messages do in plain Python"""


def simulate(
    plan: CollectivePlan, fabric: Fabric, entries_s: Amounts, *, compiled: bool | None = None
) -> tuple[Amounts, Entered]:
    """When each rank is done, and when it entered the last repetitions of each round.

    Args:
        plan: what is carried out, from the moment at which its messages may begin.
        fabric: what its messages cross.
        entries_s: when each rank comes.
        compiled: whether to run as machine code; by default, where there are many messages.
    """
    compiled = plan.pattern.messages >= MANY if compiled is None else compiled
    tables, _ = _carried_out(plan, fabric, entries_s, inf, compiled)
    entered = Entered(np.array(column(tables.rounds, "round")), np.reshape(tables.entered, (-1, 3)))
    return finish_s(tables, entries_s), entered


def state_at(
    plan: CollectivePlan, fabric: Fabric, time_s: float, *, compiled: bool | None = None
) -> tuple[PatternTables, dict[int, float]]:
    """The state before what happens at a time, where all ranks come at 0.

    Args:
        plan: what is carried out.
        fabric: what its messages cross.
        time_s: counted from the moment at which messages may begin.
        compiled: whether to run as machine code; by default, where there are very many messages.

    Returns:
        The tables as lists, and the bytes that are left of messages, by number.
    """
    compiled = plan.pattern.messages >= MANY_ONCE if compiled is None else compiled
    tables, network = _carried_out(plan, fabric, np.zeros(len(plan.ranks)), time_s, compiled)
    net, left = network.net, {}
    for number in net.ends.order[: int(net.ends.size[0])]:
        flow = net.flows[number]
        left[int(network.message_of[number])] = max(0.0, float(flow.remaining - flow.rate * (time_s - flow.since)))
    return as_lists(tables), left


@dataclass(frozen=True, slots=True, eq=False)
class Entered:
    """Of each round of each member: its number, and when the member entered the last repetitions."""

    round: Numbers
    times_s: Amounts

    def last(self, number: int, times: int) -> list[Amounts]:
        """When its members entered the last three repetitions, the first of them first."""
        rows = self.times_s[self.round == number]
        return [rows[:, (times - back) % 3] for back in (3, 2, 1)]


def _carried_out(
    plan: CollectivePlan, fabric: Fabric, entries_s: Amounts, until_s: float, compiled: bool
) -> tuple[PatternTables, OwnNetwork]:
    tables = build_tables(plan)
    network = own_network(tables, plan.message_paths, len(plan.ranks), fabric.capacity, lists=not compiled)
    if not compiled:
        tables = as_lists(tables)
    enter_all(tables, entries_s)
    (machine_code() if compiled else run)(tables, network, until_s)
    return tables, network


@cache
def machine_code() -> Callable[..., Any]:
    """`run`, to be compiled at its first call."""
    return compiled.compiled(run, (*compiled.PARTS, *state_machine.COMPILED, proceed))


# --- plain Python, or machine code ------------------------------------------------------------------------------------


def run(tables: PatternTables, network: OwnNetwork, until: float) -> None:
    """Processes everything that is due before a time."""
    now, net = 0.0, network.net
    while min(least(tables.events), least(net.ends)) < until:
        soonest = min(least(tables.events), least(net.ends))
        latest = together(soonest, now)
        now = soonest
        while least(net.ends) <= latest:
            flow = net.ends.order[0]
            leave(net, flow, now)
            bytes_through(tables, network.message_of[flow], now)
        while least(tables.events) <= latest:
            item = tables.events.order[0]
            take(tables.events, item)
            handle(tables, item, now)
            if tables.counts[READY] > 0:
                proceed(tables, network, now)
        if tables.counts[READY] > 0:
            proceed(tables, network, now)
        solve(net, now)


def proceed(tables: PatternTables, network: OwnNetwork, now: float) -> None:
    """Members that are ready go on, and messages set out; those that need no bandwidth are through at once."""
    advance(tables, now)
    for at in range(tables.counts[STARTS]):
        index = tables.starts[at]
        message, flow = tables.messages[index], network.flow_of[index]
        if flow == NONE or message.nbytes == 0.0:
            put(tables.events, 2 * len(tables.messages) + index, now)
        else:
            network.net.flows[flow].remaining = message.nbytes
            network.message_of[flow] = index
            enter(network.net, flow, now)
    tables.counts[STARTS] = 0
