"""The ``cluster`` element of SimGrid platforms: many equal hosts, flat, on a fat tree, a torus or a dragonfly.

The shapes are SimGrid's: ``FAT_TREE`` has "levels; children per level; parents per level; cables per level", ``TORUS``
its sides, ``DRAGONFLY`` "groups, cables; chassis, cables; routers, cables; nodes". All links have ``bw`` and ``lat``;
cables add up. Every message crosses a flat cluster's backbone once: half of its latency is added to every host's link,
and its bandwidth limits the connection with the outside. The total traffic between hosts inside is not limited. A
dragonfly's routers are named as ours, so that the routing rules for dragonflies apply to it.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from paceline.topologies.graphs.graph import Kind
from paceline.topologies.importing import quantities
from paceline.topologies.importing.assembly import MOST, Wire
from paceline.topologies.importing.elements import Element

RADICAL = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


@dataclass(frozen=True, slots=True)
class ClusterPart:
    """The vertices and connections of a cluster, and the vertex to which the outside is connected."""

    kinds: dict[str, Kind] = field(default_factory=dict)
    wires: list[Wire] = field(default_factory=list)
    gateway: str = ""


@dataclass(frozen=True, slots=True)
class ClusterElement:
    """The attributes of a cluster."""

    name: str
    hosts: tuple[str, ...]
    router: str
    bytes_per_s: float
    latency_s: float
    backbone: tuple[float, float] | None
    """its bandwidth and latency"""
    shape: str
    numbers: tuple[tuple[int, ...], ...]
    reached: bool
    """whether routes from outside end at it"""

    def wire(self, start: str, end: str, count: int = 1) -> Wire:
        """Returns a connection with the bandwidth and latency of the cluster's links."""
        return Wire(start, end, self.bytes_per_s, self.latency_s, count)


def cluster(element: Element, problems: list[str], reached: bool) -> ClusterPart:
    """Returns the part of the platform that a ``cluster`` element defines; adds its errors to the problems.

    Args:
        element: the cluster.
        problems: receives the errors.
        reached: whether routes from outside end at its router.
    """
    read = _read(element, problems, reached)
    if read is None:
        return ClusterPart()
    try:
        return SHAPES[read.shape](read)
    except ValueError as error:
        problems.append(f"line {element.line}: cluster {read.name}: {error}")
        return ClusterPart()


def quantity(element: Element, key: str, parse: Callable[[object], float], problems: list[str]) -> float:
    """Parses a quantity among the attributes; adds errors to the problems.

    Args:
        element: the element.
        key: the name of the attribute.
        parse: converts its text; raises `ValueError`.
        problems: receives the errors.
    """
    subject = f"line {element.line}: {element.tag} {element.attributes.get('id', '')}".rstrip()
    if key not in element.attributes:
        problems.append(f"{subject}: {key}: missing")
        return math.nan
    try:
        return parse(element.attributes[key])
    except ValueError as error:
        problems.append(f"{subject}: {key}: {error}")
        return math.nan


def _read(element: Element, problems: list[str], reached: bool) -> ClusterElement | None:
    given, before = element.attributes, len(problems)
    name, prefix, suffix = given.get("id", ""), given.get("prefix", ""), given.get("suffix", "")
    subject = f"line {element.line}: cluster {name}"
    shape = given.get("topology", "FLAT")
    if shape not in SHAPES:
        problems.append(f"{subject}: topology: found {shape!r}, expected {', '.join(SHAPES)}")
    numbers = [part for part in given.get("topo_parameters", "").split(";") if part]
    if not all(re.fullmatch(r"\s*\d{1,6}\s*(,\s*\d{1,6}\s*)*", part) for part in numbers):
        problems.append(f"{subject}: topo_parameters: found {given['topo_parameters']!r}, expected whole numbers")
        numbers = []
    backbone = None
    if given.get("bb_bw"):
        bb_lat = quantity(element, "bb_lat", quantities.seconds, problems) if given.get("bb_lat") else 0.0
        backbone = quantity(element, "bb_bw", quantities.bytes_per_s, problems), bb_lat
    read = ClusterElement(
        name=name,
        hosts=tuple(f"{prefix}{number}{suffix}" for number in _radical(given.get("radical", ""), subject, problems)),
        router=given.get("router_id") or f"{prefix}{name}_router{suffix}",
        bytes_per_s=quantity(element, "bw", quantities.bytes_per_s, problems),
        latency_s=quantity(element, "lat", quantities.seconds, problems),
        backbone=backbone,
        shape=shape,
        numbers=tuple(tuple(map(int, part.split(","))) for part in numbers),
        reached=reached,
    )
    return read if len(problems) == before else None


def _radical(text: str, subject: str, problems: list[str]) -> list[int]:
    """Returns the numbers of a radical, such as 0-3,7.

    >>> _radical("0-3,7", "", [])
    [0, 1, 2, 3, 7]
    """
    numbers: list[int] = []
    for part in text.split(","):
        match = RADICAL.fullmatch(part.strip())
        if match is None:
            problems.append(f"{subject}: radical: found {text!r}, expected numbers such as 0-15 or 0-3,7")
            return []
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or len(numbers) + last - first >= MOST:
            problems.append(
                f"{subject}: radical: found {part.strip()!r}, expected rising numbers, at most {MOST} in all"
            )
            return []
        numbers += range(first, last + 1)
    return numbers


def _counted(read: ClusterElement, expected: int, words: str) -> None:
    if len(read.hosts) != expected:
        raise ValueError(f"radical: found {len(read.hosts)} hosts, expected the {expected} of {words}")


