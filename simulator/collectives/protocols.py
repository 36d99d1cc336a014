"""Applies the protocols of a library (such as NCCL's LL and Simple) to the latencies, bytes and limits of a pattern.

* A step takes the time that the protocol states for the slowest medium on its path, on top of the latency between the
  nodes, or a multiple of the path's latency. So every step pays the latency that a scenario or the catalogue gives.
  If only a share of the bytes sent is data, more bytes pass the ports. The protocol's bandwidth limits each message.
* A protocol for messages of all sizes is used for the whole collective. Protocols for ranges of sizes are combined:
  each message uses the one for its size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from paceline.algorithms.core.values import Rank
from paceline.simulator.collectives.collective_plan import CollectivePlan
from paceline.simulator.collectives.rounds import Amounts, Pattern, Rounds
from paceline.simulator.flows.fabric import Path
from paceline.simulator.flows.path_tables import SLOWNESS, PathTable
from paceline.topologies.catalogue.libraries import Library, Protocol
from paceline.topologies.graphs.graph import Graph

PATTERN_OF = {"reduce-broadcast": "binomial-tree", "tree": "binomial-tree"}
"""patterns by the libraries' names, where these differ from the names in `patterns`"""
ONE_WAY = frozenset({"binomial-tree", "double-tree", "scatter-gather", "shared-memory", "levels"})
"""patterns whose ranks do not send and receive at once"""
PROTOCOL_OF = {"double-tree": "tree", "ring-channels": "ring"}
"""the name of a pattern's algorithm in the data of protocols"""

TCP = frozenset({"eth-1g", "eth-10g", "eth-25g", "eth-40g-gloo", "eth-100g"})
"""links of the catalogue whose figures were measured with TCP"""


def transport_of(graph: Graph) -> str:
    """Returns the transport between nodes: `tcp` if all links of the network are known to use it, else `any`."""
    links = {connection.link.name for connection in graph.connections if connection.link.medium == "network"}
    return "tcp" if links and links <= TCP else "any"


def patterns_of(library: Library) -> list[str]:
    """Returns the library's patterns for an all-reduce, by the names in `patterns`.

    >>> from paceline.topologies.catalogue.libraries import LIBRARIES
    >>> patterns_of(LIBRARIES["mpi"])
    ['ring', 'recursive-doubling', 'halving-doubling', 'binomial-tree']
    """
    return [PATTERN_OF.get(name, name) for name in library.algorithms]


def available(protocols: Sequence[Protocol], patterns: Sequence[str]) -> list[str]:
    """Returns the patterns that have a protocol of their own, or one for all."""
    known = {one.algorithm for one in protocols}
    return [name for name in patterns if {"any", PROTOCOL_OF.get(name, name)} & known]


@dataclass(frozen=True, slots=True)
class Way:
    """A protocol, or several for different sizes of messages."""

    protocols: tuple[Protocol, ...]

    def of(self, nbytes: float) -> Protocol:
        """Returns the protocol of a message of `nbytes` bytes."""
        return next(one for one in self.protocols if one.from_bytes <= nbytes < one.below_bytes)

    def name(self, pattern: Pattern) -> str:
        """Returns the names of the protocols that the messages of a pattern use, for the smallest messages first."""
        sizes = sorted({size for part in pattern.parts for one in part for size in one.nbytes.tolist()})
        return "+".join(dict.fromkeys(self.of(size).name for size in sizes)) or self.protocols[0].name


def ways(protocols: Sequence[Protocol], pattern: str, transport: str, otherwise: str) -> list[Way]:
    """Returns the protocols with which a library can execute a pattern.

    Args:
        protocols: those that the members can use.
        pattern: the name of the pattern.
        transport: `tcp` or `any`.
        otherwise: the algorithm whose protocols are used if there are none for the pattern.
    """
    for algorithm in (PROTOCOL_OF.get(pattern, pattern), otherwise):
        fits = [one for one in protocols if one.algorithm in ("any", algorithm)]
        fits = [one for one in fits if one.transport == transport] or [one for one in fits if one.transport == "any"]
        fits = [_in_pattern(one, pattern) for one in fits]
        whole = [one for one in fits if one.from_bytes == 0 and one.below_bytes == float("inf")]
        by_size = [one for one in fits if one not in whole]
        if fits:
            return [Way((one,)) for one in whole] + ([Way(tuple(by_size))] if by_size else [])
    return []


def _in_pattern(one: Protocol, pattern: str) -> Protocol:
    """Returns a protocol as the messages of a pattern use it: in trees, half of the ranks of a node send at most."""
    if pattern in ONE_WAY:
        return replace(one, memory_bytes_per_s=2 * one.memory_bytes_per_s, crossing_s=0.0)
    return replace(one, step_extra_s=one.step_extra_s + one.exchange_s)


