"""The cost model of a run: what work, messages, collectives and copies cost, in seconds, and where each cost is from.

* `modelled` takes devices, links and hosts from the catalogue and the scenario. `measured` takes what was measured of a
  machine: all ranks on it, or on hosts that it emulates, or on several hosts like it. No other place distinguishes
  these four; interpreters get a `CostModel` and read neither scenario nor measurements.
* The times of messages are those of a network, because messages share links; `CostModel.network` is that network.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TypeVar

import numpy as np

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.job import Job
from paceline.algorithms.core.values import Group, Rank
from paceline.records.links import Links
from paceline.records.trace import Trace
from paceline.scenarios.resolution.fitted_ranges import outside, predicted_times
from paceline.scenarios.resolution.plan import Plan
from paceline.simulator.collectives.tuning import transport_of
from paceline.simulator.flows.fabric import MANY_WORKERS
from paceline.simulator.flows.path_tables import SLOWNESS
from paceline.simulator.interpreter.host_costs import Handling, HostCosts
from paceline.simulator.interpreter.loading import Supply
from paceline.simulator.kernel.shared_processor import Law, Speeds
from paceline.simulator.kernel.timing import Timing
from paceline.simulator.network.emulated import EmulatedNetwork
from paceline.simulator.network.interference import NO_DEMAND, Demand, Processors
from paceline.simulator.network.linked_hosts import LinkedHosts
from paceline.simulator.network.network import ClusterNetwork, InMemoryCosts, MeasuredNetwork, NetworkModel, NoCost
from paceline.simulator.network.node_memory import NodeMemory
from paceline.simulator.runs.plan_timing import PlanTiming
from paceline.topologies.catalogue.device_names import named
from paceline.topologies.catalogue.gradient_times import shared_cores
from paceline.topologies.catalogue.host_memory import NOTHING, Taken, taken
from paceline.topologies.catalogue.libraries import LIBRARIES
from paceline.topologies.catalogue.machine_profile import Consulted, Handled, MeasuredCosts, Profile, caution
from paceline.topologies.cluster import ClusterModel, Node
from paceline.topologies.graphs.graph import Graph
from paceline.topologies.graphs.routing import port

N = TypeVar("N", bound=ClusterNetwork)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostModel:
    """What everything in a run costs.

    Args:
        job: the job as it is timed; a measured run stops where a real one does.
        timing: the seconds of each rank's own work.
        network: the times of messages and collectives.
        hosts: what hosts cost and share.
        links: the network of the cluster's graph, whose links are counted; None if messages do not take its links.
        not_counted: why links are not counted; "" if they are.
        free_on: the devices and hosts on which updates and copies take no time; None if the machine was measured.
        warnings: returns what a record of the run takes from outside of what was measured or fitted.
    """

    job: Job
    timing: Timing
    network: NetworkModel
    hosts: HostCosts
    links: ClusterNetwork | None = None
    not_counted: str = ""
    free_on: list[str] | None = None
    warnings: Callable[[Trace], list[str]]

    def describe(self, trace: Trace, plan: Plan) -> None:
        """Adds to a record what its costs are from, what links carried, and warnings.

        Args:
            trace: the record.
            plan: the run.
        """
        if self.links is not None:
            trace.links = links_of(self.links)
            trace.notes["collectives"] = [choice.record() for choice in self.links.tuner.choices.values()]
        if trace.links is None:
            why = self.not_counted or "the interpreter of this run does not count them"
            trace.notes["links"] = f"not counted: {why}"
        trace.free_on = self.free_on
        if times := predicted_times(plan):
            trace.notes["gradient_times"] = times
        trace.notes["warnings"] = [*outside(plan), *self.warnings(trace)]


def modelled(
    plan: Plan, *, network: ClusterNetwork | None = None, timing: Timing | None = None, message_cost: bool = True
) -> CostModel:
    """Returns the costs of the scenario's cluster.

    Args:
        plan: the run.
        network: the network of its graph, if it exists; see `reusable_network`.
        timing: the seconds of each rank's own work; None: those of the plan.
        message_cost: whether messages and collectives take time.
    """
    wires = (network or cluster_network(plan)) if message_cost else None
    memory = None if wires is None else NodeMemory(wires)
    return CostModel(
        job=plan.job,
        timing=timing or PlanTiming(plan),
        network=NoCost() if wires is None else wires,
        hosts=HostCosts(
            supply=supply_of(plan),
            handling=receiving_of(plan, wires),
            cells=memory,
            staging=memory,
            processors=processors_of(plan),
        ),
        links=wires,
        not_counted="" if message_cost else NO_LINKS,
        free_on=free_places(plan),
        warnings=lambda trace: [] if wires is None else larger_than_fitted(trace, wires),
    )


def measured(plan: Plan, costs: MeasuredCosts, *, timing: Timing | None = None, message_cost: bool = True) -> CostModel:
    """Returns the costs of a machine on which the run is, or will be, measured.

    Args:
        plan: the run.
        costs: what was measured.
        timing: the seconds of each rank's own work; None: those that were measured.
        message_cost: whether messages and collectives take time.
    """
    host, asked = costs.host, Consulted(costs.host)
    between = costs.between(placement_of(plan))
    network, unmeasured = _measured_network(plan, costs, asked, between) if message_cost else (NoCost(), list[str])

    def warnings(_: Trace) -> list[str]:
        poor = caution(host.verdict)
        judged = [f"cluster.machine: the calibration is {poor}"] if poor else []
        return [*asked.outside(), *extrapolated(plan, costs), *unmeasured(), *judged]

    return CostModel(
        job=plan.measured_job,
        timing=timing or PlanTiming(plan, host),
        network=network,
        hosts=HostCosts(
            handling=handling_of(plan, host, between, message_cost=message_cost),
            processors=host_processors(plan, host, one_machine=costs.emulation is not None),
            snapshot_s=host.snapshot_s,
        ),
        not_counted="the times of messages are not those of the links of the scenario's cluster"
        if message_cost
        else NO_LINKS,
        warnings=warnings,
    )


NO_LINKS = "messages take no time in this run, so they take no links"


def _measured_network(
    plan: Plan, costs: MeasuredCosts, asked: Consulted, between: Profile | None
) -> tuple[NetworkModel, Callable[[], list[str]]]:
    """Returns the network of a measured machine: inside a host as measured, between hosts as `costs` says.

    The function returns, after the run, sentences on operations that were not measured.
    """
    memory = InMemoryCosts(
        collective_s=partial(asked.collective_s, inside=True),
        holds=plan.inside,
        message_s=partial(asked.message_s, inside=True),
        joins=plan.same_host,
    )
    here = MeasuredNetwork(asked.collective_s, asked.message_s, memory)
    if costs.joined is not None:
        linked = LinkedHosts(plan, costs.host, here, cluster_network(plan), between)
        return linked, linked.extrapolated
    return (here if costs.emulation is None else EmulatedNetwork(plan, costs.emulation, here)), list[str]


def cluster_network(plan: Plan, kind: type[N] = ClusterNetwork) -> N:  # type: ignore[assignment]
    """Returns the network of a plan's scenario.

    Args:
        plan: the run.
        kind: the class of the network.
    """
    wiring = plan.wiring
    return kind(plan.cluster, wiring.all_reduce, wiring.routing, wiring.library, seed=plan.seed, version=wiring.version)


def supply_of(plan: Plan) -> Supply | None:
    """Returns the storage from which a plan's batches are read; None if reading takes no time."""
    cluster, work = plan.cluster, plan.work
    if cluster.storage is None or work.reading is None:
        return None
    reading, record_bytes = work.reading, work.record_bytes
    assert record_bytes is not None, "a scenario with storage has a record size"
    return Supply(
        storage=cluster.storage,
        order=reading.order(work.samples, plan.seed),
        record_bytes=record_bytes,
        prefetch=reading.prefetch,
        nodes=[cluster.node_of(Rank(rank)) for rank in range(cluster.workers)],
    )


