"""The cores that each rank may use: pinned to its own cores, pinned to a NUMA node, or not pinned.

Rules of this file:

* A core is what Linux calls a CPU: a hardware thread. Only cores that the launcher may use are assigned.
* The ranks of one node of the scenario are placed on one NUMA node if they fit, since they share memory.
* With `auto`, ranks are pinned to cores only if at least one core is left for other programs: a pinned rank cannot
  leave a core that another program uses.
* Each rank pins itself in its own process; the launcher's affinity does not change.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.method import RankContext
from paceline.algorithms.core.values import Group, Rank

Pin = Literal["auto", "none", "cores", "numa"]
Domains = Sequence[Sequence[int]]
"""the cores of each NUMA node"""
SYSTEM = Path("/sys/devices/system/node")


@dataclass(frozen=True, slots=True)
class Placement:
    """The cores of the ranks.

    Args:
        pinned: to what: "cores", "numa", or "none".
        why: the reason, in words.
        cores: the cores of each rank; empty if nothing is pinned.
    """

    pinned: Literal["cores", "numa", "none"]
    why: str
    cores: Mapping[Rank, tuple[int, ...]] = field(default_factory=dict)

    @property
    def words(self) -> str:
        """The placement in one line.

        >>> Placement("cores", "as many cores as ranks", {Rank(0): (0,), Rank(1): (2, 3)}).words
        'pinned: rank 0 to core 0, rank 1 to cores 2,3 (as many cores as ranks)'
        """
        if not self.cores:
            return f"not pinned ({self.why})"
        each = [
            f"rank {rank} to core{'s' * (len(cores) > 1)} {','.join(map(str, cores))}"
            for rank, cores in self.cores.items()
        ]
        return f"pinned: {', '.join(each)} ({self.why})"

    def record(self) -> dict[str, Any]:
        """Returns the entries of a run's record."""
        cores = {str(rank): list(cores) for rank, cores in self.cores.items()}
        return {"pinned": self.pinned, "why": self.why, "cores": cores, "words": self.words}

    def take(self, rank: Rank) -> None:
        """Pins this process and the threads that it starts later."""
        if rank in self.cores:
            os.sched_setaffinity(0, self.cores[rank])


def placement(pin: Pin, team: Sequence[RankContext], threads: int, domains: Domains | None = None) -> Placement:
    """Chooses the cores of the ranks of a run.

    Args:
        pin: "cores" gives each rank its own cores; "numa" gives each node of the scenario a NUMA node; "auto" means
            "cores" if at least one core is left over, else "none".
        team: the ranks and their nodes.
        threads: threads of each rank.
        domains: the machine's cores by NUMA node; read from the system if None.

    Raises:
        InputError: `pin` is "cores" and there are too few of them.
    """
    domains = found_domains() if domains is None else domains
    count, needed = sum(map(len, domains)), len(team) * threads
    if pin == "none" or not domains:
        return Placement("none", "train.cpu_affinity is none" if domains else "this system does not list its cores")
    if pin == "numa":
        return _to_domains(team, domains)
    room = f"{count} core{'s' * (count > 1)} for {len(team)} rank{'s' * (len(team) > 1)} of {threads} thread"
    room += "s" * (threads > 1)
    if pin == "auto" and count <= needed:
        return Placement("none", f"{room}, and none left over" if count == needed else room)
    if count < needed:
        raise InputError(
            f"train.cpu_affinity: found cores, with {room}; expected {needed} cores or more, or auto or none"
        )
    return Placement("cores", room, _to_cores(team, threads, domains))


def _to_cores(team: Sequence[RankContext], threads: int, domains: Domains) -> dict[Rank, tuple[int, ...]]:
    """Assigns cores node by node: from the first NUMA node with enough cores for all of it, else from all in order."""
    free = [list(domain) for domain in domains]
    taken: dict[Rank, tuple[int, ...]] = {}
    for node in _nodes(team):
        whole = [domain for domain in free if len(domain) >= threads * len(node)][:1]
        for rank in node:
            cores = [core for domain in whole or free for core in domain][:threads]
            taken[rank] = tuple(cores)
            free = [[core for core in domain if core not in cores] for domain in free]
            whole = [[core for core in domain if core not in cores] for domain in whole]
    return taken


def _to_domains(team: Sequence[RankContext], domains: Domains) -> Placement:
    """Assigns the scenario's nodes to NUMA nodes in turn."""
    if len(domains) == 1:
        return Placement("none", "train.cpu_affinity is numa, and this machine has one NUMA node")
    cores = {rank: tuple(domains[number % len(domains)]) for number, node in enumerate(_nodes(team)) for rank in node}
    return Placement("numa", f"{len(domains)} NUMA nodes", cores)


def _nodes(team: Sequence[RankContext]) -> list[Group]:
    return list(dict.fromkeys(me.node for me in team))


def found_domains(system: Path = SYSTEM) -> list[list[int]]:
    """Returns the cores that this process may use by NUMA node: one node if the system has no list, else none."""
    if not hasattr(os, "sched_getaffinity"):
        return []
    allowed = os.sched_getaffinity(0)
    lists = sorted(system.glob("node[0-9]*/cpulist"), key=lambda path: int(path.parent.name.removeprefix("node")))
    domains = [[core for core in cores_of(path.read_text()) if core in allowed] for path in lists]
    return [domain for domain in domains if domain] or [sorted(allowed)]


def cores_of(text: str) -> list[int]:
    """Parses a list of cores in Linux's notation.

    >>> cores_of("0-2,8,10-11")
    [0, 1, 2, 8, 10, 11]
    """
    ends = [part.partition("-") for part in text.strip().split(",") if part]
    return [core for first, _, last in ends for core in range(int(first), int(last or first) + 1)]
