"""Which pattern a collective takes: the one asked for or, as MPI's and NCCL's tuners do, the one predicted cheapest.

Rules of this file:

* Predictions are quick: the max-plus recurrence of `perform`, in which a message takes its latency and the time that
  the most loaded of its ports needs for all bytes of its round. So rounds of disjoint ranks run side by side; that
  rounds which are under way together may share is not seen. What is picked is then carried out exactly; only the choice
  rests on the prediction.
* What would be too long to carry out message by message is left out, and the choice says so.
* A library offers its own patterns, each by each of its protocols that fits, and decides by its own table where it has
  one. Plain offers all patterns without costs of their own.
* A choice is a function of kind, group and bytes, and is kept, so that a run says what it picked.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.values import Group
from paceline.simulator.collectives.message_paths import Courses
from paceline.simulator.collectives.pattern_time import foreseen, recurrence
from paceline.simulator.collectives.patterns import PATTERNS, Kind, Setting, build
from paceline.simulator.collectives.performance import Play
from paceline.simulator.collectives.protocols import PATTERN_OF, governed, patterns_of, ways
from paceline.simulator.collectives.rings import Layout
from paceline.simulator.collectives.rounds import Amounts
from paceline.simulator.flows.fabric import Fabric
from paceline.topologies.catalogue.libraries import LIBRARIES

BETWEEN_NODES = ("two-level", "shared-memory")
"""patterns that need several nodes with several ranks to differ from the others"""
MOST_MESSAGES = 1_000_000
"""a pattern of which more would be carried out is left out: it would take several seconds; provenance: ours"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What was picked for a collective, and what it was predicted to take beside the others.

    Args:
        algorithm: the pattern.
        protocol: what its messages go by; None where the library has no costs of its own.
        others_s: of every other candidate, what it was predicted to take.
        left_out: candidates that would be too long to carry out, and of how many messages.
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
        """What a run writes down of it."""
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
    """A pattern by a protocol."""

    algorithm: str
    protocol: str | None
    play: Play

    @property
    def label(self) -> str:
        return _label(self.algorithm, self.protocol)


