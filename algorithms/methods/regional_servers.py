"""HALoS: a server in every region, which serves the workers of its node, and a global server between the regions.

A region is a node of the cluster. Its server is a sub-program of the node's first worker, at which the messages of the
region's workers and of the global server arrive; answers to workers have a tag of their own. Workers are those of
`async-diloco`, and so is the global server, which sees each region as one worker.

A stop loses no round: the global server tells every region. Each region receives the rounds that its workers have
begun, keeps them in its state, and says that nothing more will come.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from paceline.algorithms.core.guarantees import AnyGuarantee, AppliedGradient, Guarantee
from paceline.algorithms.core.method import RankContext
from paceline.algorithms.core.operations import Charge, Handle, Receive, Send, Start, Wait
from paceline.algorithms.core.option_groups import COUNT, FRACTION, NOT_NEGATIVE, POSITIVE, SHARE, Range
from paceline.algorithms.core.program import Program, Routine, program
from paceline.algorithms.core.traffic import COMBINE, SCALE
from paceline.algorithms.core.values import Contribution, Group, Rank, Weights
from paceline.algorithms.methods.async_diloco import (
    AsyncDiLoCo,
    AsyncServer,
    OuterKind,
    OuterOptimizer,
    PseudoGradient,
    RoundStart,
    RoundState,
)
from paceline.algorithms.methods.parameter_server import ServerStopped, server_of
from paceline.algorithms.methods.ssp import Farewell, close, dismissed
from paceline.algorithms.methods.survivors import LivingWorkers

ROUND = "round"
"""the tag of a regional server's answers"""
BUFFER = 2
"""N of the global server; provenance: the authors' script"""
MERGE = 2 * SCALE + COMBINE
"""memory traffic of the weighted mean of two vectors"""


@dataclass(frozen=True, slots=True)
class RegionState(AsyncServer):
    """The state of a regional server; the version of its weights is that of the global weights merged last."""

    merged: Any = None
    """the weights after the last merge, from which the region's change is measured"""
    origins: tuple[Contribution, ...] = ()
    """the gradients applied since then"""
    rounds: int = 0
    """the rounds applied since then"""


@dataclass(frozen=True, slots=True)
class RegionalRound(RoundState):
    """A worker in a round; the first worker of a node also has the state of its region's server."""

    region: RegionState | None = None


