"""SimGrid platforms: hosts, routers, links, zones and clusters, from version 3 of their XML on.

* Zones with the routing Full, Floyd, Dijkstra, DijkstraCache, Cluster or None are read. Vivaldi and Wi-Fi have no links
  and are refused, as are elements that this file does not know.
* Hosts are hosts, routers are switches. The ends of links follow from the routes (`simgrid_routes`), since a platform
  only lists the links of each route; routes between zones go from gateway to gateway.
* SPLITDUPLEX links are like ours. A SHARED link, whose bandwidth both directions share, is read as full duplex. The
  graph's provenance lists the approximations.
* A listed route is the truth. A platform with FATPIPE links, or whose graph gives a listed route another latency or
  bandwidth, such as one with unlike routes there and back, keeps its routes as listed (`simgrid_routes`), without
  approximations; if clusters are among its parts, it is refused.
* Speeds, disks, properties, loopbacks, traces, bypasses and limiters are ignored: the rest of a scenario defines the
  speed of hosts.

The ``cluster`` element of SimGrid platforms: many equal hosts, flat, on a fat tree, a torus or a dragonfly.

The shapes are SimGrid's: ``FAT_TREE`` has "levels; children per level; parents per level; cables per level", ``TORUS``
its sides, ``DRAGONFLY`` "groups, cables; chassis, cables; routers, cables; nodes". All links have ``bw`` and ``lat``;
cables add up. Every message crosses a flat cluster's backbone once: half of its latency is added to every host's link,
and its bandwidth limits the connection with the outside. The total traffic between hosts inside is not limited. A
dragonfly's routers are named as ours, so that the routing rules for dragonflies apply to it.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from paceline.algorithms.core.naming import closest, near_miss
from paceline.topologies.graphs.graph import Graph, Kind
from paceline.topologies.graphs.routing import Routes
from paceline.topologies.importing import assembly
from paceline.topologies.importing.assembly import MOST, Element, Wire, assemble, parse, refuse
from paceline.topologies.importing.simgrid_routes import PREFIX, Cable, Listed, Platform, as_listed, connections, joined

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
        bb_lat = quantity(element, "bb_lat", assembly.seconds, problems) if given.get("bb_lat") else 0.0
        backbone = quantity(element, "bb_bw", assembly.bytes_per_s, problems), bb_lat
    read = ClusterElement(
        name=name,
        hosts=tuple(f"{prefix}{number}{suffix}" for number in _radical(given.get("radical", ""), subject, problems)),
        router=given.get("router_id") or f"{prefix}{name}_router{suffix}",
        bytes_per_s=quantity(element, "bw", assembly.bytes_per_s, problems),
        latency_s=quantity(element, "lat", assembly.seconds, problems),
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


ROUTINGS = ("Full", "Floyd", "Dijkstra", "DijkstraCache", "Cluster", "None")
POLICIES = ("SHARED", "SPLITDUPLEX", "FULLDUPLEX", "FATPIPE")
ROUTES = {"route": ("src", "dst"), "zoneRoute": ("gw_src", "gw_dst"), "ASroute": ("gw_src", "gw_dst")}
COMPARED = 1000
"""listed routes whose latency is compared with the graph's"""

PASSED_OVER = {
    "prop", "config", "trace", "trace_connect", "bypassRoute", "bypassZoneRoute", "bypassASroute", "storage_type",
    "storage", "mount", "disk", "actor", "process", "random",
}  # fmt: skip
READ = {"zone", "AS", "host", "router", "link", "cluster", "backbone", "host_link", *ROUTES}
REFUSED = {
    "peer": "a host in a Vivaldi zone, which has no links",
    "cabinet": "deprecated by SimGrid; expected a cluster",
    "include": "removed from SimGrid; expected its content",
}


def platform(text: str, where: str, name: str) -> Graph:
    """Returns the graph of a SimGrid platform.

    Args:
        text: the XML text.
        where: the file, for messages.
        name: the name of the graph.

    Raises:
        InputError: lists all errors of the text.

    >>> hosts = '<host id="a" speed="1Gf"/><host id="b" speed="1Gf"/><link id="l" bandwidth="125MBps" latency="50us"/>'
    >>> route = '<route src="a" dst="b"><link_ctn id="l"/></route>'
    >>> text = f'<platform version="4.1"><zone id="z" routing="Full">{hosts}{route}</zone></platform>'
    >>> platform(text, "text", "pair").connections[0].link.latency_s
    5e-05
    """
    root = parse(text, where)
    read = Platform()
    for element in root.walk():
        if element.tag in {"zoneRoute", "ASroute"}:
            read.asked |= {element.attributes.get(key, "") for key in ("gw_src", "gw_dst")}
    _zone(root, read)
    refuse(where, read.unread)
    _check_routes(read)
    refuse(where, read.problems)
    if not read.wires and any(read.cable(key).policy == "FATPIPE" for route in read.routes for key in route.links):
        return as_listed(read, where, name)
    kinds = dict(read.kinds)
    notes = dict(read.notes)
    joined_routes = joined(read.routes, kinds, [name for name, kind in kinds.items() if kind == "host"])
    wires = connections(read, joined_routes)
    for junction in dict.fromkeys(end for wire in wires for end in (wire.start, wire.end)):
        kinds.setdefault(junction, "switch")
    approximated = [f"approximated: {', '.join(read.notes)}"] if read.notes else []
    said = "; ".join([f"SimGrid platform ({where})", *approximated])
    graph = assemble(name, where, kinds, wires, said, assumed=approximated)
    unlike = _unlike(graph, read)
    if unlike and not read.wires:
        read.notes = notes
        return as_listed(read, where, name)
    refuse(where, unlike)
    return graph


