"""How a scenario decides the receiving of messages: by its library, its links and `cluster.server`."""

from __future__ import annotations

from typing import Any

import pytest

import paceline
from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.values import Rank
from paceline.scenarios.resolution.plan import refuse_simulated_only
from paceline.scenarios.values.mistakes import ScenarioError
from paceline.simulator.flows.fabric import MANY_WORKERS
from paceline.simulator.interpreter.host_costs import Handling
from paceline.simulator.network.network import ClusterNetwork
from paceline.simulator.runs.cost_model import receiving_of

BIG, SMALL = 10**6, 1000
SERVER, WORKER = Rank(4), Rank(3)
"""the server is on the node of worker 0"""


def handling(link: str = "ib-edr", library: str = "plain", **server: Any) -> Handling:
    keys = [f"cluster.server.{key}={value}" for key, value in server.items()]
    network = f"cluster.network={{link: {link}, library: {library}}}"
    scenario = paceline.load("quickstart", [*keys, network], algorithms=["async-sgd"])
    (plan,) = scenario.plans()
    return receiving_of(plan, ClusterNetwork(plan.cluster))


@pytest.mark.parametrize(("library", "waits"), [("plain", False), ("mpi", True), ("gloo", True), ("nccl", True)])
def test_large_messages_to_the_server_wait_as_the_library_does(library: str, waits: bool) -> None:
    assert handling(library=library).waits(SERVER, BIG) is waits
    assert not handling(library=library).waits(WORKER, BIG)


def test_small_messages_of_mpi_are_eager() -> None:
    assert not handling(library="mpi").waits(SERVER, 8191)
    assert handling(library="mpi").waits(SERVER, 8192)
    assert not handling("eth-10g", "mpi").waits(SERVER, 65_471)
    assert handling("eth-10g", "mpi").waits(SERVER, 65_472)
    assert handling(library="gloo").waits(SERVER, 1)


@pytest.mark.parametrize(("receive", "waits"), [("in-order", True), ("shared", False)])
@pytest.mark.parametrize("library", ["plain", "mpi"])
def test_a_scenario_decides_it_for_all_libraries(library: str, receive: str, waits: bool) -> None:
    assert handling(library=library, receive=receive).waits(SERVER, BIG) is waits


@pytest.mark.parametrize(
    ("link", "library", "nbytes", "seconds"),
    [
        ("ib-edr", "plain", BIG, 0.0),
        ("eth-10g", "plain", BIG, BIG / 6e9),
        ("ib-edr", "mpi", BIG, 0.0),
        ("ib-edr", "mpi", SMALL, SMALL / 6e9),
        ("eth-10g", "mpi", BIG, BIG / 6e9),
        ("eth-10g", "gloo", BIG, 20e-6 + BIG / 1.16e9),
        ("ib-edr", "nccl", BIG, 0.0),
    ],
)
def test_the_copy_of_a_message_over_a_network(link: str, library: str, nbytes: int, seconds: float) -> None:
    assert handling(link, library).copy_s(WORKER, SERVER, nbytes) == pytest.approx(seconds, rel=1e-12)


def test_a_worker_with_a_posted_receive_copies_while_the_message_arrives() -> None:
    costs = handling("eth-10g", "mpi")
    assert costs.copy_s(SERVER, WORKER, BIG) == 0.0
    assert costs.receive_s(SERVER, WORKER, BIG) == pytest.approx(BIG / 6e9)
    costs = handling("eth-10g", "plain")
    assert costs.copy_s(SERVER, WORKER, BIG) == pytest.approx(BIG / 6e9)
    assert costs.receive_s(SERVER, WORKER, BIG) == 0.0


@pytest.mark.parametrize("library", ["plain", "mpi", "gloo"])
def test_messages_within_a_node_have_no_further_copy(library: str) -> None:
    assert handling("eth-10g", library).copy_s(Rank(0), SERVER, BIG) == 0.0


def test_threads_and_nothing_else_without_a_network() -> None:
    scenario = paceline.load("quickstart", ["cluster.server.threads=3"], algorithms=["async-sgd"])
    (plan,) = scenario.plans()
    costs = receiving_of(plan, None)
    assert costs.threads == 3
    assert costs.copy_s(WORKER, SERVER, BIG) == costs.receive_s(WORKER, SERVER, BIG) == 0.0
    assert not costs.waits(SERVER, BIG)


