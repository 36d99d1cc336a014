"""Measures how exactly an emulated network keeps its rates and latencies, and compares training on it with predictions.

    sudo python benchmarks/emulation.py                    # rates, latencies, packets a second: two minutes
    sudo python benchmarks/emulation.py --compare          # step times of nine methods on six networks: 15 minutes
    sudo python benchmarks/emulation.py --compare --rounds 3 --json

Needs root, because the hosts are network namespaces of this machine. The first table measures the forwarder in user
space with TCP between two hosts: the rate of one connection and the one-way latency of a byte, each beside the
requested value. The machine is idle, or runs two busy processes. The last rows have no rate limit and show the maximum.
The second table is `paceline compare --network emulated` for six networks, predicted and measured in turn, in as many
rounds as given.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

import paceline
from common.harness import Answer, at_least, run_command, say, table
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


def held(options: argparse.Namespace) -> Answer:
    """Measures the forwarder at every requested rate, and without a limit."""
    rows = []
    for ranks in options.busy:
        cases = [(mbit * 125e3, ms / 1e3, mbit * 125e3, None) for mbit, ms in options.asked]
        cases += [(FREE, 0.0, 2e4 * packet, packet) for packet in CEILINGS]
        with busy(ranks), OtherLoad() as other:
            measured = [
                crossing(rate, latency_s, round(min(MOST_BYTES, per_s * options.seconds)), packet)
                for rate, latency_s, per_s, packet in cases
            ]
        rows += [{"busy": ranks, "other_load": other.share, **row} for row in measured]
    cells = {
        "asked, Mbit/s": "asked_mbit_per_s:.0f", "ms": "asked_latency_s*1e3:g", "busy": "busy:",
        "packet, B": "packet_bytes:", "Mbit/s": "mbit_per_s:.4g", "packets/s": "packets_per_s:.4g",
        "beside, µs": "beside_latency_s*1e6:.4g", "late p99, µs": "late_p99_s*1e6:.4g", "dropped": "dropped:",
    }  # fmt: skip
    return Answer({"rows": rows}, [table("TCP between two emulated hosts", rows, cells)])


# --- training ---------------------------------------------------------------------------------------------------------

METHODS = [
    "sync-sgd", {"name": "async-sgd", "learning_rate": 0.02}, "easgd", "sync-easgd1", "sync-easgd2", "sync-easgd3",
    "k-avg", "agd", {"name": "hbs-sgd", "k1": 2, "k2": 4, "group": "node"},
]  # fmt: skip
SMALL = {"workload": {"model": "digits-mlp", "dataset": "digits"}, "stop": {"epochs": 5}, "evaluate": "5 epochs"}
LARGE = {"workload": {"model": "cifar10-full", "learning": "none"}, "stop": {"samples": 5120}, "evaluate": "1 epoch"}
"""358 kB of weights without values: messages have the same size as with values"""
SLOW_STAR = {"topology": "star", "link": {"latency": "2 ms", "bandwidth": "20 Mbit/s"}}
LEAVES = {
    "topology": "leaf-spine", "leaves": 2, "spines": 1, "hosts_per_leaf": 2,
    "link": {"latency": "1.5 ms", "bandwidth": "50 Mbit/s"}, "uplink": {"latency": "3 ms", "bandwidth": "100 Mbit/s"},
}  # fmt: skip
Nodes = tuple[tuple[int, int, int], ...]
"""of each kind of node: milliseconds of a step, number of nodes, and workers per node"""
NETWORKS: dict[str, tuple[Nodes, dict[str, Any], dict[str, Any]]] = {
    "ring": (((30, 4, 1),), SLOW_STAR | {"topology": "ring"}, SMALL),
    "fat-tree": (
        ((30, 2, 1), (50, 2, 1)),
        {"topology": "fat-tree", "link": {"latency": "1 ms", "bandwidth": "100 Mbit/s"}},
        LARGE,
    ),
    "pairs": (((30, 2, 2),), {"topology": "star", "link": {"latency": "5 ms", "bandwidth": "200 Mbit/s"}}, LARGE),
    "leaf-spine": (((25, 4, 1),), LEAVES, LARGE),
    "two-by-two": (((36, 2, 2),), SLOW_STAR, SMALL),
    "three": (((36, 3, 1),), SLOW_STAR, SMALL),
}
"""`pairs` has two ranks on each of two hosts, `fat-tree` one on each of four of sixteen, two of them slower. The form
of the model was fixed on `two-by-two` and `three` before it was run on the others
"""


def scenario(name: str, seed: int) -> dict[str, Any]:
    """Returns the scenario of a network."""
    nodes, network, work = NETWORKS[name]
    return {
        "name": f"emulated-{name}",
        "algorithms": METHODS,
        "hyperparameters": {"learning_rate": 0.05},
        "workload": {**work["workload"], "batch_per_worker": 32},
        "cluster": {
            "nodes": [
                {
                    "device": {"name": f"of-{step_ms}-ms", "overhead": f"{step_ms} ms", "per_sample": "0 s"},
                    "count": count,
                    "workers_per_node": workers,
                }
                for step_ms, count, workers in nodes
            ],
            "network": network,
        },
        "train": {"pace": "device", "network": "emulated"},
        "evaluate": {"every": work["evaluate"]},
        "stop": work["stop"],
        "seed": seed,
    }


def compared(options: argparse.Namespace) -> Answer:
    """Compares the step times of every network, round by round."""
    pairs: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for turn in range(options.rounds):
        for name in options.networks:
            for line in paceline.compare(scenario(name, 1 + turn)).lines:
                sides = (number(side["step_s"]["mean"]) or 0.0 for side in (line.simulated, line.measured))
                pairs.setdefault((name, line.name), []).append(tuple(sides))
            say(f"{name}, round {turn + 1} of {options.rounds}")
    rows = [
        {
            "network": name,
            "algorithm": algorithm,
            "predicted_s": median(predicted for predicted, _ in times),
            "measured_s": median(measured for _, measured in times),
            "errors": [predicted / measured - 1 for predicted, measured in times],
        }
        for (name, algorithm), times in pairs.items()
    ]
    cells = {
        "network": "network", "algorithm": "algorithm", "predicted, ms": "predicted_s*1e3:.1f",
        "measured, ms": "measured_s*1e3:.1f",
        "errors": lambda row: ", ".join(f"{error:+.1%}" for error in row["errors"]),
    }  # fmt: skip
    return Answer({"rows": rows}, [table("Step times on emulated networks", rows, cells)])


def body(options: argparse.Namespace) -> Answer:
    return compared(options) if options.compare else held(options)


def asked(text: str) -> tuple[float, float]:
    """Parses a rate and a latency such as ``100,1``: Mbit/s and ms."""
    rate, _, latency = text.partition(",")
    return float(rate), float(latency or 0)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--asked", type=asked, nargs="+", default=ASKED, metavar="MBIT,MS", help="rates and latencies")
    parser.add_argument("--busy", type=int, nargs="+", default=(0, 2), help="numbers of busy processes")
    parser.add_argument("--seconds", type=float, default=LASTS_S, help="length of a transfer at the requested rate")
    parser.add_argument("--compare", action="store_true", help="step times instead")
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), choices=NETWORKS, help="with --compare")
    parser.add_argument("--rounds", type=at_least(1), default=1, help="with --compare")


if __name__ == "__main__":
    sys.exit(run_command(__doc__, body, add_options))
