"""Writes the pages from the JSON results: an introduction per paper, tables of claims, what is behind them, charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.algorithms.core.files import replacing
from paceline.papers.reproduce import PAPERS
from paceline.reports.blocks import Answer, Block, Claim, Column, Table
from paceline.reports.text import markdown_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from paceline.papers.reproduce import Reproduction

INTRODUCTIONS = Path(__file__).parent / "introductions"
PAGES = {"papers.md": tuple(paper for paper in PAPERS if paper != "digits"), "claims.md": ("digits",)}
"""the papers of each page; a page begins with the introduction of its name"""
ASSERTIONS = {
    "within 25 %": "within 25 %",
    "at least": "at least the published figure",
    "at most": "at most the published figure",
    "positive": "above 0",
    "negative": "below 0",
    "order": "above 1",
    "equal": "equal",
}
CLAIM_HEADERS = ("claim", "published", "ours", "interval", "holds if", "verdict")
SETTING_KEYS = ("section", "hardware", "model", "batch", "scenario", "command")
Stored = Mapping[str, Any]
"""a result as `Result.answer` returns it"""


# --- Markdown ---------------------------------------------------------------------------------------------------------


def pages(results: Sequence[Stored], charts: Mapping[str, str]) -> dict[str, str]:
    """Returns the pages as Markdown, by file name; no page for papers without results.

    Args:
        results: Results as `Result.answer` returns them.
        charts: File names of charts by the name of their claim.
    """
    written = {}
    for name, papers in PAGES.items():
        own = {paper: [result for result in results if result["paper"] == paper] for paper in papers}
        if any(own.values()):
            parts = [_introduction(name.removesuffix(".md")), _summary(own)]
            parts += [_section(paper, of_paper, charts) for paper, of_paper in own.items() if of_paper]
            written[name] = "\n".join(parts)
    return written


def _introduction(name: str) -> str:
    path = INTRODUCTIONS / f"{name}.md"
    return path.read_text(encoding="utf-8").strip() + "\n" if path.exists() else ""


def _summary(results: Mapping[str, Sequence[Stored]]) -> str:
    counted = {paper: [result["verdict"] for result in own] for paper, own in results.items() if own}
    rows = [
        [PAPERS[paper], *(str(verdicts.count(verdict)) for verdict in ("holds", "misses", "undecidable"))]
        for paper, verdicts in counted.items()
    ]
    quick = any(result["quick"] for own in results.values() for result in own)
    note = "\nSome figures are of `--quick` runs, which are short.\n" if quick else ""
    return "\n".join([*markdown_table(("paper", "holds", "misses", "undecidable"), rows), note])


def _section(paper: str, results: Sequence[Stored], charts: Mapping[str, str]) -> str:
    lines = [f"## {PAPERS[paper]}", "", *filter(None, [_introduction(paper)])]
    sources = [(source, list(own)) for source, own in groupby(results, lambda result: result["section"])]
    for source, own in sources if paper == "digits" else [("", results)]:
        lines += [f"### {source}", ""] * bool(source)
        lines += [*markdown_table(CLAIM_HEADERS, _rows(own)), "", *_behind(own), ""]
    for result in results:
        if result["name"] in charts:
            lines += [f"![{result['name']}]({charts[result['name']]})", ""]
    if any(result["scenario"] for result in results):
        lines += [
            "Section, hardware, model and batch, and the command that computes ours:",
            "",
            *_settings(results),
            "",
        ]
    given = {row["name"]: row for result in results for row in result["inputs"]}
    if given:
        lines += [
            "Inputs:",
            "",
            *markdown_table(("input", "value", "plausible range", "provenance"), map(_input, given.values())),
        ]
    return "\n".join([*lines, ""])


def _rows(results: Sequence[Stored]) -> list[list[str]]:
    """Returns the rows of claims, with … for words that the claim above has."""
    rows, said = [], ""
    for result in results:
        words, _, details = result["claim"].partition(": ")
        rows.append(claim_row(result, f"… {details}" if details and words == said else result["claim"]))
        said = words
    return rows


def claim_row(result: Stored, sentence: str) -> list[str]:
    """Returns the cells of a claim under `CLAIM_HEADERS`."""
    sentence = f"**{result['name']}**: {sentence}"
    return [sentence, *figure_cells(result), ASSERTIONS[result["holds_if"]], f"**{result['verdict']}**"]


def figure_cells(result: Stored) -> tuple[str, str, str]:
    """Returns the published figure, ours and its interval."""
    unit = f" {result['unit']}" if result["unit"] else ""
    published = "" if result["published"] is None else f"{number(result['published'])}{unit}"
    interval = f"{number(result['low'])} to {number(result['high'])}" if result["low"] != result["high"] else ""
    ours = f"{number(result['predicted'])}{unit}" + (", measured" if result["measured"] else "")
    return published, ours, interval


def _behind(results: Sequence[Stored]) -> list[str]:
    """Returns a bullet for each reason with details, with the names of the claims that have it."""
    names: dict[tuple[str, str], list[str]] = {}
    for result in results:
        text = " ".join(filter(None, [result["reason"], *result["details"]]))
        if text:
            names.setdefault((result["verdict"], text), []).append(result["name"])
    return [f"- {_bold(claims)} ({verdict}): {text}" for (verdict, text), claims in names.items()]


def _settings(results: Sequence[Stored]) -> list[str]:
    """Returns the settings in which claims are computed, with the names of the claims of each."""
    names: dict[tuple[str, ...], list[str]] = {}
    for result in results:
        command = result["command"].replace(result["name"], "NAME")
        setting = *(result[key] for key in SETTING_KEYS[:-1]), command
        names.setdefault(setting, []).append(result["name"])
    rows = [
        [_listed(claims), *setting[:-2], f"`{setting[-2]}`" if setting[-2] else "", f"`{setting[-1]}`"]
        for setting, claims in names.items()
    ]
    return markdown_table(("claims", *SETTING_KEYS), rows)


def _bold(names: Sequence[str]) -> str:
    return ", ".join(f"**{name}**" for name in names)


def _listed(names: Sequence[str]) -> str:
    """Returns names without the paper's name in all but the first."""
    prefix = f"{names[0].partition('-')[0]}-"
    return ", ".join([names[0], *(f"…-{name.removeprefix(prefix)}" for name in names[1:])])


