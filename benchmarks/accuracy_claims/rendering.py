"""Renders tested claims as JSON, as terminal tables and as Markdown. All figures come from `verdicts.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from accuracy_claims.settings import Contender
from accuracy_claims.verdicts import Side, Tested
from paceline.algorithms.core.errors import InputError

BEGIN, END = "<!-- results: written by benchmarks/claims.py -->", "<!-- end of results -->"
HEADERS = ("claim", "where", "ours against theirs", "figure", "ours", "theirs", "difference, 95 % interval", "verdict")
ALIKE = 0.02
"""speeds with a smaller difference are called equal; provenance: ours"""
UNLIKE = 0.1
"""difference of the nodes' mean staleness, relative to the mean, below which it is not mentioned; provenance: ours"""


def answer(found: Tested) -> dict[str, Any]:
    """Returns a claim and its result as plain values."""
    claim = found.claim
    return asdict(found) | {
        "claim": claim.name,
        "paper": claim.paper,
        "words": claim.words,
        "tag": claim.tag,
        "setting": claim.ours.setting.name,
        "methods": [_entered(one) for one in (claim.ours, claim.theirs)],
        "figure": claim.figure,
        "direction": claim.direction,
        "common": [
            {"learning_rate": rate, **asdict(less), "verdict": words}
            for rate, (less, words) in sorted(found.common.items())
        ],
        "why": reasons(found),
    }


def _entered(one: Contender) -> dict[str, Any]:
    return {"method": one.method, "options": dict(one.options), "setting": one.setting.name, "scale": one.scale}


def row(found: Tested) -> tuple[str, ...]:
    """Returns the cells under `HEADERS`."""
    claim, show = found.claim, shown(found)
    places = dict.fromkeys((claim.ours.setting.name, claim.theirs.setting.name))
    less = found.difference
    relative = "" if less.relative is None else f" ({signed(less.relative, '.0%')})"
    interval = f"{signed(less.mean, show)}{relative}, {signed(less.low, show)} to {signed(less.high, show)}"
    sides = [_cell(found, side, one) for side, one in ((found.ours, claim.ours), (found.theirs, claim.theirs))]
    labels = f"{claim.ours.label} against {claim.theirs.label}"
    figure = _figure(found)
    return claim.name, " and ".join(places), labels, figure, *sides, interval, found.verdict


def _figure(found: Tested) -> str:
    claim = found.claim
    units = {"time": "ms", "accuracy": "%"}
    if claim.figure == "time" and claim.ours.setting.seconds is None:
        units = {"time": "samples"}
    unit = units.get(claim.figure)
    return f"{claim.figure}{f', {unit}' if unit else ''}: {claim.direction}"


def shown(found: Tested) -> str:
    """Returns the format of a figure of the claim."""
    return {"loss": ".4f", "distance": ".4f", "accuracy": ".2f", "time": ".0f", "largest rate": ".2f"}[
        found.claim.figure
    ]


def signed(number: float, form: str) -> str:
    """Formats a number with its sign, using a real minus sign.

    >>> signed(-0.25, ".0%"), signed(0.5, ".1f")
    ('−25%', '+0.5')
    """
    return format(number, "+" + form).replace("-", "−")


def _cell(found: Tested, side: Side, contender: Contender) -> str:
    """Formats the mean, its learning rate, and how many runs reached the target if not all did."""
    text = format(side.mean, shown(found))
    if side.rate is not None:
        text += f" at {side.rate * contender.scale:.4g}"
    return text + ("*" if side.at_edge else "") + (f", {side.reached} reached it" if _short(found, side) else "")


def _short(found: Tested, side: Side) -> bool:
    return found.claim.figure == "time" and side.reached < found.seeds


