"""The exhaustive exploration: numbers of orders that are known, each order once, and what it reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, factorial
from typing import Any

import pytest

from paceline.algorithms import METHODS, find
from paceline.algorithms.core.errors import DeadlockError, ProgramError
from paceline.algorithms.core.job import Budget, Job
from paceline.algorithms.core.method import RankContext, Replica
from paceline.algorithms.core.operations import Charge, Receive, Send
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.values import Rank, Step
from paceline.checking.anyorder import AnyOrder
from paceline.checking.driver import LoggedMove
from paceline.checking.exhaustive import Orders, brute_force, explore
from paceline.checking.moves import Recorded
from paceline.checking.small_runs import Slopes
from paceline.records.trace import Trace
from tests.scripted import Action, Script
from tests.support import job_of
from tests.thorough import FAMILIES, sampled

SEND: Action = ("send", Rank(0))
ANY: Action = ("receive", None)


def job_for(*actions: Sequence[Action]) -> Job:
    """The job of a script; all ranks are on one node."""
    script = Script(actions=tuple(map(tuple, actions)))
    return job_of(script, len(actions), steps=1, nodes=[list(range(len(actions)))])


def explored(job: Job) -> tuple[Orders, list[str]]:
    """Explores all orders; returns the results of the ranks in each."""
    found: list[str] = []

    def visit(trace: Trace, _: Sequence[LoggedMove]) -> None:
        found.append(str([trace.states[rank].optimizer_state for rank in sorted(trace.states)]))

    return explore(job, visit=visit), found


def ignored(*_: object) -> None:
    """For runs whose results do not matter."""


@pytest.mark.parametrize("senders", [1, 2, 3, 4])
def test_senders_to_one_receiver_have_the_orders_of_their_messages(senders: int) -> None:
    orders, found = explored(job_for([ANY] * senders, *([[SEND]] * senders)))
    assert (orders.explored, orders.blocked, orders.complete) == (factorial(senders), 0, True)
    assert len(set(found)) == factorial(senders)


@pytest.mark.parametrize("pairs", [1, 2, 3])
def test_independent_pairs_have_one_order(pairs: int) -> None:
    ranks: list[list[Action]] = []
    for pair in range(pairs):
        ranks += [[("receive", None)], [("send", Rank(2 * pair))]]
    assert explored(job_for(*ranks))[0].explored == 1


def test_receives_from_named_sources_have_one_order() -> None:
    assert explored(job_for([("receive", Rank(2)), ("receive", Rank(1))], [SEND], [SEND]))[0].explored == 1


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_lock_of_two_workers_has_the_orders_of_its_holders(times: int) -> None:
    orders, found = explored(job_for([("add", "x")] * times, [("add", "x")] * times))
    assert (orders.explored, len(set(found))) == (comb(2 * times, times),) * 2


def test_locks_of_different_cells_have_one_order() -> None:
    assert explored(job_for([("add", "x")], [("add", "y")]))[0].explored == 1


def test_accesses_of_a_cell_have_the_orders_of_writes_among_reads() -> None:
    """One write is before, between or after two reads of another rank; reads among themselves have one order."""
    assert explored(job_for([("swap", "x")], [("read", "x"), ("read", "x")]))[0].explored == 3
    assert explored(job_for([("read", "x")], [("read", "x")]))[0].explored == 1


def test_a_wait_for_any_of_two_sees_one_the_other_or_both() -> None:
    orders, found = explored(job_for([("start charge",), ("start charge",), ("wait for any", 1)]))
    assert (orders.explored, len(set(found))) == (3, 3)


def test_a_wait_for_two_of_three_sees_four_sets() -> None:
    assert explored(job_for([*[("start charge",)] * 3, ("wait for any", 2)]))[0].explored == 4


def test_a_wait_for_any_sees_messages_that_come_before_it() -> None:
    """The first wait sees the charge, the message, or both; the second one, if there is one, the rest."""
    first: list[Action] = [("start charge",), ("start receive", None), ("wait for any", 1)]
    orders, found = explored(job_for(first, [SEND]))
    assert (orders.explored, len(set(found))) == (3, 3)


def test_a_timeout_is_one_more_order() -> None:
    orders, found = explored(job_for([("receive or not", None)], [SEND]))
    assert (orders.explored, sorted(found)) == (2, ["[['late'], []]", "[[(1, (1, 0))], []]"])


def test_a_cancellation_comes_before_or_after_the_end() -> None:
    _, found = explored(job_for([("start charge",), ("cancel",)]))
    assert sorted(found) == ["[[False]]", "[[True]]"]


def test_messages_with_tags_come_in_any_order_of_their_tags() -> None:
    assert explored(job_for([ANY], [("send", Rank(0), "other"), SEND]))[0].explored == 1


@pytest.mark.parametrize(
    "actions",
    [
        ([ANY, ANY], [SEND], [SEND]),
        ([("add", "x")], [("add", "x")]),
        ([("start charge",), ("start charge",), ("wait for any", 1)], [("start charge",)]),
        ([("receive or not", None)], [SEND]),
    ],
)
def test_the_number_without_reduction_is_that_of_brute_force(actions: Sequence[Sequence[Action]]) -> None:
    job = job_for(*actions)
    orders = explore(job, visit=ignored, count_sets=10**8)
    assert orders.counted == orders.explored
    assert orders.without_reduction == brute_force(job, 10**6) >= orders.explored


def test_brute_force_ends_at_its_limit() -> None:
    assert brute_force(job_for([ANY, ANY, ANY], [SEND], [SEND], [SEND]), 10) == 11


def test_an_exploration_ends_at_its_limit() -> None:
    orders = explore(job_for([ANY] * 3, [SEND], [SEND], [SEND]), visit=ignored, most=2)
    assert (orders.explored, orders.complete) == (2, False)


READ_THE_CLOCK = ("dbs-sgd", "async-diloco", "halos", "decoupled-diloco")
"""a clock that here counts a lane's own operations"""


