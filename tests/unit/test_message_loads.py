"""The probes of messages beside gradients find the speeds of a simulated host whose speeds are known."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from paceline.backend.calibration.probes import ProbeMessages
from paceline.backend.calibration.recorded_costs import Costs, beside_gradients, costs, pooled
from paceline.records.trace import Schedule
from paceline.simulator.interpreter.host_costs import HostCosts
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.kernel.shared_processor import Speeds
from paceline.simulator.network.interference import Demand, Processors
from tests.clusters import fixed_costs
from tests.support import FixedTiming, job_of

SPEED, MESSAGE_S = 0.4, 0.5


def launch(active: int | None, gradients_s: Sequence[float]) -> Costs:
    """Returns the costs of a probe on a host where messages run at `SPEED` while the other worker computes."""

    def law(compute: float, communicate: float) -> Speeds:
        return Speeds(1.0, 1.0, message=1.0 - min(1.0, compute) * (1.0 - SPEED))

    hosts = HostCosts(processors=Processors(lambda _: Demand(0, 1.0, 1.0, messages_on=0, law=law)))
    method = ProbeMessages(active=active)
    job = job_of(method, 2, steps=12)
    timing = FixedTiming(compute=lambda rank, _: gradients_s[rank])
    trace = simulate_job(job, timing, fixed_costs(message_s=MESSAGE_S), Schedule(1), hosts=hosts)
    found = costs(job, trace, None)
    return found if active else beside_gradients(job, trace, found)


def test_the_speed_of_messages_beside_gradients_is_found() -> None:
    """Rank 1 computes nearly always, so that the messages of rank 0 are slow for most of their time."""
    found = pooled([launch(1, (3.0, 60.0)), launch(None, (3.0, 60.0))])
    (largest, seconds) = found.messages[-1]
    assert largest > 0
    assert seconds == pytest.approx(MESSAGE_S)
    assert found.message_beside == pytest.approx(SPEED, rel=0.1)  # messages have different shares: within a tenth


def test_a_host_whose_messages_are_not_slowed_has_speed_one() -> None:
    alone = launch(1, (3.0, 60.0))
    same = {cost._replace(beside=True): times for cost, times in alone.items()}
    assert pooled([alone, same]).message_beside == 1.0
