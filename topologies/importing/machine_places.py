"""The picture of an imported machine: sockets above, PCIe below them, GPUs in a row; NVLinks bend where needed.

If NVLinks join two sockets directly, the second socket is placed upside down below the first, so that these NVLinks are
short; otherwise all are placed side by side.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from paceline.topologies.graphs.graph import Kind, Place
from paceline.topologies.importing.assembly import Wire

SLOT = 1.3
"""distance between neighbours in the row of GPUs"""

BUSES = frozenset({"qpi", "xgmi", "upi"})

RISE = 1.5
"""distance between two rows of switches"""


def places(kinds: Mapping[str, Kind], wires: Sequence[Wire], sockets: int) -> dict[str, Place]:
    """Returns a place for every vertex of a machine with so many sockets."""
    below: dict[str, list[str]] = {}
    for wire in wires:
        if kinds[wire.start] != "device" and kinds[wire.end] != "host":
            below.setdefault(wire.start, []).append(wire.end)
    trees = [_tree(f"cpu{number}", below) for number in range(sockets)]
    across = any(
        kinds[wire.start] == kinds[wire.end] == "device" and _at(trees, wire.start) != _at(trees, wire.end)
        for wire in wires
    )
    facing = across and sockets == 2
    at: dict[str, Place] = {}
    left, tall = 0.0, max(_height(f"cpu{number}", below) for number in range(sockets))
    for number, tree in enumerate(trees):
        row = [name for name in tree if name not in below and not (facing and kinds[name] == "nic")]
        start = 0.0 if facing else left
        x = {name: start + SLOT * slot for slot, name in enumerate(row)}
        for name in reversed(tree):
            if name in below:
                inside = [x[child] for child in below[name] if child in x]
                x[name] = sum(inside) / len(inside) if inside else start
        side = -1.0 if facing and number == 1 else 1.0
        for name in tree:
            if name in x:
                high = RISE * (tall if name.startswith("cpu") else _height(name, below)) + (kinds[name] == "nic") * 0.75
                at[name] = (x[name], side * (high + facing))
        if facing:
            at |= _beside(kinds, below, at, tree)
        left += SLOT * max(1, len(row)) + 0.6
    for switch in (name for name in kinds if name.startswith("nvswitch")):
        gpus = [at[wire.start][0] for wire in wires if wire.end == switch]
        at[switch] = ((min(gpus) + max(gpus)) / 2, -2.2)
    return at


def _beside(
    kinds: Mapping[str, Kind], below: Mapping[str, Sequence[str]], at: Mapping[str, Place], tree: Sequence[str]
) -> dict[str, Place]:
    """Returns the places of a socket's NICs, each to the side of its parent."""
    beside: dict[str, Place] = {}
    for parent in tree:
        cards = [child for child in below.get(parent, ()) if kinds[child] == "nic"]
        for number, card in enumerate(cards, 1):
            x, y = at[parent]
            beside[card] = (x + (-SLOT if x < at[tree[0]][0] else SLOT) * number, y)
    return beside


def bowed(wires: Sequence[Wire], at: Mapping[str, Place]) -> list[Wire]:
    """Returns the same wires, in which those that would cross other vertices of their row bend away from it."""
    return [dataclasses.replace(wire, bend=_bend(at[wire.start], at[wire.end], wire.name or "", at)) for wire in wires]


def _bend(start: Place, end: Place, name: str, at: Mapping[str, Place]) -> float:
    if start[1] != end[1]:
        if name not in BUSES or abs(start[0] - end[0]) > SLOT:
            return 0.0
        beyond = max(x for x, _ in at.values()) - start[0] + SLOT / 2
        return -2 * beyond / (start[1] - end[1])  # the bus of two opposite sockets is drawn beside everything else
    low, high = sorted((start[0], end[0]))
    between = sum(low < x < high and y == start[1] for x, y in at.values())
    away = -1 if start[1] >= 1 else 1  # up from a first socket opposite the second, down otherwise
    return away * min(0.45, 0.2 + 0.08 * between) * (1 if start[0] < end[0] else -1) if between else 0.0


def _tree(root: str, below: Mapping[str, Sequence[str]]) -> list[str]:
    """Returns the root and all below it, each before its children, GPUs before NICs."""
    members = [root]
    for child in below.get(root, ()):
        members += _tree(child, below)
    return members


def _at(trees: Sequence[Sequence[str]], name: str) -> int:
    return next(number for number, tree in enumerate(trees) if name in tree)


def _height(name: str, below: Mapping[str, Sequence[str]]) -> int:
    return 1 + max(_height(child, below) for child in below[name]) if below.get(name) else 0