def reasons(found: Tested) -> list[str]:
    """Describes in sentences what was measured beside the figure."""
    said = [words for words in [cause(found)] if words is not None]
    if found.equal_samples is not None:
        said += [_speed(found), _learned(found)]
    ours, theirs = found.ours, found.theirs
    stale = f"Staleness, as each counts it: {ours.staleness:.1f} and {theirs.staleness:.1f}"
    if any(abs(side.staleness_of_ranks - side.staleness) > UNLIKE * side.staleness for side in (ours, theirs)):
        stale += f"; mean of the nodes' means {ours.staleness_of_ranks:.1f} and {theirs.staleness_of_ranks:.1f}"
    said.append(f"{stale}.")
    for rate, (less, words) in sorted(found.common.items()):
        relative = "" if less.relative is None else f" ({signed(less.relative, '.0%')})"
        said.append(f"Both at {rate:.4g}: {words}{relative}.")
    if found.favours is not None:
        said.append("Better at {} of the {} common rates at which one learns.".format(*found.favours))
    return said


def _speed(found: Tested) -> str:
    times = found.ours.samples_per_s / found.theirs.samples_per_s
    if abs(times - 1) < ALIKE:
        return "As many samples per second as theirs."
    return f"{times:.2f} times their samples per second."


def _learned(found: Tested) -> str:
    less = found.equal_samples
    assert less is not None
    if less.low <= 0 <= less.high:
        return "After equal samples the losses are not told apart."
    relative = "" if less.relative is None else f" by {abs(less.relative):.0%}"
    return f"After equal samples its loss is {'higher' if less.mean > 0 else 'lower'}{relative}."


def cause(found: Tested) -> str | None:
    """Tells whether a method lost through its speed or through what it learns per sample; None if neither shows.

    A run that ends after a number of samples does not show speed.
    """
    less = found.equal_samples
    if found.verdict != "does not hold" or less is None:
        return None
    slower = found.claim.ours.setting.samples is None and (
        found.ours.samples_per_s < (1 - ALIKE) * found.theirs.samples_per_s
    )
    causes = ["it is slower"] * slower + ["it learns less from a sample"] * (less.low > 0)
    return f"Why: {' and '.join(causes)}." if causes else None


def tables(found: Sequence[Tested]) -> list[Table]:
    """Returns one table for each paper."""
    made = []
    for paper, some in by_paper(found).items():
        table = Table(title=paper, title_justify="left", box=box.SIMPLE_HEAD)
        for header in HEADERS[2:]:  # narrow terminals
            table.add_column(header, overflow="fold")
        for one in some:
            name, where, labels, *figures = row(one)
            table.add_row(f"{name}, {where}: {labels}", *figures)
        made.append(table)
    return made


def by_paper(found: Sequence[Tested]) -> dict[str, list[Tested]]:
    """Groups tested claims by paper, in the order of the claims."""
    papers: dict[str, list[Tested]] = {}
    for one in found:
        papers.setdefault(one.claim.paper, []).append(one)
    return papers


def markdown(found: Sequence[Tested], note: str) -> str:
    """Returns tables by paper, and the reasons where a claim does not hold.

    Args:
        found: The tested claims.
        note: The description of the seeds.
    """
    lines = [note, ""]
    for paper, some in by_paper(found).items():
        lines += [f"### {paper}", "", _line(HEADERS), _line(["---"] * len(HEADERS))]
        lines += [_line(row(one)) for one in some]
        behind = [one for one in some if one.verdict != "holds"]
        if behind:
            lines += ["", "Behind those that do not hold or are not told apart:", ""]
        lines += [f"- {_which(one)}: {' '.join(reasons(one))}" for one in behind]
        lines.append("")
    return "\n".join(lines)


def _which(found: Tested) -> str:
    name, where, against, figure, *_ = row(found)
    return f"**{name}**, {where}, {against}, {figure.partition(':')[0]}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def parts(path: Path) -> tuple[str, str]:
    """Returns the text before and after the results of a page.

    Raises:
        InputError: If the page does not exist or has no markers for results.
    """
    try:
        page = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; expected a page with the lines {BEGIN} and {END}") from None
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise InputError(f"{path}: found no place for results; expected the lines {BEGIN} and {END}")
    return before, after


def write(path: Path, text: str) -> None:
    """Writes the text between the markers of a page. Raises like `parts`."""
    before, after = parts(path)
    path.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{after}", encoding="utf-8")
