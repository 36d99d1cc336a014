"""State that programs keep in local variables is found before a method is used; correct methods are accepted."""

from __future__ import annotations

import pickle
import random
import re
import signal
import threading
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import paceline
from paceline.algorithms import METHODS
from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.guarantees import Guarantee
from paceline.algorithms.core.method import Method, RankContext, Replica, SgdMethod, StalenessKind
from paceline.algorithms.core.operations import AllReduce, Gradient, Load, NextStep, Receive, RecordUpdate, Send
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.values import Rank, Weights
from paceline.algorithms.methods.baseline import SyncSgd
from paceline.algorithms.methods.parameter_server import AsyncSgd, Push, ServerStopped, dismiss, server_of
from paceline.algorithms.methods.survivors import LivingWorkers
from paceline.backend.transports.launchers import RefusedElsewhere
from paceline.checking import hidden_state as module
from paceline.checking import small_runs
from paceline.checking.anyorder import AnyOrder
from paceline.checking.check_guarantees import broken
from paceline.checking.hidden_state import hidden_state
from paceline.checking.limits import interrupted_when_stuck, limited
from paceline.checking.moves import Move, first
from paceline.checking.own_methods import check_own_methods
from paceline.checking.small_runs import trial_of
from paceline.cli.app import app
from paceline.cli.options import EXIT_INPUT
from paceline.scenarios import ScenarioError, load
from tests.support import job_of


@pytest.mark.parametrize("name", METHODS)
def test_every_built_in_method_passes(name: str) -> None:
    method = METHODS[name]()
    assert trial_of(method) is not None  # without a trial the check says nothing
    assert hidden_state(method) == ()


# --- methods of which the check must find something, and methods that it must let through ----------------------------


@dataclass(frozen=True, kw_only=True)
class Forgets(SyncSgd):
    """Gradient accumulation with the sum in a local variable."""

    name = "forgets"
    every: int = 4

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        rule, total, count = self.rule(me.layout.layers), None, 0
        while step := (yield from NextStep(state)):
            gradient = yield from Gradient(state.weights, (yield from Load(step.samples)))
            total = gradient.vector if total is None else total + gradient.vector
            count, weights, memory = count + 1, state.weights, state.optimizer_state
            if count == self.every:
                mean = yield from AllReduce(value=total, group=me.workers, key=f"sum {step.number}", op="mean")
                vector, memory = rule.update(weights.vector, mean / count, memory)
                version = yield from RecordUpdate(Weights(vector, weights.version), [gradient.contribution()])
                weights, total, count = Weights(vector, version), None, 0
            state = Replica(step.number + 1, weights, memory)
        return state


@dataclass(frozen=True, kw_only=True)
class Averages(AsyncSgd):
    """A server that applies its gradients with a momentum in a local variable."""

    name = "averages"

    @program
    def server(self, me: RankContext, state: Replica) -> Program[Replica]:
        team, velocity = LivingWorkers(me), 0.0 * state.weights.vector
        while step := (yield from NextStep(state)):
            message = yield from team.message()
            push: Push = message.value
            velocity = 0.5 * velocity - self.learning_rate * push.vector
            weights = Weights(state.weights.vector + velocity, state.weights.version)
            version = yield from RecordUpdate(weights, [push.origin])
            state = Replica(step.number + 1, Weights(weights.vector, version))
            yield from Send(message.source, state.weights)
        yield from dismiss(team)
        return state


@dataclass(frozen=True, kw_only=True)
class Trips(SyncSgd):
    """A program that fails when it is started at a step other than the first."""

    name = "trips"

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        seen: list[int] = []
        while step := (yield from NextStep(state)):
            seen.append(step.number)
            if seen != list(range(step.number + 1)):
                raise KeyError(step.number)
            state = replace(state, step=step.number + 1)
        return state


@dataclass(frozen=True, kw_only=True)
class Pulls(AsyncSgd):
    """A worker that requests the weights from the server before its first step, which is correct."""

    name = "pulls"

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        yield from Send(server_of(me), "pull")
        reply = (yield from Receive(server_of(me))).value
        if isinstance(reply, ServerStopped):
            return state
        return (yield from super().worker(me, replace(state, weights=reply)))

    @program
    def server(self, me: RankContext, state: Replica) -> Program[Replica]:
        rule, team = self.rule(me.layout.layers), LivingWorkers(me)
        while step := (yield from NextStep(state)):
            while (message := (yield from team.message())).value == "pull":
                yield from Send(message.source, state.weights)
            vector, _ = rule.update(state.weights.vector, message.value.vector, state.optimizer_state)
            weights = Weights(vector, state.weights.version)
            version = yield from RecordUpdate(weights, [message.value.origin])
            state = Replica(step.number + 1, Weights(vector, version), state.optimizer_state)
            yield from Send(message.source, state.weights)
        yield from dismiss(team)
        return state


