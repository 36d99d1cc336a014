"""`paceline check` finds each planted bug, makes the counterexample small, and finds nothing in the methods without it.

`make test` tries some bugs of each file of tests/planted_bugs, and `make test-all` all of them.
benchmarks/checking.py prints the figures.
"""

from __future__ import annotations

from collections import Counter

import pytest

from paceline.algorithms import METHODS
from tests.planted_bugs.finding import false_alarms, search, without_clock
from tests.planted_bugs.table import BUGS
from tests.thorough import FAMILIES, SIMILAR, cases, sampled

MOST_SCHEDULES = 1000
"""the schedules in which a bug is to be found, as many as `paceline check` tries"""
MOST_RANKS, MOST_STEPS = 3, 5
"""the size of a counterexample, without the servers that the bug has beyond the first"""
FEWEST, FEWEST_SIMULATED = 30, 10
"""planted bugs, and those among them that only runs in seconds show"""
SAMPLE = {
    "easgd-replies-after-move",
    "ssp-gate-off-by-one",
    "k-async-counts-twice",
    "sync-sgd-crossed-collectives",
    "direct-exchange-without-tag",
    "noloco-moves-before-it-sends",
    "eager-sgd-clears-the-buffer",
    "sync-sgd-forgets-momentum",
    "sync-sgd-reads-the-clock",
    "sync-sgd-ps-filed-by-time",
    "k-avg-period-by-speed",
    "streaming-diloco-mixes-outer",
    "acco-applies-its-own-half",
    "async-sgd-ends-with-one-server",
}
BY_NAME = {bug.name: bug for bug in BUGS}
EVERY_BUG = pytest.mark.parametrize("name", sampled(BY_NAME, SAMPLE))
ORIGINALS = pytest.mark.parametrize(
    "name",
    sampled(BY_NAME, lambda name: name in SAMPLE and BY_NAME[name].original.name not in set(FAMILIES) - set(SIMILAR)),
)
"""without the built-in methods that contract/test_method_contract checks in as many schedules"""
ONLY_SIMULATED = pytest.mark.parametrize("name", sampled([b.name for b in BUGS if b.only_simulated], SAMPLE))


@EVERY_BUG
def test_a_planted_bug_is_found_and_its_counterexample_is_small(name: str) -> None:
    found = search(BY_NAME[name], schedules=MOST_SCHEDULES, shrink_runs=cases(300, 3000))
    assert found is not None, f"not found in {MOST_SCHEDULES} schedules"
    assert found.violation.guarantee in BY_NAME[name].violates
    assert found.ranks <= MOST_RANKS + max(0, BY_NAME[name].method.num_servers - 1)
    assert found.steps <= MOST_STEPS
    assert (found.violation.case.times is not None) or not BY_NAME[name].only_simulated


@ORIGINALS
def test_without_the_bug_there_is_no_violation(name: str) -> None:
    assert false_alarms(BY_NAME[name], schedules=cases(10, 200)) == []


@ONLY_SIMULATED
def test_the_any_order_interpreter_alone_does_not_show_it(name: str) -> None:
    """Its clock counts moves: no two readings are equal, or less than 1 apart."""
    assert without_clock(BY_NAME[name], schedules=cases(10, 300)) == []


def test_every_bug_has_a_name_a_sentence_and_a_guarantee() -> None:
    assert len(BUGS) >= FEWEST
    assert sum(bug.only_simulated for bug in BUGS) >= FEWEST_SIMULATED
    assert [name for name, times in Counter(bug.name for bug in BUGS).items() if times > 1] == []
    for bug in BUGS:
        assert bug.name not in METHODS
        assert bug.sentence.endswith("."), bug.name
        assert bug.violates, bug.name
