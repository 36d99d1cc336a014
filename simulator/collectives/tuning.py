"""Chooses the pattern of a collective: the requested one or, as the tuners of MPI and NCCL do, the cheapest predicted.

* Predictions use the max-plus recurrence of `pattern_time`. A message takes its latency, and the time that the most
  loaded of its ports needs for all bytes of the round. So rounds of disjoint ranks overlap, but sharing between
  different rounds is not predicted. Only the choice depends on the prediction; the chosen pattern is simulated exactly.
* Patterns that would take too long to simulate message by message are left out, and the choice lists them.
* A library offers its own patterns, each with each of its protocols that fits, and uses its own decision table if it
  has one. The library `plain` offers all patterns without costs of its own.
* Processors whose ranks share the memory of one node use it, as the real backend does; only an all-reduce uses another
  pattern there if it is requested.
* A choice depends on kind, group and bytes, and is recorded, so that a run reports what was chosen.

Protocols of a library (such as NCCL's LL and Simple) change the latencies, bytes and limits of a pattern:

* A step takes the time that the protocol states for the slowest medium on its path, on top of the latency between the
  nodes, or a multiple of the path's latency. So every step pays the latency that a scenario or the catalogue gives.
  If only a share of the bytes sent is data, more bytes pass the ports. The protocol's bandwidth limits each message.
* A protocol for messages of all sizes is used for the whole collective. Protocols for ranges of sizes are combined:
  each message uses the one for its size.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.values import Group, Rank
from paceline.simulator.collectives.pattern_time import ENOUGH, messages_needed, recurrence, settles, steps_s
from paceline.simulator.collectives.patterns import (
    OF_LIBRARIES,
    PATTERNS,
    Amounts,
    Kind,
    Pattern,
    Rounds,
    Setting,
    build,
)
from paceline.simulator.collectives.plans import CollectivePlan, MessagePaths
from paceline.simulator.collectives.rings import RingLayout
from paceline.simulator.collectives.shared_slots import SlotPaths, in_memory
from paceline.simulator.flows.fabric import Fabric
from paceline.simulator.flows.path_tables import SLOWNESS, Numbers, PathTable
from paceline.topologies.catalogue.libraries import (
    GENERATIONS,
    HIERARCHY_SEGMENT_BYTES,
    HIERARCHY_SINCE,
    LATEST,
    LIBRARIES,
    RINGS_SINCE,
    Library,
    Members,
    Protocol,
)
from paceline.topologies.graphs.graph import Graph

PATTERN_OF = {"reduce-broadcast": "binomial-tree", "tree": "binomial-tree"}
"""patterns by the libraries' names, where these differ from the names in `patterns`"""
ONE_WAY = frozenset({"binomial-tree", "double-tree", "scatter-gather", "shared-memory", "levels"})
"""patterns whose ranks do not send and receive at once"""
PROTOCOL_OF = {"double-tree": "tree", "ring-channels": "ring"}
"""the name of a pattern's algorithm in the data of protocols"""

TCP = frozenset(
    {"eth-1g", "eth-10g", "eth-25g", "eth-40g-gloo", "eth-100g", "veth", "aws-ipip-50g", "aws-ipip-50g-both-ways"}
)
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
    known = {protocol.algorithm for protocol in protocols}
    return [name for name in patterns if {"any", PROTOCOL_OF.get(name, name)} & known]


@dataclass(frozen=True, slots=True)
class Way:
    """A protocol, or several for different sizes of messages."""

    protocols: tuple[Protocol, ...]

    def of(self, nbytes: float) -> Protocol:
        """Returns the protocol of a message of `nbytes` bytes."""
        return next(protocol for protocol in self.protocols if protocol.from_bytes <= nbytes < protocol.below_bytes)

    def name(self, pattern: Pattern) -> str:
        """Returns the names of the protocols that the messages of a pattern use, for the smallest messages first."""
        sizes = sorted({size for part in pattern.parts for round_ in part for size in round_.nbytes.tolist()})
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
        fits = [protocol for protocol in protocols if protocol.algorithm in ("any", algorithm)]
        fits = [fit for fit in fits if fit.transport == transport] or [fit for fit in fits if fit.transport == "any"]
        fits = [_in_pattern(fit, pattern) for fit in fits]
        whole = [fit for fit in fits if fit.from_bytes == 0 and fit.below_bytes == float("inf")]
        by_size = [fit for fit in fits if fit not in whole]
        if fits:
            return [Way((protocol,)) for protocol in whole] + ([Way(tuple(by_size))] if by_size else [])
    return []


