"""The base class of methods: programs, one per role, hyper-parameters and guarantees.

A method is a frozen dataclass whose fields are its hyper-parameters. It is instantiated once per run and shared by all
ranks; everything that changes is in the states of the programs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from fractions import Fraction
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar

from paceline.algorithms.core.buckets import Bucket, shards
from paceline.algorithms.core.fast_values import fast_constructor
from paceline.algorithms.core.guarantees import AnyGuarantee, AppliedGradient, Guarantee
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
from paceline.algorithms.core.rules import (
    ADAM_LEARNING_RATE,
    ADAMW_DECAY,
    AdamW,
    Chain,
    Clip,
    Lars,
    LayerRates,
    Momentum,
    ScaleByLearningRate,
    Transform,
    WeightDecay,
)
from paceline.algorithms.core.schedules import LearningRateSchedule
from paceline.algorithms.core.values import Group, Layer, Layout, Rank, Weights

Role = Literal["worker", "server"]
Optimizer = Literal["sgd", "adam", "adamw"]
M = TypeVar("M", bound="Method")


class StalenessKind(Enum):
    """The definition of staleness that a method uses for the column `staleness`."""

    STEPS = "steps between computing and applying a gradient"
    VERSION_LAG = "server updates between reading the weights and applying the gradient"
    EXCHANGE_LAG = "centre updates between reading the centre and the landing of the elastic delta"
    LOCAL_AGE = "local steps since the last average of everyone"
    PEER_AGE = "steps by which the weights received from a peer are older than one's own"


@dataclass(frozen=True, slots=True)
class RankContext:
    """A rank's view of the run: its own rank, the groups of ranks, and the layout of the weights."""

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
    batches: tuple[int, ...] = field(default=(), repr=False, hash=False)
    """samples of each worker's batch, by rank, as the run was started"""
    before: int = field(default=0, repr=False, compare=False)
    """samples of a global batch that belong to the workers before this one"""
    servers: tuple[Rank, ...] = ()
    """all servers; `server` is the first one"""
    shards: tuple[Bucket, ...] = field(default=(), repr=False, hash=False)
    """the layers on each server; empty unless there are several servers"""

    @property
    def host(self) -> int:
        """The number of the node on whose host the rank runs: servers run on those of the nodes in turn."""
        if self.role == "worker":
            return self.leaders.ranks.index(self.node.ranks[0])
        return (self.rank - len(self.workers)) % len(self.leaders)

    @property
    def shard(self) -> Bucket | None:
        """The layers that this rank holds as one of several servers; None at any other rank."""
        return self.shards[self.servers.index(self.rank)] if self.shards and self.role == "server" else None


def on_host(team: Sequence[RankContext], host: int) -> Group:
    """Returns the ranks on a host, workers first."""
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
    "beta1": FRACTION,
    "beta2": FRACTION,
    "epsilon": POSITIVE,
}
"""the permitted values of hyper-parameters with these names, in all methods"""


FADING = 0.25
"""the largest momentum of a linear form: after ten steps a millionth is left"""


def changed(method: M, **values: Any) -> M:
    """Returns a method with other hyper-parameters; those that it does not have are left out."""
    own = {field.name for field in fields(method)}
    return replace(method, **{name: value for name, value in values.items() if name in own})


