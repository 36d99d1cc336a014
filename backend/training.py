"""Trains every algorithm and seed of a scenario with real processes, one run after another, or resumes a run.

Ranks are forked here, or a launcher has started them (`launchers`); in that case every process calls `train`.

A resumed run must have the scenario with which it began. Only the stop condition and the settings of checkpoints may
differ.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paceline.algorithms.core.errors import InputError, PacelineError
from paceline.algorithms.core.values import Rank
from paceline.backend.devices.cpu_affinity import placement
from paceline.backend.emulation.emulated_network import emulated, refuse_emulation, said
from paceline.backend.local.launch import Launch, run_job
from paceline.backend.multihost.external_launch import run_external
from paceline.backend.multihost.rank_mapping import map_ranks, refuse
from paceline.backend.multihost.world import World, other_load
from paceline.backend.rank.checkpoint import Checkpoint, Saving, find_last, steps_in
from paceline.backend.status.progress_counters import ProgressWindow, Totals
from paceline.backend.status.rank_logs import Echo, kept_as
from paceline.backend.transports.collectives import check_interfaces
from paceline.backend.transports.launchers import RefusedElsewhere, SaidElsewhere
from paceline.records import Run, RunsFailed
from paceline.records.pace import say_pace
from paceline.records.store import CHECKPOINTS, place, slug
from paceline.records.trace import Trace
from paceline.scenarios.resolution.fitted_ranges import outside
from paceline.scenarios.resolution.load_scenario import load
from paceline.scenarios.resolution.plan import Plan, refuse_simulated_only
from paceline.scenarios.resolution.schema import Scenario

FREE = ("stop", "train.checkpoint")
"""the keys that may differ"""


def differences(found: Any, expected: Any, free: Sequence[str] = FREE, at: str = "") -> list[str]:
    """Returns the differences of a scenario from that of a stored run, each as ``path: found …, expected …``.

    Args:
        found: a scenario, or a part of it.
        expected: the same of the stored run.
        free: the paths that may differ.
        at: the path of the part.

    >>> differences({"seed": 2, "stop": {"epochs": 3}}, {"seed": 1, "stop": {"epochs": 2}})
    ['seed: found 2, expected 1']
    """
    if at in free or found == expected:
        return []
    if isinstance(found, Mapping) and isinstance(expected, Mapping):
        keys = dict.fromkeys([*expected, *found])
        return [
            difference
            for key in keys
            for difference in differences(found.get(key), expected.get(key), free, f"{at}.{key}".lstrip("."))
        ]
    if isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        pairs = enumerate(zip(found, expected, strict=True))
        return [
            difference
            for index, (given_item, expected_item) in pairs
            for difference in differences(given_item, expected_item, free, f"{at}[{index}]")
        ]
    return [f"{at}: found {found!r}, expected {expected!r}"]


def plan_of(checkpoint: Checkpoint, plans: Sequence[Plan]) -> Plan:
    """Returns the plan of a checkpoint; raises `InputError` with the differences if it is none of these.

    Args:
        checkpoint: the checkpoint.
        plans: the plans of the scenario.
    """
    expected = checkpoint.manifest["scenario"]
    candidates = [(differences(plan.document, expected), plan) for plan in plans]
    wrong, plan = min(candidates, key=lambda candidate: len(candidate[0]))
    if wrong:
        lines = "\n".join(f"  {difference}" for difference in wrong)
        raise InputError(
            f"{checkpoint.path}: is of another run; only `stop` and `train.checkpoint` may differ from it:\n{lines}"
        )
    if checkpoint.ranks != len(plan.job.team):  # equal unless another version of Paceline made it
        raise InputError(f"{checkpoint.path}: is of {checkpoint.ranks} ranks, expected {len(plan.job.team)}")
    return replace(plan, name=checkpoint.manifest["algorithm"])


def resume_point(plan: Plan, folder: Path) -> Checkpoint | None:
    """Returns the latest complete checkpoint of this plan in a run's folder; None if there is none yet.

    Processes that a launcher has restarted call it before they begin.

    Raises:
        InputError: the checkpoint belongs to another run.
    """
    if not steps_in(folder / CHECKPOINTS):
        return None
    checkpoint = find_last(folder)
    plan_of(checkpoint, [plan])
    return checkpoint


def saving_of(plan: Plan, folder: Path) -> Saving | None:
    """Returns how a plan's checkpoints are made in a run's folder; None if the scenario has none."""
    asked = plan.real.checkpoint
    if asked is None:
        return None
    job = plan.job
    steps = asked.steps(num_samples=job.learner.num_samples, samples_in=job.samples_in)
    about = {"scenario": plan.document, "algorithm": plan.name, "seed": plan.seed}
    return Saving(folder=folder / CHECKPOINTS, every=steps, keep=asked.keep, about=about)


@dataclass(frozen=True, slots=True)
class Going:
    """How a run continues what was done before it.

    Args:
        saving: how its checkpoints are made; None: there are none.
        start: the checkpoint from which it is resumed; None: it starts at the beginning.
        stored: the path of the run if an earlier start has completed it; None: it is still to be run.
    """

    saving: Saving | None = None
    start: Checkpoint | None = None
    stored: str | None = None


def _make(out: Path, stem: str) -> Path:
    """Creates a folder with this name and the next free number."""
    while True:
        folder = place(out, stem)
        try:
            folder.mkdir(parents=True)
        except FileExistsError:  # another process has taken the name since
            continue
        return folder


def going_on(folder: Path) -> str:
    """Describes how to resume from the latest checkpoint in a run's folder."""
    return f"checkpoint of step {find_last(folder).step}; resume it with: paceline train --resume {folder}"


