"""Which pattern a collective takes: the one asked for or, as MPI's and NCCL's tuners do, the one predicted cheapest.

Rules of this file:

* Predictions are quick: the max-plus recurrence of `perform`, in which a message takes its latency and the time that
  the most loaded of its ports needs for all bytes of its round. So rounds of disjoint ranks run side by side; that
  rounds which are under way together may share is not seen. What is picked is then carried out exactly; only the choice
  rests on the prediction.
* A choice is a function of kind, group and bytes, and is kept, so that a run says what it picked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from paceline.algorithms.errors import InputError
from paceline.algorithms.values import Group
from paceline.simulator.courses import Courses
from paceline.simulator.fabric import Fabric
from paceline.simulator.patterns import PATTERNS, Kind, Setting, build
from paceline.simulator.perform import recurrence
from paceline.simulator.performance import Play
from paceline.simulator.rounds import Amounts, Pattern

BETWEEN_NODES = ("two-level", "shared-memory")
"""patterns that need several nodes with several ranks to differ from the others"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What was picked for a collective, and what it was predicted to take beside the others."""

    kind: Kind
    ranks: int
    nbytes: float
    name: str
    predicted_s: Mapping[str, float]

    def __str__(self) -> str:
        others = ", ".join(f"{name} {seconds * 1e3:.3g} ms" for name, seconds in self.predicted_s.items())
        return f"{self.kind} of {self.nbytes:.0f} bytes among {self.ranks} ranks: {self.name} ({others})"


class Tuner:
    """Picks patterns on a fabric.

    Args:
        fabric: what messages cross.
        all_reduce: the pattern of every all-reduce; other kinds then take the first of theirs. "auto" for the cheapest
            of every kind.
    """

    def __init__(self, fabric: Fabric, all_reduce: str = "auto") -> None:
        if all_reduce != "auto" and all_reduce not in PATTERNS["AllReduce"]:
            known = ", ".join(("auto", *PATTERNS["AllReduce"]))
            raise InputError(f"found the collective {all_reduce!r}; there are {known}")
        self._fabric, self._all_reduce = fabric, all_reduce
        self._plays: dict[tuple[Kind, Group, float, int], Play] = {}
        self.choices: dict[tuple[Kind, Group, float], Choice] = {}

    def play(self, kind: Kind, group: Group, nbytes: float, root: int = 0) -> Play:
        """What carries out a collective.

        Args:
            nbytes: the n of the closed forms.
            root: the place in the group that it goes to or comes from.
        """
        key = kind, group, nbytes, root
        if key not in self._plays:
            setting = Setting(len(group), float(nbytes), root, self._nodes(group))
            names = self._candidates(kind, setting)
            plays = {name: self._play(build(kind, name, setting), group) for name in names}
            predicted_s = {name: self.predicted_s(play) for name, play in plays.items()}
            best = min(predicted_s, key=predicted_s.__getitem__)
            self._plays[key] = plays[best]
            self.choices[kind, group, nbytes] = Choice(
                kind=kind, ranks=len(group), nbytes=nbytes, name=best, predicted_s=predicted_s
            )
        return self._plays[key]

    def forget(self) -> None:
        """Links have changed: choices are made anew."""
        self._plays.clear()

    def _play(self, pattern: Pattern, group: Group) -> Play:
        return Play(pattern, tuple(group), self._fabric.path, self._fabric.reduce_s_per_byte)

    def _nodes(self, group: Group) -> tuple[tuple[int, ...], ...]:
        nodes: dict[int, list[int]] = {}
        for place, rank in enumerate(group):
            nodes.setdefault(self._fabric.node_of(rank), []).append(place)
        return tuple(tuple(places) for places in nodes.values())

    def _candidates(self, kind: Kind, setting: Setting) -> list[str]:
        if self._all_reduce != "auto":
            return [self._all_reduce if kind == "AllReduce" else next(iter(PATTERNS[kind]))]
        levels = 1 < len(setting.nodes) < setting.p
        return [name for name in PATTERNS[kind] if levels or name not in BETWEEN_NODES]

    def predicted_s(self, play: Play) -> float:
        """The quick prediction of what a pattern takes."""
        if not play.pattern.parts:
            return play.base_s
        ways = play.courses
        cost = 1.0 / ways.capacities(self._fabric.capacity)
        ready = [
            recurrence(part, self._rows(play, ways, index, cost), np.zeros(len(play.ranks)), play.reduce_s_per_byte)
            for index, part in enumerate(play.pattern.parts)
        ]
        return play.base_s + float(np.max(ready))

    def _rows(self, play: Play, ways: Courses, part: int, cost: Amounts) -> list[tuple[Amounts, Amounts]]:
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
            passing = np.maximum(ways.most(loads * cost)[path], one.nbytes / ways.limit_bytes_per_s[path])
            rows.append((passing, ways.latency_s[path]))
        return rows
