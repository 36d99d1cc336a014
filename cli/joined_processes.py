"""Commands in processes that torchrun, srun or mpirun has started: only the first one prints and writes files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from paceline.algorithms.core.errors import InputError, PacelineError
from paceline.backend.transports.launch_environment import Joined, SaidElsewhere, hasty, tell_torchrun
from paceline.cli.output import Output

if TYPE_CHECKING:
    from paceline.backend.multihost.world import World


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
