"""Which processes share a host: what each says of itself when they meet, and what follows from it.

Rules of this file:

* Processes share a host if they share its memory, see each other's ids, and have one network. Of containers, or
  namespaces, on one machine that may be false: then each is a host of its own, and messages between them go by TCP.
* A launcher that numbers its nodes is believed instead.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import torch

from paceline.backend.multihost.rank_mapping import Host
from paceline.backend.posix.run_folders import SHARED
from paceline.backend.transports.launch_environment import Joined

NAMESPACES = ("net", "pid")
"""of Linux: which network a process has, and whose ids it sees"""


def entry(joined: Joined, folder: Path | None) -> dict[str, Any]:
    """What a process says of itself: JSON, for the store.

    Args:
        joined: how it was started.
        folder: the one that it has made in its host's memory; None where it is not the host's first.
    """
    return {
        "node": host() if joined.node is None else str(joined.node),
        "machine": machine(),
        "name": socket.gethostname(),
        "local": joined.local,
        "id": os.getpid(),
        "folder": str(folder or ""),
        "gpus": torch.cuda.device_count(),
    }


def hosts_of(entries: list[dict[str, Any]]) -> tuple[Host, ...]:
    """Processes by host, hosts in the order of their first processes.

    >>> hosts_of([{"node": "a", "name": "n1", "local": 1}, {"node": "a", "name": "n1", "local": 0}])
    (Host(name='n1', processes=(1, 0)),)
    """
    nodes = dict.fromkeys(entry["node"] for entry in entries)
    found = []
    for node in nodes:
        mine = [process for process, entry in enumerate(entries) if entry["node"] == node]
        mine.sort(key=lambda process: entries[process]["local"])
        found.append(Host(entries[mine[0]]["name"], tuple(mine)))
    return tuple(found)


def host() -> str:
    """What tells this process's host from others: the machine, where files in memory lie, and the namespaces."""
    own = Path("/proc/self/ns")
    namespaces = [str((own / name).stat().st_ino) for name in NAMESPACES] if own.exists() else []
    return " ".join([machine(), str(SHARED.stat().st_dev), *namespaces])


def machine() -> str:
    """What tells machines apart."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return boot.read_text().strip() if boot.exists() else socket.gethostname()
