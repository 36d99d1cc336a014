"""Properties of max-min fair sharing for all flows; solving only what changes equals solving everything."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st
from simpy.events import ProcessGenerator

from benchmarks.network_engine.transfers import Pipe, Transfer, transfer_all
from paceline.simulator.flows.flow_engine import Flows
from paceline.simulator.flows.max_min import fair_rates
from tests.filling import Change, Flow, Move, filled, finish_times, replayed

LINKS = "abcdef"
ROUTE = st.lists(st.sampled_from(LINKS), min_size=1, max_size=4, unique=True).map(tuple)
ROUTES = st.lists(ROUTE, min_size=1, max_size=12)
CAPACITY = st.fixed_dictionaries({link: st.floats(0.1, 10.0) | st.just(1.0) for link in LINKS})
CLOSE = 1e-9


@st.composite
def pipes_of(draw: st.DrawFn) -> dict[str, Pipe]:
    return {
        link: Pipe(
            bytes_per_s=draw(st.floats(1.0, 100.0) | st.just(10.0)),
            latency_s=draw(st.sampled_from([0.0, 0.0, 0.125, 1.0])),
            per_flow=draw(st.integers(0, 4)) == 0,
        )
        for link in LINKS
    }


TRANSFER = st.builds(
    Transfer,
    start_s=st.floats(0.0, 20.0) | st.integers(0, 4).map(float),
    nbytes=st.integers(0, 200) | st.just(40),
    route=ROUTE,
)
TRANSFERS = st.lists(TRANSFER, max_size=20)


def loads(flows: Sequence[tuple[str, ...]], rates: Sequence[float]) -> dict[str, float]:
    return {link: sum(rate for flow, rate in zip(flows, rates, strict=True) if link in flow) for link in LINKS}


@given(ROUTES, CAPACITY)
def test_no_link_is_above_capacity_and_every_flow_has_a_bottleneck(
    flows: list[tuple[str, ...]], capacity: dict[str, float]
) -> None:
    rates = fair_rates(flows, capacity)
    load = loads(flows, rates)
    assert all(load[link] <= capacity[link] * (1 + CLOSE) for link in LINKS)
    for flow, rate in zip(flows, rates, strict=True):
        fastest = {link: max(r for f, r in zip(flows, rates, strict=True) if link in f) for link in flow}
        assert any(load[link] >= capacity[link] * (1 - CLOSE) and rate >= fastest[link] * (1 - CLOSE) for link in flow)


@given(ROUTES, CAPACITY)
def test_rates_are_those_of_progressive_filling(flows: list[tuple[str, ...]], capacity: dict[str, float]) -> None:
    assert fair_rates(flows, capacity) == pytest.approx(filled(flows, capacity), rel=CLOSE)


@given(ROUTES, CAPACITY, st.floats(1e-3, 1e12))
def test_rates_scale_with_the_links(flows: list[tuple[str, ...]], capacity: dict[str, float], factor: float) -> None:
    scaled = fair_rates(flows, {link: factor * rate for link, rate in capacity.items()})
    assert scaled == pytest.approx([factor * rate for rate in fair_rates(flows, capacity)], rel=CLOSE)


@given(
    st.lists(st.floats(0.1, 10.0), min_size=2, max_size=10),
    st.floats(0.1, 10.0),
)
def test_one_flow_more_on_a_shared_link_makes_no_flow_faster(own: list[float], shared: float) -> None:
    flows = [(f"own {number}", "shared") for number in range(len(own))]
    capacity = {f"own {number}": rate for number, rate in enumerate(own)} | {"shared": shared}
    before, after = fair_rates(flows[:-1], capacity), fair_rates(flows, capacity)
    assert all(now <= then * (1 + CLOSE) for then, now in zip(before, after[:-1], strict=True))


@given(pipes_of(), TRANSFERS)
def test_solving_where_it_changes_is_solving_everything(pipes: dict[str, Pipe], transfers: list[Transfer]) -> None:
    assert transfer_all(pipes, transfers)[0] == pytest.approx(finish_times(pipes, transfers), rel=CLOSE)


AGAIN = st.lists(st.sampled_from(LINKS), min_size=1, max_size=4).map(tuple)
ALIKE = st.builds(Transfer, start_s=st.integers(0, 9).map(float), nbytes=st.integers(1, 9), route=AGAIN)


@given(st.lists(ALIKE, max_size=40))
def test_nor_does_it_matter_where_everything_is_equal(transfers: list[Transfer]) -> None:
    pipes = {link: Pipe(bytes_per_s=1.0) for link in LINKS}
    assert transfer_all(pipes, transfers)[0] == pytest.approx(finish_times(pipes, transfers), rel=CLOSE)


@given(pipes_of(), TRANSFERS)
def test_no_link_carries_more_than_its_capacity(pipes: dict[str, Pipe], transfers: list[Transfer]) -> None:
    shared = [name for name in pipes if not pipes[name].per_flow]
    due = {name: sum(one.nbytes for one in transfers if name in one.route) for name in shared}
    last_s = max(transfer_all(pipes, transfers)[0], default=0.0)
    assert all(due[name] <= pipes[name].bytes_per_s * last_s * (1 + CLOSE) for name in due)


FLOWS = st.lists(
    st.builds(
        Flow,
        ready_s=st.floats(0.0, 20.0) | st.integers(0, 4).map(float),
        nbytes=st.integers(0, 200).map(float) | st.just(40.0),
        links=ROUTE,
        limit=st.just(float("inf")) | st.sampled_from([0.5, 1.0, 4.0]),
    ),
    max_size=12,
)
# times at which hardly any flow ends by chance: a link that breaks as a flow ends may or may not stop it
LATER = st.integers(1, 60).map(lambda number: number * 0.7310585786300049)
RATE = st.just(0.0) | st.floats(0.1, 10.0) | st.just(1.0)
CHANGES = st.lists(st.builds(Change, LATER, st.sampled_from(LINKS), RATE), max_size=8, unique_by=lambda act: act.at_s)
MOVES = st.lists(st.builds(Move, LATER, st.integers(0, 11), ROUTE), max_size=4, unique_by=lambda act: act.at_s)


@given(CAPACITY, FLOWS, CHANGES, MOVES)
def test_in_virtual_time_it_is_the_same_while_links_change_and_flows_move(
    capacity: dict[str, float], sent: list[Flow], changes: list[Change], moves: list[Move]
) -> None:
    env = simpy.Environment(0.0)
    flows = Flows(env, capacity)
    found = [float("inf")] * len(sent)
    events: dict[int, simpy.Event] = {}
    moves = [move for move in moves if move.number < len(sent) and move.at_s > sent[move.number].ready_s]

    def send(number: int, one: Flow) -> ProcessGenerator:
        yield env.timeout(one.ready_s)
        events[number] = flows.begin(one.links, one.nbytes, one.limit)
        yield events[number]
        found[number] = env.now

    def act(one: Change | Move) -> ProcessGenerator:
        yield env.timeout(one.at_s)
        match one:
            case Change(link=link, bytes_per_s=bytes_per_s):
                flows.change(link, bytes_per_s)
            case Move(number=number, links=links):
                flows.move(events[number], links)

    for number, flow in enumerate(sent):
        env.process(send(number, flow))
    acts: list[Change | Move] = [*changes, *moves]
    for one in acts:
        env.process(act(one))
    env.run()
    assert found == pytest.approx(replayed(capacity, sent, acts), rel=CLOSE)
