"""Simulates the probes of a calibration with the costs that they measured, and adjusts what no probe measures alone.

A probe shows how long an operation takes, but two costs only together with others:

* By how much a gradient is longer after its rank has waited: after the pauses of a probe the caches are colder than
  after a wait of the same length between operations of a program.
* How much more slowly messages and a server's work proceed while the workers compute on the same cores.

So the programs of the probes themselves are simulated, and these two are chosen such that their gradients and their
steps take as long as measured. Nothing of a run that is predicted later is used.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from scipy.optimize import brentq, minimize_scalar

from paceline.algorithms.core.job import Budget
from paceline.records.probe_steps import ProbeSteps
from paceline.records.trace import Schedule
from paceline.scenarios.resolution.machine_costs import Adjustment, ProbedSteps
from paceline.scenarios.resolution.plan import Plan
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.runs.cost_model import measured
from paceline.simulator.runs.dry_run import without_numbers
from paceline.topologies.catalogue.machine_profile import MeasuredCosts

STEPS = 60
"""steps of a worker in a simulated probe; provenance: ours, its mean then varies by about 1 %"""
LONGEST = 2.0
"""the largest factor on what a gradient is longer after a wait"""
SLOWEST = 0.05
"""the lowest speed of messages and of a server beside gradients"""
EXACT = 0.02
"""how exactly both are determined"""


def consistent(costs: MeasuredCosts, probes: Sequence[ProbedSteps]) -> Adjustment:
    """Returns the adjustment with which the simulated probes take as long as the measured ones.

    Args:
        costs: what the probes measured.
        probes: their programs and the means of their steps.
    """
    costs = replace(costs, emulation=None, joined=None)
    usable = [replace(probe, plan=shortened(probe.plan)) for probe in probes if not probe.crosses]
    quiet, busy = ([probe for probe in usable if probe.beside is beside] for beside in (False, True))
    if not quiet or not any(times.pauses for times in costs.host.gradients):
        return Adjustment()

    def deviation(pauses: float) -> float:
        adjusted = Adjustment(pauses).of(costs)
        return sum(math.log(simulated_steps(probe, adjusted).compute_s / probe.compute_s) ** 2 for probe in quiet)

    pauses = float(minimize_scalar(deviation, bounds=(0.0, LONGEST), method="bounded", options={"xatol": EXACT}).x)

    def excess(speed: float) -> float:
        adjusted = Adjustment(pauses, speed).of(costs)
        return sum(math.log(simulated_steps(probe, adjusted).step_s / probe.step_s) for probe in busy)

    if not busy or excess(1.0) >= 0:
        return Adjustment(pauses)
    speed = SLOWEST if excess(SLOWEST) <= 0 else float(brentq(excess, SLOWEST, 1.0, xtol=EXACT))
    return Adjustment(pauses, speed)


def simulated_steps(probe: ProbedSteps, costs: MeasuredCosts) -> ProbeSteps:
    """Returns the steps of a probe that is simulated with these costs."""
    plan = probe.plan
    model = measured(plan, costs)
    trace = simulate_job(model.job, model.timing, model.network, Schedule(every=math.inf), hosts=model.hosts)
    steps = ProbeSteps.of(trace.spans, plan.job.team[0].workers.ranks)
    assert steps is not None, f"a worker of a probe makes {STEPS} steps"
    return steps


def shortened(plan: Plan) -> Plan:
    """Returns the plan of a probe with few steps, which computes no numbers."""
    job = without_numbers(plan.job)
    return replace(plan, job=replace(job, budget=Budget(samples=job.samples_in(STEPS))))
