"""The `paceline` command: a thin layer over the Python API. Read `app` first, then `options` and `actions`."""

from __future__ import annotations

import os
import signal
from typing import Any, NoReturn

EXIT_INTERRUPTED = 130
SIGNALS = (signal.SIGINT, signal.SIGTERM)

__all__ = ["main"]


def main() -> None:
    """The entry point of the command.

    The imports of a command take seconds. An interrupt during them ends the process at once: a KeyboardInterrupt in the
    middle of an import would print a traceback, and there is nothing to clean up yet. `app.Guarded` takes over when the
    command begins.
    """
    _on_interrupt(_end_at_once)
    from paceline.cli.app import main as run

    try:
        run()
    finally:
        _on_interrupt(signal.SIG_IGN)  # the command is done: nothing is left to interrupt


def _on_interrupt(handler: Any) -> None:
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as in a shell's background job
            signal.signal(number, handler)


def _end_at_once(*_: Any) -> NoReturn:
    os.write(2, b"interrupted\n")
    os._exit(EXIT_INTERRUPTED)