def _input(given: Stored) -> list[str]:
    span = f"{given['low']} to {given['high']}" if given["low"] else ""
    return [given["name"], given["value"], span, given["provenance"]]


def number(value: float) -> str:
    """Formats a figure with three significant digits, or as a whole number from 100 on.

    >>> number(43.75), number(0.0012345), number(1605.0), number(-2.0), number(0.0)
    ('43.8', '0.00123', '1605', '−2', '0')
    """
    text = f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return text.replace("-", "−")


# --- the terminal -----------------------------------------------------------------------------------------------------


def answer_of_reproduction(reproduction: Reproduction) -> Answer:
    """Returns the answer of `paceline reproduce`: one table for each paper, and the reasons of verdicts but "holds".

    Args:
        reproduction: The computed claims.
    """
    blocks: list[Block] = []
    columns = [Column(header) for header in CLAIM_HEADERS]
    for paper, title in PAPERS.items():
        results = [result.answer() for result in reproduction.results if result.claim.paper == paper]
        if results:
            rows = [
                (result["name"], *figure_cells(result), ASSERTIONS[result["holds_if"]], result["verdict"])
                for result in results
            ]
            blocks.append(Table(title, columns, rows))
            blocks += [Claim(f"{result['name']}: {result['reason']}") for result in results if result["reason"]]
    return Answer("Published claims", blocks, reproduction.answer)


# --- charts -----------------------------------------------------------------------------------------------------------


def save_charts(results: Sequence[Stored], folder: Path) -> dict[str, str]:
    """Writes a PNG file for each result with a curve.

    Args:
        results: Results as `Result.answer` returns them.
        folder: An existing folder.

    Returns:
        The file names by the name of the claim.
    """
    names = {result["name"]: f"papers-{result['name']}.png" for result in results if result["curve"] is not None}
    for result in results:
        if result["name"] in names:
            # without the version of matplotlib, so that equal charts are equal files
            with replacing(folder / names[result["name"]]) as hidden:
                _chart(result["curve"]).savefig(hidden, metadata={"Software": None})
    return names


def _chart(curve: Stored) -> Figure:
    """Draws a `Curve`, with the published figure as a dashed line."""
    from matplotlib.figure import Figure

    from paceline.reports.palette import FAINT, INK, PALETTE

    figure = Figure(figsize=(6.4, 3.6), dpi=120, layout="constrained")
    axes = figure.subplots()
    for line, (name, points) in enumerate(curve["lines"].items()):
        xs, ys = zip(*points, strict=True)
        axes.plot(xs, ys, marker="o", markersize=4, color=PALETTE[line % len(PALETTE)], label=name)
    if curve["published"] is not None:
        axes.axhline(curve["published"], color=FAINT, linestyle="--", label="published")
    low, *_, high = sorted(x for points in curve["lines"].values() for x, _ in points)
    if curve["log_x"] and high >= 4 * low:  # a shorter axis would have fewer than two powers of 2 to read it by
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:g}")
    if curve["log_y"]:
        axes.set_yscale("log")
    axes.set_xlabel(curve["x"], color=INK)
    axes.set_ylabel(curve["y"], color=INK)
    axes.legend(frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    return figure