def receiving_of(plan: Plan, network: ClusterNetwork | None) -> Handling:
    """Returns what receiving messages costs on a modelled cluster, and the threads of the server.

    * Messages that came over a network are copied by a core of the receiver if the library says so. Within a node, the
      copies are part of the link between its ranks, and GPUs copy themselves.
    * Large messages to the server wait for their receives if `cluster.server.receive` or the library says so. Messages
      to workers do not: their programs know the sender, so a real program posts its receives early.

    Args:
        plan: the run.
        network: the cluster's network; None if messages take no time.
    """
    server, cluster = plan.server, plan.cluster
    if network is None:
        return Handling(threads=server.threads)
    receiving = LIBRARIES[plan.wiring.library].receiving
    transport, servers = transport_of(cluster.graph), frozenset(plan.job.team[0].servers)
    in_order = (receiving.order if server.receive == "auto" else server.receive) == "in-order"

    @cache
    def networked(source: Rank, to: Rank) -> bool:
        if (server := max(source, to)) in servers and cluster.workers >= MANY_WORKERS:
            paths = network.fabric.server_paths(server, 0, to_server=to == server)
            if paths is not None:
                return bool(paths.medium[min(source, to)] == SLOWNESS.index("network"))
        return network.fabric.path(source, to, 0).medium == "network"

    def cost_s(source: Rank, to: Rank, nbytes: int) -> float:
        if not networked(source, to):
            return 0.0
        if not receiving.copied(nbytes, transport):
            return receiving.overhead_s
        own = cluster.nodes[cluster.node_of(to)].memory.copy_bytes_per_s
        return receiving.overhead_s + nbytes / min(own, receiving.core_bytes_per_s)

    def receive_s(source: Rank, to: Rank, nbytes: int) -> float:
        """The copy into a receive that a worker has posted runs while the message arrives."""
        return cost_s(source, to, nbytes) if in_order and to not in servers else 0.0

    def copy_s(source: Rank, to: Rank, nbytes: int) -> float:
        return 0.0 if in_order and to not in servers else cost_s(source, to, nbytes)

    def waits(to: Rank, nbytes: int) -> bool:
        return in_order and to in servers and not receiving.eager(nbytes, transport)

    def alike() -> Sequence[int] | None:
        """The costs depend on the slowest medium of each path, and on the memory of the receiver."""
        if len(servers) != 1 or cluster.workers < MANY_WORKERS:
            return None
        (server,) = servers
        to, back = (network.fabric.server_paths(server, 0, to_server=to_server) for to_server in (True, False))
        if to is None or back is None:
            return None
        memories: dict[float, int] = {}
        of_node = [memories.setdefault(node.memory.copy_bytes_per_s, len(memories)) for node in cluster.nodes]
        memory = np.repeat(of_node, [node.workers for node in cluster.nodes])
        kinds: list[int] = ((memory * len(SLOWNESS) + to.medium) * len(SLOWNESS) + back.medium).tolist()
        return kinds

    return Handling(receive_s=receive_s, copy_s=copy_s, waits=waits, threads=server.threads, alike=alike)


