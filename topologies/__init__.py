"""Clusters: devices, jitter, nodes, links, and closed forms of collectives.

Read `cluster` first, then `faults.jitter`.
"""

from typing import TYPE_CHECKING

from paceline.algorithms.core.lazy_imports import deferred

if TYPE_CHECKING:
    from paceline.topologies.catalogue.device import DeviceModel
    from paceline.topologies.catalogue.storage_devices import STORAGE, StorageModel
    from paceline.topologies.cluster import ClusterModel, Node
    from paceline.topologies.faults.jitter import NO_JITTER, Jitter
    from paceline.topologies.faults.worker_faults import NO_FAULTS, Faults
    from paceline.topologies.graphs.links import LINKS, LinkModel
else:
    __getattr__, __dir__ = deferred(
        __name__,
        {
            "ClusterModel": "cluster",
            "DeviceModel": "catalogue.device",
            "Faults": "faults.worker_faults",
            "LINKS": "graphs.links",
            "LinkModel": "graphs.links",
            "NO_FAULTS": "faults.worker_faults",
            "NO_JITTER": "faults.jitter",
            "Node": "cluster",
            "STORAGE": "catalogue.storage_devices",
            "Jitter": "faults.jitter",
            "StorageModel": "catalogue.storage_devices",
        },
    )

__all__ = [
    "LINKS",
    "NO_FAULTS",
    "NO_JITTER",
    "STORAGE",
    "ClusterModel",
    "DeviceModel",
    "Faults",
    "Jitter",
    "LinkModel",
    "Node",
    "StorageModel",
]
