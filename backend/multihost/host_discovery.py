"""Determines which processes share a host, from the entries that they write to the store.

Rules of this file:

* Processes share a host if they share its memory, see each other's process ids, and have the same network. Containers
  or namespaces on one machine may not: each is then a host of its own, and messages between them use TCP.
* If the launcher numbers its nodes, these numbers decide.
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
"""namespaces of Linux that determine a process's network and the process ids that it sees"""


def entry(joined: Joined, folder: Path | None) -> dict[str, Any]:
    """Returns the entry of a process for the store, for JSON.

    Args:
        joined: how it was started.
        folder: the folder that it has created in its host's memory; None if it is not the host's first process.
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
    """Groups processes by host, in the order of the hosts' first processes.

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
    """Returns an identifier of this process's host: the machine, the file system in memory, and the namespaces."""
    own = Path("/proc/self/ns")
    namespaces = [str((own / name).stat().st_ino) for name in NAMESPACES] if own.exists() else []
    return " ".join([machine(), str(SHARED.stat().st_dev), *namespaces])


def machine() -> str:
    """Returns an identifier of this machine: the id of its last boot if there is one."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return boot.read_text().strip() if boot.exists() else socket.gethostname()
