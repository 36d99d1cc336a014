"""Clusters: devices, spread, nodes, links, and the closed forms of collectives. Read `cluster` first, then `spread`."""

from paceline.topologies.cluster import Cluster, Node
from paceline.topologies.devices import Device
from paceline.topologies.faults import NO_FAULTS, Faults
from paceline.topologies.links import LINKS, Link
from paceline.topologies.spread import NO_SPREAD, Spread
from paceline.topologies.storage import STORAGE, Storage

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
