"""Hosts that are network namespaces of this machine, joined by a switch of a rate that is told.

    host 0: lo, eth0 ── p0 ─┐
    host 1: lo, eth0 ── p1 ─┴─ bridge      each ── is a veth pair with a token bucket at either end

Rules of this file:

* All links and addresses are inside the namespaces, so that nothing of this machine's own network is touched, and
  deleting the namespaces leaves nothing. Their names say which process made them; those of processes that are gone (a
  launcher that was killed) are deleted by whoever makes hosts next.
* A token bucket is kept by a timer of the kernel, and what comes due later than `BURST_S` is lost. So this is also how
  many seconds' bytes pass at once after a pause. There is no latency beside this machine's own.
* One machine does the work of all hosts: what is emulated is the network between them, not their processors.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.algorithms.errors import PacelineError
from paceline.algorithms.method import Me
from paceline.backend.interrupts import uninterrupted

NAMESPACES = Path("/run/netns")
"""where iproute2 keeps the names of namespaces"""
NAME = re.compile(r"paceline-(?P<maker>(?P<process>\d+)-\d+)-")
"""of a namespace: the id of the process that made it, and when that began, since ids are used again"""
INTERFACE = "eth0"
BURST_S = 1e-3
"""ours: with half of it, two busy cores miss a fifth of 1 Gbit/s; twice as much is as long as a message of 250 kB"""
LEAST_BURST_BYTES = 4096
"""ours: two packets and something"""
QUEUE_BYTES = 4 << 20
"""ours: before a token bucket; what exceeds it is lost and sent again by TCP"""
CLONE_NEWNET = 0x40000000
_numbers = itertools.count()


class NoHosts(PacelineError):
    """This machine, or this user, cannot make network namespaces with shaped links."""


@dataclass(frozen=True, slots=True)
class Crossed:
    """Bytes that a host has sent to the switch, and received from it, in frames with all their headers."""

    sent: int
    received: int


@dataclass(frozen=True, slots=True)
class Hosts:
    """Namespaces as a run uses them.

    Args:
        names: one namespace for each node of the job, in order.
        switch: the namespace of the bridge.
    """

    names: tuple[str, ...]
    switch: str

    def check(self, team: Sequence[Me]) -> None:
        """Refuses a team that has more nodes than there are hosts."""
        nodes, count = len(team[0].leaders), len(self.names)
        if nodes > count:
            raise NoHosts(f"found {count} host{'s' if count > 1 else ''} for {nodes} nodes; expected one for each")

    def enter(self, me: Me) -> str:
        """Moves the calling thread, and what it will start, into the host of this rank; answers the interface there.

        A server is on the first host.
        """
        with (NAMESPACES / self.names[me.host]).open("rb") as namespace:
            libc = ctypes.CDLL(None, use_errno=True)  # os.setns is of Python 3.12
            if libc.setns(namespace.fileno(), CLONE_NEWNET) != 0:
                error = os.strerror(ctypes.get_errno())
                raise NoHosts(f"rank {me.rank} cannot enter the network namespace {self.names[me.host]}: {error}")
        return INTERFACE

    def crossed(self) -> list[Crossed]:
        """What has crossed each host's link since it was made.

        As the token buckets count: an interface counts the headers of segments that the kernel has not cut yet once.
        """
        ports = {one["dev"]: one["bytes"] for one in _buckets(self.switch)}
        sent = [sum(one["bytes"] for one in _buckets(name)) for name in self.names]
        return [Crossed(bytes_sent, ports[f"p{index}"]) for index, bytes_sent in enumerate(sent)]


@contextmanager
def hosts(count: int, *, bytes_per_s: float) -> Iterator[Hosts]:
    """So many hosts around one switch, for the block.

    Args:
        count: how many; at most 250.
        bytes_per_s: what each host can send to the switch and, at the same time, receive from it, headers included.

    Raises:
        NoHosts: without the rights, the programs or the parts of the kernel that this needs.
    """
    if not 1 <= count <= 250 or not bytes_per_s > 0:
        raise NoHosts(f"found {count} hosts of {bytes_per_s:g} B/s, expected 1 to 250 and a rate above 0")
    _refuse()
    sweep()
    number = next(_numbers)
    names = [f"paceline-{_process(os.getpid())}-{number}-{part}" for part in ("switch", *range(count))]
    made = Hosts(names=tuple(names[1:]), switch=names[0])
    try:
        with uninterrupted():
            _build(made, bytes_per_s)
        yield made
    finally:
        with uninterrupted():
            for name in names:
                _delete(name)


def sweep() -> None:
    """Deletes the namespaces of processes that are gone."""
    for path in NAMESPACES.glob("paceline-*"):
        found = NAME.match(path.name)
        if found is not None and found["maker"] != _process(int(found["process"])):
            _delete(path.name)


def _process(number: int) -> str | None:
    """A process's id and the tick of the clock at which it began; None if there is none of this id."""
    try:
        _, _, after_name = Path(f"/proc/{number}/stat").read_text().rpartition(")")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return f"{number}-{after_name.split()[19]}"