def _unlike(graph: Graph, read: Platform) -> list[str]:
    """Returns what is wrong with listed routes that have another latency or bandwidth in the graph."""
    listed = [
        (number, route)
        for number, route in enumerate(read.routes)
        if read.kinds[route.source] == read.kinds[route.to] == "host" and route.links
    ]
    routes, problems = Routes(graph), list[str]()
    for number, route in listed[:COMPARED]:
        latency_s = sum(read.cable(key).latency_s for key in route.links)
        rate = min(read.cable(key).bytes_per_s for key in route.links)
        shortest = routes.between(route.source, route.to)
        if not (
            math.isclose(shortest.latency_s, latency_s, rel_tol=1e-6, abs_tol=1e-12)
            and math.isclose(shortest.bytes_per_s, rate, rel_tol=1e-6)
        ):
            problems.append(
                f"line {read.lines[number]}: route from {route.source} to {route.to}: found {rate / 1e6:.6g} MB/s and "
                f"{latency_s * 1e6:.6g} us, not {shortest.bytes_per_s / 1e6:.6g} MB/s and "
                f"{shortest.latency_s * 1e6:.6g} us of the only full-duplex graph that the other "
                "routes allow; expected routes that agree with clusters"
            )
    return problems


# --- elements --------------------------------------------------------------------------------------------------------


def _zone(zone: Element, read: Platform) -> None:
    """Reads the content of a zone, or of the platform itself."""
    routing = zone.attributes.get("routing", "None")
    if routing not in ROUTINGS:
        if routing.lower() == "wifi":
            name = zone.attributes.get("id")
            read.unread.append(f"line {zone.line}: zone {name}: Wi-Fi zones, which share a medium, are not read")
            return
        reason = "has no links to read" if routing == "Vivaldi" else "is unknown"
        read.problems.append(
            f"line {zone.line}: zone {zone.attributes.get('id')}: routing {routing!r} {reason}; expected "
            f"{', '.join(ROUTINGS)}"
        )
        return
    hub = next((child.attributes.get("id", "") for child in zone.children if child.tag == "router"), "")
    hub = hub or f"{zone.attributes.get('id')}_router"
    for child in zone.children:
        _element(child, read, hub)
        if child.tag == "host" and routing not in ("Full", "Cluster", "None"):
            read.forwarding.add(child.attributes.get("id", ""))
    if routing == "Cluster":
        _backbone(zone, read, hub)


def _element(child: Element, read: Platform, hub: str) -> None:
    match child.tag:
        case "zone" | "AS":
            _zone(child, read)
        case "host" | "router":
            _vertex(child.attributes.get("id", ""), "host" if child.tag == "host" else "switch", child, read)
        case "link":
            _link(child, read)
        case "route" | "zoneRoute" | "ASroute":
            _route(child, read)
        case "host_link":
            _host_link(child, read, hub)
        case "cluster":
            _cluster(child, read)
        case "backbone":
            pass  # read with its zone
        case tag if tag in REFUSED:
            read.problems.append(f"line {child.line}: <{tag}>: {REFUSED[tag]}")
        case tag if tag not in PASSED_OVER:
            near = closest(tag, READ | PASSED_OVER)
            hint = f" (did you mean <{near}>?)" if near else ""
            read.problems.append(f"line {child.line}: <{tag}> is no element of a platform{hint}")
        case tag if tag.startswith(("bypass", "trace")):
            read.notes[f"<{tag}> ignored"] = None


def _vertex(name: str, kind: Kind, element: Element, read: Platform) -> None:
    if not name or name in read.kinds:
        read.problems.append(f"line {element.line}: {element.tag}: {f'a second {name!r}' if name else 'id: missing'}")
    read.kinds[name] = kind


def _link(element: Element, read: Platform) -> None:
    name, policy = element.attributes.get("id", ""), element.attributes.get("sharing_policy", "SHARED")
    if name in read.cables:
        read.problems.append(f"line {element.line}: a second link {name!r}")
    if policy not in POLICIES:
        expected = f"found {policy!r}, expected one of {', '.join(POLICIES)}"
        read.problems.append(f"line {element.line}: link {name}: sharing_policy: {expected}")
    latency_s = quantity(element, "latency", assembly.seconds, read.problems) if "latency" in element.attributes else 0
    read.cables[name] = Cable(quantity(element, "bandwidth", assembly.bytes_per_s, read.problems), latency_s, policy)


