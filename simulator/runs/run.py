"""Simulates scenarios: one run per algorithm and seed.

* The simulated cluster is that of the scenario. For a prediction of a measurement it is the machine of a profile:
  messages cost what they cost there, and steps take the time of the paced devices.
* Parts of the model (communication costs, jitter) can be left out, to show the effect of the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from paceline.algorithms.core.values import Group, Rank
from paceline.records import Run
from paceline.records.keeping import FULL, Choice, Keeping
from paceline.records.prediction_interval import prediction_interval
from paceline.records.sampled import new_trace
from paceline.records.trace import Schedule, Trace
from paceline.scenarios import Scenario, load
from paceline.scenarios.resolution.fitted_ranges import outside
from paceline.scenarios.resolution.plan import Plan
from paceline.scenarios.resolution.predicted_times import predicted_times
from paceline.scenarios.sections.machine_store import load_machine
from paceline.simulator.interpreter.cpu_overheads import Handling
from paceline.simulator.interpreter.host_costs import HostCosts
from paceline.simulator.interpreter.loading import Supply
from paceline.simulator.interpreter.weights_owner import Progress
from paceline.simulator.kernel.garbage_collection import collected_seldom
from paceline.simulator.kernel.timing import Timing
from paceline.simulator.network.emulated import EmulatedNetwork
from paceline.simulator.network.link_use import links_of
from paceline.simulator.network.linked_hosts import LinkedHosts
from paceline.simulator.network.measured_ranges import beyond
from paceline.simulator.network.network import ClusterNetwork, InMemory, MeasuredNetwork, Network, NoCost
from paceline.simulator.network.node_memory import NodeMemory
from paceline.simulator.runs.engine import Engine, run_job
from paceline.simulator.runs.expected_steps import keeping_of
from paceline.simulator.runs.extrapolation import Extrapolation
from paceline.simulator.runs.interference import host_processors, processors_of
from paceline.simulator.runs.machines import extrapolated, hosts_like, placement_of
from paceline.simulator.runs.plan_timing import NOTHING, PlanTiming
from paceline.simulator.runs.servers import receiving_of
from paceline.simulator.runs.step_interval import step_factors
from paceline.topologies.catalogue.machine_profile import (
    CALIBRATED,
    Consulted,
    EmulatedProfile,
    Handled,
    LinkedProfile,
    Profile,
    caution,
)
from paceline.workloads.models.threads import torch_threads

N = TypeVar("N", bound=ClusterNetwork)
Measured = Profile | EmulatedProfile | LinkedProfile
"""a measured machine, alone or with a network"""
Report = Callable[[str, float], None]
"""called with the name of the algorithm, and the fraction of all runs that is done, 0 … 1"""


def simulate(
    scenario: Scenario | Mapping[str, Any] | str | Path,
    *,
    network: Network | Measured | None = None,
    jitter: bool = True,
    message_cost: bool = True,
    progress: Report | None = None,
    records: Choice | None = None,
    keep: Callable[[Run], Run] = lambda run: run,
    engine: Engine = "auto",
) -> list[Run]:
    """Simulates every algorithm and seed of a scenario.

    Args:
        scenario: a scenario, or an argument of `paceline.scenarios.load`.
        network: the network to use instead of the scenario's and of its `cluster.machine`. With a profile, a real run
            on its machine is predicted, with the communication costs of the machine or of the network that it emulates.
        jitter: whether step times vary as the scenario defines or as they were measured; if not, each step takes the
            mean. Stragglers and slowdowns remain.
        message_cost: whether messages and collectives take time.
        progress: called with the algorithm and the fraction of all runs that is done.
        records: which spans and updates are kept, instead of the scenario's `records`.
        keep: called with each run when it ends, to store it; returns the stored run.
        engine: the interpreter: `events`, `cohort`, or the fastest that can do the run; see docs/large-runs.md.

    Returns:
        The runs, one for each algorithm and seed.

    Raises:
        ScenarioError: the scenario has errors; all are reported.

    >>> from paceline import load, simulate
    >>> quick = load("quickstart", ["stop.epochs=1"], algorithms=["sync-sgd"])
    >>> (run,) = simulate(quick, jitter=False, message_cost=False)
    >>> run.kind, round(run.summary["step_s"]["mean"], 6)
    ('simulated', 0.04)
    """
    scenario = scenario if isinstance(scenario, Scenario) else load(scenario)
    if network is None and scenario.cluster.machine is not None:
        network = hosts_like(load_machine(scenario.cluster.machine), scenario)
    machine = _machine(network)
    probed = isinstance(network, Profile | EmulatedProfile) and machine is not None and not machine.gradients
    plans = scenario.plans(paced=probed)
    if not jitter:
        plans = [replace(plan, cluster=plan.cluster.without_jitter()) for plan in plans]
        network = without_spread(network)

    run_plan = partial(perform, network=network, message_cost=message_cost, engine=engine)
    uncertain = machine is None  # steps of a real run are paced to the predicted gradient, whatever a device would take
    further = None if scenario.extrapolate is None else Extrapolation(scenario.extrapolate, plans, run_plan)
    runs = []
    for index, plan in enumerate(plans):
        report = None if progress is None else _progress_of(plan, progress, index, len(plans))
        # the same number of threads as in the real run gives the same bits
        with collected_seldom(), torch_threads(scenario.train.torch_threads):
            wires = reusable_network(plan, network, message_cost=message_cost)
            keeping = keeping_of(plan, records)
            trace = run_plan(plan, plan.schedule(), report, network=wires, keeping=keeping)
            run = Run.of(
                trace,
                job=plan.job,
                kind="simulated",
                scenario=plan.scenario.dump(),
                name=scenario.name,
                algorithm=plan.name,
                target=plan.target,
                target_loss=plan.target_loss,
                slowed=plan.slowed_s if plan.cluster.faults.shows else None,
                stand_in=plan.scenario.workload.stood_in_words,
            )
            if uncertain and (factors := step_factors(plan, partial(run_plan, network=wires), run)) is not None:
                found = prediction_interval(run.summary, factors)
                run = replace(run, summary={**run.summary, "prediction_interval": found})
            if said := verdict_of(plan, machine):
                run = replace(run, summary={**run.summary, "calibration": said})
            run = run if further is None else further.added(run, plan)
        runs.append(keep(run))
    return runs


def verdict_of(plan: Plan, machine: Profile | None) -> str:
    """Returns the verdicts of the calibrations that a run's times rest on; "" if they rest on none.

    Args:
        plan: the run.
        machine: the measured machine, if the network is one.
    """
    devices = (
        () if machine is not None and machine.gradients else plan.cluster.devices_of(plan.job.team[0].workers.ranks)
    )
    named = [one.provenance.removeprefix(CALIBRATED) for one in devices if one.provenance.startswith(CALIBRATED)]
    own = [] if machine is None or not machine.verdict else [machine.verdict]
    return "\n".join(dict.fromkeys([*own, *named]))


def without_spread(network: Network | Measured | None) -> Network | Measured | None:
    """Returns a network whose machine, if it was measured, computes every gradient in its mean time.

    Args:
        network: as for `simulate`.
    """
    if isinstance(network, Profile):
        return network.without_spread()
    if isinstance(network, EmulatedProfile | LinkedProfile):
        return replace(network, machine=network.machine.without_spread())
    return network


def reusable_network(
    plan: Plan, network: Network | Measured | None, *, message_cost: bool = True
) -> Network | Measured | None:
    """Returns a network that several runs of one plan can share, which saves choosing their collectives again.

    Args:
        plan: the run.
        network: as for `simulate`.
        message_cost: as for `simulate`.
    """
    if network is not None or not message_cost or plan.cluster.links_change:
        return network
    return cluster_network(plan)


def free_places(plan: Plan) -> list[str]:
    """Returns the devices and hosts on which updates and copies take no time."""
    devices = {node.device.name for node in plan.cluster.nodes if node.device.rates is None}
    hosts = any(node.host_rates is None for node in plan.cluster.nodes) and plan.job.team[0].server is not None
    return [*sorted(devices), *(["their hosts"] if hosts else [])]


def perform(
    plan: Plan,
    schedule: Schedule,
    report: Progress | None = None,
    *,
    network: Network | Measured | None = None,
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
        network: as for `simulate`; None: the network of the plan.
        timing: the seconds of each rank's own work; None: those of the plan and of the machine.
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
    machine = _machine(network)
    asked = None if machine is None else Consulted(machine)
    wires = _network(plan, network, asked) if message_cost else NoCost()
    job = plan.job if machine is None else plan.measured_job
    supply = None if machine is not None else supply_of(plan)
    modelled = wires if isinstance(wires, ClusterNetwork) else None
    if machine is None:
        handling = receiving_of(plan, modelled)
    else:
        handling = handling_of(plan, machine, _between(plan, network), message_cost=message_cost)
    memory = None if modelled is None else NodeMemory(modelled)
    timing = timing or PlanTiming(plan, machine or NOTHING)
    emulated = isinstance(network, EmulatedProfile)
    processors = processors_of(plan) if machine is None else host_processors(plan, machine, one_machine=emulated)
    hosts = HostCosts(
        supply=supply,
        handling=handling,
        cells=memory,
        staging=memory,
        processors=processors,
        snapshot_s=0.0 if machine is None else machine.snapshot_s,
    )
    slowed = plan.slowed_s if plan.cluster.faults.shows else None
    trace = run_job(
        job, timing, wires, schedule, report, hosts, engine=engine, record=partial(new_trace, job, keeping, slowed)
    )
    if modelled is not None:
        trace.links = links_of(modelled)
        trace.notes["collectives"] = [choice.record() for choice in modelled.tuner.choices.values()]
    if trace.links is None:
        trace.notes["links"] = f"not counted: {_why_no_links(message_cost=message_cost)}"
    if machine is None:
        trace.free_on = free_places(plan)
    if times := predicted_times(plan):
        trace.notes["gradient_times"] = times
    measured = [] if not isinstance(network, LinkedProfile) else extrapolated(plan, network)
    measured += wires.extrapolated() if isinstance(wires, LinkedHosts) else []
    if machine is not None and (text := caution(machine.verdict)):
        measured.append(f"cluster.machine: the calibration is {text}")
    trace.notes["warnings"] = [*outside(plan), *beyond(trace, plan.cluster.graph, wires, asked), *measured]
    return trace


def _why_no_links(*, message_cost: bool) -> str:
    """Returns why the bytes on links are not known."""
    if not message_cost:
        return "messages take no time in this run, so they take no links"
    return "the times of messages are not those of the links of the scenario's cluster"


def supply_of(plan: Plan) -> Supply | None:
    """Returns the storage from which a plan's batches are read; None if reading takes no time."""
    cluster, workload = plan.cluster, plan.scenario.workload
    if cluster.storage is None or workload.reading is None:
        return None
    reading, record_bytes = workload.reading.settings(), workload.record_bytes
    assert record_bytes is not None, "a scenario with storage has a record size"
    return Supply(
        storage=cluster.storage,
        order=reading.order(workload.num_samples, plan.seed),
        record_bytes=record_bytes,
        prefetch=reading.prefetch,
        nodes=[cluster.node_of(Rank(rank)) for rank in range(cluster.workers)],
    )


