"""The reduced exploration finds exactly the orders that brute force finds, each of them once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms.core.errors import DeadlockError
from paceline.checking.anyorder import AnyOrder
from paceline.checking.driver import LoggedMove
from paceline.checking.exhaustive import explore
from paceline.checking.exhaustive.events import LaneEvent, indices, put_in_order
from paceline.checking.exhaustive.exploration import all_runs
from paceline.checking.moves import Shuffled
from paceline.records.trace import Trace
from tests.scripted import Script, scripts
from tests.support import job_of

MOST = 300
"""runs of brute force; programs with more sequences are compared in part"""


def order_of(events: Sequence[LaneEvent]) -> frozenset[object]:
    """The events of a run by lane and number, each with its message and with the events that happen before it."""
    put_in_order(events, 0)
    seen = Counter[object]()
    names = []
    for event in events:
        names.append((event.key, event.took, seen[event.key.lane]))
        seen[event.key.lane] += 1
    return frozenset((names[at], frozenset(names[i] for i in indices(event.before))) for at, event in enumerate(events))


def answers(trace: Trace) -> str:
    return str([trace.states[rank].optimizer_state for rank in sorted(trace.states)])


@given(scripts())
def test_all_orders_are_found_once(script: Script) -> None:
    """Compares the orders, the results, and the number of sequences with those of brute force.

    No run is redundant, and the results of the any-order interpreter, which delivers messages at any time, are among
    those that are explored.
    """
    job = job_of(script, len(script.actions), steps=1, nodes=[list(range(len(script.actions)))])
    brute = list(islice(all_runs(job), MOST))
    expected = {order_of(run.events): None if error else answers(run.trace) for run, error in brute}
    found: list[str | None] = []

    def visit(trace: Trace, _: Sequence[LoggedMove]) -> None:
        found.append(answers(trace))

    orders = explore(job, visit=visit, failed=lambda *_: found.append(None), count_sets=10**8)
    assert (orders.blocked, orders.complete) == (0, True)
    assert set(expected.values()) <= set(found)
    if len(brute) < MOST:
        assert orders.explored == len(expected)
        assert orders.without_reduction == len(brute)
    for seed in range(3):
        try:
            assert answers(AnyOrder(job).run(Shuffled(seed))) in found
        except DeadlockError:
            assert None in found


@given(scripts(longest=3), st.integers(1, 3))
def test_an_exploration_that_is_cut_short_makes_the_same_first_runs(script: Script, most: int) -> None:
    job = job_of(script, len(script.actions), steps=1, nodes=[list(range(len(script.actions)))])
    logs: list[list[str]] = []
    for limit in (None, most):
        moves: list[str] = []
        note = partial(_note, moves)
        explore(job, visit=note, failed=note, most=limit)
        logs.append(moves)
    assert logs[1] == logs[0][:most]


def _note(moves: list[str], _: object, log: Sequence[LoggedMove]) -> None:
    moves.append(str([entry.move for entry in log]))
