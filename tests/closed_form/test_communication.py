"""Messages and collectives of simulated runs against closed forms (docs/invariants.md, O1 and number 54)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import ceil, log2
from typing import Any

import pytest

from paceline.algorithms.core.method import RankContext, Replica
from paceline.algorithms.core.operations import (
    AllGather,
    AllReduce,
    Barrier,
    Broadcast,
    Op,
    Receive,
    Reduce,
    Send,
)
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.values import Null, Rank
from paceline.algorithms.methods.baseline import SyncSgd
from paceline.records.trace import Schedule
from paceline.reports.comparison.predict import (
    WRONG_MODELS,
    AlphaBeta,
    line_through,
    mean_gradient_s,
    model_of,
    predict,
    with_times,
)
from paceline.scenarios import Scenario, load
from paceline.simulator.collectives.patterns import PATTERNS
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.network.network import ClusterNetwork
from paceline.topologies import closed_forms
from paceline.topologies.catalogue.device import DeviceModel
from paceline.topologies.catalogue.gradient_times import GradientTimes
from paceline.topologies.catalogue.machine_profile import EmulationCosts, JoinedHosts, MeasuredCosts, Profile
from paceline.topologies.cluster import ClusterModel, on_a_star
from paceline.topologies.graphs.links import LINKS, LinkModel
from paceline.topologies.packet_lines import lines_of
from tests.changing_links import ends
from tests.clusters import joined, played, star
from tests.made_up import run
from tests.support import FixedTiming, job_of

ALPHA_S, BYTES = 0.5, 4000
BETA_S = 1 / 1000
N_S = BYTES * BETA_S


def time_of(ask: Any, members: int, collective: str = "ring") -> float:
    """Returns the duration of one collective among `members` nodes after the last entry."""

    @program
    def run(me: RankContext, state: Replica) -> Program[None]:
        yield from ask(me)

    return played(
        run, workers=members, network=ClusterNetwork(star(*[1] * members, latency_s=ALPHA_S), collective)
    ).wall_s


def all_reduce(me: RankContext) -> Op[Any]:
    return AllReduce(value=Null(BYTES // 4), group=me.workers, key="")


@pytest.mark.parametrize("p", [2, 4, 16])
@pytest.mark.parametrize(
    ("pattern", "form"),
    [
        ("ring", closed_forms.ring_all_reduce_s),
        ("recursive-doubling", closed_forms.recursive_doubling_s),
        ("halving-doubling", closed_forms.halving_doubling_s),
        ("binomial-tree", closed_forms.tree_all_reduce_s),
    ],
)
def test_all_reduces_c1_to_c6(pattern: str, form: Callable[..., float], p: int) -> None:
    assert time_of(all_reduce, p, pattern) == pytest.approx(form(p, BYTES, ALPHA_S, BETA_S))


@pytest.mark.parametrize("p", [2, 3, 8])
def test_the_other_collectives_c7_c9(p: int) -> None:
    value, root = Null(BYTES // 4), Rank(1)
    tree = ceil(log2(p)) * (ALPHA_S + N_S)
    assert time_of(lambda me: Broadcast(value=value, group=me.workers, root=root, key=""), p) == pytest.approx(tree)
    assert time_of(lambda me: Reduce(value=value, group=me.workers, root=root, key=""), p) == pytest.approx(tree)
    gathered = (p - 1) * ALPHA_S + (p - 1) * N_S  # the gathered vector is p times as large as one's own part
    assert time_of(lambda me: AllGather(value=value, group=me.workers, key=""), p) == pytest.approx(gathered)
    assert time_of(lambda me: Barrier(group=me.workers, key=""), p) == pytest.approx(ceil(log2(p)) * ALPHA_S)


@pytest.mark.parametrize(("nbytes", "quickest"), [(4, "recursive-doubling"), (400_000, "halving-doubling")])
def test_auto_is_the_cheapest(nbytes: int, quickest: str) -> None:
    def ask(me: RankContext) -> Op[Any]:
        return AllReduce(value=Null(nbytes // 4), group=me.workers, key="")

    costs = {name: time_of(ask, 8, name) for name in PATTERNS["AllReduce"]}
    assert time_of(ask, 8, "auto") == min(costs.values()) == costs[quickest]


@pytest.mark.parametrize(("workers", "server_bytes_per_s"), [(8, 1000.0), (2, 4000.0), (4, 4000.0)])
def test_synchronous_push_to_one_server_c17(workers: int, server_bytes_per_s: float) -> None:
    """α + n max(1/B_w, N/B_s)."""
    worker_bytes_per_s, nbytes = 1000.0, 4000
    cluster = joined(star(1, bytes_per_s=server_bytes_per_s), star(*[1] * workers, bytes_per_s=worker_bytes_per_s))

    @program
    def server(me: RankContext, state: Replica) -> Program[None]:
        for _ in range(workers):
            yield from Receive()

    @program
    def worker(me: RankContext, state: Replica) -> Program[None]:
        yield from Send(Rank(0), Null(nbytes // 4))

    trace = played(server, worker, workers=workers + 1, network=ClusterNetwork(cluster))
    assert trace.wall_s == pytest.approx(nbytes * max(1 / worker_bytes_per_s, workers / server_bytes_per_s))


def test_without_compute_a_step_is_its_collective() -> None:
    job = job_of(SyncSgd(), 4, steps=5)
    trace = simulate_job(
        job, FixedTiming(compute=0.0), ClusterNetwork(star(1, 1, 1, 1, latency_s=ALPHA_S), "ring"), Schedule(1)
    )
    nbytes = 4 * 8
    assert trace.wall_s == pytest.approx(5 * (6 * ALPHA_S + 1.5 * nbytes * BETA_S))


def test_a_collective_of_one_rank_is_free() -> None:
    @program
    def alone(me: RankContext, state: Replica) -> Program[None]:
        yield from all_reduce(me)
        yield from Barrier(group=me.workers, key="")

    assert played(alone, network=ClusterNetwork(star(1, latency_s=ALPHA_S))).wall_s == 0.0


# --- the α–β model ----------------------------------------------------------------------------------------------------


NBYTES = 4810 * 4
"""bytes of a gradient of digits-mlp"""
MACHINE = Profile(
    inside={("AllReduce", 4): ((10_000, 0.003), (20_000, 0.005)), ("Reduce", 4): ((10_000, 0.4),)},
    messages=((0, 0.001), (10_000, 0.002)),
    update_s=0.0007,
    load_s=0.3,
    late_s=0.3,
)
"""α = 1 ms and β = 0.2 ms per kB for all-reduces, β = 0.1 ms per kB for messages; the model ignores the rest"""
BUSY = GradientTimes(batch=32, busy=((1, 0.01), (2, 0.012)), factors=(0.5, 1.5))


def scenario(*changes: str, algorithm: str = "sync-sgd", nodes: int = 1) -> Scenario:
    device = "{name: even, overhead: 4 ms, per_sample: 0.5 ms}"
    cluster = f"cluster.nodes=[{{device: {device}, workers_per_node: {4 // nodes}, count: {nodes}}}]"
    return load("quickstart", [cluster, *changes], algorithms=[algorithm])


def model(costs: MeasuredCosts, asked: Scenario) -> AlphaBeta:
    (plan,) = asked.plans(paced=asked.train.pace == "device")
    return model_of(plan, costs)


@pytest.mark.parametrize("algorithm", ["sync-sgd", "async-sgd", "agd", "easgd"])
def test_the_step_of_every_method_is_gradient_update_and_one_all_reduce(algorithm: str) -> None:
    found = model(MeasuredCosts(MACHINE), scenario(algorithm=algorithm))
    assert found.step_s == pytest.approx(0.020 + 0.0007 + 0.001 + NBYTES * 0.2e-6)


def test_the_gradient_is_the_mean_of_the_devices_without_their_spread() -> None:
    (plan,) = load("quickstart", algorithms=["sync-sgd"]).plans(paced=True)  # two of 20 ms, two of 40 ms, both varying
    assert mean_gradient_s(plan, MACHINE) == pytest.approx(0.030)


def test_a_gradient_that_is_not_paced_is_that_of_busy_ranks_and_shared_cores() -> None:
    """Four ranks on two cores: twice the time of two ranks, one on each core."""
    machine = Profile(inside=MACHINE.inside, gradients=(BUSY,), cores=2)
    assert model(MeasuredCosts(machine), scenario("train.pace=none")).gradient_s == pytest.approx(2 * 0.012)


def test_a_single_worker_has_no_all_reduce() -> None:
    alone = scenario("cluster.nodes[0].workers_per_node=1")
    assert model(MeasuredCosts(Profile()), alone).step_s == pytest.approx(0.020)


def test_without_measured_all_reduces_a_ring_of_messages_is_assumed() -> None:
    """Six messages, each of a quarter of the bytes."""
    found = model(MeasuredCosts(Profile(messages=MACHINE.messages)), scenario())
    assert found.all_reduce_s == pytest.approx(6 * 0.001 + 6 / 4 * NBYTES * 0.1e-6)


def test_all_reduces_of_fewer_ranks_are_scaled_as_in_the_simulation() -> None:
    machine = Profile(inside={("AllReduce", 2): ((NBYTES, 0.003),)})
    assert model(MeasuredCosts(machine), scenario()).all_reduce_s == pytest.approx(0.003 * (2 * 3 / 4) / (2 * 1 / 2))
    assert model(MeasuredCosts(machine), scenario()).all_reduce_s == machine.collective_s(
        "AllReduce", 4, NBYTES, inside=True
    )


def test_neither_all_reduces_nor_messages_is_an_error() -> None:
    with pytest.raises(KeyError, match="neither all-reduces nor messages"):
        model(MeasuredCosts(Profile()), scenario())


def test_hosts_joined_by_links_take_a_ring_over_the_slowest() -> None:
    asked = scenario("train.pace=none", "cluster.network={topology: star, link: eth-10g}", nodes=2)
    (plan,) = asked.plans()
    line = lines_of(plan.cluster, [me.rank for me in plan.job.team], "shortest", 1.0).slowest
    assert line is not None
    machine = Profile(inside=MACHINE.inside, gradients=(BUSY,), cores=2)
    found = model(MeasuredCosts(machine, joined=JoinedHosts()), asked)
    assert found.gradient_s == pytest.approx(0.012), "two ranks on each host"
    # a route has two links, from a host to the switch and from there
    assert found.all_reduce_s == pytest.approx(6 * 2 * line.latency_s + 6 / 4 * NBYTES / line.bytes_per_s)


def test_an_emulated_network_adds_its_rate_to_the_measured_all_reduce() -> None:
    network = "cluster.network={topology: star, link: {latency: 2 ms, bandwidth: 20 Mbit/s}}"
    asked = scenario(network, "train.network=emulated", nodes=2)
    emulation = EmulationCosts(message_s=0.01, all_reduce_s=0.03, few_bytes=64, packet_bytes=1500)
    found = model(MeasuredCosts(MACHINE, emulation), asked)
    assert found.beta_s == pytest.approx(6 / 4 / 2.5e6)
    assert found.all_reduce_s == pytest.approx(0.03 + (NBYTES - 64) * 6 / 4 / 2.5e6)


def test_the_line_is_that_of_least_squares() -> None:
    points = ((0, 1.0), (1, 3.0), (2, 2.0))  # slope 1/2, mean 2 at 1
    assert line_through(points) == pytest.approx((1.5, 0.5))


def test_neither_parameter_is_negative() -> None:
    assert line_through(((1, 0.0), (2, 2.0)))[0] == 0.0
    assert line_through(((1, 2.0), (2, 0.0))) == pytest.approx((1.0, 0.0))


def test_the_time_to_a_target_is_the_simulated_steps_times_the_step() -> None:
    summary = run("sync-sgd").summary  # two workers of 10 samples a step; the target is reached at 20 samples
    assert summary["samples_to_accuracy"] == 20.0
    made = with_times(summary, AlphaBeta(gradient_s=2.0, update_s=0.5, alpha_s=0.5, beta_s=0.0, nbytes=8), 2, 20)
    assert made["time_to_accuracy_s"] == pytest.approx(3.0)
    assert made["wall_s"] == pytest.approx(4 * 3.0)
    assert made["time_fraction"] == pytest.approx(
        {"compute": 2 / 3, "load": 0.0, "update": 1 / 6, "communication": 1 / 6, "wait": 0.0}
    )
    assert made["staleness"]["mean"] is None and made["staleness"]["histogram"] == []


def test_a_prediction_has_every_simpler_model_beside_it() -> None:
    asked = scenario("stop={samples: 512}", algorithm="async-sgd")
    machine = Profile(inside=MACHINE.inside, messages=MACHINE.messages, inside_messages=MACHINE.messages)
    found = predict(asked, MeasuredCosts(machine))
    assert list(found.wrong) == list(WRONG_MODELS)
    (ours,), (line,) = found.simulated, found.wrong["alpha_beta"]
    step_s: Any = line.summary["step_s"]["mean"]
    assert step_s == pytest.approx(0.020 + 0.001 + NBYTES * 0.2e-6) and step_s != ours.summary["step_s"]["mean"]
    assert line.summary["updates"] == ours.summary["updates"]


def test_without_spread_measured_gradients_take_their_mean_time() -> None:
    machine = Profile(inside=MACHINE.inside, gradients=(BUSY,), cores=8)
    even = predict(scenario("train.pace=none", "stop={samples: 512}"), MeasuredCosts(machine)).wrong["no_spread"][0]
    spans = even.tables.spans.query("activity == 'compute'")
    assert (spans["end_s"] - spans["start_s"]).to_numpy() == pytest.approx(0.01 / (0.01 / 0.012))


# --- the part of a latency that processors work for -------------------------------------------------------------------


LATENCY_S, BYTES_PER_S, SEND_S, RECEIVE_S = 1e-4, 1e9, 2e-5, 3e-5
CLOSE = 1e-12
"""relative: the same few additions in another order"""


def cluster(hosts: int, send_s: float = SEND_S, receive_s: float = RECEIVE_S) -> ClusterModel:
    link = LinkModel(name="link", latency_s=LATENCY_S, bytes_per_s=BYTES_PER_S, provenance="a test's own")
    wire = replace(link, send_s=send_s, receive_s=receive_s)
    device = DeviceModel(name="device", overhead_s=1.0, per_sample_s=0.0)
    return on_a_star([(device, 1)] * hosts, link=wire, local=link)


def last(cluster: ClusterModel, messages: Sequence[tuple[float, int, int, int]]) -> float:
    return max(ends(cluster, messages))


@pytest.mark.parametrize("nbytes", [0, 64, 10**6])
def test_a_message_alone_takes_alpha_and_its_bytes(nbytes: int) -> None:
    assert last(cluster(2), [(0.0, 0, 1, nbytes)]) == pytest.approx(LATENCY_S + nbytes / BYTES_PER_S, rel=CLOSE)


@pytest.mark.parametrize("senders", [1, 8, 64])
@pytest.mark.parametrize("nbytes", [0, 64])
def test_many_small_messages_into_one_rank_queue_for_its_processor(senders: int, nbytes: int) -> None:
    """α + N n β + (N − 1) receive_s, if all arrive at once; a fluid model alone gives α + N n β."""
    messages = [(0.0, sender, 0, nbytes) for sender in range(1, senders + 1)]
    fluid = LATENCY_S + senders * nbytes / BYTES_PER_S
    expected = fluid + (senders - 1) * RECEIVE_S
    assert last(cluster(senders + 1), messages) == pytest.approx(expected, rel=CLOSE)
    assert last(cluster(senders + 1, receive_s=0.0), messages) == pytest.approx(fluid, rel=CLOSE)


def test_many_messages_out_of_one_rank_queue_for_its_processor() -> None:
    """α + (N − 1) send_s: each message starts when the one before has been sent, and has the link for itself."""
    messages = [(0.0, 0, to, 0) for to in range(1, 9)]
    assert last(cluster(9, receive_s=0.0), messages) == pytest.approx(LATENCY_S + 7 * SEND_S, rel=CLOSE)


def test_large_messages_hide_what_the_processor_does() -> None:
    """Bytes of N messages that begin one after the other: the receiver is done with one before the next is through."""
    messages = [(number * 1e-3, number, 0, 10**6) for number in range(1, 5)]
    assert last(cluster(5), messages) == pytest.approx(4e-3 + 1e-3 + LATENCY_S, rel=CLOSE)


@pytest.mark.parametrize("name", ["eth-10g", "ib-edr"])
def test_links_of_the_catalogue_have_costs_of_processors(name: str) -> None:
    link = LINKS[name]
    device = DeviceModel(name="device", overhead_s=1.0, per_sample_s=0.0)
    star = on_a_star([(device, 1)] * 33, link=link, local=LINKS["shared-memory"])
    assert 0.0 < link.send_s + link.receive_s <= link.latency_s
    one, many = last(star, [(0.0, 1, 0, 4)]), last(star, [(0.0, sender, 0, 4) for sender in range(1, 33)])
    assert one == pytest.approx(link.message_s(4), rel=CLOSE)
    assert many == pytest.approx(link.latency_s + 32 * 4 / link.bytes_per_s + 31 * link.receive_s, rel=CLOSE)
