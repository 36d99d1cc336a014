"""Drives the state machine without SimPy, for a collective that is alone on the network.

* Invariant: all events of one instant are processed before rates are solved, once. Times that differ only by rounding
  count as one instant (`max_min.together`). So events need no priorities.
* Rejected: using SimPy here, too. A message of a ring costs 23 µs with SimPy's events, but 13 µs in plain Python and
  0.2 µs in compiled code, and most collectives of most runs are alone. The same code runs as plain Python and, compiled
  by numba, as machine code, which takes 0.7 s to load and some seconds to compile, once per machine.
* Source: the loop is that of `max_min.play`, with a second queue, and has no other source. Progressive filling is from
  Bertsekas and Gallager (see `max_min`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from math import inf
from typing import Any, NamedTuple

import numpy as np

from paceline.simulator.collectives import state_machine
from paceline.simulator.collectives.collective_plan import CollectivePlan
from paceline.simulator.collectives.message_paths import Numbers
from paceline.simulator.collectives.pattern_tables import (
    READY,
    STARTS,
    PatternTables,
    as_arrays,
    as_lists,
    build_tables,
    column,
    enter_all,
    finish_s,
)
from paceline.simulator.collectives.rounds import Amounts
from paceline.simulator.collectives.standalone_network import OwnNetwork, own_network
from paceline.simulator.collectives.state_machine import advance, bytes_through, handle
from paceline.simulator.flows import compiled
from paceline.simulator.flows.fabric import Fabric
from paceline.simulator.flows.indexed_heap import least, put, take
from paceline.simulator.flows.max_min import enter, leave, solve, together
from paceline.simulator.flows.network_state import NONE
from paceline.simulator.flows.network_state import as_arrays as net_as_arrays

MANY = 5000
"""number of messages from which compiled code is used, because most collectives are simulated several times"""
MANY_ONCE = 50_000
"""the same for `state_at`, which runs once: loading takes as long as about this many messages in plain Python"""


def simulate(
    plan: CollectivePlan, fabric: Fabric, entries_s: Amounts, *, compiled: bool | None = None
) -> tuple[Amounts, Entered]:
    """Simulates a collective from the instant at which its messages may begin.

    Args:
        plan: the collective.
        fabric: its network.
        entries_s: when each rank enters, seconds.
        compiled: whether to run compiled code; by default, if there are many messages.

    Returns:
        When each rank is done, and when it entered the last repetitions of each round.
    """
    compiled = plan.pattern.messages >= MANY if compiled is None else compiled
    tables, _ = _carried_out(plan, fabric, entries_s, inf, compiled=compiled)
    entered = Entered(np.array(column(tables.rounds, "round")), np.reshape(tables.entered, (-1, 3)))
    return finish_s(tables, entries_s), entered


class Halfway(NamedTuple):
    """A collective that is alone on the network from some instant on."""

    tables: PatternTables
    """its state, as lists; not changed"""
    left: Mapping[int, float]
    """the bytes that are left of each message in flight, by its number"""
    time_s: float
    """the instant, counted from that at which messages may begin"""


def end_s(plan: CollectivePlan, fabric: Fabric, halfway: Halfway, *, compiled: bool | None = None) -> float:
    """Returns when the last rank is done, counted from the instant at which messages may begin.

    Args:
        plan: the collective.
        fabric: its network.
        halfway: what happened before it was alone.
        compiled: whether to run compiled code; by default, if there are many messages.
    """
    compiled = plan.pattern.messages >= MANY if compiled is None else compiled
    none: Amounts = np.zeros(len(plan.ranks))
    tables, _ = _carried_out(plan, fabric, none, inf, compiled=compiled, halfway=halfway)
    return float(finish_s(tables, none).max(initial=0.0))


def state_at(
    plan: CollectivePlan,
    fabric: Fabric,
    time_s: float,
    halfway: Halfway | None = None,
    *,
    compiled: bool | None = None,
) -> tuple[PatternTables, dict[int, float]]:
    """Simulates a collective that all ranks enter at 0, up to the events at a given time.

    Args:
        plan: the collective.
        fabric: its network.
        time_s: the time, counted from the instant at which messages may begin.
        halfway: what happened before the collective was alone; None: it was alone from the beginning.
        compiled: whether to run compiled code; by default, if there are very many messages.

    Returns:
        The state before the events at this time, as lists, and the bytes that are left of each message in flight, by
        its number.
    """
    compiled = plan.pattern.messages >= MANY_ONCE if compiled is None else compiled
    none: Amounts = np.zeros(len(plan.ranks))
    tables, network = _carried_out(plan, fabric, none, time_s, compiled=compiled, halfway=halfway)
    net, left = network.net, {}
    for number in net.ends.order[: int(net.ends.size[0])]:
        flow = net.flows[number]
        left[int(network.message_of[number])] = max(0.0, float(flow.remaining - flow.rate * (time_s - flow.since)))
    return as_lists(tables), left


@dataclass(frozen=True, slots=True, eq=False)
class Entered:
    """For each round of each member: its number, and when the member entered the last repetitions."""

    round: Numbers
    times_s: Amounts

    def last(self, number: int, times: int) -> list[Amounts]:
        """Returns when the members of a round entered its last three repetitions, in order.

        Args:
            number: the number of the round, counted over all parts.
            times: how often it was repeated.
        """
        rows = self.times_s[self.round == number]
        return [rows[:, (times - back) % 3] for back in (3, 2, 1)]


def _carried_out(
    plan: CollectivePlan,
    fabric: Fabric,
    entries_s: Amounts,
    until_s: float,
    *,
    compiled: bool,
    halfway: Halfway | None = None,
) -> tuple[PatternTables, OwnNetwork]:
    tables = build_tables(plan)
    lists = halfway is not None or not compiled
    network = own_network(tables, plan.message_paths, len(plan.ranks), fabric.capacity, lists=lists)
    if halfway is not None:
        latency_s, tables = tables.messages["latency_s"], as_arrays(halfway.tables)  # type: ignore[call-overload]
        tables.messages["latency_s"] = latency_s  # type: ignore[call-overload]
        network = _under_way(tables, network, halfway, lists=not compiled)
    if not compiled:
        tables = as_lists(tables)
    if halfway is None:
        enter_all(tables, entries_s)
    (machine_code() if compiled else run)(tables, network, 0.0 if halfway is None else halfway.time_s, until_s)
    return tables, network


def _under_way(tables: PatternTables, network: OwnNetwork, halfway: Halfway, *, lists: bool) -> OwnNetwork:
    """Lets the messages in flight go on in a network of lists; returns it as lists or as arrays."""
    net, now = network.net, halfway.time_s
    for index, nbytes in halfway.left.items():
        flow = network.flow_of[index]
        if flow == NONE or nbytes == 0.0:
            put(tables.events, 2 * len(tables.messages) + index, now)
        else:
            net.flows[flow].remaining, network.message_of[flow] = nbytes, index
            enter(net, flow, now)
    solve(net, now)
    if lists:
        return network
    return OwnNetwork(net_as_arrays(net), np.array(network.flow_of), np.array(network.message_of))  # type: ignore[arg-type]


@cache
def machine_code() -> Callable[..., Any]:
    """Returns `run`, which numba compiles at its first call."""
    return compiled.compiled(run, (*compiled.PARTS, *state_machine.COMPILED, proceed))


# --- plain Python, or machine code ------------------------------------------------------------------------------------


def run(tables: PatternTables, network: OwnNetwork, now: float, until: float) -> None:
    """Processes all events before a time.

    Args:
        tables: the state.
        network: the collective's network.
        now: the time at which it begins, or goes on.
        until: the time; events at this time are not processed.
    """
    net = network.net
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
    """Lets members that are ready proceed and starts messages; messages without flow or bytes end at once."""
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
