"""Long runs of methods with a server: their figures are extrapolated from two beginnings of the run.

* Such methods are simulated event by event, some thousand gradients per second, whatever the number of workers. A run
  with more than `LARGE` gradients is therefore not simulated to its end, if nothing but the number of steps
  distinguishes its later parts from its beginning: no learning, faults, varying links or limits in seconds.
* Two beginnings are simulated, one twice as long as the other. What the second half adds is the rate of the rest, so
  the start of the run, when the server has no queue yet, does not count.
* `--engine events` simulates the whole run.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

from paceline.algorithms.core.job import Budget
from paceline.records import Run
from paceline.records.figures import COUNT, PERIODS, signed_percent
from paceline.scenarios.resolution.plan import Plan
from paceline.simulator.runs.engine import Engine
from paceline.simulator.runs.expected_steps import expected_steps
from paceline.workloads.learners.stand_in import TimingOnly

LARGE = 1_000_000
"""gradients of all workers from which a run is extrapolated. Provenance: ours; about ten minutes event by event"""
SIMULATED = 100_000
"""gradients of the longer beginning, if each worker computes `FEWEST` in them. Provenance: ours; about a minute"""
FEWEST = 20
"""gradients of each worker in the longer beginning, at least, in whole periods of the method. Provenance: ours"""
GROWING = ("wall_s", "steps", "updates", "samples", "bytes_sent")
"""keys of the figures that grow with the length of a run; all others are those of the longer beginning"""


def beginnings(plan: Plan, engine: Engine) -> tuple[Plan, Plan] | None:
    """Returns the two beginnings of a long run, the shorter one first; None if the run is simulated to its end.

    Args:
        plan: the run.
        engine: the requested interpreter.
    """
    job, cluster, whole = plan.job, plan.cluster, plan.job.budget.samples
    steady = (
        job.method.has_server
        and isinstance(job.learner, TimingOnly)
        and job.budget.seconds is None
        and not (job.deaths or cluster.faults.shows or cluster.links_change)
    )
    if engine != "auto" or whole is None or not steady or expected_steps(plan) <= LARGE:
        return None
    period = job.method.longest_period(job.workers)
    half = -(-max(FEWEST, SIMULATED // job.workers) // (2 * period)) * period * job.global_batch
    if 2 * half >= whole:
        return None
    first, second = (replace(plan, job=replace(job, budget=Budget(samples=count * half))) for count in (1, 2))
    return first, second


def extrapolated(run: Run, first: Run, plan: Plan) -> Run:
    """Returns the run with the figures of its whole length.

    figure = figure of the longer beginning + rest · (its increase in the second half / samples of the second half)

    Args:
        run: the longer beginning.
        first: the shorter one.
        plan: the whole run.
    """
    whole, made = plan.job.budget.samples, run.summary["samples"]
    assert whole is not None, "`beginnings` has checked it"
    factor = (whole - made) / (made - first.summary["samples"])
    summary: dict[str, Any] = {**run.summary}
    for key in GROWING:
        now, before = summary[key], first.summary[key]  # type: ignore[literal-required]
        end = now + factor * (now - before)
        summary[key] = end if isinstance(now, float) else round(end)
    summary["samples_per_s"] = rate = summary["samples"] / summary["wall_s"]
    summary[PERIODS.key] = summary["steps"] / plan.job.workers / summary["longest_period"]
    at_first, at_second = (short_run.summary["samples"] / short_run.summary["wall_s"] for short_run in (first, run))
    if (interval := summary.get("prediction_interval")) is not None:
        bounds = {end: value * rate / at_second for end, value in interval["samples_per_s"].items()}
        summary["prediction_interval"] = {**interval, "samples_per_s": bounds}
    said = (
        f"{plan.name}: the first {COUNT.text(run.summary['steps'])} of {COUNT.text(summary['steps'])} gradients were "
        "simulated; time, counts and bytes of the whole run are extrapolated from what the second half of them took, "
        "and all other figures, tables and links are those of this beginning. Its throughput differs by "
        f"{signed_percent(at_second / at_first - 1)} % from that of its first half. `--engine events` simulates the "
        "whole run"
    )
    warnings = [*run.machine.get("warnings", ()), said]
    return replace(run, summary=summary, machine={**run.machine, "warnings": warnings})  # type: ignore[arg-type]


class Make(Protocol):
    """Simulates a plan to its end; `interval`: whether the run has the intervals of its figures."""

    def __call__(self, plan: Plan, *, interval: bool = True) -> Run: ...


def simulated(plan: Plan, engine: Engine, make: Make) -> Run:
    """Returns a run: simulated to its end, or extrapolated if it is long.

    Args:
        plan: the run.
        engine: the requested interpreter.
        make: simulates a plan to its end.
    """
    if (parts := beginnings(plan, engine)) is None:
        return make(plan)
    first, second = parts
    return extrapolated(make(second), make(first, interval=False), plan)