def _in_pattern(protocol: Protocol, pattern: str) -> Protocol:
    """Returns a protocol as the messages of a pattern use it."""
    if pattern in ONE_WAY:
        return replace(protocol, crossing_s=0.0)
    return replace(protocol, step_extra_s=protocol.step_extra_s + protocol.exchange_s)


def governed(
    plan: CollectivePlan, way: Way, nbytes: float = math.inf, nodes: Sequence[Sequence[int]] = ()
) -> CollectivePlan:
    """Applies protocols to a plan: returns it with their bytes, latencies and limits.

    Args:
        plan: the plan without protocol.
        way: the protocols.
        nbytes: the n of the closed forms.
        nodes: the places of each node; without them, all ranks of a node are taken to send at once.
    """
    (share,) = {protocol.data_share(nbytes) for protocol in way.protocols}  # it is the same for all protocols by size
    rounds = tuple(
        tuple(replace(round_, nbytes=round_.nbytes / share) for round_ in part) for part in plan.pattern.parts
    )
    part_of = _part_of(rounds) if any(protocol.limit_bytes_per_s < math.inf for protocol in way.protocols) else {}

    shared = nodes and any(protocol.memory_bytes_per_s < math.inf for protocol in way.protocols)
    beside = MessagesBeside(rounds, plan.ranks, nodes) if shared else None

    def find(sources: Numbers, targets: Numbers, sent_bytes: Amounts) -> PathTable:
        free = np.ones(len(sources)) if beside is None else beside.ranks_for_each(sources, targets, sent_bytes)
        return _along(plan.find(sources, targets, sent_bytes * share), way, sent_bytes, share, part_of, free)

    return replace(
        plan,
        pattern=Pattern(rounds),
        find=find,
        reduce_s_per_byte=plan.reduce_s_per_byte * share,
        base_s=plan.base_s + max(protocol.base_s for protocol in way.protocols),
    )


def _part_of(parts: Sequence[Rounds]) -> dict[float, float]:
    """Returns for each size of messages its part of what the busiest rank sends in the same round of all parts.

    A library's limit is for all messages of a rank together, such as those of several rings.
    """
    part_of: dict[float, float] = {}
    for number in range(max(map(len, parts), default=0)):
        now = [rounds[number] for rounds in parts if number < len(rounds)]
        sources = np.concatenate([round_.sources for round_ in now])
        nbytes = np.concatenate([round_.nbytes for round_ in now])
        busiest = float(np.bincount(sources, nbytes).max(initial=0.0))
        for size in set(nbytes.tolist()) - {0.0}:
            part_of[size] = min(part_of.get(size, 1.0), size / busiest)
    return part_of


class MessagesBeside:
    """Counts the messages that share the memory of a node in a round of a pattern.

    Args:
        parts: the rounds of each part; those with the same number overlap.
        ranks: the rank at each place.
        nodes: the places of each node.
    """

    def __init__(self, parts: Sequence[Rounds], ranks: Sequence[Rank], nodes: Sequence[Sequence[int]]) -> None:
        self._ranks, self._last = np.array(ranks, dtype=np.int64), 1 + max(map(int, ranks))
        node_of = np.empty(len(ranks), dtype=np.int64)
        for number, places in enumerate(nodes):
            node_of[list(places)] = number
        size_of, keys, free = np.array([len(places) for places in nodes], dtype=float), [], []
        self._sizes = np.unique(np.concatenate([round_.nbytes for rounds in parts for round_ in rounds]))
        for number in range(max(map(len, parts))):
            now = [rounds[number] for rounds in parts if number < len(rounds)]
            sources, targets = (
                np.concatenate([getattr(round_, of) for round_ in now]) for of in ("sources", "targets")
            )
            inside = node_of[sources] == node_of[targets]
            node, nbytes = node_of[sources[inside]], np.concatenate([round_.nbytes for round_ in now])[inside]
            keys.append(self._keys(self._ranks[sources[inside]], self._ranks[targets[inside]], nbytes))
            free.append((size_of / np.maximum(1, np.bincount(node, minlength=len(nodes))))[node])
        self._known, of_known = np.unique(np.concatenate(keys), return_inverse=True)
        self._free = np.full(len(self._known), math.inf)
        np.minimum.at(self._free, of_known, np.concatenate(free))

    def _keys(self, sources: Numbers, targets: Numbers, nbytes: Amounts) -> Numbers:
        return (sources * self._last + targets) * len(self._sizes) + np.searchsorted(self._sizes, nbytes)

    def ranks_for_each(self, sources: Numbers, targets: Numbers, nbytes: Amounts) -> Amounts:
        """Returns how many ranks a node has for each message in it, in the fullest round of a message; 1 between nodes.

        Args:
            sources: the sender of each message.
            targets: the receiver of each message.
            nbytes: the bytes of each message.
        """
        keys = self._keys(np.asarray(sources, dtype=np.int64), np.asarray(targets, dtype=np.int64), nbytes)
        if not len(self._known):
            return np.ones(len(keys))
        at = np.minimum(np.searchsorted(self._known, keys), len(self._known) - 1)
        return np.where(self._known[at] == keys, self._free[at], 1.0)


