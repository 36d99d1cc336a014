"""Unpaced runs on emulated hosts: all ranks share the cores of one machine, and packets take a part of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import simpy

from paceline.algorithms.core.method import RankContext, Replica
from paceline.algorithms.core.operations import AllReduce, Gradient, Load, NextStep, Now, Start, Wait
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.values import Rank
from paceline.algorithms.runtime.collective_matching import Collective
from paceline.records.trace import Schedule
from paceline.reports.comparison.predict import mean_gradient_s
from paceline.scenarios import load
from paceline.simulator.interpreter.host_costs import HostCosts
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.kernel.simpy_events import after, happen
from paceline.simulator.network.interference import Demand, Processors
from paceline.simulator.runs.cost_model import host_law
from paceline.simulator.runs.run import perform
from paceline.topologies.catalogue.gradient_times import GradientTimes
from paceline.topologies.catalogue.machine_profile import EmulationCosts, JoinedHosts, MeasuredCosts, Profile
from tests.clusters import Written, answer
from tests.support import FixedTiming, job_of

BESIDE, COLLECTIVE_S = 0.5, 2.0
MACHINE = Profile(gradients=(GradientTimes(batch=8, busy=((1, 0.04), (2, 0.05)), beside=BESIDE, overlap=0.1),), cores=2)
SCENARIO: dict[str, Any] = {
    "name": "two-hosts",
    "algorithms": ["sync-sgd"],
    "workload": {"model": "digits-mlp", "dataset": "digits", "batch_per_worker": 8, "learning": "none"},
    "cluster": {
        "nodes": [{"device": {"name": "any", "overhead": "5 ms", "per_sample": "0 s"}, "count": 2}],
        "network": {"topology": "star", "link": {"latency": "2 ms", "bandwidth": "20 Mbit/s"}},
    },
    "train": {"pace": "none", "network": "emulated"},
    "stop": {"samples": 160},
}


@pytest.mark.parametrize(("emulated", "step_s"), [(True, 0.05), (False, 0.04)])
def test_ranks_of_all_emulated_hosts_share_the_cores(emulated: bool, step_s: float) -> None:
    """50 ms with two busy ranks on one machine, 40 ms on a machine each; messages take no time."""
    (plan,) = load(SCENARIO).plans()
    emulation = EmulationCosts(message_s=0.0, all_reduce_s=0.0, few_bytes=64, packet_bytes=1500)
    machine = MeasuredCosts(MACHINE, emulation) if emulated else MeasuredCosts(MACHINE, joined=JoinedHosts())
    trace = perform(plan, Schedule(every=math.inf), machine=machine, message_cost=False)
    ends = sorted(span.end_s for span in trace.spans if span.activity == "compute" and span.rank == Rank(0))
    assert ends[:3] == pytest.approx([step_s, 2 * step_s, 3 * step_s])


def test_the_alpha_beta_model_counts_all_ranks_of_the_machine() -> None:
    emulated, local = (load(SCENARIO, [f"train.network={network}"]).plans()[0] for network in ("emulated", "local"))
    assert (mean_gradient_s(emulated, MACHINE), mean_gradient_s(local, MACHINE)) == pytest.approx((0.05, 0.04))


class OneByOne:
    """Members of a collective leave `COLLECTIVE_S` after its last entry, rank 1 a second later."""

    def attach(self, env: simpy.Environment) -> None:
        self._env, self._exits = env, dict[Rank, simpy.Event]()

    def enter(self, rank: Rank, op: Collective, stream: str) -> simpy.Event:
        leave = self._exits[rank] = self._env.event()
        if len(self._exits) == len(op.group):
            for member, exit_event in self._exits.items():
                seconds = COLLECTIVE_S + (member == 1)
                after(self._env, seconds, lambda _, event=exit_event: happen(event))  # type: ignore[misc]
            self._exits = {}
        return leave

    def message(self, source: Rank, to: Rank, nbytes: int) -> simpy.Event:
        raise NotImplementedError

    def collective(self, op: Collective, nbytes: int, stream: str) -> simpy.Event:
        raise NotImplementedError

    def standing(self) -> list[str]:
        return []


@program
def reduced(me: RankContext) -> Program[float]:
    yield from AllReduce(value=np.ones(4), group=me.workers, key="sum")
    return (yield from Now())


@program
def main(me: RankContext, state: Replica) -> Program[tuple[float, float]]:
    """Rank 0 starts an all-reduce beside a gradient; rank 1 enters it after its gradient."""
    step = yield from NextStep(state)
    assert step
    batch = yield from Load(step.samples)
    if me.rank == 1:
        yield from Gradient(state.weights, batch)
        return 0.0, (yield from Wait((yield from Start(reduced(me)))))
    handle = yield from Start(reduced(me))
    yield from Gradient(state.weights, batch)
    computed_s = yield from Now()
    return computed_s, (yield from Wait(handle))


def test_gradients_are_slowed_from_the_last_entry_to_the_last_exit() -> None:
    """Rank 1 enters after 4 s, and leaves at 7 s; rank 0 leaves at 6 s, and its gradient of 8 s loses 1.5 s."""
    law = host_law(Profile(gradients=(GradientTimes(batch=8, busy=((1, 1.0),), beside=BESIDE),), cores=2), 8, 2)
    processors = Processors(lambda _: Demand(0, compute=1.0, communicate=1.0, charge=1.0, law=law))
    timing = FixedTiming(compute=lambda rank, _: 4.0 if rank == 1 else 8.0)
    job = job_of(Written(first=main), 2)
    trace = simulate_job(job, timing, OneByOne(), Schedule(1), hosts=HostCosts(processors=processors))
    assert answer(trace, 1)[1] == pytest.approx(7.0)
    assert answer(trace, 0) == pytest.approx((8.0 + 3.0 * (1 - BESIDE), 6.0))
