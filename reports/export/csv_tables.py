"""The tables of a stored run as CSV files, with a page that gives the meaning and the unit of each column.

A missing value is an empty cell, numbers have all their digits, and empty tables have no file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from paceline.records import Run
from paceline.records.document import flat
from paceline.records.tables import SCHEMAS

README, SUMMARY = "README.md", "summary.csv"
TIME = "seconds since the start of the run"
STALENESS = "of the method's own kind: number of updates or steps, see the summary"
RANK, STEP = "number of the rank that computed the gradient", "its step"
VERSIONS = {
    "version_read": "number of updates in the weights that the gradient was computed with",
    "version_applied": "number of updates in the weights that it was applied to",
    "staleness": STALENESS,
}
AGE = "seconds from the start of the gradient to its application"

TABLES: dict[str, str] = {
    "spans": "one row for each activity of a rank",
    "updates": "one row for each input of an update of the weights",
    "evaluations": "one row for each evaluation of the weights on held-out samples",
    "layers": "one row for each input of the update of a single layer",
    "drift": "distances of workers from their mean",
    "probes": "the loss just before and just after an update",
    "heard": "one row for each receive of a rank, in order",
    "outcomes": "answers that depended on an order, in order",
    "told": "the times that programs asked for, in order",
    "steps": "the number of steps of each rank",
    "transfers": "one row for each row of spans that is a wait or communication, in the same order",
    "ranks": "exact figures of each rank of a run whose records are sampled",
    "links": "the busiest links of the cluster, at most 1,000, the busiest first",
}
MEANINGS: dict[str, dict[str, str]] = {
    "spans": {
        "rank": "number of the rank",
        "lane": "main is the program of the rank; other lanes are activities that it started",
        "activity": "compute, load, update, communication, wait, copy, read, or of a fault",
        "layer": "name of the layer, if the activity is of one layer",
        "step": "step of the rank",
        "start_s": TIME,
        "end_s": TIME,
        "bytes": "bytes that the rank sent",
    },
    "updates": {
        "time_s": TIME,
        "rank": RANK,
        "step": STEP,
        **VERSIONS,
        "samples": "number of samples of the gradient",
        "age_s": AGE,
    },
    "evaluations": {
        "time_s": TIME,
        "samples": "number of samples learned until then",
        "epoch": "the same in passes over the training set",
        "loss": "mean loss, without unit",
        "accuracy": "fraction of samples, 0 to 1",
    },
    "layers": {"time_s": TIME, "rank": RANK, "step": STEP, "layer": "name of the layer", **VERSIONS, "age_s": AGE},
    "drift": {
        "time_s": TIME,
        "rank": "number of the worker",
        "step": "step of the worker",
        "staleness": STALENESS,
        "drift": "Euclidean distance of its weights from the mean of all workers",
    },
    "probes": {
        "time_s": TIME,
        "version": "number of updates before this one",
        "staleness": "mean over the inputs of the update",
        "loss_before": "mean loss, without unit",
        "loss_after": "mean loss, without unit",
    },
    "heard": {
        "rank": "number of the receiving rank",
        "source": "number of the sender; -1: the receive timed out",
        "lane": "lane of the receiving program",
    },
    "outcomes": {"rank": "number of the rank", "lane": "its lane", "outcome": "the answer, as JSON"},
    "told": {"rank": "number of the rank", "now_s": TIME},
    "steps": {"rank": "number of the rank", "step": "number of its steps"},
    "transfers": {
        "activity": "collective, receive or send",
        "waits_for": "number of the rank that is waited for; -1: none, or unknown",
    },
    "ranks": {
        "rank": "number of the rank",
        "gradients": "number of gradients",
        "step_s": "mean seconds of its steps",
        "updates": "number of updates that got its gradients",
        "staleness_sum": "sum of their staleness",
        "staleness_max": "largest staleness; -1: none",
        "gap_sum": "sum of the steps by which the rank was ahead of the slowest",
        "gap_max": "largest of them; -1: none",
        "compute_s": "seconds",
        "load_s": "seconds",
        "update_s": "seconds",
        "communication_s": "seconds",
        "wait_s": "seconds",
    },
    "links": {
        "from": "vertex of the graph, or rank, at which the link begins",
        "to": "vertex or rank at which it ends",
        "kind": "name of its kind, such as eth-10g",
        "medium": "memory, nvlink, pcie or network",
        "bytes": "bytes that it carried",
        "bandwidth": "bytes per second without faults",
        "utilisation": "bytes / (bandwidth x length of the run), 0 to 1",
    },
}


def write_csv(run: Run, folder: Path) -> None:
    """Writes the tables, the summary and the README into a folder.

    Args:
        run: the run.
        folder: an empty folder.
    """
    tables = {name: getattr(run.tables, name) for name in SCHEMAS}
    written = {name: table for name, table in tables.items() if len(table)}
    for name, table in written.items():
        table.to_csv(folder / f"{name}.csv", index=False)
    figures = pd.DataFrame(flat(run.summary), columns=["figure", "value"])
    figures.to_csv(folder / SUMMARY, index=False)
    (folder / README).write_text(readme(run, written), encoding="utf-8")


def readme(run: Run, tables: Mapping[str, pd.DataFrame]) -> str:
    """Returns the page about the files.

    Args:
        run: the run.
        tables: the tables that have files.
    """
    lines = [
        f"# {run.name}: {run.algorithm}, seed {run.seed}, {run.kind}",
        "",
        "Written by `paceline export --format csv`. A missing value is an empty cell.",
        "Columns whose names end in `_s` hold seconds.",
        "",
        f"`{SUMMARY}` holds the figures of the run: the path of each figure in `run.json`, and its value.",
    ]
    for name, table in tables.items():
        lines += ["", f"## {name}.csv", "", f"{len(table)} rows: {TABLES[name]}.", "", "| column | meaning, unit |"]
        lines += ["|---|---|", *(f"| {column} | {MEANINGS[name][column]} |" for column in table.columns)]
    return "\n".join(lines) + "\n"
