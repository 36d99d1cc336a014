"""The routes of many pairs of vertices at once, with arrays; the same routes as those of `Routes.between`.

* Machines that are alike share tables of next hops (`Machines`). Between their gates, which are switches, the
  next hops follow from which gates each switch reaches in how many hops. These are sets of bits, one set for each
  switch and number of hops, so that 2,700 gates of 6,800 switches take some megabytes.
* Rejected: a search for each pair, as in `shortest_paths`. In a fat tree of n hosts it visits about n^(2/3) vertices,
  and a ring of 100,000 ranks took minutes.
* Rejected: addresses that depend on the kind of network, as switches compute them. They would repeat the rules of
  `routing` for each network and would not hold for graphs in files.
* Where these tables do not apply (hosts with cables to several switches, direct networks, forks without hash), the
  caller searches for the pair.

Next hops inside machines, one table for all machines that are alike.

A machine is a node of a composed graph, or a host, all of whose cables lead to one switch, its gate. A path between two
machines passes their gates, and a path inside a machine does not pass other switches. So the next hops depend only on
the shape: the connections of the machine with its gate, whose vertices are numbered in the graph's order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from paceline.topologies.graphs.shortest_paths import Wiring

Numbers = NDArray[np.int64]
LARGEST = 128
"""vertices of the largest machine with a table, which has an entry for each two of them"""


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """The next hops inside machines of one shape. Vertices have local numbers; one of them is the gate.

    Args:
        size: number of vertices, with the gate.
        gate: the local number of the gate.
        count: for each vertex and each target, the number of next hops on shortest paths; 0 for the target itself.
        nexts: these next hops, in order, followed by −1.
        climbed: for each source and each target, the hops that `Wiring.climb` follows; the gate as the target stands
            for every vertex outside.
    """

    size: int
    gate: int
    count: Numbers
    nexts: Numbers
    climbed: Numbers


def shape_of(gate: int, forwards: list[bool], neighbours: list[list[int]]) -> Shape:
    """Returns the tables of a shape.

    Args:
        gate: the local number of the gate.
        forwards: whether each vertex forwards.
        neighbours: the neighbours of each vertex inside the machine or at the gate, in order.
    """
    size = len(forwards)
    hops = [_hops_to(target, forwards, neighbours) for target in range(size)]
    nexts = [
        [
            [
                other
                for other in neighbours[here]
                if own[other] == own[here] - 1 and (forwards[other] or own[other] == 0)
            ]
            for own in hops
        ]
        for here in range(size)
    ]
    widest = max(len(hops) for row in nexts for hops in row)
    padded = np.full((size, size, max(widest, 1)), -1, dtype=np.int64)
    for here, row in enumerate(nexts):
        for target, own_hops in enumerate(row):
            padded[here, target, : len(own_hops)] = own_hops
    onward = [[other for other in row if forwards[other]] for row in neighbours]
    climbed = [
        [_climb(source, target, gate, forwards, neighbours, onward) for target in range(size)] for source in range(size)
    ]
    count = np.array([[len(hops) for hops in row] for row in nexts], dtype=np.int64)
    return Shape(size, gate, count, padded, np.array(climbed, dtype=np.int64))


def _hops_to(target: int, forwards: list[bool], neighbours: list[list[int]]) -> list[int]:
    """Returns the number of hops from each vertex to a target; far more than there are vertices if there is no path."""
    far = 3 * len(forwards)
    hops = [far] * len(forwards)
    hops[target] = 0
    reached = deque([target])
    while reached:
        here = reached.popleft()
        for other in neighbours[here]:
            if hops[other] == far:
                hops[other] = hops[here] + 1
                if forwards[other]:
                    reached.append(other)
    return hops


def _climb(
    source: int, target: int, gate: int, forwards: list[bool], neighbours: list[list[int]], onward: list[list[int]]
) -> int:
    """Returns how many hops `Wiring.climb` follows; it stops at the gate, which leads to several other vertices."""
    here, came, steps = source, -1, 0
    while here != gate and (target == gate or (here != target and target not in neighbours[here])):
        back = came >= 0 and forwards[came]
        if len(onward[here]) - back != 1:
            break
        came, here = here, next(other for other in onward[here] if other != came)
        steps += 1
    return steps


@dataclass(frozen=True, slots=True, eq=False)
class Machines:
    """The machines of a graph, and the tables of their shapes.

    Args:
        machine: the machine of each vertex; −1 for vertices outside.
        local: the local number of each vertex in its machine.
        gate: the gate of each machine.
        shape: the number of each machine's shape.
        first: the index in `members` at which the vertices of each machine begin.
        members: the vertices of all machines, each with its gate, by their local numbers.
        shapes: the shapes.
    """

    machine: Numbers
    local: Numbers
    gate: Numbers
    shape: Numbers
    first: Numbers
    members: Numbers
    shapes: tuple[Shape, ...]


def find_machines(names: Numbers, forwards: NDArray[np.bool_], source: Numbers, target: Numbers) -> Machines:
    """Returns the machines of a graph.

    Args:
        names: for each vertex the number of its machine's name; −1 for vertices that belong to no machine.
        forwards: whether each vertex forwards.
        source: the vertex at which each hop begins; each connection is two hops.
        target: the vertex at which each hop ends.
    """
    count = int(names.max(initial=-1)) + 1
    onward = np.bincount(source[forwards[target]], minlength=len(names))
    out = (names[source] != names[target]) & (names[source] >= 0)
    gate = np.full(count, len(names))
    np.minimum.at(gate, names[source[out]], target[out])
    last = np.full(count, -1)
    np.maximum.at(last, names[source[out]], target[out])
    is_gate = (gate == last) & (np.bincount(names[names >= 0], minlength=count) < LARGEST)
    at = gate[is_gate]
    # `Wiring.climb` goes on at a vertex with two neighbours, so such a vertex is no gate
    is_gate[is_gate] = (names[at] < 0) & forwards[at] & (onward[at] > 2)
    number = np.where(is_gate, np.cumsum(is_gate) - 1, -1)
    machine = np.where(names >= 0, number[names], -1) if count else np.full(len(names), -1)
    return _tables(machine, gate[is_gate], forwards, source, target)


def _tables(machine: Numbers, gate: Numbers, forwards: NDArray[np.bool_], source: Numbers, target: Numbers) -> Machines:
    inside = np.flatnonzero(machine >= 0)
    owner = np.r_[machine[inside], np.arange(len(gate))]
    member = np.r_[inside, gate]
    order = np.lexsort((member, owner))
    owner, member = owner[order], member[order]
    first = np.searchsorted(owner, np.arange(len(gate) + 1))
    place = np.arange(len(member)) - first[owner]
    local = np.full(len(machine), -1, dtype=np.int64)
    at_gate = member == gate[owner]
    local[member[~at_gate]] = place[~at_gate]
    gate_place = place[at_gate]
    # a hop belongs to the machine of the end that is not its gate
    own = np.maximum(machine[source], machine[target])
    kept = own >= 0
    own, ends = own[kept], np.stack((source[kept], target[kept]))
    here, there = np.where(machine[ends] >= 0, local[ends], gate_place[own])
    order = np.lexsort((there, here, own))
    own, here, there = own[order], here[order], there[order]
    cuts = np.searchsorted(own, np.arange(len(gate) + 1)).tolist()
    pairs = np.stack((here, there), axis=1).astype(np.uint8)
    facts, begins = forwards[member].astype(np.uint8), first.tolist()
    numbers: dict[tuple[int, bytes, bytes], int] = {}
    shape = np.array(
        [
            numbers.setdefault(
                (
                    at,
                    facts[begins[number] : begins[number + 1]].tobytes(),
                    pairs[cuts[number] : cuts[number + 1]].tobytes(),
                ),
                len(numbers),
            )
            for number, at in enumerate(gate_place.tolist())
        ],
        dtype=np.int64,
    )
    return Machines(machine, local, gate, shape, first, member, tuple(_shape(*key) for key in numbers))


def _shape(gate: int, forwards: bytes, pairs: bytes) -> Shape:
    neighbours: list[list[int]] = [[] for _ in forwards]
    for here, there in np.frombuffer(pairs, dtype=np.uint8).reshape(-1, 2).tolist():
        neighbours[here].append(there)
    return shape_of(gate, [bool(forwarding) for forwarding in forwards], neighbours)


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
