"""Warnings about messages that are larger than those to which the values of the network were fitted.

Sizes are those of the messages that a run sent, so warnings are made at its end. The range is known for links that were
fitted to a curve over sizes (`Link.fitted_bytes`), and for the profile of a measured machine.
"""

from __future__ import annotations

from paceline.records.trace import Trace
from paceline.simulator.network.network import ClusterNetwork, Network
from paceline.topologies.catalogue.machine_profile import Consulted
from paceline.topologies.graphs.graph import Graph


def beyond(trace: Trace, graph: Graph, wires: Network, machine: Consulted | None) -> list[str]:
    """Returns the warnings about a run.

    Args:
        trace: the record of the run.
        graph: the graph of the cluster.
        wires: the network of the run.
        machine: the machine profile from which this network was made, or None.
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
