"""Collectives that share ports with messages and with each other, against the replay without short cuts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms.core.values import Rank
from paceline.simulator.collectives.contention import Contention
from paceline.simulator.collectives.pattern_time import alone_s
from paceline.simulator.collectives.patterns import PATTERNS, Kind, Setting, build
from paceline.simulator.collectives.plans import CollectivePlan
from paceline.simulator.flows.flow_engine import Flows
from paceline.simulator.flows.path_tables import Path
from tests.replay import Players, Replay, Uniform
from tests.thorough import examples

Crossing = tuple[float, float, tuple[str, ...]]
"""a flow beside collectives: its start, its bytes, its ports"""
Beginning = tuple[float, CollectivePlan]


def plan(fabric: Uniform, kind: Kind, name: str, nbytes: float) -> CollectivePlan:
    nodes = tuple(
        tuple(range(first, min(first + fabric.workers_per_node, fabric.p)))
        for first in range(0, fabric.p, fabric.workers_per_node)
    )
    pattern = build(kind, name, Setting(fabric.p, nbytes, 0, nodes))
    return CollectivePlan(pattern, tuple(map(Rank, range(fabric.p))), fabric.paths, fabric.reduce_s_per_byte)


def simulated_s(fabric: Uniform, plans: list[Beginning], crossing: list[Crossing]) -> list[float]:
    """Returns when each collective, and then each flow, is done, on our network."""
    env = simpy.Environment(0.0)
    flows = Flows(env, fabric.capacity)

    def carry(_one: Rank, _other: Rank, nbytes: float, path: Path) -> simpy.Event:
        return flows.begin(path.ports, nbytes, path.limit_bytes_per_s)

    contention = Contention(env, fabric, carry)
    ends = [0.0] * (len(plans) + len(crossing))

    def perform(at: int, begin_s: float, one: CollectivePlan) -> Iterator[simpy.Event]:
        yield env.timeout(begin_s)
        yield contention.start(one)
        ends[at] = env.now

    def cross(at: int, begin_s: float, nbytes: float, ports: tuple[str, ...]) -> Iterator[simpy.Event]:
        yield env.timeout(begin_s)
        moving = flows.begin(ports, nbytes)
        contention.message(moving, ports)
        yield moving
        contention.passed(moving)
        ends[at] = env.now

    for at, (begin_s, one) in enumerate(plans):
        env.process(perform(at, begin_s, one))  # type: ignore[arg-type]
    for at, (begin_s, nbytes, ports) in enumerate(crossing, len(plans)):
        env.process(cross(at, begin_s, nbytes, ports))  # type: ignore[arg-type]
    env.run()
    return ends


def replayed_s(fabric: Uniform, plans: list[Beginning], crossing: list[Crossing]) -> list[float]:
    """Returns the same from a simulation message by message, with rates solved from scratch at every change."""
    run = Replay(fabric.capacity)
    players = [Players(run, one.pattern, fabric, [begin_s] * fabric.p) for begin_s, one in plans]
    ends = [0.0] * len(crossing)

    def note(at: int) -> None:
        ends[at] = run.now

    for at, (begin_s, nbytes, ports) in enumerate(crossing):
        run.at(begin_s, lambda at=at, n=nbytes, p=ports: run.flow(p, n, lambda: note(at)))  # type: ignore[misc]
    run.run()
    return [*(max(one.finish_s) for one in players), *ends]


def test_a_flow_that_crosses_a_ring_of_64() -> None:
    """It begins when the ring, of which no message has been simulated so far, is half done."""
    fabric = Uniform(64)
    ring = plan(fabric, "AllReduce", "ring", 4e6)
    quiet_s = float(alone_s(ring, fabric).max())
    crossing: list[Crossing] = [(0.45 * quiet_s, 1.5e6, ("up 3", "down 40"))]
    found_s = simulated_s(fabric, [(0.0, ring)], crossing)
    assert found_s == pytest.approx(replayed_s(fabric, [(0.0, ring)], crossing), rel=1e-9)
    assert found_s[0] > 1.05 * quiet_s


def test_a_ring_that_begins_beside_a_flow_shares_its_port() -> None:
    fabric = Uniform(8)
    ring = plan(fabric, "AllReduce", "ring", 4e6)
    quiet_s = float(alone_s(ring, fabric).max())
    crossing: list[Crossing] = [(0.0, 4e6, ("up 3",))]
    found_s = simulated_s(fabric, [(1e-6, ring)], crossing)
    assert found_s == pytest.approx(replayed_s(fabric, [(1e-6, ring)], crossing), rel=1e-9)
    assert found_s[0] > 1.05 * quiet_s


def test_flows_after_the_end_or_elsewhere_disturb_nothing() -> None:
    fabric = Uniform(8)
    tree = plan(fabric, "Broadcast", "binomial-tree", 1e6)
    quiet_s = float(alone_s(tree, fabric).max())
    crossing: list[Crossing] = [(0.0, 1e7, ("up 7",)), (2 * quiet_s, 1e7, ("up 0",))]
    assert simulated_s(fabric, [(0.0, tree)], crossing)[0] == pytest.approx(quiet_s, rel=1e-9)


NAMES: list[tuple[Kind, str]] = [(kind, name) for kind, names in PATTERNS.items() for name in names]
SMALL = [1e3, 1e5]


@examples(25, 240)
@given(data=st.data())
def test_collectives_and_flows_that_share_ports_equal_the_replay(data: st.DataObject) -> None:
    fabric = Uniform(
        data.draw(st.integers(2, 6), label="p"), workers_per_node=data.draw(st.integers(1, 3), label="per node")
    )
    begins = st.sampled_from([0.0, 3e-6, 1.1e-5, 4e-5])
    plans = [
        (data.draw(begins), plan(fabric, *data.draw(st.sampled_from(NAMES)), data.draw(st.sampled_from(SMALL))))
        for _ in range(data.draw(st.integers(1, 2), label="collectives"))
    ]
    ports = sorted(fabric.capacity)
    crossing: list[Crossing] = [
        (data.draw(begins), data.draw(st.sampled_from(SMALL)), (data.draw(st.sampled_from(ports)),))
        for _ in range(data.draw(st.integers(0, 2), label="flows"))
    ]
    expected_s = replayed_s(fabric, plans, crossing)
    assert simulated_s(fabric, plans, crossing) == pytest.approx(expected_s, rel=1e-9)
