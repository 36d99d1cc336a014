"""Renders an answer to one HTML file: plotly.js, styles, scripts and data are inside, so that it opens offline."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.files import write_whole
from paceline.reports.blocks import Answer, Block, Chart, Claim, Picture, ReportSection, Table, TableCell, Timeline
from paceline.reports.html.plotly_charts import height_of, plotly_of
from paceline.reports.palette import ACTIVITIES, WORDS, dark_colours

MARK = '<meta name="generator" content="Paceline report">'
"""identifies a file as a report, which `write_report` may replace"""
PLOTLY = "plotly-basic.min.js"
"""plotly.js 4.1.1 with lines and bars only, a quarter of the whole; source: npm, plotly.js-basic-dist-min 4.1.1, whose
licence is beside it; sha256 99784e3abfb07b142a15e521a439e6d9addceadb3f79553fd24c72774f0649ba"""
CODE = re.compile(r"`([^`<>]+)`")
LONG_NAME, LONG_TEXT = 32, 24
"""characters of a name of a row, and of a cell of text, from which they may continue on the next line"""


def render(answer: Answer) -> str:
    """Returns the HTML document of an answer.

    Args:
        answer: the answer.

    >>> text = render(Answer("A run", [Claim("Hi")]))
    >>> text.startswith("<!doctype html>"), "<p>Hi</p>" in text, "http://" in text.partition("plotly.js")[0]
    (True, True, False)
    """
    charts: dict[str, Any] = {}
    timelines: dict[str, Any] = {}
    sections = [_section(section, charts, timelines) for section in answer.whole()]
    data = {
        "charts": charts,
        "timelines": timelines,
        "dark": dark_colours(),
        "activities": {name: {"colour": colour, "words": WORDS[name]} for name, colour in ACTIVITIES.items()},
    }
    return _template("report.html.j2").render(  # type: ignore[no-any-return]
        report=answer,
        mark=MARK,
        sections=sections,
        packed={"data": _packed(json.dumps(data, separators=(",", ":"), allow_nan=False)), "plotly": _packed_plotly()},
        style=_text("report.css"),
        scripts=[_text(name) for name in ("charts.js", "timeline.js", "report.js")],
    )


def html_of(parts: Iterable[Block]) -> str:
    """Returns tables, paragraphs and pictures in characters as HTML for a notebook; charts need a report.

    Args:
        parts: the blocks of an answer.

    >>> from paceline.reports.blocks import Column
    >>> print(html_of([Claim("A & B"), Table("Runs", [Column("name")], [("easgd",)])]))
    <p>A &amp; B</p>
    <table>
    <caption>Runs</caption>
    <thead><tr><th>name</th></tr></thead>
    <tbody>
    <tr><td>easgd</td></tr>
    </tbody>
    </table>
    """
    shown = (
        _part(Claim(part.text, part.title, verbatim=True) if isinstance(part, Picture) else part)
        for part in parts
        if isinstance(part, Claim | Table) or (isinstance(part, Picture) and part.text)
    )
    return str(_template("notebook.html.j2").render(parts=list(shown))).strip()


def write_report(answer: Answer, path: Path) -> Path:
    """Writes a report; replaces only an earlier report.

    Args:
        answer: the answer.
        path: the file.

    Returns:
        The file.

    Raises:
        InputError: the file exists and is no report, or it is a folder.
    """
    if path.is_dir():
        raise InputError(f"--out: found the folder {str(path)!r}, expected a file such as {path / 'report.html'}")
    if path.exists() and MARK not in path.read_text(encoding="utf-8", errors="replace")[:2000]:
        raise InputError(f"--out: found {str(path)!r}, which is no report of Paceline and is not replaced")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, render(answer))
    return path


@dataclass(frozen=True, slots=True)
class Shown:
    """A block as the template reads it.

    Args:
        kind: claim, verbatim, table, chart, timeline or picture.
        block: the block.
        id: of a chart or timeline: its name in the page.
        options: of a chart or timeline: what the reader can select.
        height: of a chart, pixels.
        header: of a table: the title, the unit and the class of each column.
        rows: of a table: the class of each row, and the lines of text and the class of each of its cells.
        keys: of a table: the number of columns that identify a row.
    """

    kind: str
    block: Any
    id: str = ""
    options: Sequence[str] = ()
    height: int = 0
    header: Sequence[tuple[str, str, str]] = ()
    rows: Sequence[tuple[str, Sequence[tuple[Sequence[str], str]]]] = ()
    keys: int = 0


def _section(section: ReportSection, charts: dict[str, Any], timelines: dict[str, Any]) -> dict[str, Any]:
    """Returns a section as the template reads it, and adds the data of its charts."""
    parts, drawn = [], 0
    for block in section.blocks:
        name = f"{section.id}-{drawn}"
        if isinstance(block, Chart):
            variants = [{"label": label, "figure": plotly_of(plot)} for label, plot in block.plots.items()]
            charts[name] = {"height": height_of(block), "variants": variants}
            parts.append(Shown("chart", block, name, list(block.plots), height_of(block)))
        elif isinstance(block, Timeline):
            timelines[name] = [run.document() for run in block.runs]
            parts.append(Shown("timeline", block, name, [run.label for run in block.runs]))
        else:
            parts.append(_part(block))
            continue
        drawn += 1
    return {"id": section.id, "title": section.title, "parts": parts}


def _part(block: Block) -> Shown:
    """Returns a block that needs no script, as the template reads it."""
    match block:
        case Claim():
            return Shown("verbatim" if block.verbatim else "claim", block)
        case Table():
            return _table(block)
    return Shown("picture", block)


def _table(table: Table) -> Shown:
    header = [(column.title, column.symbol, "number" if column.numeric else "") for column in table.columns]
    rows = []
    for at, row in enumerate(table.rows):
        cells = []
        for number, (content, column) in enumerate(zip(row, table.columns, strict=True)):
            lines = table.text(at, number).split("\n")
            long = LONG_NAME if number < table.keys else LONG_TEXT
            size = "number" if column.numeric else "short" if max(map(len, lines)) < long else ""
            tone = content.tone if isinstance(content, TableCell) else "plain"
            cells.append((lines, f"{size} {tone}".strip()))
        rows.append((table.tones.get(at, "plain"), cells))
    named = any(title or unit for title, unit, _ in header)
    return Shown("table", table, header=header if named else (), rows=rows, keys=table.keys)


def _packed(text: str) -> str:
    """Returns a text compressed, in base64, which `Paceline.unpacked` in the page reads."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode("ascii")


@cache
def _packed_plotly() -> str:
    return _packed(_text(PLOTLY))


def prose(text: str) -> Any:
    """Returns a text as HTML, with commands in backquotes as code.

    Args:
        text: plain text.

    >>> str(prose("a < b: `paceline report`"))
    'a &lt; b: <code>paceline report</code>'
    """
    from markupsafe import Markup, escape

    return Markup(CODE.sub(r"<code>\1</code>", str(escape(text))))  # escaped before, so it has no other markup


@cache
def _text(name: str) -> str:
    return (resources.files("paceline.reports.html") / "templates" / name).read_text(encoding="utf-8")


@cache
def _template(name: str) -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("paceline.reports.html", "templates")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["prose"] = prose
    return environment.get_template(name)
