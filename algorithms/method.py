"""What a method is: its programs, one per role, and what it promises.

A method is a frozen dataclass whose fields are its hyper-parameters. It is instantiated once per run and shared by all
ranks; everything that changes is in the states.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import Any, ClassVar, Literal

from paceline.algorithms.guarantees import Guarantee
from paceline.algorithms.program import Routine
from paceline.algorithms.rules import Chain, Scale, Transform, Velocity
from paceline.algorithms.values import Group, Layer, Layout, Rank, Weights

Role = Literal["worker", "server"]


class Notion(Enum):
    """Which of the things that papers call staleness a method's `staleness` column is."""

    STEPS = "steps between computing and applying a gradient"
    VERSION_LAG = "server updates between reading the weights and applying the gradient"
    EXCHANGE_LAG = "centre updates between reading the centre and the landing of the elastic delta"
    LOCAL_AGE = "local steps since the last average of everyone"
    PEER_AGE = "steps by which the weights received from a peer are older than one's own"


@dataclass(frozen=True, slots=True)
class Me:
    """A rank's view of the run: who it is, who the others are, and how the weights are laid out."""

    rank: Rank
    role: Role
    workers: Group
    node: Group
    """the workers on this rank's node"""
    leaders: Group
    """the first worker of every node"""
    everyone: Group
    server: Rank | None
    layout: Layout


RANGES: dict[str, tuple[Callable[[float], bool], str]] = {
    "rate": (lambda rate: 0 < rate < inf, "a number above 0"),
    "momentum": (lambda momentum: 0 <= momentum < 1, "a number from 0 to below 1"),
    "moving_rate": (lambda rate: 0 < rate < inf, "a number above 0"),
    "elastic": (lambda rate: 0 <= rate < inf, "a number of 0 or more"),
    "delay": (lambda delay: delay >= 0, "a number of steps, 0 or more"),
    "seed": (lambda seed: seed >= 0, "a whole number of 0 or more"),
}
"""what a hyper-parameter of this name must be, in every method that has it"""


@dataclass(frozen=True, slots=True)
class Replica:
    """The state of most programs: the steps completed, weights, and what the rule remembers."""

    step: int
    weights: Weights
    memory: Any = None


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """A distributed SGD method: programs, hyper-parameters with defaults, guarantees."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    name: ClassVar[str]
    notion: ClassVar[Notion]
    guarantees: ClassVar[frozenset[Guarantee]]
    source: ClassVar[str]
    """the paper, and the section of the rule"""
    has_server: ClassVar[bool] = False
    alone: ClassVar[bool] = False
    """uses one worker, whatever the cluster has"""
    independent: ClassVar[bool] = False
    """workers wait for nobody: the budget is everybody's together, and each stops at the first `Next` after its end"""
    shared: ClassVar[bool] = False
    """the weights being learned lie in memory that all workers share; every worker's `Applied` moves their version"""

    @property
    def keeper(self) -> Role:
        """The role whose `Next` is held against the stop rule and whose weights are the ones being learned."""
        return "server" if self.has_server else "worker"

    @property
    def deterministic(self) -> bool:
        return Guarantee.DETERMINISTIC in self.guarantees

    def samples_per_step(self, batch: int, workers: int) -> int:
        """Samples that one step of the keeper's role stands for.

        Everybody's for a worker's step, one batch for a server's or where workers step independently.
        """
        return batch if self.has_server or self.independent else batch * workers

    def bounds(self, workers: int) -> Mapping[Guarantee, float]:
        """The figures of those guarantees that have one, for this number of workers."""
        return {}

    def problems(self, nodes: Sequence[Sequence[Rank]]) -> list[str]:
        """What is wrong with these hyper-parameters for workers placed on these nodes; empty if nothing.

        Each as ``name: what is wrong, what would be right``. A method with more to say adds to what this one finds.
        """
        return [
            f"{name}: found {value!r}, expected {what}"
            for name, (fits, what) in RANGES.items()
            if (value := getattr(self, name, None)) is not None and not fits(value)
        ]

    def begin(self, me: Me, vector: Any) -> Any:
        """The state in which the rank's program is first entered; `vector` holds the initial weights."""
        return Replica(0, Weights(vector, 0))

    def enter(self, me: Me, state: Any) -> Routine[Any]:
        """The program of the rank, entered at `state`; it returns the state it stopped in."""
        return self.server(me, state) if me.role == "server" else self.worker(me, state)

    @abstractmethod
    def worker(self, me: Me, state: Any) -> Routine[Any]:
        """What a worker does."""

    def server(self, me: Me, state: Any) -> Routine[Any]:
        """What the server does, in a method that has one."""
        raise NotImplementedError(f"{self.name} says has_server = True and defines no server")


@dataclass(frozen=True, kw_only=True)
class Descent(Method):
    """A method whose steps are those of SGD: what its rate and momentum mean."""

    rate: float = 0.1
    """η; provenance: ours, plain SGD on the digits reaches 95 % in some hundred steps of 32 samples with it"""
    momentum: float = 0.0
    """μ of heavy ball, kept by each replica for itself; 0 is plain SGD"""

    def rule(self, layers: Sequence[Layer]) -> Chain:
        """How a gradient becomes a step, for vectors in which these layers lie."""
        velocity: tuple[Transform, ...] = (Velocity(self.momentum),) if self.momentum else ()
        return Chain((Scale(self.rate), *velocity), layers)

    def begin(self, me: Me, vector: Any) -> Any:
        return Replica(0, Weights(vector, 0), self.rule(me.layout.layers).init(vector))


def crew(method: Method, nodes: Sequence[Sequence[Rank]], layout: Layout) -> tuple[Me, ...]:
    """Every rank's view: workers 0…W−1 placed on `nodes`, then the server if the method has one.

    >>> from paceline.algorithms import find
    >>> [me.role for me in crew(find("async-sgd")(), [[Rank(0)], [Rank(1)]], Layout(()))]
    ['worker', 'worker', 'server']
    """
    nodes = [[Rank(0)]] if method.alone else nodes
    workers = Group(tuple(rank for node in nodes for rank in node))
    server = Rank(len(workers)) if method.has_server else None
    everyone = Group((*workers.ranks, server)) if server is not None else workers
    leaders = Group(tuple(node[0] for node in nodes))
    mine = {rank: Group(tuple(node)) for node in nodes for rank in node}
    team = [Me(rank, "worker", workers, mine[rank], leaders, everyone, server, layout) for rank in workers]
    if server is not None:
        team.append(Me(server, "server", workers, Group((server,)), leaders, everyone, server, layout))
    return tuple(team)
