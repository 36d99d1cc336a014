"""The network interface of each rank, and when a connection counts as broken.

Rules of this file: the ranks of a host use the interfaces in turn, so that with as many network cards as GPUs each rank
has a card of its own. Each host checks its interface names before anything runs.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Sequence

import psutil

from paceline.algorithms.core.errors import InputError, RunFailed
from paceline.algorithms.core.method import RankContext, on_host
from paceline.backend.transports.process_groups import LOOPBACK

INTERNET = (socket.AF_INET, socket.AF_INET6)


def check(names: Sequence[str]) -> None:
    """Checks that this host has the interfaces and that they have addresses.

    Raises:
        InputError: names the wrong interface and lists the usable ones.
    """
    found = psutil.net_if_addrs()
    usable = [name for name, addresses in found.items() if any(one.family in INTERNET for one in addresses)]
    for index, name in enumerate(names):
        if name not in usable:
            wrong = f"{name!r}, which has no internet address here" if name in found else f"no {name!r} on this host"
            raise InputError(f"train.interfaces[{index}]: found {wrong}; expected some of {', '.join(sorted(usable))}")


def interface_of(me: RankContext, team: Sequence[RankContext], names: Sequence[str]) -> str:
    """Returns the interface of a rank: ranks of a host take the names in turn; loopback if there are no names."""
    place = on_host(team, me.host).ranks.index(me.rank)
    return names[place % len(names)] if names else LOOPBACK


def address_towards(host: str, port: int) -> str:
    """Returns this host's own address on the route to another host."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as way:
        way.connect(address)  # sends nothing
        return str(way.getsockname()[0])


def interface_with(address: str) -> str:
    """Returns the network interface that has an address."""
    for name, addresses in psutil.net_if_addrs().items():
        if any(one.address.partition("%")[0] == address for one in addresses):
            return name
    raise RunFailed(f"no network interface has the address {address}; name one by GLOO_SOCKET_IFNAME")


def set_peer_timeout(port: int, within_s: int) -> None:
    """Makes this process's connections to a port fail when the peer is silent for `within_s` seconds.

    By default TCP retries for a quarter of an hour, or for ever if no data is in flight, and the store of torch, whose
    sockets are private, would wait as long. Has an effect on Linux only, where the connections of a process can be
    listed.
    """
    if sys.platform != "linux":
        return
    with contextlib.suppress(psutil.Error):
        for found in psutil.Process().net_connections("tcp"):
            if found.raddr and found.raddr.port == port:
                with contextlib.suppress(OSError):  # another thread has closed it meanwhile
                    _set_peer_timeout(found.fd, port, within_s)


def _set_peer_timeout(descriptor: int, port: int, within_s: int) -> None:
    with socket.socket(fileno=os.dup(descriptor)) as one:
        if one.getpeername()[1] != port:  # closed, and the number reused for another socket
            return
        one.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, max(1, within_s // 3))
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, within_s // 3))
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, within_s * 1000)
