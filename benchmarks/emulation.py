"""Measures how exactly an emulated network keeps its rates and latencies, and compares training on it with predictions.

    sudo python benchmarks/emulation.py                    # rates, latencies, packets a second: two minutes
    sudo python benchmarks/emulation.py --compare          # step times of nine methods on six networks: 15 minutes
    sudo python benchmarks/emulation.py --compare --rounds 3 --json

Needs root, because the hosts are network namespaces of this machine. The first table measures the forwarder in user
space with TCP between two hosts: the rate of one connection and the one-way latency of a byte, each beside the
requested value. The machine is idle, or runs two busy processes. The last rows have no rate limit and show the maximum.
The second table is `paceline compare --network emulated` for the scenarios in `emulated_network/scenarios.py`,
predicted and measured in turn, in as many rounds as given.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

import paceline
from emulated_network.scenarios import SCENARIOS
from paceline.algorithms.core.errors import PacelineError
from paceline.backend.emulation.forwarder import Forwarder, forwarded
from paceline.backend.posix.network_namespaces import NoHosts, enter
from paceline.records.figures import number
from paceline.records.machine import OtherLoad
from paceline.topologies.packet_lines import HEADERS, Lines, PacketLine

ASKED = ((10, 0.0), (10, 10.0), (100, 0.0), (100, 1.0), (500, 0.0), (500, 1.0), (1000, 0.0), (1000, 1.0), (2000, 0.0))
"""Mbit/s and ms one way"""
FREE = 1e12
"""a rate in bytes/s that no connection here reaches"""
CEILINGS = (1500, 9000, 65_000)
"""bytes of a packet"""
TRIPS, LASTS_S, MOST_BYTES = 100, 0.5, 500e6
PORT = 5000


def pair(bytes_per_s: float, latency_s: float) -> Lines:
    """Returns two hosts, joined by a link in each direction."""
    lines = tuple(PacketLine(name, bytes_per_s, latency_s) for name in ("a>b", "b>a"))
    return Lines(("a", "b"), {}, lines, {(0, 1): (0,), (1, 0): (1,)})


def answer(name: str) -> None:
    """Runs on a host: echoes single bytes, then receives whole transfers and confirms each with a byte."""
    enter(name)
    with socket.create_server(("", PORT)) as listening:
        listening.settimeout(30)
        connection, _ = listening.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for _ in range(TRIPS):
        connection.sendall(connection.recv(1))
    room = bytearray(1 << 20)
    while header := connection.recv(8, socket.MSG_WAITALL):
        left = int.from_bytes(header, "big")
        while left:
            left -= connection.recv_into(room, min(left, len(room)))
        connection.sendall(b"k")


def ask(made: Forwarder, nbytes: int) -> tuple[list[float], list[float]]:
    """Measures one-way seconds of single bytes, and seconds of whole transfers including the confirmation, without the
    first of each.
    """
    enter(made.hosts.names[1])
    until = time.monotonic() + 30
    while True:
        try:
            connection = socket.create_connection(("10.77.0.1", PORT))
            break
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            time.sleep(0.01)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    trips, transfers = [], []
    for _ in range(TRIPS):
        begun = time.perf_counter()
        connection.sendall(b"x")
        connection.recv(1)
        trips.append((time.perf_counter() - begun) / 2)
        time.sleep(0.001)
    payload = memoryview(bytes(min(nbytes, 1 << 24)))
    for _ in range(4):
        begun = time.perf_counter()
        connection.sendall(nbytes.to_bytes(8, "big"))
        for first in range(0, nbytes, len(payload)):
            connection.sendall(payload[: nbytes - first])
        connection.recv(1)
        transfers.append(time.perf_counter() - begun)
    return trips[1:], transfers[1:]


def crossing(bytes_per_s: float, latency_s: float, nbytes: int, packet: int | None = None) -> dict[str, Any]:
    """Returns one row: a connection from one host to the other."""
    fork = multiprocessing.get_context("fork")
    with forwarded(pair(bytes_per_s, latency_s), packet) as made:
        there = fork.Process(target=answer, args=(made.hosts.names[0],), daemon=True)
        there.start()
        receiver, sender = fork.Pipe(duplex=False)
        here = fork.Process(target=lambda: sender.send(ask(made, nbytes)), daemon=True)
        here.start()
        if not receiver.poll(120):
            raise NoHosts("no bytes crossed the emulated network for two minutes")
        trips, transfers = receiver.recv()
        for process in (here, there):
            process.join()
        record = made.record()
    seconds = median(transfers) - 2 * latency_s
    return {
        "asked_mbit_per_s": 8e-6 * bytes_per_s if bytes_per_s < FREE else None,
        "asked_latency_s": latency_s,
        "packet_bytes": made.packet_bytes,
        "mbit_per_s": 8e-6 * nbytes / seconds,
        "packets_per_s": nbytes / (made.packet_bytes - HEADERS) / seconds,
        "beside_latency_s": median(trips) - latency_s,
        "late_p99_s": record["late_p99_s"],
        "dropped": record["dropped"],
    }


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Runs this many busy processes during the block."""
    processes = [multiprocessing.get_context("fork").Process(target=_spin, daemon=True) for _ in range(count)]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.join()


