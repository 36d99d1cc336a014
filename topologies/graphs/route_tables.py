"""The routes of many pairs of vertices at once, with arrays; the same routes as those of `Routes.between`.

* Machines that are alike share tables of next hops (`machine_tables`). Between their gates, which are switches, the
  next hops follow from which gates each switch reaches in how many hops. These are sets of bits, one set for each
  switch and number of hops, so that 2,700 gates of 6,800 switches take some megabytes.
* Rejected: a search for each pair, as in `shortest_paths`. In a fat tree of n hosts it visits about n^(2/3) vertices,
  and a ring of 100,000 ranks took minutes.
* Rejected: addresses that depend on the kind of network, as switches compute them. They would repeat the rules of
  `routing` for each network and would not hold for graphs in files.
* Where these tables do not apply (hosts with cables to several switches, direct networks, forks without hash), the
  caller searches for the pair.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from paceline.topologies.graphs.machine_tables import Machines, Numbers, find_machines
from paceline.topologies.graphs.shortest_paths import Wiring

MOST_BYTES = 256 * 2**20
"""the largest tables between gates; larger ones, as of a torus, would save no time"""
AT_ONCE = 2**22
"""numbers in temporary arrays"""
Hash = Callable[[int, int, int], int]
"""the hash of a fork, given the source, the target and the number of hops so far"""


class RouteTables:
    """Finds the routes of many pairs in one graph.

    Args:
        wiring: the graph, without broken links.
        machines: the name of the machine of each vertex; None for vertices that belong to no machine.
        pick: the hash that chooses among the next hops at forks; None: routes with forks are not found.
    """

    def __init__(self, wiring: Wiring, machines: list[str | None], pick: Hash | None) -> None:
        self._pick = pick
        self._forwards = np.array(wiring.forwards, dtype=bool)
        ends = np.array(list(wiring.connection), dtype=np.int64).reshape(-1, 2)
        self._source, self._target = ends[:, 0], ends[:, 1]
        numbers: dict[str, int] = {}
        names = [-1 if name is None else numbers.setdefault(name, len(numbers)) for name in machines]
        self._machines = find_machines(np.array(names, dtype=np.int64), self._forwards, self._source, self._target)
        keys = self._source * len(names) + self._target
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]

    def hops(self, vertices: Numbers, following: Numbers) -> Numbers:
        """Returns the number of the hop from each vertex to the following one: its place in `Wiring.connection`."""
        indices: Numbers = self._order[np.searchsorted(self._keys, vertices * len(self._forwards) + following)]
        return indices

    @property
    def machines(self) -> Machines:
        """The machines of the graph."""
        return self._machines

    def find(self, sources: Numbers, targets: Numbers) -> tuple[Numbers, Numbers]:
        """Returns the routes of pairs of different vertices.

        Args:
            sources: the first vertex of each pair.
            targets: the last vertex of each pair.

        Returns:
            One row of vertices for each pair, and the number of hops of each pair; 0 for routes that are not found.
        """
        walk = _Walk(self, sources, targets)
        return walk.vertices[:, : int(walk.hops.max(initial=0)) + 1], walk.hops

    @cached_property
    def between_gates(self) -> SwitchCore:
        """The switches between machines."""
        return SwitchCore(
            self._forwards & (self._machines.machine < 0), self._source, self._target, self._machines.gate
        )

    @cached_property
    def flat(self) -> tuple[Numbers, Numbers, Numbers, Numbers, Numbers]:
        """The tables of all shapes, one after the other: begin and size of each, counts, next hops, climbed hops."""
        shapes = self._machines.shapes
        size = np.array([shape.size for shape in shapes], dtype=np.int64)
        widest = max((shape.nexts.shape[2] for shape in shapes), default=1)
        nexts = [np.pad(shape.nexts, ((0, 0), (0, 0), (0, widest - shape.nexts.shape[2]))) for shape in shapes]
        return (
            np.cumsum(size**2) - size**2,
            size,
            np.concatenate([shape.count.ravel() for shape in shapes]),
            np.concatenate([table.reshape(-1, widest) for table in nexts]),
            np.concatenate([shape.climbed.ravel() for shape in shapes]),
        )

    def picked(self, sources: Numbers, targets: Numbers, hop: Numbers, count: Numbers) -> Numbers:
        """Returns which of `count` next hops each pair takes; −1 where the routes fork and there is no hash."""
        choices = np.zeros(len(count), dtype=np.int64)
        forks = np.flatnonzero(count > 1)
        if self._pick is None:
            choices[forks] = -1
            return choices
        rows = zip(*(column[forks].tolist() for column in (sources, targets, hop, count)), strict=True)
        choices[forks] = [self._pick(source, target, at) % ways for source, target, at, ways in rows]
        return choices


class SwitchCore:
    """The switches between machines, and which gates each of them reaches in how many hops.

    Args:
        inside: whether each vertex is such a switch.
        source: the vertex at which each hop begins.
        target: the vertex at which each hop ends.
        gates: the gates of all machines.
    """

    def __init__(self, inside: NDArray[np.bool_], source: Numbers, target: Numbers, gates: Numbers) -> None:
        self.vertices = np.flatnonzero(inside)
        self.number = np.cumsum(inside) - 1
        kept = inside[source] & inside[target]
        here, there = self.number[source[kept]], self.number[target[kept]]
        order = np.lexsort((there, here))
        here, there = here[order], there[order]
        self._here, self._there = here, there
        degree = np.bincount(here, minlength=len(self.vertices))
        self.neighbours = np.full((len(self.vertices), max(1, int(degree.max(initial=0)))), -1, dtype=np.int64)
        self.neighbours[here, np.arange(len(here)) - (np.cumsum(degree) - degree)[here]] = there
        self._gates = np.unique(gates)
        self.column = np.zeros(len(inside), dtype=np.int64)
        self.column[self._gates] = np.arange(len(self._gates))

    @cached_property
    def reached(self) -> NDArray[np.uint64] | None:
        """For each number of hops and each switch, the gates that it reaches, as bits; None if it would be too large.

        The last number of hops is the largest distance to a gate.
        """
        own = self.number[self._gates]
        level = np.zeros((len(self.vertices), -(-len(self._gates) // 64)), dtype=np.uint64)
        column = np.arange(len(self._gates))
        level[own, column // 64] = np.uint64(1) << (column % 64).astype(np.uint64)
        begins = np.flatnonzero(np.r_[True, np.diff(self._here) != 0][: len(self._here)])
        levels = [level]
        step = max(1, AT_ONCE // max(1, len(self._here)))
        while (len(levels) + 1) * level.nbytes <= MOST_BYTES:
            later = level.copy()
            for low in range(0, level.shape[1] if len(begins) else 0, step):
                words = slice(low, low + step)
                near = np.bitwise_or.reduceat(level[self._there, words], begins, axis=0)
                later[self._here[begins], words] |= near
            if (later == level).all():
                return np.stack(levels)
            levels.append(level := later)
        return None


class _Walk:
    """The routes of many pairs, hop by hop: to the gate of the source, to that of the target, to the target."""

    def __init__(self, tables: RouteTables, sources: Numbers, targets: Numbers) -> None:
        self._tables, self._sources, self._targets = tables, sources, targets
        places = tables.machines
        self.vertices = np.zeros((len(sources), 16), dtype=np.int64)
        self.vertices[:, 0] = sources
        self.hops = np.zeros(len(sources), dtype=np.int64)
        self._climbed = np.zeros(len(sources), dtype=np.int64)
        machine, other_machine = places.machine[sources], places.machine[targets]
        known = np.flatnonzero((machine >= 0) & (other_machine >= 0))
        if not len(known):
            return
        inside = known[machine[known] == other_machine[known]]
        apart = known[machine[known] != other_machine[known]]
        self._note_climbed(inside, machine[inside], places.local[sources[inside]], places.local[targets[inside]])
        inside = self._within(inside, machine[inside], places.local[sources[inside]], places.local[targets[inside]])
        gate = _gate_of(places)
        self._note_climbed(apart, machine[apart], places.local[sources[apart]], gate[machine[apart]])
        apart = self._within(apart, machine[apart], places.local[sources[apart]], gate[machine[apart]])
        apart = self._across(apart, places.gate[machine[apart]], places.gate[other_machine[apart]])
        apart = self._within(apart, other_machine[apart], gate[other_machine[apart]], places.local[targets[apart]])
        lost = np.ones(len(sources), dtype=bool)
        lost[inside] = lost[apart] = False
        self.hops[lost] = 0

    def _note_climbed(self, rows: Numbers, machine: Numbers, here: Numbers, target: Numbers) -> None:
        begins, size, _, _, climbed = self._tables.flat
        shape = self._tables.machines.shape[machine]
        self._climbed[rows] = climbed[begins[shape] + here * size[shape] + target]

    def _within(self, rows: Numbers, machine: Numbers, here: Numbers, target: Numbers) -> Numbers:
        """Walks inside machines, between local numbers; returns the rows that arrive."""
        begins, size, counts, nexts, _ = self._tables.flat
        places, arrived = self._tables.machines, [rows[here == target]]
        going = np.flatnonzero(here != target)
        rows, machine, here, target = rows[going], machine[going], here[going], target[going]
        while len(rows):
            shape = places.shape[machine]
            entry = begins[shape] + here * size[shape] + target
            choice = self._picked(rows, counts[entry])
            here = nexts[entry, choice]
            on = np.flatnonzero((choice >= 0) & (counts[entry] > 0))
            rows, machine, here, target = rows[on], machine[on], here[on], target[on]
            self._append(rows, places.members[places.first[machine] + here])
            arrived.append(rows[here == target])
            on = np.flatnonzero(here != target)
            rows, machine, here, target = rows[on], machine[on], here[on], target[on]
        return np.concatenate(arrived)

    def _across(self, rows: Numbers, gates: Numbers, last: Numbers) -> Numbers:
        """Walks from gate to gate; returns the rows that arrive."""
        going = gates != last
        if not going.any():
            return rows
        arrived, core = [rows[~going]], self._tables.between_gates
        rows, here, column = rows[going], core.number[gates[going]], core.column[last[going]]
        reached = core.reached
        if reached is None:
            lost: Numbers = arrived[0]
            return lost
        word, bit = column // 64, (column % 64).astype(np.uint64)
        left = np.full(len(rows), len(reached))
        for level in range(len(reached) - 1, -1, -1):
            left[(reached[level, here, word] >> bit) & np.uint64(1) == 1] = level
        step = max(1, AT_ONCE // core.neighbours.shape[1])
        for low in range(0, len(rows), step):
            some = slice(low, low + step)
            connected = left[some] < len(reached)
            own, at, words, to, hops = (column[some][connected] for column in (rows, here, word, column, left))
            arrived.append(self._to_gates(core, reached, own, at, words, (to % 64).astype(np.uint64), hops))
        return np.concatenate(arrived)

    def _to_gates(
        self,
        core: SwitchCore,
        reached: NDArray[np.uint64],
        rows: Numbers,
        here: Numbers,
        word: Numbers,
        bit: NDArray[np.uint64],
        left: Numbers,
    ) -> Numbers:
        arrived = []
        while len(rows):
            near = core.neighbours[here]
            towards = (reached[left[:, None] - 1, near, word[:, None]] >> bit[:, None]) & np.uint64(1) == 1
            towards &= near >= 0
            choice = self._picked(rows, towards.sum(axis=1))
            position = np.argmax(np.cumsum(towards, axis=1) == choice[:, None] + 1, axis=1)
            here, left = near[np.arange(len(rows)), position], left - 1
            on = choice >= 0
            rows, here, word, bit, left = rows[on], here[on], word[on], bit[on], left[on]
            self._append(rows, core.vertices[here])
            arrived.append(rows[left == 0])
            on = left > 0
            rows, here, word, bit, left = rows[on], here[on], word[on], bit[on], left[on]
        return np.concatenate(arrived) if arrived else rows

    def _picked(self, rows: Numbers, count: Numbers) -> Numbers:
        return self._tables.picked(
            self._sources[rows], self._targets[rows], self.hops[rows] - self._climbed[rows], count
        )

    def _append(self, rows: Numbers, vertices: Numbers) -> None:
        if not len(rows):
            return
        self.hops[rows] += 1
        if (longest := int(self.hops[rows].max())) >= self.vertices.shape[1]:
            more = np.zeros((len(self.vertices), longest), dtype=np.int64)
            self.vertices = np.concatenate((self.vertices, more), axis=1)
        self.vertices[rows, self.hops[rows]] = vertices


def _gate_of(places: Machines) -> Numbers:
    """Returns the local number of the gate of each machine."""
    gates: Numbers = np.array([shape.gate for shape in places.shapes], dtype=np.int64)[places.shape]
    return gates
