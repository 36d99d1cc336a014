"""The ports that messages to and from a server share on a cluster.

Each path has one bottleneck: its port with the least bandwidth. If all flows through each other port of a path have the
same bottleneck, that port never limits them, because their rates together are at most the bottleneck's. So max-min fair
rates are equal shares of bottlenecks, up to the flows' own limits. `check` refuses all other clusters.
"""

from __future__ import annotations

from paceline.algorithms.core.job import Job
from paceline.algorithms.core.values import Rank
from paceline.simulator.flows.fabric import Path
from paceline.simulator.flows.flow_engine import Port
from paceline.simulator.network.network import ClusterNetwork
from paceline.simulator.servers.reasons import NotCompiled

MOST_CLASSES = 64
"""classes of flows; the event loop looks at all of them at each event; provenance: INFERENCE"""
NO_LIMIT = 1e300


class SharedPorts:
    """Bottlenecks, and classes of flows with the same bottleneck and limit.

    Args:
        network: the network of the cluster.
        job: the run's job.
    """

    def __init__(self, network: ClusterNetwork, job: Job) -> None:
        self._fabric = network.fabric
        self._capacity = network.fabric.capacity
        self._numbers: dict[str, int] = {}
        self._bottleneck: dict[str, str] = {}
        """of each port that flows pass"""
        self._mixed: str | None = None
        self._known: dict[Path, int] = {}
        self.classes: dict[tuple[int, float], int] = {}
        """the number of each class, by its port and its limit"""

    @property
    def rates(self) -> list[float]:
        """The bandwidth of each bottleneck."""
        return [float(self._capacity[port]) for port in self._numbers]

    def path(self, source: Rank, to: Rank, size: int) -> tuple[int, tuple[float, float, float]]:
        """Returns the class of a message's flow, -1 if nothing flows, and the seconds before and after it.

        Args:
            source: the sender.
            to: the receiver.
            size: bytes of the message.
        """
        path = self._fabric.path(source, to, size)
        latency_s = max(0.0, path.latency_s - path.send_s - path.receive_s)
        from_server = path.ports if source > to else path.ports[::-1]  # the server has the highest rank
        which = -1 if size == 0 or not path.ports else self._class(path, from_server)
        return which, (path.send_s, latency_s, path.receive_s)

    def _class(self, path: Path, from_server: tuple[Port, ...]) -> int:
        """Returns the class of a path; of ports with equal bandwidth, the one next to the server is the bottleneck."""
        if (known := self._known.get(path)) is not None:
            return known
        bottleneck = min(from_server, key=self._capacity.__getitem__)
        for port in path.ports:
            if self._bottleneck.setdefault(port, bottleneck) != bottleneck:
                self._mixed = port
        number = self._numbers.setdefault(bottleneck, len(self._numbers))
        limit = min(path.limit_bytes_per_s, NO_LIMIT)
        which = self._known[path] = self.classes.setdefault((number, limit), len(self.classes))
        return which

    def check(self) -> None:
        """Raises `NotCompiled` if flows share ports in another way."""
        if self._mixed is not None:
            raise NotCompiled(f"messages with different bottlenecks share the port {self._mixed!r}")
        if len(self.classes) > MOST_CLASSES:
            raise NotCompiled(f"messages have more than {MOST_CLASSES} different bottlenecks or limits")
