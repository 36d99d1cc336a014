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
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field


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
