"""What a method is: its programs, one per role, and what it promises.

A method is a frozen dataclass whose fields are its hyper-parameters. It is instantiated once per run and shared by all
ranks; everything that changes is in the states.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Literal

from paceline.algorithms.core.guarantees import Guarantee
from paceline.algorithms.core.lars import Lars, LayerRates
from paceline.algorithms.core.option_groups import (
    COUNT,
    COUNT_OR_NONE,
    DELAY,
    FRACTION,
    NOT_NEGATIVE,
    POSITIVE,
    STEPS,
    Range,
    misfits,
)
from paceline.algorithms.core.program import Routine
from paceline.algorithms.core.rules import Chain, Clip, Momentum, ScaleByLearningRate, Transform, WeightDecay
from paceline.algorithms.core.schedules import LearningRateSchedule
from paceline.algorithms.core.values import Group, Layer, Layout, Rank, Weights

Role = Literal["worker", "server"]


class StalenessKind(Enum):
    """Which of the things that papers call staleness a method's `staleness` column is."""

    STEPS = "steps between computing and applying a gradient"
    VERSION_LAG = "server updates between reading the weights and applying the gradient"
    EXCHANGE_LAG = "centre updates between reading the centre and the landing of the elastic delta"
    LOCAL_AGE = "local steps since the last average of everyone"
    PEER_AGE = "steps by which the weights received from a peer are older than one's own"


@dataclass(frozen=True, slots=True)
class RankContext:
    """A rank's view of the run: who it is, who the others are, and how the weights are laid out."""

    rank: Rank
    role: Role
    workers: Group
    node: Group
    """the workers on this rank's node"""
    leaders: Group
    """the first worker of every node"""
    world: Group
    server: Rank | None
    layout: Layout

    @property
    def host(self) -> int:
        """The number of the node on whose host the rank is; a server is on the first one's."""
        return self.leaders.ranks.index(self.node.ranks[0]) if self.role == "worker" else 0


def on_host(team: Sequence[RankContext], host: int) -> Group:
    """The ranks of a host, workers first."""
    return Group(tuple(me.rank for me in team if me.host == host))


RANGES: dict[str, Range] = {
    "learning_rate": POSITIVE,
    "momentum": FRACTION,
    "weight_decay": NOT_NEGATIVE,
    "max_grad_norm": POSITIVE,
    "moving_rate": POSITIVE,
    "elastic": NOT_NEGATIVE,
    "period": STEPS,
    "delay": DELAY,
    "k": COUNT,
    "seed": COUNT_OR_NONE,
}
"""what a hyper-parameter of this name must be, in every method that has it"""


@dataclass(frozen=True, slots=True)
class Replica:
    """The state of most programs: the steps completed, weights, and what the rule and a compression remember."""

    step: int
    weights: Weights
    optimizer_state: Any = None
    residual: Any = None
    """what compression has kept back; None without one"""


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """A distributed SGD method: programs, hyper-parameters with defaults, guarantees."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    name: ClassVar[str]
    staleness_kind: ClassVar[StalenessKind]
    guarantees: ClassVar[frozenset[Guarantee]]
    source: ClassVar[str]
    """the paper, and the section of the rule"""
    has_server: ClassVar[bool] = False
    alone: ClassVar[bool] = False
    """uses one worker, whatever the cluster has"""
    independent: ClassVar[bool] = False
    """workers do not wait for each other: they share one budget, and each stops at the first `NextStep` after it"""
    ranges: ClassVar[Mapping[str, Range]] = {}
    """what its own hyper-parameters must be, beside those whose names are in `RANGES`"""
    shared: ClassVar[bool] = False
    """the weights are in memory that all workers share; the `RecordUpdate` of any worker advances their version"""

    @property
    def weights_owner(self) -> Role:
        """The role whose `NextStep` is held against the stop rule and whose weights are the ones being learned."""
        return "server" if self.has_server else "worker"

    @property
    def deterministic(self) -> bool:
        return Guarantee.DETERMINISTIC in self.guarantees

    @classmethod
    def every_range(cls) -> Mapping[str, Range]:
        """What hyper-parameters must be, by their names in all methods or the `ranges` of this one and its bases."""
        own = {name: one for base in reversed(cls.__mro__) for name, one in vars(base).get("ranges", {}).items()}
        return {**RANGES, **own}

    def samples_per_step(self, batch: int, workers: int) -> int:
        """Samples that one step of the keeper's role stands for.

        Everybody's for a worker's step, one batch for a server's or where workers step independently.
        """
        return batch if self.has_server or self.independent else batch * workers

    def longest_period(self, workers: int) -> int:
        """Steps of a worker after which the method has done everything once, also what it does least often.

        A run with fewer steps is faster than the method, since it leaves something out. 1 where all steps are alike.
        """
        return 1

    def bounds(self, workers: int) -> Mapping[Guarantee, float]:
        """The figures of those guarantees that have one, for this number of workers."""
        return {}

    def problems(self, nodes: Sequence[Sequence[Rank]]) -> list[str]:
        """What is wrong with these hyper-parameters for workers placed on these nodes; empty if nothing.

        Each as ``name: what is wrong, what would be right``. A method with more to say adds to what this one finds.
        """
        return misfits(self, self.every_range())

    def begin(self, me: RankContext, vector: Any) -> Any:
        """The state in which the rank's program is first entered; `vector` holds the initial weights."""
        return Replica(0, Weights(vector, 0))

    def enter(self, me: RankContext, state: Any) -> Routine[Any]:
        """The program of the rank, entered at `state`; it returns the state it stopped in."""
        return self.server(me, state) if me.role == "server" else self.worker(me, state)

    @abstractmethod
    def worker(self, me: RankContext, state: Any) -> Routine[Any]:
        """What a worker does."""

    def server(self, me: RankContext, state: Any) -> Routine[Any]:
        """What the server does, in a method that has one."""
        raise NotImplementedError(f"{self.name} says has_server = True and defines no server")


