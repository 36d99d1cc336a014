"""The vectorised interpreter writes the rows of the event-by-event one, on random scenarios."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline import load
from paceline.algorithms import METHODS
from paceline.algorithms.core.job import Budget, Job
from paceline.algorithms.core.method import Method, changed
from paceline.algorithms.core.values import Rank
from paceline.algorithms.methods.periodic import HbsSgd
from paceline.records.keeping import Keeping
from paceline.records.recorder import Recorder
from paceline.records.trace import Schedule, Trace
from paceline.scenarios.resolution.plan import Plan
from paceline.simulator.cohort.simulate import simulate_cohort
from paceline.simulator.cohort.values import NotACohort
from paceline.simulator.flows.max_min import add_flow, network, play
from paceline.simulator.flows.parted_flows import AlikeParts
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.network.network import ClusterNetwork, MeasuredNetwork, NetworkModel, NoCost
from paceline.simulator.runs.engine import run_job
from paceline.simulator.runs.run import perform
from paceline.topologies.catalogue.host_memory import HostMemory
from paceline.topologies.cluster import ClusterModel
from paceline.workloads import build
from tests.clusters import star
from tests.support import FixedTiming, built, job_of, placed
from tests.thorough import examples
from tests.traffic import assert_same_links, assert_same_traffic

SAME = 1e-9
"""relative difference of times; all methods have equal ones on most networks"""
IN_STEP = (
    *("sequential-sgd", "sync-sgd", "sync-easgd2", "sync-easgd3", "hbs-sgd", "k-avg", "sasgd", "hsgd", "layerwise-sgd"),
    *("agd", "layerwise-agd", "chip-partitioned-sgd", "post-local-sgd", "slowmo", "diloco", "acco", "co2"),
    *("streaming-diloco", "eager-diloco", "des-loc"),
)
"""methods whose runs are vectorised on every network"""
LAYERWISE = ("layerwise-sgd", "layerwise-agd", "layerwise-sgd-lazy", "layerwise-sgd-next-forward")
BY_TIMES = ("layerwise-sgd-lazy", "layerwise-sgd-next-forward")
"""methods that are vectorised unless the order of events of a rank decides"""
Pair = tuple[Trace, Trace]
COUNTS = st.one_of(
    st.lists(st.integers(1, 5), min_size=1, max_size=4),
    st.builds(lambda nodes, each: [each] * nodes, st.integers(1, 16), st.integers(1, 4)),
)


def networks(nodes: list[list[int]]) -> dict[str, NetworkModel]:
    return {
        "free": NoCost(),
        "measured": MeasuredNetwork(lambda _, members, size: 0.1 + 1e-3 * (size + members), lambda _: 0.25),
        "modelled": ClusterNetwork(star(*map(len, nodes), latency_s=0.015625)),
        "in memory": ClusterNetwork(in_memory(star(*map(len, nodes), latency_s=0.015625))),
    }


def in_memory(cluster: ClusterModel) -> ClusterModel:
    """Returns a cluster whose ranks share the memory of their node; every second node's is slower."""
    link = replace(cluster.nodes[0].intra_node_link, medium="memory")
    memories = [
        HostMemory(bytes_per_s=5000.0 / (1 + number % 2), core_bytes_per_s=2000.0, provenance="a test's own")
        for number in range(len(cluster.nodes))
    ]
    pairs = zip(cluster.nodes, memories, strict=True)
    nodes = tuple(replace(node, intra_node_link=link, memory=memory) for node, memory in pairs)
    return replace(cluster, nodes=nodes)


def drawn_timing(seed: int, ranks: int, work: float) -> FixedTiming:
    factors = np.random.default_rng(seed).lognormal(0.0, 0.3, (ranks, 64))
    return FixedTiming(compute=lambda rank, step: float(factors[rank, step]), work=work, load=work / 2)