def handling_of(plan: Plan, costs: Profile, between: Profile | None = None, *, message_cost: bool = True) -> Handling:
    """Returns the processor time of ranks for messages and starts on a measured machine.

    Args:
        plan: the run.
        costs: the machine's profile.
        between: the costs between hosts, if they were measured.
        message_cost: whether messages cost processor time.
    """
    if not message_cost:
        return Handling(lane_s=costs.lane_s, wait_s=costs.wait_s)

    node_of = plan.cluster.node_of

    def costs_of(*ranks: Rank) -> Profile:
        return costs if between is None or len(set(map(node_of, ranks))) == 1 else between

    def message_s(kind: Handled, source: Rank, to: Rank, nbytes: int) -> float:
        return costs_of(source, to).handling_s(kind, nbytes, inside=plan.same_host(source, to))

    def start_s(group: Group, nbytes: int) -> float:
        return costs_of(*group.ranks).handling_s("start", nbytes, inside=plan.inside(group))

    return Handling(partial(message_s, "send"), partial(message_s, "receive"), start_s, costs.lane_s, costs.wait_s)


def free_places(plan: Plan) -> list[str]:
    """Returns the devices and hosts on which updates and copies take no time."""
    devices = {node.device.name for node in plan.cluster.nodes if node.device.rates is None}
    hosts = any(node.host_rates is None for node in plan.cluster.nodes) and plan.job.team[0].server is not None
    return [*sorted(devices), *(["their hosts"] if hosts else [])]


def placement_of(plan: Plan) -> tuple[int, ...]:
    """Returns the number of workers of each node."""
    return tuple(len(node) for node in plan.cluster.placement)


