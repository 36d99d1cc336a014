"""Tries custom methods before anything is run: rejects hidden state, and says what a broken promise means for figures.

`simulate`, `train`, `compare` and `sweep` call this. Built-in methods are not tried here: the test suite tries them.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from paceline.algorithms.core.errors import MethodWarning
from paceline.algorithms.core.guarantees import Guarantee
from paceline.algorithms.core.method import Method
from paceline.algorithms.core.values import Rank
from paceline.algorithms.registry import METHODS, reference
from paceline.records import Run
from paceline.scenarios.resolution.plan import names_of
from paceline.scenarios.resolution.schema import Scenario
from paceline.scenarios.values.mistakes import Problem, raise_all

FIRST_ONLY = "loss, accuracy and times to a target are those of the first worker's weights; other workers have others"
STALENESS = "convergence may depend on a staleness that is not promised; the figures of staleness have the real one"
MEANINGS = {
    Guarantee.REPLICAS_EQUAL.slug: FIRST_ONLY,
    Guarantee.REPLICAS_MEET.slug: FIRST_ONLY,
    Guarantee.DETERMINISTIC.slug: "loss and accuracy depend on the order of messages: on another cluster, and in a "
    "real run, the same seed has others",
    Guarantee.SAME_AS_SYNC_SGD.slug: "loss and accuracy are not those of sync-sgd",
    Guarantee.SYNCHRONOUS.slug: STALENESS,
    Guarantee.EXACT_DELAY.slug: STALENESS,
    Guarantee.BOUNDED_STALENESS.slug: STALENESS,
    Guarantee.BOUNDED_CLOCK_GAP.slug: "workers run further apart than promised, and so may wait less",
}
"""what a violated guarantee means for the figures of a run"""
OTHERWISE = "the figures of its runs are those of a method that does something else than it promises"


@dataclass(frozen=True, slots=True)
class BrokenPromises:
    """The promises of methods that small runs broke.

    Args:
        sentences: what was broken and what it means for the figures, by the name of the algorithm.
    """

    sentences: Mapping[str, Sequence[str]]

    def marked(self, run: Run) -> Run:
        """Returns the run with the broken promises of its method in its summary."""
        if not (broken := self.sentences.get(run.algorithm)):
            return run
        return replace(run, summary={**run.summary, "broken_promises": list(broken)})

    def marking(self, keep: Callable[[Run], Run]) -> Callable[[Run], Run]:
        """Returns a function that stores a run with the broken promises of its method.

        Args:
            keep: stores a run.
        """
        return lambda run: keep(self.marked(run))


def check_own_methods(*scenarios: Scenario) -> BrokenPromises:
    """Checks each method that is not built in with small runs, which take some hundredths of a second.

    A promise that a small run breaks is a warning, with what it means for the figures.

    Returns:
        The broken promises, for the summaries of the runs.

    Raises:
        ScenarioError: a program of a method keeps state in local variables. The message names the role and variables.
    """
    problems = [(scenario.name, problem) for scenario in scenarios for problem in _problems(scenario)]
    if problems:
        raise_all(problems[0][0], [problem for _, problem in problems])
    mistakes: dict[str, list[str]] = defaultdict(list)
    for name, words in dict.fromkeys(pair for scenario in scenarios for pair in _broken_promises(scenario)):
        mistakes[name].append(words)
    for words in dict.fromkeys(words for sentences in mistakes.values() for words in sentences):
        warnings.warn(words, MethodWarning, stacklevel=2)
    return BrokenPromises(dict(mistakes))


def _broken_promises(scenario: Scenario) -> Iterator[tuple[str, str]]:
    """Yields a sentence for each guarantee that a small run of a custom method violates, with the algorithm's name."""
    for label, method in zip(names_of(scenario.algorithms), map(_own, scenario.algorithms), strict=True):
        if method is None:
            continue
        from paceline.checking.small_runs import broken_in_small_runs

        for line in broken_in_small_runs(method, tensors=scenario.workload.learning == "train"):
            name, _, problem = line.partition(": ")
            where = f"paceline check {reference(type(method))} shows where"
            meaning = MEANINGS.get(name, OTHERWISE)
            yield label, f"{method.name} violates {name} in a small run: {problem}. So {meaning}; {where}"


def _own(method: Method) -> Method | None:
    """Returns the method; None if it is built in."""
    return None if METHODS.get(method.name) is type(method) else method


def _problems(scenario: Scenario) -> Iterator[Problem]:
    for index, method in enumerate(scenario.algorithms):
        if _own(method) is None:
            continue
        from paceline.checking.hidden_state import hidden_state  # imports the interpreter, which is rarely needed here

        def nodes() -> Sequence[Sequence[Rank]]:
            return scenario.cluster.build(scenario.workload).placement

        for words in hidden_state(method, nodes, tensors=scenario.workload.learning == "train"):
            yield Problem(("algorithms", index), f"{reference(type(method))}: {words}")
