"""Decoupled DiLoCo: learners never wait for each other, and a server merges the fragments that have arrived.

A fragment is a set of whole layers, as in `streaming-diloco`. The server takes the fragments in turn. It waits for a
quorum of learners, then for a grace window in which others may arrive, and sends the merged fragment to all. A learner
goes on while its fragments are under way and looks for answers between its steps. Only the answer to its own last push
of a fragment must be there before it pushes the fragment again.

A stop loses no fragment: the server tells all learners, keeps what they have pushed and merges it after a restart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum
from typing import Any, ClassVar, Literal

from paceline.algorithms.core.errors import TimedOut
from paceline.algorithms.core.guarantees import AnyGuarantee, AppliedGradient, Guarantee
from paceline.algorithms.core.method import RankContext, StalenessKind
from paceline.algorithms.core.operations import (
    Charge,
    Handle,
    NextStep,
    Now,
    Receive,
    RecordUpdate,
    Send,
    Start,
    Wait,
    WaitFor,
)
from paceline.algorithms.core.option_groups import COUNT, FRACTION, NOT_NEGATIVE, POSITIVE, Range
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.steps import unrecorded_step
from paceline.algorithms.core.traffic import COMBINE, COPY, SCALE
from paceline.algorithms.core.values import Contribution, Message, Rank, Weights
from paceline.algorithms.methods.outer import CHANGE, NESTEROV, InnerOptimizer, outer_step
from paceline.algorithms.methods.parameter_server import ServerStopped, server_of
from paceline.algorithms.methods.ssp import Farewell, Packet, ServerState, dismissed
from paceline.algorithms.methods.streaming_diloco import MIXED, Fragment, fragments_of, mixed, too_many_fragments
from paceline.algorithms.methods.survivors import LivingWorkers, survives


@dataclass(frozen=True, slots=True, eq=False)
class FragmentPush(Packet):
    """A learner's weights of a fragment, and what it has done since its last push of it.

    `origins` are the gradients since its last push of the last fragment, which alone has some: an update of all weights
    counts each gradient once.
    """

    fragment: int = 0
    steps: int = 0
    samples: int = 0
    step_s: float = 0.0
    """the seconds of its last step; 0 if no grace window needs them"""

    @property
    def weight(self) -> float:
        """The samples, times the samples of a step."""
        return self.samples * (self.samples / self.steps)


@dataclass(frozen=True, slots=True)
class MergedFragment:
    """The server's weights of a fragment, and the learners whose pushes are in them."""

    fragment: int
    vector: Any
    version: int
    members: frozenset[Rank]


@dataclass(frozen=True, slots=True)
class FragmentProgress:
    """A learner's work on a fragment since its last push of it."""

    steps: int = 0
    samples: int = 0
    awaits: bool = False
    """whether that push is in no merge that it has heard of"""

    def after(self, samples: int) -> FragmentProgress:
        """Returns the progress after one more step."""
        return replace(self, steps=self.steps + 1, samples=self.samples + samples)


@dataclass(frozen=True, slots=True)
class LearnerState:
    """A learner between two steps."""

    step: int
    weights: Weights
    optimizer_state: Any
    progress: tuple[FragmentProgress, ...]
    """of each fragment"""
    origins: tuple[Contribution, ...] = ()
    """the gradients since its last push of the last fragment"""
    step_s: float = 0.0
    hearing: Handle[Message] | None = None
    """the receive that waits for the server's next message; None before the first step and after a stop"""
    stopped: bool = False

    def at(self, fragment: int, progress: FragmentProgress) -> LearnerState:
        """Returns the state with another progress of a fragment."""
        return replace(self, progress=(*self.progress[:fragment], progress, *self.progress[fragment + 1 :]))


