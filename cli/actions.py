"""What the commands do: load the scenario, run, store, answer."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.algorithms.errors import InputError
from paceline.backend.joining import Joined, SaidElsewhere, joined
from paceline.cli.output import Output, write_json
from paceline.records import Run, RunsFailed, store
from paceline.records.machine import OtherLoad
from paceline.reports.conclusion import conclusion, say_load
from paceline.reports.extrapolation import extrapolation_table, lines_of, words
from paceline.reports.seeds import by_algorithm, figures, soonest
from paceline.reports.table import comparison_tables, runs_table, seeds_table

if TYPE_CHECKING:
    from paceline.reports.tensorboard import TensorBoard


@dataclass(frozen=True, slots=True)
class Ask:
    """What the user asked for: a scenario, and what to change in it."""

    scenario: str | Mapping[str, Any]
    changes: Sequence[str] = ()
    algorithms: str | None = None
    seed: int | None = None
    seeds: int | None = None
    out: Path = Path("runs")
    pace: bool | None = None
    network: str | None = None
    resume: Path | None = None

    def load(self) -> Any:
        """The scenario, changed and validated; raises `InputError` with every mistake at once."""
        scenario = self.read()
        self.make_out()
        return scenario

    def read(self) -> Any:
        """The same, where nothing is to be stored."""
        from paceline.scenarios import load

        return load(self.scenario, self.all_changes(), algorithms=self.names())

    def all_changes(self) -> list[str]:
        """The changes, and those that options stand for."""
        changes = list(self.changes)
        if self.seed is not None:
            changes.append(f"seed={self.seed}")
        if self.seeds is not None:
            changes.append(f"seeds={self.seeds}")
        if self.pace is not None:
            changes.append(f"train.pace={'device' if self.pace else 'none'}")
        if self.network is not None:
            changes.append(f"train.network={self.network}")
        return changes

    def make_out(self) -> None:
        """Makes the folder for records before anything runs that could not be recorded."""
        try:
            self.out.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryDirectory(prefix=".", dir=self.out).cleanup()
        except OSError as error:
            found = f"found {str(self.out)!r}, where nothing can be written ({error.strerror})"
            raise InputError(f"--out: {found}; expected a folder for records") from error

    def names(self) -> list[str] | None:
        """The algorithms asked for."""
        if self.algorithms is None:
            return None
        names = [name for part in self.algorithms.split(",") if (name := part.strip())]
        if not names:
            raise InputError(f"--algorithms: found {self.algorithms!r}, expected names such as sync-sgd,async-sgd")
        return names


def simulate(ask: Ask, output: Output) -> None:
    """One simulated run per algorithm and seed."""
    scenario = ask.load()
    from paceline.simulator.run import simulate as run

    with output.progress() as stage:
        runs = run(scenario, progress=stage("simulating"), keep=lambda run: store.save(run, ask.out))
    _answer_runs(scenario.name, runs, ask, output)


def scenario_of(scenario: str | None, resume: Path | None) -> str | Mapping[str, Any]:
    """The scenario that was given, or that of the run to go on with; raises `InputError` where there is neither."""
    if scenario is not None:
        return scenario
    if resume is None:
        raise InputError("SCENARIO: missing; give a scenario file, the name of one, --resume RUN or --replay RUN")
    from paceline.backend.checkpoint import find_last

    its_own: Mapping[str, Any] = find_last(resume).manifest["scenario"]
    return its_own


def train(ask: Ask, output: Output, *, tensorboard: bool = False) -> None:
    """One real run per algorithm and seed; of a failed one, the record up to then is kept."""
    if (started := joined(os.environ)) is not None:
        _train_joined(ask, output, started, tensorboard=tensorboard)
        return
    scenario = ask.load()
    with OtherLoad() as other:
        runs = _train(ask, scenario, output, tensorboard=tensorboard)
    _answer_runs(scenario.name, runs, ask, output)
    output.note(say_load(other.share))


def _train(ask: Ask, scenario: Any, output: Output, world: Any = None, *, tensorboard: bool = False) -> list[Run]:
    from paceline.backend.run import train as run

    try:
        with _board(tensorboard, ask, output) as board, output.progress() as stage:

            def keep(run: Run) -> Run:
                if board is None:
                    return store.save(run, ask.out)
                kept = store.save(board.finish(run), ask.out)
                board.clear()
                return kept

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
        _say_kept(failure, output)
        raise


def _train_joined(ask: Ask, output: Output, started: Joined, *, tensorboard: bool) -> None:
    """The same as one process of several: the first one writes and speaks for all."""
    try:
        scenario = ask.load() if started.process == 0 else ask.read()
        from paceline.backend.world import join

        with join(started) as world:
            speaking = output if world.leads else replace(output, quiet=True)
            speaking.note(f"{started.processes} processes of {started.launcher}, hosts: {len(world.hosts)}")
            runs = _train(ask, scenario, speaking, world, tensorboard=tensorboard and world.leads)
    except SaidElsewhere:
        raise
    except InputError as error:
        raise InputError(f"process {started.process}: {error}" if started.process else str(error)) from error
    if runs:
        _answer_runs(scenario.name, runs, ask, output)


def slurm(ask: Ask, arguments: Sequence[str]) -> None:
    """A Slurm script for the scenario, on standard output."""
    from paceline.backend.slurm import script

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
    run = store.read_run(folder)
    from paceline.checking.again import replay_run

    with output.progress() as stage:
        report = stage("replaying") or (lambda *_: None)
        replayed = replay_run(run, lambda done: report(run.algorithm, done))
    output.answer({"replayed": replayed.answer()}, [replayed.words])
    return replayed.bit_identical


def _say_kept(failure: RunsFailed, output: Output) -> None:
    for run in failure.runs:
        output.note(f"kept what was recorded: {run.path}")
    last = failure.runs[-1] if failure.runs else None
    if last is not None and last.path is not None and last.checkpoints is not None:
        from paceline.backend.resume import going_on

        output.note(going_on(last.path))


def _answer_runs(name: str, runs: Sequence[Run], ask: Ask, output: Output) -> None:
    seeds = by_algorithm(runs)
    answer: dict[str, Any] = {
        "scenario": name,
        "runs": [describe(run) for run in runs],
        "figures": [
            {"algorithm": name, **figures([dict(run.summary) for run in mine])} for name, mine in seeds.items()
        ],
    }
    one_each = len(seeds) == len(runs)
    shown: list[Any] = [runs_table(runs)] if one_each or output.verbose else []
    shown += [*([] if one_each else [seeds_table(runs)]), *filter(None, [soonest(runs)])]
    if lines := lines_of(runs):
        answer["extrapolated"] = lines
        shown += [extrapolation_table(lines), words(lines)]
    output.answer(answer, shown)
    say_warnings(chain.from_iterable(map(_warnings, runs)), output)
    say_lost(runs, output)
    if not output.as_json:
        _say_where(runs, ask, output)


def say_warnings(warnings: Iterable[str], output: Output) -> None:
    """Where runs lay outside what their models were fitted on; each once, whoever it is true of."""
    for text in dict.fromkeys(warnings):
        output.note(f"note: {text}")


def say_lost(runs: Iterable[Run], output: Output) -> None:
    """Who died in runs that went on."""
    for run in runs:
        for one in run.summary.get("lost_ranks", ()):
            who, when = f"rank {one['rank']} ({one['role']})", f"{one['time_s']:.3g} s"
            output.note(
                f"note: {run.algorithm} with seed {run.seed} went on without {who}, which {one['how']}, at {when}"
            )


def _warnings(run: Run) -> list[str]:
    return list(run.machine.get("warnings", ()))


def _say_where(runs: Sequence[Run], ask: Ask, output: Output) -> None:
    if output.verbose:
        for run in runs:
            output.note(str(run.path))
            if (placed := run.machine.get("placement")) is not None:
                output.note(f"  {placed['words']}")
            if (network := run.machine.get("network")) is not None:
                output.note(f"  {network['words']}")
            if (devices := run.machine.get("devices")) is not None:
                output.note(f"  {devices['words']}")
            for one in run.machine.get("collectives", ()):
                output.note(_say_collective(one))
    else:
        output.note(f"{len(runs)} run{'s' * (len(runs) != 1)} stored in {ask.out}/")


def _say_collective(one: Mapping[str, Any]) -> str:
    """Which pattern a collective took, and what the others were predicted to take."""
    name = one["algorithm"] if one["protocol"] is None else f"{one['algorithm']} by {one['protocol']}"
    others = [f"{other} {seconds * 1e3:.3g}" for other, seconds in one["others_s"].items()]
    others += [f"{other} left out ({messages} messages)" for other, messages in one["left_out"].items()]
    said = f"{one['kind']} of {one['bytes']:.0f} bytes among {one['ranks']} ranks: {name}"
    return f"  {said}, predicted {one['predicted_s'] * 1e3:.3g} ms" + (f" ({', '.join(others)})" if others else "")


def describe(run: Run) -> dict[str, Any]:
    """A run as it stands in a JSON answer."""
    return {
        "algorithm": run.algorithm,
        "seed": run.seed,
        "kind": run.kind,
        "summary": run.summary,
        "path": str(run.path),
        "warnings": _warnings(run),
    }


def compare(ask: Ask, output: Output) -> None:
    """Every algorithm predicted and measured; keeps the runs, the answer and the figure."""
    scenario = ask.load()
    from paceline.reports.compare import compare as run
    from paceline.reports.figure import save_figure

    kept: list[Run] = []
    try:
        with output.progress() as stage:
            comparison = run(scenario, stage=stage, keep=_keeper(kept, ask.out))
    except RunsFailed as failure:
        _say_kept(failure, output)
        raise
    answer = comparison.answer()
    folder = store.place(ask.out, f"{store.slug(scenario.name)}-comparison")
    with store.new_folder(folder) as building:
        record = {**answer, "runs": [str(run.path) for run in kept]}
        (building / "comparison.json").write_text(store.to_json(record) + "\n", encoding="utf-8")
        if comparison.has_accuracy:
            save_figure(comparison, building / "accuracy.png")
    output.answer(answer, [*comparison_tables(comparison), conclusion(comparison)])
    say_warnings(chain.from_iterable(map(_warnings, kept)), output)
    say_lost(kept, output)
    if not output.as_json:
        output.note(f"{'Figure and answer' if comparison.has_accuracy else 'Answer'} stored in {folder}/")
        _say_where(kept, ask, output)


def _keeper(kept: list[Run], out: Path) -> Callable[[Run], Run]:
    def keep(run: Run) -> Run:
        kept.append(store.save(run, out))
        return kept[-1]

    return keep


def schema() -> None:
    """The JSON Schema of a scenario."""
    from paceline.scenarios import schema as of_scenarios

    write_json(of_scenarios())
