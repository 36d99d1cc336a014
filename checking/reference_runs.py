"""The weights of the runs that some guarantees compare a run with, and how far two runs may differ."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from paceline.algorithms.core.guarantees import Guarantee
from paceline.algorithms.core.job import Budget, Job
from paceline.algorithms.methods.baseline import SyncSgd
from paceline.checking.anyorder import AnyOrder
from paceline.checking.kept_results import KeptResults
from paceline.records.figures import significant, written_apart
from paceline.records.trace import Trace

ROUNDINGS = 4500
"""allowed difference of two runs that add the same numbers in different orders, in roundings of the weights' scale"""
KEPT_RUNS = 64
"""number of jobs whose ends are kept; a job of `paceline check` has eight weights"""
LISTED = 3
"""elements of a vector that a message lists"""


def as_sync_sgd(job: Job) -> Job:
    """Returns the job of sync-sgd at the same hyper-parameters and number of samples."""
    own = {field.name for field in dataclasses.fields(job.method)}
    shared = {name: getattr(job.method, name) for name in own & {field.name for field in dataclasses.fields(SyncSgd)}}
    samples = job.samples_in(job.limit or 0)
    return dataclasses.replace(job, method=SyncSgd(**shared), team=_workers(job), budget=Budget(samples=samples))


def _workers(job: Job) -> Any:
    """Returns the team without its server, as in sync-sgd."""
    return tuple(dataclasses.replace(me, world=me.workers, server=None) for me in job.team if me.role == "worker")


REFERENCES: dict[Guarantee, tuple[str, Callable[[Job], Job]]] = {
    Guarantee.DETERMINISTIC: ("the same run without a clock", lambda job: job),
    Guarantee.SAME_AS_SYNC_SGD: ("sync-sgd", as_sync_sgd),
}
"""guarantees that compare the weights with those of another run: its name in messages, and its job"""


def distance(guarantee: Guarantee, job: Job, trace: Trace) -> tuple[float, float]:
    """Returns the largest difference of a run's weights from those that they are compared with.

    Args:
        guarantee: one of `REFERENCES`.
        job: the method, its ranks and its learner.
        trace: the record of its run.

    Returns:
        The difference, and the largest one that rounding explains.
    """
    there = reference_weights(REFERENCES[guarantee][1](job))
    return float(np.abs(numbers(trace.weights) - there).max()), rounding(there)


def too_distant(guarantee: Guarantee, away: float, most: float) -> Iterator[str]:
    """Yields a sentence if a `distance` is larger than rounding explains.

    Args:
        guarantee: one of `REFERENCES`.
        away: the largest difference.
        most: the largest permitted one.
    """
    if not away <= most:
        other = REFERENCES[guarantee][0]
        yield f"weights differ by {significant(away)} from those of {other}, more than rounding explains"


def _weights_of_reference(job: Job) -> np.ndarray[Any, Any]:
    return numbers(AnyOrder(job).run().weights)


reference_weights = KeptResults(_weights_of_reference, KEPT_RUNS)
"""returns the weights at the end of the job's any-order run in the order of ranks"""


def numbers(vector: Any) -> np.ndarray[Any, Any]:
    """Returns a NumPy array or a torch tensor as a NumPy array."""
    return np.asarray(vector)


def changed_elements(before: np.ndarray[Any, Any], after: np.ndarray[Any, Any], most: float) -> str:
    """Returns the first elements that changed, how many there are, and the largest change, for a message.

    Args:
        before: a vector.
        after: the same vector later.
        most: the largest change that is none.

    >>> changed_elements(np.array([1.0, 2.0, 3.0]), np.array([1.5, 2.0, 2.0]), 1e-9)
    'element 0 went from 1 to 1.5, element 2 from 3 to 2; 2 of 3 elements changed, by at most 1'
    """
    changes = np.abs(after - before)
    indices = np.flatnonzero(~(changes <= most))  # not `>`, which is false for NaN
    first = []
    for at, index in enumerate(indices[:LISTED]):
        old, new = written_apart(float(before[index]), float(after[index]))
        first.append(f"element {index} {'went ' * (not at)}from {old} to {new}")
    listed = ", ".join(first)
    return f"{listed}; {len(indices)} of {len(changes)} elements changed, by at most {significant(changes.max())}"


def rounding(vector: np.ndarray[Any, Any]) -> float:
    """Returns the largest difference of two vectors of this scale that rounding explains."""
    kind = vector.dtype if np.issubdtype(vector.dtype, np.floating) else np.float64
    return float(ROUNDINGS * np.finfo(kind).eps * max(1.0, np.abs(vector).max()))