def _spin() -> None:
    launcher = os.getppid()
    while os.getppid() == launcher:
        sum(range(10_000))


def held(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Returns all rows of the first table."""
    rows = []
    for ranks in options.busy:
        with busy(ranks), OtherLoad() as other:
            for mbit, ms in options.asked:
                rate = mbit * 125e3
                rows.append({"busy": ranks, **crossing(rate, ms / 1e3, round(min(MOST_BYTES, rate * options.seconds)))})
            for packet in CEILINGS:
                nbytes = round(min(MOST_BYTES, 2e4 * packet * options.seconds))
                rows.append({"busy": ranks, **crossing(FREE, 0.0, nbytes, packet)})
        for row in rows:
            row.setdefault("other_load", other.share)
    return rows


def compared(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measures the step times of every scenario, round by round. Returns one row for each algorithm."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    loads: dict[str, list[float]] = {}
    for turn in range(options.rounds):
        for name in options.scenarios:
            comparison = paceline.compare({**SCENARIOS[name], "seed": 1 + turn})
            loads.setdefault(name, []).append(comparison.other_load)
            for line in comparison.lines:
                pair = (number(line.simulated["step_s"]["mean"]) or 0.0, number(line.measured["step_s"]["mean"]) or 0.0)
                found.setdefault((name, line.name), []).append(pair)
            print(f"{name}, round {turn + 1} of {options.rounds}", file=sys.stderr)
    return [
        {
            "network": name,
            "algorithm": algorithm,
            "predicted_s": median(one for one, _ in pairs),
            "measured_s": median(other for _, other in pairs),
            "errors": [one / other - 1 for one, other in pairs],
            "other_load": median(loads[name]),
        }
        for (name, algorithm), pairs in found.items()
    ]


def show(rows: Sequence[dict[str, Any]], console: Console) -> None:
    """Renders one of the two tables."""
    if "algorithm" in rows[0]:
        table = Table("network", "algorithm", "predicted, ms", "measured, ms", "errors, %", "others, %", box=None)
        for row in rows:
            errors = ", ".join(f"{100 * error:+.1f}" for error in row["errors"])
            times = [f"{1e3 * row[key]:.1f}" for key in ("predicted_s", "measured_s")]
            table.add_row(row["network"], row["algorithm"], *times, errors, f"{100 * row['other_load']:.0f}")
    else:
        heads = (
            "asked, Mbit/s",
            "ms",
            "busy",
            "packet, B",
            "Mbit/s",
            "packets/s",
            "beside, µs",
            "late p99, µs",
            "dropped",
        )
        table = Table(*heads, box=None)
        for row in rows:
            asked = "–" if row["asked_mbit_per_s"] is None else f"{row['asked_mbit_per_s']:.0f}"
            figures = [row["mbit_per_s"], row["packets_per_s"], 1e6 * row["beside_latency_s"], 1e6 * row["late_p99_s"]]
            given = [f"{1e3 * row['asked_latency_s']:g}", str(row["busy"]), str(row["packet_bytes"])]
            table.add_row(asked, *given, *(f"{figure:.4g}" for figure in figures), str(row["dropped"]))
    console.print(table)


def asked(text: str) -> tuple[float, float]:
    """Parses a rate and a latency such as ``100,1``: Mbit/s and ms."""
    rate, _, latency = text.partition(",")
    return float(rate), float(latency or 0)


def main(given: Sequence[str] | None = None) -> int:
    """Runs the command. Returns 2 if this machine cannot make hosts, 1 if a run fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--asked", type=asked, nargs="+", default=ASKED, metavar="MBIT,MS", help="rates and latencies")
    parser.add_argument("--busy", type=int, nargs="+", default=(0, 2), help="numbers of busy processes")
    parser.add_argument("--seconds", type=float, default=LASTS_S, help="length of a transfer at the requested rate")
    parser.add_argument("--compare", action="store_true", help="step times instead")
    parser.add_argument("--scenarios", nargs="+", default=list(SCENARIOS), choices=SCENARIOS, metavar="NAME")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(given)
    try:
        rows = compared(options) if options.compare else held(options)
    except PacelineError as error:
        print(error, file=sys.stderr)
        return 2 if isinstance(error, NoHosts) else 1
    if options.json:
        print(json.dumps({"rows": rows}))
    else:
        show(rows, Console(width=None if sys.stdout.isatty() else 120))
    return 0


if __name__ == "__main__":
    sys.exit(main())
