"""The activities of a simulated run with their operations, and which of them each one waited for.

* A run is simulated again, event by event. Every span is one activity, noted at its end, so that it depends only on
  earlier ones.
* An activity depends on the activity before it in its lane; the first one of a started lane on the last one before the
  start; and the first one after a wait on the last ones of what was waited for (``data``).
* The order that is not the program's own is separate (``control``): collectives of one group and program are performed
  in their order, and a device computes one gradient at a time.
* Not seen are waits for a lock or a shared cell, and for a batch that is read or copied ahead.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.algorithms.core import operations as ops
from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.values import Rank
from paceline.algorithms.runtime.handles import Promise
from paceline.records.recorder import Recorder
from paceline.records.trace import Span
from paceline.scenarios.resolution.plan import Plan
from paceline.simulator.interpreter.interpreter import Simulation
from paceline.simulator.kernel.lanes import SimulatedTask, Steps
from paceline.simulator.runs.cost_model import modelled


@dataclass(eq=False, slots=True)
class TracedActivity:
    """An activity of a rank.

    Args:
        number: its number among those of its rank, in the order of their ends.
        span: its record.
        op: the operation; None for what a rank does ahead, such as reading.
        data: numbers of the activities that its program waited for.
        control: numbers of further ones that it comes after.
        message: for a send or a receive, (source, receiver, number of the message between them); None if unknown.
    """

    number: int
    span: Span
    op: Any
    data: tuple[int, ...]
    control: tuple[int, ...]
    message: tuple[int, int, int] | None = None


class _NotingRecorder(Recorder):
    """A recorder that also hands over each span, and the source of each receive."""

    def __init__(self, noted: Callable[[Span], None], received: Callable[[Rank, Rank | None], None]) -> None:
        super().__init__()
        self._noted, self._received = noted, received
        keep = self.trace.spans.append

        def keep_and_note(span: Span) -> None:
            keep(span)
            noted(span)

        self._keep_span = keep_and_note

    def heard(self, receiver: Rank, source: Rank | None, lane: str) -> None:
        super().heard(receiver, source, lane)
        self._received(receiver, source)


class TracedSimulation(Simulation):
    """A simulation that notes what each activity waited for.

    Args:
        plan: the run, on a modelled cluster.
    """

    def __init__(self, plan: Plan) -> None:
        self.activities: dict[Rank, list[TracedActivity]] = defaultdict(list)
        self._doing: dict[tuple[Rank, str], tuple[SimulatedTask, Any]] = {}
        """the task of each lane in use, and its operation"""
        self._last: dict[Any, tuple[int, ...]] = {}
        """the last activities of each task, or of a lane without one"""
        self._ended: dict[Promise, tuple[int, ...]] = {}
        """the last activities of each part of a gradient, when it was there"""
        self._children: dict[Promise, SimulatedTask] = {}
        self._child: SimulatedTask | None = None
        self._weights: dict[SimulatedTask, deque[tuple[str, Promise]]] = {}
        """the layers whose weights a forward pass still waits for"""
        self._ordered: dict[Any, int] = {}
        """the last collective of a group and program, and the last gradient of a device"""
        self._sources: dict[Rank, list[Rank]] = defaultdict(list)
        costs = modelled(plan)
        if costs.hosts.handling.threads > 1:
            raise InputError("found a server with several threads, whose dependencies are not recorded; expected 1")
        recorder = _NotingRecorder(self._noted, self._received)
        super().__init__(costs.job, costs.timing, costs.network, plan.schedule(), None, costs.hosts, recorder)

    def traced(self) -> dict[Rank, list[TracedActivity]]:
        """Runs to the end and returns the activities of all ranks, messages matched."""
        self.run()
        sent: dict[tuple[Any, ...], deque[TracedActivity]] = defaultdict(deque)
        for rank, activities in self.activities.items():
            numbers: dict[int, int] = defaultdict(int)
            for activity in activities:
                if activity.span.activity == "send":
                    to = int(activity.op.to)
                    activity.message = int(rank), to, numbers[to]
                    numbers[to] += 1
                    sent[int(rank), to, activity.span.start_s, activity.span.bytes].append(activity)
        for rank, activities in self.activities.items():
            sources = iter(self._sources[rank])
            for activity in activities:
                if activity.span.activity == "receive":
                    key = int(next(sources)), int(rank), activity.span.ready_s, activity.span.bytes
                    activity.message = sent[key].popleft().message if sent[key] else None
        return dict(sorted(self.activities.items()))

    def _table(self) -> dict[type[ops.Op[Any]], Callable[[SimulatedTask, Any], Any]]:
        def noting(meaning: Callable[[SimulatedTask, Any], Any]) -> Callable[[SimulatedTask, Any], Any]:
            def performed(task: SimulatedTask, op: Any) -> Any:
                self._doing[task.me.rank, task.name] = task, op
                return meaning(task, op)

            return performed

        return {kind: noting(meaning) for kind, meaning in super()._table().items()}

    def _noted(self, span: Span) -> None:
        activities = self.activities[span.rank]
        number = len(activities)
        task: SimulatedTask | None
        op: Any
        task, op = self._doing.get((span.rank, span.lane), (None, None))
        key = (span.rank, span.lane) if task is None else task
        data, control = self._last.get(key, ()), tuple[int, ...]()
        order: Any = None
        if task is not None and (layers := self._weights.get(task)) and layers[0][0] == span.layer:
            data = (*data, *self._end(layers.popleft()[1]))
        if span.activity == "collective" and task is not None:
            order = span.rank, op.group, task.stream
        elif span.activity in ("compute", "redo"):
            order = span.rank
        if order is not None:
            before = self._ordered.get(order)
            control = () if before is None or before in data else (before,)
            self._ordered[order] = number
        activities.append(TracedActivity(number, span, op, tuple(sorted(set(data))), control))
        self._last[key] = (number,)

    def _received(self, receiver: Rank, source: Rank | None) -> None:
        if source is not None:
            self._sources[receiver].append(source)

    def _end(self, promise: Promise) -> tuple[int, ...]:
        """Returns the last activities of what a promise stands for."""
        child = self._children.get(promise)
        return self._ended.get(promise, ()) if child is None else self._last.get(child, ())

    def _beside(self, task: SimulatedTask, what: Any, line: str, lane: Any = None) -> SimulatedTask:
        child = super()._beside(task, what, line, lane)
        self._child = self._children[child.promise] = child
        self._last[child] = self._last.get(task, ())
        self._doing[child.me.rank, child.name] = child, what
        if isinstance(what, ops.LayerGradients) and isinstance(what.weights, tuple):
            names = [layer.name for layer in task.me.layout.layers]
            promises = map(task.station.handles.promise, what.weights)
            self._weights[child] = deque(zip(names, promises, strict=True))
        return child

    def _layers(self, task: SimulatedTask, op: ops.LayerGradients) -> tuple[ops.Handle[Any], ...]:
        handles = super()._layers(task, op)
        child = self._child
        for promise in map(task.station.handles.promise, handles):

            def note(promise: Promise = promise) -> None:
                self._ended[promise] = self._last.get(child, ())

            note()
            promise.watchers.insert(0, note)
        return handles

    def _join(self, task: SimulatedTask, promises: Sequence[Promise]) -> None:
        ends = [number for promise in promises for number in self._end(promise)]
        self._last[task] = tuple(dict.fromkeys([*self._last.get(task, ()), *ends]))

    def _wait(self, task: SimulatedTask, op: ops.Wait[Any]) -> Steps:
        promise = task.station.handles.promise(op.handle)
        answer = yield from super()._wait(task, op)
        self._join(task, [promise])
        return answer

    def _wait_for(self, task: SimulatedTask, op: ops.WaitFor[Any]) -> Steps:
        promises = [task.station.handles.promise(handle) for handle in op.handles]
        answers: tuple[tuple[int, Any], ...] = yield from super()._wait_for(task, op)
        self._join(task, [promises[index] for index, _ in answers])
        return answers
