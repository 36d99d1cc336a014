"""Checks the network engine against reference finish times and measures its speed.

    python benchmarks/network.py --cases DIR      # finish times compared with those of the case files, to 1e-9
    python benchmarks/network.py                  # wall time on random flows, with SimGrid's where it is installed
    python benchmarks/network.py --case star --case dragonfly
    python benchmarks/network.py --json

A case file names links (bandwidth, latency, policy `shared` or `fatpipe`), routes, flows, and the finish times of a
reference solver. A bus is a shared link on the routes of both directions. A fatpipe limits each flow separately.

The random flows go between random hosts, have 1 to 50 MB, and start at random times in an interval that keeps a host's
link of 10 GB/s busy for 60 % of it. In a fat tree each pair draws one of its shortest paths. The dragonfly routes
minimally. The timing includes the run but not the creation of the flows. The first run, which compiles, is timed
separately. SimGrid is optional (Debian's python3-simgrid); if it is installed, its finish times are compared too. By
default it treats ends within 1 ns as simultaneous, so both differ by about as much (by 3e-15 if its precision is set to
1e-13). On the largest case it takes minutes.

Exits with 1 if a case differs by more than 1e-9.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from network_engine.transfers import Pipe, Transfer, transfer_all
from paceline.algorithms.core.errors import InputError

ALLOWED = 1e-9
BYTES_PER_S = 10e9
BUSY = 0.3
"""offered load relative to the capacity of all hosts. At 0.6, links that lie on the random paths of several flows never
drain: on 1,024 hosts our engine then takes 10.5 s, and SimGrid had not finished after eight minutes
"""
POLICIES = {"shared": False, "fatpipe": True}
"""by policy of a link: whether each flow has the full bandwidth"""


Platform = tuple[dict[str, Pipe], list[Transfer]]


# --- right -----------------------------------------------------------------------------------------------------------


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
    return max((abs(found - due) / abs(due) if due else abs(found) for found, due in pairs), default=0.0)


def run_cases(folder: Path) -> dict[str, Any]:
    """Checks every case file of a folder."""
    paths = sorted(folder.glob("*.json"))
    if not paths:
        raise InputError(f"{folder}: found no case file, expected *.json")
    rows: list[dict[str, Any]] = []
    for path in paths:
        name, platform, expected_s = read_case(path)
        found_s = transfer_all(*platform, compiled=True)[0]
        rows.append({"name": name, "difference": largest_difference(found_s, expected_s)})
    return {"largest_relative_difference": max(row["difference"] for row in rows), "cases": rows}


# --- fast ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """Wall times of one case; None for SimGrid where it is not installed."""

    case: str
    flows: int
    ours_s: float
    simgrid_s: float | None
    ratio: float | None
    difference: float | None
    simgrid_version: str | None


def flows_between(
    hosts: int, flows: int, route: Callable[[int, int, np.random.Generator], tuple[str, ...]]
) -> Platform:
    """Returns random flows and the links that they need."""
    rng = np.random.default_rng(np.random.SeedSequence((1, hosts, flows)))
    sources = rng.integers(hosts, size=flows)
    targets = (sources + 1 + rng.integers(hosts - 1, size=flows)) % hosts
    sizes = rng.integers(1_000_000, 50_000_000, size=flows)
    starts = rng.uniform(0.0, sizes.sum() / (hosts * BYTES_PER_S * BUSY), size=flows)
    path = cache(lambda source, target: route(source, target, rng))
    transfers = [
        Transfer(start_s=float(start), nbytes=int(size), route=path(int(source), int(target)))
        for source, target, size, start in zip(sources, targets, sizes, starts, strict=True)
    ]
    return {name: Pipe(bytes_per_s=BYTES_PER_S) for one in transfers for name in one.route}, transfers


def star(hosts: int, flows: int) -> Platform:
    """Returns the routes of hosts around one switch."""
    return flows_between(hosts, flows, lambda source, target, _: (f"up {source}", f"down {target}"))


def fat_tree(k: int, flows: int) -> Platform:
    """Returns the routes of a fat tree: k pods of k/2 edge and k/2 aggregation switches, k/2 hosts per edge switch,
    k²/4 core switches.
    """
    half = k // 2

    def route(source: int, target: int, rng: np.random.Generator) -> tuple[str, ...]:
        edge, far_edge = source // half, target // half
        pod, far_pod = edge // half, far_edge // half
        over, core = (int(number) for number in rng.integers(half, size=2))
        path = [f"host {source} up", f"host {target} down"]
        if edge != far_edge:
            path[1:1] = [f"edge {edge}.{over} up", f"edge {far_edge}.{over} down"]
        if pod != far_pod:
            path[2:2] = [f"core {pod}.{over}.{core} up", f"core {far_pod}.{over}.{core} down"]
        return tuple(path)

    return flows_between(half * half * k, flows, route)


def dragonfly(routers: int, hosts: int, flows: int) -> Platform:
    """Returns the routes of a dragonfly: routers in fully connected groups, each with as many links to other groups as
    hosts, and one link between any two groups.

    Source: Kim et al., Technology-driven, highly-scalable dragonfly topology, ISCA 2008: a = 2p = 2h is balanced.
    """
    groups = routers * hosts + 1

    def gateway(group: int, far_group: int) -> int:
        return group * routers + (far_group - group - 1) % groups // hosts

    def local(router: int, other: int) -> list[str]:
        return [f"local {router} to {other}"] if router != other else []

    def route(source: int, target: int, _: np.random.Generator) -> tuple[str, ...]:
        router, far_router = source // hosts, target // hosts
        group, far_group = router // routers, far_router // routers
        path = local(router, far_router)
        if group != far_group:
            leaves, arrives = gateway(group, far_group), gateway(far_group, group)
            path = [*local(router, leaves), f"global {group} to {far_group}", *local(arrives, far_router)]
        return (f"host {source} up", *path, f"host {target} down")

    return flows_between(groups * routers * hosts, flows, route)


CASES: dict[str, tuple[str, Callable[[], Platform]]] = {
    "star": ("star, 64 hosts", lambda: star(64, 10_000)),
    "fat-tree-8": ("fat tree k=8, 128 hosts", lambda: fat_tree(8, 10_000)),
    "dragonfly": ("dragonfly, 72 hosts", lambda: dragonfly(4, 2, 10_000)),
    "fat-tree-16": ("fat tree k=16, 1,024 hosts", lambda: fat_tree(16, 100_000)),
}


def measure(name: str) -> Speed:
    """Times one case."""
    title, make = CASES[name]
    pipes, transfers = make()
    print(f"{title}: Paceline …", file=sys.stderr)
    began = time.perf_counter()
    found_s, _ = transfer_all(pipes, transfers, compiled=True)
    ours_s = time.perf_counter() - began
    print(f"{title}: Paceline took {ours_s:.3g} s", file=sys.stderr)
    theirs = simgrid(pipes, transfers) if find_spec("simgrid") else None
    if theirs:
        print(f"{title}: SimGrid took {theirs['wall_s']:.3g} s", file=sys.stderr)
    return Speed(
        case=title,
        flows=len(transfers),
        ours_s=ours_s,
        simgrid_s=theirs["wall_s"] if theirs else None,
        ratio=ours_s / theirs["wall_s"] if theirs else None,
        difference=largest_difference(found_s, theirs["finish_s"]) if theirs else None,
        simgrid_version=theirs["version"] if theirs else None,
    )


def simgrid(pipes: dict[str, Pipe], transfers: list[Transfer]) -> dict[str, Any]:
    """Runs the same flows in SimGrid."""
    links = {name: pipe.bytes_per_s for name, pipe in pipes.items()}
    flows = [[one.start_s, one.nbytes, one.route] for one in transfers]
    command = [sys.executable, str(Path(__file__).parent / "network_engine" / "simgrid_flows.py")]
    platform = json.dumps({"links": links, "flows": flows})
    done = subprocess.run(command, input=platform, stdout=subprocess.PIPE, text=True, check=True)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def compile_s() -> float:
    """Returns the time of a process's first run, which compiles or loads compiled code."""
    began = time.perf_counter()
    transfer_all({"a": Pipe(bytes_per_s=1.0)}, [Transfer(start_s=0.0, nbytes=1.0, route=("a",))], compiled=True)
    return time.perf_counter() - began


