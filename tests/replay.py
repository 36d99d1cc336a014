"""Message patterns by the simplest algorithm: a heap of events, and rates solved from scratch at every change.

Shares only the pattern itself, which is data, with the engine: no SimPy, no incremental solving, no short cuts. At the
end, `simulate_by_events` carries a collective out as the engine does beside other traffic.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

import numpy as np
import simpy
from numpy.typing import NDArray

from paceline.algorithms.core.values import Rank
from paceline.simulator.collectives.execution import EventDriver, begun
from paceline.simulator.collectives.patterns import Pattern, Round
from paceline.simulator.collectives.plans import CollectivePlan
from paceline.simulator.flows.fabric import Fabric
from paceline.simulator.flows.flow_engine import Flows
from paceline.simulator.flows.path_tables import Amounts, Numbers, Path, PathTable, stacked

Key = tuple[int, int, int, int]
"""a message: its part, round, repetition and number"""


@dataclass(eq=False)
class Uniform:
    """Ranks on a star, each with one port in each direction, or several ranks per node that share its ports."""

    p: int
    alpha_s: float = 2e-6
    bytes_per_s: float = 10e9
    reduce_s_per_byte: float = 0.0
    workers_per_node: int = 1
    inside_s: float = 0.5e-6
    inside_bytes_per_s: float = 40e9
    capacity: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for node in range(-(-self.p // self.workers_per_node)):
            self.capacity[f"up {node}"] = self.capacity[f"down {node}"] = self.bytes_per_s
        for rank in range(self.p):
            self.capacity[f"out {rank}"] = self.capacity[f"into {rank}"] = self.inside_bytes_per_s

    @property
    def mean_capacity(self) -> dict[str, float]:
        return self.capacity

    def node_of(self, rank: Rank) -> int:
        return rank // self.workers_per_node

    def reduce_cost(self, ranks: object, nbytes: float, library: object) -> float:
        return self.reduce_s_per_byte

    def architectures(self, ranks: object) -> set[str]:
        return {""}

    def memory_bytes_per_s(self, ranks: object) -> float:
        return float("inf")

    def seats_in_memory(self, ranks: object) -> tuple[str, ...]:
        return ()

    def core_path(self, rank: Rank, footprint: float) -> Path:
        raise NotImplementedError("its ranks share no memory")

    @property
    def broken(self) -> None:
        return None

    def paths(self, sources: Numbers, targets: Numbers, nbytes: Amounts) -> PathTable:
        return stacked(list(map(self.path, sources.tolist(), targets.tolist(), nbytes.tolist())))

    def path(self, source: Rank, to: Rank, nbytes: float) -> Path:
        here, there = self.node_of(source), self.node_of(to)
        if here == there:
            return Path((f"out {source}", f"into {to}"), self.inside_s, "memory")
        return Path((f"up {here}", f"down {there}"), self.alpha_s)


def fair(routes: NDArray[np.float64], capacity: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the max-min fair rates of the flows whose links are in the rows."""
    rates, free = np.zeros(len(routes)), capacity.copy()
    rising = np.ones(len(routes), dtype=bool)
    while rising.any():
        users = routes[rising].sum(axis=0)
        shares = np.divide(free, users, out=np.full(len(free), np.inf), where=users > 0)
        level = shares.min()
        stopped = rising & (routes[:, shares <= level * (1 + 1e-13)] > 0).any(axis=1)
        rates[stopped] = level
        free = free - level * routes[stopped].sum(axis=0)
        rising &= ~stopped
    return rates


class Replay:
    """A run of one or more patterns, and of plain flows, over links that they share."""

    def __init__(self, capacity: Mapping[str, float]) -> None:
        self.number = {port: index for index, port in enumerate(capacity)}
        self.capacity = np.array(list(capacity.values()))
        self.now = 0.0
        self.heap: list[tuple[float, int, Callable[[], None]]] = []
        self.order = count()
        self.left = np.zeros(0)
        self.routes = np.zeros((0, len(self.number)))
        self.after: list[Callable[[], None]] = []

    def at(self, when_s: float, then: Callable[[], None]) -> None:
        heapq.heappush(self.heap, (when_s, next(self.order), then))

    def flow(self, ports: Sequence[str], nbytes: float, then: Callable[[], None]) -> None:
        if nbytes == 0.0:
            self.at(self.now, then)
            return
        row = np.zeros((1, len(self.number)))
        row[0, [self.number[port] for port in ports]] = 1.0
        self.left, self.routes = np.append(self.left, nbytes), np.concatenate([self.routes, row])
        self.after.append(then)

    def run(self) -> None:
        while self.heap or self.after:
            used = self.routes.any(axis=0)
            rates = fair(self.routes[:, used], self.capacity[used])
            ends = self.now + self.left / rates
            due_s = self.heap[0][0] if self.heap else np.inf
            then_s = min(due_s, float(ends.min(initial=np.inf)))
            through = ends <= then_s + 1e-13 * (then_s - self.now) + 1e-15 * then_s
            self.left = self.left - rates * (then_s - self.now)
            self.now = then_s
            ended = [then for then, over in zip(self.after, through, strict=True) if over]
            self.after = [then for then, over in zip(self.after, through, strict=True) if not over]
            self.left, self.routes = self.left[~through], self.routes[~through]
            for then in ended:
                then()
            while self.heap and self.heap[0][0] <= self.now:
                heapq.heappop(self.heap)[2]()