class Tuner:
    """Picks patterns on a fabric.

    Args:
        fabric: what messages cross.
        all_reduce: the pattern of every all-reduce; other kinds then take the first of theirs. "auto" for the cheapest
            of every kind.
        library: whose protocols they go by.
        transport: what those run over: `tcp`, or `any`.
    """

    def __init__(
        self, fabric: Fabric, all_reduce: str = "auto", library: str = "plain", transport: str = "any"
    ) -> None:
        if all_reduce != "auto" and all_reduce not in PATTERNS["AllReduce"]:
            known = ", ".join(("auto", *PATTERNS["AllReduce"]))
            raise InputError(f"found the collective {all_reduce!r}; there are {known}")
        if library not in LIBRARIES:
            raise InputError(f"found the library {library!r}; there are {', '.join(LIBRARIES)}")
        self._fabric, self._all_reduce, self._library = fabric, all_reduce, LIBRARIES[library]
        self._transport = transport
        self._plays: dict[tuple[Kind, Group, float, int], Play] = {}
        self._layouts: dict[Group, Layout] = {}
        self.choices: dict[tuple[Kind, Group, float], Choice] = {}

    def play(self, kind: Kind, group: Group, nbytes: float, root: int = 0) -> Play:
        """What carries out a collective.

        Args:
            nbytes: the n of the closed forms.
            root: the place in the group that it goes to or comes from.
        """
        key = kind, group, nbytes, root
        if key not in self._plays:
            self._plays[key] = self._picked(kind, group, float(nbytes), root)
        return self._plays[key]

    @property
    def largest_message(self) -> float:
        """Bytes of the largest message in what it has picked."""
        return max((play.pattern.largest for play in self._plays.values()), default=0.0)

    def forget(self) -> None:
        """Links have changed: choices are made anew."""
        self._plays.clear()
        self._layouts.clear()

    def _picked(self, kind: Kind, group: Group, nbytes: float, root: int) -> Play:
        found = list(self._offers(kind, group, nbytes, root))
        sizes = {one.label: foreseen(one.play) for one in found} if len(found) > 1 else {}
        left_out = {label: size for label, size in sizes.items() if size > MOST_MESSAGES}
        if len(left_out) == len(found):  # the shortest has to do
            left_out.pop(min(left_out, key=left_out.__getitem__), None)
        left = [(one, self.predicted_s(one.play)) for one in found if one.label not in left_out]
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
        return best.play

    def _offers(self, kind: Kind, group: Group, nbytes: float, root: int) -> Iterator[Candidate]:
        """All that may be picked."""
        if group not in self._layouts:
            self._layouts[group] = Layout(self._fabric, group, self._nodes(group))
        layout = self._layouts[group]
        setting = Setting(len(group), nbytes, root, layout.nodes)
        names = self._candidates(kind, setting)
        for name in names:
            one = replace(setting, order=layout.order) if name == "ring" else setting
            if name == "ring-channels":
                one = replace(setting, channels=layout.channels)
                if len(layout.channels) == 1 < len(names):
                    continue  # a ring
            play = Play(build(kind, name, one), tuple(group), self._fabric.path, self._fabric.reduce_s_per_byte)
            if self._library.name == "plain" or not play.pattern.parts:
                yield Candidate(name, None, play)
                continue
            for way in ways(self._library, name, self._transport):
                yield Candidate(name, way.name(play.pattern), governed(play, way))

    def _nodes(self, group: Group) -> tuple[tuple[int, ...], ...]:
        nodes: dict[int, list[int]] = {}
        for place, rank in enumerate(group):
            nodes.setdefault(self._fabric.node_of(rank), []).append(place)
        return tuple(tuple(places) for places in nodes.values())

    def _candidates(self, kind: Kind, setting: Setting) -> list[str]:
        if self._all_reduce != "auto":
            return [self._all_reduce if kind == "AllReduce" else next(iter(PATTERNS[kind]))]
        levels = 1 < len(setting.nodes) < setting.p
        names = [name for name in PATTERNS[kind] if levels or name not in BETWEEN_NODES]
        if kind != "AllReduce" or self._library.name == "plain":
            return names
        decided = self._library.algorithm(setting.p, setting.nbytes)
        if decided is not None:
            return [PATTERN_OF.get(decided, decided)]
        own = patterns_of(self._library)
        own += ["ring-channels"] if self._library.name == "nccl" else []
        return [name for name in names if name in own]

    def predicted_s(self, play: Play) -> float:
        """The quick prediction of what a pattern takes; for ever where a link is broken."""
        if not play.pattern.parts:
            return play.base_s
        ways = play.courses
        capacity = ways.capacities(self._fabric.capacity)
        if not capacity.all():
            return math.inf
        ready = [
            recurrence(part, self._rows(play, ways, index, capacity), np.zeros(len(play.ranks)), play.reduce_s_per_byte)
            for index, part in enumerate(play.pattern.parts)
        ]
        return play.base_s + float(np.max(ready))

    def _rows(self, play: Play, ways: Courses, part: int, capacity: Amounts) -> list[tuple[Amounts, Amounts]]:
        """Of each round of a part: what its messages take on the ports, and their latencies.

        Rounds of the same number of all parts are under way together.
        """
        rows = []
        for number, (one, path) in enumerate(zip(play.pattern.parts[part], ways.of[part], strict=True)):
            of_path = np.zeros(len(ways.source))
            for other, along in zip(play.pattern.parts, ways.of, strict=True):
                if number < len(other):
                    np.add.at(of_path, along[number], other[number].nbytes)
            loads = np.bincount(ways.passes, np.repeat(of_path, ways.hops), len(ways.ports))
            busiest = ways.most(loads / capacity)[path]
            passing = np.maximum(busiest, one.nbytes / ways.limit_bytes_per_s[path])
            rows.append((passing, ways.latency_s[path]))
        return rows
