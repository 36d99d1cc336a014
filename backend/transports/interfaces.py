"""Which network interface each rank meets the others by, and when a connection counts as broken.

Rules of this file: with one rank to an interface, as cards go with GPUs, ranks of a host do not share a card. Names
are looked up before anything runs, each host for itself.
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
    """Refuses interfaces that this host does not have, or that have no address.

    Raises:
        InputError: it says which, and what there is.
    """
    found = psutil.net_if_addrs()
    usable = [name for name, addresses in found.items() if any(one.family in INTERNET for one in addresses)]
    for index, name in enumerate(names):
        if name not in usable:
            wrong = f"{name!r}, which has no internet address here" if name in found else f"no {name!r} on this host"
            raise InputError(f"train.interfaces[{index}]: found {wrong}; expected some of {', '.join(sorted(usable))}")


def interface_of(me: RankContext, team: Sequence[RankContext], names: Sequence[str]) -> str:
    """The interface of a rank: the k-th of its host has the k-th, and from the first again; loopback without any."""
    place = on_host(team, me.host).ranks.index(me.rank)
    return names[place % len(names)] if names else LOOPBACK


def address_towards(host: str, port: int) -> str:
    """This host's own address on the way to another one."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as way:
        way.connect(address)  # sends nothing
        return str(way.getsockname()[0])


def interface_with(address: str) -> str:
    """The network interface that has an address."""
    for name, addresses in psutil.net_if_addrs().items():
        if any(one.address.partition("%")[0] == address for one in addresses):
            return name
    raise RunFailed(f"no network interface has the address {address}; name one by GLOO_SOCKET_IFNAME")


def mortal(port: int, within_s: int) -> None:
    """Has this process's connections to a port break down when nothing is heard from there for so long.

    By itself TCP goes on for a quarter of an hour, or for ever where nothing is under way; the store of torch, whose
    sockets it gives to nobody, would wait with it. Where a system tells of no connections, they stay as they are.
    """
    if sys.platform != "linux":
        return
    with contextlib.suppress(psutil.Error):
        for found in psutil.Process().net_connections("tcp"):
            if found.raddr and found.raddr.port == port:
                with contextlib.suppress(OSError):  # another thread has closed it meanwhile
                    _mortal(found.fd, port, within_s)


def _mortal(descriptor: int, port: int, within_s: int) -> None:
    with socket.socket(fileno=os.dup(descriptor)) as one:
        if one.getpeername()[1] != port:  # closed, and the number given to another one
            return
        one.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, max(1, within_s // 3))
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, within_s // 3))
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, within_s * 1000)
