"""A process that carries packets between hosts: a TUN device in each host's namespace, and lines between them.

Rules of this file:

* It needs neither bridges nor queueing disciplines of the kernel, and supports any topology and latency. This machine
  limits its throughput: one process reads, stores and writes every packet.
* It runs at real-time priority if permitted, so that busy ranks do not delay packets, and is not pinned to a core. It
  sleeps until a packet arrives or is due.
* It counts dropped and late packets in memory that it shares with the launcher, and ends with the launcher.
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
from paceline.backend.emulation.emulated_hosts import INTERFACE, NETWORK, Hosts, LinkBytes, address
from paceline.backend.posix.network_namespaces import NoHosts, enter, namespaces, run_ip
from paceline.backend.posix.processes import fork, uninterrupted
from paceline.topologies.packet_lines import HEADERS, Lines

SMALLEST, LARGEST = 1500, 65_000
"""the smallest and the largest packet, in bytes"""
PACKET_S = 2e-4
"""chosen by us: the time of a largest packet on the slowest line, unless that is less than Ethernet's size. Larger
packets would cost the forwarder less, and wait longer for each other"""
QUEUE_BYTES = 4 << 20
"""chosen by us: the queue of each line, as of a token bucket; packets beyond it are dropped and sent again by TCP"""
WINDOW_BYTES = 1 << 20
"""chosen by us: how much a connection may have in flight from its first message on. The connections of a training run
are old and have reached their window; in a run of some seconds TCP would still be increasing it"""
SLOTS = 32_768
"""packets that may be in flight"""
DEVICE_PACKETS = 10_000
"""packets in the queue of a host's device before they are read"""
PRIORITY = 10
"""real-time priority: above ranks that run at the lowest one, so that they do not delay the network"""
POLL_S = 0.1
"""how often it checks that its launcher is alive"""
READY_S = 120.0
"""timeout of its start; the first time on a machine its loop is compiled, which takes some seconds"""
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
PR_SET_PDEATHSIG = 1


def packet_bytes(lines: Lines) -> int:
    """Returns the size of the largest packet.

    Args:
        lines: the lines, of which the slowest decides.
    """
    slowest = lines.slowest
    return LARGEST if slowest is None else int(min(max(SMALLEST, slowest.bytes_per_s * PACKET_S), LARGEST))


@dataclass(frozen=True, slots=True)
class Forwarder:
    """The hosts, and the counters of the process that joins them."""

    hosts: Hosts
    packet_bytes: int
    process: int
    counters: Any = field(repr=False)

    def crossed(self) -> list[LinkBytes]:
        """Returns the bytes that each host has sent and received, in packets with headers."""
        first, count = forwarding.HOSTS, len(self.hosts.names)
        pairs = zip(self.counters[first : first + count], self.counters[first + count :], strict=True)
        return [LinkBytes(int(sent), int(received)) for sent, received in pairs]

    def record(self) -> dict[str, float]:
        """Returns what it has carried, dropped and delivered late so far, in seconds and bytes."""
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
    """Returns the upper end of the bucket below which such a share lies, in seconds; 0 for an empty histogram.

    Args:
        histogram: counts by bucket; the k-th counts delays below 2^k µs.
        share: the share, 0 to 1.

    >>> quantile([0, 98, 1, 1], 0.99)
    4e-06
    """
    total = np.cumsum(histogram)
    return float(2.0 ** np.searchsorted(total, share * total[-1]) * 1e-6) if total[-1] else 0.0


@contextmanager
def forwarded(lines: Lines, packet: int | None = None) -> Iterator[Forwarder]:
    """Creates the hosts that these lines join, for the block.

    Args:
        lines: the lines between hosts, with their rates.
        packet: bytes of the largest packet; chosen for the slowest line if None.

    Raises:
        NoHosts: the rights, programs or TUN devices that this needs are missing, or the process ends early.
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
            raise NoHosts("the process that joins the hosts has ended early")


def _device(name: str, index: int, packet: int) -> None:
    """Creates a host's device."""
    run_ip("ip", "-n", name, "tuntap", "add", "dev", INTERFACE, "mode", "tun")
    run_ip("ip", "-n", name, "address", "add", address(index), "dev", INTERFACE)
    run_ip("ip", "-n", name, "link", "set", INTERFACE, "mtu", str(packet), "txqueuelen", str(DEVICE_PACKETS))
    run_ip("ip", "-n", name, "link", "set", INTERFACE, "addrgenmode", "none", "up")
    window = str(-(-WINDOW_BYTES // packet))
    run_ip("ip", "-n", name, "route", "replace", NETWORK, "dev", INTERFACE, "initcwnd", window, "initrwnd", window)


def _shared(count: int) -> Any:
    return np.frombuffer(mmap.mmap(-1, 8 * count), np.float64)


def _fork(names: list[str], lines: Lines, packet: int, counters: Any) -> int:
    """Starts the process; returns its id when it is ready to carry packets."""
    read_end, write_end = os.pipe()
    launcher = os.getpid()
    if (process := fork()) == 0:
        os.close(read_end)
        _run(launcher, write_end, names, lines, packet, counters)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as answer:
        said = answer.read().decode()
    if said != "ready":
        os.waitpid(process, 0)
        raise NoHosts(f"no process can join the hosts of this machine: {said or 'it has ended at once'}")
    return process


def _run(launcher: int, write_end: int, names: list[str], lines: Lines, packet: int, counters: Any) -> NoReturn:
    """Runs in the forwarder's process."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        files = np.array([_open(name) for name in names], np.int32)
        for name in names:
            _set_tcp_windows(name)
        tables = forwarding.tables(
            lines.lines, lines.routes, len(names), packet=packet, headers=HEADERS, queue=QUEUE_BYTES, slots=SLOTS
        )
        polled = np.stack([files, np.full_like(files, forwarding.POLLIN)], axis=1)
        seen_s = np.full(len(files), time.monotonic())
        forwarding.forward(tables, files, counters, polled, seen_s, 0.0)  # compile before reporting readiness
        _raise_priority()
        os.write(write_end, b"ready")
        os.close(write_end)
        while os.getppid() == launcher:
            forwarding.forward(tables, files, counters, polled, seen_s, time.monotonic() + POLL_S)
        os._exit(0)
    except BaseException as error:
        with suppress(OSError):
            os.write(write_end, f"{type(error).__name__}: {error}".encode())
    finally:
        os._exit(1)


def _open(name: str) -> int:
    """Opens a host's device as a file."""
    enter(name)
    file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(file, TUNSETIFF, struct.pack("16sH22x", INTERFACE.encode(), IFF_TUN | IFF_NO_PI))
    return file


def _set_tcp_windows(name: str) -> None:
    """Gives the host's TCP a full window from the start, also after a connection was idle between two steps."""
    enter(name)
    settings = Path("/proc/sys/net/ipv4")
    (settings / "tcp_slow_start_after_idle").write_text("0", encoding="ascii")
    for sizes in ("tcp_rmem", "tcp_wmem"):
        (settings / sizes).write_text(f"4096 {4 * WINDOW_BYTES} {16 * WINDOW_BYTES}", encoding="ascii")


def _raise_priority() -> None:
    """Sets real-time priority if permitted, else the lowest niceness that this user may have."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(PRIORITY))
    except OSError:
        with suppress(OSError):
            os.nice(-10)
