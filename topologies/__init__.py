"""Clusters: devices, spread, nodes, links, and the closed forms of collectives. Read `cluster` first, then `spread`."""

from typing import TYPE_CHECKING

from paceline.algorithms.deferred import deferred

if TYPE_CHECKING:
    from paceline.topologies.cluster import Cluster, Node
    from paceline.topologies.devices import Device
    from paceline.topologies.faults import NO_FAULTS, Faults
    from paceline.topologies.links import LINKS, Link
    from paceline.topologies.spread import NO_SPREAD, Spread
    from paceline.topologies.storage import STORAGE, Storage
else:
    _HOMES = {
        "LINKS": "links",
        "NO_FAULTS": "faults",
        "NO_SPREAD": "spread",
        "STORAGE": "storage",
        "Cluster": "cluster",
        "Device": "devices",
        "Faults": "faults",
        "Link": "links",
        "Node": "cluster",
        "Spread": "spread",
        "Storage": "storage",
    }
    __getattr__, __dir__ = deferred(__name__, _HOMES)

__all__ = [
    "LINKS",
    "NO_FAULTS",
    "NO_SPREAD",
    "STORAGE",
    "Cluster",
    "Device",
    "Faults",
    "Link",
    "Node",
    "Spread",
    "Storage",
]
