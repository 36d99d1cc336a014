"""Determines the ends of links from routes: a SimGrid platform lists links of routes, but not the ends of links.

* A link has two ends. A route enters it at one and leaves at the other. Two successive links of a route meet in a
  junction, which is a switch without a name. So each route gives equations for the ends of its links, and the equations
  of all routes are solved, the certain ones first. A link whose ends are still open gets the direction of the first
  route that uses it.
* A link that cannot have two ends, because routes require it to join more than two places, is shared by all of them: it
  becomes a switch, each of whose connections has the link's bandwidth and half of its latency. So the link is still
  part of the path, but the total bandwidth of its users is no longer limited.
* A link whose two ends are one junction is crossed by everything that crosses the junction: half of its latency is
  added to every connection of the junction, and the total bandwidth is no longer limited.
* A route that would put both ends of a link at one host contradicts the routes before it, and is left out.

The content of a SimGrid platform, and its links as connections.

Links among places are named ``link NAME``, so that they are not mistaken for hosts. Every approximation of a link is
noted.

SimGrid platforms whose routes no graph of links reproduces, as a graph with listed routes.

Every link is a connection of two vertices of its own, ``link NAME in`` and ``link NAME out``, and each route crosses
its links in turn, over connections without latency and limit between them. So what a link limits does not depend on
where it is: the flows that cross it, in all routes that list it. A SHARED link is always crossed from ``in`` to
``out``: both directions of a route share it. A SPLITDUPLEX link is crossed from ``out`` to ``in`` in its direction
DOWN, and on the way back of a route listed UP. A FATPIPE limits every single flow and is not shared. Routes of a zone
with Full routing are listed for each pair. In zones with Floyd or Dijkstra, and between zones, they are composed of
listed ones, by way of routers and gateways, with as few links as possible, as SimGrid does.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from paceline.topologies.graphs.graph import Bisection, Graph, Kind
from paceline.topologies.importing.assembly import UNLIMITED, Wire, assemble, refuse


@dataclass(frozen=True, slots=True)
class Listed:
    """A route from one named place to another over these links."""

    source: str
    to: str
    links: tuple[str, ...]
    down: tuple[bool, ...] = ()
    """whether each link is crossed in its direction DOWN, which only SPLITDUPLEX links have"""
    both_ways: bool = True
    """whether the same route leads back"""


@dataclass(slots=True)
class JoinedLinks:
    """The ends of the links, and the links and routes that were approximated."""

    ends: dict[str, tuple[str, str]] = field(default_factory=dict)
    """the two places of each link; junctions have generated names"""
    shared: list[str] = field(default_factory=list)
    """links that became switches; `touching` has the places that they join"""
    touching: dict[str, list[str]] = field(default_factory=dict)
    inside: dict[str, str] = field(default_factory=dict)
    """links whose ends are one junction, with its name"""
    left_out: int = 0
    """number of routes that contradict others"""


def joined(routes: Sequence[Listed], places: Iterable[str], hosts: Iterable[str] = ()) -> JoinedLinks:
    """Returns the ends of the links of all routes.

    Args:
        routes: the routes, in any order.
        places: the named places at which routes begin and end.
        hosts: the places at which a link cannot have both ends.

    >>> star = [Listed("a", "b", ("la", "lb")), Listed("a", "c", ("la", "lc")), Listed("b", "c", ("lb", "lc"))]
    >>> joined(star, "abc").ends
    {'la': ('a', 'la+lb'), 'lb': ('la+lb', 'b'), 'lc': ('la+lb', 'c')}
    """
    shared: dict[str, None] = {}
    named, whole = set(places), set(hosts)
    while True:
        solver = _Solver(named, whole, shared)
        wrong = solver.solve(routes)
        if wrong is None:
            return solver.answer([route for route in routes if route not in solver.left_out])
        shared[wrong] = None


class _Solver:
    """One attempt to find the ends, with the links that are known to be shared."""

    def __init__(self, named: set[str], hosts: set[str], shared: Mapping[str, None]) -> None:
        self.named = named
        self.hosts = hosts
        self.left_out: set[Listed] = set()
        self.shared = shared
        self.above: dict[str, str] = {}
        self.ends: dict[str, list[str]] = {}

    def find(self, place: str) -> str:
        while place in self.above:
            place = self.above[place]
        return place

    def merge(self, first: str, second: str) -> bool:
        """Unites two places; returns False if both have names."""
        first, second = self.find(first), self.find(second)
        if first == second:
            return True
        if self._fixed(second):
            first, second = second, first
        if self._fixed(second):
            return False
        self.above[second] = first
        return True

    def _fixed(self, place: str) -> bool:
        return place in self.named or place in self.shared

    def solve(self, routes: Sequence[Listed]) -> str | None:
        """Returns the first link that cannot have two ends, or None if all can."""
        left = sorted(routes, key=lambda route: len(route.links))
        while left:
            later = []
            for route in left:
                certain, wrong = self._try(route, guess=False)
                if wrong is not None:
                    return wrong
                if not certain:
                    later.append(route)
            if len(later) == len(left):
                _, wrong = self._try(later.pop(0), guess=True)
                if wrong is not None:
                    return wrong
            left = later
        return None

    def _try(self, route: Listed, *, guess: bool) -> tuple[bool, str | None]:
        """Follows a route, and undoes it if it would put both ends of a link at one host."""
        merged, placed = len(self.above), len(self.ends)
        certain, wrong = self._walk(route, guess=guess)
        if wrong is None and len(self.above) > merged:
            places = [tuple(map(self.find, ends)) for ends in self.ends.values()]
            if any(first == second and first in self.hosts for first, second in places):
                while len(self.above) > merged:  # both only grow, so the last entries are this route's
                    self.above.popitem()
                while len(self.ends) > placed:
                    self.ends.popitem()
                self.left_out.add(route)
                return True, None
        return certain, wrong

    def _walk(self, route: Listed, *, guess: bool) -> tuple[bool, str | None]:
        """Follows a route; returns whether all of it was certain, and the link at which it contradicts another."""
        here = route.source
        for at, link in enumerate(route.links):
            if link in self.shared:
                if not self._fixed(self.find(here)):
                    self.merge(here, link)
                here = link
                continue
            last = at == len(route.links) - 1
            target = route.to if last else None
            if link not in self.ends:
                self.ends[link] = [here, target or f"{link}+{route.links[at + 1]}"]
            ends = [self.find(end) for end in self.ends[link]]
            if self.find(here) in ends:
                side = ends.index(self.find(here))
            else:
                out = self._ways_out(ends, route, at)
                if len(out) != 1 and not guess:
                    return False, None
                side = 1 - out[0] if out else 0
            if not self.merge(self.ends[link][side], here):
                return True, link
            here = self.ends[link][1 - side]
            if target is not None and not self.merge(here, target):
                return True, link
        return True, None

    def _ways_out(self, ends: list[str], route: Listed, at: int) -> list[int]:
        """Returns the ends at which a link may be left, as far as the rest of the route determines it."""
        if at == len(route.links) - 1:
            after = [self.find(route.to)]
        else:
            following = route.links[at + 1]
            after = [following] if following in self.shared else list(map(self.find, self.ends.get(following, ())))
        return [side for side, end in enumerate(ends) if end in after]

    def answer(self, routes: Sequence[Listed]) -> JoinedLinks:
        joined = JoinedLinks(shared=list(self.shared), left_out=len(self.left_out))
        for link, ends in self.ends.items():
            start, end = map(self.find, ends)
            if start == end:
                joined.inside[link] = start
            else:
                joined.ends[link] = start, end
        for route in routes:
            here = route.source
            for link in route.links:
                if link in self.shared:
                    touching = joined.touching.setdefault(link, [])
                    if self.find(here) != link and self.find(here) not in touching:
                        touching.append(self.find(here))
                    here = link
                else:
                    ends = self.ends[link]
                    here = ends[1] if self.find(ends[0]) == self.find(here) else ends[0]
            if route.links and route.links[-1] in self.shared and route.to not in joined.touching[route.links[-1]]:
                joined.touching[route.links[-1]].append(route.to)
        return joined


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


Steps = tuple[tuple[str, bool], ...]
"""links, and whether each is crossed in its direction DOWN"""
MOST_HOSTS = 512
"""the maximum number of hosts, since each pair has a route"""


def as_listed(read: Platform, where: str, name: str) -> Graph:
    """Returns the graph of a platform without clusters, with one route each way for every pair of hosts.

    Args:
        read: the platform.
        where: the file, for messages.
        name: the name of the graph.

    Raises:
        InputError: a pair of hosts has no route, or there are too many hosts.
    """
    hosts = [place for place, kind in read.kinds.items() if kind == "host"]
    if len(hosts) > MOST_HOSTS:
        refuse(where, [f"found {len(hosts)} hosts with routes for each pair, expected at most {MOST_HOSTS}"])
    routes = _host_routes(read, hosts)
    if (composed := len(hosts) * (len(hosts) - 1) - len(routes)) > 0:
        read.notes[f"{composed} pairs of hosts without a route by way of others"] = None
        routes = _host_routes(read, hosts, by_hosts=True)
    missing = [pair for pair in itertools.permutations(hosts, 2) if pair not in routes]
    refuse(where, [f"there is no route from {source} to {to}; expected one for each pair" for source, to in missing])
    kinds: dict[str, Kind] = dict.fromkeys(hosts, "host")
    wires: dict[frozenset[str], Wire] = {}
    listed = []
    for (source, to), steps in routes.items():
        route = [source]
        for key, down in steps:
            ends = f"{key} in", f"{key} out"
            if ends[0] not in kinds:
                cable = read.cable(key)
                kinds |= dict.fromkeys(ends, "switch")
                each = cable.policy == "FATPIPE"
                wires[frozenset(ends)] = Wire(*ends, cable.bytes_per_s, cable.latency_s, each=each)
            route += reversed(ends) if down else ends
        route.append(to)
        for ends in zip(route[::2], route[1::2], strict=True):
            wires.setdefault(frozenset(ends), Wire(*ends, UNLIMITED, 0.0, name="joint", provenance="limits nothing"))
        listed.append(tuple(route))
    notes = [note for note in read.notes if note != "one-way routes as both ways"]
    assumed = [f"approximated: {', '.join(notes)}"] if notes else []
    said = "; ".join([f"SimGrid platform ({where}), its routes as listed", *assumed])
    graph = assemble(name, where, kinds, list(wires.values()), said, assumed=assumed)
    bisection = Bisection(None, "not determined, since the platform lists a route for each pair of hosts")
    return dataclasses.replace(graph, listed=tuple(listed), bisection=bisection)


def _host_routes(read: Platform, hosts: list[str], *, by_hosts: bool = False) -> dict[tuple[str, str], Steps]:
    """Returns the links between each pair of hosts: as listed, or composed of listed routes, perhaps by hosts too."""
    known: dict[tuple[str, str], Steps] = {}
    for route in read.routes:  # what is listed for a direction counts more than the way back of another route
        known.setdefault((route.source, route.to), tuple(zip(route.links, route.down, strict=True)))
    for route in read.routes:
        if route.both_ways:
            back = tuple(
                (key, not down and read.cable(key).policy in ("SPLITDUPLEX", "FULLDUPLEX"))
                for key, down in zip(route.links[::-1], route.down[::-1], strict=True)
            )
            known.setdefault((route.to, route.source), back)
    onward: dict[str, dict[str, Steps]] = {}
    for (source, to), steps in known.items():
        onward.setdefault(source, {})[to] = steps
    passing = {place for place, kind in read.kinds.items() if kind != "host" or by_hosts} | read.asked | read.forwarding
    routes = {}
    for source in hosts:
        composed = _composed(source, onward, passing)
        for to in hosts:
            direct = None if {source, to} <= read.forwarding else known.get((source, to))
            way = direct or composed.get(to)
            if way and source != to:
                routes[source, to] = way
    return routes


def _composed(source: str, onward: Mapping[str, Mapping[str, Steps]], passing: set[str]) -> dict[str, Steps]:
    """Returns the routes of fewest links from one place to all others, by way of places that pass on messages."""
    steps_to: dict[str, Steps] = {}
    turn = itertools.count()
    edge: list[tuple[int, int, str, Steps]] = [(0, next(turn), source, ())]
    while edge:
        _, _, here, steps = heapq.heappop(edge)
        if here in steps_to:
            continue
        steps_to[here] = steps
        if here == source or here in passing:
            for there, more in onward.get(here, {}).items():
                if there not in steps_to:
                    whole = (*steps, *more)
                    heapq.heappush(edge, (len(whole), next(turn), there, whole))
    return steps_to