@dataclass(frozen=True, slots=True)
class Summed(Replica):
    total: Any = None


@dataclass(frozen=True, kw_only=True)
class Flushes(SgdMethod):
    """A sum in a local variable that the program adds to the state it returns at a stop, which is correct."""

    name = "flushes"
    staleness_kind = StalenessKind.STEPS
    source = "the tests"
    guarantees = frozenset({Guarantee.DETERMINISTIC})

    def begin(self, me: RankContext, vector: Any) -> Summed:
        return Summed(0, Weights(vector, 0), total=0.0 * vector)

    @program
    def worker(self, me: RankContext, state: Summed) -> Program[Summed]:
        total = state.total
        while step := (yield from NextStep(state)):
            gradient = yield from Gradient(state.weights, (yield from Load(step.samples)))
            mean = yield from AllReduce(value=gradient.vector, group=me.workers, key=f"mean {step.number}", op="mean")
            total = 0.5 * total + mean
            weights = Weights(state.weights.vector - self.learning_rate * total, state.weights.version)
            version = yield from RecordUpdate(weights, [gradient.contribution()])
            state = Summed(step.number + 1, Weights(weights.vector, version))
        return replace(state, total=total)


@dataclass(frozen=True, kw_only=True)
class Random(SyncSgd):
    """A method whose weights differ between runs, so a comparison is impossible."""

    name = "random"

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        while step := (yield from NextStep(state)):
            weights = Weights(state.weights.vector + random.random(), state.weights.version)
            version = yield from RecordUpdate(weights)
            state = Replica(step.number + 1, Weights(weights.vector, version))
        return state


@dataclass(frozen=True, kw_only=True)
class Endless(SyncSgd):
    """A method that does not end, so the check decides nothing."""

    name = "endless"

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        while True:
            yield from NextStep(replace(state, step=0))


@pytest.mark.parametrize("method", [Pulls(), Flushes(), Random()], ids=lambda method: method.name)
def test_a_method_that_no_checkpoint_harms_passes(method: Method) -> None:
    assert trial_of(method) is not None
    assert hidden_state(method) == ()


def test_a_run_that_does_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_runs, "MOST_MOVES", 500)
    assert trial_of(Endless()) is None
    assert hidden_state(Endless()) == ()


@pytest.mark.parametrize(
    ("method", "begins", "holds"),
    [
        (Forgets(), "worker: after 12 steps the weights differ by 0.", "keep count and total in the state"),
        (Forgets(every=7), "worker: after 16 steps the weights differ by 0.", "keep count and total in the state"),
        (Forgets(every=500), "worker: after 12 steps with every=4 in place of 500 the weights differ", "keep count"),
        (Averages(), "server: after 12 steps the weights differ by 3.", "keep velocity in the state"),
        (Trips(), "worker: within 12 steps the program fails if", "(KeyError: 1)"),
    ],
    ids=["worker", "period", "long period", "server", "error"],
)
def test_the_role_and_the_difference_are_said(method: Method, begins: str, holds: str) -> None:
    (words,) = hidden_state(method)
    assert words.startswith(begins)
    assert holds in words


def test_vectors_may_be_tensors() -> None:
    @dataclass(frozen=True, kw_only=True)
    class OfTensors(Forgets):
        @program
        def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
            state.weights.vector.clone()  # which an array does not have
            return (yield from super().worker(me, state))

    assert hidden_state(OfTensors(every=3)) == ()  # it cannot run on arrays, so the check decides nothing
    module._FOUND.clear()
    assert "count and total" in hidden_state(OfTensors(every=3), tensors=True)[0]


