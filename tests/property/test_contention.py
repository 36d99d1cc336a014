"""The end of a collective does not depend on the driver: tables, machine code, SimPy events, or one after the other.

All drivers share one state machine; `tests/closed_form` compares them with a replay that shares no code with it.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms.core.values import Group, Rank
from paceline.simulator.collectives import contention
from paceline.simulator.collectives.contention import Contention
from paceline.simulator.collectives.execution import Carry, EventDriver, begun, simulate_alone
from paceline.simulator.collectives.pattern_time import alone_s
from paceline.simulator.collectives.patterns import PATTERNS, Kind
from paceline.simulator.collectives.plans import CollectivePlan
from paceline.simulator.collectives.tuning import Tuner
from paceline.simulator.flows.fabric import GraphFabric
from paceline.simulator.flows.flow_engine import Flows
from paceline.simulator.flows.max_min import as_lists
from paceline.simulator.flows.path_tables import Path
from paceline.topologies.catalogue.device import DeviceModel
from paceline.topologies.cluster import ClusterModel, Node
from paceline.topologies.graphs.links import LinkModel
from paceline.topologies.graphs.network_graphs import fat_tree
from tests.clusters import star
from tests.replay import simulate_by_events
from tests.thorough import examples

CLOSE = 1e-9
"""relative: both drivers add the same numbers in another order"""


def tree() -> ClusterModel:
    """16 hosts of a fat tree whose links carry 1000 bytes a second."""
    wire = LinkModel(name="wire", latency_s=0.25, bytes_per_s=1000.0, provenance="a test's own")
    device = DeviceModel(name="device", overhead_s=1.0, per_sample_s=0.0)
    nodes = [
        Node(name=f"n{i}", device=device, seats=(f"host{i}",), host=f"host{i}", intra_node_link=wire) for i in range(16)
    ]
    return ClusterModel(nodes=tuple(nodes), graph=fat_tree(k=4, link=wire))


CLUSTERS = [star(1, 1, 1, 1, latency_s=0.25), star(2, 2, 2, latency_s=0.25), star(3, 1, 2, latency_s=0.5), tree()]
EVERY: list[tuple[Kind, str]] = [(kind, name) for kind, names in PATTERNS.items() for name in names]
NAMES = st.sampled_from(EVERY)


def happenings(
    fabric: GraphFabric,
    asked: list[tuple[float, Any]],
    *,
    carried_out: bool,
    handed_back: bool = False,
    started: list[int] | None = None,
) -> list[float]:
    """Returns when collectives and messages that begin at these times on one network end."""
    env = simpy.Environment(0.0)
    flows = Flows(env, fabric.capacity)

    def carry(_one: Rank, _other: Rank, nbytes: float, path: Path) -> simpy.Event:
        if started is not None:
            started.append(1)
        return flows.begin(path.ports, nbytes, path.limit_bytes_per_s)

    def take_back(transfer: simpy.Event) -> float:
        left = flows.remaining(transfer)
        flows.cancel(transfer)
        return left

    together, ends = Contention(env, fabric, carry, take_back=take_back if handed_back else None), [0.0] * len(asked)

    def one(number: int, begin_s: float, what: Any) -> Generator[simpy.Event, Any, None]:
        yield env.timeout(begin_s)
        if isinstance(what, CollectivePlan):
            yield by_events(env, carry, what) if carried_out else together.start(what)
        else:
            source, to, nbytes = what
            path = fabric.path(source, to, nbytes)
            moving = carry(source, to, nbytes, path)
            together.message(moving, path.ports)
            yield moving
            together.passed(moving)
        ends[number] = env.now

    for number, (begin_s, what) in enumerate(asked):
        env.process(one(number, begin_s, what))
    env.run()
    return ends


def by_events(env: simpy.Environment, carry: Carry, plan: CollectivePlan) -> simpy.Event:
    return EventDriver(env, carry, plan, env.now + plan.base_s).done


def some_plan(fabric: GraphFabric, data: st.DataObject, ranks: int, base_s: float = 0.0) -> CollectivePlan:
    kind, name = data.draw(NAMES)
    members = data.draw(st.lists(st.sampled_from(range(ranks)), min_size=2, max_size=6, unique=True))
    group = Group(tuple(map(Rank, sorted(members))))
    nbytes = data.draw(st.sampled_from([0, 64, 1000, 4097]))
    tuner = Tuner(fabric, name if kind == "AllReduce" else "auto")
    tuner._candidates = lambda *_: [name]  # type: ignore[method-assign]
    return replace(tuner.plan(kind, group, nbytes, 0), base_s=base_s)


@examples(25, 240)
@given(cluster=st.sampled_from(CLUSTERS), data=st.data())
def test_what_shares_ports_is_done_when_its_messages_are(cluster: ClusterModel, data: st.DataObject) -> None:
    fabric = GraphFabric(cluster)
    asked: list[tuple[float, Any]] = []
    for _ in range(data.draw(st.integers(1, 3))):
        base_s = data.draw(st.sampled_from([0.0, 1.5]))
        asked.append((data.draw(st.floats(0, 10)), some_plan(fabric, data, cluster.workers, base_s)))
    for _ in range(data.draw(st.integers(0, 2))):
        ends = data.draw(st.lists(st.sampled_from(range(cluster.workers)), min_size=2, max_size=2, unique=True))
        asked.append((data.draw(st.floats(0, 10)), (*map(Rank, ends), data.draw(st.sampled_from([100, 3000])))))
    expected_s = pytest.approx(happenings(fabric, asked, carried_out=True), rel=CLOSE)
    assert happenings(fabric, asked, carried_out=False) == expected_s
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contention, "FEWEST", 0)
        patch.setattr(contention, "PATIENCE", data.draw(st.sampled_from([0.0, 1 / 64, 1 / 4])))
        assert happenings(fabric, asked, carried_out=False, handed_back=True) == expected_s


def test_a_collective_is_handed_back_when_nothing_else_uses_its_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message passes within a hundredth of the all-reduce, whose messages are simulated one by one only meanwhile."""
    monkeypatch.setattr(contention, "FEWEST", 0)
    fabric = GraphFabric(tree())
    plan = Tuner(fabric, "ring").plan("AllReduce", Group(tuple(map(Rank, range(16)))), 16_000, 0)
    started: list[int] = []
    asked: list[tuple[float, Any]] = [(0.0, plan), (1.0, (Rank(0), Rank(1), 10))]
    ends_s = happenings(fabric, asked, carried_out=False, handed_back=True, started=started)
    assert ends_s == pytest.approx(happenings(fabric, asked, carried_out=True), rel=CLOSE)
    assert len(started) < plan.pattern.messages / 4


