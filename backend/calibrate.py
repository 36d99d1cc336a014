"""Measures what messages and collectives cost on this machine, with the programs' own operations.

Rules of this file:

* Probes are programs, run by the same launcher and interpreter as any method, paced by the devices that the run to be
  predicted is paced by. Probing back to back instead is wrong by a factor of three (the network is then never idle).
* A collective is timed from its last entry, a message from its sending: waiting for others is the model's business.
* Several launches are pooled, since one launch differs from the next by how its processes fall onto the cores.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy.stats import trim_mean

from paceline.algorithms.job import Budget, Job
from paceline.algorithms.layerwise import LayerwiseSgd
from paceline.algorithms.method import Me, Method, Notion, Replica, crew
from paceline.algorithms.operations import (
    AllReduce,
    Applied,
    Broadcast,
    Gradient,
    Load,
    Next,
    Receive,
    Reduce,
    Send,
    Work,
)
from paceline.algorithms.program import Program, program
from paceline.algorithms.server import server_of
from paceline.algorithms.values import Rank, Step, Weights
from paceline.backend.interpreter import Pace
from paceline.backend.launch import Launch, run_job
from paceline.records.trace import Schedule, Span, Trace
from paceline.scenarios.schema import Scenario
from paceline.topologies.profile import Points, Profile

Progress = Callable[[str, float], None]
LAUNCHES = 3
COLLECTIVE_STEPS = 80
MESSAGE_STEPS = 40
TRIM = 0.05
"""share of messages left out at either end: a tick of the kernel now and then is not the message's cost"""


