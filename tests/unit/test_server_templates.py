"""Templates of programs with symbolic numbers: what is derived, what is refused, and that wrong ones are found."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest

from paceline.algorithms import find
from paceline.algorithms.core.guarantees import Guarantee
from paceline.algorithms.core.job import Budget, Job
from paceline.algorithms.core.method import RankContext, Replica
from paceline.algorithms.core.operations import Gradient, Load, NextStep, Now, Receive
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.values import Layer, Layout, Rank
from paceline.algorithms.methods.parameter_server import AsyncSgd, server_of
from paceline.records.trace import Schedule
from paceline.simulator.kernel.timing import Timing
from paceline.simulator.network.network import NoCost
from paceline.simulator.runs.engine import run_job
from paceline.simulator.servers.nodes import NextSteps, Receives, Sends
from paceline.simulator.servers.reasons import NotCompiled
from paceline.simulator.servers.simulate import simulate_servers
from paceline.simulator.servers.symbols import Symbol, Unforeseen, value_of
from paceline.simulator.servers.templates import Template
from paceline.simulator.servers.validation import WrongTemplate, validate
from paceline.workloads.learners.timing_only import TimingOnly


class Times:
    """A timing with constant seconds."""

    completes = False

    def compute_s(self, rank: Rank, step: int, samples: int) -> float:
        return 0.01 * (1 + rank)

    def paused_s(self, samples: int, pause_s: float) -> float:
        return 0.0

    def started_factor(self, samples: int) -> float:
        return 1.0

    def layer_shares(self) -> tuple[list[float], list[float]]:
        return [], []

    def timeline(self, rank: Rank) -> None:
        return None

    def work_s(self, rank: Rank, op: Any) -> float:
        return 0.001

    def load_s(self, rank: Rank, samples: int) -> float:
        return 0.0

    def rest_s(self, rank: Rank) -> float:
        return 0.0


TIMES: Timing = Times()


def job_of(method: Any, workers: int = 4, updates: int = 40) -> Job:
    learner = TimingOnly(Layout((Layer("a", 0, 10),)), 1000)
    return Job.of(method, [[Rank(rank)] for rank in range(workers)], learner, batch=8, budget=Budget(8 * updates))


def derived(method: Any) -> dict[str, Template]:
    """Derives the first steps of a worker and of the server, which exchange the messages that they send."""
    job = job_of(method)
    templates = {"worker": Template(job, "worker"), "server": Template(job, "server")}
    for template in templates.values():
        template.derive(template.root(template.first))
    for role, other in (("server", "worker"), ("worker", "server")):
        for shape in [node.shape for node in templates[other].nodes if isinstance(node, Sends)]:
            for number, node in list(enumerate(templates[role].nodes)):
                if isinstance(node, Receives):
                    templates[role].branch(number, shape)
    return templates


def test_the_server_of_async_sgd_is_one_path() -> None:
    server = derived(find("async-sgd")())["server"]
    names = [type(node).__name__ for node in server.nodes]
    assert names == ["Receives", "Charges", "Updates", "Sends", "NextSteps"]


@pytest.mark.parametrize("name", ["async-sgd", "async-easgd", "downpour", "k-async"])
def test_templates_request_what_programs_request(name: str) -> None:
    for template in derived(find(name)()).values():
        assert validate(template, seed=1) > 0


@pytest.mark.parametrize("kind", [NextSteps, Sends])
def test_a_wrong_number_in_a_template_is_found(kind: type) -> None:
    template = derived(find("async-sgd")())["server"]
    (number,) = (number for number, node in enumerate(template.nodes) if isinstance(node, kind))
    node: Any = template.nodes[number]
    wrong = Symbol.register(None, 1) + 17  # type: ignore[arg-type]
    template.nodes[number] = replace(node, integers=(wrong.content, *node.integers[1:]))
    with pytest.raises(WrongTemplate, match="the program requests"):
        validate(template, seed=1)


def test_a_missing_operation_is_found() -> None:
    template = derived(find("async-sgd")())["server"]
    receive: Receives = template.nodes[0]
    ((shape, charge),) = receive.children.items()
    receive.children[shape] = template.nodes[charge].then
    with pytest.raises(WrongTemplate, match="Charge"):
        validate(template, seed=1)


def test_symbols_decide_only_by_their_path() -> None:
    decided = []

    class Always:
        def decide(self, condition: Any) -> bool:
            decided.append(condition)
            return True

    step = Symbol.register(Always(), 0)
    assert step + 1 > step and step != step + 2 and not decided  # true for every step
    assert step > 3 and len(decided) == 1
    assert value_of((3 * step - 2 * (step // 4)).content, [9]) == 23
    for refused in (lambda: {step}, lambda: [0][step], lambda: step * step, lambda: float(step)):
        with pytest.raises(Unforeseen):
            refused()


@dataclass(frozen=True, kw_only=True)
class ReadsClock(AsyncSgd):
    """A method whose workers read the clock."""

    name: ClassVar[str] = "reads-clock"

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        while step := (yield from NextStep(state)):
            yield from Now()
            gradient = yield from Gradient(state.weights, (yield from Load(step.samples)))
            yield from self.push(me, gradient, None)
            reply = (yield from Receive(server_of(me))).value
            if not hasattr(reply, "vector"):
                return state
            state = Replica(step.number + 1, reply, state.optimizer_state)
        return state


@dataclass(frozen=True, kw_only=True)
class CountsByRank(AsyncSgd):
    """A method whose server uses ranks as keys, so that its program runs in Python."""

    name: ClassVar[str] = "counts-by-rank"
    guarantees = frozenset({Guarantee.CONSERVES_MESSAGES})

    def weighed(self, push: Any, version: int) -> Any:
        return {push.origin.rank: push.vector}[push.origin.rank]


def test_a_program_with_other_operations_runs_event_by_event() -> None:
    with pytest.raises(NotCompiled, match="its worker requests `Now`"):
        simulate_servers(job_of(ReadsClock()), TIMES, NoCost(), Schedule(every=10))
    trace = run_job(job_of(ReadsClock()), TIMES, NoCost(), Schedule(every=10), engine="compiled")
    assert trace.notes["engine"] == {"name": "events", "reason": "it cannot be compiled: its worker requests `Now`"}


def test_a_server_without_a_template_runs_in_python_beside_compiled_workers() -> None:
    traces = [
        run_job(job_of(CountsByRank()), TIMES, NoCost(), Schedule(every=10), engine=engine)
        for engine in ("events", "compiled")
    ]
    assert traces[1].notes["server"]["where"] == "Python" and "as a key" in traces[1].notes["server"]["reason"]
    assert traces[0].updates == traces[1].updates and traces[0].spans == traces[1].spans


def test_a_run_with_numbers_is_not_compiled() -> None:
    with pytest.raises(NotCompiled, match="the method has no server"):
        simulate_servers(job_of(find("sync-sgd")()), TIMES, NoCost(), Schedule(every=10))


def test_a_start_that_depends_on_the_rank_is_run_event_by_event() -> None:
    """`begin` uses the rank as an index, which a template cannot represent."""
    method: Any = find("async-diloco")
    with pytest.raises(NotCompiled, match="uses a rank"):
        simulate_servers(
            job_of(method(speeds=(1.0, 2.0, 3.0, 4.0))), TIMES, NoCost(), Schedule(every=1), run=lambda _: 0
        )