def _hosts(read: ClusterElement) -> dict[str, Kind]:
    return dict.fromkeys(read.hosts, "host")


def _flat(read: ClusterElement) -> ClusterPart:
    bb_rate, bb_lat = read.backbone or (math.inf, 0.0)
    center = read.name if read.backbone and read.reached else read.router
    kinds = _hosts(read)
    kinds[center] = "switch"
    wires = [Wire(host, center, min(read.bytes_per_s, bb_rate), read.latency_s + bb_lat / 2) for host in read.hosts]
    if center != read.router:
        kinds[read.router] = "switch"
        wires.append(Wire(center, read.router, bb_rate, bb_lat / 2))
    return ClusterPart(kinds, wires, read.router)


def _fat_tree(read: ClusterElement) -> ClusterPart:
    """Builds a fat tree by level: a switch differs from its children in one digit, the child's number below it."""
    numbers = read.numbers
    levels = numbers[0][0] if numbers and len(numbers[0]) == 1 else 0
    if len(numbers) != 4 or not levels or any(len(part) != levels or 0 in part for part in numbers[1:]):
        raise ValueError(
            "topo_parameters: expected levels; children; parents; cables of each level, as in 2;4,4;1,2;1,2"
        )
    _, children, parents, cables = numbers
    _counted(read, math.prod(children), "topo_parameters, the product of the children")
    if sum(math.prod(parents[: at + 1]) * math.prod(children[at + 1 :]) for at in range(levels)) > MOST:
        raise ValueError(f"topo_parameters: expected at most {MOST} switches")
    kinds: dict[str, Kind] = _hosts(read)
    wires: list[Wire] = []
    below = dict(zip(itertools.product(*map(range, reversed(children))), read.hosts, strict=True))
    top = ""
    for level in range(levels):
        # a label: the digits of the children above this level, then those of the parents up to it
        above = [range(count) for count in reversed(children[level + 1 :])]
        labels = list(itertools.product(*above, *map(range, reversed(parents[: level + 1]))))
        names = {label: f"{read.name}.switch{level + 1}.{number}" for number, label in enumerate(labels)}
        kinds |= dict.fromkeys(names.values(), "switch")
        at = levels - level - 1
        for label, name in below.items():
            for parent in range(parents[level]):
                wires.append(read.wire(name, names[(*label[:at], parent, *label[at + 1 :])], cables[level]))
        below, top = names, next(iter(names.values()))
    return ClusterPart(kinds, wires, top)


def _torus(read: ClusterElement) -> ClusterPart:
    sides = read.numbers[0] if len(read.numbers) == 1 else ()
    if not sides or 0 in sides:
        raise ValueError("topo_parameters: expected the sides, as in 3,2,2")
    _counted(read, math.prod(sides), "topo_parameters, the product of the sides")
    spots = [spot[::-1] for spot in itertools.product(*map(range, reversed(sides)))]  # the first side varies fastest
    name = dict(zip(spots, read.hosts, strict=True))
    wires = []
    for spot in spots:
        for axis, side in enumerate(sides):
            after = (*spot[:axis], (spot[axis] + 1) % side, *spot[axis + 1 :])
            if side > 2 or (side == 2 and spot[axis] == 0):
                wires.append(read.wire(name[spot], name[after]))
    return ClusterPart(_hosts(read), wires, read.hosts[0])


def _dragonfly(read: ClusterElement) -> ClusterPart:
    if [len(part) for part in read.numbers] != [2, 2, 2, 1] or any(0 in part for part in read.numbers):
        raise ValueError(
            "topo_parameters: expected groups, cables; chassis, cables; routers, cables; nodes, as in 3,4;4,3;5,1;2"
        )
    (groups, blue), (chassis, black), (blades, green), (nodes,) = read.numbers
    _counted(read, groups * chassis * blades * nodes, "topo_parameters")
    if groups - 1 > blades * chassis:
        raise ValueError(f"topo_parameters: found {groups} groups, expected at most one more than routers in a group")
    grid = list(itertools.product(range(groups), range(chassis), range(blades)))
    kinds = _hosts(read)
    kinds.update((_router(*spot), "switch") for spot in grid)
    wires = [
        read.wire(host, _router(*spot))
        for number, spot in enumerate(grid)
        for host in read.hosts[number * nodes : (number + 1) * nodes]
    ]
    for group, chassis_number, blade in grid:
        wires += [
            read.wire(_router(group, chassis_number, blade), _router(group, chassis_number, b), green)
            for b in range(blade + 1, blades)
        ]
        wires += [
            read.wire(_router(group, chassis_number, blade), _router(group, c, blade), black)
            for c in range(chassis_number + 1, chassis)
        ]
    for group, other in itertools.combinations(range(groups), 2):  # router n of a group is joined to group n
        place, place_of_other = divmod(other % (blades * chassis), blades), divmod(group, blades)
        wires.append(read.wire(_router(group, *place), _router(other, *place_of_other), blue))
    return ClusterPart(kinds, wires, _router(0, 0, 0))


def _router(group: int, chassis: int, blade: int) -> str:
    return f"router{group}.{chassis}.{blade}"


SHAPES: Mapping[str, Callable[[ClusterElement], ClusterPart]] = {
    "FLAT": _flat, "FAT_TREE": _fat_tree, "TORUS": _torus, "DRAGONFLY": _dragonfly,
}  # fmt: skip
