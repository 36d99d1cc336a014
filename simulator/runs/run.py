"""Simulates scenarios: one run per algorithm and seed.

* The simulated cluster is that of the scenario. For a prediction of a measurement it is a measured machine: messages
  cost what they cost there, and steps take the time that was measured, or that of the paced devices.
* Parts of the model (communication costs, jitter) can be left out, to show the effect of the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from paceline.algorithms.core.job import Budget
from paceline.records import Run
from paceline.records.keeping import FULL, Choice, Keeping
from paceline.records.prediction_interval import prediction_interval, spread_factors
from paceline.records.recorder import Recorder
from paceline.records.step_errors import ONE_NODE, StepErrors, most_similar
from paceline.records.trace import Schedule, Trace
from paceline.scenarios import Scenario, load
from paceline.scenarios.machine_file import load_machine
from paceline.scenarios.resolution.machine_costs import hosts_like
from paceline.scenarios.resolution.plan import Plan
from paceline.simulator.interpreter.weights_owner import Progress
from paceline.simulator.kernel.garbage_collection import collected_seldom
from paceline.simulator.kernel.timing import Timing
from paceline.simulator.network.network import ClusterNetwork
from paceline.simulator.runs.cost_model import cluster_network, measured, modelled
from paceline.simulator.runs.engine import Engine, run_job
from paceline.simulator.runs.expected_steps import keeping_of
from paceline.simulator.runs.extrapolation import Extrapolation
from paceline.simulator.runs.long_runs import simulated
from paceline.simulator.runs.short_runs import times_only
from paceline.simulator.runs.step_interval import step_factors
from paceline.topologies.catalogue.machine_profile import CALIBRATED, MeasuredCosts, Profile
from paceline.workloads.learners.stand_in import TimingOnly
from paceline.workloads.models.threads import torch_threads

Report = Callable[[str, float], None]
"""called with the name of the algorithm, and the fraction of all runs that is done, 0 … 1"""


def simulate(
    scenario: Scenario | Mapping[str, Any] | str | Path,
    *,
    machine: MeasuredCosts | None = None,
    jitter: bool = True,
    message_cost: bool = True,
    progress: Report | None = None,
    records: Choice | None = None,
    keep: Callable[[Run], Run] = lambda run: run,
    engine: Engine = "auto",
    learned: Sequence[Run] = (),
    intervals: bool = True,
) -> list[Run]:
    """Simulates every algorithm and seed of a scenario; `paceline.simulate` describes the arguments.

    That function also tries methods of the user's own first. With `learned`, runs of the same algorithms and seeds,
    only times and staleness are simulated, which is several times as fast; the new runs take from those what is learned
    after how many samples. Without `intervals`, short runs are not repeated for the intervals of their figures.

    >>> from paceline import load, simulate
    >>> quick = load("quickstart", ["stop.epochs=1"], algorithms=["sync-sgd"])
    >>> (run,) = simulate(quick, jitter=False, message_cost=False)
    >>> run.kind, round(run.summary["step_s"]["mean"], 6)
    ('simulated', 0.04)
    """
    scenario = scenario if isinstance(scenario, Scenario) else load(scenario)
    if machine is None and scenario.cluster.machine is not None:
        machine = hosts_like(load_machine(scenario.cluster.machine), scenario)
    plans = scenario.plans(paced=machine is not None and machine.paced)
    if not jitter:
        plans = [replace(plan, cluster=plan.cluster.without_jitter()) for plan in plans]
        machine = None if machine is None else machine.without_spread()

    earlier = {(run.algorithm, run.seed): run for run in learned}
    plans = [_as_long_as(plan, earlier.get((plan.name, plan.seed))) for plan in plans]

    run_plan = partial(perform, machine=machine, message_cost=message_cost, engine=engine)
    uncertain = machine is None  # steps of a real run are paced to the predicted gradient, whatever a device would take
    further = None if scenario.extrapolate is None else Extrapolation(scenario.extrapolate, plans, run_plan)

    def made(index: int, plan: Plan, *, interval: bool = intervals) -> Run:
        report = None if progress is None else _progress_of(plan, progress, index, len(plans))
        # the same number of threads as in the real run gives the same bits
        with collected_seldom(), torch_threads(scenario.train.torch_threads):
            wires = reusable_network(plan, message_cost=message_cost) if machine is None else None
            keeping = keeping_of(plan, records)
            trace = run_plan(plan, plan.schedule(), report, network=wires, keeping=keeping)
            run = Run.of(
                trace,
                job=plan.job,
                kind="simulated",
                scenario=plan.document,
                name=scenario.name,
                algorithm=plan.name,
                target=plan.target,
                target_loss=plan.target_loss,
                slowed=plan.slowed_s if plan.cluster.faults.shows else None,
                stand_in=plan.work.stands_in,
            )
            if (
                uncertain
                and interval
                and (factors := step_factors(plan, partial(run_plan, network=wires), run)) is not None
            ):
                predicted = prediction_interval(run.summary, factors)
                run = replace(run, summary={**run.summary, "prediction_interval": predicted})
            elif machine is not None and machine.spread:
                predicted = prediction_interval(run.summary, spread_factors(machine.spread))
                run = replace(run, summary={**run.summary, "prediction_interval": predicted})
            if machine is None and (errors := published_errors(plan)):
                run = replace(run, summary={**run.summary, "published_errors": errors})
            if said := verdict_of(plan, None if machine is None else machine.host):
                run = replace(run, summary={**run.summary, "calibration": said})
        return run

    runs = []
    for index, plan in enumerate(plans):
        run = simulated(plan, engine, partial(made, index))
        if isinstance(plan.job.learner, TimingOnly) and (other := earlier.get((plan.name, plan.seed))) is not None:
            run = replace(run, summary=_with_learning(run.summary, other.summary))  # type: ignore[arg-type]
        runs.append(keep(run if further is None else further.added(run, plan)))
    return runs


def _as_long_as(plan: Plan, learned: Run | None) -> Plan:
    """Returns the plan without learning, as long as a run that learned; the plan itself if there is no such run.

    A method of the user's own may look at the numbers of a vector, so it keeps them.
    """
    if learned is None or not type(plan.job.method).__module__.startswith("paceline.algorithms."):
        return plan
    return times_only(plan, Budget(samples=int(learned.summary["samples"])))


LEARNED = (
    *("evaluations", "final_loss", "final_accuracy", "diverged", "stop_reason", "target_accuracy", "target_loss"),
    *("smoothing", "interpolation", "samples_to_accuracy", "samples_to_loss", "updates_to_accuracy", "updates_to_loss"),
)
"""keys of a summary that do not depend on times"""
TIMES_TO_TARGET = tuple(f"time_to_{aim}{what}_s" for aim in ("accuracy", "loss") for what in ("", "_resolution"))


def _with_learning(summary: Mapping[str, Any], learned: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the summary of a run without learning, with what another run with the same seed has learned.

    Times to a target are those of the other run, times its samples per second over those of this one.
    """
    slower = learned["samples_per_s"] / summary["samples_per_s"]
    times = {key: None if learned[key] is None else learned[key] * slower for key in TIMES_TO_TARGET}
    return {**summary, **{key: learned[key] for key in LEARNED}, **times}


