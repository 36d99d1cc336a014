"""The strategies of HSGD and native ones on one machine, and their images per second.

A factor between strategies is a ratio of images per second on the same nodes. What the images of a step are worth is
not part of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from paceline.papers.runs.step_times import step_s
from paceline.scenarios import load
from paceline.scenarios.sections.devices import device_of
from paceline.topologies.catalogue.device_names import named

SCENARIO = "hsgd-tianhe2"
PHI, CORES, PHIS = "xeon-phi-31s1p", 57, 3
SMALL, LARGE = 1056, 8160
"""images in a step without and with LARS, as in the inputs file"""


@dataclass(frozen=True, slots=True)
class Setting:
    """A machine, a model and a batch.

    Args:
        nodes: The number of nodes.
        replicas: Replicas on each node, which share its 171 cores.
        serial: s of Amdahl's law over cores.
        model: The model.
        images: Images in a step of all nodes.
        sockets: The link between processes of a node over sockets.
        storage: The storage.
        allreduce: The all-reduce of native strategies.
    """

    nodes: int = 32
    replicas: int = PHIS
    serial: float = 0.01
    model: str = "alexnet"
    images: int = SMALL
    sockets: str = "loopback"
    storage: str = "lustre"
    allreduce: str = "ring"

    def changes(self, replicas: int, *, link: str) -> list[str]:
        """Returns the changes of the scenario.

        Args:
            replicas: Replicas on each node; 1 is one process over all cores.
            link: The link between processes of a node.
        """
        return [
            f"cluster.nodes=[{{device: {self.device(replicas)}, workers_per_node: {replicas}, count: {self.nodes}}}]",
            f"workload.model={self.model}",
            f"workload.batch_per_worker={max(1, round(self.images / self.nodes / replicas))}",
            f"cluster.network.intra_node_link={link}",
            f"cluster.storage={self.storage}",
        ]

    def device(self, replicas: int) -> str:
        """Returns a device with its part of a node's cores, as YAML.

        The catalogue's Phi gives the time of 57 cores for a third of a node's images. Each core computes as many images
        however the cores are divided, so its efficiency is the same, and Amdahl's law gives the rest:

            t(c, b) = t(57, B / 3) · b / (B / 3) · (s + (1 − s) / c) / (s + (1 − s) / 57)

        Args:
            replicas: Replicas on each node.
        """
        if replicas == PHIS:
            return PHI
        workload = load(SCENARIO, [f"workload.model={self.model}"]).workload
        phi_s = device_of(PHI, workload).compute_s(max(1, round(self.images / self.nodes / PHIS)))
        law = self._amdahl(PHIS * CORES / replicas) / self._amdahl(CORES)
        memory = named(PHI).sustained_bytes_per_s * PHIS / replicas / 1e9
        return (
            f"{{name: cores-{PHIS * CORES // replicas}, overhead: {phi_s * PHIS / replicas * law!r} s, "
            f"per_sample: 0 s, memory_bandwidth: {memory!r} GB/s}}"
        )

    def _amdahl(self, cores: float) -> float:
        return self.serial + (1 - self.serial) / cores


Rate = Callable[[Setting], float]
"""images per second of a strategy"""


def images_per_s(
    setting: Setting, algorithm: str | tuple[tuple[str, object], ...], replicas: int, changes: list[str]
) -> float:
    """Returns the images per second of an algorithm with this many replicas on each node."""
    each = max(1, round(setting.images / setting.nodes / replicas))
    return each * replicas * setting.nodes / step_s(SCENARIO, algorithm, changes, steps=4)


@cache
def hierarchical(setting: Setting) -> float:
    """Returns the images per second of two-level sums through shared memory, without LARS."""
    changes = setting.changes(setting.replicas, link="shared-memory")
    return images_per_s(setting, (("name", "hsgd"), ("lars", "null")), setting.replicas, changes)


@cache
def one_process(setting: Setting) -> float:
    """Returns the images per second of native (a): one process over all cores of a node, a ring among the nodes."""
    changes = [*setting.changes(1, link=setting.sockets), f"cluster.network.allreduce_algorithm={setting.allreduce}"]
    return images_per_s(setting, "sync-sgd", 1, changes)


@cache
def sockets(setting: Setting) -> float:
    """Returns the images per second of native (b): a replica for each NUMA domain, a flat ring over sockets."""
    changes = setting.changes(setting.replicas, link=setting.sockets)
    changes.append(f"cluster.network.allreduce_algorithm={setting.allreduce}")
    return images_per_s(setting, "sync-sgd", setting.replicas, changes)


@cache
def server(setting: Setting) -> float:
    """Returns the images per second of native (c): a parameter server on one node, every replica for itself."""
    return images_per_s(
        setting, "sync-sgd-ps", setting.replicas, setting.changes(setting.replicas, link=setting.sockets)
    )


NATIVE: dict[str, tuple[Rate, str]] = {
    "one-process": (one_process, "one process over all cores of a node"),
    "sockets": (sockets, "one replica for each NUMA domain, over sockets"),
    "server": (server, "a parameter server, every replica for itself"),
}
