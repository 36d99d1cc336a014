"""What commands share: loading the scenario, storing runs, printing them, and processes that a launcher has started."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.algorithms.core.errors import InputError, PacelineError
from paceline.backend.transports.launch_environment import Joined, SaidElsewhere, hasty, tell_torchrun
from paceline.cli.options import names_in
from paceline.cli.output import Output
from paceline.records.figures import significant

if TYPE_CHECKING:
    from paceline.backend.multihost.world import World
    from paceline.records import Run

HOW = {"events": "event by event", "cohort": "for all ranks at once"}
"""the interpreters, in words"""


@dataclass(frozen=True, slots=True)
class ScenarioOptions:
    """The options of a command that say which scenario runs, with which changes, and where records are stored."""

    scenario: str | Mapping[str, Any]
    changes: Sequence[str] | None = None
    algorithms: str | None = None
    seed: int | None = None
    seeds: int | None = None
    out: Path = Path("runs")
    pace: bool | None = None
    network: str | None = None
    resume: Path | None = None
    machine: Path | None = None

    def load(self) -> Any:
        """Returns the changed and validated scenario, and makes the folder for records; raises `InputError`."""
        scenario = self.read()
        self.make_out()
        return scenario

    def read(self) -> Any:
        """Returns the changed and validated scenario, without making the folder for records."""
        from paceline.scenarios import load

        return load(self.scenario, self.all_changes(), algorithms=self.names())

    def all_changes(self) -> list[str]:
        """Returns the changes, including those given as options."""
        changes = list(self.changes or ())
        if self.seed is not None:
            changes.append(f"seed={self.seed}")
        if self.seeds is not None:
            changes.append(f"seeds={self.seeds}")
        if self.pace is not None:
            changes.append(f"train.pace={'device' if self.pace else 'none'}")
        if self.network is not None:
            changes.append(f"train.network={self.network}")
        if self.machine is not None:
            changes.append(f"cluster.machine={self.machine}")
        return changes

    def make_out(self) -> None:
        """Makes the folder for records, so that a problem with it is found before anything runs."""
        try:
            self.out.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryDirectory(prefix=".", dir=self.out).cleanup()
        except OSError as error:
            found = f"found {str(self.out)!r}, where nothing can be written ({error.strerror})"
            raise InputError(f"--out: {found}; expected a folder for records") from error

    def names(self) -> list[str] | None:
        """Returns the requested algorithms; None for those of the scenario."""
        return names_in(self.algorithms)


def run_names(names: Sequence[str], seed: int, seeds: int) -> list[str]:
    """Returns a name for each run of a command, in the order in which they are made.

    Args:
        names: the names of the algorithms.
        seed: the first seed.
        seeds: the number of seeds.

    >>> run_names(["agd", "ssp"], 1, 2)
    ['agd, seed 1', 'agd, seed 2', 'ssp, seed 1', 'ssp, seed 2']
    """
    if seeds == 1:
        return list(names)
    return [f"{name}, seed {seed + number}" for name in names for number in range(seeds)]


@contextmanager
def naming_stored(kept: Sequence[Run], output: Output, *, speaks: bool = True) -> Iterator[None]:
    """Names stored runs if the block is interrupted, and the records of a failed run and how to resume it if it fails.

    Args:
        kept: the runs that are stored so far.
        output: where records of a failed run are named.
        speaks: whether this process names stored runs.
    """
    from paceline.records import RunsFailed

    try:
        yield
    except KeyboardInterrupt as interrupt:
        if speaks:
            interrupt.add_note("\n".join(f"stored before: {run.path}" for run in kept) or "no run had ended")
        raise
    except RunsFailed as failure:
        for run in failure.runs:
            output.note(f"kept what was recorded: {run.path}")
        last = failure.runs[-1] if failure.runs else None
        if last is not None and last.path is not None and last.checkpoints is not None:
            from paceline.backend.training.resume import going_on

            output.note(going_on(last.path))
        raise


def answer_runs(runs: Sequence[Run], options: ScenarioOptions, output: Output, *, streamed: bool = False) -> None:
    """Prints the figures of runs and where they are stored.

    Args:
        runs: all runs.
        options: the scenario and changes to it.
        output: where the answer is printed.
        streamed: whether the first table has been printed already.
    """
    from paceline.reports.run_answer import answer_of_runs

    output.give(answer_of_runs(runs, each=output.verbose, links=output.verbose), streamed=int(streamed))
    if not output.as_json:
        say_where(runs, options, output)


def say_where(runs: Sequence[Run], options: ScenarioOptions, output: Output) -> None:
    """Prints where runs are stored, and if requested what their machines and networks were.

    Args:
        runs: the stored runs.
        options: the scenario and changes to it.
        output: where the notes are printed.
    """
    from paceline.reports.link_words import link_sentences

    if output.verbose:
        for run in runs:
            output.note(str(run.path))
            if (placed := run.machine.get("placement")) is not None:
                output.note(f"  {placed['words']}")
            if (network := run.machine.get("network")) is not None:
                output.note(f"  {network['words']}")
            if (devices := run.machine.get("devices")) is not None:
                output.note(f"  {devices['words']}")
            if (engine := run.machine.get("engine")) is not None:
                output.note(f"  simulated {HOW[engine['name']]}, because {engine['reason']}")
            for one in run.machine.get("collectives", ()):
                output.note(_say_collective(one))
            for sentence in link_sentences(run.summary):
                output.note(f"  {sentence}")
            if (links := run.machine.get("links")) is not None:
                output.note(f"  bytes on links: {links}")
    else:
        output.note(f"{len(runs)} run{'s' * (len(runs) != 1)} stored in {options.out}/")


def _say_collective(one: Mapping[str, Any]) -> str:
    """Describes the algorithm of a collective, and the predicted times of the others."""
    name = one["algorithm"] if one["protocol"] is None else f"{one['algorithm']} by {one['protocol']}"
    others = [f"{other} {significant(seconds * 1e3)}" for other, seconds in one["others_s"].items()]
    others += [f"{other} left out ({messages} messages)" for other, messages in one["left_out"].items()]
    said = f"{one['kind']} of {one['bytes']:.0f} bytes among {one['ranks']} ranks: {name}"
    return f"  {said}, predicted {significant(one['predicted_s'] * 1e3)} ms" + (
        f" ({', '.join(others)})" if others else ""
    )


def keeper(kept: list[Run], out: Path) -> Callable[[Run], Run]:
    """Returns a function that stores a run, adds the stored run to a list and returns it.

    Args:
        kept: the list.
        out: the folder for records.
    """
    from paceline.backend.posix.interrupts import uninterrupted
    from paceline.records import store

    def keep(run: Run) -> Run:
        with uninterrupted():  # a run that is stored is named
            kept.append(store.save(run, out))
        return kept[-1]

    return keep


@contextmanager
def together(started: Joined, output: Output) -> Iterator[tuple[World, Output]]:
    """Connects the processes for the block; yields them, and the output, which is quiet in all but the first.

    Args:
        started: how this process was started.
        output: where the first process prints.

    Raises:
        RunFailed: some processes did not start.
    """
    # before torch is imported, as its store logs a long stack for every closed connection; Paceline reports the cause
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    from paceline.backend.multihost.world import join

    with join(started) as world:
        speaking = output if world.leads else replace(output, quiet=True)
        speaking.note(f"{started.processes} processes of {started.launcher}, hosts: {len(world.hosts)}")
        if (advice := hasty(started, os.environ)) is not None:
            speaking.note(advice)
        yield world, speaking


@contextmanager
def reported(started: Joined) -> Iterator[None]:
    """Passes errors of the block on to torchrun; an input error of a process other than the first gets its number.

    Args:
        started: how this process was started.
    """
    try:
        yield
    except SaidElsewhere as error:
        tell_torchrun(str(error))
        raise
    except InputError as error:
        tell_torchrun(str(error))
        raise InputError(f"process {started.process}: {error}" if started.process else str(error)) from error
    except PacelineError as error:
        tell_torchrun(str(error))
        raise
