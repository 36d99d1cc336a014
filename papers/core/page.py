"""Writes the page of all papers from the JSON results: per paper an introduction, one table, details and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.papers.core.registry import PAPERS
from paceline.reports.blocks import Answer, Block, Claim, Column, Table

if TYPE_CHECKING:
    from paceline.papers.core.reproduce import Reproduction

INTRODUCTIONS = Path(__file__).parents[1] / "introductions"
HEAD = """# The papers, reproduced

This page is written by `paceline reproduce`, which computes every figure in the column "ours". Results in the same form
are in [papers.json](papers.json).

The interval of a figure of ours is over seeds and over the plausible range of every input that was not found in the
paper. The inputs were written down before any prediction was looked at (`papers/inputs/`), and none is fitted to a
claim. A claim *holds* if the whole interval agrees with what the paper asserts, *misses* if the whole interval
disagrees, and is *undecidable* otherwise. "Within 25 %" is relative to the published figure.
"""
ASSERTIONS = {
    "within 25 %": "within 25 %",
    "at least": "at least the published figure",
    "at most": "at most the published figure",
    "positive": "above 0",
    "order": "above 1",
    "equal": "equal",
}
CLAIM_HEADERS = ("claim", "published", "ours", "interval", "holds if", "verdict")


def page(results: Sequence[Mapping[str, Any]], pictures: Mapping[str, str]) -> str:
    """Returns the page as Markdown.

    Args:
        results: Results as `Result.answer` returns them.
        pictures: File names of figures by the name of their claim.
    """
    parts = [HEAD, _summary(results)]
    for paper, title in PAPERS.items():
        mine = [one for one in results if one["paper"] == paper]
        if mine:
            parts.append(_section(paper, title, mine, pictures))
    return "\n".join(parts)


def _summary(results: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for paper, title in PAPERS.items():
        mine = [one["verdict"] for one in results if one["paper"] == paper]
        if mine:
            rows.append([title, *(str(mine.count(verdict)) for verdict in ("holds", "misses", "undecidable"))])
    note = "\nSome figures are of `--quick` runs, which are short.\n" if any(one["quick"] for one in results) else ""
    return "\n".join([*table(("paper", "holds", "misses", "undecidable"), rows), note])


def _section(paper: str, title: str, results: Sequence[Mapping[str, Any]], pictures: Mapping[str, str]) -> str:
    introduction = INTRODUCTIONS / f"{paper}.md"
    lines = [f"## {title}", ""]
    if introduction.exists():
        lines += [introduction.read_text(encoding="utf-8").strip(), ""]
    lines += table(CLAIM_HEADERS, [claim_row(one) for one in results])
    lines += ["", *_behind(results), ""]
    for one in results:
        if one["name"] in pictures:
            lines += [f"![{one['name']}]({pictures[one['name']]})", ""]
    lines += ["Hardware, model and batch of each claim, and the command that computes ours:", ""]
    lines += table(
        ("claim", "section", "hardware", "model", "batch", "scenario", "command"),
        [
            [
                one["name"],
                one["section"],
                one["hardware"],
                one["model"],
                one["batch"],
                f"`{one['scenario']}`",
                f"`{one['command']}`",
            ]
            for one in results
        ],
    )
    lines += ["", "Inputs:", "", *table(("input", "value", "plausible range", "provenance"), _inputs(results)), ""]
    return "\n".join(lines)


def claim_row(one: Mapping[str, Any]) -> list[str]:
    """Returns the cells of a claim under `CLAIM_HEADERS`."""
    sentence = f"**{one['name']}**: {one['claim']}"
    return [sentence, *figure_cells(one), ASSERTIONS[one["holds_if"]], f"**{one['verdict']}**"]


def figure_cells(one: Mapping[str, Any]) -> tuple[str, str, str]:
    """Returns the published figure, ours and its interval."""
    unit = f" {one['unit']}" if one["unit"] else ""
    published = "" if one["published"] is None else f"{number(one['published'])}{unit}"
    interval = f"{number(one['low'])} to {number(one['high'])}" if one["low"] != one["high"] else ""
    ours = f"{number(one['predicted'])}{unit}" + (", measured" if one["measured"] else "")
    return published, ours, interval


def answer_of_reproduction(found: Reproduction) -> Answer:
    """Returns the answer of `paceline reproduce`: one table for each paper, and the reasons of verdicts but "holds".

    Args:
        found: the computed claims.
    """
    blocks: list[Block] = []
    columns = [Column(header) for header in ("claim", "published", "ours", "interval", "holds if", "verdict")]
    for paper, title in PAPERS.items():
        results = [result.answer() for result in found.results if result.claim.paper == paper]
        if results:
            rows = [(one["name"], *figure_cells(one), ASSERTIONS[one["holds_if"]], one["verdict"]) for one in results]
            blocks.append(Table(title, columns, rows))
            blocks += [Claim(f"{one['name']}: {one['reason']}") for one in results if one["reason"]]
    return Answer("Published claims", blocks, found.answer)


def _behind(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns a bullet for each claim that has a reason or details."""
    lines = []
    for one in results:
        texts = [one["reason"]] * bool(one["reason"]) + list(one["details"])
        if texts:
            lines.append(f"- **{one['name']}** ({one['verdict']}): {' '.join(texts)}")
    return lines


def _inputs(results: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    every = {given["name"]: given for one in results for given in one["inputs"]}
    return [
        [name, given["value"], f"{given['low']} to {given['high']}" if given["low"] else "", given["provenance"]]
        for name, given in every.items()
    ]


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns the lines of a Markdown table.

    >>> table(("a", "b"), [["1", "x|y"]])
    ['| a | b |', '| --- | --- |', '| 1 | x\\\\|y |']
    """
    cells = [headers, ["---"] * len(headers), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return [f"| {' | '.join(row)} |" for row in cells]


def number(value: float) -> str:
    """Formats a figure with three significant digits, or as a whole number from 100 on.

    >>> number(43.75), number(0.0012345), number(1605.0), number(-2.0), number(0.0)
    ('43.8', '0.00123', '1605', '−2', '0')
    """
    text = f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return text.replace("-", "−")
