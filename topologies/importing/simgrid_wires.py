"""The content of a SimGrid platform, and its links as connections.

Links among places are named ``link NAME``, so that they are not mistaken for hosts. Every approximation of a link is
noted.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from paceline.topologies.graphs.graph import Kind
from paceline.topologies.importing.assembly import Wire
from paceline.topologies.importing.simgrid_routes import JoinedLinks, Listed

PREFIX = "link "


@dataclass(frozen=True, slots=True)
class Cable:
    """A link of the platform."""

    bytes_per_s: float
    latency_s: float
    policy: str


@dataclass(slots=True)
class Platform:
    """The content that has been read so far."""

    kinds: dict[str, Kind] = field(default_factory=dict)
    wires: list[Wire] = field(default_factory=list)
    cables: dict[str, Cable] = field(default_factory=dict)
    routes: list[Listed] = field(default_factory=list)
    lines: dict[int, int] = field(default_factory=dict)
    """of each route, by its number"""
    gateways: dict[str, str] = field(default_factory=dict)
    """the vertex that represents a cluster's router"""
    asked: set[str] = field(default_factory=set)
    """the gateways of all routes between zones"""
    forwarding: set[str] = field(default_factory=set)
    """the hosts of zones whose routes are composed of the listed ones (Floyd, Dijkstra)"""
    notes: dict[str, None] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    """zones of kinds that are not read; what refers to them is not examined"""

    def cable(self, key: str) -> Cable:
        """Returns the link of a place that is named after it."""
        return self.cables[key.removeprefix(PREFIX)]


def connections(read: Platform, joined: JoinedLinks) -> list[Wire]:
    """Returns at most one connection for each pair: of clusters and of links, with the latency of junctions."""
    if joined.left_out:
        read.notes[f"left out because others contradict them: {joined.left_out} of {len(read.routes)} routes"] = None
    return _together(_delayed([*read.wires, *_cabled(read, joined)], joined, read), read)


def _cabled(read: Platform, joined: JoinedLinks) -> list[Wire]:
    """Returns the connections of links or, for shared links, the connections to them."""
    wires = []
    for key, (start, end) in joined.ends.items():
        cable = read.cable(key)
        wires.append(Wire(start, end, cable.bytes_per_s, cable.latency_s))
    for key in joined.shared:
        cable = read.cable(key)
        for end in joined.touching.get(key, []):
            wires.append(Wire(end, key, cable.bytes_per_s, cable.latency_s / 2))
        read.notes[f"{key} as a switch, unlimited inside"] = None
    policies = {read.cable(key).policy for key in (*joined.ends, *joined.shared, *joined.inside)}
    if "SHARED" in policies:
        read.notes["SHARED links as full duplex"] = None
    if "FATPIPE" in policies:
        read.notes["FATPIPE links shared by their flows"] = None
    return wires


def _delayed(wires: list[Wire], joined: JoinedLinks, read: Platform) -> list[Wire]:
    """Adds the latency of links inside junctions to the connections that meet there."""
    extra: dict[str, float] = {}
    for key, junction in joined.inside.items():
        extra[junction] = extra.get(junction, 0.0) + read.cable(key).latency_s / 2
        read.notes[f"{key} unlimited"] = None
    return [
        dataclasses.replace(wire, latency_s=wire.latency_s + extra.get(wire.start, 0.0) + extra.get(wire.end, 0.0))
        for wire in wires
    ]


def _together(wires: list[Wire], read: Platform) -> list[Wire]:
    """Returns one connection for each pair: equal ones in parallel, different ones with their total bandwidth."""
    wire_of: dict[frozenset[str], Wire] = {}
    for wire in wires:
        pair = frozenset((wire.start, wire.end))
        before = wire_of.get(pair)
        if before is None:
            wire_of[pair] = wire
        elif (before.bytes_per_s, before.latency_s) == (wire.bytes_per_s, wire.latency_s):
            wire_of[pair] = dataclasses.replace(before, count=before.count + wire.count)
        else:
            across = before.bytes_per_s * before.count + wire.bytes_per_s * wire.count
            latency_s = min(before.latency_s, wire.latency_s)
            wire_of[pair] = dataclasses.replace(before, bytes_per_s=across, latency_s=latency_s, count=1)
            read.notes["unlike links between two places as one"] = None
    return list(wire_of.values())
