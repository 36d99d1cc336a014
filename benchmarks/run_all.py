"""Runs every benchmark in a short form, and writes all figures with machine and versions into one JSON file.

    python benchmarks/run_all.py                           # `make bench`; about a quarter of an hour
    python benchmarks/run_all.py --only simulator,collectives
    python benchmarks/run_all.py --out before.json         # later: benchmarks/compare_results.py before.json after.json

The file is written anew after each command, so Ctrl-C keeps what is complete. A command that this machine cannot run,
for example because it needs root, is listed as skipped with the reason. The exit status is 1 if a command failed to
give figures. The short forms show changes of a factor, not of per cents; the figures in docs/results come from the
long forms.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from common.commands import SHORT_FORMS, ShortForm
from common.harness import Answer, names_of, run_command, say
from paceline.records.document import to_json
from paceline.records.machine import OtherLoad, machine_facts, package_versions

FOLDER = Path(__file__).parent.resolve()
FORMS = {form.command: form for form in SHORT_FORMS}
LAST_LINES = 5
"""lines of the standard error of a failed command that are kept"""


def outcome_of(form: ShortForm) -> dict[str, Any]:
    """Runs a short form. Returns its figures, or why it was skipped or failed.

    An exit status of 1 means for most commands that a figure missed its limit; the figures are there nevertheless.
    """
    shown = {"command": " ".join([f"benchmarks/{form.command}.py", *form.arguments])}
    if (reason := form.missing()) is not None:
        return {**shown, "skipped": reason}
    start_s = time.monotonic()
    with OtherLoad() as other:
        code, out, errors = finished([sys.executable, f"{FOLDER / form.command}.py", *form.arguments, "--json"], form)
    outcome = {**shown, "seconds": round(time.monotonic() - start_s, 2), "exit": code, "other_load": other.share}
    try:
        figures = json.loads(out)
    except json.JSONDecodeError:
        late = f"stopped after {form.limit_s:g} s; " if code == -signal.SIGKILL else ""
        last = "\n".join(errors.strip().splitlines()[-LAST_LINES:])
        return {**outcome, "failed": f"{late}no JSON document; its last lines: {last or 'none'}"}
    if isinstance(figures, dict):
        figures = {key: value for key, value in figures.items() if key not in ("machine", "versions")}
    return {**outcome, "figures": figures}


def finished(command: list[str], form: ShortForm) -> tuple[int, str, str]:
    """Returns exit status, standard output and standard error; kills the command with its children at the limit."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=FOLDER.parent, start_new_session=True
    )
    try:
        out, errors = process.communicate(timeout=form.limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, errors = process.communicate()
    except BaseException:  # Ctrl-C: no child may outlive this command
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    return process.returncode, out, errors


def body(options: argparse.Namespace) -> Answer:
    out = options.out or Path("bench.json")
    document = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine_facts(),
        "versions": package_versions(),
        "results": (results := dict[str, dict[str, Any]]()),
    }
    for number, name in enumerate(options.only, 1):
        say(f"[{number}/{len(options.only)}] {name} …")
        results[name] = outcome = outcome_of(FORMS[name])
        say(f"    {_line(outcome)}")
        building = out.with_name(f".{out.name}.new")  # so that Ctrl-C leaves either the old or the new document
        building.write_text(to_json(document) + "\n", encoding="utf-8")
        building.replace(out)
    given = sum("figures" in outcome for outcome in results.values())
    failed = any("failed" in outcome for outcome in results.values())
    return Answer(document, [f"{given} of {len(results)} benchmarks gave figures: {out}"], not failed)


def _line(outcome: dict[str, Any]) -> str:
    if "skipped" in outcome:
        return f"skipped: {outcome['skipped']}"
    seconds = f"{outcome['seconds']:.0f} s"
    if "failed" in outcome:
        return f"failed after {seconds}: {outcome['failed']}"
    return f"{seconds}, exit status {outcome['exit']}, other programs {outcome['other_load']:.0%}"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", type=names_of(FORMS), default=list(FORMS), metavar="A,B,…", help="default: all")


if __name__ == "__main__":
    sys.exit(run_command(__doc__, body, add_options))
