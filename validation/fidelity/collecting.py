"""The table of machines: the files that users have sent in, a machine per row, and its place in a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.files import write_whole
from paceline.records.figures import BYTES, COUNT, PERCENT, PLAIN
from paceline.reports.blocks import Answer, Column, Row, Table
from paceline.reports.text import markdown_of
from paceline.validation.fidelity.page import document_of, without_empty_columns
from paceline.validation.fidelity.rows import CORRECTED, OURS, Document, read_document
from paceline.validation.fidelity.settings import GROUPS
from paceline.validation.fidelity.summary import ALL, by_group, summary_of

BEGIN, END = "<!-- machines: begin -->", "<!-- machines: end -->"
"""lines of a page between which the table is generated"""
WORDS = (
    "Errors of the step time by group: the mean and the 90th percentile of their sizes, and the mean of the corrected "
    "errors, from which the change of the machine's speed between calibration and run is taken out. Over all groups: "
    "mean staleness error (total variation), mean error of the time to accuracy, Kendall's τ over all pairs of methods "
    "and over those that the seeds distinguish, and the share of measurements in the stated interval."
)


def read_all(paths: Sequence[Path]) -> list[Document]:
    """Returns the documents of files.

    Args:
        paths: files that `paceline fidelity` has written.

    Raises:
        InputError: there is none, or a file is not one.
    """
    if not paths:
        raise InputError("--collect: found no FILE, expected files of `paceline fidelity`, such as fidelity.json")
    return [read_document(path) for path in paths]


def answer_of(documents: Sequence[Document]) -> Answer:
    """Returns the table of machines, and its sources as one JSON document."""
    return Answer(
        "Machines", [table_of(documents)], lambda: {"machines": [document_of(document) for document in documents]}
    )


def table_of(documents: Sequence[Document]) -> Table:
    """Returns the table, with a row for each document and columns for the groups that one of them has."""
    present = {row.group for document in documents for row in document.rows}
    groups = [group for group in GROUPS if group in present]
    columns = [
        Column("machine"), Column("memory", BYTES), Column("kernel"), Column("torch"), Column("date"), Column("commit"),
        Column("configurations", COUNT), Column("other programs", PERCENT, code="other_load"),
        Column("stolen", PERCENT, code="steal"),
    ]  # fmt: skip
    for group in groups:
        columns += [
            Column(f"{group}: mean", PERCENT, code=f"{group}_mean"), Column("p90", PERCENT, code=f"{group}_p90"),
            Column("corrected", PERCENT, code=f"{group}_corrected"),
        ]  # fmt: skip
    columns += [
        Column("staleness", PLAIN), Column("time to accuracy", PERCENT, code="time"), Column("τ", PLAIN, code="tau"),
        Column("τ, distinguished", PLAIN, code="tau_apart"), Column("in the interval", PERCENT, code="within"),
    ]  # fmt: skip
    rows = [_row(document, groups) for document in documents]
    return without_empty_columns(Table("Machines", columns, rows, words=WORDS))


def _row(document: Document, groups: Sequence[str]) -> Row:
    machine, measured = document.machine, document.measured
    cells: list[object] = [
        machine.words, machine.memory_bytes, f"{machine.system} {machine.kernel}", machine.versions.get("torch"),
        max(each.date for each in measured), ", ".join(sorted({each.commit for each in measured})),
        len(document.rows), fmean(each.other_load for each in measured), fmean(each.steal for each in measured),
    ]  # fmt: skip
    summaries = {summary.group: summary for summary in by_group(document.rows)}
    for group in groups:
        steps = {} if group not in summaries else summaries[group].step
        ours, corrected = steps.get(OURS), steps.get(CORRECTED)
        cells += [ours and ours.mean, ours and ours.p90, corrected and corrected.mean]
    whole = summary_of(document.rows, group=ALL)
    staleness, time = whole.staleness.get(OURS), whole.time.get(OURS)
    cells += [staleness and staleness.mean, time and time.mean, whole.tau.get(OURS), whole.tau_apart.get(OURS)]
    return (*cells, whole.within)


def put_into(page: Path, documents: Sequence[Document]) -> None:
    """Replaces the table of machines in a page.

    Args:
        page: a Markdown file with the lines `BEGIN` and `END`.
        documents: the machines.

    Raises:
        InputError: the page cannot be read or lacks a line.
    """
    try:
        text = page.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"--page: {page}: cannot be read ({error.strerror})") from error
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise InputError(f"--page: {page}: found no lines {BEGIN} and {END}, between which the table belongs")
    write_whole(page, f"{before}{BEGIN}\n{markdown_of(table_of(documents))}\n{END}{after}")
