"""Writes a page for each paper from the JSON results: its introduction, claims with figures and reasons, inputs.

The published figures stand beside ours, published curves below ours; a table shows ours with each input changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from paceline.algorithms.core.files import replacing
from paceline.papers.reproduce import PAPERS, every_claim
from paceline.papers.verdicts import BY_INPUT, DECIDES, asserted
from paceline.reports.blocks import Answer, Block, Claim, Column, Table
from paceline.reports.text import markdown_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from paceline.papers.reproduce import Reproduction

INTRODUCTIONS = Path(__file__).parent / "introductions"
PAGES = {paper: "claims.md" if paper == "digits" else f"paper-{paper}.md" for paper in PAPERS}
"""the page of each paper; it begins with the introduction of its short name"""
SUMMARY = "papers.md"
NOT_COMPUTED = "No claim of this paper was computed since it was last changed; `paceline reproduce {}` computes them.\n"
VERDICTS = ("holds", "misses", "undecidable")
KINDS = ("headline", "supporting", "identity")
ASSERTIONS = {
    "within 25 %": "within 25 %",
    "at least": "at least the published figure",
    "at most": "at most the published figure",
    "positive": "above 0",
    "negative": "below 0",
    "order": "above 1",
    "equal": "equal",
}
COLUMNS = 5
"""claims beside each other in a table of figures by input"""
CLAIM_HEADERS = ("claim", "published", "ours", "95 % interval", "holds if", "agrees", "verdict")
SETTING_KEYS = ("section", "hardware", "model", "batch", "scenario", "command")
Stored = Mapping[str, Any]
"""a result as in the JSON answer"""


# --- Markdown ---------------------------------------------------------------------------------------------------------


def pages(results: Sequence[Stored], charts: Mapping[str, str], inferred: Mapping[str, Any]) -> dict[str, str]:
    """Returns the pages as Markdown, by file name: a summary, and a page for each paper; none without results.

    Args:
        results: Results as in the JSON answer.
        charts: File names of charts by the name of their claim.
        inferred: The stored answers of `--infer`, by paper.
    """
    by_paper = {paper: [result for result in results if result["paper"] == paper] for paper in PAPERS}
    by_paper = {paper: own for paper, own in by_paper.items() if own}
    if not by_paper:
        return {}
    written = {SUMMARY: "\n".join([_introduction("papers"), *_summary(by_paper)])}
    for paper in dict.fromkeys(claim.paper for claim in every_claim().values()):
        own = by_paper.get(paper)
        parts = [NOT_COMPUTED.format(paper)] if own is None else _section(own, charts)
        parts += _inferences(inferred.get(paper, {}))
        written[PAGES[paper]] = "\n".join([f"# {PAPERS[paper]}\n", _introduction(paper), *parts])
    return written


def _introduction(name: str) -> str:
    path = INTRODUCTIONS / f"{name}.md"
    return path.read_text(encoding="utf-8").strip() + "\n" if path.exists() else ""


def _summary(results: Mapping[str, Sequence[Stored]]) -> list[str]:
    headers = ("paper", *(f"{kind}: {verdict}" for kind in KINDS[:2] for verdict in VERDICTS), "identities that hold")
    rows = []
    for paper, own in results.items():
        count = Counter((result["kind"], result["verdict"]) for result in own)
        known = sum(count["identity", verdict] for verdict in VERDICTS)
        cells = [str(count[kind, verdict]) for kind in KINDS[:2] for verdict in VERDICTS]
        rows.append([f"[{PAPERS[paper]}]({PAGES[paper]})", *cells, f"{count['identity', 'holds']} of {known}"])
    every = [result for own in results.values() for result in own]
    lines = [*markdown_table(headers, rows), ""]
    if any(result["quick"] for result in every):
        lines += ["Some figures are of `--quick` runs, which are short.", ""]
    computed = {result["name"] for result in every}
    if missing := [f"`{name}`" for name in every_claim() if name not in computed]:
        lines += [f"Not computed since the claims were last changed: {', '.join(missing)}.", ""]
    headlines = [result for result in every if result["kind"] == "headline"]
    return [*lines, "## Headlines", "", *claims_table(headlines), ""] if headlines else lines


def _section(results: Sequence[Stored], charts: Mapping[str, str]) -> list[str]:
    lines: list[str] = []
    if results[0]["paper"] == "digits":
        groups = [(source, list(own)) for source, own in groupby(results, lambda result: result["section"])]
    else:
        titles = {"headline": "Headlines", "supporting": "Supporting claims", "identity": "Identities"}
        groups = [(titles[kind], [result for result in results if result["kind"] == kind]) for kind in KINDS]
    for title, own in groups:
        if own:
            shown = [f"![{result['name']}]({charts[result['name']]})" for result in own if result["name"] in charts]
            pictures = [line for picture in shown for line in (picture, "")]
            lines += [f"## {title}", "", *claims_table(own), "", *pictures, *_behind(own), ""]
    lines += _by_input(results)
    if any(result["scenario"] for result in results):
        lines += ["## How ours is computed", "", *_settings(results), ""]
    given = {row["name"]: row for result in results for row in result["inputs"]}
    if given:
        rows = [[*_input(row), _effects(row["name"], results)] for row in given.values()]
        headers = ("input", "value", "plausible range", "provenance", "share that agrees, by value")
        lines += ["## Inputs", "", *markdown_table(headers, rows), ""]
    return lines


def claims_table(results: Sequence[Stored]) -> list[str]:
    """Returns the lines of a table of claims with their figures and verdicts.

    Args:
        results: Results as in the JSON answer.
    """
    return markdown_table(CLAIM_HEADERS, _rows(results))


def _by_input(results: Sequence[Stored]) -> list[str]:
    """Returns the section with our mean figures for each changed input; claims with equal inputs share a table."""
    groups: dict[tuple[tuple[str, str], ...], list[Stored]] = {}
    for result in results:
        alone = tuple(next(iter(case["changed"].items())) for case in result["cases"] if len(case["changed"]) == 1)
        if alone:
            groups.setdefault(alone, []).append(result)
    if not groups:
        return []
    words = "With the most plausible inputs, and with one input changed; a figure that agrees with the paper is bold."
    lines = ["## Ours by input", "", words, ""]
    for changes, own in groups.items():
        for start in range(0, len(own), COLUMNS):
            columns = own[start : start + COLUMNS]
            first = ["", "most plausible", *(_agreeing(result["predicted"], result) for result in columns)]
            rows = [
                [*change, *(_agreeing(_mean_with(change, result), result) for result in columns)] for change in changes
            ]
            headers = ("input", "value", *(_heading(result) for result in columns))
            lines += [*markdown_table(headers, [first, *rows]), ""]
    return lines


def _mean_with(change: tuple[str, str], result: Stored) -> float:
    """Returns the mean figure of a claim with one changed input."""
    return next(fmean(case["figures"]) for case in result["cases"] if case["changed"] == dict([change]))


def _agreeing(figure: float, result: Stored) -> str:
    """Returns a figure, bold if it is one with which the paper's assertion is true."""
    least, most = asserted(result["published"], result["holds_if"])
    return f"**{number(figure)}**" if least <= figure <= most else number(figure)


