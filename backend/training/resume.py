"""Resuming from a checkpoint: finds the run that it belongs to and checks that the scenario is the same.

Rules of this file: a resumed run must have the scenario with which it began. Only the stop condition and the settings
of checkpoints may differ.
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
"""the keys that may differ"""


def differences(found: Any, expected: Any, at: str = "") -> list[str]:
    """Returns the differences of a scenario from a checkpoint's, each as ``path: found …, expected …``.

    Args:
        found: a scenario, or a part of it.
        expected: the same of the checkpoint.
        at: the path of the part.

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
    """Returns the plan of a checkpoint; raises `InputError` with the differences if it is none of these.

    Args:
        checkpoint: the checkpoint.
        plans: the plans of the scenario.
    """
    expected = checkpoint.manifest["scenario"]
    found = [(differences(plan.document, expected), plan) for plan in plans]
    wrong, plan = min(found, key=lambda one: len(one[0]))
    if wrong:
        lines = "\n".join(f"  {one}" for one in wrong)
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


@contextmanager
def unfinished(plan: Plan, out: Path, start: Checkpoint | None = None) -> Iterator[Going]:
    """Yields how a plan's checkpoints are made, in a folder of their own until the run is stored.

    Complete checkpoints remain, whatever ends the run. If they have not been moved to a stored run, the error says
    where they are.
    """
    if plan.real.checkpoint is None:
        yield Going(start=start)
        return
    folder = _make(out, f"{slug(plan.scenario_name)}-{slug(plan.name)}-{plan.seed}-unfinished")
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
