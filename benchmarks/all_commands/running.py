"""Runs commands one after the other, each with a limit of time, and keeps the JSON document that each prints."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from all_commands.short_forms import ShortForm
from paceline.records.machine import OtherLoad

FOLDER = Path(__file__).resolve().parents[1]
LAST_LINES = 5
"""lines of the standard error of a failed command that are kept"""


class Outcome(TypedDict):
    """The result of one command."""

    command: str
    seconds: NotRequired[float]
    exit: NotRequired[int]
    """1 means for most commands that a figure missed its limit; the figures are there nevertheless"""
    other_load: NotRequired[float]
    """share of all cores that other programs used meanwhile"""
    figures: NotRequired[Any]
    """the JSON document that the command printed"""
    skipped: NotRequired[str]
    failed: NotRequired[str]


def run(form: ShortForm) -> Outcome:
    """Runs the short form of one benchmark.

    Args:
        form: the command and its arguments.

    Returns:
        Its figures; or why it was skipped or failed.
    """
    shown = " ".join([f"benchmarks/{form.command}.py", *form.arguments])
    if (reason := form.missing()) is not None:
        return Outcome(command=shown, skipped=reason)
    command = [sys.executable, str(FOLDER / f"{form.command}.py"), *form.arguments, "--json"]
    start_s = time.monotonic()
    with OtherLoad() as other:
        code, out, errors = _finished(command, form.limit_s)
    outcome = Outcome(
        command=shown, seconds=round(time.monotonic() - start_s, 2), exit=code, other_load=round(other.share, 3)
    )
    try:
        outcome["figures"] = json.loads(out)
    except json.JSONDecodeError:
        late = f"stopped after {form.limit_s:g} s; " if code == -signal.SIGKILL else ""
        last = "\n".join(errors.strip().splitlines()[-LAST_LINES:])
        outcome["failed"] = f"{late}no JSON document; its last lines: {last or 'none'}"
    return outcome


def _finished(command: list[str], limit_s: float) -> tuple[int, str, str]:
    """Returns exit status, standard output and standard error; kills the command with its children at the limit."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=FOLDER.parent, start_new_session=True
    )
    try:
        out, errors = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, errors = process.communicate()
    except BaseException:  # Ctrl-C: no child may outlive this command
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    return process.returncode, out, errors