@fast_constructor
@dataclass(frozen=True, slots=True)
class Replica:
    """The state of most programs: completed steps, weights, optimizer state and compression residual."""

    step: int
    weights: Weights
    optimizer_state: Any = None
    residual: Any = None
    """the memory of compression; None without compression"""


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """A distributed SGD method: programs, hyper-parameters with defaults, guarantees."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    name: ClassVar[str]
    staleness_kind: ClassVar[StalenessKind]
    guarantees: ClassVar[frozenset[AnyGuarantee]]
    source: ClassVar[str]
    """the paper, and the section of the rule"""
    has_server: ClassVar[bool] = False
    alone: ClassVar[bool] = False
    """uses one worker, regardless of the cluster"""
    independent: ClassVar[bool] = False
    """workers do not wait for each other: they share one budget, and each stops at its next `NextStep` after that"""
    ranges: ClassVar[Mapping[str, Range]] = {}
    """the permitted values of its own hyper-parameters, in addition to `RANGES`"""
    shared: ClassVar[bool] = False
    """the weights are in shared memory; the `RecordUpdate` of any worker advances their version"""

    divides_batch: ClassVar[bool] = False
    """the batch of the scenario is that of all workers together, who compute parts of it; so none has another batch"""
    drops_gradients: ClassVar[bool] = False
    """whether a gradient may be computed and not be part of any update"""

    @property
    def num_servers(self) -> int:
        """The number of servers."""
        return int(self.has_server)

    @property
    def optimizer_copies(self) -> int:
        """The numbers that the optimizer of a worker keeps for each weight in its device's memory: at least 1."""
        return 1

    @property
    def micro_batches(self) -> int:
        """The micro-batches of `batch_per_worker` samples, one after the other, in one step of a worker."""
        return 1

    @property
    def weights_owner(self) -> Role:
        """The role to which the stop rule applies and whose weights are evaluated."""
        return "server" if self.has_server else "worker"

    @property
    def deterministic(self) -> bool:
        return Guarantee.DETERMINISTIC in self.guarantees

    @property
    def even_steps(self) -> bool:
        """Whether every step of the role that owns the weights uses `samples_per_step` samples.

        If not, a budget counts these steps, of which each may use fewer or more samples.
        """
        return Guarantee.CONSTANT_TOTAL not in self.guarantees  # where each gradient has a batch of its own

    @classmethod
    def every_range(cls) -> Mapping[str, Range]:
        """Returns the permitted values of hyper-parameters: `RANGES`, and the `ranges` of this method and its bases."""
        own = {
            name: own_range
            for base in reversed(cls.__mro__)
            for name, own_range in vars(base).get("ranges", {}).items()
        }
        return {**RANGES, **own}

    def samples_per_step(self, batch: int, workers: int) -> int:
        """Returns the samples in one step of the role that owns the weights.

        The batches of all workers for a worker's step; one batch for a server's step or if workers step independently.

        Args:
            batch: samples of one worker in one step.
            workers: number of workers.
        """
        return batch if self.has_server or self.independent else batch * workers

    def longest_period(self, workers: int) -> int:
        """Returns the number of worker steps in which each periodic action of the method happens at least once.

        A run with fewer steps would measure too high a speed, because it leaves out an action. 1 if all steps are
        alike.
        """
        return 1

    def parts_per_step(self, me: RankContext) -> int:
        """Returns into how many parts, exchanged one by one, a rank divides its gradient; 1 if it is exchanged whole.

        Args:
            me: the rank.
        """
        return 1

    def bounds(self, workers: int) -> Mapping[Guarantee, float]:
        """Returns the numbers of the guarantees that have one, for this number of workers."""
        return {}

    def sees_own_updates(self, workers: int) -> bool:
        """Returns whether a worker computes each gradient at weights that contain its gradients before.

        By default a server promises it: it answers a gradient after the update with it. A method whose server answers
        earlier, or whose workers continue without an answer, overrides this.

        Args:
            workers: number of workers.
        """
        return self.has_server and self.staleness_kind is StalenessKind.VERSION_LAG

    def linear_form(self) -> Self | None:
        """Returns the method with hyper-parameters at which its weights are a linear function of the gradients.

        The influence of what is past has to fade in some ten steps or rounds. `paceline check` measures there how much
        each gradient counts and compares it with `gradient_weight`. None: there is no such form, and nothing is
        measured.
        """
        return None

    def gradient_weight(self, gradient: AppliedGradient) -> float:
        """Returns how much an applied gradient counts, in the linear form: w where the weights get −w times it.

        The weights are those of every worker and of the server when all that the gradient has set in motion has ended:
        averages, the steps of a momentum, the sending of a residual. What a method multiplies its gradients by, it
        declares here, for batches that are all equal: a gradient of b_i samples counts b_i P / B times as much, with
        the global batch B of P workers, because every sample counts as much.

        Args:
            gradient: the gradient, and the update that applies it.
        """
        raise NotImplementedError(f"{self.name} has a linear form and no gradient_weight")

    def initial_weight(self, updates: int) -> float | None:
        """Returns how much the initial weights count after so many updates without gradients, with weight decay alone.

        None: the method says nothing about it, and `paceline check` does not compare.

        Args:
            updates: of the server, or else of each worker.
        """
        return None

    def problems(self, nodes: Sequence[Sequence[Rank]]) -> list[str]:
        """Returns the errors in the hyper-parameters for workers on these nodes.

        Each has the form ``name: what is wrong, what would be right``. A method with further conditions adds to the
        result of this one.
        """
        return misfits(self, self.every_range())

    def begin(self, me: RankContext, vector: Any) -> Any:
        """Returns the initial state of a rank's program.

        Args:
            me: the rank.
            vector: the initial weights.
        """
        return Replica(0, Weights(vector, 0))

    def enter(self, me: RankContext, state: Any) -> Routine[Any]:
        """Returns the program of a rank; the program returns the state in which it stopped.

        Args:
            me: the rank.
            state: the result of `begin`, of a previous run or of a checkpoint.
        """
        return self.server(me, state) if me.role == "server" else self.worker(me, state)

    @abstractmethod
    def worker(self, me: RankContext, state: Any) -> Routine[Any]:
        """Returns the program of a worker; arguments as in `enter`."""

    def server(self, me: RankContext, state: Any) -> Routine[Any]:
        """Returns the program of the server, if the method has one; arguments as in `enter`."""
        raise NotImplementedError(f"{self.name} says has_server = True and defines no server")