def assert_same(found: Trace, expected: Trace) -> None:
    """Compares all rows; texts and numbers have to be equal, and times to differ by rounding only."""
    for table in ("spans", "updates", "layers"):
        rows, other = (sorted(map(sortable, getattr(trace, table))) for trace in (found, expected))
        assert [exact(row) for row in rows] == [exact(row) for row in other]
        np.testing.assert_allclose([times(row) for row in rows], [times(row) for row in other], rtol=SAME, atol=0)
    assert found.wall_s == pytest.approx(expected.wall_s, rel=SAME)
    assert found.stop_reason == expected.stop_reason
    shots = [[(shot.version, shot.samples) for shot in trace.snapshots] for trace in (found, expected)]
    assert shots[0] == shots[1]
    for one, shot in zip(found.snapshots, expected.snapshots, strict=True):
        assert one.time_s == pytest.approx(shot.time_s, rel=SAME)
        if isinstance(shot.vector, np.ndarray):
            assert one.vector.tobytes() == shot.vector.tobytes()
    assert repr(sorted(found.states.items())) == repr(sorted(expected.states.items()))
    assert found.notes["operations"] == expected.notes["operations"]
    if expected.links is not None:  # it was simulated as a plan
        assert_same_links(found.links, expected.links)


def sortable(row: Any) -> tuple[Any, ...]:
    """Puts what is no time first, so that rounding does not change the order."""
    named = row._asdict()
    fixed = [str(value) for name, value in named.items() if not name.endswith("_s")]
    return (*fixed, *[value for name, value in named.items() if name.endswith("_s") and value is not None])


def exact(row: tuple[Any, ...]) -> list[str]:
    return [value for value in row if isinstance(value, str)]


def times(row: tuple[Any, ...]) -> list[float]:
    return [value for value in row if not isinstance(value, str)]


def both(job: Job, timing: FixedTiming, network: str, nodes: list[list[int]], schedule: Schedule) -> Pair:
    of_cohort, of_events = (networks(nodes)[network] for _ in range(2))
    found = simulate_cohort(job, timing, of_cohort, schedule)
    expected = simulate_job(job, timing, of_events, copy.copy(schedule))
    assert_same_traffic(of_cohort, of_events)
    return found, expected


@pytest.mark.parametrize(
    ("name", "network"),
    [(name, "free") for name in IN_STEP if "layerwise" not in name]
    + [(name, network) for name in IN_STEP for network in ("measured", "modelled", "in memory")],
)
@examples(3, 200)
@given(counts=COUNTS, seed=st.integers(0, 999), work=st.sampled_from([0.0, 0.0625]), steps=st.integers(1, 6))
def test_rows_are_those_of_the_event_by_event_interpreter(
    name: str, network: str, counts: list[int], seed: int, work: float, steps: int
) -> None:
    method = built(name)
    nodes = suited(method, counts)
    timing = drawn_timing(seed, sum(map(len, nodes)), work)
    found, expected = both(job_of(method, nodes=nodes, steps=steps), timing, network, nodes, Schedule(every=2))
    assert_same(found, expected)


def suited(method: Method, counts: list[int]) -> list[list[int]]:
    nodes = placed(counts)
    if method.problems(nodes):  # type: ignore[arg-type]
        nodes = [[rank for node in nodes for rank in node]][:1]
    if method.name == "chip-partitioned-sgd":
        nodes = [nodes[0][:8]]  # the job's batch has as many samples
    return nodes


@pytest.mark.parametrize(
    ("name", "network"),
    [(name, "free") for name in (*BY_TIMES, "layerwise-sgd", "layerwise-agd")]
    + [(name, network) for name in BY_TIMES for network in ("measured", "modelled")],
)
@examples(3, 200)
@given(counts=COUNTS, seed=st.integers(0, 999), steps=st.integers(1, 4))
def test_methods_that_depend_on_times_are_vectorised_or_refused(
    name: str, network: str, counts: list[int], seed: int, steps: int
) -> None:
    nodes = placed(counts)
    timing = drawn_timing(seed, sum(counts), 0.0625)
    job = job_of(built(name), nodes=nodes, steps=steps)
    found = run_job(job, timing, networks(nodes)[network], Schedule(every=1), engine="cohort")
    assert found.notes["engine"]["name"] == "cohort" or "operation" in found.notes["engine"]["reason"]
    assert_same(found, simulate_job(job, timing, networks(nodes)[network], Schedule(every=1)))


