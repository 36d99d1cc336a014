"""Networks emulated in user space: requested rates and latencies, any topology, and nothing is left behind.

Needs root, iproute2 and TUN devices; otherwise all tests are skipped.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from paceline.backend.emulation.emulated_hosts import LinkBytes
from paceline.backend.emulation.forwarder import Forwarder, forwarded
from paceline.backend.posix.network_namespaces import NoHosts
from paceline.topologies.packet_lines import Lines, PacketLine
from tests.backend.test_hosts import LACKING, gone, left_alone  # noqa: F401  # a fixture
from tests.warm import Program

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.backend,
    pytest.mark.skipif(
        LACKING is not None or not Path("/dev/net/tun").exists(), reason=f"no network namespaces: {LACKING}"
    ),
]
RATE, LATENCY_S = 5e6, 0.01


def ring(count: int, rate: float = RATE, latency_s: float = LATENCY_S) -> Lines:
    """Hosts in a ring of lines that go one way round."""
    lines = tuple(PacketLine(f"{one}>{(one + 1) % count}", rate, latency_s) for one in range(count))
    routes = {
        (source, to): tuple((source + hop) % count for hop in range((to - source) % count))
        for source in range(count)
        for to in range(count)
        if source != to
    }
    return Lines(tuple(map(str, range(count))), {}, lines, routes)


TALK = """
import socket, sys, time
mine, theirs, nbytes, expected = map(int, sys.argv[1:])
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind((f"10.77.0.{mine + 1}", 4000))
server = socket.create_server((f"10.77.0.{mine + 1}", 5000))
print("up", flush=True)
sys.stdin.readline()
if nbytes:
    sent = []
    for turn in range(20):
        udp.sendto(repr(time.monotonic()).encode(), (f"10.77.0.{theirs + 1}", 4000))
        time.sleep(0.02)
    with socket.create_connection((f"10.77.0.{theirs + 1}", 5000)) as connection:
        connection.sendall(bytes(nbytes))
else:
    late = [-float(udp.recv(100)) + time.monotonic() for turn in range(20)]
    connection, _ = server.accept()
    begun, got = None, 0
    while data := connection.recv(1 << 20):
        got += len(data)
        if begun is None and 2 * got > expected:  # TCP has found its window
            begun = time.monotonic(), got
    print(min(late), (got - begun[1]) / (time.monotonic() - begun[0]), got)
"""
"""hosts of one machine share a clock, so one-way times can be measured"""


def talk(made: Forwarder, source: int, to: int, nbytes: int) -> tuple[float, float, int]:
    """Returns the one-way seconds of a datagram (minimum of 20), the rate of a transfer in bytes/s, and its bytes."""

    def at(host: int, other: int, size: int) -> subprocess.Popen[str]:
        inside = ["ip", "netns", "exec", made.hosts.names[host], sys.executable, "-S", "-c", TALK]
        numbers = map(str, (host, other, size, nbytes))
        begun = subprocess.Popen([*inside, *numbers], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert begun.stdout is not None and begun.stdout.readline() == "up\n"
        return begun

    listener, speaker = at(to, source, 0), at(source, to, nbytes)
    for process in (listener, speaker):
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    said, _ = listener.communicate(timeout=200)
    speaker.communicate(timeout=200)
    late_s, rate, got = said.split()
    return float(late_s), float(rate), int(got)


def at_rest(made: Forwarder) -> Sequence[LinkBytes]:
    """Returns the bytes that have crossed, after the last packets (those that close the connection)."""
    before, now, until = None, made.crossed(), time.monotonic() + 20.0
    while before != now and time.monotonic() < until:
        time.sleep(0.1)
        before, now = now, made.crossed()
    return now


def test_bytes_cross_at_the_asked_rate_and_latency(left_alone: None) -> None:  # noqa: F811
    """Over one line in one direction, and over two lines back: never sooner, and the best of 20 not much later.

    `benchmarks/emulation.py` measures how exact rate and latency are on an idle machine.
    """
    nbytes = 3_000_000
    with forwarded(ring(3)) as made:
        late_s, rate, got = talk(made, 0, 1, nbytes)
        far_s, _, _ = talk(made, 1, 0, 1000)
        first, second, third = at_rest(made)
        record = made.record()
    assert got == nbytes
    assert rate < 1.1 * RATE
    packet_s = 100 / RATE
    assert LATENCY_S + packet_s / 2 < late_s < 2 * LATENCY_S
    assert 2 * LATENCY_S + packet_s < far_s < 3 * LATENCY_S
    assert nbytes < first.sent < 1.1 * nbytes and second.received == first.sent
    assert third.sent == third.received == 0 < record["packets"]


def test_what_a_queue_has_no_room_for_is_dropped_and_comes_all_the_same(
    left_alone: None,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("paceline.backend.emulation.forwarder.QUEUE_BYTES", 20_000)
    with forwarded(ring(2, latency_s=0.001)) as made:
        _, _, got = talk(made, 0, 1, 400_000)
        assert got == 400_000 and made.record()["dropped"] > 0


def test_sixteen_hosts(left_alone: None) -> None:  # noqa: F811
    with forwarded(ring(16, latency_s=0.001)) as made:
        far_s, _, got = talk(made, 3, 2, 10_000)
    assert got == 10_000 and far_s > 0.015


def test_without_its_process_a_network_says_so(left_alone: None) -> None:  # noqa: F811
    def lose() -> None:
        with forwarded(ring(2)) as made:
            os.kill(made.process, signal.SIGKILL)
            os.waitid(os.P_PID, made.process, os.WEXITED | os.WNOWAIT)

    with pytest.raises(NoHosts, match="the process that joins the hosts has ended"):
        lose()


ENDLESS = """
import time
from paceline.backend.emulation.forwarder import forwarded
from tests.backend.test_emulation import ring