def governed(plan: CollectivePlan, way: Way, nbytes: float = math.inf) -> CollectivePlan:
    """Applies protocols to a plan: returns it with their bytes, latencies and limits.

    Args:
        plan: the plan without protocol.
        way: the protocols.
        nbytes: the n of the closed forms.
    """
    (share,) = {one.data_share(nbytes) for one in way.protocols}  # it is the same for all protocols by size
    rounds = tuple(tuple(replace(one, nbytes=one.nbytes / share) for one in part) for part in plan.pattern.parts)
    part_of = _part_of(rounds) if any(one.limit_bytes_per_s < math.inf for one in way.protocols) else {}
    path_of: Callable[..., Path] = plan.path

    def path(source: int, to: int, sent_bytes: float) -> Path:
        protocol = way.of(nbytes := sent_bytes * share)
        return _along(path_of(source, to, nbytes), protocol, part_of.get(sent_bytes, 1.0))

    def many(sources: Sequence[Rank], targets: Sequence[Rank], sent_bytes: Amounts) -> PathTable | None:
        nbytes = sent_bytes * share
        found = None if plan.many is None else plan.many(sources, targets, nbytes)
        return found and _all_along(found, way, sent_bytes, share, part_of)

    return replace(
        plan,
        pattern=Pattern(rounds),
        path=path,
        many=None if plan.many is None else many,
        reduce_s_per_byte=plan.reduce_s_per_byte * share,
        base_s=plan.base_s + max(one.base_s for one in way.protocols),
    )


def _part_of(parts: Sequence[Rounds]) -> dict[float, float]:
    """Returns for each size of messages its part of what the busiest rank sends in the same round of all parts.

    A library's limit is for all messages of a rank together, such as those of several rings.
    """
    found: dict[float, float] = {}
    for number in range(max(map(len, parts), default=0)):
        now = [rounds[number] for rounds in parts if number < len(rounds)]
        sources = np.concatenate([one.sources for one in now])
        nbytes = np.concatenate([one.nbytes for one in now])
        busiest = float(np.bincount(sources, nbytes).max(initial=0.0))
        for size in set(nbytes.tolist()) - {0.0}:
            found[size] = min(found.get(size, 1.0), size / busiest)
    return found


def _along(path: Path, protocol: Protocol, part: float) -> Path:
    step_s = protocol.step_s.get(path.medium)
    if step_s is None:
        step_s = protocol.latency_factor * path.latency_s + protocol.step_extra_s
    else:
        step_s += protocol.latency_factor * path.beyond_usual_s
    limit = min(path.limit_bytes_per_s, part * protocol.limit_bytes_per_s / protocol.bandwidth_factor)
    if path.medium == "memory":
        limit = min(limit, protocol.memory_bytes_per_s)
    elif path.medium == "network":
        step_s += protocol.crossing_s
    return replace(path, latency_s=step_s, limit_bytes_per_s=limit)


def _all_along(
    paths: PathTable, way: Way, sent_bytes: Amounts, share: float, part_of: Mapping[float, float]
) -> PathTable:
    """Returns the paths of messages with their protocols, the same as `_along` does for each.

    Args:
        paths: the paths without protocol.
        way: the protocols.
        sent_bytes: the bytes of each message.
        share: the share of them that is data.
        part_of: the part of a protocol's limit that a message of some bytes may use, if not all.
    """
    sizes, size_of = np.unique(sent_bytes, return_inverse=True)
    latency_s, limit = np.array(paths.latency_s), np.array(paths.limit_bytes_per_s)
    numbers = {id(protocol): number for number, protocol in enumerate(way.protocols)}
    own = np.array([numbers[id(way.of(size * share))] for size in sizes.tolist()], dtype=np.int64)[size_of]
    part = np.array([part_of.get(size, 1.0) for size in sizes.tolist()])[size_of]
    for number, protocol in enumerate(way.protocols):
        for place, medium in enumerate(SLOWNESS):
            rows = np.flatnonzero((own == number) & (paths.medium == place))
            step_s = protocol.step_s.get(medium)
            if step_s is None:
                latency_s[rows] = protocol.latency_factor * latency_s[rows] + protocol.step_extra_s
            else:
                latency_s[rows] = step_s + protocol.latency_factor * paths.beyond_usual_s[rows]
        rows = np.flatnonzero((own == number) & (paths.medium == SLOWNESS.index("memory")))
        limit[rows] = np.minimum(limit[rows], protocol.memory_bytes_per_s)
        latency_s[(own == number) & (paths.medium == SLOWNESS.index("network"))] += protocol.crossing_s
        rows = np.flatnonzero(own == number)
        rate = protocol.limit_bytes_per_s / protocol.bandwidth_factor
        limit[rows] = np.minimum(limit[rows], part[rows] * rate)
    return replace(paths, latency_s=latency_s, limit_bytes_per_s=limit)