@dataclass(frozen=True, kw_only=True)
class SgdMethod(Method):
    """A method whose steps are those of SGD: what its rate, its momentum and the rest of the rule mean."""

    learning_rate: float = 0.1
    """η; provenance: ours, plain SGD on the digits reaches 95 % in some hundred steps of 32 samples with it"""
    momentum: float = 0.0
    """μ of heavy ball, kept by each replica for itself; 0 is plain SGD"""
    nesterov: bool = False
    """Nesterov's momentum instead of heavy ball; provenance: the form of torch.optim.SGD"""
    weight_decay: float = 0.0
    """β, the coefficient of ‖x‖² / 2 in the loss; provenance: the default is ours, LARS's authors use 5e-4"""
    max_grad_norm: float | None = None
    """c, the norm that a whole gradient is shortened to; provenance: Pascanu, Mikolov, Bengio 2013"""
    schedule: LearningRateSchedule | None = None
    """how the rate changes with the updates that this rule has made; None: not at all"""
    lars: Lars | None = None
    """layer-wise rates; provenance: You, Gitman, Ginsburg 2017"""

    @property
    def decay(self) -> float:
        """The weight decay of the rule."""
        return self.weight_decay

    def rule(self, layers: Sequence[Layer]) -> Chain:
        """How a gradient becomes a step, for vectors in which these layers lie."""
        scale, decay = ScaleByLearningRate(self.learning_rate, self.schedule), self.decay
        links: list[Transform] = [] if self.max_grad_norm is None else [Clip(self.max_grad_norm)]
        if self.lars is not None:
            links.append(LayerRates(self.lars, scale, decay, self.momentum))
        elif decay:
            links.append(WeightDecay(decay))
        links.append(scale)
        if self.momentum:
            links.append(Momentum(self.momentum, self.nesterov))
        return Chain(tuple(links), layers)

    def problems(self, nodes: Sequence[Sequence[Rank]]) -> list[str]:
        found = super().problems(nodes)
        if self.nesterov and not self.momentum:
            found.append("nesterov: found true with a momentum of 0, expected a momentum above 0 with it")
        return found

    def begin(self, me: RankContext, vector: Any) -> Any:
        return Replica(0, Weights(vector, 0), self.rule(me.layout.layers).init(vector))


def build_team(method: Method, nodes: Sequence[Sequence[Rank]], layout: Layout) -> tuple[RankContext, ...]:
    """Every rank's view: workers 0…W−1 placed on `nodes`, then the server if the method has one.

    >>> from paceline.algorithms import find
    >>> [me.role for me in build_team(find("async-sgd")(), [[Rank(0)], [Rank(1)]], Layout(()))]
    ['worker', 'worker', 'server']
    """
    nodes = [[Rank(0)]] if method.alone else nodes
    workers = Group(tuple(rank for node in nodes for rank in node))
    server = Rank(len(workers)) if method.has_server else None
    everyone = Group((*workers.ranks, server)) if server is not None else workers
    leaders = Group(tuple(node[0] for node in nodes))
    mine = {rank: Group(tuple(node)) for node in nodes for rank in node}
    team = [RankContext(rank, "worker", workers, mine[rank], leaders, everyone, server, layout) for rank in workers]
    if server is not None:
        team.append(RankContext(server, "server", workers, Group((server,)), leaders, everyone, server, layout))
    return tuple(team)
