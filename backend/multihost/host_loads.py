"""Facts about every host of an externally launched job, and the load of other programs on each of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

from paceline.backend.multihost.world import STORE_S, World
from paceline.records.machine import OtherLoad, machine_facts

FACTS = ("processor", "cores", "memory_bytes")


class HostLoads:
    """A context manager that measures on every host which share of its cores other programs use.

    Every process enters it. In the leading process `hosts` has the result for each host at the exit: facts about the
    host, and `other_load`, 0 … 1.

    Args:
        world: the processes.
        name: distinguishes the measurements of a job.
    """

    def __init__(self, world: World, name: str) -> None:
        self.hosts: list[dict[str, Any]] = []
        self._world, self._name, self._load = world, name, OtherLoad(world.others)

    def __enter__(self) -> Self:
        self._load.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._load.__exit__(kind, error, trace)
        world = self._world
        if error is not None or not world.first:
            return
        facts = machine_facts()
        said = {name: facts[name] for name in FACTS} | {"share": self._load.share, "own": self._load.own_share}
        world.store.set(f"load/{self._name}/{world.here}", json.dumps(said))
        if world.leads:
            keys = [f"load/{self._name}/{host}" for host in range(len(world.hosts))]
            world.store.wait(keys, timedelta(seconds=STORE_S))
            self.hosts = loads([json.loads(world.store.get(key)) for key in keys], world.machines)

    @property
    def share(self) -> float:
        """The highest load of a host; 0 in processes other than the leading one."""
        return max((host["other_load"] for host in self.hosts), default=0.0)


def other_load(world: World | None, name: str) -> OtherLoad | HostLoads:
    """Returns the context manager for the load of other programs on this machine, or on the hosts of a world.

    Args:
        world: the processes, if a launcher has started them.
        name: as for `HostLoads`.
    """
    return OtherLoad() if world is None else HostLoads(world, name)


def loads(said: Sequence[Mapping[str, Any]], machines: Sequence[str]) -> list[dict[str, Any]]:
    """Returns facts and the load of each host; hosts that are one machine are no load for each other.

    Args:
        said: what each host has measured: its facts, the share of the machine's cores that were used by programs other
            than the host's processes, and the share that these used (`own`).
        machines: the machine of each host.

    >>> said = [{"cores": 2, "share": 0.5, "own": 0.25}, {"cores": 2, "share": 0.25, "own": 0.5}]
    >>> loads(said, ["a", "a"])
    [{'cores': 2, 'other_load': 0.0}, {'cores': 2, 'other_load': 0.0}]
    >>> [one["other_load"] for one in loads(said, ["a", "b"])]
    [0.5, 0.25]
    """
    found = []
    for here, one in enumerate(said):
        same = [host for host, machine in enumerate(machines) if machine == machines[here] and host != here]
        beside = sum(said[host]["own"] for host in same)
        facts = {name: value for name, value in one.items() if name not in ("share", "own")}
        found.append({**facts, "other_load": max(0.0, one["share"] - beside)})
    return found
