"""A program that measures how long a rank needs to start a collective, until it can start the next."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from statistics import median

from paceline.algorithms.core.method import Method, RankContext, Replica, StalenessKind
from paceline.algorithms.core.operations import AllReduce, Gradient, Load, NextStep, RecordUpdate, Start, Wait
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.values import Weights
from paceline.records.trace import Trace


@dataclass(frozen=True, kw_only=True)
class ProbeStarts(Method):
    """After each gradient, two all-reduces of a few of its numbers; the second starts while the first is in flight."""

    name = "probe-starts"
    staleness_kind = StalenessKind.STEPS
    source = "a probe"
    guarantees = frozenset()

    few: int
    """how many numbers each all-reduce has"""

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        while step := (yield from NextStep(state)):
            batch = yield from Load(step.samples)
            gradient = yield from Gradient(state.weights, batch)
            part = gradient.vector[: self.few]
            first = yield from Start(AllReduce(value=part, group=me.workers, key=f"first {step.number}"))
            second = yield from Start(AllReduce(value=part, group=me.workers, key=f"second {step.number}"))
            yield from Wait(first)
            yield from Wait(second)
            vector = state.weights.vector - 0.0 * gradient.vector
            version = yield from RecordUpdate(Weights(vector, state.weights.version), [gradient.contribution()])
            state = Replica(step.number + 1, Weights(vector, version))
        return state


def start_s(trace: Trace) -> float:
    """Returns the median time between the two starts of a step."""
    starts: dict[tuple[int, int], list[float]] = defaultdict(list)
    for span in trace.spans:
        if span.activity == "collective":
            starts[span.rank, span.step].append(span.start_s)
    return median(max(found) - min(found) for found in starts.values() if len(found) == 2)