@examples(3, 200)
@given(size=st.sampled_from([2, 3]), groups=st.integers(1, 6), seed=st.integers(0, 999))
def test_groups_of_consecutive_ranks(size: int, groups: int, seed: int) -> None:
    nodes = placed([size * groups])
    timing = drawn_timing(seed, size * groups, 0.0)
    job = job_of(HbsSgd(k1=1, k2=3, group=size), nodes=nodes, steps=7)
    assert_same(*both(job, timing, "measured", nodes, Schedule(every=1)))


@examples(3, 200)
@given(limit_s=st.floats(0.5, 9.0), seed=st.integers(0, 999))
def test_a_limit_of_seconds_ends_it_at_the_same_step(limit_s: float, seed: int) -> None:
    nodes, timing = placed([2, 2]), drawn_timing(seed, 4, 0.0625)
    job = job_of(built("k-avg"), nodes=nodes, steps=8, seconds=limit_s)
    assert_same(*both(job, timing, "modelled", nodes, Schedule(every=1)))


def plan_of(name: str, *changes: str) -> Plan:
    (plan,) = load(
        "fat-tree-128",
        ["cluster.nodes[0].count=4", "stop.updates=5", *changes],
        algorithms=[name],
    ).plans()
    return plan


@pytest.mark.parametrize("name", ["sync-sgd", "hbs-sgd", "hsgd", "k-avg", "layerwise-sgd"])
@pytest.mark.parametrize("prefetch", [0, 1])
def test_a_cluster_of_the_catalogue_with_copies_of_batches(name: str, prefetch: int) -> None:
    short = ["stop.updates=2", "cluster.nodes[0].count=2"] if name == "layerwise-sgd" else []  # many events per step
    plan = plan_of(name, f"cluster.staging.prefetch={prefetch}", "stop.samples=null", "stop.epochs=null", *short)
    found, expected = (perform(plan, plan.schedule(), engine=engine) for engine in ("cohort", "events"))
    assert found.notes["engine"]["name"] == "cohort", found.notes["engine"]
    assert_same(found, expected)
    assert any(span.activity == "copy" for span in found.spans)


@pytest.mark.parametrize("share", [0.1, 0.4])
def test_copies_of_a_node_share_its_memory(share: float) -> None:
    plan = plan_of("hbs-sgd", "stop.samples=null", "stop.epochs=null")
    slow = [
        replace(node, memory=replace(node.memory, bytes_per_s=share * node.memory.bytes_per_s))
        for node in plan.cluster.nodes
    ]
    slower = replace(plan, cluster=replace(plan.cluster, nodes=tuple(slow)))
    found, expected = (perform(slower, plan.schedule(), engine=engine) for engine in ("cohort", "events"))
    assert found.notes["engine"]["name"] == "cohort", found.notes["engine"]
    assert_same(found, expected)


@examples(5, 200)
@given(seed=st.integers(0, 999), nodes=st.integers(1, 4), each=st.integers(1, 4), alike=st.booleans())
def test_copies_of_nodes_end_when_max_min_fair_flows_do(seed: int, nodes: int, each: int, alike: bool) -> None:
    drawn = np.random.default_rng(seed)
    capacity = drawn.uniform(1.0, 9.0, each + 1)
    routes = [[0, 1 + place] for place in range(each)]
    starts_s = drawn.uniform(0.0, 3.0, nodes * each)
    starts_s = np.round(starts_s) if alike else starts_s
    nbytes = drawn.integers(0, 9, nodes * each).astype(np.float64)
    found = AlikeParts(np.arange(nodes * each).reshape(nodes, each), routes, capacity.tolist()).ends_s(starts_s, nbytes)
    for node in range(nodes):
        ranks = slice(node * each, (node + 1) * each)
        order = np.argsort(starts_s[ranks], kind="stable")
        net = network(capacity.tolist())
        for place in order.tolist():
            add_flow(net, routes[place], float(nbytes[ranks][place]))
        ends_s = starts_s[ranks][order].tolist()
        play(net, ends_s)
        np.testing.assert_allclose(found[node][order], ends_s, rtol=SAME, atol=0)