def _route(element: Element, read: Platform) -> None:
    keys = ROUTES[element.tag]
    source, to = (element.attributes.get(key, "") for key in keys)
    subject = f"line {element.line}: {element.tag} from {source} to {to}"
    if not source or not to:
        read.problems.append(f"line {element.line}: {element.tag}: expected {keys[0]} and {keys[1]}")
        return
    if source == to:
        return  # a loopback, which does not leave the host
    if any(child.tag != "link_ctn" for child in element.children):
        read.problems.append(f"{subject}: expected <link_ctn> elements alone")
    crossed = [child.attributes for child in element.children if child.tag == "link_ctn"]
    links = tuple(given.get("id", "") for given in crossed)
    down = tuple(given.get("direction") == "DOWN" or given.get("id", "").endswith("_DOWN") for given in crossed)
    if not links:
        read.problems.append(f"{subject}: has no links")
    both_ways = element.attributes.get("symmetrical", "YES").upper() != "NO"
    if not both_ways:
        read.notes["one-way routes as both ways"] = None
    read.lines[len(read.routes)] = element.line
    read.routes.append(Listed(source, to, links, down, both_ways))


def _cluster(element: Element, read: Platform) -> None:
    given = element.attributes
    router = given.get("router_id") or f"{given.get('prefix', '')}{given.get('id', '')}_router{given.get('suffix', '')}"
    part = cluster(element, read.problems, reached=router in read.asked)
    for name, kind in part.kinds.items():
        _vertex(name, kind, element, read)
    read.wires += part.wires
    read.gateways[router] = part.gateway
    if given.get("bb_bw") and given.get("bb_sharing_policy", "SHARED") == "SHARED":
        read.notes[f"backbone of {given.get('id')} unlimited inside"] = None
    if given.get("sharing_policy", "SPLITDUPLEX") == "SHARED":
        read.notes["SHARED links as full duplex"] = None
    if part.gateway and part.gateway != router and router in read.asked:
        read.notes[f"{router} as {part.gateway}"] = None
    if given.get("limiter_link"):
        read.notes["limiters ignored"] = None


def _host_link(element: Element, read: Platform, hub: str) -> None:
    """Reads a host of a zone with Cluster routing: one link up and one down, to the zone's router."""
    host, up, down = (element.attributes.get(key, "") for key in ("id", "up", "down"))
    cables = [_cable(name, read) for name in (up, down)]
    subject = f"line {element.line}: host_link {host}"
    if host not in read.kinds or None in cables:
        missing = host if host not in read.kinds else up if cables[0] is None else down
        read.problems.append(f"{subject}: there is no {missing!r}")
    elif cables[0] != cables[1]:
        read.problems.append(f"{subject}: {up} and {down} differ; expected links as fast up as down")
    elif cables[0]:
        read.wires.append(Wire(host, hub, cables[0].bytes_per_s, cables[0].latency_s))


def _backbone(zone: Element, read: Platform, hub: str) -> None:
    """Distributes the backbone of a zone with Cluster routing to its hosts, as that of a flat cluster."""
    for child in zone.children:
        if child.tag == "backbone":
            across = quantity(child, "bandwidth", assembly.bytes_per_s, read.problems)
            half = quantity(child, "latency", assembly.seconds, read.problems) / 2
            read.wires[:] = [
                dataclasses.replace(w, bytes_per_s=min(w.bytes_per_s, across), latency_s=w.latency_s + half)
                if w.end == hub
                else w
                for w in read.wires
            ]
            read.notes[f"backbone of {zone.attributes.get('id')} unlimited, inside and out"] = None


# --- links and routes ------------------------------------------------------------------------------------------------


def _cable(name: str, read: Platform) -> Cable | None:
    """Returns a link by its name, or by the name of one of its directions."""
    return read.cables.get(name) or read.cables.get(name.removesuffix("_UP").removesuffix("_DOWN"))


def _check_routes(read: Platform) -> None:
    """Replaces clusters' routers by vertices and directions by links, and reports missing ones."""
    for number, route in enumerate(read.routes):
        ends = [read.gateways.get(end, end) for end in (route.source, route.to)]
        line = read.lines[number]
        for what, known, names in (("host or router", read.kinds, ends), ("link", read.cables, route.links)):
            for name in names:
                if name not in known and (what != "link" or _cable(name, read) is None):
                    read.problems.append(f"line {line}: route: there is no {what} {name!r}{near_miss(name, known)}")
        links = tuple(name if name in read.cables else _direction(name) for name in route.links)
        read.routes[number] = dataclasses.replace(
            route, source=ends[0], to=ends[1], links=tuple(PREFIX + name for name in links)
        )


def _direction(name: str) -> str:
    return name.removesuffix("_UP").removesuffix("_DOWN")
