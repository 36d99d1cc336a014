"""SimGrid platforms: hosts, routers, links, zones and clusters, from version 3 of their XML on.

* Zones with the routing Full, Floyd, Dijkstra, DijkstraCache, Cluster or None are read. Vivaldi and Wi-Fi have no links
  and are refused, as are elements that this file does not know.
* Hosts are hosts, routers are switches. The ends of links follow from the routes (`simgrid_routes`), since a platform
  only lists the links of each route; routes between zones go from gateway to gateway.
* SPLITDUPLEX links are like ours. A SHARED link, whose bandwidth both directions share, is read as full duplex. The
  graph's provenance lists the approximations.
* A listed route is the truth. A platform with FATPIPE links, or whose graph gives a listed route another latency or
  bandwidth, such as one with unlike routes there and back, keeps its routes as listed (`simgrid_listed`), without
  approximations; if clusters are among its parts, it is refused.
* Speeds, disks, properties, loopbacks, traces, bypasses and limiters are ignored: the rest of a scenario defines the
  speed of hosts.
"""

from __future__ import annotations

import dataclasses
import math

from paceline.algorithms.core.naming import closest, near_miss
from paceline.topologies.graphs.graph import Graph, Kind
from paceline.topologies.graphs.routing import Routes
from paceline.topologies.importing import quantities
from paceline.topologies.importing.assembly import Wire, assemble, refuse
from paceline.topologies.importing.elements import Element, parse
from paceline.topologies.importing.simgrid_clusters import cluster, quantity
from paceline.topologies.importing.simgrid_listed import as_listed
from paceline.topologies.importing.simgrid_routes import Listed, joined
from paceline.topologies.importing.simgrid_wires import PREFIX, Cable, Platform, connections

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
    latency_s = (
        quantity(element, "latency", quantities.seconds, read.problems) if "latency" in element.attributes else 0
    )
    read.cables[name] = Cable(quantity(element, "bandwidth", quantities.bytes_per_s, read.problems), latency_s, policy)


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
            across = quantity(child, "bandwidth", quantities.bytes_per_s, read.problems)
            half = quantity(child, "latency", quantities.seconds, read.problems) / 2
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
