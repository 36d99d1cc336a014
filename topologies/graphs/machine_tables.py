"""Next hops inside machines, one table for all machines that are alike: a part of `route_tables`.

A machine is a node of a composed graph, or a host, all of whose cables lead to one switch, its gate. A path between two
machines passes their gates, and a path inside a machine does not pass other switches. So the next hops depend only on
the shape: the connections of the machine with its gate, whose vertices are numbered in the graph's order.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
