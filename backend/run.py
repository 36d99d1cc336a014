"""Training for real: every algorithm and seed of a scenario, one after the other.

Ranks are forked here, or are processes that a launcher has started (`joining`): then all of these call `train`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from paceline.algorithms.errors import InputError, PacelineError
from paceline.backend.joining import RefusedElsewhere, SaidElsewhere
from paceline.backend.joint import run_joint
from paceline.backend.launch import Launch, run_job
from paceline.backend.placement import placement
from paceline.backend.seats import refuse, seat
from paceline.backend.world import World
from paceline.records import Run, RunsFailed
from paceline.records.machine import OtherLoad
from paceline.records.trace import Trace
from paceline.scenarios.load import load
from paceline.scenarios.plan import Plan
from paceline.scenarios.ranges import outside
from paceline.scenarios.real import refuse_simulated_only
from paceline.scenarios.schema import Scenario

Progress = Callable[[str, float], None]
"""told what is running, and how much of everything is done, 0 … 1"""


def train(
    scenario: Scenario | Mapping[str, Any] | str | Path,
    *,
    progress: Progress | None = None,
    keep: Callable[[Run], Run] = lambda run: run,
    world: World | None = None,
    note: Callable[[str], None] = lambda text: None,
) -> list[Run]:
    """Runs every algorithm and seed of a scenario for real, one process per rank.

    With ``train.pace: device`` each rank computes its true gradient and then waits out the rest of its device's
    modelled time; the runs are labelled as paced.

    Args:
        scenario: a scenario, or whatever `paceline.scenarios.load` takes.
        progress: told what is running, and how much of everything is done.
        keep: called with each run as it ends, to store it before the next begins; answers it as stored.
        world: the processes that are the ranks, where a launcher has started them; None: they are forked.
        note: told, a line at a time, where each rank is, if a launcher has started them.

    Returns:
        One measured run per algorithm and seed, evaluated after its end on the snapshots it left, so that evaluation
        costs no measured time. Of the processes that a launcher has started, one has them; the others have none.

    Raises:
        InputError: the scenario has crashes, probes or drift, which only a simulation has, or asks for more cores than
            there are.
        RunsFailed: a rank died or failed, or all waited for each other; it carries the runs before and what was
            recorded until then.
    """
    scenario = scenario if isinstance(scenario, Scenario) else load(scenario)
    refuse_simulated_only(scenario)
    paced = scenario.train.pace == "device"
    runs: list[Run] = []
    plans = scenario.plans(paced=paced)
    _refuse(scenario, plans, world)
    said: list[str] = []
    for number, plan in enumerate(plans):
        launch = _launch(plan, paced, _told(progress, plan, number, len(plans)))
        if world is not None and said != (said := seat(world.hosts, plan.job.team).lines):
            for line in (f"{plan.name}:", *said):
                note(line)
        try:
            with OtherLoad(() if world is None else world.others) as other:
                trace = run_job(launch) if world is None else run_joint(launch, world)
            if trace is None:  # another process has it
                continue
            trace.notes["other_load"] = other.share
        except SaidElsewhere:
            raise
        except PacelineError as failure:
            if failure.trace is not None:
                runs.append(keep(_run(plan, failure.trace, paced)))
            raise RunsFailed(f"{plan.name}: {failure}", runs) from failure
        runs.append(keep(_run(plan, trace, paced)))
    return runs


def _refuse(scenario: Scenario, plans: Sequence[Plan], world: World | None) -> None:
    """Refuses what cannot be placed, before anything has run."""
    if world is None:
        for plan in plans:
            placement(scenario.train.pin, plan.job.team, scenario.train.threads)
            _launch(plan, scenario.train.pace == "device", None).devices().start(scenario.train.start)
        return
    try:
        refuse(world.hosts, {plan.name: plan.job for plan in plans})
        for plan in plans:
            world.devices(_launch(plan, scenario.train.pace == "device", None))
    except InputError as error:
        if world.leads:
            raise
        raise RefusedElsewhere(str(error)) from error
    for plan in plans:
        mine = seat(world.hosts, plan.job.team).on(world.here)
        world.placement(scenario.train.pin, [plan.job.team[rank] for rank in mine], scenario.train.threads)


def _launch(plan: Plan, paced: bool, progress: Callable[[int, float], None] | None) -> Launch:
    return Launch(
        job=plan.measured_job,
        schedule=plan.schedule,
        pace=plan if paced else None,
        prefetch=plan.scenario.prefetch,
        threads=plan.scenario.train.threads,
        device=plan.scenario.train.device,
        share_gpus=plan.scenario.train.share_gpus,
        start=plan.scenario.train.start,
        scenario=plan.scenario.dump(),
        pin=plan.scenario.train.pin,
        shared_memory=plan.scenario.train.shared_memory,
        progress=progress,
    )


def _told(progress: Progress | None, plan: Plan, number: int, of: int) -> Callable[[int, float], None] | None:
    """Turns steps of one run into a share of all runs."""
    if progress is None:
        return None

    def tell(step: int, elapsed_s: float) -> None:
        alike = plan.job.workers if plan.job.method.independent else 1
        spent = plan.job.budget.spent(samples=step * plan.job.samples_per_step * alike, seconds=elapsed_s)
        progress(f"{plan.name}, step {step}", (number + spent) / of)

    return tell


def _run(plan: Plan, trace: Trace, paced: bool) -> Run:
    trace.notes["warnings"] = outside(plan, timed=paced)
    return Run.of(
        trace,
        job=plan.job,
        kind="measured",
        scenario=plan.scenario.dump(),
        name=plan.scenario.name,
        algorithm=plan.name,
        target=plan.target,
        target_loss=plan.target_loss,
        paced=paced,
        slowed=plan.slowed_s if paced and plan.cluster.faults.shows else None,
    )