with forwarded(ring(2)) as made:
    print(made.process, flush=True)
    time.sleep(60)
"""


def test_a_killed_launcher_leaves_neither_process_nor_hosts(left_alone: None) -> None:  # noqa: F811
    launcher = Program(ENDLESS, [])
    assert launcher.printed("\n")
    launcher.kill()
    process = int(launcher.communicate(timeout=120)[0])
    gone(f"paceline-{launcher.pid}-")
    assert not psutil.pid_exists(process) or psutil.Process(process).status() == psutil.STATUS_ZOMBIE


# --- the command -----------------------------------------------------------------------------------------------------

SCENARIO: dict[str, Any] = {
    "name": "ring",
    "algorithms": ["sync-sgd", "async-sgd"],
    "workload": {"model": "digits-mlp", "dataset": "digits", "batch_per_worker": 32},
    "cluster": {
        "nodes": [{"device": {"name": "d", "overhead": "20 ms", "per_sample": "0 s"}, "count": 2}],
        "network": {"topology": "ring", "hosts": 3, "link": {"latency": "5 ms", "bandwidth": "20 Mbit/s"}},
    },
    "train": {"network": "emulated"},
    "evaluate": {"every": "1 epoch"},
    "stop": {"samples": 640},
}


def test_training_on_an_emulated_network(left_alone: None, tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "ring.yaml").write_text(yaml.safe_dump(SCENARIO))
    words = ["train", str(tmp_path / "ring.yaml"), "--out", str(tmp_path / "runs"), "--json"]
    process = Program("from paceline.cli import main; main()", words)
    answer, said = process.communicate(timeout=240)
    assert process.wait() == 0, said
    synchronous, asynchronous = json.loads(answer)["runs"]
    for one in (synchronous, asynchronous):
        assert one["summary"]["kind"] == "measured" and one["summary"]["emulated_network"] and one["summary"]["paced"]
    # a gradient, and an all-reduce of 19240 bytes by two: two steps of half of it, 5 ms each and their bytes
    least_s = 0.02 + 2 * (0.005 + 9620 / 2.5e6)
    assert synchronous["summary"]["step_s"]["mean"] > least_s
    network = json.loads((Path(synchronous["path"]) / "run.json").read_text())["machine"]["network"]
    assert network["way"] == "forwarder" and network["hosts"] == ["host0", "host1"]
    assert network["lines"] == [["host0>host1", 2.5e6, 0.005], ["host1>host0", 2.5e6, 0.005]]
    assert network["bytes"] > 10 * 2 * 19240