def _delete(name: str) -> None:
    if (NAMESPACES / name).exists():
        try:
            _run("ip", "netns", "delete", name)
        except NoHosts:
            if (NAMESPACES / name).exists():  # else somebody else was quicker
                raise


def _refuse() -> None:
    if os.geteuid() != 0:
        raise NoHosts("hosts are network namespaces, and making them needs root: run this as root, or with sudo")
    missing = [program for program in ("ip", "tc") if shutil.which(program) is None]
    if missing:
        raise NoHosts(f"found no program {' and no '.join(missing)}; hosts need iproute2 (apt install iproute2)")


def _build(made: Hosts, bytes_per_s: float) -> None:
    switch = made.switch
    _run("ip", "netns", "add", switch)
    # quiet: no addresses of its own, no asking who listens to which group
    _run("ip", "-n", switch, "link", "add", "bridge", "type", "bridge", "mcast_snooping", "0")
    _run("ip", "-n", switch, "link", "set", "bridge", "addrgenmode", "none", "up")
    for index, name in enumerate(made.names):
        port = f"p{index}"
        _run("ip", "netns", "add", name)
        _run("ip", "-n", name, "link", "set", "lo", "up")
        _run("ip", "-n", name, "link", "add", INTERFACE, "type", "veth", "peer", "name", port, "netns", switch)
        _run("ip", "-n", name, "address", "add", f"10.77.0.{index + 1}/24", "dev", INTERFACE)
        _run("ip", "-n", name, "link", "set", INTERFACE, "addrgenmode", "none", "up")
        _run("ip", "-n", switch, "link", "set", port, "addrgenmode", "none", "master", "bridge", "up")
        for namespace, device in ((name, INTERFACE), (switch, port)):
            _shape(namespace, device, bytes_per_s)


def _shape(namespace: str, device: str, bytes_per_s: float) -> None:
    burst = max(LEAST_BURST_BYTES, round(bytes_per_s * BURST_S))
    law = ("rate", f"{round(8 * bytes_per_s)}bit", "burst", f"{burst}b", "limit", f"{QUEUE_BYTES}b")
    _run("tc", "-n", namespace, "qdisc", "add", "dev", device, "root", "tbf", *law)


def _buckets(namespace: str) -> list[dict[str, Any]]:
    """The token buckets of a namespace and what they have counted."""
    found: list[dict[str, Any]] = json.loads(_run("tc", "-n", namespace, "-s", "-j", "qdisc", "show"))
    return [one for one in found if one["kind"] == "tbf"]


def _run(*command: str) -> str:
    """A command of iproute2; in a session of its own, since a Ctrl-C at the terminal reaches every child."""
    done = subprocess.run(command, capture_output=True, text=True, start_new_session=True, check=False)
    if done.returncode != 0:
        said = done.stderr.strip() or f"exit status {done.returncode}"
        raise NoHosts(f"cannot make hosts of this machine: `{' '.join(command)}` says: {said}")
    return done.stdout
