"""``paceline train``: real runs, here or as one process of several; replays; a Slurm script."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paceline.algorithms.core.errors import InputError, Mistakes
from paceline.backend.transports.launchers import RefusedElsewhere, joined
from paceline.cli.actions import answer_runs, keeper, logging, naming_stored, reported, run_names, together
from paceline.cli.options import EXIT_FAILED, Loggers, Only, ScenarioOptions, scenario_argument
from paceline.cli.output import Output

if TYPE_CHECKING:
    from paceline.backend.multihost.world import World
    from paceline.backend.status.progress_counters import Totals
    from paceline.backend.training import Watcher
    from paceline.cli.watch_display import WatchDisplay
    from paceline.records import Run
    from paceline.reports.export.loggers import RunLogs
    from paceline.reports.watching.predict_runs import Key, PredictedProgress
    from paceline.scenarios import Scenario
    from paceline.scenarios.resolution.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Watching:
    """How real runs are watched."""

    predicted: Annotated[
        bool,
        typer.Option(
            "--watch",
            help="Predict the runs first, then show predicted and measured progress, the time left, and ranks that are "
            "slower than predicted.",
        ),
    ] = False
    machine: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="With --watch: predict with the costs of this machine, which [bold]paceline calibrate[/] measured; "
            "default: the scenario's devices and links.",
        ),
    ] = None
    log: Loggers = None

    def check(self, scenario: str | None, replay: Path | None) -> None:
        """Checks that the options go together.

        Args:
            scenario: the scenario argument, if given.
            replay: the run to replay, if given.

        Raises:
            InputError: they do not; all mistakes are reported.
        """
        with Mistakes() as mistakes:
            if replay is not None and scenario is not None:
                mistakes.append(f"--replay: found the scenario {scenario!r} beside it; a run is replayed with its own")
            if replay is not None and self.predicted:
                mistakes.append("--watch: found beside --replay, which has no clock; only real runs are watched")
            if replay is not None and self.log:
                mistakes.append("--log: found beside --replay, which has no clock; only real runs are logged")
            if self.machine is not None and not self.predicted:
                mistakes.append(
                    "--machine: found without --watch; only the prediction of a watched run uses the machine"
                )


def train(
    *,
    scenario: Annotated[
        str | None, scenario_argument(more=". Default with --resume: that of the run; not allowed with --replay")
    ] = None,
    options: Annotated[ScenarioOptions, Only("changes", "algorithms", "seed", "seeds", "pace", "network")],
    resume: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            help="Resume from the last checkpoint of this run, or from this checkpoint. Only [bold]stop[/] and "
            "[bold]train.checkpoint[/] of its scenario may be changed.",
        ),
    ] = None,
    watching: Watching,
    replay: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            help="Repeat a recorded real run in the order of its record, and compare the weights bit for bit; "
            "takes no scenario. Exit status 1 if they differ.",
        ),
    ] = None,
    slurm: Annotated[
        bool, typer.Option("--slurm", help="Print a Slurm script that runs this on as many nodes as the cluster has.")
    ] = False,
    output: Annotated[Output, Only("folder", "as_json", "as_csv", "quiet", "verbose")],
) -> None:
    """Run a scenario for real: one process per rank, with torch.distributed.

    The command starts the ranks on this machine. If `torchrun`, `srun` or `mpirun` has started the command, each of
    its processes is a rank, on one host or on several.

    \b
    Examples:
      paceline train quickstart
      paceline train quickstart --algorithms agd --set algorithms.agd.delay=2
      paceline train my.yaml --no-pace --seed 7 --json
      paceline train my.yaml --set train.checkpoint.every='100 updates'
      paceline train --resume runs/my-sync-sgd-7-measured-1 --set stop.epochs=20
      paceline train my.yaml --watch --machine machine.yaml
      paceline train my.yaml --log tensorboard --verbose
      paceline train --replay runs/quickstart-async-sgd-1-measured-1
      torchrun --standalone --nproc-per-node=5 --no-python paceline train my.yaml
      paceline train my.yaml --slurm > my.sh
    """
    watching.check(scenario, replay)
    if replay is not None:
        if not _replay(replay, output):
            raise typer.Exit(EXIT_FAILED)
        return
    source = _scenario_of(scenario, resume)
    if slurm:
        from paceline.backend.transports.launchers import script

        sys.stdout.write(script(options.read(source), [argument for argument in sys.argv[1:] if argument != "--slurm"]))
        return
    started = joined(os.environ)
    with reported(started):
        loaded = options.read(source)
        first = started is None or started.process == 0
        if first:
            output.make_folder()
        from paceline.records.machine import OtherLoad

        with (
            logging(watching.log if first else None, output) as logs,  # before the others wait for this process
            together(started, output) as (world, speaking),
            OtherLoad() as other,
        ):
            runs = _train(loaded, resume, watching, logs, speaking, world)
    if started is None or runs:  # of a launcher's processes one has the runs
        answer_runs(runs, output)
    if started is None:
        from paceline.reports.comparison.conclusion import say_load

        output.note(say_load(other.share))


def _scenario_of(scenario: str | None, resume: Path | None) -> str | Mapping[str, Any]:
    """Returns the given scenario, or that of the run to resume."""
    if scenario is not None:
        return scenario
    if resume is None:
        raise InputError("SCENARIO: missing; give a scenario file, the name of one, --resume RUN or --replay RUN")
    from paceline.backend.rank.checkpoint import find_last

    its_own: Mapping[str, Any] = find_last(resume).manifest["scenario"]
    return its_own


def _train(
    scenario: Scenario,
    resume: Path | None,
    watching: Watching,
    logs: RunLogs | None,
    output: Output,
    world: World | None,
) -> list[Run]:
    """Trains one real run per algorithm and seed; the record of a failed run is stored too."""
    from paceline.cli.progress import silent
    from paceline.reports.run_results import train as trained
    from paceline.scenarios.resolution.plan import names_of

    stored: list[Run] = []
    with (
        naming_stored(stored, output, speaks=_speaks(world)),
        _display(_predicted(scenario, output, watching, world), output, joined=world is not None) as display,
        output.progress() if display is None else nullcontext(silent) as stage,
    ):
        watchers = [watcher.watch for watcher in (logs, display) if watcher is not None]
        save = keeper(stored, output.folder, logs)

        def keep(run: Run) -> Run:
            saved = save(run)
            if display is not None and saved.summary["stop_reason"] != "failure":
                display.ended(saved)
            return saved

        with output.aside() as echo:
            return trained(
                scenario,
                progress=stage("training", run_names(names_of(scenario.algorithms), scenario.seed, scenario.seeds)),
                watch=_each(watchers) if watchers else None,
                echo=echo,
                keep=keep,
                out=output.folder,
                resume=resume,
                world=world,
                note=output.note,
            )


def _predicted(
    scenario: Scenario, output: Output, watching: Watching, world: World | None
) -> Mapping[Key, PredictedProgress] | None:
    """Predicts the runs, if they are watched; of joined processes only the first one does, and the others wait.

    The ranks start later, so the prediction takes none of their cores.
    """
    if not watching.predicted:
        return None
    from paceline.reports.run_results import load_checked
    from paceline.reports.watching.predict_runs import costs_of, predict_runs
    from paceline.scenarios.resolution.plan import refuse_simulated_only

    load_checked(scenario, world)  # also a method that cannot be trained is found before a long prediction
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


def _each(watchers: Sequence[Watcher]) -> Watcher:
    """Returns a function that calls all watchers."""

    def watch(plan: Plan, now: Totals) -> None:
        for watcher in watchers:
            watcher(plan, now)

    return watch


def _replay(folder: Path, output: Output) -> bool:
    """Replays a recorded run; returns whether it ended with the same bits."""
    from paceline.records import store

    run = store.read_run(folder)
    from paceline.checking.replay import replay_run
    from paceline.reports.blocks import Answer, Claim

    with output.progress() as stage:
        report = stage("replaying") or (lambda *_: None)
        replayed = replay_run(run, lambda done: report(run.algorithm, done))
    output.give(Answer("Replay", [Claim(replayed.words)], lambda: {"replayed": replayed.answer()}))
    return replayed.bit_identical