def _heading(result: Stored) -> str:
    """Returns the name of a claim without that of its paper, with its unit."""
    name = result["name"].removeprefix(f"{result['paper']}-")
    return f"{name}, {result['unit']}" if result["unit"] else name


def _effects(name: str, results: Sequence[Stored]) -> str:
    """Returns the share of the claims that depends most on an input, by its value."""
    spans = {
        result["name"]: max(result["shares"][name].values()) - min(result["shares"][name].values())
        for result in results
        if name in result["shares"]
    }
    claim = max(spans, key=spans.__getitem__, default="")
    if not claim:
        return ""
    if spans[claim] < DECIDES:
        return "changes no verdict"
    (shares,) = (result["shares"][name] for result in results if result["name"] == claim)
    return f"{claim}: " + ", ".join(f"{share:.0%} with {value}" for value, share in shares.items())


def _inferences(inferred: Stored) -> list[str]:
    """Returns the section on inputs that make the published figures true."""
    lines: list[str] = []
    for table in inferred.get("inferences", ()):
        inputs = [[row["name"], row["plausible"], f"{row['low']} to {row['high']}", row["inferred"]]
                  for row in table["inputs"]]  # fmt: skip
        keys = ("published", "plausible", "inferred")
        figures = [[row["name"], *(f"{number(row[key])} {row['unit']}" for key in keys)] for row in table["figures"]]
        lines += [
            table["sentence"],
            "",
            *markdown_table(("input", "most plausible", "range", "inferred"), inputs),
            "",
            *markdown_table(("claim", "published", "most plausible inputs", "inferred inputs"), figures),
            "",
        ]
    if not lines:
        return []
    command = "paceline reproduce --infer"
    words = f"An inference, not a result: `{command}` searches the inputs with which the published figures come out."
    return ["## Inputs that would make the figures true", "", words, "", *lines]


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
    agrees = f"{result['share']:.0%}"
    return [sentence, *figure_cells(result), ASSERTIONS[result["holds_if"]], agrees, f"**{result['verdict']}**"]


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
        agreement = result["reason"].partition(BY_INPUT)[0].strip()  # the figures are in a table
        text = " ".join(filter(None, [agreement, *result["explained"]]))
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
    span = "; ".join(filter(None, [span, *given.get("others", ())]))
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
        results = [result for result in reproduction.results if result["paper"] == paper]
        if results:
            rows = [(result["name"], *claim_row(result, "")[1:-1], result["verdict"]) for result in results]
            blocks.append(Table(title, columns, rows))
            open_questions = [result for result in results if result["verdict"] != "holds" and result["reason"]]
            blocks += [Claim(f"{result['name']}: {result['reason']}") for result in open_questions]
    headlines = [result for result in reproduction.results if result["kind"] == "headline"]
    count = Counter(result["verdict"] for result in headlines)
    if headlines:
        counted = ", ".join(f"{count[verdict]} {verdict}" for verdict in VERDICTS)
        blocks.insert(0, Claim(f"Of {len(headlines)} headlines: {counted}."))
    return Answer("Published claims", blocks, reproduction.answer)


