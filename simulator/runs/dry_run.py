"""What runs are going to ask a network for, before anybody measures what that costs.

Rules of this file: a rehearsal is a simulation like any other, of weights without numbers and with messages for
nothing; only the questions are kept. So whatever a method asks for is found without being listed, one's own methods'
too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import simpy

from paceline.algorithms.core.job import Budget, Job
from paceline.algorithms.core.values import Group
from paceline.algorithms.runtime.collective_matching import Collective
from paceline.records.trace import Schedule
from paceline.scenarios.resolution.plan import Plan
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.network.network import NoCost
from paceline.simulator.runs.run import PlanTiming
from paceline.topologies.catalogue.machine_profile import Asked
from paceline.workloads.learners.timing_only import TimingOnly

STEPS = 128
"""of every worker; what a method asks for later than that is not heard"""
Question = tuple[str, tuple[int, ...], int, bool]
"""the operation, its members, its bytes, and whether it is in a node's memory"""


class Listening(NoCost):
    """A network that notes what it is asked for, each question once.

    Args:
        inside: whether a group's collectives are in a node's memory.
    """

    def __init__(self, inside: Callable[[Group], bool]) -> None:
        self.heard: dict[Question, None] = {}
        self._inside = inside

    def collective(self, op: Collective, nbytes: int, stream: str) -> simpy.Event:
        inside = self._inside(op.group)
        self.heard[type(op).__name__, tuple(map(int, op.group.ranks)), nbytes, inside] = None
        return super().collective(op, nbytes, stream)


def dry_run(plans: Sequence[Plan]) -> list[Asked]:
    """The collectives that these plans' runs ask for, each operation, number of members and bytes once.

    Seeds draw other times and numbers and ask for the same, so each algorithm is rehearsed once.
    """
    heard: dict[Question, None] = {}
    for plan in {plan.name: plan for plan in plans}.values():
        network = Listening(plan.inside)
        simulate_job(numberless(plan.job), PlanTiming(plan), network, Schedule(every=math.inf))
        heard |= network.heard
    return gathered(heard)


def numberless(job: Job) -> Job:
    """The job's beginning, with vectors that have sizes alone."""
    learner, most = job.learner, STEPS * job.batch * job.workers
    sizes = TimingOnly(learner.layout, learner.num_samples, learner.initial().nbytes // learner.layout.size)
    return replace(job, learner=sizes, budget=Budget(samples=min(job.budget.samples or most, most)))


def gathered(heard: Iterable[Question]) -> list[Asked]:
    """What was heard, with groups that do not overlap: their members enter at the same time.

    >>> [one.groups for one in gathered([("Reduce", (first, first + 1), 8, False) for first in range(3)])]
    [((0, 1), (2, 3))]
    """
    found: dict[tuple[str, int, int, bool], list[tuple[int, ...]]] = {}
    for operation, ranks, nbytes, inside in heard:
        apart = found.setdefault((operation, len(ranks), nbytes, inside), [])
        if not any(set(ranks) & set(other) for other in apart):
            apart.append(ranks)
    return [
        Asked(operation, members, nbytes, tuple(groups), inside)
        for (operation, members, nbytes, inside), groups in found.items()
        if members > 1
    ]
