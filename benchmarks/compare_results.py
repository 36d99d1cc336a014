"""Compares two files of `run_all.py` or two of `paceline validate`, figure by figure.

    python benchmarks/compare_results.py before.json after.json
    python benchmarks/compare_results.py before/validation.json after/validation.json --factor 1.01
    python benchmarks/compare_results.py before.json after.json --factor 1.5     # only larger changes
    python benchmarks/compare_results.py before.json after.json --only scale --all

A figure is a number anywhere in the JSON document of a benchmark; its name is its path. The table has the figures whose
ratio after / before is at least --factor or at most 1 / --factor, the largest change first. Figures, benchmarks and
versions that only one file has are listed below it. Times are comparable only between runs on the same idle machine:
the command says if the machines differ or other programs used more than a tenth of the processor time.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from math import copysign, inf, isfinite, log
from pathlib import Path
from typing import Any

from common.harness import Answer, run_command, table
from paceline.algorithms.core.errors import InputError

BUSY = 0.1
"""share of other programs from which the comparison says that the machine was busy"""


@dataclass(frozen=True, slots=True)
class Change:
    """One figure in both files."""

    name: str
    before: float
    after: float

    @property
    def ratio(self) -> float:
        """after / before; infinity if only the figure before is 0."""
        if self.before == self.after:
            return 1.0
        if self.before == 0.0:
            return copysign(inf, self.after)
        return self.after / self.before

    @property
    def size(self) -> float:
        """|log(ratio)|: the same for half and double; infinity for a ratio of 0 or less."""
        return abs(log(self.ratio)) if 0.0 < self.ratio < inf else inf


def figures(value: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """Yields the numbers of a JSON value with their paths.

    A row of a list is named by its first text, because rows may be added in other places, otherwise by its number.

    >>> list(figures({"rows": [{"case": "ring", "s": 2.0}], "ok": True}))
    [('rows.ring.s', 2.0)]
    """
    if isinstance(value, bool):
        return
    if isinstance(value, int | float):
        if isfinite(value):
            yield path, float(value)
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from figures(part, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        names = [_name(part, number) for number, part in enumerate(value)]
        unique = len(set(names)) == len(names)
        for number, (name, part) in enumerate(zip(names, value, strict=True)):
            yield from figures(part, f"{path}.{name if unique else number}")


def _name(row: Any, number: int) -> str:
    texts = [part for part in row.values() if isinstance(part, str)] if isinstance(row, dict) else []
    return texts[0] if texts else str(number)


def compared(before: dict[str, Any], after: dict[str, Any]) -> tuple[list[Change], list[str], list[str]]:
    """Compares two documents of `run_all.py`.

    Args:
        before: the older document.
        after: the newer one.

    Returns:
        The figures in both, the largest change first; the names of those only before; and of those only after.
    """
    old, new = (dict(_all_figures(document)) for document in (before, after))
    changes = [Change(name, old[name], new[name]) for name in old if name in new]
    return (
        sorted(changes, key=lambda change: -change.size),
        [name for name in old if name not in new],
        [name for name in new if name not in old],
    )


def _all_figures(document: dict[str, Any]) -> Iterator[tuple[str, float]]:
    for command, outcome in document["results"].items():
        if "figures" in outcome:
            yield f"{command}: seconds of the command", outcome["seconds"]
            yield from ((f"{command}: {name}", value) for name, value in figures(outcome["figures"]))


def cautions(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    """Yields what makes the two documents hard to compare."""
    for part in ("machine", "versions"):
        keys = [key for key in before[part] if before[part][key] != after[part].get(key)]
        for key in keys:
            yield f"{part}: {key} was {before[part][key]}, now {after[part].get(key, 'missing')}"
    for when, document in (("before", before), ("after", after)):
        busy = [name for name, outcome in document["results"].items() if outcome.get("other_load", 0.0) > BUSY]
        if busy:
            yield f"{when}: other programs used more than {BUSY:.0%} of the processor time during {', '.join(busy)}"
        for name, outcome in document["results"].items():
            if (reason := outcome.get("failed") or outcome.get("skipped")) is not None:
                yield f"{when}: {name} has no figures: {reason.splitlines()[0]}"


def body(options: argparse.Namespace) -> Answer:
    before, after = (_read(path) for path in (options.before, options.after))
    changes, gone, added = compared(before, after)
    chosen = [change for change in changes if options.only is None or change.name.startswith(f"{options.only}:")]
    rows = [
        {"figure": change.name, "before": change.before, "after": change.after, "ratio": change.ratio}
        for change in chosen
        if options.all or change.size >= log(options.factor)
    ]
    cells = {"figure": "figure", "before": "before:.5g", "after": "after:.5g", "after / before": "ratio:.3g"}
    rule = "" if options.all else f": those that changed by a factor of {options.factor:g} or more"
    shown = [*cautions(before, after), *([table("", rows, cells)] if rows else [])]
    shown.append(f"{len(rows)} of {len(chosen)} figures are shown{rule}.")
    for title, names in (("only before", gone), ("only after", added)):
        if names:
            shown.append(f"{title}: {len(names)} figures, such as {', '.join(names[:3])}")
    finite = [row for row in rows if isfinite(row["ratio"])]
    return Answer({"changes": finite, "only_before": gone, "only_after": added}, shown)


def _read(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if {"quick", "sets"} <= document.keys():
            figures = {"sets": document["sets"]}
            return {"machine": {}, "versions": {}, "results": {"validate": {"figures": figures, "seconds": 0.0}}}
        if {"machine", "versions", "results"} <= document.keys():
            return dict(document)
        reason = "it has no keys machine, versions and results"
    except (OSError, ValueError, AttributeError) as error:
        reason = str(error)
    raise InputError(f"{path}: no file of benchmarks/run_all.py or paceline validate: {reason}")


def _factor(text: str) -> float:
    value = float(text)
    if value < 1.0:
        raise argparse.ArgumentTypeError(f"{text} is below 1; a factor of 1.2 shows changes of 20 % and more")
    return value


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("before", type=Path, help="the older file")
    parser.add_argument("after", type=Path, help="the newer file")
    parser.add_argument("--factor", type=_factor, default=1.2, help="smallest change that is shown (default: 1.2)")
    parser.add_argument("--only", metavar="NAME", help="only the figures of this benchmark")
    parser.add_argument("--all", action="store_true", help="also figures that did not change")


if __name__ == "__main__":
    sys.exit(run_command(__doc__, body, add_options))