@dataclass(frozen=True, kw_only=True)
class ProbeCollectives(Method):
    """Each of a method's collectives in turn, after a gradient, on parts of the weights of the given sizes."""

    name = "probe-collectives"
    notion = Notion.STEPS
    source = "a probe"
    guarantees = frozenset()

    sizes: tuple[int, ...]
    """elements"""

    @program
    def worker(self, me: Me, state: Replica) -> Program[Replica]:
        root = me.workers.ranks[0]
        while step := (yield from Next(state)):
            batch = yield from Load(step.samples)
            gradient = yield from Gradient(state.weights, batch)
            turn, size = step.number % 4, self.sizes[step.number // 4 % len(self.sizes)]
            part = gradient.vector[:size]
            if turn == 0:
                yield from AllReduce(value=part, group=me.workers, key=label("AllReduce", part, step))
            elif turn == 1:
                yield from AllReduce(value=part, group=me.node, key=label("AllReduce", part, step))
            elif turn == 2:
                yield from Broadcast(value=part, group=me.workers, root=root, key=label("Broadcast", part, step))
            else:
                yield from Reduce(value=part, group=me.workers, root=root, key=label("Reduce", part, step))
            yield from Work("update", part.nbytes)
            vector = state.weights.vector - 0.0 * gradient.vector
            version = yield from Applied(Weights(vector, state.weights.version), [gradient.contribution()])
            state = Replica(step.number + 1, Weights(vector, version))
        return state


@dataclass(frozen=True, kw_only=True)
class ProbeMessages(Method):
    """Workers send their gradient and wait for an answer of the same size."""

    name = "probe-messages"
    notion = Notion.VERSION_LAG
    source = "a probe"
    guarantees = frozenset()
    has_server: ClassVar[bool] = True

    @program
    def worker(self, me: Me, state: Replica) -> Program[Replica]:
        server = server_of(me)
        while step := (yield from Next(state)):
            batch = yield from Load(step.samples)
            gradient = yield from Gradient(state.weights, batch)
            yield from Send(server, gradient)
            answer = (yield from Receive(server)).value
            if answer is None:
                return state
            state = Replica(step.number + 1, answer)
        return state

    @program
    def server(self, me: Me, state: Replica) -> Program[Replica]:
        while step := (yield from Next(state)):
            message = yield from Receive()
            yield from Work("update", message.value.vector.nbytes, where="host")
            vector = state.weights.vector - 0.0 * message.value.vector
            version = yield from Applied(Weights(vector, state.weights.version), [message.value.contribution()])
            state = Replica(step.number + 1, Weights(vector, version))
            yield from Send(message.source, state.weights)
        for _ in me.workers:
            message = yield from Receive()
            yield from Send(message.source, None)
        return state


def probe(scenario: Scenario, *, progress: Progress | None = None) -> Profile:
    """A profile of this machine, for what a scenario is about to run on it.

    Args:
        scenario: gives the workers, their device times, and the vectors that are sent.
        progress: told what is measured, and how much of it is done, 0 … 1.
    """
    plans = scenario.plans(paced=True)
    plan = max(plans, key=lambda plan: plan.job.workers)
    job, pace = plan.job, plan if scenario.train.pace == "device" else None
    layers = [layer.stop - layer.start for layer in job.learner.layout.layers]
    by_layer = any(isinstance(plan.job.method, LayerwiseSgd) for plan in plans)
    sizes = tuple(sorted({job.learner.layout.size, *(layers if by_layer else ())}))
    probes: list[tuple[Method, int]] = [(ProbeMessages(), MESSAGE_STEPS * job.workers)]
    if job.workers > 1:
        probes.insert(0, (ProbeCollectives(sizes=sizes), COLLECTIVE_STEPS))
    found = Findings()
    for launch in range(LAUNCHES):
        for turn, (method, steps) in enumerate(probes):
            if progress is not None:
                done = (launch * len(probes) + turn) / (LAUNCHES * len(probes))
                progress(method.name.removeprefix("probe-"), done)
            later = None if pace is None else Later(pace, 10_000 * (launch + 1))
            probing = replace(job, method=method, team=crew(method, plan.cluster.placement, job.learner.layout), budget=Budget())
            probing = replace(probing, budget=Budget(samples=steps * probing.samples_per_step))
            schedule = Schedule(every=float("inf"))
            found.read(probing, run_job(Launch(job=probing, schedule=lambda: schedule, pace=later, threads=scenario.train.threads)))
    return found.profile()


@dataclass(frozen=True, slots=True)
class Later:
    """A pace that draws other steps than the run to be predicted will."""

    pace: Pace
    offset: int

    def compute_s(self, rank: Rank, step: int, samples: int) -> float:
        return self.pace.compute_s(rank, step + self.offset, samples)

    def layer_shares(self) -> tuple[Sequence[float], Sequence[float]]:
        return self.pace.layer_shares()


class Findings:
    """Pools the records of probes and reads the costs off them."""

    def __init__(self) -> None:
        self.collectives: dict[tuple[str, int], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
        self.messages: dict[int, list[float]] = defaultdict(list)
        self.update_s: list[float] = []
        self.rest_s: list[float] = []
        self.serve_s: list[float] = []

    def read(self, job: Job, trace: Trace) -> None:
        by_rank: dict[Rank, list[Span]] = defaultdict(list)
        for span in trace.spans:
            by_rank[span.rank].append(span)
        for me in job.team:
            spans = by_rank[me.rank]
            if me.role == "server":
                self.read_server(spans)
            else:
                self.update_s += [s.end_s - s.start_s for s in spans if s.activity == "update"]
                self.rest_s += rests(spans)
            self.read_messages(spans)
        self.read_collectives(trace)

    def read_collectives(self, trace: Trace) -> None:
        together: dict[str, list[Span]] = defaultdict(list)
        for span in trace.spans:
            if span.key is not None:
                together[span.key].append(span)
        for key, spans in together.items():
            last = max(span.start_s for span in spans)
            operation, nbytes = unlabel(key)
            self.collectives[operation, len(spans)][nbytes] += [max(0.0, span.end_s - last) for span in spans]

    def read_messages(self, spans: list[Span]) -> None:
        for span in spans:
            if span.activity == "receive" and span.ready_s is not None and span.start_s <= span.ready_s:
                self.messages[span.bytes].append(span.end_s - span.ready_s)

    def read_server(self, spans: list[Span]) -> None:
        receives = [span for span in spans if span.activity == "receive"]
        self.serve_s += [after.start_s - before.end_s for before, after in zip(receives, receives[1:], strict=False)]

    def profile(self) -> Profile:
        """The costs, as means."""
        return Profile(
            collectives={what: points(by_size, np.mean) for what, by_size in self.collectives.items()},
            messages=points({size: times for size, times in self.messages.items() if size}, lambda times: trim_mean(times, TRIM)),
            load_s=mean(self.rest_s),
            update_s=mean(self.update_s),
            serve_s=mean(self.serve_s),
            samples={"messages": sum(map(len, self.messages.values()))}
            | {f"{op} of {n}": sum(map(len, sizes.values())) for (op, n), sizes in self.collectives.items()},
        )


def label(operation: str, part: Any, step: Step) -> str:
    """A key from which the record tells what was measured."""
    return f"{operation} {part.nbytes} {step.number}"


def unlabel(key: str) -> tuple[str, int]:
    """The operation and bytes in a key of `label`, whatever the interpreter put in front.

    >>> unlabel("ranks 0,1/7 AllReduce 800 7")
    ('AllReduce', 800)
    """
    operation, nbytes, _ = key.split(" ")[-3:]
    return operation, int(nbytes)


def points(by_size: dict[int, list[float]], centre: Callable[[list[float]], Any]) -> Points:
    return tuple(sorted((size, float(centre(times))) for size, times in by_size.items()))


def mean(times: list[float]) -> float:
    return float(np.mean(times)) if times else 0.0


def rests(spans: list[Span]) -> list[float]:
    """Per step, what a worker did that is neither gradient nor exchange nor update: loading, and the time between operations."""
    main = sorted((span for span in spans if span.lane == "main"), key=lambda span: span.start_s)
    steps: dict[int, list[Span]] = defaultdict(list)
    for span in main:
        steps[span.step].append(span)
    numbers = sorted(steps)
    found = []
    for step, following in zip(numbers, numbers[1:], strict=False):
        length = steps[following][0].start_s - steps[step][0].start_s
        known = sum(s.end_s - s.start_s for s in steps[step] if s.activity not in ("load", "send"))
        found.append(length - known)
    return found
