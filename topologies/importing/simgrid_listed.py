"""SimGrid platforms whose routes no graph of links reproduces, as a graph with listed routes.

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
from collections.abc import Mapping

from paceline.topologies.graphs.graph import Bisection, Graph, Kind
from paceline.topologies.importing.assembly import UNLIMITED, Wire, assemble, refuse
from paceline.topologies.importing.simgrid_wires import Platform

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
