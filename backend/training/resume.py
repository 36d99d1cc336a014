"""Going on from a checkpoint: which run it is of, and whether what is to be run is the same.

Rules of this file: a run goes on as it began. Its scenario may differ in when it stops and in when checkpoints are
made, and in nothing else: it would be another run.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paceline.algorithms.core.errors import InputError
from paceline.backend.rank.checkpoint import Checkpoint, Saving, find_last, steps_in
from paceline.records.store import CHECKPOINTS, place, slug
from paceline.scenarios.resolution.plan import Plan

FREE = ("stop", "train.checkpoint")
"""what may differ"""


def differences(found: Any, expected: Any, at: str = "") -> list[str]:
    """In what a scenario differs from a checkpoint's, each as ``path: found …, expected …``.

    >>> differences({"seed": 2, "stop": {"epochs": 3}}, {"seed": 1, "stop": {"epochs": 2}})
    ['seed: found 2, expected 1']
    """
    if at in FREE or found == expected:
        return []
    if isinstance(found, Mapping) and isinstance(expected, Mapping):
        keys = dict.fromkeys([*expected, *found])
        return [
            one for key in keys for one in differences(found.get(key), expected.get(key), f"{at}.{key}".lstrip("."))
        ]
    if isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        pairs = enumerate(zip(found, expected, strict=True))
        return [one for index, (mine, theirs) in pairs for one in differences(mine, theirs, f"{at}[{index}]")]
    return [f"{at}: found {found!r}, expected {expected!r}"]


def plan_of(checkpoint: Checkpoint, plans: Sequence[Plan]) -> Plan:
    """The plan that a checkpoint is of; raises `InputError` where it is none of these, saying what differs."""
    expected = checkpoint.manifest["scenario"]
    found = [(differences(plan.scenario.dump(), expected), plan) for plan in plans]
    wrong, plan = min(found, key=lambda one: len(one[0]))
    if wrong:
        lines = "\n".join(f"  {one}" for one in wrong)
        raise InputError(
            f"{checkpoint.path}: is of another run; only `stop` and `train.checkpoint` may differ from it:\n{lines}"
        )
    if checkpoint.ranks != len(plan.job.team):  # the same scenario has as many, unless it was made by another Paceline
        raise InputError(f"{checkpoint.path}: is of {checkpoint.ranks} ranks, expected {len(plan.job.team)}")
    return replace(plan, name=checkpoint.manifest["algorithm"])


def resume_point(plan: Plan, folder: Path) -> Checkpoint | None:
    """The last whole checkpoint of this plan in a run's folder; None if there is none yet.

    What processes ask that a launcher has started again, before they begin.

    Raises:
        InputError: there is one, but of another run.
    """
    if not steps_in(folder / CHECKPOINTS):
        return None
    checkpoint = find_last(folder)
    plan_of(checkpoint, [plan])
    return checkpoint


def saving_of(plan: Plan, folder: Path) -> Saving | None:
    """How a plan's checkpoints are made in a run's folder; None where none are asked for."""
    asked = plan.scenario.train.checkpoint
    if asked is None:
        return None
    job = plan.job
    steps = asked.steps(num_samples=job.learner.num_samples, samples_per_step=job.samples_per_step)
    about = {"scenario": plan.scenario.dump(), "algorithm": plan.name, "seed": plan.seed}
    return Saving(folder=folder / CHECKPOINTS, every=steps, keep=asked.keep, about=about)


@dataclass(frozen=True, slots=True)
class Going:
    """How a run is gone about after what was before it.

    Args:
        saving: how its checkpoints are made; None: none are.
        start: where it goes on from; None: its beginning.
        stored: where the run stands that an earlier start has made; None: it is still to be made.
    """

    saving: Saving | None = None
    start: Checkpoint | None = None
    stored: str | None = None


@contextmanager
def unfinished(plan: Plan, out: Path, start: Checkpoint | None = None) -> Iterator[Going]:
    """How a plan's checkpoints are made, in a folder of their own for as long as the run is not stored.

    Whatever ends the run, whole checkpoints stay. Where nothing has taken them over, the error says where they are.
    """
    if plan.scenario.train.checkpoint is None:
        yield Going(start=start)
        return
    folder = _make(out, f"{slug(plan.scenario.name)}-{slug(plan.name)}-{plan.seed}-unfinished")
    try:
        yield Going(saving_of(plan, folder), start)
    except BaseException as error:
        if steps_in(folder / CHECKPOINTS):
            error.add_note(going_on(folder))
        raise
    finally:
        if not steps_in(folder / CHECKPOINTS):
            shutil.rmtree(folder, ignore_errors=True)


def _make(out: Path, stem: str) -> Path:
    """A new folder of that name and the next free number."""
    while True:
        folder = place(out, stem)
        try:
            folder.mkdir(parents=True)
        except FileExistsError:  # somebody else took the name since
            continue
        return folder


def going_on(folder: Path) -> str:
    """How to go on from the last checkpoint in a run's folder, in words."""
    return f"checkpoint of step {find_last(folder).step}; go on from there with: paceline train --resume {folder}"