def _network(plan: Plan, network: Network | Measured | None, asked: Consulted | None) -> Network:
    if asked is not None:
        memory = InMemory(
            collective_s=partial(asked.collective_s, inside=True),
            holds=plan.inside,
            message_s=partial(asked.message_s, inside=True),
            joins=plan.same_host,
        )
        here = MeasuredNetwork(asked.collective_s, asked.message_s, memory)
        if isinstance(network, LinkedProfile):
            return LinkedHosts(plan, network.machine, here, cluster_network(plan), _between(plan, network))
        return EmulatedNetwork(plan, network, here) if isinstance(network, EmulatedProfile) else here
    assert not isinstance(network, Measured), "profiles are wrapped in `Consulted`"
    return network or cluster_network(plan)


def cluster_network(plan: Plan, kind: type[N] = ClusterNetwork) -> N:  # type: ignore[assignment]
    """Returns the network of a plan's scenario.

    Args:
        plan: the run.
        kind: the class of the network.
    """
    wires = plan.scenario.cluster.network
    return kind(plan.cluster, wires.allreduce_algorithm, wires.routing, wires.library, seed=plan.seed)


def _between(plan: Plan, network: Network | Measured | None) -> Profile | None:
    """Returns the measured costs between hosts; None if there are none for this placement of workers."""
    return network.measured_between(placement_of(plan)) if isinstance(network, LinkedProfile) else None