def extrapolated(plan: Plan, costs: MeasuredCosts) -> list[str]:
    """Returns sentences on what a prediction from a calibrated machine takes from outside its measurements.

    Args:
        plan: the run.
        costs: those of the calibrated host, or several.
    """
    machine, joined, placement = costs.host, costs.joined, placement_of(plan)
    if joined is None:
        return []
    sentences, own = [f"cluster.machine: {line}" for line in joined.assumed], sorted(set(plan.job.batches))
    if not machine.gradients:
        return [*sentences, "cluster.machine: gradients take the times of the scenario's devices; the file has none"]
    batches = [gradient.batch for gradient in machine.gradients]
    for batch in own:
        if batches[0] <= batch <= batches[-1]:
            continue
        measured = " to ".join(str(size) for size in sorted({batches[0], batches[-1]}))
        sentences.append(f"cluster.machine: gradients of {batch} samples are extrapolated; measured were {measured}")
    ranks = max(placement)
    most = machine.gradient(own[0]).busy[-1][0]
    if ranks > most:
        sentences.append(f"cluster.machine: {ranks} ranks of a host are extrapolated; measured were up to {most}")
    if len(placement) > 1 and costs.between(placement) is None:
        only = "only one host was measured"
        if joined.placement:
            only = f"found {_ranks_of(placement)}; measured were {_ranks_of(joined.placement)}"
        sentences.append(
            "cluster.machine: messages between hosts take the scenario's links, without the work of processors for "
            f"them; {only}"
        )
    return sentences


def _ranks_of(placement: tuple[int, ...]) -> str:
    """Returns the placement in words.

    >>> _ranks_of((2, 2)), _ranks_of((1, 2))
    ('2 hosts with 2 workers', '2 hosts with 1, 2 workers')
    """
    each = ", ".join(str(count) for count in (placement[:1] if len(set(placement)) == 1 else placement))
    return f"{len(placement)} hosts with {each} worker{'s' * (each != '1')}"


def larger_than_fitted(trace: Trace, network: ClusterNetwork) -> list[str]:
    """Returns warnings about messages that are larger than those to which the links of a network were fitted.

    Sizes are those of the messages that the run sent, so warnings are made at its end.

    Args:
        trace: the record of the run.
        network: the network of the run.
    """
    links = {
        connection.link for connection in network.cluster.graph.connections if connection.link.fitted_bytes is not None
    }
    if not links:
        return []
    sent = max((span.bytes for span in trace.spans if span.activity == "send"), default=0)
    nbytes = max(network.tuner.largest_message, sent)
    return [
        f"cluster.network: found messages of up to {nbytes:.0f} bytes; those that {link.name} was fitted to "
        f"had up to {link.fitted_bytes:.0f} bytes ({link.provenance})"
        for link in sorted(links, key=lambda link: link.name)
        if link.fitted_bytes is not None and nbytes > link.fitted_bytes
    ]


def links_of(network: ClusterNetwork) -> Links | None:
    """Returns the links of a network and what they carried; None if the interpreter of its run has not counted it.

    Traffic of the main memories of nodes is not part of it: these are no links.

    Args:
        network: the network, after a run.
    """
    if network.traffic is None:
        return None
    carried, cluster = network.traffic.by_port(), network.cluster
    ways = [
        (*ends, connection)
        for connection in cluster.graph.striped().connections
        for ends in (connection.ends, connection.ends[::-1])
    ]
    pairs = [(here, there, connection.link) for here, there, connection in ways]
    ports = [port(here, there) for here, there, _ in ways]
    bandwidth = [connection.bytes_per_s_from(here) for here, _, connection in ways]
    for rank in map(Rank, cluster.ranks):
        inside = f"out of rank {rank}", f"into rank {rank}"
        if not any(map(carried.get, inside)):
            continue
        link, vertex = cluster.nodes[cluster.node_of(rank)].intra_node_link, cluster.vertex_of(rank)
        pairs += [(f"rank {rank}", vertex, link), (vertex, f"rank {rank}", link)]
        ports += inside
        bandwidth += [link.bytes_per_s] * 2
    return Links(
        source=[here for here, _, _ in pairs],
        target=[there for _, there, _ in pairs],
        kind=[link.name for _, _, link in pairs],
        medium=[link.medium for _, _, link in pairs],
        nbytes=np.array([carried.get(port, 0.0) for port in ports], dtype=float),
        bandwidth=np.array(bandwidth, dtype=float),
    )


