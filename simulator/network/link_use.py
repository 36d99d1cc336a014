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
    pairs = [(*ends, one.link) for one in cluster.graph.striped().connections for ends in (one.ends, one.ends[::-1])]
    ports = [port(here, there) for here, there, _ in pairs]
    bandwidth = [one.bytes_per_s for one in cluster.graph.striped().connections for _ in range(2)]
    for rank in map(Rank, range(cluster.workers + 1)):
        ways = (f"out of rank {rank}", f"into rank {rank}")
        if not any(carried.get(way) for way in ways):
            continue
        link, vertex, name = (
            cluster.nodes[cluster.node_of(rank)].intra_node_link,
            cluster.vertex_of(rank),
            f"rank {rank}",
        )
        pairs += [(name, vertex, link), (vertex, name, link)]
        ports += ways
        bandwidth += [link.bytes_per_s] * 2
    return Links(
        source=[here for here, _, _ in pairs],
        target=[there for _, there, _ in pairs],
        kind=[link.name for _, _, link in pairs],
        medium=[link.medium for _, _, link in pairs],
        nbytes=np.array([carried.get(one, 0.0) for one in ports], dtype=float),
        bandwidth=np.array(bandwidth, dtype=float),
    )
