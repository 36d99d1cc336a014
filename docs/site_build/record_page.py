"""The page of the record format: every table with its columns and types, and every key of run.json.

Names and types come from the code, meanings of keys from the tables of docs/runs.md, and those of columns from here.
"""

from __future__ import annotations

import re
from pathlib import Path

from docs.site_build.tables import table
from paceline.records.figures import IN_SUMMARY, OF_SEVERAL_RUNS
from paceline.records.summary import Summary
from paceline.records.tables import OPTIONAL, SCHEMAS

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
COLUMNS = {
    "accuracy": "on held-out data; NaN where the problem has none",
    "activity": "what the rank does; in `transfers`: collective, receive or send",
    "age_s": "seconds from the start of the input's gradient to the update",
    "bandwidth": "of the link in this direction, bytes per second",
    "bytes": "that the rank itself sent; in `links`, that the link carried",
    "drift": "distance of the worker's weights from the mean",
    "end_s": "end",
    "epoch": "samples divided by those of the data set",
    "from": "vertex of the graph, or rank, at which the link begins",
    "gap_max": "largest number of steps ahead of the slowest worker",
    "gap_sum": "sum of these numbers over steps",
    "gradients": "number of gradients of the rank",
    "kind": "name of the kind of link",
    "lane": "`main` for the program itself, otherwise an operation that it started",
    "layer": "the layer, or the first one of a bucket; empty for whole gradients",
    "loss": "on held-out data",
    "loss_after": "loss after the update",
    "loss_before": "loss before the update",
    "medium": "memory, nvlink, pcie or network",
    "now_s": "what `Now` answered",
    "outcome": "which handles were done, or whether a cancellation was in time",
    "rank": "the rank; in `updates` and `layers` the one that computed the input",
    "samples": "samples of the input; in `evaluations` those of all updates so far",
    "source": "the sender of the message; −1 for a timeout",
    "staleness": "of the kind that the method declares",
    "staleness_max": "largest staleness",
    "staleness_sum": "sum of the staleness of all inputs of updates",
    "start_s": "start",
    "step": "number of the step of the rank",
    "step_s": "mean time of its steps",
    "time_s": "time of the update or evaluation",
    "to": "vertex or rank at which the link ends",
    "updates": "number of inputs of updates",
    "utilisation": "bytes / (bandwidth · length of the run)",
    "version": "version of the weights",
    "version_applied": "version of the weights that the input was applied to",
    "version_read": "version of the weights at which the input was computed",
    "waits_for": "the rank that is waited for; −1: none or unknown",
} | {
    f"{each}_s": f"seconds of {each}, all lanes added"
    for each in ("compute", "load", "update", "communication", "wait")
}


def page() -> str:
    """Returns the page."""
    text = RUNS.read_text(encoding="utf-8")
    parts = [HEAD, _rows(text, "file | holds", ["file", "holds"]), "\n## Tables\n"]
    for name, schema in SCHEMAS.items():
        always = " Stored only if it has rows." if name in OPTIONAL else ""
        rows = [[f"`{column.name}`", str(column.type), COLUMNS[column.name]] for column in schema]
        parts.append(f"\n### {name}\n\n`{name}.parquet`.{always}\n\n" + table(["column", "type", "meaning"], rows))
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
