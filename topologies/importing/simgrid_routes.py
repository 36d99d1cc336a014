"""From routes that list links to links with ends: a SimGrid platform does not say what its links join.

Rules of this file:

* A link has two ends. A route that goes over it enters at one and leaves at the other; where it follows another link,
  the two meet in a junction, which is a switch of no name. So each route says of its links what they join, and what all
  routes say together is solved, the certain first: a link that no route has put anywhere is taken as the first route
  goes over it.
* A link that cannot have two ends, since routes want it to join more than two places, is shared by all of them: it
  becomes a switch, each of whose connections is as fast as the link and has half of its latency. So the link is still
  on the way, but what its users can take together is no longer limited.
* A link whose two ends turn out to be one junction lies on the way of all that cross it: its latency goes, halved, to
  every connection of the junction, and what crosses it together is no longer limited.
* A route after which both ends of a link would be one host contradicts those before it, and is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Listed:
    """A route: from a named place to another over these links."""

    source: str
    to: str
    links: tuple[str, ...]


@dataclass(slots=True)
class Joined:
    """What the links join, and which of them were given up."""

    ends: dict[str, tuple[str, str]] = field(default_factory=dict)
    """of each link, two places; junctions have names of ours"""
    shared: list[str] = field(default_factory=list)
    """links that became switches; in `touching`, what they join"""
    touching: dict[str, list[str]] = field(default_factory=dict)
    inside: dict[str, str] = field(default_factory=dict)
    """links whose ends are one junction, which is named"""
    left_out: int = 0
    """routes that contradict others"""


def joined(routes: Sequence[Listed], places: Iterable[str], hosts: Iterable[str] = ()) -> Joined:
    """What the links of all routes join.

    Args:
        routes: in any order.
        places: whatever routes begin and end at.
        hosts: those of them at which a link cannot have both ends.

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
    """One attempt, with the links that are known to be shared."""

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

    def merge(self, one: str, other: str) -> bool:
        """Makes two places one; False where both have names."""
        one, other = self.find(one), self.find(other)
        if one == other:
            return True
        if self._fixed(other):
            one, other = other, one
        if self._fixed(other):
            return False
        self.above[other] = one
        return True

    def _fixed(self, place: str) -> bool:
        return place in self.named or place in self.shared

    def solve(self, routes: Sequence[Listed]) -> str | None:
        """The first link that cannot have two ends, or None when all can."""
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
        """Follows a route, and takes it back where it would put both ends of a link at one host."""
        merged, placed = len(self.above), len(self.ends)
        certain, wrong = self._walk(route, guess=guess)
        if wrong is None and len(self.above) > merged:
            places = [tuple(map(self.find, ends)) for ends in self.ends.values()]
            if any(one == other and one in self.hosts for one, other in places):
                while len(self.above) > merged:  # both only ever grow, so the last ones are this route's
                    self.above.popitem()
                while len(self.ends) > placed:
                    self.ends.popitem()
                self.left_out.add(route)
                return True, None
        return certain, wrong

    def _walk(self, route: Listed, *, guess: bool) -> tuple[bool, str | None]:
        """Follows a route; whether all of it was certain, and the link at which it contradicts another."""
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
        """The sides at which a link is left, as far as what comes after it in the route tells."""
        if at == len(route.links) - 1:
            after = [self.find(route.to)]
        else:
            following = route.links[at + 1]
            after = [following] if following in self.shared else list(map(self.find, self.ends.get(following, ())))
        return [side for side, end in enumerate(ends) if end in after]

    def answer(self, routes: Sequence[Listed]) -> Joined:
        found = Joined(shared=list(self.shared), left_out=len(self.left_out))
        for link, ends in self.ends.items():
            one, other = map(self.find, ends)
            if one == other:
                found.inside[link] = one
            else:
                found.ends[link] = one, other
        for route in routes:
            here = route.source
            for link in route.links:
                if link in self.shared:
                    touching = found.touching.setdefault(link, [])
                    if self.find(here) != link and self.find(here) not in touching:
                        touching.append(self.find(here))
                    here = link
                else:
                    ends = self.ends[link]
                    here = ends[1] if self.find(ends[0]) == self.find(here) else ends[0]
            if route.links and route.links[-1] in self.shared and route.to not in found.touching[route.links[-1]]:
                found.touching[route.links[-1]].append(route.to)
        return found
