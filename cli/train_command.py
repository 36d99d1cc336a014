"""The actions of ``paceline train``: real runs, here or as one process of several; replays; a Slurm script."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.algorithms.core.errors import InputError
from paceline.backend.transports.launch_environment import Joined, RefusedElsewhere, joined
from paceline.cli.actions import Ask, answer_runs, say_kept, stored_if_interrupted
from paceline.cli.joined_processes import reported, together
from paceline.cli.output import Output

if TYPE_CHECKING:
    from paceline.backend.multihost.world import World
    from paceline.records import Run
    from paceline.reports.tensorboard import TensorBoard
    from paceline.scenarios import Scenario


def scenario_of(scenario: str | None, resume: Path | None) -> str | Mapping[str, Any]:
    """Returns the given scenario, or that of the run to resume.

    Args:
        scenario: the scenario argument, if given.
        resume: the run to resume, if given.

    Raises:
        InputError: neither is given.
    """
    if scenario is not None:
        return scenario
    if resume is None:
        raise InputError("SCENARIO: missing; give a scenario file, the name of one, --resume RUN or --replay RUN")
    from paceline.backend.rank.checkpoint import find_last

    its_own: Mapping[str, Any] = find_last(resume).manifest["scenario"]
    return its_own


def train(ask: Ask, output: Output, *, tensorboard: bool = False) -> None:
    """Trains one real run per algorithm and seed; the record of a failed run is stored too.

    Args:
        ask: the request.
        output: where the answer is printed.
        tensorboard: whether event files are written.
    """
    if (started := joined(os.environ)) is not None:
        _train_joined(ask, output, started, tensorboard=tensorboard)
        return
    scenario = ask.load()
    from paceline.records.machine import OtherLoad
    from paceline.reports.comparison.conclusion import say_load

    with OtherLoad() as other:
        runs = _train(ask, scenario, output, tensorboard=tensorboard)
    answer_runs(scenario.name, runs, ask, output)
    output.note(say_load(other.share))


def _train(
    ask: Ask, scenario: Scenario, output: Output, world: World | None = None, *, tensorboard: bool = False
) -> list[Run]:
    _check(scenario, world)
    from paceline.backend.posix.interrupts import uninterrupted
    from paceline.backend.training.run import train as run
    from paceline.records import RunsFailed, store

    stored: list[Run] = []
    interruptible = nullcontext() if world is not None and not world.leads else stored_if_interrupted(stored)
    try:
        with interruptible, _board(tensorboard, ask, output) as board, output.progress() as stage:

            def keep(run: Run) -> Run:
                finished = run if board is None else board.finish(run)
                with uninterrupted():  # a run that is stored is named
                    stored.append(store.save(finished, ask.out))
                if board is not None:
                    board.clear()
                return stored[-1]

            with output.aside() as echo:
                return run(
                    scenario,
                    progress=stage("training"),
                    watch=None if board is None else board.watch,
                    echo=echo,
                    keep=keep,
                    out=ask.out,
                    resume=ask.resume,
                    world=world,
                    note=output.note,
                )
    except RunsFailed as failure:
        say_kept(failure, output)
        raise


def _check(scenario: Scenario, world: World | None) -> None:
    """Checks custom methods; of joined processes, which all find the same mistakes, the first one reports them."""
    from paceline.checking.own_methods import check_own_methods

    try:
        check_own_methods(scenario)
    except InputError as error:
        if world is None or world.leads:
            raise
        raise RefusedElsewhere(str(error)) from error


def _train_joined(ask: Ask, output: Output, started: Joined, *, tensorboard: bool) -> None:
    """Trains as one process of several, of which only the first writes files and prints."""
    with reported(started):
        scenario = ask.load() if started.process == 0 else ask.read()
        with together(started, output) as (world, speaking):
            runs = _train(ask, scenario, speaking, world, tensorboard=tensorboard and world.leads)
    if runs:
        answer_runs(scenario.name, runs, ask, output)


def slurm(ask: Ask, arguments: Sequence[str]) -> None:
    """Prints a Slurm script for the scenario.

    Args:
        ask: the request.
        arguments: the command's arguments, for the script.
    """
    from paceline.backend.training.slurm import script

    sys.stdout.write(script(ask.read(), arguments))


def _board(wanted: bool, ask: Ask, output: Output) -> AbstractContextManager[TensorBoard | None]:
    """Returns the writer of event files, if they are requested."""
    if not wanted:
        return nullcontext()
    from paceline.reports.tensorboard import tensorboard

    output.note(f"to watch: tensorboard --logdir {ask.out}")
    return tensorboard(ask.out)


def replay(folder: Path, output: Output) -> bool:
    """Replays a recorded run; returns whether it ended with the same bits.

    Args:
        folder: the folder of the run.
        output: where the answer is printed.
    """
    from paceline.records import store

    run = store.read_run(folder)
    from paceline.checking.replay_folder import replay_run

    with output.progress() as stage:
        report = stage("replaying") or (lambda *_: None)
        replayed = replay_run(run, lambda done: report(run.algorithm, done))
    output.answer({"replayed": replayed.answer()}, [replayed.words])
    return replayed.bit_identical
