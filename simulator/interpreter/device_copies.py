"""Copies between the memory of hosts and devices, as flows that share PCIe or NVLink with everything else.

* A copy takes its bytes over the links between the device and its socket, and the latency of these links. It records a
  span on the lane of the device's copy engine for its direction.
* Vectors are copied if `HostBuffers.copied` contains the rank: to the host before a message or collective, and back
  after it. The copy to the host begins when the rank sends or enters. A collective begins when the last copy has ended,
  and each member leaves it when its own copy back has ended. Messages leave and arrive in the order of their sends.
* Copying to the host does not occupy the program: a copy engine does it, and the vector does not change meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable

import simpy

from paceline.algorithms.core.operations import AllGather, AllReduce, Barrier, Broadcast, Reduce
from paceline.algorithms.core.values import Rank
from paceline.algorithms.runtime.collective_matching import Collective
from paceline.records.recorder import Recorder
from paceline.records.trace import COPY_TO_DEVICE, COPY_TO_HOST
from paceline.simulator.kernel.lanes import Steps
from paceline.simulator.kernel.simpy_events import EagerProcess
from paceline.simulator.network.node_memory import DeviceCopy, Direction, NodeMemory

LANES: dict[Direction, str] = {"to device": COPY_TO_DEVICE, "to host": COPY_TO_HOST}


class DeviceCopies:
    """The copies between hosts and devices of a run.

    Args:
        env: the run's clock.
        memory: begins the flows.
        recorder: writes the run's record.
    """

    def __init__(self, env: simpy.Environment, memory: NodeMemory, recorder: Recorder) -> None:
        self._env, self._memory, self._recorder = env, memory, recorder
        self._staged = memory.network.fabric.buffers.copied

    @property
    def of_vectors(self) -> bool:
        """Whether vectors of any rank are copied, not only batches."""
        return bool(self._staged)

    def before(self, rank: Rank, step: int, nbytes: int) -> simpy.Event | None:
        """Begins the copy of a vector that a rank sends; returns an event for its end, None if there is no copy.

        Args:
            rank: the sender.
            step: its step.
            nbytes: bytes of the vector.
        """
        return self._vector(rank, "to host", step, nbytes)

    def after(self, rank: Rank, step: int, nbytes: int) -> simpy.Event | None:
        """Begins the copy of a vector that a rank has received; returns as `before`.

        Args:
            rank: the receiver.
            step: the step of the span.
            nbytes: bytes of the vector.
        """
        return self._vector(rank, "to device", step, nbytes)

    def _vector(self, rank: Rank, direction: Direction, step: int, nbytes: int) -> simpy.Event | None:
        if nbytes == 0 or rank not in self._staged:
            return None
        return EagerProcess(self._env, self.copied(rank, direction, step, nbytes, "vector"))

    def has(self, rank: Rank) -> bool:
        """Returns whether the batches of a rank are copied: whether its device has a memory and a host of its own."""
        return self._memory.network.cluster.socket_of(rank) is not None

    def copied(
        self, rank: Rank, direction: Direction, step: int, nbytes: float, what: str, *, pageable: bool = False
    ) -> Steps:
        """Copies, and records the span; an interrupt ends the copy.

        Args:
            rank: the rank.
            direction: from the host to the device, or back.
            step: the step of the span.
            nbytes: the bytes.
            what: "batch" or "vector", which is recorded.
            pageable: whether a core copies them into pinned memory first.
        """
        start_s, flow = self._env.now, None
        try:
            if pageable:
                yield (flow := self._memory.copy_by_core(rank, nbytes))
            copy: DeviceCopy | None = self._memory.copy(rank, direction, nbytes)
            if copy is not None:
                yield (flow := copy.flow)
                if copy.latency_s > 0:
                    yield self._env.timeout(copy.latency_s)
        except simpy.Interrupt:
            if flow is not None:
                self._memory.cancel(flow)  # has no effect if it has ended
            self._note(rank, direction, step, start_s, nbytes, what)
            raise
        self._note(rank, direction, step, start_s, nbytes, what)

    def _note(self, rank: Rank, direction: Direction, step: int, start_s: float, nbytes: float, what: str) -> None:
        now = self._env.now
        self._recorder.span(rank, LANES[direction], "copy", None, step, start_s, now, round(nbytes), key=what)


def copied_bytes(op: Collective, rank: Rank, nbytes: int) -> tuple[int, int]:
    """Returns the bytes that a member of a collective sends and receives: those that are copied before and after it.

    Args:
        op: its operation.
        rank: the member.
        nbytes: the n of the closed forms.

    >>> import numpy as np
    >>> from paceline.algorithms.core.values import Group
    >>> pair = Group((Rank(0), Rank(1)))
    >>> copied_bytes(AllReduce(value=np.zeros(100), group=pair, key=""), Rank(0), 800)
    (800, 800)
    >>> copied_bytes(Broadcast(value=np.zeros(100), group=pair, key="", root=Rank(1)), Rank(0), 800)
    (0, 800)
    """
    if len(op.group) == 1:
        return 0, 0
    match op:
        case AllReduce():
            return op.value.nbytes, nbytes
        case Reduce():
            return op.value.nbytes, nbytes if rank == op.root else 0
        case Broadcast():
            return (op.value.nbytes, 0) if rank == op.root else (0, nbytes)
        case AllGather():
            return op.value.nbytes, nbytes
        case Barrier():
            return 0, 0


def when_ended(events: list[simpy.Event], then: Callable[[], object]) -> Steps:
    """Waits for all of these events, then calls `then`."""
    for event in events:
        if not event.processed:
            yield event
    then()
