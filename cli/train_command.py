"""What ``paceline train`` does: real runs, here or as one process of several; replays; a Slurm script."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.algorithms.core.errors import InputError, PacelineError
from paceline.backend.transports.launch_environment import (
    Joined,
    RefusedElsewhere,
    SaidElsewhere,
    hasty,
    joined,
    tell_torchrun,
)
from paceline.cli.actions import Ask, answer_runs, say_kept, stored_if_interrupted
from paceline.cli.output import Output

if TYPE_CHECKING:
    from paceline.backend.multihost.world import World
    from paceline.records import Run
    from paceline.reports.tensorboard import TensorBoard
    from paceline.scenarios import Scenario


def scenario_of(scenario: str | None, resume: Path | None) -> str | Mapping[str, Any]:
    """The scenario that was given, or that of the run to go on with; raises `InputError` where there is neither."""
    if scenario is not None:
        return scenario
    if resume is None:
        raise InputError("SCENARIO: missing; give a scenario file, the name of one, --resume RUN or --replay RUN")
    from paceline.backend.rank.checkpoint import find_last

    its_own: Mapping[str, Any] = find_last(resume).manifest["scenario"]
    return its_own


def train(ask: Ask, output: Output, *, tensorboard: bool = False) -> None:
    """One real run per algorithm and seed; of a failed one, the record up to then is kept."""
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
    from paceline.backend.training.run import train as run
    from paceline.records import RunsFailed, store

    stored: list[Run] = []
    interruptible = nullcontext() if world is not None and not world.leads else stored_if_interrupted(stored)
    try:
        with interruptible, _board(tensorboard, ask, output) as board, output.progress() as stage:

            def keep(run: Run) -> Run:
                stored.append(store.save(run if board is None else board.finish(run), ask.out))
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
    """Tries the user's own methods; of joined processes, which all find the same, the first one says what is wrong."""
    from paceline.checking.own_methods import check_own_methods

    try:
        check_own_methods(scenario)
    except InputError as error:
        if world is None or world.leads:
            raise
        raise RefusedElsewhere(str(error)) from error


def _train_joined(ask: Ask, output: Output, started: Joined, *, tensorboard: bool) -> None:
    """The same as one process of several: the first one writes and speaks for all."""
    # before torch is imported: its store writes a page of stack for every connection that ends; what that means is said
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    try:
        scenario = ask.load() if started.process == 0 else ask.read()
        from paceline.backend.multihost.world import join

        with join(started) as world:
            speaking = output if world.leads else replace(output, quiet=True)
            speaking.note(f"{started.processes} processes of {started.launcher}, hosts: {len(world.hosts)}")
            if (advice := hasty(started, os.environ)) is not None:
                speaking.note(advice)
            runs = _train(ask, scenario, speaking, world, tensorboard=tensorboard and world.leads)
    except SaidElsewhere as error:
        tell_torchrun(str(error))
        raise
    except InputError as error:
        tell_torchrun(str(error))
        raise InputError(f"process {started.process}: {error}" if started.process else str(error)) from error
    except PacelineError as error:
        tell_torchrun(str(error))
        raise
    if runs:
        answer_runs(scenario.name, runs, ask, output)


def slurm(ask: Ask, arguments: Sequence[str]) -> None:
    """A Slurm script for the scenario, on standard output."""
    from paceline.backend.training.slurm import script

    sys.stdout.write(script(ask.read(), arguments))


def _board(wanted: bool, ask: Ask, output: Output) -> AbstractContextManager[TensorBoard | None]:
    """Where event files go, if they are asked for."""
    if not wanted:
        return nullcontext()
    from paceline.reports.tensorboard import tensorboard

    output.note(f"to watch: tensorboard --logdir {ask.out}")
    return tensorboard(ask.out)


def replay(folder: Path, output: Output) -> bool:
    """A recorded run once more; whether it ended in the same bits."""
    from paceline.records import store

    run = store.read_run(folder)
    from paceline.checking.replay_folder import replay_run

    with output.progress() as stage:
        report = stage("replaying") or (lambda *_: None)
        replayed = replay_run(run, lambda done: report(run.algorithm, done))
    output.answer({"replayed": replayed.answer()}, [replayed.words])
    return replayed.bit_identical