def published_errors(plan: Plan) -> list[StepErrors]:
    """Returns the errors of the published steps that are most similar to a run's, for each chip of the catalogue.

    Args:
        plan: the run.
    """
    cluster = plan.cluster
    chips = {
        device.like or device.name: None
        for device in cluster.devices_of(plan.job.team[0].workers.ranks)
        if device.kind is not None
    }
    links = [connection.link.name for connection in cluster.graph.connections]
    networks = list(dict.fromkeys(links)) if len(cluster.nodes) > 1 else [ONE_NODE]
    return [most_similar(chip, networks) for chip in chips]


def verdict_of(plan: Plan, machine: Profile | None) -> str:
    """Returns the verdicts of the calibrations that a run's times rest on; "" if they rest on none.

    Args:
        plan: the run.
        machine: the measured machine, if the network is one.
    """
    devices = (
        () if machine is not None and machine.gradients else plan.cluster.devices_of(plan.job.team[0].workers.ranks)
    )
    named = [
        device.provenance.removeprefix(CALIBRATED) for device in devices if device.provenance.startswith(CALIBRATED)
    ]
    own = [] if machine is None or not machine.verdict else [machine.verdict]
    return "\n".join(dict.fromkeys([*own, *named]))


def reusable_network(plan: Plan, *, message_cost: bool = True) -> ClusterNetwork | None:
    """Returns the network of a modelled cluster that several runs of one plan can share; None if they cannot.

    Sharing saves choosing collectives again.

    Args:
        plan: the run.
        message_cost: as for `simulate`.
    """
    return cluster_network(plan) if message_cost and not plan.cluster.links_change else None


def perform(
    plan: Plan,
    schedule: Schedule,
    report: Progress | None = None,
    *,
    network: ClusterNetwork | None = None,
    machine: MeasuredCosts | None = None,
    timing: Timing | None = None,
    message_cost: bool = True,
    engine: Engine = "auto",
    keeping: Keeping = FULL,
) -> Trace:
    """Simulates one plan.

    Args:
        plan: the run.
        schedule: when the weights are evaluated.
        report: called with the samples so far and the virtual time.
        network: the network of its modelled cluster, if it exists; see `reusable_network`.
        machine: as for `simulate`.
        timing: the seconds of each rank's own work; None: those of the plan or of the machine.
        message_cost: as for `simulate`.
        engine: as for `simulate`.
        keeping: which spans and updates are kept.

    Returns:
        The record of the run.

    >>> import math
    >>> from paceline import load
    >>> (plan,) = load("quickstart", ["stop.epochs=1", "workload.learning=none"], algorithms=["sync-sgd"]).plans()
    >>> perform(plan, Schedule(every=math.inf)).spans[0].activity
    'load'
    """
    if machine is None:
        costs = modelled(plan, network=network, timing=timing, message_cost=message_cost)
    else:
        costs = measured(plan, machine, timing=timing, message_cost=message_cost)
    slowed = plan.slowed_s if plan.cluster.faults.shows else None
    record = partial(Recorder.of, costs.job, keeping, slowed)
    trace = run_job(costs.job, costs.timing, costs.network, schedule, report, costs.hosts, engine=engine, record=record)
    costs.describe(trace, plan)
    return trace


def _progress_of(plan: Plan, progress: Report, index: int, count: int) -> Callable[[int, float], None]:
    """Returns a callback that turns the samples and time of one run into the fraction of all runs that is done."""

    def report(samples: int, now_s: float) -> None:
        progress(plan.name, (index + plan.job.budget.spent(samples=samples, seconds=now_s)) / count)

    return report
