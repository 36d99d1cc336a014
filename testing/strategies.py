"""Hypothesis strategies: clusters, schedules, times, gradients, learning problems, cases and scenarios.

They shrink towards what is easiest to read: one worker, one step, equal times, and the order of ranks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from paceline.algorithms.core.method import Method
from paceline.algorithms.registry import reference
from paceline.checking.cases import Case, Times
from paceline.checking.cases.case import SmallProblem
from paceline.checking.cases.random_cases import CONSERVING
from paceline.checking.cases.random_cases import problems as mistakes_of

MOVES = 400
"""the longest schedule; later moves are made in the simplest order"""
MOST_READY = 16
"""indices of moves are below this number, and count modulo the number of possible moves"""


def clusters(
    method: Method | None = None, *, most_nodes: int = 3, most_workers: int = 3
) -> st.SearchStrategy[tuple[int, ...]]:
    """Draws the numbers of workers on each node.

    Args:
        method: draws only clusters that this method accepts.
        most_nodes: the largest number of nodes.
        most_workers: the largest number of workers on a node.

    >>> from paceline.algorithms import find
    >>> from hypothesis import find as smallest
    >>> smallest(clusters(find("gossip")()), lambda sizes: True)  # gossip needs two workers
    (2,)
    """
    sizes = st.lists(st.integers(1, most_workers), min_size=1, max_size=most_nodes).map(tuple)
    return sizes if method is None else sizes.filter(lambda drawn: not mistakes_of(method, drawn))


def schedules(most: int = MOVES) -> st.SearchStrategy[tuple[int, ...]]:
    """Draws the `choices` of a case: the index of the selected move among the possible ones, for each move.

    Args:
        most: the largest number of choices; after the last one, the simplest order goes on.
    """
    return st.lists(st.integers(0, MOST_READY - 1), max_size=most).map(tuple)


def times(most_s: float = 10.0) -> st.SearchStrategy[Times]:
    """Draws the times of a simulated case.

    Args:
        most_s: the longest gradient, in seconds.
    """
    seconds = st.sampled_from([1.0, 2.0, 0.5]) | st.floats(0.001, most_s)
    return st.builds(
        Times,
        compute_s=st.lists(seconds, min_size=1, max_size=9).map(tuple),
        latency_s=st.sampled_from([0.0, 0.01, 1.0]),
        s_per_byte=st.sampled_from([0.0, 0.001]),
    )


def gradients(size: int = 8, largest: float = 10.0) -> st.SearchStrategy[npt.NDArray[np.float64]]:
    """Draws vectors: gradients, or weights.

    Args:
        size: number of elements.
        largest: the largest absolute value of an element.
    """
    element = st.floats(-largest, largest, allow_nan=False, allow_infinity=False)
    return st.lists(element, min_size=size, max_size=size).map(lambda elements: np.array(elements, dtype=np.float64))


def learning_problems() -> st.SearchStrategy[SmallProblem]:
    """Draws learning problems of eight weights, with a different gradient for each worker, step and problem."""
    return st.builds(SmallProblem, seed=st.integers(0, 7))


def cases(
    method: Method, *, most_steps: int = 5, simulated: bool | None = None, most_workers: int = 3
) -> st.SearchStrategy[Case]:
    """Draws cases of a method, for `assert_keeps_guarantees`.

    Args:
        method: the method with its hyper-parameters.
        most_steps: the largest number of steps of a worker.
        simulated: whether the cases are simulated; None: some of them.
        most_workers: the largest number of workers on a node.
    """
    any_order = st.builds(
        Case,
        method=st.just(method),
        nodes=clusters(method, most_workers=most_workers),
        steps=st.integers(1, most_steps),
        seed=st.integers(1, 7),
        gradients=st.sampled_from([True, False]) if method.guarantees & CONSERVING else st.just(True),
        choices=schedules(),
    )
    in_time = st.builds(
        Case,
        method=st.just(method),
        nodes=clusters(method, most_workers=most_workers),
        steps=st.integers(1, most_steps),
        seed=st.integers(1, 7),
        times=times(),
    )
    return any_order | in_time if simulated is None else in_time if simulated else any_order


def scenarios(method: Method | str = "sync-sgd", *, most_updates: int = 5) -> st.SearchStrategy[dict[str, Any]]:
    """Draws small scenarios for `paceline.load`, whose simulation takes some milliseconds.

    Args:
        method: a method with its default hyper-parameters, or its name.
        most_updates: the largest number of updates of each worker.
    """
    name = method if isinstance(method, str) else reference(type(method))
    milliseconds = st.sampled_from([1, 2, 5]).map("{} ms".format)
    device = st.fixed_dictionaries({"name": st.just("device"), "overhead": milliseconds, "per_sample": milliseconds})
    node = st.fixed_dictionaries({"device": device, "workers_per_node": st.integers(1, 3)})
    return st.fixed_dictionaries(
        {
            "name": st.just("small"),
            "algorithms": st.just([name]),
            "workload": st.just({"model": "quadratic", "learning": "quadratic", "batch_per_worker": 4}),
            "cluster": st.fixed_dictionaries({"nodes": st.lists(node, min_size=1, max_size=3)}),
            "stop": st.fixed_dictionaries({"updates": st.integers(1, most_updates)}),
            "seed": st.integers(1, 7),
        }
    )
