"""Chooses the pattern of a collective: the requested one or, as the tuners of MPI and NCCL do, the cheapest predicted.

* Predictions use the max-plus recurrence of `pattern_time`. A message takes its latency, and the time that the most
  loaded of its ports needs for all bytes of the round. So rounds of disjoint ranks overlap, but sharing between
  different rounds is not predicted. Only the choice depends on the prediction; the chosen pattern is simulated exactly.
* Patterns that would take too long to simulate message by message are left out, and the choice lists them.
* A library offers its own patterns, each with each of its protocols that fits, and uses its own decision table if it
  has one. The library `plain` offers all patterns without costs of its own.
* A choice depends on kind, group and bytes, and is recorded, so that a run reports what was chosen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.values import Group, Rank
from paceline.simulator.collectives.collective_plan import CollectivePlan
from paceline.simulator.collectives.message_paths import MessagePaths
from paceline.simulator.collectives.pattern_time import ENOUGH, messages_needed, recurrence, settles
from paceline.simulator.collectives.patterns import OF_LIBRARIES, PATTERNS, Kind, Setting, build
from paceline.simulator.collectives.protocols import PATTERN_OF, available, governed, patterns_of, ways
from paceline.simulator.collectives.rings import Layout
from paceline.simulator.collectives.rounds import Amounts, Pattern
from paceline.simulator.flows.fabric import Fabric, Path
from paceline.simulator.flows.path_tables import ManyPaths, PathTable
from paceline.topologies.catalogue.libraries import (
    GENERATIONS,
    HIERARCHY_SEGMENT_BYTES,
    HIERARCHY_SINCE,
    LATEST,
    LIBRARIES,
    RINGS_SINCE,
    Members,
    Protocol,
)

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
        return {
            "kind": self.kind,
            "ranks": self.ranks,
            "bytes": self.nbytes,
            "algorithm": self.algorithm,
            "protocol": self.protocol,
            "predicted_s": self.predicted_s,
            "others_s": dict(self.others_s),
            "left_out": dict(self.left_out),
        }


def _label(algorithm: str, protocol: str | None) -> str:
    return algorithm if protocol is None else f"{algorithm}/{protocol}"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A pattern with a protocol."""

    algorithm: str
    protocol: str | None
    plan: CollectivePlan

    @property
    def label(self) -> str:
        return _label(self.algorithm, self.protocol)


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
        self._layouts: dict[Group, Layout] = {}
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
        found = list(self.offers(kind, group, nbytes, root))
        sizes = {one.label: self._messages(one.plan) for one in found} if len(found) > 1 else {}
        left_out = {label: size for label, size in sizes.items() if size > MOST_MESSAGES}
        if len(left_out) == len(found):  # then the smallest is used
            left_out.pop(min(left_out, key=left_out.__getitem__), None)
        left = [(one, self.predicted_s(one.plan)) for one in found if one.label not in left_out]
        best, seconds = min(left, key=lambda pair: pair[1])
        self.choices[kind, group, nbytes] = Choice(
            kind=kind,
            ranks=len(group),
            nbytes=nbytes,
            algorithm=best.algorithm,
            protocol=best.protocol,
            predicted_s=seconds,
            others_s={one.label: predicted_s for one, predicted_s in left if one is not best},
            left_out=left_out,
        )
        return best.plan

    def _messages(self, plan: CollectivePlan) -> int:
        """Returns about how many messages have to be simulated: all, if repetitions cannot be shortened."""
        few, every = messages_needed(plan), plan.pattern.messages
        long = any(one.times > ENOUGH for part in plan.pattern.parts for one in part)
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
            self._layouts[group] = Layout(self._fabric, group, self._nodes(group))
        layout = self._layouts[group]
        setting = Setting(len(group), nbytes, root, layout.nodes)
        protocols = self._protocols(kind, group, nbytes, layout)
        names = self._candidates(kind, setting, protocols)
        reduce_s_per_byte = self._fabric.reduce_cost(group.ranks, nbytes, self._library)
        for name in names:
            one = replace(setting, order=layout.order) if name == "ring" and not self._one_ring else setting
            if name == "double-tree" and self._library.name != "nccl":
                one = replace(setting, nodes=())  # chains inside nodes and a card for each channel are NCCL's
            elif self._one_ring:
                if name == "ring-channels" and len(names) > 1:
                    continue
            elif name in CHANNELS or (name == "ring" and self._by_channels(kind)):
                one = replace(setting, channels=layout.channels, chunk_bytes=0.0)
                if name == "ring-channels" and len(layout.channels) == 1 < len(names):
                    continue  # the same as `ring`
            if name == "levels":
                segment = min(nbytes, HIERARCHY_SEGMENT_BYTES)
                protocols = self._protocols(kind, group, segment, layout)
                reduce_s_per_byte = self._fabric.reduce_cost(group.ranks, segment, self._library)
            many = self._fabric.paths if isinstance(self._fabric, ManyPaths) else None
            plan = CollectivePlan(build(kind, name, one), group.ranks, self._fabric.path, reduce_s_per_byte, many=many)
            if self._library.name == "plain" or not plan.pattern.parts:
                yield Candidate(name, None, plan)
                continue
            for way in ways(protocols, name, self._transport, self._library.algorithms[0]):
                own = governed(plan, way, nbytes)
                if name == "levels":
                    own = self._in_segments(own, max(1.0, nbytes / HIERARCHY_SEGMENT_BYTES))
                yield Candidate(name, way.name(plan.pattern), self._in_sum(own) if self._library.sums_steps else own)

    def _protocols(self, kind: Kind, group: Group, nbytes: float, layout: Layout) -> tuple[Protocol, ...]:
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

        Each segment pays the latencies of the slower level, and one segment both levels one after the other.
        """
        alone = [replace(plan, pattern=Pattern((part,)), base_s=0.0) for part in plan.pattern.parts]
        seconds = [self.predicted_s(one) for one in alone]
        slow = seconds.index(max(seconds))
        latency_s = self._latency_s(alone[slow])
        quick_s = min(seconds) / segments if len(seconds) > 1 else 0.0
        return replace(plan, base_s=plan.base_s + (segments - 1) * latency_s + quick_s)

    def _latency_s(self, plan: CollectivePlan) -> float:
        """Returns the seconds of all steps of a plan without its bytes."""
        paths, none = plan.message_paths, np.zeros(len(plan.ranks))
        ready = [
            recurrence(part, [(np.zeros(len(path)), paths.latency_s[path]) for path in of], none, 0.0)
            for part, of in zip(plan.pattern.parts, paths.of, strict=True)
        ]
        return float(np.max(ready, initial=0.0))

    def _in_sum(self, plan: CollectivePlan) -> CollectivePlan:
        """Returns a plan whose steps are all paid before its bytes move, so that they do not overlap."""
        path_of: Callable[..., Path] = plan.path

        def path(source: Rank, to: Rank, sent_bytes: float) -> Path:
            return replace(path_of(source, to, sent_bytes), latency_s=0.0)

        def many(sources: Sequence[Rank], targets: Sequence[Rank], sent_bytes: Amounts) -> PathTable | None:
            found = None if plan.many is None else plan.many(sources, targets, sent_bytes)
            return found and replace(found, latency_s=np.zeros(len(found.latency_s)))

        return replace(
            plan,
            path=path,
            many=None if plan.many is None else many,
            base_s=plan.base_s + self._latency_s(plan),
        )

    def _rows(
        self, plan: CollectivePlan, paths: MessagePaths, part: int, capacity: Amounts
    ) -> list[tuple[Amounts, Amounts]]:
        """Returns for each round of a part the seconds that its messages need on the ports, and their latencies.

        Rounds with the same number in all parts are assumed to overlap.
        """
        rows = []
        for number, (one, path) in enumerate(zip(plan.pattern.parts[part], paths.of[part], strict=True)):
            of_path = np.zeros(len(paths.source))
            for other, along in zip(plan.pattern.parts, paths.of, strict=True):
                if number < len(other):
                    np.add.at(of_path, along[number], other[number].nbytes)
            busiest = paths.most(paths.by_port(of_path) / capacity)[path]
            passing = np.maximum(busiest, one.nbytes / paths.limit_bytes_per_s[path])
            rows.append((passing, paths.latency_s[path]))
        return rows
