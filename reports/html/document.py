"""Renders a report to one HTML file: plotly.js, styles, scripts and data are inside, so that it opens offline."""

from __future__ import annotations

import json
import re
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.files import write_whole
from paceline.reports.html.charts.style import ACTIVITIES, WORDS, dark_colours
from paceline.reports.html.report_parts import Chart, Grid, Part, Picture, Report, Section, Timeline, Verbatim

MARK = '<meta name="generator" content="Paceline report">'
"""identifies a file as a report, which `write_report` may replace"""
CODE = re.compile(r"`([^`<>]+)`")
KINDS: dict[type[Any], str] = {
    Chart: "chart",
    Timeline: "timeline",
    Grid: "grid",
    Picture: "picture",
    Verbatim: "verbatim",
}


def render(report: Report) -> str:
    """Returns the HTML document of a report.

    Args:
        report: the report.

    >>> section = Section(id="summary", title="Summary", words=["Hi"])
    >>> text = render(Report(title="A run", subtitle="", sections=[section]))
    >>> text.startswith("<!doctype html>"), "<p>Hi</p>" in text, "http://" in text.partition("plotly.js")[0]
    (True, True, False)
    """
    charts: dict[str, Any] = {}
    timelines: dict[str, Any] = {}
    sections = [_section(section, charts, timelines) for section in report.sections]
    data = {
        "charts": charts,
        "timelines": timelines,
        "dark": dark_colours(),
        "activities": {name: {"colour": colour, "words": WORDS[name]} for name, colour in ACTIVITIES.items()},
    }
    return _template().render(  # type: ignore[no-any-return]
        report=report,
        mark=MARK,
        sections=sections,
        data=_in_script(json.dumps(data, separators=(",", ":"), allow_nan=False)),
        style=_text("report.css"),
        scripts=[_in_script(_plotly()), *(_text(name) for name in ("charts.js", "timeline.js", "report.js"))],
    )


def write_report(report: Report, path: Path) -> Path:
    """Writes a report; replaces only an earlier report.

    Args:
        report: the report.
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
    write_whole(path, render(report))
    return path


def _section(section: Section, charts: dict[str, Any], timelines: dict[str, Any]) -> dict[str, Any]:
    parts = []
    for number, part in enumerate(section.parts):
        name = f"{section.id}-{number}"
        if isinstance(part, Chart):
            charts[name] = {
                "height": part.height,
                "variants": [{"label": label, "figure": _plain(made)} for label, made in part.variants.items()],
            }
        elif isinstance(part, Timeline):
            timelines[name] = [run.document() for run in part.runs]
        parts.append({"id": name, "kind": KINDS[type(part)], "part": part, "options": _options(part)})
    return {"id": section.id, "title": section.title, "words": section.words, "parts": parts}


def _options(part: Part) -> list[str]:
    """Returns what the reader can select."""
    if isinstance(part, Chart):
        return list(part.variants)
    return [run.label for run in part.runs] if isinstance(part, Timeline) else []


def _plain(made: Any) -> Any:
    """Returns a plotly figure as JSON values; arrays are in base64."""
    return json.loads(made.to_json(validate=False))


def _in_script(text: str) -> str:
    """Escapes what would end a script."""
    return text.replace("</script", "<\\/script").replace("<!--", "<\\!--")


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
def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


@cache
def _text(name: str) -> str:
    return (resources.files("paceline.reports.html") / "templates" / name).read_text(encoding="utf-8")


@cache
def _template() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("paceline.reports.html", "templates")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["prose"] = prose
    return environment.get_template("report.html.j2")