def _along(
    paths: PathTable, way: Way, sent_bytes: Amounts, share: float, part_of: Mapping[float, float], free: Amounts
) -> PathTable:
    """Returns the paths of messages with their protocols, of whose bytes `share` is data.

    A message may use `part_of` the limit of its protocol, and passes its node's memory `free` times as fast as with all
    ranks of the node sending."""
    sizes, size_of = np.unique(sent_bytes, return_inverse=True)
    latency_s, limit = np.array(paths.latency_s), np.array(paths.limit_bytes_per_s)
    numbers = {id(protocol): number for number, protocol in enumerate(way.protocols)}
    own = np.array([numbers[id(way.of(size * share))] for size in sizes.tolist()], dtype=np.int64)[size_of]
    part = np.array([part_of.get(size, 1.0) for size in sizes.tolist()])[size_of]
    for number, protocol in enumerate(way.protocols):
        of_medium = [np.flatnonzero((own == number) & (paths.medium == place)) for place in range(len(SLOWNESS))]
        for medium, rows in zip(SLOWNESS, of_medium, strict=True):
            step_s = protocol.step_s.get(medium)
            if step_s is None:
                latency_s[rows] = protocol.latency_factor * latency_s[rows] + protocol.step_extra_s
            else:
                latency_s[rows] = step_s + protocol.latency_factor * paths.beyond_usual_s[rows]
        memory, network = (of_medium[SLOWNESS.index(medium)] for medium in ("memory", "network"))
        limit[memory] = np.minimum(limit[memory], free[memory] * protocol.memory_bytes_per_s)
        latency_s[network] += protocol.crossing_s
        rows = np.flatnonzero(own == number)
        limit[rows] = np.minimum(limit[rows], part[rows] * protocol.limit_bytes_per_s / protocol.bandwidth_factor)
    return replace(paths, latency_s=latency_s, limit_bytes_per_s=limit)


