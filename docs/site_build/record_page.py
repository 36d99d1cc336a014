"""The page of the record format: every table with its columns and types, and every key of run.json.

Tables and columns come from `records.tables`, meanings of keys from the tables of docs/runs.md.
"""

from __future__ import annotations

import re
from pathlib import Path

from docs.site_build.tables import table
from paceline.records.figures import IN_SUMMARY, OF_SEVERAL_RUNS
from paceline.records.summary import Summary
from paceline.records.tables import FORMS, OPTIONAL

FIGURES = """
## Figures

How tables, charts and sentences name the figures of a summary, and those that a sweep adds. Each prints with three
significant digits in every output; a column of a data frame or CSV file has the key with `_` in place of the point.

"""
RUNS = Path(__file__).parents[1] / "runs.md"
HEAD = """# Record format

What a run leaves behind, simulated or measured; generated from the code. Tables are Parquet files, read with
`pandas.read_parquet` or through [`Run.tables`](api/paceline.records.md). Times are seconds of the run's own clock.
[What a run stores](../runs.md) explains how to read them.

## Files
"""


def page() -> str:
    """Returns the page."""
    text = RUNS.read_text(encoding="utf-8")
    parts = [HEAD, _rows(text, "file | holds", ["file", "holds"]), "\n## Tables\n"]
    for name, form in FORMS.items():
        always = " Stored only if it has rows." if name in OPTIONAL else ""
        rows = [[f"`{column}`", str(kind), meaning] for column, kind, meaning in form.columns]
        head = f"\n### {name}\n\n`{name}.parquet`: {form.rows}.{always}\n\n"
        parts.append(head + table(["column", "type", "meaning"], rows))
    parts += ["\n## run.json\n\n", _rows(text, "key of run.json | holds", ["key", "holds"])]
    types = {name: _type(kind) for name, kind in Summary.__annotations__.items()}
    rows = [[f"`{key}`", types[key], words] for key, words in _cells(text, "key of the summary | holds")]
    parts += ["\n## Summary\n\nThe key `summary` of run.json.\n\n", table(["key", "type", "holds"], rows)]
    rows = [
        [f"`{figure.key}`", figure.label, figure.unit.axis, figure.meaning]
        for figure in (*IN_SUMMARY, *OF_SEVERAL_RUNS)
    ]
    parts += [FIGURES, table(["key", "name", "unit", "meaning"], rows)]
    return "".join(parts)


def _type(annotation: object) -> str:
    """Returns a readable name of an annotation: `float or null`."""
    text = str(getattr(annotation, "__forward_arg__", None) or getattr(annotation, "__name__", annotation))
    text = re.sub(r"NotRequired\[(.*)\]", r"\1", text)
    return re.sub(r"\w+\.", "", text).replace(" | None", " or null").replace("'", "")


def _rows(text: str, head: str, titles: list[str]) -> str:
    return "\n" + table(titles, ([f"`{key}`" if "`" not in key else key, words] for key, words in _cells(text, head)))


def _cells(text: str, head: str) -> list[tuple[str, str]]:
    """Returns the two columns of a table of the page; links lead from the folder `reference/`."""
    lines = text[text.index(f"| {head} |") :].split("\n\n", maxsplit=1)[0].splitlines()[2:]
    found = []
    for line in lines:
        key, words = line.strip("|").split("|", 1)
        key = key.strip() if key.count("`") > 2 else key.strip().strip("`")
        found.append((key, re.sub(r"\]\((?!https:)", "](../", words.strip())))
    return found
