"""The actions of ``paceline train``: real runs, here or as one process of several; replays; a Slurm script."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.algorithms.core.errors import InputError
from paceline.backend.transports.launch_environment import Joined, RefusedElsewhere, joined
from paceline.cli.actions import Ask, answer_runs, run_names, say_kept, stored_if_interrupted
from paceline.cli.joined_processes import reported, together
from paceline.cli.output import Output

if TYPE_CHECKING:
    from paceline.backend.multihost.world import World
    from paceline.backend.status.progress_counters import Totals
    from paceline.backend.training.run import Watcher
    from paceline.checking.own_methods import BrokenPromises
    from paceline.cli.watch_display import WatchDisplay
    from paceline.records import Run
    from paceline.reports.export.tensorboard import TensorBoard
    from paceline.reports.watching.predict_runs import Key
    from paceline.reports.watching.predicted_progress import PredictedProgress
    from paceline.scenarios import Scenario
    from paceline.scenarios.resolution.plan import Plan


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Watching:
    """How real runs are watched.

    Args:
        tensorboard: whether event files are written.
        predicted: whether predicted progress is shown next to the measured one.
        machine: the calibrated machine for the predictions, if one is given.
    """

    tensorboard: bool = False
    predicted: bool = False
    machine: Path | None = None

    def check(self, scenario: str | None, replay: Path | None) -> None:
        """Checks that the options go together.

        Args:
            scenario: the scenario argument, if given.
            replay: the run to replay, if given.

        Raises:
            InputError: they do not; all mistakes are reported.
        """
        mistakes = []
        if replay is not None and scenario is not None:
            mistakes.append(f"--replay: found the scenario {scenario!r} beside it; a run is replayed with its own")
        if replay is not None and self.predicted:
            mistakes.append("--watch: found beside --replay, which has no clock; only real runs are watched")
        if self.machine is not None and not self.predicted:
            mistakes.append("--machine: found without --watch; only the prediction of a watched run uses the machine")
        if mistakes:
            raise InputError("\n".join(mistakes))


def train(ask: Ask, output: Output, watching: Watching | None = None) -> None:
    """Trains one real run per algorithm and seed; the record of a failed run is stored too.

    Args:
        ask: the request.
        output: where the answer is printed.
        watching: how the runs are watched; None: progress bars only.
    """
    watching = watching or Watching()
    if (started := joined(os.environ)) is not None:
        _train_joined(ask, output, started, watching)
        return
    scenario = ask.load()
    from paceline.records.machine import OtherLoad
    from paceline.reports.comparison.conclusion import say_load

    with OtherLoad() as other:
        runs = _train(ask, scenario, output, watching)
    answer_runs(scenario.name, runs, ask, output)
    output.note(say_load(other.share))


def _train(ask: Ask, scenario: Scenario, output: Output, watching: Watching, world: World | None = None) -> list[Run]:
    broken = _check(scenario, world)
    predicted = _predicted(scenario, output, watching, world)
    from paceline.backend.posix.interrupts import uninterrupted
    from paceline.backend.training.run import train as run
    from paceline.records import RunsFailed, store
    from paceline.scenarios.resolution.plan import names_of

    stored: list[Run] = []
    interruptible = nullcontext() if world is not None and not world.leads else stored_if_interrupted(stored)
    try:
        with (
            interruptible,
            _board(watching.tensorboard and _speaks(world), ask, output) as board,
            _display(predicted, output, joined=world is not None) as display,
            output.progress() if display is None else nullcontext(_no_stage) as stage,
        ):
            watchers = [one.watch for one in (board, display) if one is not None]

            def keep(run: Run) -> Run:
                finished = run if board is None else board.finish(run)
                with uninterrupted():  # a run that is stored is named
                    stored.append(store.save(finished, ask.out))
                if board is not None:
                    board.clear()
                if display is not None and finished.summary["stop_reason"] != "failure":
                    display.ended(finished)
                return stored[-1]

            with output.aside() as echo:
                return run(
                    scenario,
                    progress=stage("training", run_names(names_of(scenario.algorithms), scenario.seed, scenario.seeds)),
                    watch=_each(watchers) if watchers else None,
                    echo=echo,
                    keep=broken.marking(keep),
                    out=ask.out,
                    resume=ask.resume,
                    world=world,
                    note=output.note,
                )
    except RunsFailed as failure:
        say_kept(failure, output)
        raise


def _check(scenario: Scenario, world: World | None) -> BrokenPromises:
    """Checks custom methods; of joined processes, which all find the same mistakes, the first one reports them."""
    from paceline.checking.own_methods import check_own_methods

    try:
        return check_own_methods(scenario)
    except InputError as error:
        if world is None or world.leads:
            raise
        raise RefusedElsewhere(str(error)) from error


def _predicted(
    scenario: Scenario, output: Output, watching: Watching, world: World | None
) -> Mapping[Key, PredictedProgress] | None:
    """Predicts the runs, if they are watched; of joined processes only the first one does, and the others wait.

    The ranks start later, so the prediction takes none of their cores.
    """
    if not watching.predicted:
        return None
    from paceline.reports.watching.predict_runs import costs_of, predict_runs
    from paceline.scenarios.resolution.real_run_validation import refuse_simulated_only

    try:
        refuse_simulated_only(scenario)
        costs = costs_of(scenario, watching.machine, joined=world is not None)
    except InputError as error:
        if _speaks(world):
            raise
        raise RefusedElsewhere(str(error)) from error
    if output.quiet or not _speaks(world):
        return None
    output.note(f"predicting with {costs.words}")
    with output.progress() as stage:
        return predict_runs(scenario, costs, stage("predicting"))


def _speaks(world: World | None) -> bool:
    """Whether this process prints and writes files."""
    return world is None or world.leads


def _display(
    predicted: Mapping[Key, PredictedProgress] | None, output: Output, *, joined: bool
) -> AbstractContextManager[WatchDisplay | None]:
    """Returns the display of predicted and measured progress, if there are predictions."""
    if predicted is None:
        return nullcontext()
    from paceline.cli.watch_display import watch_display

    return watch_display(output, predicted, joined=joined)


def _no_stage(_: str, runs: Sequence[str] = ()) -> None:
    """Begins a stage without a progress bar."""


def _each(watchers: Sequence[Watcher]) -> Watcher:
    """Returns a function that calls all watchers."""

    def watch(plan: Plan, now: Totals) -> None:
        for one in watchers:
            one(plan, now)

    return watch


def _train_joined(ask: Ask, output: Output, started: Joined, watching: Watching) -> None:
    """Trains as one process of several, of which only the first writes files and prints."""
    with reported(started):
        scenario = ask.load() if started.process == 0 else ask.read()
        with together(started, output) as (world, speaking):
            runs = _train(ask, scenario, speaking, watching, world)
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
    from paceline.reports.export.tensorboard import tensorboard

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