# --- charts -----------------------------------------------------------------------------------------------------------


def save_charts(results: Sequence[Stored], folder: Path) -> dict[str, str]:
    """Writes a PNG file for each result with a curve.

    Args:
        results: Results as in the JSON answer.
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
    """Draws a `Curve`: ours as solid lines, the published ones dashed, in the colour of ours with the same label."""
    from matplotlib.figure import Figure

    from paceline.reports.palette import FAINT, INK, PALETTE

    figure = Figure(figsize=(6.4, 3.6), dpi=120, layout="constrained")
    axes = figure.subplots()
    colours = {name: PALETTE[place % len(PALETTE)] for place, name in enumerate(curve["lines"])}
    for name, points in curve["lines"].items():
        axes.plot(*zip(*points, strict=True), marker="o", markersize=4, color=colours[name], label=name)
    for place, (name, points) in enumerate(curve["published_lines"].items()):
        style: dict[str, Any] = {"linestyle": "--", "color": colours.get(name, FAINT), "marker": "sD^vX"[place % 5]}
        axes.plot(*zip(*points, strict=True), markersize=5, label=f"{name}, published", **style)
    if curve["published"] is not None:
        axes.axhline(curve["published"], color=FAINT, linestyle="--", label="published")
    every = [*curve["lines"].values(), *curve["published_lines"].values()]
    xs = sorted(x for points in every for x, _ in points)
    if curve["log_x"] and xs[-1] >= 4 * xs[0]:  # a shorter axis would have fewer than two powers of 2 to read it by
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:g}")
    if curve["log_y"]:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xlabel(curve["x"], color=INK)
    axes.set_ylabel(curve["y"], color=INK)
    axes.legend(frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    return figure