@dataclass(frozen=True, kw_only=True)
class SgdMethod(Method):
    """A method with steps of SGD, Adam or AdamW: the hyper-parameters of the optimizer chain."""

    rate_of_adam: ClassVar[float | None] = ADAM_LEARNING_RATE
    """the learning rate with Adam and AdamW if none is given; None: the default of the field"""

    learning_rate: float = 0.1
    """η; provenance: ours, plain SGD on the digits reaches 95 % in some hundred steps of 32 samples with it. With adam
    and adamw the default is 0.001, that of torch.optim.Adam and AdamW"""
    optimizer: Optimizer = "sgd"
    """the rule that turns a gradient into a step: sgd; adam, whose weight decay is part of the gradient; adamw, whose
    weight decay bypasses the moments; provenance: as torch.optim.SGD, Adam and AdamW"""
    beta1: float = 0.9
    """β1 of adam and adamw; provenance: the default of torch.optim.Adam and AdamW, as are those below"""
    beta2: float = 0.999
    """β2 of adam and adamw"""
    epsilon: float = 1e-8
    """ε of adam and adamw"""
    momentum: float = 0.0
    """μ of heavy ball, separate for each replica; 0 is plain SGD"""
    nesterov: bool = False
    """Nesterov's momentum instead of heavy ball; provenance: the form of torch.optim.SGD"""
    weight_decay: float | None = None
    """β, the coefficient of ‖x‖² / 2 in the loss, or with adamw what a step takes of the weights per η; None: 0, and
    0.01 with adamw; provenance: torch's defaults; LARS's authors use 5e-4"""
    max_grad_norm: float | None = None
    """c, the maximum norm of a whole gradient; provenance: Pascanu, Mikolov, Bengio 2013"""
    schedule: LearningRateSchedule | None = None
    """the learning rate as a function of the updates that this rule has made; None: constant"""
    lars: Lars | None = None
    """layer-wise learning rates; provenance: You, Gitman, Ginsburg 2017"""

    if not TYPE_CHECKING:  # type checkers know the constructor of the dataclass

        def __new__(cls, **given: Any) -> Self:
            """Notes whether a learning rate is given, because its default depends on the optimizer."""
            made = super().__new__(cls)
            object.__setattr__(made, "_given", given.keys())
            return made

    def __post_init__(self) -> None:
        given = vars(self).pop("_given", ())
        if self.uses_adam and self.rate_of_adam is not None and "learning_rate" not in given:
            object.__setattr__(self, "learning_rate", self.rate_of_adam)

    @property
    def steps_by(self) -> Optimizer:
        """The optimizer of the rule."""
        return self.optimizer

    @property
    def uses_adam(self) -> bool:
        """Whether the rule is Adam or AdamW."""
        return self.steps_by != "sgd"

    @property
    def optimizer_copies(self) -> int:
        return 2 if self.uses_adam else 1

    @property
    def decay(self) -> float:
        """The weight decay of the rule: the given one, or the optimizer's default."""
        if self.weight_decay is not None:
            return self.weight_decay
        return ADAMW_DECAY if self.steps_by == "adamw" else 0.0

    def rule(self, layers: Sequence[Layer]) -> Chain:
        """Returns the optimizer chain for vectors with these layers."""
        scale, decay, decoupled = ScaleByLearningRate(self.learning_rate, self.schedule), self.decay, 0.0
        links: list[Transform] = [] if self.max_grad_norm is None else [Clip(self.max_grad_norm)]
        if self.steps_by == "adamw":
            decay, decoupled = 0.0, decay
        if self.lars is not None:
            links.append(LayerRates(self.lars, scale, decay, self.momentum))
        elif decay:
            links.append(WeightDecay(decay))
        if self.uses_adam:
            links.append(AdamW(self.beta1, self.beta2, self.epsilon, decoupled))
        links.append(scale)
        if self.momentum:
            links.append(Momentum(self.momentum, self.nesterov))
        return Chain(tuple(links), layers)

    def global_steps(self, me: RankContext) -> Fraction:
        """Returns the global steps in one update of a rank's rule: its samples, as part of one step of all workers.

        A worker's update is its own step, which all workers take. A server's has the samples of one step of the server.

        Args:
            me: the rank.
        """
        if me.role == "worker" or Guarantee.SYNCHRONOUS in self.guarantees:
            return Fraction(1)
        return Fraction(self.samples_per_step(1, len(me.workers)), len(me.workers))

    def rule_of(self, me: RankContext) -> Chain:
        """Returns the optimizer chain of a rank, whose schedule counts updates or global steps."""
        rule = self.rule(me.layout.layers)
        if self.schedule is None or self.schedule.counts == "updates":
            return rule
        return replace(rule, steps_per_update=self.global_steps(me))

    def learning_rate_at(self, number: int) -> float:
        """Returns η of the update with this number, from 0, that one rule makes."""
        return ScaleByLearningRate(self.learning_rate, self.schedule).at(number)

    def linear_form(self) -> Self:
        """Returns the method with plain SGD, without layer-wise rates, and with a momentum of at most `FADING`."""
        plain = changed(self, lars=None, max_grad_norm=None, momentum=min(self.momentum, FADING), optimizer="sgd")
        plain = changed(plain, **{name: getattr(SgdMethod, name) for name in OF_ADAM})
        if plain.schedule is not None and plain.schedule.counts != "updates":
            plain = changed(plain, schedule=None)
        return changed(plain, weight_decay=0.0) if plain.decay else plain

    def gradient_weight(self, gradient: AppliedGradient) -> float:
        """Returns η / (1 − μ) as part of a mean: of an update's gradients at a server, or else of all workers'.

        A momentum adds up to η (1 + μ + μ² + …). η is that of the server's update, or of the worker's step.
        """
        number, members = (gradient.version, gradient.together) if self.has_server else (gradient.step, gradient.living)
        return self.learning_rate_at(number) / (1 - self.momentum) / members

    def initial_weight(self, updates: int) -> float | None:
        """Returns the product of 1 − η_t β: each update takes β of the weights that it replaces."""
        return prod(1 - self.learning_rate_at(number) * self.decay for number in range(updates))

    def problems(self, nodes: Sequence[Sequence[Rank]]) -> list[str]:
        problems = super().problems(nodes)
        if self.uses_adam:
            return problems + self._problems_with_adam()
        if self.nesterov and not self.momentum:
            problems.append("nesterov: found true with a momentum of 0, expected a momentum above 0 with it")
        for name in OF_ADAM:
            if (value := getattr(self, name)) != (usual := getattr(SgdMethod, name)):
                problems.append(f"{name}: found {value!r} without adam or adamw, expected {usual!r}, its default")
        return problems

    def _problems_with_adam(self) -> list[str]:
        """Returns the errors of hyper-parameters and of methods that Adam does not go with."""
        name, problems = self._key_of_optimizer, list[str]()
        if not any(isinstance(link, AdamW) for link in self.rule(()).links):
            own = f"{self.name} has an update rule of its own, which does not use it"
            return [f"{name}: found {self.steps_by}, expected sgd: {own}"]
        words = f"with {name} = {self.steps_by}"
        if self.momentum:
            problems.append(
                f"momentum: found {self.momentum!r}, expected 0 {words}, whose β1 takes its place; write momentum: 0"
            )
        if self.nesterov:
            problems.append(f"nesterov: found true, expected false {words}, which has no such form")
        if self.lars is not None:
            problems.append(
                f"lars: found it, expected null {words}, whose steps do not have the length of the gradient; "
                "write lars: null"
            )
        return problems

    @property
    def _key_of_optimizer(self) -> str:
        """The hyper-parameter that gives `steps_by`."""
        return "optimizer"

    def begin(self, me: RankContext, vector: Any) -> Any:
        return Replica(0, Weights(vector, 0), self.rule(me.layout.layers).init(vector))


