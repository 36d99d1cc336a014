"""Hosts as network namespaces of this machine, joined by a switch with links of a given rate.

    host 0: lo, eth0 ── p0 ─┐
    host 1: lo, eth0 ── p1 ─┴─ bridge      each ── is a veth pair with a token bucket at either end

Rules of this file:

* All links and addresses are inside the namespaces, so this machine's own network is not changed, and nothing remains
  after the namespaces are deleted (`network_namespaces`).
* A token bucket depends on a timer of the kernel, and capacity that it has not used for longer than `BURST_S` is lost.
  So this is also how many seconds' bytes pass at once after a pause. A latency above this machine's own requires a
  kernel with netem.
* One machine does the work of all hosts: the network between them is emulated, not their processors.
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
from paceline.backend.posix.network_namespaces import NoHosts, enter, namespaces, run_ip
from paceline.backend.posix.processes import uninterrupted

INTERFACE = "eth0"
BURST_S = 1e-3
"""chosen by us: with half of it, two busy cores lose a fifth of 1 Gbit/s; twice as much is a message of 250 kB"""
LEAST_BURST_BYTES = 4096
"""chosen by us: a little more than two packets"""
QUEUE_BYTES = 4 << 20
"""chosen by us: the queue of a token bucket; packets that exceed it are dropped and sent again by TCP"""
NETWORK = "10.77.0.0/16"
MOST = 250
NETEM_PACKETS = 100_000
"""how many may be in flight at once; netem's own 1000 are less than 10 ms of 1 Gbit/s"""


@dataclass(frozen=True, slots=True)
class Spoke:
    """A host's link to the switch.

    Args:
        out_bytes_per_s: bandwidth from the host, headers included.
        into_bytes_per_s: bandwidth to the host.
        out_delay_s: latency from the host in addition to this machine's own; a value above 0 requires netem.
        into_delay_s: the same to the host.
    """

    out_bytes_per_s: float
    into_bytes_per_s: float
    out_delay_s: float = 0.0
    into_delay_s: float = 0.0


@dataclass(frozen=True, slots=True)
class LinkBytes:
    """Bytes that a host has sent to the switch and received from it, in frames with all headers."""

    sent: int
    received: int


@dataclass(frozen=True, slots=True)
class Hosts:
    """The namespaces of a run.

    Args:
        names: one namespace for each host, in order.
        switch: the namespace of the bridge; None if the hosts are joined differently.
        places: the host of each rank; None: one for each node of the job, with the server on the first.
    """

    names: tuple[str, ...]
    switch: str | None
    places: Mapping[Rank, int] | None = None

    def check(self, team: Sequence[RankContext]) -> None:
        """Checks that a team does not have more nodes than there are hosts."""
        nodes, count = len(team[0].leaders), len(self.names)
        if self.places is not None:
            return
        if nodes > count:
            raise NoHosts(f"found {count} host{'s' if count > 1 else ''} for {nodes} nodes; expected one for each")

    def enter(self, me: RankContext) -> str:
        """Moves the calling thread and the threads that it starts to the rank's host; returns the interface there."""
        enter(self.names[self.place(me)])
        return INTERFACE

    def place(self, me: RankContext) -> int:
        """Returns the host of a rank."""
        if self.places is not None:
            return self.places[me.rank]
        return me.host

    def crossed(self) -> list[LinkBytes]:
        """Returns the bytes that have crossed each host's link since it was created.

        As counted by the token buckets: an interface counts the headers of large segments only once.
        """
        assert self.switch is not None, "without a switch, the forwarder counts"
        ports = {bucket["dev"]: bucket["bytes"] for bucket in _buckets(self.switch)}
        sent = [sum(bucket["bytes"] for bucket in _buckets(name)) for name in self.names]
        return [LinkBytes(bytes_sent, ports[f"p{index}"]) for index, bytes_sent in enumerate(sent)]

    def dropped(self) -> int:
        """Returns how many packets the token buckets have dropped since the hosts were created."""
        assert self.switch is not None, "without a switch, the forwarder counts"
        return sum(bucket["drops"] for name in (self.switch, *self.names) for bucket in _buckets(name))


@contextmanager
def hosts(count: int, *, bytes_per_s: float) -> Iterator[Hosts]:
    """Creates hosts around one switch for the block.

    Args:
        count: the number of hosts, at most 250.
        bytes_per_s: bandwidth of each host's link in each direction, headers included.

    Raises:
        NoHosts: the rights, programs or kernel features that this needs are missing.
    """
    if not 1 <= count <= MOST or not bytes_per_s > 0:
        raise NoHosts(f"found {count} hosts of {bytes_per_s:g} B/s, expected 1 to {MOST} and a rate above 0")
    with star([Spoke(bytes_per_s, bytes_per_s)] * count) as made:
        yield made


@contextmanager
def star(spokes: Sequence[Spoke], places: Mapping[Rank, int] | None = None) -> Iterator[Hosts]:
    """Creates a host for each of these links around one switch for the block; raises `NoHosts`.

    Args:
        spokes: the link of each host.
        places: the host of each rank, as in `Hosts`.
    """
    with namespaces(["switch", *map(str, range(len(spokes)))]) as (switch, *names):
        made = Hosts(tuple(names), switch, places)
        with uninterrupted():
            _build(made, spokes)
        yield made


def _build(made: Hosts, spokes: Sequence[Spoke]) -> None:
    switch = made.switch
    assert switch is not None
    # quiet: no addresses of its own, no queries for multicast groups
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
    """Returns the address of a host, with its network."""
    return f"10.77.{(index + 1) >> 8}.{(index + 1) & 255}/16"


def shaped(namespace: str, device: str, bytes_per_s: float, delay_s: float = 0.0) -> list[tuple[str, ...]]:
    """Returns the commands that give a device a rate and, if it is not 0, a latency.

    Args:
        namespace: the name of the namespace.
        device: the network device in it.
        bytes_per_s: the rate.
        delay_s: the latency; a value above 0 requires netem.

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
    """Whether this kernel has netem, which delays packets."""
    with namespaces(["trial"]) as (name,):
        try:
            run_ip("tc", "-n", name, "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms")
        except NoHosts:
            return False
        return True


def _buckets(namespace: str) -> list[dict[str, Any]]:
    """Returns the token buckets of a namespace and their counters."""
    disciplines: list[dict[str, Any]] = json.loads(run_ip("tc", "-n", namespace, "-s", "-j", "qdisc", "show"))
    return [discipline for discipline in disciplines if discipline["kind"] == "tbf"]
