"""Where what a run sent lies outside what its network's values were fitted or measured on: notes, in words.

Rules of this file: sizes are those of the messages that a run really sent, so notes are made when it has ended. A range
is known of links that were fitted to a curve over sizes (`Link.fitted_bytes`) and of a measured machine's profile.
"""

from __future__ import annotations

from paceline.records.trace import Trace
from paceline.simulator.network.network import ClusterNetwork, Network
from paceline.topologies.catalogue.machine_profile import Consulted
from paceline.topologies.graphs.graph import Graph


def beyond(trace: Trace, graph: Graph, wires: Network, machine: Consulted | None) -> list[str]:
    """The notes on a run.

    Args:
        trace: what it left.
        graph: of the cluster.
        wires: the network that it crossed.
        machine: the profile that this network was made from, if it was.
    """
    if machine is not None:
        return machine.outside()
    if not isinstance(wires, ClusterNetwork):
        return []
    links = {one.link for one in graph.connections if one.link.fitted_bytes is not None}
    if not links:
        return []
    sent = max((span.bytes for span in trace.spans if span.activity == "send"), default=0)
    nbytes = max(wires.tuner.largest_message, sent)
    return [
        f"cluster.network: found messages of up to {nbytes:.0f} bytes; those that {link.name} was fitted to "
        f"had up to {link.fitted_bytes:.0f} bytes ({link.provenance})"
        for link in sorted(links, key=lambda link: link.name)
        if link.fitted_bytes is not None and nbytes > link.fitted_bytes
    ]
