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
    rows: list[tuple[str, str, str, str, float, float]] = []
    for one in cluster.graph.striped().connections:
        for here, there in (one.ends, one.ends[::-1]):
            nbytes = carried.get(port(here, there), 0.0)
            rows.append((here, there, one.link.name, one.link.medium, nbytes, one.bytes_per_s))
    for rank in map(Rank, range(cluster.workers + 1)):
        out, into = carried.get(f"out of rank {rank}", 0.0), carried.get(f"into rank {rank}", 0.0)
        if out or into:
            link, vertex = cluster.nodes[cluster.node_of(rank)].intra_node_link, cluster.vertex_of(rank)
            here = f"rank {rank}"
            rows.append((here, vertex, link.name, link.medium, out, link.bytes_per_s))
            rows.append((vertex, here, link.name, link.medium, into, link.bytes_per_s))
    source, target, kind, medium, nbytes, bandwidth = zip(*rows, strict=True) if rows else ((),) * 6
    return Links(source, target, kind, medium, np.array(nbytes, dtype=float), np.array(bandwidth, dtype=float))