@examples(25, 240)
@given(cluster=st.sampled_from(CLUSTERS), data=st.data())
def test_alone_is_as_if_carried_out(cluster: ClusterModel, data: st.DataObject) -> None:
    fabric = GraphFabric(cluster)
    plan = some_plan(fabric, data, cluster.workers)
    entries_s = np.array([data.draw(st.sampled_from([0.0, 0.0, 1.0, 2.5])) for _ in plan.ranks])
    assert alone_s(plan, fabric, entries_s) == pytest.approx(simulate_by_events(plan, fabric, entries_s), rel=CLOSE)


@examples(12, 200)
@given(cluster=st.sampled_from(CLUSTERS), data=st.data())
def test_machine_code_says_what_the_source_says(cluster: ClusterModel, data: st.DataObject) -> None:
    fabric = GraphFabric(cluster)
    plan = some_plan(fabric, data, cluster.workers)
    entries_s = np.array([data.draw(st.sampled_from([0.0, 0.0, 1.0, 2.5])) for _ in plan.ranks])
    before = begun(plan, entries_s)
    as_it_stands, as_machine_code = (
        simulate_alone(plan, fabric, before, compiled=compiled).finish_s(entries_s) for compiled in (False, True)
    )
    assert as_machine_code.tolist() == as_it_stands.tolist()
    assert as_it_stands == pytest.approx(simulate_by_events(plan, fabric, entries_s), rel=CLOSE)


@examples(25, 100)
@given(cluster=st.sampled_from(CLUSTERS), time_s=st.floats(-1.0, 20.0), data=st.data())
def test_machine_code_is_in_the_same_state_at_any_time(
    cluster: ClusterModel, time_s: float, data: st.DataObject
) -> None:
    fabric = GraphFabric(cluster)
    plan = some_plan(fabric, data, cluster.workers)
    one, other = (simulate_alone(plan, fabric, begun(plan), time_s, compiled=compiled) for compiled in (True, False))
    assert (as_lists(one.tables), one.left) == (as_lists(other.tables), other.left)
