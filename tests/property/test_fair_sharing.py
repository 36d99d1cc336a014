"""Properties of max-min fair sharing for all flows; solving only what changes equals solving everything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st
from simpy.events import ProcessGenerator

from benchmarks.network_engine.transfers import Pipe, Transfer, transfer_all
from paceline.simulator.flows.flow_engine import Flows
from paceline.simulator.flows.max_min import fair_rates


def filled(flows: Sequence[tuple[str, ...]], capacity: Mapping[str, float]) -> list[float]:
    """Progressive filling: all rates rise together until a link is full; the flows through it stop there."""
    rates = [0.0] * len(flows)
    free = {link: capacity[link] for flow in flows for link in flow}
    rising = dict.fromkeys(range(len(flows)))
    while rising:
        count = {link: sum(flows[index].count(link) for index in rising) for link in free}
        full = min((link for link in free if count[link]), key=lambda link: free[link] / count[link])
        rate = free[full] / count[full]
        for index in [index for index in rising if full in flows[index]]:
            rates[index] = rate
            del rising[index]
            for link in flows[index]:
                free[link] -= rate
        del free[full]
    return rates


@dataclass(frozen=True)
class Flow:
    """A flow of this many bytes along links, from a time on, with a maximum rate."""

    ready_s: float
    nbytes: float
    links: tuple[str, ...]
    limit: float = inf


@dataclass(frozen=True)
class Change:
    """From a time on a link has another bandwidth."""

    at_s: float
    link: str
    bytes_per_s: float


@dataclass(frozen=True)
class Move:
    """From a time on the rest of a flow takes other links."""

    at_s: float
    number: int
    links: tuple[str, ...]


def replayed(capacity: Mapping[str, float], flows: Sequence[Flow], acts: Sequence[Change | Move]) -> list[float]:
    """Returns when each flow ends, infinite if never, by solving for all at every start, end, change and reroute."""
    limits = {f"limit of {number}": flow.limit for number, flow in enumerate(flows) if flow.limit < inf}
    capacity = dict(capacity) | limits
    links = [flow.links for flow in flows]
    left = [flow.nbytes for flow in flows]
    finish = [flow.ready_s if flow.nbytes == 0 or not (flow.links or flow.limit < inf) else inf for flow in flows]
    to_come = sorted((number for number, end in enumerate(finish) if end == inf), key=lambda one: flows[one].ready_s)
    to_do = sorted(acts, key=lambda act: act.at_s)
    active: list[int] = []
    now = 0.0
    while True:
        ways = [links[number] + (f"limit of {number}",) * (flows[number].limit < inf) for number in active]
        rates = filled(ways, capacity)
        ends = [now + left[one] / rate if rate else inf for one, rate in zip(active, rates, strict=True)]
        then = min([*ends, *(flows[one].ready_s for one in to_come[:1]), *(act.at_s for act in to_do[:1])], default=inf)
        if then == inf:
            return finish
        for number, rate, end in zip(tuple(active), rates, ends, strict=True):
            left[number] -= rate * (then - now)
            if end == then:
                finish[number] = end
                active.remove(number)
        now = then
        while to_do and to_do[0].at_s <= now:
            match to_do.pop(0):
                case Change(link=link, bytes_per_s=bytes_per_s):
                    capacity[link] = bytes_per_s
                case Move(number=number, links=others):
                    links[number] = others
        while to_come and flows[to_come[0]].ready_s <= now:
            active.append(to_come.pop(0))


def finish_times(pipes: Mapping[str, Pipe], transfers: Sequence[Transfer]) -> list[float]:
    """Returns when each transfer ends."""
    flows = []
    for one in transfers:
        ways = [pipes[name] for name in one.route]
        links = tuple(name for name in one.route if not pipes[name].per_flow)
        limit = min((pipe.bytes_per_s for pipe in ways if pipe.per_flow), default=inf)
        flows.append(Flow(one.start_s + sum(pipe.latency_s for pipe in ways), one.nbytes, links, limit))
    return replayed({name: pipe.bytes_per_s for name, pipe in pipes.items() if not pipe.per_flow}, flows, [])


# --- properties -------------------------------------------------------------------------------------------------------


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
