"""A process that carries packets between hosts: a TUN device in each host's namespace, and lines in between.

Rules of this file:

* It needs neither bridges nor queueing disciplines of the kernel, and knows any topology and any latency. What it can
  carry is bound by this machine: every packet is read, kept and written by one process.
* It runs at real-time priority where that is granted, so that busy ranks do not keep packets waiting, and is pinned to
  no core. It sleeps until a packet comes or is due.
* It counts what it dropped and how late it was, in memory that it shares with the launcher, and ends with it.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import signal
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from paceline.backend.emulation import forwarding
from paceline.backend.emulation.emulated_hosts import INTERFACE, NETWORK, Crossed, Hosts, address
from paceline.backend.posix.forking import fork
from paceline.backend.posix.interrupts import uninterrupted
from paceline.backend.posix.network_namespaces import NoHosts, enter, namespaces, run_ip
from paceline.topologies.packet_lines import HEADERS, Lines

SMALLEST, LARGEST = 1500, 65_000
"""bytes of a packet"""
PACKET_S = 2e-4
"""ours: what a largest packet takes on the slowest line, unless it were smaller than Ethernet's; larger ones would cost
the forwarder less, and wait longer for each other"""
QUEUE_BYTES = 4 << 20
"""ours: before each line, as before a token bucket; what exceeds it is lost and sent again by TCP"""
WINDOW_BYTES = 1 << 20
"""ours: what a connection may have under way from its first message on; training's connections are old ones, which have
found their window long ago, and a run of some seconds would be the search for it"""
SLOTS = 32_768
"""packets that may be under way"""
DEVICE_PACKETS = 10_000
"""that a host's device keeps until they are read"""
PRIORITY = 10
"""among real-time processes: above ranks that somebody has given the least one, so that they are not emulated late"""
POLL_S = 0.1
"""how often it looks for its launcher"""
READY_S = 120.0
"""for how long it is waited for; the first time on a machine it compiles its loop, some seconds"""
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
PR_SET_PDEATHSIG = 1


def packet_bytes(lines: Lines) -> int:
    """The size of the largest packet.

    Args:
        lines: the slowest of which decides.
    """
    slowest = lines.slowest
    return LARGEST if slowest is None else int(min(max(SMALLEST, slowest.bytes_per_s * PACKET_S), LARGEST))


@dataclass(frozen=True, slots=True)
class Forwarder:
    """The hosts, and what the process that joins them has counted."""

    hosts: Hosts
    packet_bytes: int
    process: int
    counters: Any = field(repr=False)

    def crossed(self) -> list[Crossed]:
        """Bytes that each host has sent and received, in packets with their headers."""
        first, count = forwarding.HOSTS, len(self.hosts.names)
        pairs = zip(self.counters[first : first + count], self.counters[first + count :], strict=True)
        return [Crossed(int(sent), int(received)) for sent, received in pairs]

    def record(self) -> dict[str, float]:
        """What it has carried, dropped and delivered too late so far; seconds and bytes."""
        counters = self.counters.copy()
        packets = counters[forwarding.PACKETS]
        late = counters[forwarding.HISTOGRAM : forwarding.HOSTS]
        return {
            "packets": int(packets),
            "bytes": int(counters[forwarding.BYTES]),
            "dropped": int(counters[forwarding.DROPPED] + counters[forwarding.LOST]),
            "late_mean_s": float(counters[forwarding.LATE_S] / packets) if packets else 0.0,
            "late_p99_s": quantile(late, 0.99),
            "late_max_s": float(counters[forwarding.LATEST_S]),
        }


def quantile(histogram: Any, share: float) -> float:
    """The bucket's upper end below which such a share is, in seconds; 0 of nothing.

    >>> quantile([0, 98, 1, 1], 0.99)
    4e-06
    """
    total = np.cumsum(histogram)
    return float(2.0 ** np.searchsorted(total, share * total[-1]) * 1e-6) if total[-1] else 0.0


