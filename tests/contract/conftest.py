"""The interpreters that every contract test runs in.

A test asks for `interpreter` and gets a callable that runs a job and answers its trace; it may look at nothing else.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from paceline.algorithms.job import Job
from paceline.algorithms.values import Rank
from paceline.checking.anyorder import AnyOrder
from paceline.checking.moves import Adversary, Chooser, RoundRobin, Shuffled, first
from paceline.records.trace import Trace
from tests.contract.cases import Interpreter

CHOOSERS: dict[str, Callable[[], Chooser]] = {
    "any-order, first": lambda: first,
    "any-order, in turn": RoundRobin,
    "any-order, shuffled": lambda: Shuffled(1),
    "any-order, starving rank 0": lambda: Adversary(Rank(0)),
}


@pytest.fixture(params=[*CHOOSERS])
def interpreter(request: pytest.FixtureRequest) -> Interpreter:
    choose = CHOOSERS[request.param]

    def run(job: Job) -> Trace:
        return AnyOrder(job).run(choose())

    return run