def test_a_method_is_tried_once_for_the_same_hyperparameters(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: Counter[str] = Counter()

    def counted(method: Method, *args: Any, **kwargs: Any) -> Any:
        tried[repr(method)] += 1
        return trial_of(method, *args, **kwargs)

    monkeypatch.setattr(module, "trial_of", counted)
    monkeypatch.setattr(module, "_FOUND", {})
    said = [hidden_state(method) for method in (Forgets(every=3), Forgets(every=3), Forgets(every=5))]
    assert said[0] == said[1] and all(said)
    assert set(tried.values()) == {1} and len(tried) == 2


def test_the_checker_of_guarantees_reports_it() -> None:
    job = job_of(Forgets(), 2, steps=4)
    found = broken(job, AnyOrder(job).run())
    assert any(line.startswith("re-entry: worker: after 12 steps the weights differ") for line in found)
    assert not any("re-entry" in line for line in broken(job, AnyOrder(job).run(), [Guarantee.SYNCHRONOUS]))


# --- every way in -----------------------------------------------------------------------------------------------------

SCENARIO = """
name: small
algorithms: [sync-sgd, {name: "forgets.py:Forgets", every: 3}]
workload: {model: quadratic, learning: quadratic}
cluster: {nodes: [{device: {name: d, overhead: 4 ms, per_sample: 1 us}, workers_per_node: 2}]}
stop: {updates: 3}
"""
FOUND = r"small: algorithms\[1\]: .*forgets\.py:Forgets: worker: after 12 steps the weights differ by 0\.\d+ if"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a scenario and the method of this file."""
    head = "\n".join(line for line in Path(__file__).read_text().splitlines() if line.startswith("from paceline."))
    source = Path(__file__).read_text()
    start = source.index("@dataclass(frozen=True, kw_only=True)\nclass Forgets")
    body = source[start : source.index("\n\n\n", start)]
    (tmp_path / "forgets.py").write_text(f"from dataclasses import dataclass\n{head}\n{body}\n")
    (tmp_path / "small.yaml").write_text(SCENARIO)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [["simulate"], ["train"], ["compare"], ["sweep", "--vary", "stop.updates=2,3"]],
    ids=lambda words: words[0],
)
def test_commands_refuse_it_before_anything_runs(here: Path, words: list[str]) -> None:
    answer = CliRunner().invoke(app, [words[0], "small.yaml", *words[1:], "--out", "runs"])
    assert answer.exit_code == EXIT_INPUT, answer.output
    assert len(answer.stderr.splitlines()) == 1
    assert re.search(FOUND, answer.stderr)
    assert list((here / "runs").iterdir()) == []


@pytest.mark.parametrize("name", ["simulate", "train", "compare"])
def test_functions_refuse_it(here: Path, name: str) -> None:
    with pytest.raises(ScenarioError, match=FOUND):
        getattr(paceline, name)("small.yaml")


def test_a_sweep_in_python_refuses_it(here: Path) -> None:
    with pytest.raises(ScenarioError, match=FOUND):
        paceline.sweep("small.yaml", ["stop.updates=2,3"])


def test_the_facade_names_its_own_functions() -> None:
    """So that they can be sent to other processes."""
    for run in (paceline.simulate, paceline.train):
        assert pickle.loads(pickle.dumps(run)) is run


def test_of_joined_processes_the_first_one_speaks(here: Path) -> None:
    @dataclass
    class World:
        leads: bool

    for leads, kind in ((True, ScenarioError), (False, RefusedElsewhere)):
        with pytest.raises(InputError, match=FOUND) as caught:
            paceline.train("small.yaml", world=World(leads))  # type: ignore[arg-type]
        assert caught.type is kind


def test_built_in_methods_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "hidden_state", None)
    check_own_methods(load("quickstart", algorithms=list(METHODS)[:3]))


@dataclass(frozen=True, kw_only=True)
class Hangs(SyncSgd):
    name = "hangs"

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        threading.Event().wait(300.0)
        return (yield from super().worker(me, state))


def test_a_program_that_hangs_is_left_alone_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """The following run shows where it hangs. An existing timer continues."""
    monkeypatch.setattr(module, "STUCK_S", 0.2)
    before = signal.getitimer(signal.ITIMER_REAL), signal.getsignal(signal.SIGALRM)
    with pytest.warns(UserWarning, match="hangs: its programs were not checked .* goes on without an operation"):
        assert hidden_state(Hangs()) == ()
    (left_s, interval_s), handler = signal.getitimer(signal.ITIMER_REAL), signal.getsignal(signal.SIGALRM)
    assert ((left_s > 0, interval_s), handler) == ((before[0][0] > 0, before[0][1]), before[1])


class Stuck(Exception):
    """What the limit raises."""


def test_only_a_program_without_operations_is_stuck() -> None:
    """However long a run takes, it is not interrupted while it makes moves."""
    choose, end_s = limited(first, 10**9), time.process_time() + 0.2
    ready = [Move(act="go", rank=Rank(0))]
    with interrupted_when_stuck(Stuck, seconds=0.02):
        while time.process_time() < end_s:
            choose(ready)
    with pytest.raises(Stuck), interrupted_when_stuck(Stuck, seconds=0.02):
        compute_forever()


def test_a_process_that_gets_no_processor_is_not_stuck() -> None:
    """However many looks are due, the process sees one."""
    with interrupted_when_stuck(Stuck, "real time", seconds=0.04):
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
        time.sleep(0.2)
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])


def compute_forever() -> None:
    while True:
        pass
