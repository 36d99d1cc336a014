"""What runs are going to ask a network for, before anybody measures what that costs.

Rules of this file: a rehearsal is a simulation like any other, of weights without numbers and with messages for
nothing; only the questions are kept. So whatever a method asks for is found without being listed, one's own methods'
too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import simpy

from paceline.algorithms.job import Budget, Job
from paceline.algorithms.meeting import Collective
from paceline.records.trace import Schedule
from paceline.scenarios.plan import Plan
from paceline.simulator.interpreter import simulate_job
from paceline.simulator.network import NoCost
from paceline.simulator.run import PlanTiming
from paceline.topologies.profile import Asked
from paceline.workloads.timing import TimingOnly

STEPS = 128
"""of every worker; what a method asks for later than that is not heard"""
Question = tuple[str, tuple[int, ...], int]
"""the operation, its members and its bytes"""


class Listening(NoCost):
    """A network that notes what it is asked for, each question once."""

    def __init__(self) -> None:
        self.heard: dict[Question, None] = {}

    def collective(self, op: Collective, nbytes: int, stream: str) -> simpy.Event:
        self.heard[type(op).__name__, tuple(map(int, op.group.ranks)), nbytes] = None
        return super().collective(op, nbytes, stream)


def rehearse(plans: Sequence[Plan]) -> list[Asked]:
    """The collectives that these plans' runs ask for, each operation, number of members and bytes once.

    Seeds draw other times and numbers and ask for the same, so each algorithm is rehearsed once.
    """
    heard: dict[Question, None] = {}
    for plan in {plan.name: plan for plan in plans}.values():
        network = Listening()
        simulate_job(numberless(plan.job), PlanTiming(plan), network, Schedule(every=math.inf))
        heard |= network.heard
    return gathered(heard)


def numberless(job: Job) -> Job:
    """The job's beginning, with vectors that have sizes alone."""
    learner, most = job.learner, STEPS * job.batch * job.workers
    sizes = TimingOnly(learner.layout, learner.population, learner.initial().nbytes // learner.layout.size)
    return replace(job, learner=sizes, budget=Budget(samples=min(job.budget.samples or most, most)))


def gathered(heard: Iterable[Question]) -> list[Asked]:
    """What was heard, with groups that do not overlap: their members enter at the same time.

    >>> [one.groups for one in gathered([("Reduce", (0, 1), 8), ("Reduce", (1, 2), 8), ("Reduce", (2, 3), 8)])]
    [((0, 1), (2, 3))]
    """
    found: dict[tuple[str, int, int], list[tuple[int, ...]]] = {}
    for operation, ranks, nbytes in heard:
        apart = found.setdefault((operation, len(ranks), nbytes), [])
        if not any(set(ranks) & set(other) for other in apart):
            apart.append(ranks)
    return [Asked(*what, tuple(groups)) for what, groups in found.items() if what[1] > 1]
