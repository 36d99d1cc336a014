"""What communication takes from the gradients of a modelled cluster, by its devices, its library and its links."""

from __future__ import annotations

from functools import cache

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.values import Rank
from paceline.scenarios.resolution.plan import Plan
from paceline.simulator.kernel.shared_processor import Law, Speeds
from paceline.simulator.network.interference import NO_DEMAND, Demand, Processors
from paceline.topologies.catalogue.device_names import named
from paceline.topologies.catalogue.gradient_times import shared_cores
from paceline.topologies.catalogue.interference import NOTHING, Taken, taken
from paceline.topologies.catalogue.libraries import LIBRARIES
from paceline.topologies.catalogue.machine_profile import Profile
from paceline.topologies.cluster import Cluster, Node
from paceline.topologies.graphs.graph import Graph


def processors_of(plan: Plan) -> Processors | None:
    """Returns the processors that gradients and communication share; None if no rank shares anything.

    Args:
        plan: the run.
    """
    cluster, server = plan.cluster, plan.job.team[0].server
    shares = {node.name: taken_of(plan, node).share for node in cluster.nodes}
    if not any(shares.values()):
        return None

    def demand(rank: Rank) -> Demand:
        share = shares[cluster.nodes[cluster.node_of(rank)].name]
        return NO_DEMAND if rank == server or not share else Demand(rank, 1.0, share, message=share)

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


def collective_bytes_per_s(cluster: Cluster, node: Node) -> float:
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
