"""Shared cells: values and locks that the ranks and lanes of one node share.

An access takes the time of its flows in the node's memory or, without a model of memory, a time that depends only on
its bytes. It records a span unless it takes no time. `sweeps` computes the result of accesses that overlap.
"""

from __future__ import annotations

import simpy

from paceline.algorithms.core.operations import Access, Cell, Charge, Lock, Unlock
from paceline.algorithms.core.values import Group
from paceline.algorithms.runtime.cells import check_access, check_unlock
from paceline.records.recorder import Recorder
from paceline.records.trace import LostUpdates
from paceline.simulator.interpreter.sweeps import CellMemory
from paceline.simulator.kernel.lanes import Mutex, SimulatedTask, Steps
from paceline.simulator.kernel.timing import Timing
from paceline.simulator.network.node_memory import MemoryAccess, NodeMemory

PASSES = {"read": 1, "add": 2, "swap": 2}
"""how often an access moves the cell's bytes, without a model of memory: a read copies them, others also write them"""


class TimedCells:
    """All cells of a run; a rank accesses the cells of its own node.

    Args:
        env: the run's clock.
        timing: the time of an access.
        recorder: writes the run's record.
        node_memory: the memories of the nodes, which accesses share; None: `timing` states the time of each access.
    """

    def __init__(
        self, env: simpy.Environment, timing: Timing, recorder: Recorder, node_memory: NodeMemory | None = None
    ) -> None:
        self._env, self._timing, self._recorder, self._node_memory = env, timing, recorder, node_memory
        self._memories: dict[tuple[Group, str], CellMemory] = {}
        self._locks: dict[tuple[Group, str], Mutex] = {}

    def access(self, task: SimulatedTask, op: Access) -> Steps:
        """Reads, adds or swaps; returns the value before."""
        memory = self._memories.setdefault((task.me.node, op.cell.name), CellMemory())
        check_access(op, memory.nbytes)
        size = memory.nbytes or (0 if op.value is None else op.value.nbytes)
        if self._node_memory is not None:
            copying = self._node_memory.begin(task.me.rank, op.action, size)
            return (yield from self._shared(task, op, memory, copying))
        work = Charge("access", PASSES[op.action] * size, where="host")
        seconds, start_s = self._timing.work_s(task.me.rank, work) if size else 0.0, self._env.now
        sweep = memory.begin(op, start_s, seconds)
        if seconds > 0:
            try:
                yield self._env.timeout(seconds)
            except simpy.Interrupt:
                memory.give_up(sweep, self._env.now)
                raise
            self._note(task, start_s)
        return memory.end(sweep, self._env.now)

    def _shared(self, task: SimulatedTask, op: Access, memory: CellMemory, copying: MemoryAccess | None) -> Steps:
        """Performs an access whose flows have begun."""
        start_s = self._env.now
        sweep = memory.begin(op, start_s, 0.0, None if copying is None else copying.share)
        if copying is not None:
            try:
                for flow in copying.events:
                    if not flow.processed:
                        yield flow
            except simpy.Interrupt:
                memory.give_up(sweep, self._env.now)
                copying.cancel()
                raise
            self._note(task, start_s)
        return memory.end(sweep, self._env.now)

    def _note(self, task: SimulatedTask, start_s: float) -> None:
        self._recorder.span(task.me.rank, task.name, "update", None, task.step, start_s, self._env.now)

    def lost_updates(self) -> LostUpdates | None:
        """Returns the number of adds and the share that was overwritten; None without adds."""
        adds = sum(memory.adds for memory in self._memories.values())
        lost = sum(memory.lost for memory in self._memories.values())
        return LostUpdates(adds=adds, lost_share=lost / adds) if adds else None

    def lock(self, task: SimulatedTask, op: Lock) -> Steps:
        """Takes the lock of a cell; tasks wait for it first come, first served."""
        yield from self._mutex(task, op.cell).acquire(task, f"the lock of cell {op.cell.name!r}")

    def unlock(self, task: SimulatedTask, op: Unlock) -> None:
        """Releases the lock of a cell; any lane of the rank that took it may do so."""
        mutex = self._mutex(task, op.cell)
        check_unlock(op.cell, None if mutex.holder is None else mutex.holder.me.rank, task.me.rank)
        mutex.release()

    def _mutex(self, task: SimulatedTask, cell: Cell) -> Mutex:
        return self._locks.setdefault((task.me.node, cell.name), Mutex(self._env))