def test_collectives_that_share_links_with_copies_are_refused() -> None:
    plan = plan_of("agd", "stop.samples=null")
    found, expected = (perform(plan, plan.schedule(), engine=engine) for engine in ("cohort", "events"))
    assert found.notes["engine"]["name"] == "events"
    assert "the same links at the same time" in found.notes["engine"]["reason"]
    assert_same(found, expected)


@pytest.mark.parametrize(
    ("name", "accumulate"),
    [("sync-sgd", 1), ("k-avg", 1), ("hsgd", 1), ("layerwise-sgd", 1), ("sync-sgd", 3), ("layerwise-sgd", 3)],
)
def test_counters_of_sampled_records_are_the_same(name: str, accumulate: int) -> None:
    nodes = placed([3, 2, 2])
    job, timing = job_of(changed(built(name), accumulate=accumulate), nodes=nodes, steps=6), drawn_timing(3, 7, 0.0625)
    keeping = Keeping.of("sampled", 7, 42, 1)
    found = simulate_cohort(
        job, timing, networks(nodes)["modelled"], Schedule(1), record=lambda: Recorder.of(job, keeping)
    )
    expected = simulate_job(job, timing, networks(nodes)["modelled"], Schedule(1), recorder=Recorder.of(job, keeping))
    assert found.counters is not None
    assert expected.counters is not None
    assert sorted(map(str, found.spans)) == sorted(map(str, expected.spans))
    for counters, other in ((found.counters, expected.counters),):
        assert dict(counters.spans) == dict(other.spans)
        assert counters.bytes_sent == other.bytes_sent
        assert {key: list(value) for key, value in counters.seconds.items() if any(value)} == {
            key: pytest.approx(list(value), rel=SAME) for key, value in other.seconds.items() if any(value)
        }
        assert list(counters.gradients.number) == list(other.gradients.number)
        assert counters.gradients.between.total_s == pytest.approx(other.gradients.between.total_s, rel=SAME)
        assert counters.gradients.gaps.counts.histogram == other.gradients.gaps.counts.histogram
        assert counters.updates.inputs == other.updates.inputs
        assert counters.updates.progress.number == other.updates.progress.number
        assert counters.updates.staleness.histogram == other.updates.staleness.histogram


@pytest.mark.parametrize("name", sorted(set(METHODS) - set(IN_STEP) - set(BY_TIMES)))
def test_other_methods_are_refused_with_a_reason(name: str) -> None:
    method = built(name)
    nodes = suited(method, [2, 2])
    job = job_of(method, nodes=nodes, steps=4)
    with pytest.raises(NotACohort, match=r"messages|clock|do not step together|in another way than one by one"):
        simulate_cohort(job, FixedTiming(), NoCost(), Schedule(every=1))


ROUNDS = ("slowmo", "diloco", "streaming-diloco", "eager-diloco")


@pytest.mark.parametrize("name", ["sync-sgd", "hbs-sgd", "k-avg", "sasgd", *ROUNDS, "layerwise-sgd", "hsgd"])
@examples(3, 200)
@given(nodes=st.integers(1, 8), each=st.integers(1, 8), seed=st.integers(1, 99), batch=st.sampled_from([1, 4, 12, 32]))
def test_weights_on_the_quadratic_problem_have_the_same_bits(
    name: str, nodes: int, each: int, seed: int, batch: int
) -> None:
    counts = placed([each] * nodes)
    problem = build("quadratic", learning="quadratic", seed=seed)
    budget = Budget(samples=5 * batch * nodes * each)
    ranks = [[Rank(rank) for rank in node] for node in counts]
    job = Job.of(built(name), ranks, problem, batch=batch, budget=budget, seed=seed)
    timing = drawn_timing(seed, nodes * each, 0.0625)
    assert_same(*both(job, timing, "measured", counts, Schedule(every=1)))