def test_threads_make_a_busy_server_faster() -> None:
    """Messages of 28 MB that a thread copies at 1.16 GB/s: two threads copy twice as many."""
    steps: dict[int, float | None] = {}
    for threads in (1, 2):
        changes = [
            "workload={model: googlenet, learning: none, batch_per_worker: 1}",
            "cluster={nodes: [{device: {name: quick, overhead: 1 ms, per_sample: 0 s}, count: 8}]}",
            "cluster.network.link={latency: 1 us, bandwidth: 10 TB/s}",
            "cluster.network.library=gloo",
            "cluster.server.receive=shared",
            "stop={updates: 200}",
            f"cluster.server.threads={threads}",
        ]
        (run,) = paceline.simulate(paceline.load("quickstart", changes, algorithms=["async-sgd"]))
        steps[threads] = run.summary["step_s"]["mean"]
    one, two = (float(steps[threads] or 0.0) for threads in (1, 2))
    assert 0.5 * one < two < 0.6 * one


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("cluster.server.threads=0", "cluster.server.threads: found 0"),
        ("cluster.server.receive=inorder", "cluster.server.receive: found 'inorder'.*did you mean in-order"),
        ("cluster.server.thread=2", "cluster.server.thread: unknown key.*did you mean threads"),
    ],
)
def test_mistakes_are_named(change: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        paceline.load("quickstart", [change])


def test_a_real_run_refuses_threads() -> None:
    refuse_simulated_only(paceline.load("quickstart", ["cluster.server.receive=in-order"]))
    with pytest.raises(InputError, match=r"cluster.server.threads: found 4, which only a simulation has; .*expected 1"):
        refuse_simulated_only(paceline.load("quickstart", ["cluster.server.threads=4"]))


@pytest.mark.parametrize(
    ("cluster", "gigabytes_per_s"),
    [
        ("dgx1-p100", 122.88),
        ("{system: minsky, nodes: 2}", 184.0),
        ("{nodes: [{node: knl-node, settings: {parts: 1}, count: 2}]}", 480.0),
        ("{nodes: [{device: xeon-e5-2670, count: 2}]}", 40.96),
        ("{nodes: [{device: p100, count: 2}]}", 122.88),
    ],
)
def test_the_memory_of_a_node(cluster: str, gigabytes_per_s: float) -> None:
    changes = [f"cluster={cluster}", "workload={model: alexnet, learning: none}", "stop={updates: 4}"]
    scenario = paceline.load("quickstart", changes, algorithms=["async-sgd"])
    (plan,) = scenario.plans()
    assert plan.cluster.nodes[0].memory.bytes_per_s / 1e9 == pytest.approx(gigabytes_per_s)


def test_workers_that_are_alike_have_the_same_costs() -> None:
    """Also workers on the server's node, and those on nodes with another memory."""
    nodes = [
        {"device": "p100-sxm2", "count": 2, "workers_per_node": 4},
        {"device": "knl-7250", "count": MANY_WORKERS},
    ]
    (plan,) = paceline.load(
        {
            "name": "alike",
            "algorithms": ["async-sgd"],
            "workload": {"model": "lenet", "batch_per_worker": 8, "learning": "none"},
            "cluster": {"nodes": nodes, "network": {"topology": "star", "link": "eth-10g", "library": "mpi"}},
            "stop": {"updates": 1},
        }
    ).plans()
    found = receiving_of(plan, ClusterNetwork(plan.cluster))
    numbers = found.alike()
    assert numbers is not None and 1 < len(set(numbers)) < 5
    server = Rank(len(numbers))
    for of in (found.send_s, found.receive_s, found.copy_s):
        costs: dict[int, set[tuple[float, float]]] = {}
        for worker, number in enumerate(numbers):
            one = Rank(worker)
            costs.setdefault(number, set()).add((of(one, server, BIG), of(server, one, BIG)))
        assert all(len(each) == 1 for each in costs.values())
