"""Runs every benchmark in a short form, and writes all figures with machine and versions into one JSON file.

    python benchmarks/run_all.py                           # `make bench`; about a quarter of an hour
    python benchmarks/run_all.py --only scale,collectives
    python benchmarks/run_all.py --out before.json         # later: benchmarks/compare_results.py before.json after.json

The file is written anew after each command, so Ctrl-C keeps what is complete. A command that this machine cannot run,
for example because it needs root, is listed as skipped with the reason. The exit status is 1 if a command failed to
give figures. The short forms show changes of a factor, not of per cents; the figures in docs/results come from the
long forms.
"""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from all_commands.running import Outcome, run
from all_commands.short_forms import SHORT_FORMS, ShortForm
from paceline.records.document import to_json
from paceline.records.machine import machine_facts, package_versions


def main() -> None:
    options = _options()
    console = Console(stderr=True)
    results: dict[str, Outcome] = {}
    try:
        for number, form in enumerate(options.only, 1):
            console.print(f"[{number}/{len(options.only)}] {form.command} …".replace("[", r"\[", 1))
            results[form.command] = outcome = run(form)
            console.print(f"    {_told(outcome)}", highlight=False, markup=False)
            _write(options.out, _document(results))
    except KeyboardInterrupt:
        console.print(f"stopped; {options.out} has the {len(results)} benchmarks that are complete")
        sys.exit(130)
    failed = [name for name, outcome in results.items() if "failed" in outcome]
    skipped = sum("skipped" in outcome for outcome in results.values())
    if options.json:
        print(to_json(_document(results)))
    console.print(f"{len(results) - len(failed) - skipped} of {len(results)} benchmarks gave figures: {options.out}")
    sys.exit(1 if failed else 0)


def _told(outcome: Outcome) -> str:
    """Returns one line about the outcome of a command."""
    if "skipped" in outcome:
        return f"skipped: {outcome['skipped']}"
    seconds = f"{outcome['seconds']:.0f} s"
    if "failed" in outcome:
        return f"failed after {seconds}: {outcome['failed']}"
    return f"{seconds}, exit status {outcome['exit']}, other programs {outcome['other_load']:.0%}"


def _write(path: Path, document: dict[str, Any]) -> None:
    """Replaces the file at once, so that Ctrl-C leaves either the old or the new document."""
    building = path.with_name(f".{path.name}.new")
    building.write_text(to_json(document) + "\n", encoding="utf-8")
    building.replace(path)


def _document(results: dict[str, Outcome]) -> dict[str, Any]:
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine_facts(),
        "versions": package_versions(),
        "results": results,
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", type=_chosen, default=SHORT_FORMS, help="names with commas between them; default: all"
    )
    parser.add_argument("--out", type=Path, default=Path("bench.json"), help="the JSON file (default: bench.json)")
    parser.add_argument("--json", action="store_true", help="also print the document on standard output")
    options = parser.parse_args()
    if not options.out.resolve().parent.is_dir():
        parser.error(f"--out: there is no folder {options.out.resolve().parent}")
    return options


def _chosen(names: str) -> tuple[ShortForm, ...]:
    forms = {form.command: form for form in SHORT_FORMS}
    if unknown := [name for name in names.split(",") if name not in forms]:
        raise argparse.ArgumentTypeError(f"unknown {', '.join(unknown)}; there are {', '.join(forms)}")
    return tuple(forms[name] for name in names.split(","))


if __name__ == "__main__":
    main()