def processors_of(plan: Plan) -> Processors | None:
    """Returns the processors that gradients and communication share; None if no rank shares anything.

    Args:
        plan: the run.
    """
    cluster, servers = plan.cluster, frozenset(plan.job.team[0].servers)
    shares = {node.name: taken_of(plan, node).share for node in cluster.nodes}
    if not any(shares.values()):
        return None

    def demand(rank: Rank) -> Demand:
        share = shares[cluster.nodes[cluster.node_of(rank)].name]
        return NO_DEMAND if rank in servers or not share else Demand(rank, 1.0, share, message=share)

    return Processors(cache(demand))


def host_processors(plan: Plan, machine: Profile, *, one_machine: bool = False) -> Processors | None:
    """Returns the cores of the hosts of a real run, which gradients, messages and servers share; None if it is paced.

    A paced gradient sleeps for most of its time, so it leaves the cores to others.

    Args:
        plan: the run.
        machine: the costs of the hosts, all of one kind.
        one_machine: whether all hosts are emulated by one machine, so that all ranks share its cores.
    """
    if not machine.gradients:
        return None
    law = host_law(machine, plan.job.batches[0], max(len(ranks) for ranks in plan.cluster.placement))
    team = plan.job.team
    beside = min(1.0, machine.update_s / machine.update_beside_s) if machine.update_beside_s else 1.0

    def demand(rank: Rank) -> Demand:
        host = team[rank].host
        processor = 0 if one_machine else host
        return Demand(processor, 1.0, 1.0, messages_on=host, charge=1.0, charge_beside=beside, law=law)

    return Processors(demand)


def host_law(machine: Profile, batch: int, workers: int) -> Law:
    """Returns the speeds of a calibrated host.

    Gradients and updates run at the speed that was measured for their number. While a collective is in flight,
    gradients and it run at the speeds that were measured beside each other.

    Args:
        machine: the costs of the host.
        batch: samples of a gradient.
        workers: the workers of the host. All but the one that a message concerns can compute meanwhile.
    """
    times = machine.gradient(batch)
    alone, others = shared_cores(machine.cores, times), max(1, workers - 1)

    def speeds(compute: float, communicate: float) -> Speeds:
        both = compute > 0 and communicate > 0
        return Speeds(
            alone(compute) * (times.beside if both else 1.0),
            times.overlap if both else 1.0,
            message=1.0 - min(1.0, compute / others) * (1.0 - machine.message_beside),
            serve=1.0 - min(1.0, max(0.0, compute - 1.0) / others) * (1.0 - machine.serve_beside),
        )

    return speeds


def taken_of(plan: Plan, node: Node) -> Taken:
    """Returns what communication takes from the devices of a node.

    Args:
        plan: the run.
        node: a node of its cluster.
    """
    if plan.interference is not None:
        return Taken(plan.interference, "given in the scenario")
    try:
        spec = named(node.device.name)
    except InputError:
        return NOTHING
    return taken(spec, LIBRARIES[plan.wiring.library], collective_bytes_per_s(plan.cluster, node))


def collective_bytes_per_s(cluster: ClusterModel, node: Node) -> float:
    """Returns the bandwidth for which a library sets up the collectives of a device.

    Within one node this is that of the device's own fastest links; with several nodes, at most that of all NICs of the
    node, because a ring over all devices passes each of them at the rate at which it enters the node.

    Args:
        cluster: the cluster.
        node: the device's node.
    """
    own = _link_bytes_per_s(cluster.graph, node.seats[0])
    nics = cluster.graph.network_cards.get(node.name, ())
    if len(cluster.nodes) < 2 or not nics:
        return own
    return min(own, sum(_link_bytes_per_s(cluster.graph, nic, "network") for nic in nics))


def _link_bytes_per_s(graph: Graph, vertex: str, medium: str | None = None) -> float:
    """Returns the bandwidth of a vertex's links of one medium; by default of the one with the highest."""
    rates = graph.bytes_per_s_by_medium.get(vertex, {})
    return max(rates.values(), default=0.0) if medium is None else rates.get(medium, 0.0)
