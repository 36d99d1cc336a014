"""Collectives message by message, with SimPy events: what shorter ways to compute their times are compared with."""

from __future__ import annotations

import simpy

from paceline.algorithms.core.values import Rank
from paceline.simulator.collectives.execution import EventDriver, begun
from paceline.simulator.collectives.plans import CollectivePlan
from paceline.simulator.flows.fabric import Fabric
from paceline.simulator.flows.flow_engine import Flows
from paceline.simulator.flows.path_tables import Amounts, Path


def simulate_by_events(plan: CollectivePlan, fabric: Fabric, entries_s: Amounts) -> Amounts:
    """Returns when each rank is done, given when it enters, with a network that nothing else uses."""
    env = simpy.Environment(0.0)
    flows = Flows(env, fabric.capacity)

    def carry(_one: Rank, _other: Rank, nbytes: float, path: Path) -> simpy.Event:
        return flows.begin(path.ports, nbytes, path.limit_bytes_per_s)

    driver = EventDriver(env, carry, plan, 0.0, begun(plan, entries_s))
    env.run(driver.done)
    return driver.progress.finish_s(entries_s)
