"""Which network interface each rank meets the others by.

Rules of this file: with one rank to an interface, as cards go with GPUs, ranks of a host do not share a card. Names
are looked up before anything runs, each host for itself.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence

import psutil

from paceline.algorithms.errors import InputError, RunFailed
from paceline.algorithms.method import Me, on_host
from paceline.backend.groups import LOOPBACK

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


def interface_of(me: Me, team: Sequence[Me], names: Sequence[str]) -> str:
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