class Players:
    """The ranks of one pattern, each of which runs its rounds in order."""

    def __init__(
        self, run: Replay, pattern: Pattern, fabric: Uniform, entries_s: Sequence[float] | None = None
    ) -> None:
        self.run, self.fabric, self.pattern = run, fabric, pattern
        self.finish_s = list(entries_s) if entries_s is not None else [0.0] * fabric.p
        self.turns: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for part, rounds in enumerate(pattern.parts):
            for number, round_ in enumerate(rounds):
                for place in sorted({*round_.sources.tolist(), *round_.targets.tolist()}):
                    turns = self.turns.setdefault((part, place), [])
                    turns.extend((number, repetition) for repetition in range(round_.times))
        self.next = dict.fromkeys(self.turns, -1)
        self.open: dict[tuple[int, int], int] = {}
        self.come: dict[Key, int] = {}
        for thread in self.turns:
            run.at(self.finish_s[thread[1]], lambda thread=thread: self.enter(thread))  # type: ignore[misc]

    def messages(self, thread: tuple[int, int]) -> tuple[Round, list[Key]]:
        part, place = thread
        number, repetition = self.turns[thread][self.next[thread]]
        round_ = self.pattern.parts[part][number]
        places = [at for at in range(len(round_.sources)) if place in (round_.sources[at], round_.targets[at])]
        return round_, [(part, number, repetition, at) for at in places]

    def enter(self, thread: tuple[int, int]) -> None:
        self.next[thread] += 1
        if self.next[thread] == len(self.turns[thread]):
            self.finish_s[thread[1]] = max(self.finish_s[thread[1]], self.run.now)
            return
        round_, keys = self.messages(thread)
        self.open[thread] = len(keys)
        for key in keys:
            if round_.buffered:
                if round_.sources[key[3]] == thread[1]:
                    self.start(round_, key)
                else:
                    self.meet(round_, key)
            else:
                self.come[key] = self.come.get(key, 0) + 1
                if self.come[key] == 2:
                    self.start(round_, key)

    def start(self, round_: Round, key: Key) -> None:
        source, target, nbytes = int(round_.sources[key[3]]), int(round_.targets[key[3]]), float(round_.nbytes[key[3]])
        path = self.fabric.path(Rank(source), Rank(target), nbytes)

        def through() -> None:
            self.run.at(self.run.now + path.latency_s, arrived)
            if not round_.blocking:
                self.end(key[0], source)

        def arrived() -> None:
            if round_.blocking:
                self.end(key[0], source)
            if round_.buffered:
                self.meet(round_, key)
            else:
                self.take(round_, key)

        self.run.flow(path.ports, nbytes, through)

    def meet(self, round_: Round, key: Key) -> None:
        """A buffered message is received when it has arrived and its receiver is ready."""
        self.come[key] = self.come.get(key, 0) + 1
        if self.come[key] == 2:
            self.take(round_, key)

    def take(self, round_: Round, key: Key) -> None:
        added_s = float(round_.nbytes[key[3]]) * self.fabric.reduce_s_per_byte if round_.reduces else 0.0
        self.run.at(self.run.now + added_s, lambda: self.end(key[0], int(round_.targets[key[3]])))

    def end(self, part: int, place: int) -> None:
        self.open[part, place] -= 1
        if self.open[part, place] == 0:
            self.enter((part, place))


def replayed_s(pattern: Pattern, fabric: Uniform, entries_s: Sequence[float] | None = None) -> list[float]:
    """When each rank is done, alone."""
    run = Replay(fabric.capacity)
    players = Players(run, pattern, fabric, entries_s)
    run.run()
    return players.finish_s


# --- the same with SimPy events, for shorter ways to compute these times ----------------------------------------------


def simulate_by_events(plan: CollectivePlan, fabric: Fabric, entries_s: Amounts) -> Amounts:
    """Returns when each rank is done, given when it enters, with a network that nothing else uses."""
    env = simpy.Environment(0.0)
    flows = Flows(env, fabric.capacity)

    def carry(_one: Rank, _other: Rank, nbytes: float, path: Path) -> simpy.Event:
        return flows.begin(path.ports, nbytes, path.limit_bytes_per_s)

    driver = EventDriver(env, carry, plan, 0.0, begun(plan, entries_s))
    env.run(driver.done)
    return driver.progress.finish_s(entries_s)