# --- the command -----------------------------------------------------------------------------------------------------


def show_cases(answer: dict[str, Any], console: Console) -> None:
    """Prints one row per case."""
    table = Table("case", "largest relative difference", box=None)
    for row in answer["cases"]:
        table.add_row(row["name"], f"{row['difference']:.2e}")
    console.print(table)
    console.print(f"largest of all: {answer['largest_relative_difference']:.2e}; allowed: {ALLOWED:.0e}")


def show_speed(rows: list[Speed], compiling_s: float, console: Console) -> None:
    """Prints one row per case."""
    table = Table("case", "flows", "ours, s", "SimGrid, s", "ratio", "difference", box=None)
    for row in rows:
        theirs = ("–" if value is None else f"{value:.3g}" for value in (row.simgrid_s, row.ratio, row.difference))
        table.add_row(row.case, str(row.flows), f"{row.ours_s:.3f}", *theirs)
    console.print(table)
    console.print(f"compiling, or loading what was compiled before, took {compiling_s:.1f} s, apart")
    if versions := {row.simgrid_version for row in rows} - {None}:
        console.print(f"SimGrid {', '.join(map(str, versions))}; both were timed one after the other, in this run")
    else:
        console.print("SimGrid is missing here, so there is nothing to compare with (Debian: python3-simgrid)")


def main() -> int:
    """Runs the command and prints the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=Path, metavar="DIR")
    parser.add_argument("--case", action="append", choices=CASES, help="only this one; may be given several times")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.cases is not None:
        try:
            answer = run_cases(options.cases)
        except InputError as error:
            print(error, file=sys.stderr)
            return 2
        if options.json:
            print(json.dumps(answer))
        else:
            show_cases(answer, Console())
        return 0 if answer["largest_relative_difference"] <= ALLOWED else 1
    compiling_s = compile_s()
    rows = [measure(name) for name in options.case or CASES]
    if options.json:
        print(json.dumps({"speed": [asdict(row) for row in rows], "compile_s": compiling_s}))
    else:
        show_speed(rows, compiling_s, Console())
    return 0


if __name__ == "__main__":
    sys.exit(main())
