"""The bytes on links against what the patterns of collectives and the messages of methods have to carry."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import pytest

from paceline import load, simulate
from paceline.algorithms.core.values import nbytes
from paceline.algorithms.methods.baseline import SyncSgd
from paceline.records.links import MOST_LINKS, Links, link_figures, link_rows
from paceline.records.trace import Schedule, Trace
from paceline.simulator.cohort.simulate import simulate_cohort
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.network.network import ClusterNetwork
from paceline.simulator.runs.cost_model import links_of
from paceline.topologies.graphs.network_graphs import ring
from tests.changing_links import WIRE, fault, on, played
from tests.clusters import star
from tests.support import FixedTiming, built, job_of, placed
from tests.traffic import carried

STEPS = 5


def run(name: str, counts: list[int], collective: str = "auto") -> tuple[Trace, ClusterNetwork, float]:
    """Simulates a method on a star; returns its record, its network and the bytes of a vector."""
    network = ClusterNetwork(star(*counts, latency_s=0.25), collective)
    job = job_of(built(name), nodes=placed(counts), steps=STEPS)
    return simulate_job(job, FixedTiming(), network, Schedule(every=1)), network, nbytes(job.learner.initial())


@pytest.mark.parametrize("p", [2, 3, 8])
def test_each_link_of_a_ring_carries_almost_two_vectors(p: int) -> None:
    _, network, size = run("sync-sgd", [1] * p, "ring")
    each = pytest.approx(STEPS * 2 * (p - 1) / p * size)
    assert carried(network) == {
        port: each for host in range(p) for port in (f"host{host}>switch", f"switch>host{host}")
    }


@pytest.mark.parametrize(("pattern", "vectors"), [("recursive-doubling", 3), ("halving-doubling", 2 * 7 / 8)])
def test_links_carry_the_messages_of_other_patterns(pattern: str, vectors: float) -> None:
    _, network, size = run("sync-sgd", [1] * 8, pattern)
    assert list(carried(network).values()) == [pytest.approx(STEPS * vectors * size)] * 16


@pytest.mark.parametrize("workers", [2, 5])
def test_the_links_of_a_server_carry_every_update_both_ways(workers: int) -> None:
    """Each update is a gradient to the server and weights back; a last gradient of each worker comes after the end.

    Rank W is the server, on node 0 with rank 0. A worker begins with weights of its own.
    """
    trace, network, size = run("async-sgd", [1] * workers)
    updates, found = Counter[int](row.rank for row in trace.updates), carried(network)
    for host in range(1, workers):
        assert found[f"host{host}>switch"] == (updates[host] + 1) * size
        assert found[f"switch>host{host}"] == updates[host] * size
    far = sum(updates[host] for host in range(1, workers))
    assert found["switch>host0"] == (far + workers - 1) * size
    assert found["host0>switch"] == far * size
    assert found["out of rank 0"] == found[f"into rank {workers}"] == (updates[0] + 1) * size
    assert found["into rank 0"] == found[f"out of rank {workers}"] == updates[0] * size


@pytest.mark.parametrize(("nodes", "each"), [(2, 2), (3, 4)])
def test_two_levels_keep_most_bytes_inside_nodes(nodes: int, each: int) -> None:
    """Reduce-scatter and all-gather inside, and a ring of one vector of each node between the nodes."""
    _, network, size = run("sync-sgd", [each] * nodes, "two-level")
    found = carried(network)
    for host in range(nodes):
        assert found[f"host{host}>switch"] == pytest.approx(STEPS * 2 * (nodes - 1) / nodes * size)
    for rank in range(nodes * each):
        assert found[f"out of rank {rank}"] == pytest.approx(STEPS * 2 * (each - 1) / each * size)


def test_a_faster_download_has_its_own_utilisation() -> None:
    """All hosts send as much as they receive, so a download of four times the bandwidth is used a quarter as much."""
    cluster = star(1, 1, 1)
    wires = [
        replace(one, link=replace(one.link, download_bytes_per_s=4 * one.link.bytes_per_s))
        for one in cluster.graph.connections
    ]
    network = ClusterNetwork(replace(cluster, graph=replace(cluster.graph, connections=tuple(wires))), "ring")
    trace = simulate_job(job_of(SyncSgd(), nodes=placed([1, 1, 1]), steps=STEPS), FixedTiming(), network, Schedule(1))
    links = links_of(network)
    assert links is not None
    used = dict(zip(zip(links.source, links.target, strict=True), links.utilisation(trace.wall_s), strict=True))
    for host in ("host0", "host1", "host2"):
        assert used[host, "switch"] == pytest.approx(4 * used["switch", host])
        assert 0 < used["switch", host] < 1


def test_the_vectorised_interpreter_counts_the_same() -> None:
    job = job_of(SyncSgd(), nodes=placed([2, 2, 2, 2]), steps=STEPS)
    for pattern in ("ring", "two-level", "double-tree"):
        one, other = (ClusterNetwork(star(2, 2, 2, 2), pattern) for _ in range(2))
        simulate_cohort(job, FixedTiming(), one, Schedule(every=1))
        simulate_job(job, FixedTiming(), other, Schedule(every=1))
        assert carried(one) == pytest.approx(carried(other))


def test_a_rerouted_message_counts_on_the_path_that_each_part_took() -> None:
    """Of 4000 bytes, 1500 have passed when the link on the short way fails; the rest takes the long way."""
    cluster = on(ring(hosts=4, link=WIRE), fault("host0", "host1", 1.5))
    _, network = played(cluster, [(0.0, 0, 1, 4000)])
    assert carried(network) == {
        "host0>host1": pytest.approx(1500),
        **{port: pytest.approx(2500) for port in ("host0>host3", "host3>host2", "host2>host1")},
    }


def test_a_collective_that_a_fault_interrupts_counts_what_it_carried_before() -> None:
    """Without the fault, a timer replaces its messages; with a link that stays in use, the bytes stay the same."""
    whole, slower = (
        played(replace(star(1, 1, 1), link_faults=faults), collectives=[(0.0, 3000)])
        for faults in ((), (fault("switch", "host1", 1.25, inf, 0.5),))
    )
    assert whole[0] < slower[0]
    assert carried(slower[1]) == pytest.approx(carried(whole[1]))
    assert carried(whole[1])["host0>switch"] == pytest.approx(4000)


# --- tables -----------------------------------------------------------------------------------------------------------


def some(count: int) -> Links:
    names = [f"v{place}" for place in range(count)]
    sizes = np.arange(count, dtype=float)
    return Links(names, ["hub"] * count, ["eth"] * count, ["network"] * count, sizes, np.full(count, 10.0))


def test_the_table_has_the_busiest_links_and_the_summary_counts_all() -> None:
    links = some(MOST_LINKS + 5)
    rows, figures = link_rows(links, 100.0), link_figures(links, 100.0)
    assert len(rows) == figures["listed"] == MOST_LINKS
    assert rows[0] == (f"v{MOST_LINKS + 4}", "hub", "eth", "network", MOST_LINKS + 4, 10.0, (MOST_LINKS + 4) / 1000)
    assert figures["links"] == MOST_LINKS + 5
    assert figures["total_bytes"] == figures["kinds"][0]["bytes"] == sum(range(MOST_LINKS + 5))
    assert figures["kinds"][0]["max_utilisation"] == figures["busiest"]["utilisation"] == rows[0][-1]  # type: ignore[index]


def test_equally_busy_links_keep_the_order_of_the_graph() -> None:
    sizes = 7.0 * (1 + 1e-13 * np.arange(5, dtype=np.float64))
    assert replace(some(5), nbytes=sizes).busiest(3.0) == [0, 1, 2, 3, 4]
    assert replace(some(5), nbytes=sizes * np.array([1, 1, 2, 1, 2])).busiest(3.0) == [2, 4, 0, 1, 3]


def test_without_traffic_or_time_no_link_is_busy() -> None:
    idle = replace(some(3), nbytes=np.zeros(3))
    assert link_figures(idle, 1.0)["busiest"] is None
    assert [row[-1] for row in link_rows(some(3), 0.0)] == [0.0, 0.0, 0.0]


def quick(**options: Any) -> Any:
    scenario = load("quickstart", ["stop.epochs=1", "workload.learning=none"], algorithms=["sync-sgd"])
    (made,) = simulate(scenario, **options)
    return made


def test_a_run_on_the_cluster_of_a_scenario_has_a_table_of_links() -> None:
    found = quick()
    table, figures = found.tables.links, found.summary["links"]
    assert figures["links"] == figures["listed"] == len(table)
    assert figures["total_bytes"] == table["bytes"].sum()
    first = table.iloc[0]
    assert (first["from"], first["to"]) == (figures["busiest"]["from"], figures["busiest"]["to"])
    expected = table["bytes"] / (table["bandwidth"] * found.summary["wall_s"])
    assert table["utilisation"].tolist() == pytest.approx(expected.tolist())


def test_a_run_without_costs_of_messages_says_that_links_are_not_counted() -> None:
    found = quick(message_cost=False)
    assert "links" not in found.summary and not len(found.tables.links)
    assert found.machine["links"] == "not counted: messages take no time in this run, so they take no links"


def test_links_are_not_known_before_a_run() -> None:
    assert links_of(ClusterNetwork(star(1, 1))) is None
