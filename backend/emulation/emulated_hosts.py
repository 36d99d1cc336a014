"""Hosts that are network namespaces of this machine, joined by a switch of a rate that is told.

    host 0: lo, eth0 ── p0 ─┐
    host 1: lo, eth0 ── p1 ─┴─ bridge      each ── is a veth pair with a token bucket at either end

Rules of this file:

* All links and addresses are inside the namespaces, so that nothing of this machine's own network is touched, and
  deleting the namespaces leaves nothing; `network_namespaces` sees to that.
* A token bucket is kept by a timer of the kernel, and what comes due later than `BURST_S` is lost. So this is also how
  many seconds' bytes pass at once after a pause. Latency beside this machine's own needs a kernel with netem.
* One machine does the work of all hosts: what is emulated is the network between them, not their processors.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from paceline.algorithms.core.method import RankContext
from paceline.algorithms.core.values import Rank
from paceline.backend.posix.interrupts import uninterrupted
from paceline.backend.posix.network_namespaces import NoHosts, enter, namespaces, run_ip

INTERFACE = "eth0"
BURST_S = 1e-3
"""ours: with half of it, two busy cores miss a fifth of 1 Gbit/s; twice as much is as long as a message of 250 kB"""
LEAST_BURST_BYTES = 4096
"""ours: two packets and something"""
QUEUE_BYTES = 4 << 20
"""ours: before a token bucket; what exceeds it is lost and sent again by TCP"""
NETWORK = "10.77.0.0/16"
MOST = 250
NETEM_PACKETS = 100_000
"""that may be under way at once; netem's own 1000 are less than 10 ms of 1 Gbit/s"""


@dataclass(frozen=True, slots=True)
class Spoke:
    """A host's link to the switch.

    Args:
        out_bytes_per_s: from the host, headers included.
        into_bytes_per_s: to the host.
        out_delay_s: beside this machine's own latency, on the way out; needs netem where there is some.
        into_delay_s: on the way in.
    """

    out_bytes_per_s: float
    into_bytes_per_s: float
    out_delay_s: float = 0.0
    into_delay_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Crossed:
    """Bytes that a host has sent to the switch, and received from it, in frames with all their headers."""

    sent: int
    received: int


@dataclass(frozen=True, slots=True)
class Hosts:
    """Namespaces as a run uses them.

    Args:
        names: one namespace for each host, in order.
        switch: the namespace of the bridge; None where something else joins the hosts.
        places: the host of each rank; None: one for each node of the job, and a server is on the first.
    """

    names: tuple[str, ...]
    switch: str | None
    places: Mapping[Rank, int] | None = None

    def check(self, team: Sequence[RankContext]) -> None:
        """Refuses a team that has more nodes than there are hosts."""
        nodes, count = len(team[0].leaders), len(self.names)
        if self.places is not None:
            return
        if nodes > count:
            raise NoHosts(f"found {count} host{'s' if count > 1 else ''} for {nodes} nodes; expected one for each")

    def enter(self, me: RankContext) -> str:
        """Moves the calling thread, and what it will start, into the host of this rank; answers the interface there."""
        enter(self.names[self.place(me)])
        return INTERFACE

    def place(self, me: RankContext) -> int:
        """The host of a rank."""
        if self.places is not None:
            return self.places[me.rank]
        return me.host

    def crossed(self) -> list[Crossed]:
        """What has crossed each host's link since it was made.

        As the token buckets count: an interface counts the headers of segments that the kernel has not cut yet once.
        """
        assert self.switch is not None, "of other ways, who forwards counts"
        ports = {one["dev"]: one["bytes"] for one in _buckets(self.switch)}
        sent = [sum(one["bytes"] for one in _buckets(name)) for name in self.names]
        return [Crossed(bytes_sent, ports[f"p{index}"]) for index, bytes_sent in enumerate(sent)]

    def dropped(self) -> int:
        """Packets that had no room before a token bucket, since the hosts were made."""
        assert self.switch is not None, "of other ways, who forwards counts"
        return sum(one["drops"] for name in (self.switch, *self.names) for one in _buckets(name))