@dataclass(frozen=True, kw_only=True)
class HALoS(AsyncDiLoCo):
    """Hierarchical asynchronous local SGD: workers push rounds to their region's server, and regions to a global one.

    worker i, H_i times:            x_i ← one step of the inner optimizer
    then:                           push x' − x_i to the region;  x_i, x' ← the region's weights y
    region, on arrival:             V_r, y ← one step of its outer optimizer with the worker's change
    K arrivals after a merge:       push z − y to the global server, with z the weights after that merge, and go on
    global server, on arrival:      V, x ← one step of its outer optimizer with the region's change; reply x
    region, on the reply:           y ← (1 − α) y + α x;  z ← y

    A region does not wait for the reply, unless it takes very long. What its workers push until then moves its own
    weights, and is part of no change that it sends, since z is set at the merge. Both optimizers have the forms of
    `async-diloco`.
    """

    name = "halos"
    source = (
        "Kim, Li, Gandham, Baldonado, Gangidi, Balaji, Wang, Akella 2025, 'HALoS: Hierarchical Asynchronous Local SGD "
        "over Slow Networks', ICML'25, arXiv 2506.04531; its authors' code, utnslab/halos"
    )
    guarantees: ClassVar[frozenset[AnyGuarantee]] = frozenset({Guarantee.CONSERVES_MESSAGES})
    drops_gradients: ClassVar[bool] = True

    ranges: ClassVar[Mapping[str, Range]] = {
        "region_learning_rate": POSITIVE,
        "region_momentum": FRACTION,
        "region_buffer_size": COUNT,
        "region_c": NOT_NEGATIVE,
        "region_rounds": COUNT,
        "ahead": COUNT,
        "merge": SHARE,
    }

    outer_learning_rate: float = 0.3
    """R of the global server; provenance: the authors' script has 0.15 N"""
    outer_momentum: float = 0.5
    """M of the global server; provenance: the authors' script"""
    buffer_size: int | None = None
    """N, the changes of regions between two updates of the global momentum; None: 2; provenance: the authors' script,
    with four regions"""
    region_learning_rate: float = 0.7
    """R of a region's server; provenance: as in async-diloco; the authors' script has 0.2 N"""
    region_momentum: float = 0.9
    """M of a region's server; provenance: the authors' script"""
    region_outer: OuterKind = "delayed-nesterov"
    """the outer optimizer of a region's server; provenance: the source"""
    region_buffer_size: int | None = None
    """N of a region's server; None: its workers; provenance: as in async-diloco; the authors' script has 16 with four
    workers"""
    region_c: float = 0.0
    """c of a region's server; provenance: the default of the authors' code"""
    region_rounds: int = 2
    """K, the rounds that a region applies after a merge before it sends its change; provenance: ours, for runs of some
    hundred steps; the authors' script has 32 with four workers"""
    ahead: int = 4
    """while a change is under way, a region applies at most so many times K rounds; then its workers wait for the
    reply; provenance: ours, without a limit a region that the global server does not reach would train alone for any
    time; the source has none"""
    merge: float = 0.25
    """α, the share of the global weights in a merge; provenance: the authors' script"""

    def problems(self, nodes: Sequence[Sequence[Rank]]) -> list[str]:
        most = self.region_optimizer(max(map(len, nodes)))
        return super().problems(nodes) + most.problems(self.region_buffer_size, "region_")

    def arrivals(self, workers: int) -> int:
        return super().arrivals(BUFFER if self.buffer_size is None else workers)

    def region_optimizer(self, workers: int) -> OuterOptimizer:
        """Returns the outer optimizer of a region with this number of workers."""
        count = workers if self.region_buffer_size is None else self.region_buffer_size
        delayed = self.region_outer == "delayed-nesterov"
        return OuterOptimizer(
            self.region_outer, self.region_learning_rate, self.region_momentum, count if delayed else 1, self.region_c
        )

    def samples_per_step(self, batch: int, workers: int) -> int:
        """Returns the samples of a region's change; with rounds of slow workers it has fewer."""
        return batch * self.period * self.region_rounds

    def linear_form(self) -> None:  # type: ignore[override]
        return None  # which gradients a region's change has depends on the time of the global server's reply

    def gradient_weight(self, gradient: AppliedGradient) -> float:
        raise NotImplementedError(f"{self.name} has no linear form")

    def longest_period(self, workers: int) -> int:
        return self.period * max(self.region_rounds, self.region_optimizer(workers).count)

    def bounds(self, workers: int) -> Mapping[Guarantee, float]:
        return {}

    def begin(self, me: RankContext, vector: Any) -> Any:
        state = super().begin(me, vector)
        if me.role == "server":
            return state
        region = None
        if me.rank == me.node.ranks[0]:
            memory = self.region_optimizer(len(me.node)).init(vector)
            speeds = (None,) * len(me.workers)
            region = RegionState(0, Weights(vector, 0), memory, step_s=speeds, merged=vector)
        return RegionalRound(0, state.weights, state.optimizer_state, start=vector, steps=state.steps, region=region)

    def served_by(self, me: RankContext) -> tuple[Rank, str]:
        return me.node.ranks[0], ROUND

    def served(self, me: RankContext) -> Group:
        return me.leaders

    @program
    def worker(self, me: RankContext, state: RoundState) -> Program[RoundState]:
        assert isinstance(state, RegionalRound), "the state of `begin`"
        if state.region is None:
            return (yield from super().worker(me, state))
        serving: Handle[RegionState] = yield from Start(self.region(me, state.region))
        stopped = yield from super().worker(me, state)
        assert isinstance(stopped, RegionalRound), "rounds keep the type of their state"
        return replace(stopped, region=(yield from Wait(serving)))

    @program
    def region(self, me: RankContext, state: RegionState) -> Program[RegionState]:
        """Serves the workers of a region until the global server stops.

        Args:
            me: the first worker of the region.
            state: the state of the region's server.
        """
        outer = self.region_optimizer(len(me.node))
        most = self.region_rounds * (1 + self.ahead)
        while True:
            if not state.pending or state.rounds == most:
                message = yield from Receive()
                if isinstance(message.value, ServerStopped):
                    break
                if isinstance(message.value, RoundStart):
                    state = yield from self.merged(state, message.value.weights)
                else:
                    state = state.received(message)
                continue
            (source, push), *others = state.pending
            assert isinstance(push, PseudoGradient), "workers send nothing else"
            yield from Charge("update", push.vector.nbytes, where="host", traffic=outer.traffic(state.optimizer_state))
            vector, memory = outer.update(state.weights.vector, push.vector, state.optimizer_state)
            step_s = self.measured(state.step_s, source, push)
            state = replace(
                state.answered(source),
                weights=Weights(vector, state.weights.version),
                optimizer_state=memory,
                pending=tuple(others),
                step_s=step_s,
                origins=(*state.origins, *push.origins) if state.rounds < self.region_rounds else (),
                rounds=state.rounds + 1,
            )
            yield from Send(
                source, RoundStart(state.weights, self.round_steps(source, step_s, me.workers.ranks)), ROUND
            )
            if state.rounds == self.region_rounds:
                yield from Charge("update", vector.nbytes, where="host", traffic=COMBINE)
                yield from Send(server_of(me), PseudoGradient(state.merged - vector, state.origins, asks=True))
        state = yield from close(LivingWorkers(me, me.node), state, ROUND)
        yield from Send(server_of(me), Farewell())
        return state

    @program
    def merged(self, state: RegionState, weights: Weights) -> Program[RegionState]:
        """Merges the global weights into those of a region.

        Args:
            state: the state of the region's server.
            weights: the global weights.
        """
        yield from Charge("update", weights.vector.nbytes, where="host", traffic=MERGE)
        vector = (1 - self.merge) * state.weights.vector + self.merge * weights.vector
        return replace(state, weights=Weights(vector, weights.version), merged=vector, origins=(), rounds=0)

    def closed(self, team: LivingWorkers, state: AsyncServer) -> Routine[AsyncServer]:
        return dismissed(team, state)