@pytest.mark.parametrize("name", sampled(METHODS, FAMILIES))
def test_no_method_of_two_workers_has_a_redundant_run(name: str) -> None:
    """One step each; the moves of every run are those of an any-order run with the same weights."""
    method = METHODS[name]()
    job = small(name)
    last: list[Any] = []
    orders = explore(job, visit=lambda trace, log: last.append((trace.weights, [entry.move for entry in log])), most=50)
    assert orders.explored > 0 == orders.blocked
    weights, moves = last[-1]
    if name not in READ_THE_CLOCK:
        assert (AnyOrder(job).run(Recorded(moves)).weights == weights).all(), method.name


@pytest.mark.slow
@pytest.mark.thorough
def test_a_continuation_through_explored_branches_is_not_explored_again() -> None:
    """Run 2037 was redundant when only the first node of a continuation compared it with its sleep set."""
    job = Job.of(METHODS["hogwild-sgd"](), [list(map(Rank, range(3)))], Slopes(), batch=4, budget=Budget(samples=16))
    orders = explore(job, visit=ignored, most=2100)
    assert (orders.explored, orders.blocked) == (2100, 0)


def small(name: str, steps: int = 1) -> Job:
    method = METHODS[name]()
    ranks = [Rank(rank) for rank in range(1 if method.alone else 2)]
    nodes = next(nodes for nodes in ([[rank] for rank in ranks], [ranks]) if not method.problems(nodes))
    return Job.of(method, nodes, Slopes(), batch=4, budget=Budget(samples=4 * steps * len(ranks)))


def test_workers_of_a_server_have_the_orders_of_their_pushes() -> None:
    """Two updates by a server, each with a gradient of either worker."""
    seen: list[tuple[int, ...]] = []

    def visit(trace: Trace, _: Sequence[LoggedMove]) -> None:
        seen.append(tuple(int(update.rank) for update in trace.updates))

    job = Job.of(find("async-sgd")(), [[Rank(0)], [Rank(1)]], Slopes(), batch=4, budget=Budget(samples=8))
    assert explore(job, visit=visit).complete
    assert set(seen) == {(0, 0), (0, 1), (1, 0), (1, 1)}


def test_a_deadlock_of_some_orders_is_found() -> None:
    """Rank 0 needs the message of rank 2 second; if it comes first, no other one is left."""
    job = job_for([ANY, ("receive", Rank(2))], [SEND], [SEND])
    with pytest.raises(DeadlockError, match="waits for a message from rank 2"):
        explore(job, visit=ignored)
    errors: list[Exception] = []
    orders = explore(job, visit=ignored, failed=lambda error, _: errors.append(error))
    assert (orders.explored, len(errors), orders.complete) == (2, 1, True)


CALLS: list[int] = []


@dataclass(frozen=True, kw_only=True)
class Forgetful(Script):
    """Its program depends on how often it has run."""

    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[Any]:
        CALLS.append(1)
        if me.rank:
            if len(CALLS) == 5:  # rank 1 in the second run
                yield from Charge("work", 1)
            yield from Send(Rank(0), None)
        else:
            yield from Receive()
            yield from Receive()


def test_a_program_that_does_not_repeat_its_operations_is_reported() -> None:
    CALLS.clear()
    with pytest.raises(ProgramError, match="did not repeat the operations of an earlier run"):
        explore(job_of(Forgetful(actions=()), 3, steps=1), visit=ignored)
