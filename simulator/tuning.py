"""Which pattern a collective takes: the one asked for or, as MPI's and NCCL's tuners do, the one predicted cheapest.

Rules of this file:

* Predictions are quick: round by round, all members together, the slowest message's latency and the most loaded port's
  bytes over its capacity. What is picked is then carried out exactly; only the choice rests on the prediction.
* A choice is a function of kind, group and bytes, and is kept, so that a run says what it picked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from paceline.algorithms.errors import InputError
from paceline.algorithms.values import Group
from paceline.simulator.fabric import Fabric
from paceline.simulator.flows import Port
from paceline.simulator.patterns import PATTERNS, Kind, Setting, build
from paceline.simulator.performance import Play
from paceline.simulator.rounds import Pattern, Round

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
        parts = [[self._round_s(play, [one], one.times) for one in part] for part in play.pattern.parts]
        if len({len(part) for part in parts}) > 1:
            return play.base_s + sum(map(sum, parts))
        together = zip(*play.pattern.parts, strict=True)
        return play.base_s + sum(self._round_s(play, list(ones), ones[0].times) for ones in together)

    def _round_s(self, play: Play, ones: list[Round], times: int) -> float:
        """Rounds that are under way together, so many times."""
        loads: Counter[Port] = Counter()
        latency_s, slowest_s, added = 0.0, 0.0, 0.0
        for one in ones:
            for nbytes, path in zip(one.nbytes.tolist(), play.along(one), strict=True):
                latency_s = max(latency_s, path.latency_s)
                slowest_s = max(slowest_s, nbytes / path.limit_bytes_per_s)
                for port in path.ports:
                    loads[port] += nbytes
            added = max(added, float(one.nbytes.max()) if one.reduces else 0.0)
        capacity = self._fabric.capacity
        busiest_s = max((_over(load, capacity[port]) for port, load in loads.items()), default=0.0)
        return times * (latency_s + max(busiest_s, slowest_s) + added * play.reduce_s_per_byte)


def _over(load: float, bytes_per_s: float) -> float:
    """Seconds that bytes take, for ever on a broken link; none take no time."""
    if not load:
        return 0.0
    return load / bytes_per_s if bytes_per_s else inf
