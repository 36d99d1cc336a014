"""Checkpoints of runs whose processes a launcher has started and may restart after a failure.

Rules of this file:

* All processes write to one folder. The first process of the first start chooses its name, and the launcher's store
  holds the name for restarted processes. The folder is where runs are stored, which all hosts have to share.
* Restarted processes resume a run from its latest complete checkpoint, and skip the runs that have been stored.
* A run that fails may be resumed after a restart, so its checkpoints are not moved.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from paceline.algorithms.core.errors import InputError
from paceline.backend.multihost.rank_mapping import map_ranks
from paceline.backend.multihost.world import STORE_S, World
from paceline.backend.rank.checkpoint import Checkpoint, steps_in
from paceline.backend.training.resume import Going, going_on, resume_point, saving_of
from paceline.backend.transports.launch_environment import RefusedElsewhere
from paceline.records.store import CHECKPOINTS, place, slug
from paceline.scenarios.resolution.plan import Plan


@contextmanager
def going(plan: Plan, number: int, out: Path, world: World, start: Checkpoint | None) -> Iterator[Going]:
    """Yields how run `number` of this start proceeds: from `start`, unless there is a later checkpoint.

    Args:
        plan: the plan of the run.
        number: the index of the run in this start.
        out: the folder of stored runs.
        world: the processes.
        start: a checkpoint that the user has named; None: none.
    """
    if plan.real.checkpoint is None:
        yield Going(start=_checked(start, number, world))
        return
    stem = f"{slug(plan.scenario_name)}-{slug(plan.name)}-{plan.seed}-unfinished"
    folder = Path(world.agreed(f"folder{number}", lambda: str(place(out, stem).absolute())))
    if stored := world.noted(f"stored{number}"):
        yield Going(stored=stored)
        return
    try:
        yield Going(saving_of(plan, folder), _checked(resume_point(plan, folder) or start, number, world))
    except BaseException as error:
        if steps_in(folder / CHECKPOINTS):
            error.add_note(going_on(folder))
        raise
    finally:
        if world.leads and not steps_in(folder / CHECKPOINTS):
            shutil.rmtree(folder, ignore_errors=True)


def _checked(point: Checkpoint | None, number: int, world: World) -> Checkpoint | None:
    """Returns the checkpoint after the first process has read all of it; the others wait for its result.

    Raises:
        InputError: ranks cannot resume from it; in all processes.
    """
    if point is None:
        return None
    key, wrong = f"checkpoint{number}", ""
    if world.joined.process == 0:
        try:
            point.check()
        except InputError as error:
            wrong = str(error)
        world.store.set(key, wrong)
    else:
        world.store.wait([key], timedelta(seconds=STORE_S))
        wrong = world.store.get(key).decode()
    if wrong:
        raise InputError(wrong) if world.leads else RefusedElsewhere(wrong)
    return point


def refuse_joined(plan: Plan, world: World) -> None:
    """Raises `InputError` for features that processes started by a launcher do not support."""
    if plan.real.network == "emulated":
        raise InputError(
            f"train.network: found emulated in processes that {world.joined.launcher} has started, which use the "
            "real network; expected local"
        )
    hosts = {map_ranks(world.hosts, plan.job.team).host_of(rank) for rank in plan.job.team[0].workers}
    if plan.real.checkpoint is not None and plan.job.method.independent and len(hosts) > 1:
        raise InputError(
            f"train.checkpoint: found checkpoints of {plan.name} on {len(hosts)} hosts, whose workers count steps "
            "together; expected one host, or no checkpoints (`--set train.checkpoint=null`)"
        )
