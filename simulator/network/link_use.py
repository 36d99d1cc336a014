"""The links of a cluster with the bytes that they carried, from the counts of a run."""

from __future__ import annotations

import numpy as np

from paceline.algorithms.core.values import Rank
from paceline.records.links import Links
from paceline.simulator.network.network import ClusterNetwork
from paceline.topologies.graphs.routing import port


def links_of(network: ClusterNetwork) -> Links | None:
    """Returns the links of a network and what they carried; None if the interpreter of its run has not counted it.

    Traffic of the main memories of nodes is not part of it: these are no links.

    Args:
        network: the network, after a run.
    """
    if network.traffic is None:
        return None
    carried, cluster = network.traffic.by_port(), network.cluster
    ways = [(*ends, one) for one in cluster.graph.striped().connections for ends in (one.ends, one.ends[::-1])]
    pairs = [(here, there, one.link) for here, there, one in ways]
    ports = [port(here, there) for here, there, _ in ways]
    bandwidth = [one.bytes_per_s_from(here) for here, _, one in ways]
    for rank in map(Rank, range(cluster.workers + 1)):
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
        nbytes=np.array([carried.get(one, 0.0) for one in ports], dtype=float),
        bandwidth=np.array(bandwidth, dtype=float),
    )