def _machine(network: Network | Measured | None) -> Profile | None:
    """Returns the machine whose real run is predicted; None if the scenario's cluster is simulated."""
    machine = network.machine if isinstance(network, EmulatedProfile | LinkedProfile) else network
    return machine if isinstance(machine, Profile) else None


def handling_of(plan: Plan, costs: Profile, between: Profile | None = None, *, message_cost: bool = True) -> Handling:
    """Returns the processor time of ranks for messages and starts on a measured machine.

    Args:
        plan: the run.
        costs: the machine's profile.
        between: the costs between hosts, if they were measured.
        message_cost: whether messages cost processor time.
    """
    if not message_cost:
        return Handling(lane_s=costs.lane_s, wait_s=costs.wait_s)

    node_of = plan.cluster.node_of

    def costs_of(*ranks: Rank) -> Profile:
        return costs if between is None or len(set(map(node_of, ranks))) == 1 else between

    def message_s(kind: Handled, source: Rank, to: Rank, nbytes: int) -> float:
        return costs_of(source, to).handling_s(kind, nbytes, inside=plan.same_host(source, to))

    def start_s(group: Group, nbytes: int) -> float:
        return costs_of(*group.ranks).handling_s("start", nbytes, inside=plan.inside(group))

    return Handling(partial(message_s, "send"), partial(message_s, "receive"), start_s, costs.lane_s, costs.wait_s)


def _progress_of(plan: Plan, progress: Report, index: int, count: int) -> Callable[[int, float], None]:
    """Returns a callback that turns the samples and time of one run into the fraction of all runs that is done."""

    def report(samples: int, now_s: float) -> None:
        progress(plan.name, (index + plan.job.budget.spent(samples=samples, seconds=now_s)) / count)

    return report
