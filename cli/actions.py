"""What commands share: storing runs, printing them, and processes that a launcher has started."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from paceline.algorithms.core.errors import InputError, PacelineError
from paceline.backend.transports.launchers import LaunchedProcess, SaidElsewhere, hasty, tell_torchrun
from paceline.cli.options import LOGGERS, split_names
from paceline.cli.output import Output
from paceline.records.figures import significant

if TYPE_CHECKING:
    from paceline.backend.multihost.world import World
    from paceline.records import Run
    from paceline.reports.export.loggers import LoggerName, RunLogs

HOW = {"events": "event by event", "cohort": "for all ranks at once"}
"""the interpreters, in words"""


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
            from paceline.backend.training import going_on

            output.note(going_on(last.path))
        raise


def answer_runs(runs: Sequence[Run], output: Output, *, streamed: bool = False) -> None:
    """Prints the figures of runs and where they are stored.

    Args:
        runs: all runs.
        output: where the answer is printed.
        streamed: whether the first table has been printed already.
    """
    from paceline.reports.run_answer import answer_of_runs

    output.give(answer_of_runs(runs, each=output.verbose, links=output.verbose), streamed=int(streamed))
    if not output.as_json:
        say_where(runs, output)


def say_where(runs: Sequence[Run], output: Output) -> None:
    """Prints where runs are stored, and if requested what their machines and networks were.

    Args:
        runs: the stored runs.
        output: where the notes are printed.
    """
    from paceline.reports.link_words import link_sentences

    if output.verbose:
        for run in runs:
            output.note(str(run.path))
            for about in ("placement", "network", "devices"):
                if about in run.machine:
                    output.note(f"  {run.machine[about]['words']}")
            if (engine := run.machine.get("engine")) is not None:
                output.note(f"  simulated {HOW[engine['name']]}, because {engine['reason']}")
            for collective in run.machine.get("collectives", ()):
                output.note(_say_collective(collective))
            for sentence in link_sentences(run.summary):
                output.note(f"  {sentence}")
            if (links := run.machine.get("links")) is not None:
                output.note(f"  bytes on links: {links}")
    else:
        output.note(f"{len(runs)} run{'s' * (len(runs) != 1)} stored in {output.folder}/")


def _say_collective(collective: Mapping[str, Any]) -> str:
    """Describes the algorithm of a collective, and the predicted times of the others."""
    name = (
        collective["algorithm"]
        if collective["protocol"] is None
        else f"{collective['algorithm']} by {collective['protocol']}"
    )
    others = [f"{other} {significant(seconds * 1e3)}" for other, seconds in collective["others_s"].items()]
    others += [f"{other} left out ({messages} messages)" for other, messages in collective["left_out"].items()]
    said = f"{collective['kind']} of {collective['bytes']:.0f} bytes among {collective['ranks']} ranks: {name}"
    return f"  {said}, predicted {significant(collective['predicted_s'] * 1e3)} ms" + (
        f" ({', '.join(others)})" if others else ""
    )


def keeper(kept: list[Run], out: Path, logs: RunLogs | None = None) -> Callable[[Run], Run]:
    """Returns a function that logs and stores a run, adds the stored run to a list and returns it.

    Args:
        kept: the list.
        out: the folder for records.
        logs: the logs of the command's runs; None: it has none.
    """
    from paceline.backend.posix.processes import uninterrupted
    from paceline.records import store

    def keep(run: Run) -> Run:
        logged = run if logs is None else logs.finish(run)
        with uninterrupted():  # a run that is stored is named
            kept.append(store.save(logged, out))
        if logs is not None:
            logs.clear()
        return kept[-1]

    return keep


def logging(names: str | None, output: Output) -> AbstractContextManager[RunLogs | None]:
    """Returns the logs of a command's runs, if there are any.

    Args:
        names: the loggers, separated by commas; None: there are none.
        output: where they write, and say so.

    Raises:
        InputError: a name is wrong, packages are missing, or a service refuses.
    """
    if names is None:
        return nullcontext()
    chosen = split_names(names)
    if not chosen or not set(chosen) <= set(LOGGERS):
        raise InputError(f"--log: found {names!r}, expected {', '.join(LOGGERS)}, or several with commas between them")
    from paceline.reports.export.loggers import loggers

    return loggers(cast("list[LoggerName]", chosen), output.folder, output.note)


@contextmanager
def together(started: LaunchedProcess | None, output: Output) -> Iterator[tuple[World | None, Output]]:
    """Connects the processes for the block; yields them, and the output, which is quiet in all but the first.

    Args:
        started: how this process was started; None: by no launcher, so there is nothing to connect.
        output: where the first process prints.

    Raises:
        RunFailed: some processes did not start.
    """
    if started is None:
        yield None, output
        return
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
def reported(started: LaunchedProcess | None) -> Iterator[None]:
    """Passes errors of the block on to torchrun; an input error of a process other than the first gets its number.

    Args:
        started: how this process was started; None: by no launcher.
    """
    try:
        yield
    except PacelineError as error:
        if started is None:
            raise
        tell_torchrun(str(error))
        if started.process and isinstance(error, InputError) and not isinstance(error, SaidElsewhere):
            raise InputError(f"process {started.process}: {error}") from error
        raise
