"""Which cores each rank may use: pinned to cores of its own, to a NUMA node, or wherever the kernel puts it.

Rules of this file:

* A core is what the kernel calls one: a hardware thread. Only cores that the launcher may use are given away.
* The ranks of one node of the scenario stay in one NUMA node where they fit, since they share memory.
* By itself nothing is pinned to a core unless one is left for everybody else: a pinned rank cannot leave a core that
  another program uses.
* Each rank pins itself, in its own process; the launcher and whatever else runs stay as they are.
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
    """Where ranks run.

    Args:
        pinned: to what: "cores", "numa", or "none".
        why: what decided it, in words.
        cores: of each rank; of none where nothing is pinned.
    """

    pinned: Literal["cores", "numa", "none"]
    why: str
    cores: Mapping[Rank, tuple[int, ...]] = field(default_factory=dict)

    @property
    def words(self) -> str:
        """In one line.

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
        """As it stands in a run's record."""
        cores = {str(rank): list(cores) for rank, cores in self.cores.items()}
        return {"pinned": self.pinned, "why": self.why, "cores": cores, "words": self.words}

    def take(self, rank: Rank) -> None:
        """Pins this process and the threads that it begins later."""
        if rank in self.cores:
            os.sched_setaffinity(0, self.cores[rank])


def placement(pin: Pin, team: Sequence[RankContext], threads: int, domains: Domains | None = None) -> Placement:
    """Where the ranks of a run go.

    Args:
        pin: "cores" gives each rank cores of its own; "numa" each node of the scenario a NUMA node; "auto" is "cores"
            where one is left over, else "none".
        team: the ranks, and their nodes.
        threads: of each rank.
        domains: the machine's; found out if not given.

    Raises:
        InputError: "cores" are asked for, and there are too few of them.
    """
    domains = found_domains() if domains is None else domains
    count, needed = sum(map(len, domains)), len(team) * threads
    if pin == "none" or not domains:
        return Placement(
            "none", "train.cpu_affinity is none" if domains else "this system does not say what cores it has"
        )
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
    """Node by node: from the first NUMA node with room for all of it, else from all in their order."""
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
    """The scenario's nodes to NUMA nodes in turn."""
    if len(domains) == 1:
        return Placement("none", "train.cpu_affinity is numa, and this machine has one NUMA node")
    cores = {rank: tuple(domains[number % len(domains)]) for number, node in enumerate(_nodes(team)) for rank in node}
    return Placement("numa", f"{len(domains)} NUMA nodes", cores)


def _nodes(team: Sequence[RankContext]) -> list[Group]:
    return list(dict.fromkeys(me.node for me in team))


def found_domains(system: Path = SYSTEM) -> list[list[int]]:
    """The cores that this process may use, by NUMA node; one of all where the system has no list, none without any."""
    if not hasattr(os, "sched_getaffinity"):
        return []
    allowed = os.sched_getaffinity(0)
    lists = sorted(system.glob("node[0-9]*/cpulist"), key=lambda path: int(path.parent.name.removeprefix("node")))
    domains = [[core for core in cores_of(path.read_text()) if core in allowed] for path in lists]
    return [domain for domain in domains if domain] or [sorted(allowed)]


def cores_of(text: str) -> list[int]:
    """A list of cores as Linux writes it.

    >>> cores_of("0-2,8,10-11")
    [0, 1, 2, 8, 10, 11]
    """
    ends = [part.partition("-") for part in text.strip().split(",") if part]
    return [core for first, _, last in ends for core in range(int(first), int(last or first) + 1)]
