"""Finds out which collectives a run will perform, before their costs are measured.

A dry run is a simulation with weights without numbers and messages without cost, of which only the collectives are
recorded. So the collectives of every method are found without a list, those of the user's own methods included.
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
from paceline.simulator.collectives.contention import LinkTraffic
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.network.network import NoCost
from paceline.simulator.runs.plan_timing import PlanTiming
from paceline.topologies.catalogue.machine_profile import Asked
from paceline.workloads.learners.stand_in import TimingOnly

STEPS = 128
"""steps of every worker; collectives that a method first performs later are missed"""
CollectiveKey = tuple[str, tuple[int, ...], int, bool, bool]
"""the operation, its members, its bytes, whether its value is donated, and whether it uses a node's shared memory"""


class RecordingNetwork(NoCost):
    """A network without costs that records the collectives, each once.

    Args:
        inside: returns whether the collectives of a group use a node's shared memory.
    """

    def __init__(self, inside: Callable[[Group], bool]) -> None:
        self.collectives: dict[CollectiveKey, None] = {}
        self._inside = inside

    def collective(self, op: Collective, nbytes: int, stream: str) -> simpy.Event:
        inside, donate = self._inside(op.group), getattr(op, "donate", False)
        self.collectives[type(op).__name__, tuple(map(int, op.group.ranks)), nbytes, donate, inside] = None
        return super().collective(op, nbytes, stream)

    def price_ahead(self, traffic: LinkTraffic) -> str | None:
        return "its network observes each collective"


def dry_run(plans: Sequence[Plan], *, by_hosts: bool = False) -> list[Asked]:
    """Returns the collectives of these plans' runs: each operation, number of members and bytes once.

    Seeds do not change the collectives, so there is one dry run for each algorithm.

    Args:
        plans: the runs.
        by_hosts: whether each node is a host, so that collectives of ranks of one node and those of several nodes are
            different ones.
    """
    collectives: dict[CollectiveKey, None] = {}
    near: dict[CollectiveKey, None] = {}
    for plan in {plan.name: plan for plan in plans}.values():
        network, nodes = RecordingNetwork(plan.inside), [set(map(int, node)) for node in plan.cluster.placement]
        simulate_job(without_numbers(plan.job), PlanTiming(plan), network, Schedule(every=math.inf))
        collectives |= network.collectives
        near |= {key: None for key in network.collectives if by_hosts and any(set(key[1]) <= node for node in nodes)}
    return combined(near) + combined(key for key in collectives if key not in near)


def without_numbers(job: Job) -> Job:
    """Returns the beginning of a job, with vectors that have only sizes."""
    learner, most = job.learner, STEPS * job.global_batch
    sizes = TimingOnly(learner.layout, learner.num_samples, learner.initial().nbytes // learner.layout.size)
    return replace(job, learner=sizes, budget=Budget(samples=min(job.budget.samples or most, most)))


def combined(collectives: Iterable[CollectiveKey]) -> list[Asked]:
    """Combines recorded collectives whose groups do not overlap, because their members enter at the same time.

    >>> [one.groups for one in combined([("Reduce", (first, first + 1), 8, False, False) for first in range(3)])]
    [((0, 1), (2, 3))]
    """
    groups_of: dict[tuple[str, int, int, bool, bool], list[tuple[int, ...]]] = {}
    for operation, ranks, nbytes, donate, inside in collectives:
        apart = groups_of.setdefault((operation, len(ranks), nbytes, donate, inside), [])
        if not any(set(ranks) & set(other) for other in apart):
            apart.append(ranks)
    return [
        Asked(operation, members, nbytes, tuple(groups), donate, inside)
        for (operation, members, nbytes, donate, inside), groups in groups_of.items()
        if members > 1
    ]