BETWEEN_NODES = ("two-level", "shared-memory")
"""patterns that need several nodes with several ranks to differ from the others"""
CHANNELS = ("ring-channels", "double-tree")
"""patterns that use several network cards and the links of several cycles at once"""
MOST_MESSAGES = 1_000_000
"""patterns with more messages to simulate are left out, because they would take many seconds; our choice"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The chosen pattern of a collective, with the predictions for all candidates.

    Args:
        kind: the operation.
        ranks: number of ranks.
        nbytes: the n of the closed forms.
        algorithm: the pattern.
        protocol: the protocol of its messages; None if the library has no costs of its own.
        predicted_s: the prediction for the chosen pattern, seconds.
        others_s: the prediction for every other candidate, seconds.
        left_out: the number of messages of each candidate that has too many to simulate.
    """

    kind: Kind
    ranks: int
    nbytes: float
    algorithm: str
    protocol: str | None
    predicted_s: float
    others_s: Mapping[str, float]
    left_out: Mapping[str, int]

    def record(self) -> dict[str, Any]:
        """Returns the entry in the record of a run."""
        return {{"nbytes": "bytes"}.get(name, name): value for name, value in asdict(self).items()}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A pattern with a protocol."""

    algorithm: str
    protocol: str | None
    plan: CollectivePlan

    @property
    def label(self) -> str:
        return self.algorithm if self.protocol is None else f"{self.algorithm}/{self.protocol}"


class Tuner:
    """Chooses patterns on a fabric.

    Args:
        fabric: the network's ports and paths.
        all_reduce: the pattern of every all-reduce; other kinds then use the first in their list. With "auto", the
            cheapest pattern of every kind is chosen.
        library: the library whose protocols are used.
        transport: the transport of the protocols: `tcp` or `any`.
        version: (major, minor) of the library; the latest by default.

    Raises:
        InputError: the pattern or the library is unknown.
    """

    def __init__(
        self,
        fabric: Fabric,
        all_reduce: str = "auto",
        library: str = "plain",
        transport: str = "any",
        version: tuple[int, int] = LATEST,
    ) -> None:
        if all_reduce != "auto" and all_reduce not in PATTERNS["AllReduce"]:
            known = ", ".join(("auto", *PATTERNS["AllReduce"]))
            raise InputError(f"found the all-reduce algorithm {all_reduce!r}, expected one of {known}")
        if library not in LIBRARIES:
            raise InputError(f"found the library {library!r}, expected one of {', '.join(LIBRARIES)}")
        self._fabric, self._all_reduce, self._library = fabric, all_reduce, LIBRARIES[library]
        self._transport, self._version = transport, version
        self._plans: dict[tuple[Kind, Group, float, int], CollectivePlan] = {}
        self._layouts: dict[Group, RingLayout] = {}
        self.choices: dict[tuple[Kind, Group, float], Choice] = {}

    def plan(self, kind: Kind, group: Group, nbytes: float, root: int = 0) -> CollectivePlan:
        """Returns the plan of a collective.

        Args:
            kind: the operation.
            group: its ranks.
            nbytes: the n of the closed forms.
            root: the place of the root in the group.
        """
        key = kind, group, nbytes, root
        if key not in self._plans:
            self._plans[key] = self._picked(kind, group, float(nbytes), root)
        return self._plans[key]

    def copy_choice(self, kind: Kind, known: Group, group: Group, nbytes: float) -> None:
        """Notes the choice for a group whose paths are like those of another one.

        Args:
            kind: the operation.
            known: the group whose plan has been chosen.
            group: the other group.
            nbytes: the n of the closed forms.
        """
        if (choice := self.choices.get((kind, known, float(nbytes)))) is not None:
            self.choices[kind, group, float(nbytes)] = choice

    @property
    def largest_message(self) -> float:
        """The bytes of the largest message of all plans so far."""
        return max((plan.pattern.largest for plan in self._plans.values()), default=0.0)

    def forget(self) -> None:
        """Discards all choices, because links have changed."""
        self._plans.clear()
        self._layouts.clear()

    def _picked(self, kind: Kind, group: Group, nbytes: float, root: int) -> CollectivePlan:
        offers = list(self.offers(kind, group, nbytes, root))
        sizes = {offer.label: self._messages(offer.plan) for offer in offers} if len(offers) > 1 else {}
        left_out = {label: size for label, size in sizes.items() if size > MOST_MESSAGES}
        if len(left_out) == len(offers):  # then the smallest is used
            left_out.pop(min(left_out, key=left_out.__getitem__), None)
        left = [(offer, self.predicted_s(offer.plan)) for offer in offers if offer.label not in left_out]
        best, seconds = min(left, key=lambda pair: pair[1])
        self.choices[kind, group, nbytes] = Choice(
            kind=kind,
            ranks=len(group),
            nbytes=nbytes,
            algorithm=best.algorithm,
            protocol=best.protocol,
            predicted_s=seconds,
            others_s={offer.label: predicted_s for offer, predicted_s in left if offer is not best},
            left_out=left_out,
        )
        return best.plan

    def _messages(self, plan: CollectivePlan) -> int:
        """Returns about how many messages have to be simulated: all, if repetitions cannot be shortened."""
        few, every = messages_needed(plan), plan.pattern.messages
        long = any(round_.times > ENOUGH for part in plan.pattern.parts for round_ in part)
        if not long or few == 0 or not few <= MOST_MESSAGES < every:
            return few
        paths = plan.message_paths
        capacity = paths.capacities(self._fabric.mean_capacity)
        if not capacity.all():
            return few
        parts = enumerate(plan.pattern.parts)
        rows = ((part, self._rows(plan, paths, index, capacity)) for index, part in parts)
        return few if all(settles(part, own, plan.reduce_s_per_byte) for part, own in rows) else every

    def offers(self, kind: Kind, group: Group, nbytes: float, root: int = 0) -> Iterator[Candidate]:
        """Yields all candidates of a collective; arguments as for `plan`."""
        if group not in self._layouts:
            self._layouts[group] = RingLayout(self._fabric, group, self._nodes(group))
        layout = self._layouts[group]
        setting = Setting(len(group), nbytes, root, layout.nodes)
        protocols = self._protocols(kind, group, nbytes, layout)
        seats = self._fabric.seats_in_memory(group.ranks) if self._library.name == "plain" else ()
        in_node = bool(seats) and len(layout.nodes) == 1 and (kind != "AllReduce" or self._all_reduce == "auto")
        names = ["shared-memory"] if in_node else self._candidates(kind, setting, protocols)
        reduce_s_per_byte = self._fabric.reduce_cost(group.ranks, nbytes, self._library)
        for name in names:
            adjusted = replace(setting, order=layout.order) if name == "ring" and not self._one_ring else setting
            if name == "double-tree" and self._library.name != "nccl":
                adjusted = replace(setting, nodes=())  # chains inside nodes and a card for each channel are NCCL's
            elif self._one_ring:
                if name == "ring-channels" and len(names) > 1:
                    continue
            elif name in CHANNELS or (name == "ring" and self._by_channels(kind)):
                adjusted = replace(setting, channels=layout.channels, chunk_bytes=0.0)
                if name == "ring-channels" and len(layout.channels) == 1 < len(names):
                    continue  # the same as `ring`
            if name == "levels":
                segment = min(nbytes, HIERARCHY_SEGMENT_BYTES)
                protocols = self._protocols(kind, group, segment, layout)
                reduce_s_per_byte = self._fabric.reduce_cost(group.ranks, segment, self._library)
            by_slots = name == "shared-memory" and bool(seats)
            plan = CollectivePlan(
                in_memory(kind, adjusted, seats) if by_slots else build(kind, name, adjusted),
                group.ranks,
                SlotPaths(self._fabric, group.ranks, kind, nbytes).find if by_slots else self._fabric.paths,
                reduce_s_per_byte,
                broken=lambda: self._fabric.broken,
            )
            if self._library.name == "plain" or not plan.pattern.parts:
                yield Candidate(name, None, plan)
                continue
            for way in ways(protocols, name, self._transport, self._library.algorithms[0]):
                own = governed(plan, way, nbytes, layout.places)
                if name == "levels":
                    own = self._in_segments(own, max(1.0, nbytes / HIERARCHY_SEGMENT_BYTES))
                elif name == "ring" and self._library.segment_bytes:
                    own = self._added_in_flight(own, self._library.segment_bytes)
                yield Candidate(name, way.name(plan.pattern), self._in_sum(own) if self._library.sums_steps else own)

    def _protocols(self, kind: Kind, group: Group, nbytes: float, layout: RingLayout) -> tuple[Protocol, ...]:
        """Returns the protocols that the members of a group can use."""
        members = Members(ranks=len(group), nodes=len(layout.places))
        if self._library.adapt is not None:
            known = self._fabric.architectures(group.ranks)
            nvlink, switched = layout.nvlinks
            alike = len({len(places) for places in layout.places}) == 1
            members = replace(
                members,
                architecture=min(known, key=lambda name: GENERATIONS.index(name) if name in GENERATIONS else -1),
                nvlink=nvlink,
                switched=switched and alike,
                memory_bytes_per_s=self._fabric.memory_bytes_per_s(group.ranks),
            )
        if self._library.name == "nccl" and kind != "AllReduce":
            nbytes = 0.0  # other rings have no plateau
        return self._library.protocols_of(members, nbytes, self._version)

    @property
    def _one_ring(self) -> bool:
        """Whether the library has one ring, in the order of the ranks."""
        return self._library.name == "nccl" and self._version < RINGS_SINCE

    def _by_channels(self, kind: Kind) -> bool:
        """Returns whether `ring` means several rings, as in NCCL; of auto, those are a candidate of their own."""
        return self._library.name == "nccl" and (kind != "AllReduce" or self._all_reduce != "auto")

    def _nodes(self, group: Group) -> tuple[tuple[int, ...], ...]:
        nodes: dict[int, list[int]] = {}
        for place, rank in enumerate(group):
            nodes.setdefault(self._fabric.node_of(rank), []).append(place)
        return tuple(tuple(places) for places in nodes.values())

    def _candidates(self, kind: Kind, setting: Setting, protocols: Sequence[Protocol]) -> list[str]:
        if self._all_reduce != "auto":
            return [self._all_reduce if kind == "AllReduce" else next(iter(PATTERNS[kind]))]
        levels = 1 < len(setting.nodes) < setting.p
        names = [name for name in PATTERNS[kind] if levels or name not in BETWEEN_NODES]
        if kind != "AllReduce" or self._library.name == "plain":
            return names
        if levels and self._library.name == "mpi" and self._version >= HIERARCHY_SINCE:
            return ["levels"]
        decided = self._library.algorithm(setting.p, setting.nbytes, self._version)
        if decided is not None:
            return [PATTERN_OF.get(decided, decided)]
        own = patterns_of(self._library)
        own += ["ring-channels"] if self._library.name == "nccl" else []
        return available(protocols, [name for name in (*names, *OF_LIBRARIES) if name in own])

    def predicted_s(self, plan: CollectivePlan) -> float:
        """Returns the predicted seconds of a plan; infinity if a link is broken."""
        if not plan.pattern.parts:
            return plan.base_s
        paths = plan.message_paths
        capacity = paths.capacities(self._fabric.mean_capacity)
        if not capacity.all():
            return math.inf
        ready = [
            recurrence(
                part, self._rows(plan, paths, index, capacity), np.zeros(len(plan.ranks)), plan.reduce_s_per_byte
            )
            for index, part in enumerate(plan.pattern.parts)
        ]
        return plan.base_s + float(np.max(ready))

    def _in_segments(self, plan: CollectivePlan, segments: float) -> CollectivePlan:
        """Returns a plan of two levels whose messages are divided into segments.

        Each segment pays the latencies of the level that takes longer for all of them; one passes both levels, one
        after the other.
        """
        alone = [replace(plan, pattern=Pattern((part,)), base_s=0.0) for part in plan.pattern.parts]
        whole = [self.predicted_s(part) for part in alone]
        *quicker, slowest = sorted(
            seconds + (segments - 1) * steps_s(part) for seconds, part in zip(whole, alone, strict=True)
        )
        return replace(plan, base_s=plan.base_s + slowest - max(whole) + sum(quicker) / segments)

    def _added_in_flight(self, plan: CollectivePlan, segment_bytes: float) -> CollectivePlan:
        """Returns the plan of a ring whose members add a segment while the next one arrives.

        The slowest hop sets the pace of the ring. So of adding remains what takes longer than this hop needs for the
        same bytes, and the last segment; a message consists of two segments at least."""
        paths, adding = plan.message_paths, plan.reduce_s_per_byte
        with np.errstate(divide="ignore"):  # a broken link takes for ever
            needed = paths.most(1.0 / paths.capacities(self._fabric.mean_capacity))
        moving = float(np.max(np.maximum(needed, 1.0 / paths.limit_bytes_per_s)))
        each = [
            float(round_.nbytes.max()) * round_.times
            for part in plan.pattern.parts
            for round_ in part
            if round_.reduces
        ]
        last = min(segment_bytes, plan.pattern.largest / 2) / sum(each) if sum(each) else 0.0  # of all that is added
        return replace(plan, reduce_s_per_byte=max(0.0, adding - moving) + last * min(adding, moving))

    def _in_sum(self, plan: CollectivePlan) -> CollectivePlan:
        """Returns a plan whose steps are all paid before its bytes move, so that they do not overlap."""

        def find(sources: Numbers, targets: Numbers, sent_bytes: Amounts) -> PathTable:
            paths = plan.find(sources, targets, sent_bytes)
            return replace(paths, latency_s=np.zeros(len(paths.latency_s)))

        return replace(plan, find=find, base_s=steps_s(plan))

    def _rows(
        self, plan: CollectivePlan, paths: MessagePaths, part: int, capacity: Amounts
    ) -> list[tuple[Amounts, Amounts]]:
        """Returns for each round of a part the seconds that its messages need on the ports, and their latencies.

        Rounds with the same number in all parts are assumed to overlap.
        """
        rows = []
        for number, (round_, path) in enumerate(zip(plan.pattern.parts[part], paths.of[part], strict=True)):
            of_path = np.zeros(len(paths.source))
            for other, along in zip(plan.pattern.parts, paths.of, strict=True):
                if number < len(other):
                    np.add.at(of_path, along[number], other[number].nbytes)
            busiest = paths.most(paths.by_port(of_path) / capacity)[path]
            passing = np.maximum(busiest, round_.nbytes / paths.limit_bytes_per_s[path])
            rows.append((passing, paths.latency_s[path]))
        return rows
