"""Links that are slower or broken for some time, as frozen values.

A fault applies to a connection of the graph as `paceline topology` draws it: to all its cables, in both directions. If
several faults apply to one connection at one time, the worst one counts. Switches of a plane act as one
(`Graph.striped`): the plane's name means all of them. A fault of one switch reduces the plane's bandwidth by its share.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.naming import near_miss
from paceline.topologies.graphs.graph import Connection, Ends, Graph


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkFaultModel:
    """A connection that has less bandwidth for some time.

    Args:
        between: the names of its ends, in any order.
        at_s: the time when the fault begins.
        lasts_s: its duration; infinite: for ever.
        rate: the remaining fraction of the bandwidth; 0: broken.
    """

    between: Ends
    at_s: float
    lasts_s: float = math.inf
    rate: float = 0.0


@dataclass(frozen=True, slots=True)
class Change:
    """New fractions of the bandwidths of connections of the striped graph, from a time on."""

    at_s: float
    rates: Mapping[Ends, float]


def changes(graph: Graph, faults: Sequence[LinkFaultModel]) -> tuple[Change, ...]:
    """Returns the changes of a graph's bandwidths by faults, in the order of time.

    Args:
        graph: the graph.
        faults: its faults, in any order.

    Raises:
        InputError: the ends of a fault are not connected; one line for each such fault.

    >>> from paceline.topologies.graphs.network_graphs import star
    >>> slow, broken = (LinkFaultModel(between=("host1", "switch"), at_s=at_s, lasts_s=4.0, rate=rate)
    ...                 for at_s, rate in ((1.0, 0.5), (3.0, 0.0)))
    >>> [(one.at_s, *one.rates.values()) for one in changes(star(hosts=3), [slow, broken])]
    [(1.0, 0.5), (3.0, 0.0), (7.0, 1.0)]
    """
    if problems := [text for fault in faults for text in mistakes(graph, fault.between)]:
        raise InputError("\n".join(problems))
    hit = [_connections(graph, fault.between) for fault in faults]
    planes = _planes(graph)
    parts: dict[Ends, list[Connection]] = {}
    for connection in graph.connections:
        parts.setdefault((planes[connection.ends[0]], planes[connection.ends[1]]), []).append(connection)
    rates_at: dict[float, dict[Ends, float]] = {}
    for ends, members in parts.items():
        its = [[fault for fault, gone in zip(faults, hit, strict=True) if member in gone] for member in members]
        before = 1.0
        moments = {
            at_s
            for faults_of_link in its
            for fault in faults_of_link
            for at_s in (fault.at_s, fault.at_s + fault.lasts_s)
        }
        for at_s in sorted(moments - {math.inf}):
            left = sum(member.count * _rate(own, at_s) for member, own in zip(members, its, strict=True))
            rate = left / sum(member.count for member in members)
            if rate != before:
                rates_at.setdefault(at_s, {})[ends] = before = rate
    return tuple(Change(at_s, rates) for at_s, rates in sorted(rates_at.items()))


def _rate(faults: Sequence[LinkFaultModel], at_s: float) -> float:
    return min((fault.rate for fault in faults if fault.at_s <= at_s < fault.at_s + fault.lasts_s), default=1.0)


def mistakes(graph: Graph, between: Ends) -> list[str]:
    """Returns why there is no such connection, with suggestions; an empty list if there is one.

    Args:
        graph: the graph.
        between: the names of the ends.

    >>> from paceline.topologies.graphs.network_graphs import star
    >>> mistakes(star(hosts=3), ("host1", "swich"))
    ["star has no vertex 'swich' (did you mean switch?)"]
    """
    names = list(dict.fromkeys([*_planes(graph), *_planes(graph).values()]))
    unknown = [name for name in between if name not in names]
    if unknown:
        return [
            f"{graph.name} has no vertex {name!r}{near_miss(name, names) or f' (such as {names[0]})'}"
            for name in unknown
        ]
    if _connections(graph, between):
        return []
    here = _members(graph, between[0])
    others = [
        other for connection in graph.connections for a, other in (connection.ends, connection.ends[::-1]) if a in here
    ]
    return [
        f"nothing joins {between[0]} and {between[1]}; {between[0]} is joined to {', '.join(dict.fromkeys(others))}"
    ]


def _planes(graph: Graph) -> dict[str, str]:
    """Returns the name of each vertex in the striped graph."""
    return {vertex.name: vertex.plane or vertex.name for vertex in graph.vertices}


def _members(graph: Graph, name: str) -> set[str]:
    """Returns the vertices that a name means."""
    return {vertex.name for vertex in graph.vertices if name in {vertex.name, vertex.plane}}


def _connections(graph: Graph, between: Ends) -> list[Connection]:
    here, there = (_members(graph, name) for name in between)
    return [
        connection
        for connection in graph.connections
        if (connection.ends[0] in here and connection.ends[1] in there)
        or (connection.ends[1] in here and connection.ends[0] in there)
    ]
