"""Checks the network engine against reference finish times and measures its speed.

    python benchmarks/network.py --cases DIR      # finish times compared with those of the case files, to 1e-9
    python benchmarks/network.py                  # wall time on random flows, with SimGrid's where it is installed
    python benchmarks/network.py --case star --case dragonfly
    python benchmarks/network.py --json

A case file names links (bandwidth, latency, policy `shared` or `fatpipe`), routes, flows, and the finish times of a
reference solver. A bus is a shared link on the routes of both directions. A fatpipe limits each flow separately.

The random flows go between random hosts, have 1 to 50 MB, and start at random times in an interval that keeps a host's
link of 10 GB/s busy for 30 % of it. Graphs and routes are the product's; each pair draws one of its shortest paths. The
timing includes the run but not the creation of the flows. The first run, which compiles, is timed
separately. SimGrid is optional (Debian's python3-simgrid); if it is installed, its finish times are compared too. By
default it treats ends within 1 ns as simultaneous, so both differ by about as much (by 3e-15 if its precision is set to
1e-13). On the largest case it takes minutes.

Exits with 1 if a case differs by more than 1e-9.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from common.harness import Answer, alone, run_command, say, table
from network_engine.transfers import Pipe, Transfer, transfer_all
from paceline.algorithms.core.errors import InputError
from paceline.simulator.flows.fabric import GraphFabric
from paceline.topologies.catalogue.device import DeviceModel
from paceline.topologies.cluster import ClusterModel, Node
from paceline.topologies.graphs.graph import Graph
from paceline.topologies.graphs.links import LinkModel
from paceline.topologies.graphs.network_graphs import dragonfly, fat_tree, star

ALLOWED = 1e-9
BUSY = 0.3
"""offered load relative to the capacity of all hosts. At 0.6, links that lie on the random paths of several flows never
drain: on 1,024 hosts our engine then takes 10.5 s, and SimGrid had not finished after eight minutes
"""
POLICIES = {"shared": False, "fatpipe": True}
"""by policy of a link: whether each flow has the full bandwidth"""


Platform = tuple[dict[str, Pipe], list[Transfer]]


# --- correct ---------------------------------------------------------------------------------------------------------


def read_case(path: Path) -> tuple[str, Platform, list[float]]:
    """Reads the name, links, flows and finish times of a case file."""
    case = json.loads(path.read_text(encoding="utf-8"))
    pipes = {}
    for link in case["links"]:
        if link["policy"] not in POLICIES:
            known = ", ".join(POLICIES)
            raise InputError(
                f"{path.name}: link {link['name']}: found the policy {link['policy']!r}; there are {known}"
            )
        per_flow = POLICIES[link["policy"]]
        pipes[link["name"]] = Pipe(bytes_per_s=link["bandwidth_Bps"], latency_s=link["latency_s"], per_flow=per_flow)
    routes = {(route["src"], route["dst"]): tuple(route["links"]) for route in case["routes"]}
    transfers = []
    for flow in case["flows"]:
        ends = flow["src"], flow["dst"]
        if ends not in routes:
            raise InputError(f"{path.name}: flow {flow['id']}: found no route from {ends[0]} to {ends[1]}")
        transfers.append(Transfer(start_s=flow["start_s"], nbytes=flow["bytes"], route=routes[ends]))
    return case["name"], (pipes, transfers), case["finish_s"]


def largest_difference(found_s: list[float], expected_s: list[float]) -> float:
    """Returns the largest relative difference of finish times."""
    pairs = zip(found_s, expected_s, strict=True)
    return max((abs(end_s - due) / abs(due) if due else abs(end_s) for end_s, due in pairs), default=0.0)


def cases_of(folder: Path) -> Answer:
    """Checks every case file of a folder."""
    paths = sorted(folder.glob("*.json"))
    if not paths:
        raise InputError(f"{folder}: found no case file, expected *.json")
    rows: list[dict[str, Any]] = []
    for path in paths:
        name, platform, expected_s = read_case(path)
        found_s = transfer_all(*platform, compiled=True)[0]
        rows.append({"name": name, "difference": largest_difference(found_s, expected_s)})
    largest = max(row["difference"] for row in rows)
    shown = table("Finish times", rows, {"case": "name", "largest relative difference": "difference:.2e"})
    summary = f"largest of all: {largest:.2e}; allowed: {ALLOWED:.0e}"
    return Answer({"largest_relative_difference": largest, "cases": rows}, [shown, summary], largest <= ALLOWED)


# --- fast ------------------------------------------------------------------------------------------------------------


def random_flows(graph: Graph, flows: int) -> Platform:
    """Returns random flows between the hosts of a graph, each on one of the shortest paths, and the links."""
    device, hosts = DeviceModel(name="device", overhead_s=0.0, per_sample_s=1.0), graph.of_kind("host")
    nodes = tuple(Node(name=host, device=device, seats=(host,), host=host, intra_node_link=LINK) for host in hosts)
    fabric = GraphFabric(ClusterModel(nodes=nodes, graph=graph), routing="ecmp")
    rng = np.random.default_rng(np.random.SeedSequence((1, len(hosts), flows)))
    sources = rng.integers(len(hosts), size=flows)
    targets = (sources + 1 + rng.integers(len(hosts) - 1, size=flows)) % len(hosts)
    sizes = rng.integers(1_000_000, 50_000_000, size=flows)
    starts = rng.uniform(0.0, sizes.sum() / (len(hosts) * LINK.bytes_per_s * BUSY), size=flows)
    path = cache(lambda source, target: fabric.between(hosts[source], hosts[target]).ports)
    transfers = [
        Transfer(start_s=float(start), nbytes=int(size), route=path(int(source), int(target)))
        for source, target, size, start in zip(sources, targets, sizes, starts, strict=True)
    ]
    ports = {port for transfer in transfers for port in transfer.route}
    return {port: Pipe(bytes_per_s=fabric.capacity[port]) for port in ports}, transfers


LINK = LinkModel(name="10 GB/s", latency_s=0.0, bytes_per_s=10e9, provenance="an example")
BALANCED = {"groups": 9, "rows": 1, "columns": 4, "column_links": 1, "pair_links": 1}
"""a dragonfly with as many links to other groups as hosts: Kim et al., Technology-driven, highly-scalable dragonfly
topology, ISCA 2008
"""
CASES: dict[str, tuple[str, Callable[[], Graph], int]] = {
    "star": ("star, 64 hosts", lambda: star(hosts=64, link=LINK), 10_000),
    "fat-tree-8": ("fat tree k=8, 128 hosts", lambda: fat_tree(k=8, link=LINK), 10_000),
    "dragonfly": ("dragonfly, 72 hosts", lambda: dragonfly(**BALANCED, link=LINK), 10_000),
    "fat-tree-16": ("fat tree k=16, 1,024 hosts", lambda: fat_tree(k=16, link=LINK), 20_000),
}
"""a title, the graph, and the number of flows"""


def measure(name: str) -> dict[str, Any]:
    """Times one case; the figures of SimGrid are None where it is not installed."""
    title, graph, flows = CASES[name]
    pipes, transfers = random_flows(graph(), flows)
    say(f"{title} …")
    began = time.perf_counter()
    found_s, _ = transfer_all(pipes, transfers, compiled=True)
    row: dict[str, Any] = {"case": title, "flows": len(transfers), "ours_s": time.perf_counter() - began}
    if find_spec("simgrid") is None:
        return row
    links = {name: pipe.bytes_per_s for name, pipe in pipes.items()}
    theirs = alone(by_simgrid, links, [(transfer.start_s, transfer.nbytes, transfer.route) for transfer in transfers])
    return {
        **row,
        "simgrid_s": theirs["wall_s"],
        "ratio": row["ours_s"] / theirs["wall_s"],
        "difference": largest_difference(found_s, theirs["finish_s"]),
        "simgrid_version": theirs["version"],
    }


SIMGRID = {
    "network/model": "CM02",
    "network/bandwidth-factor": "1",
    "network/latency-factor": "1",
    "network/weight-S": "0",
    "network/TCP-gamma": "0",
    "network/crosstraffic": "0",
}
"""its model without corrections for TCP, so that both engines solve the same problem"""


def by_simgrid(links: Mapping[str, float], flows: Sequence[tuple[float, float, Sequence[str]]]) -> dict[str, Any]:
    """Runs flows in SimGrid, which has one engine per process. Only the run is timed."""
    import simgrid

    arguments = [f"--cfg={key}:{value}" for key, value in SIMGRID.items()]
    engine = simgrid.Engine(["simgrid", *arguments, "--log=root.thresh:warning"])
    zone = simgrid.NetZone.create_full_zone("all")
    made = {name: zone.create_link(name, rate).set_latency(0.0).seal() for name, rate in links.items()}
    ends = {name for _, _, route in flows for name in (route[0], route[-1])}
    hosts = {name: zone.create_host(name, 1e9) for name in ends}
    for (source, target), route in {(route[0], route[-1]): route for _, _, route in reversed(flows)}.items():
        on_the_way = [simgrid.LinkInRoute(made[name]) for name in route]
        zone.add_route(hosts[source].netpoint, hosts[target].netpoint, None, None, on_the_way, False)
    zone.seal()
    finish_s = [0.0] * len(flows)

    def send() -> None:
        comms = []
        for number in sorted(range(len(flows)), key=lambda number: flows[number][0]):
            start_s, nbytes, route = flows[number]
            simgrid.this_actor.sleep_until(start_s)
            comms.append((number, simgrid.Comm.sendto_async(hosts[route[0]], hosts[route[-1]], nbytes)))
        for number, comm in comms:
            comm.wait()
            finish_s[number] = comm.finish_time

    simgrid.Actor.create("sender", next(iter(hosts.values())), send)
    began = time.perf_counter()
    engine.run()
    return {"version": simgrid.simgrid_version, "wall_s": time.perf_counter() - began, "finish_s": finish_s}


def body(options: argparse.Namespace) -> Answer:
    if options.cases is not None:
        return cases_of(options.cases)
    began = time.perf_counter()
    transfer_all({"a": Pipe(bytes_per_s=1.0)}, [Transfer(start_s=0.0, nbytes=1.0, route=("a",))], compiled=True)
    compile_s = time.perf_counter() - began
    rows = [measure(name) for name in options.case or CASES]
    cells = {
        "case": "case", "flows": "flows:,", "ours, s": "ours_s:.3f", "SimGrid, s": "simgrid_s:.3g",
        "ratio": "ratio:.3g", "difference": "difference:.3g",
    }  # fmt: skip
    said = f"compiling, or loading what was compiled before, took {compile_s:.1f} s, apart"
    if find_spec("simgrid") is None:
        said += "; SimGrid is missing here, so there is nothing to compare with (Debian: python3-simgrid)"
    return Answer({"speed": rows, "compile_s": compile_s}, [table("Random flows", rows, cells), said])


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cases", type=Path, metavar="DIR", help="compare with the finish times of case files")
    parser.add_argument("--case", action="append", choices=CASES, help="only this one; may be given several times")


if __name__ == "__main__":
    sys.exit(run_command(__doc__, body, add_options))