@dataclass(frozen=True, kw_only=True)
class AccumulatingMethod(SgdMethod):
    """Base of methods whose workers may accumulate the gradients of several micro-batches before they exchange them."""

    ranges: ClassVar[Mapping[str, Range]] = {"accumulate": COUNT}

    accumulate: int = 1
    """k, micro-batches of `batch_per_worker` samples in one step of a worker, whose mean gradient is exchanged once;
    provenance: `no_sync` of torch's DistributedDataParallel; 1 is without accumulation"""

    @property
    def micro_batches(self) -> int:
        return self.accumulate

    def linear_form(self) -> Self:
        return changed(super().linear_form(), accumulate=1)


OF_ADAM = ("beta1", "beta2", "epsilon")
"""the hyper-parameters that Adam and AdamW have, and SGD has not"""


def build_team(
    method: Method, nodes: Sequence[Sequence[Rank]], layout: Layout, batches: Sequence[int] = ()
) -> tuple[RankContext, ...]:
    """Creates the context of every rank: workers 0…W−1, then the servers if the method has some.

    The layout of one of several servers is that of its shard.

    Args:
        method: the method of the run.
        nodes: the ranks of the workers on each node.
        layout: the layers of the weights.
        batches: samples of each worker's batch, by rank; a method that uses one worker takes the first.

    >>> from paceline.algorithms import find
    >>> [me.role for me in build_team(find("async-sgd")(), [[Rank(0)], [Rank(1)]], Layout(()))]
    ['worker', 'worker', 'server']
    """
    nodes = [[Rank(0)]] if method.alone else nodes
    workers = Group(tuple(rank for node in nodes for rank in node))
    servers = tuple(Rank(len(workers) + number) for number in range(method.num_servers))
    parts = shards(layout.layers, len(servers)) if len(servers) > 1 else ()
    server = servers[0] if servers else None
    everyone = Group((*workers.ranks, *servers)) if servers else workers
    leaders = Group(tuple(node[0] for node in nodes))
    group_of = {rank: Group(tuple(node)) for node in nodes for rank in node}
    own = tuple(batches[: len(workers)])
    team = [
        RankContext(
            rank, "worker", workers, group_of[rank], leaders, everyone, server, layout, own, before, servers, parts
        )
        for rank, before in zip(workers, accumulate(own or (0,) * len(workers), initial=0), strict=False)
    ]
    for place, rank in enumerate(servers):
        held = Layout(tuple(parts[place].alone())) if parts else layout
        alone = Group((rank,))
        team.append(
            RankContext(rank, "server", workers, alone, leaders, everyone, server, held, own, 0, servers, parts)
        )
    return tuple(team)