@dataclass(frozen=True, kw_only=True)
class DecoupledDiLoCo(InnerOptimizer):
    """DiLoCo without a common clock: a server merges each fragment from the learners that have pushed it in time.

    learner m, each step:        x_m ← one step of the inner optimizer
    after its steps t_p + k H:   push x_m[p], the samples c and the steps s since its last push of p; go on
    on an answer:                x_m[p] ← α x_m[p] + (1 − α) Θ[p]
    server, p = 0, 1, …, F − 1 and again from 0:
        wait for pushes of p from Q learners, then at most G mean steps for those of the others
        w_m = c_m (c_m / s_m);  Δ = Σ_m w_m (Θ[p] − x_m[p]) / Σ_m w_m
        V[p] ← M V[p] + Δ;  Θ[p] ← Θ[p] − R (Δ + M V[p]);  send Θ[p] to all

    Fragment p of F is pushed after step t_p = ⌊(p + 1) H / F⌋ of each round of H. A push that comes too late counts in
    the next merge of its fragment.
    """

    name = "decoupled-diloco"
    staleness_kind = StalenessKind.VERSION_LAG
    source = "Douillard et al. 2026, 'Decoupled DiLoCo for Resilient Distributed Pre-training', arXiv 2604.21428"
    guarantees: ClassVar[frozenset[AnyGuarantee]] = frozenset(
        {Guarantee.CONSERVES_MESSAGES, Guarantee.SURVIVES_WORKERS}
    )
    has_server: ClassVar[bool] = True
    ranges: ClassVar[Mapping[str, Range]] = {
        "outer_learning_rate": POSITIVE,
        "outer_momentum": FRACTION,
        "fragments": COUNT,
        "quorum": COUNT,
        "grace": NOT_NEGATIVE,
        "alpha": FRACTION,
    }

    period: int = 8
    """H, inner steps between a learner's pushes of a fragment; provenance: as in diloco"""
    outer_learning_rate: float = 0.7
    """R; provenance: as in diloco; the source's value was not found"""
    outer_momentum: float = 0.9
    """M; provenance: as in diloco; the source's value was not found"""
    fragments: int = 2
    """F, of whole layers; each layer is one if there are fewer; provenance: as in streaming-diloco"""
    pattern: Literal["strided", "sequential"] = "strided"
    """which layers a fragment has: every F-th, or consecutive ones; provenance: as in streaming-diloco"""
    alpha: float = 0.5
    """α, the share of a learner's own weights in an answer; provenance: as in streaming-diloco; the source's value was
    not found"""
    quorum: int | None = None
    """Q, the learners without which the server does not merge; None: half of them, rounded up; provenance: ours, the
    source's values were not found"""
    grace: float = 1.0
    """G, for how long the server waits for more learners after a quorum, in mean steps of those that have arrived;
    provenance: ours. The source's window is adaptive; its formula was not found"""

    def problems(self, nodes: Sequence[Sequence[Rank]]) -> list[str]:
        problems, workers = super().problems(nodes), sum(map(len, nodes))
        problems += too_many_fragments(self.fragments, self.period)
        if self.quorum is not None and self.quorum > workers:
            problems.append(f"quorum: found {self.quorum}, expected at most {workers}, the number of workers")
        return problems

    def needed(self, workers: int) -> int:
        """Returns Q for this number of learners."""
        return -(-workers // 2) if self.quorum is None else self.quorum

    @property
    def even_steps(self) -> bool:
        return False

    def samples_per_step(self, batch: int, workers: int) -> int:
        """Returns the samples of H steps of all learners; a merge without some of them has fewer."""
        return batch * self.period * workers

    def sees_own_updates(self, workers: int) -> bool:
        return False

    def linear_form(self) -> None:  # type: ignore[override]
        return None  # which learners are in a merge depends on when their pushes arrive

    def gradient_weight(self, gradient: AppliedGradient) -> float:
        raise NotImplementedError(f"{self.name} has no linear form")

    def longest_period(self, workers: int) -> int:
        return self.period

    def bounds(self, workers: int) -> Mapping[Guarantee, float]:
        return survives(workers - self.needed(workers))

    def parts(self, me: RankContext) -> tuple[Fragment, ...]:
        """Returns the fragments of the weights."""
        return fragments_of(me.layout.layers, self.fragments, self.period, self.pattern)

    def begin(self, me: RankContext, vector: Any) -> Any:
        weights = Weights(vector, 0)
        if me.role == "server":
            return ServerState(0, weights, 0 * vector)
        inner = self.rule(me.layout.layers).init(vector)
        return LearnerState(0, weights, inner, (FragmentProgress(),) * len(self.parts(me)))

    # --- learners -----------------------------------------------------------------------------------------------------

    @program
    def worker(self, me: RankContext, state: LearnerState) -> Program[LearnerState]:
        rule, server, fragments = self.rule(me.layout.layers), server_of(me), self.parts(me)
        state = replace(state, stopped=False, hearing=(yield from Start(Receive(server))))
        while True:
            state = yield from self.heard(me, fragments, state)
            for number, fragment in enumerate(fragments):
                if not state.stopped and self.due(state, number, fragment):
                    state = yield from self.pushed(me, fragments, state, number)
            if state.stopped:
                yield from Send(server, Farewell())
                return state
            if not (step := (yield from NextStep(state))):
                return state
            begun_s = (yield from Now()) if self.grace else 0.0
            own = state.weights, state.optimizer_state
            gradient, vector, memory = yield from unrecorded_step(rule, *own, step.samples)
            step_s = (yield from Now()) - begun_s if self.grace else 0.0
            state = replace(
                state,
                step=step.number + 1,
                weights=Weights(vector, state.weights.version),
                optimizer_state=memory,
                progress=tuple(progress.after(step.samples.count) for progress in state.progress),
                origins=(*state.origins, gradient.contribution()),
                step_s=step_s,
            )

    def due(self, state: LearnerState, number: int, fragment: Fragment) -> bool:
        """Returns whether a learner has to push a fragment before its next step."""
        return state.progress[number].steps > 0 and (state.step - fragment.offset) % self.period == 0

    @program
    def pushed(
        self, me: RankContext, fragments: Sequence[Fragment], state: LearnerState, number: int
    ) -> Program[LearnerState]:
        """Pushes a fragment, after the answer to its last push has arrived, unless the run ends before.

        Args:
            me: the learner.
            fragments: of the weights.
            state: its state.
            number: of the fragment.
        """
        while state.progress[number].awaits and not state.stopped:
            assert state.hearing is not None, "a learner hears until it is stopped"
            state = yield from self.taken(me, fragments, state, (yield from Wait(state.hearing)))
        if state.stopped:
            return state
        done = state.progress[number]
        last = number == len(fragments) - 1
        own = fragments[number].of(state.weights.vector)
        yield from Charge("copy", own.nbytes, traffic=COPY)
        origins = state.origins if last else ()
        push = FragmentPush(own, origins, False, number, done.steps, done.samples, state.step_s)
        yield from Send(server_of(me), push)
        return replace(state.at(number, FragmentProgress(awaits=True)), origins=() if last else state.origins)

    @program
    def heard(self, me: RankContext, fragments: Sequence[Fragment], state: LearnerState) -> Program[LearnerState]:
        """Takes the messages of the server that have arrived.

        Args:
            me: the learner.
            fragments: of the weights.
            state: its state.
        """
        while state.hearing is not None and (arrived := (yield from WaitFor((state.hearing,), need=0))):
            state = yield from self.taken(me, fragments, state, arrived[0][1])
        return state

    @program
    def taken(
        self, me: RankContext, fragments: Sequence[Fragment], state: LearnerState, message: Message
    ) -> Program[LearnerState]:
        """Applies a message of the server.

        Args:
            me: the learner.
            fragments: of the weights.
            state: its state.
            message: a merged fragment, or the stop.
        """
        answer = message.value
        if isinstance(answer, ServerStopped):
            return replace(state, stopped=True, hearing=None)
        own = state.weights.vector
        fragment, whole = fragments[answer.fragment], len(fragments) == 1
        yield from Charge("update", answer.vector.nbytes, traffic=MIXED if self.alpha else COPY)
        part = mixed(fragment.of(own), answer.vector, self.alpha)
        if not whole:
            yield from Charge("update", own.nbytes, traffic=COPY)
        weights = Weights(fragment.put(own, part, whole=whole), answer.version)
        progress = state.progress[answer.fragment]
        if me.rank in answer.members:
            progress = replace(progress, awaits=False)
        hearing = yield from Start(Receive(server_of(me)))
        return replace(state.at(answer.fragment, progress), weights=weights, hearing=hearing)

    # --- the server ---------------------------------------------------------------------------------------------------

    @program
    def server(self, me: RankContext, state: ServerState) -> Program[ServerState]:
        fragments, team = self.parts(me), LivingWorkers(me)
        while step := (yield from NextStep(state)):
            for number, fragment in enumerate(fragments):
                state = yield from self.collected(team, state, number, self.needed(len(me.workers)))
                state, pushes = taken_from(state, number)
                state = yield from self.merged(state, fragment, pushes, whole=len(fragments) == 1)
                if number == len(fragments) - 1:
                    origins = [origin for _, push in pushes for origin in push.origins]
                    version = yield from RecordUpdate(state.weights, origins)
                    state = replace(state, weights=Weights(state.weights.vector, version))
                members = frozenset(rank for rank, _ in pushes)
                answer = MergedFragment(number, fragment.of(state.weights.vector), state.weights.version, members)
                for rank in sorted(team.living):
                    yield from Send(rank, answer)
            state = replace(state, step=step.number + 1)
        return (yield from dismissed(team, state))

    @program
    def collected(self, team: LivingWorkers, state: ServerState, number: int, needed: int) -> Program[ServerState]:
        """Receives until a quorum has pushed a fragment and the grace window is over, or all have pushed it.

        Args:
            team: the living learners.
            state: the state of the server.
            number: of the fragment.
            needed: Q.
        """
        while len(pushes := pushes_of(state, number)) < needed:
            state = state.received((yield from team.message()))
        if not self.grace or team.living <= pushes.keys():
            return state
        end_s = (yield from Now()) + self.grace * fsum(push.step_s for push in pushes.values()) / len(pushes)
        while not team.living <= pushes_of(state, number).keys():
            if (left_s := end_s - (yield from Now())) <= 0:
                break
            try:
                message = yield from team.receive(left_s)
            except TimedOut:
                break
            if message is not None:
                state = state.received(message)
        return state

    @program
    def merged(
        self, state: ServerState, fragment: Fragment, pushes: Sequence[tuple[Rank, FragmentPush]], *, whole: bool
    ) -> Program[ServerState]:
        """Takes the outer step of a fragment.

        Args:
            state: the state of the server.
            fragment: the fragment.
            pushes: the learners' weights of it.
            whole: whether the fragment has all weights.
        """
        start, velocity = fragment.of(state.weights.vector), fragment.of(state.optimizer_state)
        total = fsum(push.weight for _, push in pushes)
        mean = pushes[0][1].vector * (pushes[0][1].weight / total)
        for _, push in pushes[1:]:
            mean = mean + push.vector * (push.weight / total)
        traffic = len(pushes) * (SCALE + COMBINE) + CHANGE + NESTEROV
        yield from Charge("update", start.nbytes, where="host", traffic=traffic)
        new, velocity = outer_step(start, velocity, start - mean, self.outer_learning_rate, self.outer_momentum)
        if not whole:
            yield from Charge("update", state.weights.vector.nbytes, where="host", traffic=2 * COPY)
        vector = fragment.put(state.weights.vector, new, whole=whole)
        memory = fragment.put(state.optimizer_state, velocity, whole=whole)
        return replace(state, weights=Weights(vector, state.weights.version), optimizer_state=memory)


def pushes_of(state: ServerState, number: int) -> dict[Rank, FragmentPush]:
    """Returns the pushes of a fragment that have arrived and are not merged, by learner."""
    return {rank: push for rank, push in state.pending if isinstance(push, FragmentPush) and push.fragment == number}


def taken_from(state: ServerState, number: int) -> tuple[ServerState, tuple[tuple[Rank, FragmentPush], ...]]:
    """Returns the state without the pushes of a fragment, and these, in the order of ranks."""
    pushes = pushes_of(state, number)
    rest = tuple((rank, push) for rank, push in state.pending if not (rank in pushes and push is pushes[rank]))
    return replace(state, pending=rest), tuple(sorted(pushes.items()))