@contextmanager
def hosts(count: int, *, bytes_per_s: float) -> Iterator[Hosts]:
    """So many hosts around one switch, for the block.

    Args:
        count: how many; at most 250.
        bytes_per_s: what each host can send to the switch and, at the same time, receive from it, headers included.

    Raises:
        NoHosts: without the rights, the programs or the parts of the kernel that this needs.
    """
    if not 1 <= count <= MOST or not bytes_per_s > 0:
        raise NoHosts(f"found {count} hosts of {bytes_per_s:g} B/s, expected 1 to {MOST} and a rate above 0")
    with star([Spoke(bytes_per_s, bytes_per_s)] * count) as made:
        yield made


@contextmanager
def star(spokes: Sequence[Spoke], places: Mapping[Rank, int] | None = None) -> Iterator[Hosts]:
    """A host for each of these links around one switch, for the block; raises `NoHosts`."""
    with namespaces(["switch", *map(str, range(len(spokes)))]) as (switch, *names):
        made = Hosts(tuple(names), switch, places)
        with uninterrupted():
            _build(made, spokes)
        yield made


def _build(made: Hosts, spokes: Sequence[Spoke]) -> None:
    switch = made.switch
    assert switch is not None
    # quiet: no addresses of its own, no asking who listens to which group
    run_ip("ip", "-n", switch, "link", "add", "bridge", "type", "bridge", "mcast_snooping", "0")
    run_ip("ip", "-n", switch, "link", "set", "bridge", "addrgenmode", "none", "up")
    for index, (name, spoke) in enumerate(zip(made.names, spokes, strict=True)):
        port = f"p{index}"
        run_ip("ip", "-n", name, "link", "add", INTERFACE, "type", "veth", "peer", "name", port, "netns", switch)
        run_ip("ip", "-n", name, "address", "add", address(index), "dev", INTERFACE)
        run_ip("ip", "-n", name, "link", "set", INTERFACE, "addrgenmode", "none", "up")
        run_ip("ip", "-n", switch, "link", "set", port, "addrgenmode", "none", "master", "bridge", "up")
        for command in (
            *shaped(name, INTERFACE, spoke.out_bytes_per_s, spoke.out_delay_s),
            *shaped(switch, port, spoke.into_bytes_per_s, spoke.into_delay_s),
        ):
            run_ip(*command)


def address(index: int) -> str:
    """Of a host, with its network."""
    return f"10.77.{(index + 1) >> 8}.{(index + 1) & 255}/16"


def shaped(namespace: str, device: str, bytes_per_s: float, delay_s: float = 0.0) -> list[tuple[str, ...]]:
    """The commands that give a device a rate and, where it has some, a latency.

    >>> print(*map(" ".join, shaped("here", "eth0", 1.25e6, 1e-3)), sep="\\n")
    tc -n here qdisc add dev eth0 root handle 1: netem delay 1000us limit 100000
    tc -n here qdisc add dev eth0 parent 1:1 tbf rate 10000000bit burst 4096b limit 4194304b
    """
    burst = max(LEAST_BURST_BYTES, round(bytes_per_s * BURST_S))
    law = ("tbf", "rate", f"{round(8 * bytes_per_s)}bit", "burst", f"{burst}b", "limit", f"{QUEUE_BYTES}b")
    add = ("tc", "-n", namespace, "qdisc", "add", "dev", device)
    if not delay_s:
        return [(*add, "root", *law)]
    delay = ("netem", "delay", f"{round(1e6 * delay_s)}us", "limit", str(NETEM_PACKETS))
    return [(*add, "root", "handle", "1:", *delay), (*add, "parent", "1:1", *law)]


@cache
def has_netem() -> bool:
    """Whether this kernel can delay packets by itself."""
    with namespaces(["trial"]) as (name,):
        try:
            run_ip("tc", "-n", name, "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms")
        except NoHosts:
            return False
        return True


def _buckets(namespace: str) -> list[dict[str, Any]]:
    """The token buckets of a namespace and what they have counted."""
    found: list[dict[str, Any]] = json.loads(run_ip("tc", "-n", namespace, "-s", "-j", "qdisc", "show"))
    return [one for one in found if one["kind"] == "tbf"]
