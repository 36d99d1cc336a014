"""The job on which every method is tried in every interpreter."""

from __future__ import annotations

from paceline.algorithms.core.job import Job
from paceline.algorithms.core.method import Method
from tests.support import UNLIKE, job_of, nodes_for

STEPS = 17  # no multiple of the number of workers, of k1, or of k2


def job_for(method: Method, steps: int = STEPS) -> Job:
    """The placement on which every method is tried: workers on nodes of different sizes."""
    return job_of(method, steps=steps, nodes=nodes_for(method, UNLIKE))
