"""Simulates a method with a server in machine code.

`simulate_servers` alternates between the event loop and what only Python can do: deriving templates, drawing times,
taking records away, and the end of the server's program.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from paceline.algorithms.core.job import Job
from paceline.algorithms.core.values import Rank, nbytes
from paceline.algorithms.runtime.stop_rule import OwnGrants, StopRule, next_step
from paceline.records.trace import Schedule, Trace
from paceline.simulator.interpreter.host_costs import NO_COSTS, HostCosts
from paceline.simulator.interpreter.weights_owner import Progress
from paceline.simulator.kernel.timing import Timing
from paceline.simulator.network.network import Network
from paceline.simulator.servers.arrays import Arrays
from paceline.simulator.servers.event_loop import machine_code
from paceline.simulator.servers.machine_state import Count, Exit, Message, Phase, Row, Second, State
from paceline.simulator.servers.node_steps import FIRST_OF_STATE, TEMPORARIES
from paceline.simulator.servers.nodes import Ends, NextSteps
from paceline.simulator.servers.outside import OutsideServer
from paceline.simulator.servers.reasons import NotCompiled
from paceline.simulator.servers.records_out import Records
from paceline.simulator.servers.replies import Unrepeated
from paceline.simulator.servers.shapes import Shape, built
from paceline.simulator.servers.suitable import why_not
from paceline.simulator.servers.symbols import Unforeseen, value_of
from paceline.simulator.servers.templates import Template
from paceline.simulator.servers.validation import validate

NEVER = 2**62


def simulate_servers(
    job: Job,
    timing: Timing,
    network: Network,
    schedule: Schedule,
    progress: Progress | None = None,
    hosts: HostCosts = NO_COSTS,
    record: Callable[[], Trace] = Trace,
    *,
    run: Callable[[State], int] | None = None,
) -> Trace:
    """Runs a job of a method with a server to its end in virtual time.

    Args:
        job: the method, its ranks, its learner and its budget.
        timing: the seconds of each rank's own work.
        network: the time of messages.
        schedule: when the weights being learned are evaluated.
        progress: called with the samples so far and the virtual time.
        hosts: what the hosts of the ranks cost and share.
        record: returns an empty record, see `records.sampled.new_trace`; by default all records are kept.
        run: the event loop; None: the compiled one.

    Returns:
        The record of the run. Its note `server` tells where the server's program ran, and why.

    Raises:
        NotCompiled: the run has to be simulated event by event.
    """
    if (reason := why_not(job, timing, network, schedule, hosts)) is not None:
        raise NotCompiled(reason)
    loop, reason, repeats = run or machine_code(), None, True
    while True:
        try:
            attempt = CompiledRun(
                job, timing, network, schedule, progress, hosts, loop, record(), reason=reason, repeats=repeats
            )
            return attempt.run()
        except Unrepeated:
            repeats = False
        except Unforeseen as found:
            if reason is not None or found.args[1:] != ("server",):
                raise NotCompiled(found.args[0]) from found
            reason = str(found.args[0])


class CompiledRun:
    """One run of one job; arguments as for `simulate_servers`.

    With a `reason`, the server's program runs outside of machine code from its beginning. `repeats` tells whether the
    event loop may repeat its replies after a stop.
    """

    def __init__(
        self,
        job: Job,
        timing: Timing,
        network: Network,
        schedule: Schedule,
        progress: Progress | None,
        hosts: HostCosts,
        run: Callable[[State], int],
        trace: Trace,
        *,
        reason: str | None = None,
        repeats: bool = True,
    ) -> None:
        self._repeats = repeats
        self.job, self.timing, self._run, self._reason, self._progress = job, timing, run, reason, progress
        self.server = Rank(job.workers)
        self.grants = OwnGrants(together=False)
        self.rule = StopRule(job.limit, together=False, grants=self.grants)
        self.records = Records(job, schedule, trace)
        self.templates = {"worker": Template(job, "worker"), "server": Template(job, "server")}
        self.arrays = Arrays(job, timing, network, hosts.handling, self.templates, trace.keeping)  # type: ignore[arg-type]
        self.outside: OutsideServer | None = None
        self._checked: dict[str, int] = {"worker": 0, "server": 0}

    @property
    def state(self) -> State:
        """The arrays."""
        return self.arrays.state

    def run(self) -> Trace:
        """Runs until all programs have ended."""
        self._begin()
        while (found := Exit(self._run(self.state))) is not Exit.DONE:
            self._outside_machine_code(found)
        if self.outside is not None:
            self.outside.close()
        self.records.flush(self.state)
        self.records.close(self.state)
        if not (
            self.state.ranks[:, Row.PHASE] == Phase.OVER
        ).all():  # the event-by-event simulator describes the deadlock
            raise NotCompiled("programs wait for something that does not happen")
        return self._close()

    def _begin(self) -> None:
        job, state = self.job, self.state
        for role, template in self.templates.items():
            if role == "server" and self._reason is not None:
                continue
            with _Of(role):
                template.root(template.first)
        self.arrays.update()
        self.arrays.begin(outside=self._reason is not None)
        state = self.state
        limit, seconds = job.limit, job.budget.seconds
        state.counts[Count.LIMIT] = NEVER if limit is None else limit
        state.seconds[Second.LIMIT] = np.inf if seconds is None else seconds
        if self._reason is not None:
            first = job.method.begin(job.team[-1], job.learner.initial())
            self.outside = OutsideServer(self, first, repeats=self._repeats)

    def _outside_machine_code(self, found: Exit) -> None:
        """Does what the event loop returned for."""
        state = self.state
        rank = int(state.counts[Count.RESUME])
        match found:
            case Exit.UNDERIVED | Exit.NEW_MESSAGE:
                self._derive(rank, new_message=found is Exit.NEW_MESSAGE)
            case Exit.STEP_TIMES:
                self.arrays.steps.draw(rank, state.ranks[:-1, Row.STEP])
            case Exit.RECORDS:
                self.flush()
            case Exit.MESSAGES:
                self.arrays.more_messages()
            case Exit.SERVER:
                assert self.outside is not None, "only a server outside of machine code returns to it"
                self.outside.go_on()
            case Exit.STOP:
                self._stop()
            case _:
                raise NotCompiled("a message is sent to a rank that does not exist")

    def flush(self) -> None:
        """Takes the records away, and makes room for at least one update."""
        self.records.flush(self.state)
        self.arrays.more_records()
        if self._progress is not None:
            self._progress(self.records.evaluations.samples, float(self.state.seconds[Second.NOW]))

    def _derive(self, rank: int, *, new_message: bool) -> None:
        role = "server" if rank == self.server else "worker"
        template, number = self.templates[role], int(self.state.ranks[rank, Row.NODE]) // 2
        with _Of(role):
            if new_message:
                kind = int(self.state.messages[self.state.ranks[rank, Row.HELD], Message.KIND])
                template.branch(number, self.arrays.shapes[kind])
            else:
                template.derive(number)
            self._check(role, template)
        self.arrays.update()

    def _check(self, role: str, template: Template) -> None:
        """Compares a template with its program whenever its number of complete steps has doubled."""
        if template.complete >= max(1, 2 * self._checked[role]):
            self._checked[role] = template.complete
            validate(template, seed=template.complete)

    def _stop(self) -> None:
        """Asks the stop rule for the server's next step; if there is none, the rest of its program runs outside."""
        state, template = self.state, self.templates["server"]
        node = template.nodes[int(state.ranks[self.server, Row.NODE]) // 2]
        assert isinstance(node, NextSteps), "only a next step can be a stop"
        present = self.state_of(self.server, node.shape)
        step, now_s = int(state.ranks[self.server, Row.STEP]), float(state.seconds[Second.NOW])
        self.grants.note(self.server, step)
        if next_step(self.job, self.job.team[-1], step, now_s, self.rule.grant, self.rule.stop) is not None:
            return
        self.outside = OutsideServer(self, present, repeats=self._repeats)
        self.outside.go_on()

    def state_of(self, rank: int, shape: Shape) -> object:
        """Returns the state with which a rank begins a step, from its registers."""
        first = int(self.state.ranks[rank, Row.BASE]) + FIRST_OF_STATE
        return built(shape, self.state.registers[first : first + shape.count].tolist())

    def _close(self) -> Trace:
        trace, state = self.records.trace, self.state
        self.arrays.costs.note_traffic()
        trace.wall_s = float(state.seconds[Second.END])
        trace.stop_reason = self.grants.why or self.job.budget.usual_end
        trace.notes.update(events=int(state.counts[Count.EVENTS]), operations=int(state.counts[Count.OPERATIONS]))
        reason = "its program was derived" if self._reason is None else self._reason
        where = "machine code" if self._reason is None else "Python"
        trace.notes["server"] = {"where": where, "reason": reason}
        if trace.keeping.whole:
            self._final_states(trace)
        return trace

    def _final_states(self, trace: Trace) -> None:
        state, template = self.state, self.templates["worker"]
        for rank in range(self.job.workers):
            node: Ends = template.nodes[int(state.ranks[rank, Row.NODE]) // 2]
            registers = state.registers[int(state.ranks[rank, Row.BASE]) + TEMPORARIES :]
            trace.states[Rank(rank)] = built(node.shape, [value_of(one, registers) for one in node.integers])
        assert self.outside is not None, "a server ends outside of machine code"
        trace.states[self.server] = self.outside.final

    def size_of(self, shape: Shape) -> int:
        """Returns the bytes of a message of this shape."""
        return nbytes(built(shape, [0] * shape.count))


class _Of:
    """Names the role whose program raised `Unforeseen`."""

    def __init__(self, role: str) -> None:
        self._role = role

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Unforeseen) and len(error.args) == 1:
            error.args = (*error.args, self._role)