@contextmanager
def forwarded(lines: Lines, packet: int | None = None) -> Iterator[Forwarder]:
    """The hosts that these lines join, for the block.

    Args:
        lines: between hosts, and how fast they are.
        packet: bytes of the largest packet; else as fits the slowest line.

    Raises:
        NoHosts: without the rights, the programs or the TUN devices that this needs, or where the process ends early.
    """
    with namespaces([str(index) for index in range(len(lines.hosts))]) as names:
        packet = packet or packet_bytes(lines)
        with uninterrupted():
            for index, name in enumerate(names):
                _device(name, index, packet)
        hosts = Hosts(tuple(names), None, lines.places)
        counters = _shared(forwarding.HOSTS + 2 * len(names))
        with uninterrupted():
            process = _fork(names, lines, packet, counters)
        try:
            yield Forwarder(hosts, packet, process, counters)
        finally:
            with uninterrupted():
                alive = os.waitpid(process, os.WNOHANG) == (0, 0)
                if alive:
                    os.kill(process, signal.SIGKILL)
                    os.waitpid(process, 0)
        if not alive:
            raise NoHosts("the process that joins the hosts has ended before its time")


def _device(name: str, index: int, packet: int) -> None:
    """A host's device."""
    run_ip("ip", "-n", name, "tuntap", "add", "dev", INTERFACE, "mode", "tun")
    run_ip("ip", "-n", name, "address", "add", address(index), "dev", INTERFACE)
    run_ip("ip", "-n", name, "link", "set", INTERFACE, "mtu", str(packet), "txqueuelen", str(DEVICE_PACKETS))
    run_ip("ip", "-n", name, "link", "set", INTERFACE, "addrgenmode", "none", "up")
    window = str(-(-WINDOW_BYTES // packet))
    run_ip("ip", "-n", name, "route", "replace", NETWORK, "dev", INTERFACE, "initcwnd", window, "initrwnd", window)


def _shared(count: int) -> Any:
    return np.frombuffer(mmap.mmap(-1, 8 * count), np.float64)


def _fork(names: list[str], lines: Lines, packet: int, counters: Any) -> int:
    """Starts the process; answers its id once it carries packets."""
    heard, say = os.pipe()
    launcher = os.getpid()
    if (process := fork()) == 0:
        os.close(heard)
        _run(launcher, say, names, lines, packet, counters)
    os.close(say)
    with os.fdopen(heard, "rb") as answer:
        said = answer.read().decode()
    if said != "ready":
        os.waitpid(process, 0)
        raise NoHosts(f"no process can join the hosts of this machine: {said or 'it has ended at once'}")
    return process


def _run(launcher: int, say: int, names: list[str], lines: Lines, packet: int, counters: Any) -> NoReturn:
    """The process itself."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        files = np.array([_open(name) for name in names], np.int32)
        for name in names:
            _quicken(name)
        tables = forwarding.tables(
            lines.lines, lines.routes, len(names), packet=packet, headers=HEADERS, queue=QUEUE_BYTES, slots=SLOTS
        )
        polled = np.stack([files, np.full_like(files, forwarding.POLLIN)], axis=1)
        seen_s = np.full(len(files), time.monotonic())
        forwarding.forward(tables, files, counters, polled, seen_s, 0.0)  # compiled before anybody waits for it
        _hurry()
        os.write(say, b"ready")
        os.close(say)
        while os.getppid() == launcher:
            forwarding.forward(tables, files, counters, polled, seen_s, time.monotonic() + POLL_S)
        os._exit(0)
    except BaseException as error:
        with suppress(OSError):
            os.write(say, f"{type(error).__name__}: {error}".encode())
    finally:
        os._exit(1)


def _open(name: str) -> int:
    """A host's device as a file."""
    enter(name)
    file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(file, TUNSETIFF, struct.pack("16sH22x", INTERFACE.encode(), IFF_TUN | IFF_NO_PI))
    return file


def _quicken(name: str) -> None:
    """The host's TCP has room for a whole window at once, and keeps it while a connection is idle between two steps."""
    enter(name)
    settings = Path("/proc/sys/net/ipv4")
    (settings / "tcp_slow_start_after_idle").write_text("0", encoding="ascii")
    for sizes in ("tcp_rmem", "tcp_wmem"):
        (settings / sizes).write_text(f"4096 {4 * WINDOW_BYTES} {16 * WINDOW_BYTES}", encoding="ascii")


def _hurry() -> None:
    """Real-time priority where it is granted; else as nice as this user may be."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(PRIORITY))
    except OSError:
        with suppress(OSError):
            os.nice(-10)
