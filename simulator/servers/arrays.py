"""Allocates the arrays of a compiled run, and replaces them by larger ones."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from paceline.algorithms.core.job import Job
from paceline.algorithms.core.method import Role
from paceline.algorithms.core.values import nbytes
from paceline.records.keeping import Keeping
from paceline.simulator.interpreter.cpu_overheads import Handling
from paceline.simulator.kernel.timing import Timing
from paceline.simulator.network.network import Network
from paceline.simulator.servers.costs import Costs
from paceline.simulator.servers.machine_state import Count, Message, Row, Second, State, What
from paceline.simulator.servers.node_steps import FIRST_OF_STATE, TEMPORARIES
from paceline.simulator.servers.shapes import Shape, built
from paceline.simulator.servers.step_times import StepTimes
from paceline.simulator.servers.symbols import value_of
from paceline.simulator.servers.tables import Tables
from paceline.simulator.servers.templates import Template

ROWS, ROWS_OF_WORKER = 1 << 16, 4
"""rows of the records between two returns to Python, in all and for each worker: counting takes time for each rank"""


class Arrays:
    """The arrays of a run.

    Args:
        job: the run's job.
        timing: the seconds of each rank's own work.
        network: the time of messages.
        handling: the processor time of messages.
        templates: the templates, by role.
        keeping: which records are kept.
    """

    def __init__(
        self,
        job: Job,
        timing: Timing,
        network: Network,
        handling: Handling,
        templates: Mapping[Role, Template],
        keeping: Keeping,
    ) -> None:
        self._job, self._templates = job, dict(templates)
        self.tables = Tables(self._templates)
        self.costs = Costs(job, timing, network, handling)
        self.steps = StepTimes(job, timing)
        self.shapes: list[Shape] = []
        """the shape of each kind of message"""
        self._sizes: dict[int, int] = {}
        self._widths: dict[Role, int] = {"worker": 0, "server": 0}
        self._payload, self._charges = 8, 0
        workers, ranks = job.workers, job.workers + 1
        self._ranks, self._workers = ranks, workers
        pool, rows = 2 * workers + 64, max(ROWS, ROWS_OF_WORKER * workers)
        integers = np.int64
        self.state = State(
            counts=np.zeros(int(Count.SIZE), integers),
            seconds=np.zeros(int(Second.SIZE)),
            heap_s=np.zeros(0),
            heap=np.zeros((0, 2), integers),
            queue=np.zeros((0, 2), integers),
            ranks=np.zeros((ranks, int(Row.SIZE)), integers),
            begun_s=np.zeros(ranks),
            registers=np.zeros(0, integers),
            messages=np.zeros((0, int(Message.SIZE)), integers),
            sent_s=np.zeros(0),
            payload=np.zeros((0, self._payload), integers),
            pairs=np.full((2 * workers, 3), -1, integers),
            nodes=self.tables.nodes.array,
            operands=self.tables.operands.array,
            instructions=self.tables.instructions.array,
            children=self.tables.children,
            heard=np.zeros((0, 2), integers),
            load_s=self.costs.load_s,
            rest_s=self.costs.rest_s,
            charge_s=np.zeros((1, ranks)),
            step_s=self.steps.seconds,
            step_until=self.steps.until,
            message_counts=self.costs.messages.counts,
            message_s=self.costs.messages.message_s,
            send_s=self.costs.messages.send_s,
            receive_s=self.costs.messages.receive_s,
            copy_s=self.costs.messages.copy_s,
            path_class=self.costs.messages.path_class,
            path_s=self.costs.messages.path_s,
            sending_s=np.zeros(ranks),
            receiving_s=np.zeros(ranks),
            class_port=np.zeros(0, integers),
            class_limit=np.zeros(0),
            class_s=np.zeros((0, 4)),
            class_counts=np.zeros((0, 2), integers),
            class_heap_s=np.zeros((0, 0)),
            class_heap=np.zeros((0, 0, 2), integers),
            port_rate=np.zeros(0),
            kind_bytes=np.zeros(8, integers),
            kind_integers=np.zeros(8, integers),
            kept=np.array([keeping.keeps(me.rank) for me in job.team], np.uint8),
            spans=np.zeros((ROWS, 5), integers),
            spans_s=np.zeros((ROWS, 3)),
            updates=np.zeros((rows, 5), integers),
            updates_s=np.zeros(rows),
            gradients=np.zeros((1 if keeping.whole else rows, 2), integers),
            gradients_s=np.zeros((1 if keeping.whole else rows, 2)),
            activity_s=np.zeros((ranks, 5)),
            ended_s=np.zeros(ranks),
            span_counts=np.zeros(5, integers),
        )
        self.state.counts[Count.RESUME] = -1
        self.state.ranks[:, [Row.HELD, Row.INBOX_FIRST, Row.INBOX_LAST]] = -1
        self._make_pool(pool)

    # --- the beginning --------------------------------------------------------------------------------------------

    def begin(self, *, outside: bool) -> None:
        """Sets all programs to their beginning.

        Args:
            outside: whether the server's program runs outside of machine code.
        """
        state, every = self.state, np.arange(self._ranks)
        for role, ranks in (("worker", every[:-1]), ("server", every[-1:])):
            template = self._templates[role]  # type: ignore[index]
            if role == "server" and outside:
                break
            state.ranks[ranks, Row.NODE] = self.tables.row(role, template.roots[template.first])  # type: ignore[arg-type]
            base = state.ranks[ranks, Row.BASE]
            state.registers[base + TEMPORARIES] = ranks
            for place, content in enumerate(template.first_integers):
                state.registers[base + FIRST_OF_STATE + place] = [value_of(content, [rank]) for rank in ranks.tolist()]
        state.queue[: self._ranks, 0] = every  # as SimPy begins processes: one after the other
        state.queue[: self._ranks, 1] = every * int(What.KINDS) + int(What.RANK)
        state.counts[Count.QUEUE] = state.counts[Count.SEQUENCE] = self._ranks

    # --- templates ------------------------------------------------------------------------------------------------

    def update(self) -> None:
        """Writes what has been derived since the last call, and asks for the times that it needs."""
        tables = self.tables
        tables.update()
        for (_, shape), kind in list(tables.kinds.items())[len(self.shapes) :]:
            assert kind == len(self.shapes), "kinds are numbered in order"
            self.shapes.append(shape)
            self._sizes[kind] = nbytes(built(shape, [0] * shape.count))
        self.costs.add_kinds(tables.kinds, self._sizes)
        self._update_charges()
        self._update_registers()
        kinds = max(8, len(self.shapes))
        found = self.costs.messages
        state = self.state._replace(
            nodes=tables.nodes.array,
            operands=tables.operands.array,
            instructions=tables.instructions.array,
            children=tables.children,
            message_counts=found.counts,
            message_s=found.message_s,
            send_s=found.send_s,
            receive_s=found.receive_s,
            copy_s=found.copy_s,
            path_class=found.path_class,
            path_s=found.path_s,
            kind_bytes=np.array([self._sizes.get(kind, 0) for kind in range(kinds)], np.int64),
            kind_integers=np.array([shape.count for shape in self.shapes] + [0] * (kinds - len(self.shapes)), np.int64),
        )
        self.state = state
        if (most := max((shape.count for shape in self.shapes), default=0)) > self._payload:
            self._payload = 2 * most
            self._make_pool(len(state.sent_s))
        if self.costs.ports is not None:
            self._update_classes()

    def _update_charges(self) -> None:
        charges, known = self.tables.charges, self.state.charge_s
        if len(charges) > len(known):
            rows = np.zeros((2 * len(charges), self._ranks))
            rows[: len(known)] = known
            self.state = self.state._replace(charge_s=rows)
        for (role, op), row in list(charges.items())[self._charges :]:
            if op is not None:  # a server's program outside of machine code sets the seconds of its charges
                self.state.charge_s[row] = self.costs.charge_s(role, op)
        self._charges = len(charges)

    def _update_classes(self) -> None:
        ports, state = self.costs.ports, self.state
        assert ports is not None
        before, count = len(state.class_port), len(ports.classes)
        if count == before:
            return

        def longer(old: np.ndarray, *shape: int) -> np.ndarray:
            new = np.zeros(shape, old.dtype)
            new[: len(old)] = old
            return new

        pool = len(state.sent_s)
        class_s = longer(state.class_s, count, 4)
        class_s[before:, 3] = 1e300
        keys = list(ports.classes)
        self.state = state._replace(
            class_port=np.array([port for port, _ in keys], np.int64),
            class_limit=np.array([limit for _, limit in keys]),
            class_s=class_s,
            class_counts=longer(state.class_counts, count, 2),
            class_heap_s=longer(state.class_heap_s.reshape(before, pool), count, pool),
            class_heap=longer(state.class_heap.reshape(before, pool, 2), count, pool, 2),
            port_rate=np.array(ports.rates),
        )
        self.state.counts[Count.CLASSES] = count

    def update_outside(self) -> None:
        """Makes room for the registers of a server's program outside of machine code, and shows it new rows."""
        server = self._templates["server"]
        self._update_charges()
        if TEMPORARIES + server.registers + server.most_state > self._widths["server"]:
            self._update_registers()
        tables, state = self.tables, self.state
        if state.operands is not tables.operands.array or state.children is not tables.children:
            self.state = state._replace(operands=tables.operands.array, children=tables.children)

    def _update_registers(self) -> None:
        for role, template in self._templates.items():
            spare = template.most_state
            if TEMPORARIES + template.registers + spare > self._widths[role]:
                factor = 2 if role == "server" else 1
                self._allocate({role: factor * (TEMPORARIES + template.registers) + spare})
            offset = self._widths[role] - spare
            ranks = slice(0, self._workers) if role == "worker" else slice(self._workers, None)
            self.state.ranks[ranks, Row.SPARE] = self.state.ranks[ranks, Row.BASE] + offset

    def _allocate(self, widths: dict[Role, int]) -> None:
        state, old = self.state, dict(self._widths)
        self._widths.update(widths)
        worker, server = self._widths["worker"], self._widths["server"]
        registers = np.zeros(self._workers * worker + server, np.int64)
        kept = min(old["worker"], worker)
        before = state.registers[: self._workers * old["worker"]].reshape(self._workers, old["worker"])
        registers[: self._workers * worker].reshape(self._workers, worker)[:, :kept] = before[:, :kept]
        kept = min(old["server"], server)
        first = self._workers * old["worker"]
        registers[self._workers * worker : self._workers * worker + kept] = state.registers[first : first + kept]
        state.ranks[:, Row.BASE] = np.arange(self._ranks) * worker
        self.state = state._replace(registers=registers)

    # --- room -----------------------------------------------------------------------------------------------------

    def more_messages(self) -> None:
        """Doubles the number of messages that may be in flight or in inboxes."""
        self._make_pool(2 * len(self.state.sent_s))

    def _make_pool(self, count: int) -> None:
        """Makes room for so many messages, and for their events."""
        state, before = self.state, len(self.state.sent_s)
        messages = np.zeros((count, int(Message.SIZE)), np.int64)
        messages[:before] = state.messages
        sent_s = np.zeros(count)
        sent_s[:before] = state.sent_s
        payload = np.zeros((count, self._payload), np.int64)
        payload[:before, : state.payload.shape[1]] = state.payload
        if count > before:  # the new ones come before the other unused ones
            messages[before:, Message.NEXT] = np.arange(before + 1, count + 1)
            messages[count - 1, Message.NEXT] = state.counts[Count.FREE] if state.counts[Count.UNUSED] else -1
            state.counts[Count.FREE] = before
            state.counts[Count.UNUSED] += count - before
        classes = len(state.class_port)
        ends = np.zeros((classes, count))
        ends[:, :before] = state.class_heap_s
        flows = np.zeros((classes, count, 2), np.int64)
        flows[:, :before] = state.class_heap
        events = self._ranks + count + 8
        self.state = state._replace(
            messages=messages,
            sent_s=sent_s,
            payload=payload,
            class_heap_s=ends,
            class_heap=flows,
            heap_s=np.concatenate([state.heap_s, np.zeros(max(0, events - len(state.heap_s)))]),
            heap=np.concatenate([state.heap, np.zeros((max(0, events - len(state.heap)), 2), np.int64)]),
            queue=self._longer_queue(1 << events.bit_length()),
        )

    def _longer_queue(self, size: int) -> np.ndarray:
        """Returns a queue of at least this size, a power of two, with the same events."""
        state = self.state
        if size <= len(state.queue):
            unchanged: np.ndarray = state.queue
            return unchanged
        queue = np.zeros((size, 2), np.int64)
        first, count = int(state.counts[Count.QUEUE_FIRST]), int(state.counts[Count.QUEUE])
        if count:
            queue[:count] = state.queue[(first + np.arange(count)) % len(state.queue)]
        state.counts[Count.QUEUE_FIRST] = 0
        return queue

    def keep_heard(self, count: int) -> None:
        """Makes room for so many messages that the server's program outside of machine code has not been shown."""
        self.state = self.state._replace(heard=np.zeros((count, 2), np.int64))

    def more_records(self) -> None:
        """Makes room for the records of at least the largest update."""
        needed = 4 * self._templates["server"].most_inputs + ROWS
        if needed > len(self.state.updates):
            self.state = self.state._replace(updates=np.zeros((needed, 5), np.int64), updates_s=np.zeros(needed))
