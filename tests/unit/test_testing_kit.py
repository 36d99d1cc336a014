"""The testing kit: strategies draw what they say and shrink, contracts are usable in other suites, the plugin tells."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import find as smallest
from hypothesis import given
from hypothesis import strategies as st

import paceline
from paceline.algorithms import METHODS, find
from paceline.algorithms.methods.ssp import Ssp
from paceline.checking.anyorder import AnyOrder
from paceline.checking.cases import Case, Times
from paceline.checking.cases.random_cases import problems
from paceline.checking.moves import RoundRobin
from paceline.records.trace import Trace
from paceline.scenarios import load
from paceline.testing import (
    GuaranteeViolated,
    InterpreterContract,
    assert_keeps_guarantees,
    cases,
    clusters,
    gradients,
    learning_problems,
    scenarios,
    schedules,
    times,
)
from paceline.testing.contract.programs import Contract
from tests.planted_bugs.servers import VersionByTwo
from tests.thorough import THOROUGH, examples

ROOT = Path(paceline.__file__).parents[1]
SUITE = """
from hypothesis import given, settings
from paceline.testing import Effort, InterpreterContract, MethodContract, assert_keeps_guarantees, cases
from paceline.checking import AnyOrder, RoundRobin
from tests.planted_bugs.servers import GateOffByOne

class TestGate(MethodContract):
    method = GateOffByOne()
    effort = Effort(schedules=20, shrink_runs=200)

class TestAnyOrder(InterpreterContract):
    def run(self, job):
        return AnyOrder(job).run(RoundRobin())

@settings(derandomize=True, deadline=None, max_examples=100, database=None)
@given(case=cases(GateOffByOne(), simulated=False, most_workers=2))
def test_drawn(case):
    assert_keeps_guarantees(case)
"""


# --- strategies ------------------------------------------------------------------------------------------------------


@given(data=st.data(), name=st.sampled_from(sorted(METHODS)))
@examples(15)
def test_cases_are_accepted_and_keep_their_guarantees(data: st.DataObject, name: str) -> None:
    case = data.draw(cases(find(name)(), most_steps=3))
    assert problems(case.method, case.nodes) == []
    assert 1 <= case.steps <= 3
    assert_keeps_guarantees(case)


def test_everything_shrinks_to_what_is_easiest_to_read() -> None:
    assert smallest(clusters(), lambda _: True) == (1,)
    assert smallest(schedules(), lambda _: True) == ()
    assert smallest(times(), lambda _: True) == Times(compute_s=(1.0,))
    assert smallest(gradients(size=2), lambda _: True).tolist() == [0.0, 0.0]
    method = Ssp(slack=1)
    case = smallest(cases(method), lambda _: True)
    assert case == Case(method=method, nodes=(1,), steps=1)


@given(problem=learning_problems(), vector=gradients(size=8))
def test_gradients_of_problems_are_bounded(problem: object, vector: object) -> None:
    from paceline.algorithms.core.values import Rank, Samples
    from paceline.checking.cases.case import SmallProblem

    assert isinstance(problem, SmallProblem)
    data = problem.load(Samples(worker=Rank(0), workers=1, index=0, count=4))
    gradient, loss = problem.gradient(vector, data)
    assert abs(gradient).max() < 1 and loss >= 0


@given(scenario=scenarios("async-sgd"))
@examples(5)
def test_scenarios_load_and_can_be_simulated(scenario: dict[str, object]) -> None:
    (run,) = paceline.simulate(load(scenario))
    assert run.summary["updates"] >= 1


# --- contracts -------------------------------------------------------------------------------------------------------


def test_a_violation_is_an_assertion_error_with_its_case() -> None:
    wrong = Case(method=VersionByTwo(), nodes=(1, 1), steps=1)
    with pytest.raises(GuaranteeViolated, match=r"async-sgd-version-by-two violates versions-by-one: ") as caught:
        assert_keeps_guarantees(wrong)
    assert caught.value.violation.case == wrong


def test_an_interpreter_contract_needs_a_run() -> None:
    with pytest.raises(NotImplementedError, match=r"Contract\.run: missing, expected a function of a job"):
        Contract().run(Case(method=find("sync-sgd")(), nodes=(1,), steps=1).job())


class TestInTurn(InterpreterContract):
    """The contract with a `run` of its own, as a user writes it."""

    def run(self, job: object) -> Trace:
        return AnyOrder(job).run(RoundRobin())  # type: ignore[arg-type]


# --- plugin ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, str, Path]:
    """The output of a suite with a failing method, and the folder of its counterexamples."""
    folder = tmp_path_factory.mktemp("suite")
    (folder / "test_mine.py").write_text(SUITE)
    command = [sys.executable, "-m", "pytest", "-p", "paceline.testing.plugin", "-p", "no:cacheprovider", "-q"]
    command += ["--rootdir", str(folder), "--counterexamples", str(folder / "found"), str(folder / "test_mine.py")]
    command += [] if THOROUGH else ["-k", "Gate or drawn or replayed"]  # TestInTurn has the rest of the contract
    answer = subprocess.run([*command, "-c", "/dev/null"], cwd=ROOT, capture_output=True, text=True, check=False)
    return answer.returncode, answer.stdout + answer.stderr, folder / "found"


def test_a_failure_prints_the_story(told: tuple[int, str, Path]) -> None:
    status, output, _ = told
    assert status == 1
    assert "test_it_keeps[bounded-clock-gap]" in output
    assert "ssp-gate-off-by-one violates bounded-clock-gap: rank" in output
    assert "1 rank 0 (worker), step 0: computes a gradient at version 0" in output
    assert "rank 2 server" in output
    assert "passed" in output.splitlines()[-1], "the contract of the interpreter holds"


def test_a_failure_under_hypothesis_prints_the_story_of_the_smallest_case(told: tuple[int, str, Path]) -> None:
    _, output, _ = told
    section = output[output.index("test_drawn") :]
    assert "ssp-gate-off-by-one violates bounded-" in section


def test_a_failure_writes_a_file_that_can_be_replayed(told: tuple[int, str, Path]) -> None:
    _, output, folder = told
    files = sorted(folder.glob("*.json"))
    assert [file.name for file in files if "clock-gap" in file.name] == ["ssp-gate-off-by-one-bounded-clock-gap.json"]
    assert f"paceline check --replay {files[0]}" in output


def test_the_plugin_imports_nothing_before_a_failure() -> None:
    code = "import sys, paceline.testing.plugin; sys.exit('numpy' in sys.modules or 'hypothesis' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
