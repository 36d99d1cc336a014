"""What a library's protocols make of a pattern: steps of other latencies, bytes that cost more than themselves.

Rules of this file:

* A step takes what the protocol says for the slowest medium on its way, or its path's latency as often as the protocol
  pays for it. Of data that fill only a share of what is sent, so many more bytes pass the ports. The most that a rank
  moves is a limit on each of its messages.
* Protocols for all sizes are ways of doing the whole collective. Those for some sizes are one way together: each
  message goes by the one for its size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from paceline.simulator.collectives.performance import Play
from paceline.simulator.collectives.rounds import Pattern
from paceline.simulator.flows.fabric import Path
from paceline.topologies.catalogue.libraries import Library, Protocol
from paceline.topologies.graphs.graph import Graph

PATTERN_OF = {"reduce-broadcast": "binomial-tree", "tree": "binomial-tree"}
"""libraries' names of patterns that `patterns` calls otherwise"""
PROTOCOL_OF = {"double-tree": "tree", "ring-channels": "ring"}
"""what protocols call the algorithm of a pattern"""

TCP = frozenset({"eth-1g", "eth-10g", "eth-25g", "eth-40g-gloo", "eth-100g"})
"""links of the catalogue whose figures are those of TCP"""


def transport_of(graph: Graph) -> str:
    """What messages between nodes run over: `tcp` where all links of the network are known to; else `any`."""
    links = {connection.link.name for connection in graph.connections if connection.link.medium == "network"}
    return "tcp" if links and links <= TCP else "any"


def patterns_of(library: Library) -> list[str]:
    """The library's patterns for an all-reduce, in our words.

    >>> from paceline.topologies.catalogue.libraries import LIBRARIES
    >>> patterns_of(LIBRARIES["mpi"])
    ['ring', 'recursive-doubling', 'halving-doubling', 'binomial-tree']
    """
    return [PATTERN_OF.get(name, name) for name in library.algorithms]


@dataclass(frozen=True, slots=True)
class Way:
    """One protocol, or several of which each moves the messages of some sizes."""

    protocols: tuple[Protocol, ...]

    def of(self, nbytes: float) -> Protocol:
        """What moves a message of so many bytes."""
        return next(one for one in self.protocols if one.from_bytes <= nbytes < one.below_bytes)

    def name(self, pattern: Pattern) -> str:
        """The names of the protocols that its messages go by, smallest first."""
        sizes = sorted({size for part in pattern.parts for one in part for size in one.nbytes.tolist()})
        return "+".join(dict.fromkeys(self.of(size).name for size in sizes)) or self.protocols[0].name


def ways(library: Library, pattern: str, transport: str) -> list[Way]:
    """How a library can carry out a pattern; one that it has no protocol for goes as its first algorithm does."""
    for algorithm in (PROTOCOL_OF.get(pattern, pattern), library.algorithms[0]):
        fits = [one for one in library.protocols if one.algorithm in ("any", algorithm)]
        fits = [one for one in fits if one.transport == transport] or [one for one in fits if one.transport == "any"]
        whole = [one for one in fits if one.from_bytes == 0 and one.below_bytes == float("inf")]
        by_size = [one for one in fits if one not in whole]
        if fits:
            return [Way((one,)) for one in whole] + ([Way(tuple(by_size))] if by_size else [])
    return []


def governed(play: Play, way: Way) -> Play:
    """The play as these protocols carry it out."""
    (share,) = {one.bandwidth_factor for one in way.protocols}  # those by size all have one
    rounds = tuple(tuple(replace(one, nbytes=one.nbytes / share) for one in part) for part in play.pattern.parts)
    paths: Callable[..., Path] = play.paths

    def path(source: int, to: int, sent_bytes: float) -> Path:
        protocol = way.of(nbytes := sent_bytes * share)
        return _along(paths(source, to, nbytes), protocol)

    return replace(
        play,
        pattern=Pattern(rounds),
        paths=path,
        reduce_s_per_byte=play.reduce_s_per_byte * share,
        base_s=play.base_s + max(one.base_s for one in way.protocols),
    )


def _along(path: Path, protocol: Protocol) -> Path:
    step_s = protocol.step_s.get(path.medium)
    if step_s is None:
        step_s = protocol.latency_factor * path.latency_s + protocol.step_extra_s
    limit = min(path.limit_bytes_per_s, protocol.limit_bytes_per_s / protocol.bandwidth_factor)
    return replace(path, latency_s=step_s, limit_bytes_per_s=limit)