Progress = Callable[[str, float], None]
"""called with what is running and the completed share of all runs, 0 … 1"""
Watcher = Callable[[Plan, Totals], None]
"""called with a run's progress while it runs"""


def train(
    scenario: Scenario | Mapping[str, Any] | str | Path,
    *,
    progress: Progress | None = None,
    watch: Watcher | None = None,
    echo: Echo | None = None,
    keep: Callable[[Run], Run] = lambda run: run,
    out: Path = Path("runs"),
    resume: Path | str | None = None,
    world: World | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> list[Run]:
    """Runs every algorithm and seed of a scenario with one process per rank; `paceline.train` describes the arguments.

    That function also tries methods of the user's own first.
    """
    scenario = scenario if isinstance(scenario, Scenario) else load(scenario)
    refuse_simulated_only(scenario)
    paced = scenario.train.pace == "device"
    runs: list[Run] = []
    plans = scenario.plans(paced=paced)
    start = None if resume is None else find_last(Path(resume))
    if start is not None:
        plans = [plan_of(start, plans)]
    _refuse(scenario, plans, world)
    if start is not None and world is None:
        start.check()
    placed: list[str] = []
    for number, plan in enumerate(seed_by_seed(plans)):
        if world is not None and placed != (placed := map_ranks(world.hosts, plan.job.team).lines):
            for line in (f"{plan.name}:", *placed):
                note(line)
        with going(plan, number, out, world, start) as way:
            if way.stored is not None:
                note(f"{plan.name}: made before the restart: {way.stored}")
                continue
            observe = _observer(plan, number, len(plans), progress, watch)
            launch = _launch(plan, paced, observe, echo, way.saving, way.start)
            try:
                with other_load(world, f"run {number}") as other:
                    trace = _perform(plan, launch, world)
                if trace is None:  # another process has the record
                    continue
                trace.notes["other_load"] = other.share
            except SaidElsewhere:
                raise
            except PacelineError as failure:
                if failure.trace is None and isinstance(failure, InputError):
                    raise
                if failure.trace is not None:
                    failed = _run(plan, failure.trace, paced, launch, goes_on=world is not None)
                    try:
                        runs.append(keep(failed))
                    except OSError as error:
                        unstored = f"{failure}\nits record cannot be stored: {error}"
                        raise RunsFailed(f"{plan.name}: {unstored}", runs) from failure
                    if failure.trace.ended is not None:  # a result, as the scenario has planned it
                        continue
                raise RunsFailed(f"{plan.name}: {failure}{_log_of(failure, runs)}", runs) from failure
            runs.append(keep(_run(plan, trace, paced, launch)))
            if world is not None and way.saving is not None:
                world.note(f"stored{number}", str(runs[-1].path))
    place = {(plan.name, plan.seed): number for number, plan in enumerate(plans)}
    return sorted(runs, key=lambda run: place[run.algorithm, run.seed])


def seed_by_seed(plans: Sequence[Plan]) -> list[Plan]:
    """Returns plans in the order of their runs: all algorithms with the first seed, then all with the next.

    So a disturbance of some seconds, or a machine that becomes slower, affects all algorithms and not only one.

    Args:
        plans: the plans, ordered by algorithm.
    """
    return sorted(plans, key=lambda plan: plan.seed)


def _refuse(scenario: Scenario, plans: Sequence[Plan], world: World | None) -> None:
    """Checks that the resources of all runs are available, before anything has run."""
    check_interfaces(scenario.train.interfaces)
    if world is None:
        for plan in plans:
            placement(scenario.train.cpu_affinity, plan.job.team, scenario.train.torch_threads)
            if scenario.train.network == "emulated":
                refuse_emulation(plan)
            _launch(plan, scenario.train.pace == "device").devices().start(scenario.train.start_method)
        return
    with world.reported_once():
        refuse(world.hosts, {plan.name: plan.job for plan in plans})
        for plan in plans:
            refuse_joined(plan, world)
            world.devices(_launch(plan, scenario.train.pace == "device"))
    for plan in plans:
        local_ranks = map_ranks(world.hosts, plan.job.team).on(world.here)
        world.placement(
            scenario.train.cpu_affinity, [plan.job.team[rank] for rank in local_ranks], scenario.train.torch_threads
        )


def _log_of(failure: PacelineError, runs: Sequence[Run]) -> str:
    """Returns a sentence with the path of the failed rank's log, if it is stored."""
    if failure.trace is None or failure.rank is None or runs[-1].path is None:
        return ""
    name = kept_as(Rank(failure.rank))
    return f"\nits log, with what the rank said last: {runs[-1].path / name}" if name in failure.trace.files else ""


def _perform(plan: Plan, launch: Launch, world: World | None) -> Trace | None:
    """Performs a run, on an emulated network if configured; returns None if another process has the record."""
    if world is not None:
        return run_external(launch, world)
    if plan.real.network == "local":
        return run_job(launch)
    with emulated(plan) as network:
        try:
            trace = run_job(replace(launch, hosts=network.hosts))
        except PacelineError as failure:
            if failure.trace is not None:
                failure.trace.notes["network"] = network.record()
            raise
        trace.notes["network"] = network.record()
        return trace


def _launch(
    plan: Plan,
    paced: bool,
    observe: Callable[[Totals], None] | None = None,
    echo: Echo | None = None,
    saving: Saving | None = None,
    start: Checkpoint | None = None,
) -> Launch:
    real = plan.real
    return Launch(
        job=plan.measured_job,
        schedule=plan.schedule,
        pace=plan if paced else None,
        prefetch=plan.prefetch,
        torch_threads=real.torch_threads,
        device=real.device,
        share_gpus=real.share_gpus,
        processes=real.start_method,
        scenario=plan.document,
        cpu_affinity=real.cpu_affinity,
        shared_memory=real.shared_memory,
        interfaces=real.interfaces,
        timeout_s=real.timeout,
        on_nonfinite=real.on_nonfinite,
        saving=saving,
        start=start,
        observe=observe,
        echo=echo,
    )


def _observer(
    plan: Plan, number: int, of: int, progress: Progress | None, watch: Watcher | None
) -> Callable[[Totals], None] | None:
    """Returns a callback that converts the progress of all ranks to recent rates and a share of all runs."""
    if progress is None and watch is None:
        return None
    job, window = plan.job, ProgressWindow(plan.job.workers)

    def observe(now: Totals) -> None:
        if watch is not None:
            watch(plan, now)
        if progress is not None:
            recent = window.add(now)
            samples = job.samples_in(now.step * (job.workers if job.method.independent else 1))
            spent = job.budget.spent(samples=samples, seconds=now.elapsed_s)
            progress(f"{plan.name}, {recent.words}", (number + spent) / of)

    return observe


def _run(plan: Plan, trace: Trace, paced: bool, launch: Launch, *, goes_on: bool = False) -> Run:
    """Returns the run of a record. `goes_on`: a launcher may restart it from its checkpoints, which remain in place."""
    warnings = trace.notes["warnings"] = outside(plan, timed=paced) + said(trace.notes.get("network"))
    start, saving = launch.start, launch.saving
    last = None if saving is None else saving.last()
    if saving is not None:
        trace.notes["checkpoints"] = {"every_steps": saving.every, "last_step": None if last is None else last.step}
    if start is not None:
        trace.notes["resumed_from"] = {"checkpoint": str(start.path), "step": start.step, "time_s": start.time_s}
    run = Run.of(
        trace,
        job=plan.job,
        kind="measured",
        scenario=plan.document,
        name=plan.scenario_name,
        algorithm=plan.name,
        target=plan.target,
        target_loss=plan.target_loss,
        paced=paced,
        asked=plan.asked_s if paced else None,
        emulated_network="network" in trace.notes,
        slowed=plan.slowed_s if paced and plan.cluster.faults.shows else None,
        checkpoints=None if last is None or goes_on else last.path.parent,
    )
    if "pace" in run.summary and (words := say_pace(run.summary["pace"], plan.time_dilation)) is not None:
        warnings.append(f"{plan.name} with seed {plan.seed}: {words}")
    return run


# * All processes that a launcher has started write to one folder. The first process of the first start chooses its
#   name, and the launcher's store holds the name for restarted processes. The folder is where runs are stored, which
#   all hosts have to share.
# * Restarted processes resume a run from its latest complete checkpoint, and skip the runs that have been stored.
# * A run that fails may be resumed after a restart, so its checkpoints are not moved.


@contextmanager
def going(plan: Plan, number: int, out: Path, world: World | None, start: Checkpoint | None) -> Iterator[Going]:
    """Yields how run `number` of this start proceeds: from `start`, unless there is a later checkpoint.

    Its checkpoints are in a folder of their own until the run is stored. Complete ones remain, whatever ends the run.
    If they have not been moved to a stored run, the error says where they are.

    Args:
        plan: the plan of the run.
        number: the index of the run in this start.
        out: the folder of stored runs.
        world: the processes, if a launcher has started them.
        start: a checkpoint that the user has named; None: none.
    """
    if plan.real.checkpoint is None:
        yield Going(start=_checked(start, number, world))
        return
    stem = f"{slug(plan.scenario_name)}-{slug(plan.name)}-{plan.seed}-unfinished"
    if world is None:
        folder = _make(out, stem)
    else:
        folder = Path(world.agreed(f"folder{number}", lambda: str(place(out, stem).absolute())))
        if stored := world.noted(f"stored{number}"):
            yield Going(stored=stored)
            return
        start = resume_point(plan, folder) or start
    try:
        yield Going(saving_of(plan, folder), _checked(start, number, world))
    except BaseException as error:
        if steps_in(folder / CHECKPOINTS):
            error.add_note(going_on(folder))
        raise
    finally:
        if (world is None or world.leads) and not steps_in(folder / CHECKPOINTS):
            shutil.rmtree(folder, ignore_errors=True)


def _checked(point: Checkpoint | None, number: int, world: World | None) -> Checkpoint | None:
    """Returns the checkpoint after the first process has read all of it; the others wait for its result.

    Raises:
        InputError: ranks cannot resume from it; in all processes.
    """
    if point is None or world is None:  # here, `train` has read it before the first run
        return point

    def mistake() -> str:
        try:
            point.check()
        except InputError as error:
            return str(error)
        return ""

    if wrong := world.decide(f"checkpoint{number}", mistake):
        raise InputError(wrong) if world.leads else RefusedElsewhere(wrong)
    return point


def refuse_joined(plan: Plan, world: World) -> None:
    """Raises `InputError` for features that processes started by a launcher do not support."""
    world.refuse_emulation(plan.real.network)
    hosts = {map_ranks(world.hosts, plan.job.team).host_of(rank) for rank in plan.job.team[0].workers}
    if plan.real.checkpoint is not None and plan.job.method.independent and len(hosts) > 1:
        raise InputError(
            f"train.checkpoint: found checkpoints of {plan.name} on {len(hosts)} hosts, whose workers count steps "
            "together; expected one host, or no checkpoints (`--set train.checkpoint=null`)"
        )
