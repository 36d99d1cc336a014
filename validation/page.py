"""The answer of `paceline validate`: tables of errors, verdicts, the report and the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paceline.records.figures import COUNT, PERCENT, PLAIN
from paceline.reports.blocks import Answer, Axis, Block, Chart, Claim, Column, Plot, ReportSection, Series, Table
from paceline.reports.text import markdown_of
from paceline.reports.words import listed
from paceline.validation.outcome import SIMPLER, Errors, LeftOut, Outcome, groups_of, percent
from paceline.validation.sets import OWN, MeasurementSet, set_named
from paceline.validation.validate import Validation

INTRODUCTIONS = Path(__file__).parent / "introductions"
FEW = 5
"""rows below which a family gets no verdict"""
BEATEN = "no better than simpler"
"""the verdict on a family of which a simpler prediction has the smaller median"""
WORST = 15
"""rows with the largest errors that a report lists for each set"""
MOST_REASONS = 6
"""reasons for leaving out rows of a set that are listed; the report has that of each row"""
COLUMNS = (
    Column("rows", COUNT), Column("median", PERCENT), Column("p90", PERCENT), Column("mean", PERCENT),
    Column("held back: median", PERCENT), Column("p90", PERCENT, code="held_back_p90"),
)  # fmt: skip


def answer_of(validation: Validation) -> Answer:
    """Returns the answer: errors by set, and a part with families and systems for each."""
    sets = {name: [each for each in validation.outcomes if each.set == name] for name in validation.sets}
    names = _simpler(validation.outcomes)
    rows = [(name, *_cells(outcomes, names)) for name, outcomes in sets.items() if outcomes]
    in_sight = [name for name, outcomes in sets.items() if outcomes and set_named(name).in_sight]
    seen = [f"Of {listed(in_sight)}, rows of both halves were in sight."] if in_sight else []
    words = " ".join([WORDS, *seen, *(SIMPLER[name][1] for name in names)])
    blocks: list[Block] = [
        Table("Errors by set", [Column("set"), *_columns(names)], rows, words=words),
        *(Claim(_verdict(set_named(name), outcomes)) for name, outcomes in sets.items() if outcomes and name != OWN),
    ]
    blocks += [Claim(f"{name}: {words}") for name in sets if (words := _remark(name, validation.outcomes))]
    left_out = {name: [each for each in validation.left_out if each.set == name] for name in sets}
    blocks += [Claim(_left_out_words(name, rows)) for name, rows in left_out.items() if rows]
    if validation.quick:
        blocks.append(Claim("This was a quick run: a sample of the rows, with at most 64 devices."))
    return Answer(
        "Predictions of published measurements",
        blocks,
        lambda: document_of(validation),
        parts=[_part(set_named(name), outcomes) for name, outcomes in sets.items() if outcomes],
        sections=lambda: [_left_out_section(validation)] if validation.left_out else [],
    )


WORDS = (
    "Errors are |predicted − measured| / measured. Nobody looked at rows that are held back, a half by a hash of their "
    "names, while the model was changed. Errors of simpler predictions are medians over all rows."
)


def _remark(name: str, outcomes: Sequence[Outcome]) -> str:
    remark = set_named(name).remark
    return "" if remark is None else remark(outcomes)


def _simpler(outcomes: Sequence[Outcome]) -> list[str]:
    """Returns the names of the simpler predictions that some rows have."""
    known = {name for each in outcomes for name in each.simpler}
    return [name for name in SIMPLER if name in known]


def _columns(names: Sequence[str]) -> list[Column]:
    return [*COLUMNS, *(Column(name, PERCENT, code=f"{SIMPLER[name][0]}_median") for name in names)]


def _cells(outcomes: Sequence[Outcome], names: Sequence[str]) -> tuple[Any, ...]:
    every = Errors.of(each.error for each in outcomes)
    held = Errors.of(each.error for each in outcomes if each.half == "held back")
    simpler = (Errors.of(each.error_of(name) for each in outcomes) for name in names)
    assert every is not None
    return (
        every.rows, every.median, every.p90, every.mean, held and held.median, held and held.p90,
        *(errors and errors.median for errors in simpler),
    )  # fmt: skip


def _verdict(known: MeasurementSet, outcomes: Sequence[Outcome]) -> str:
    """Returns whether a set meets its aim, and what is predicted worse than by a simpler prediction."""
    held = Errors.of(each.error for each in outcomes if each.half == "held back") or Errors.of(
        each.error for each in outcomes
    )
    assert held is not None
    half = "of the half that other sets hold back" if known.in_sight else "held back"
    parts = [f"{known.name}: median {percent(held.median)}, p90 {percent(held.p90)} on {held.rows} rows {half}"]
    aims = [
        f"{percent(figure)} is {'within' if figure <= aim else 'above'} the aim of {percent(aim)}"
        for figure, aim in zip((held.median, held.p90), known.aim, strict=True)
        if aim is not None
    ]
    families = groups_of(outcomes, "family").items()
    worse = [family for family, own in families if verdict_of(known, own) == BEATEN]
    sentence = "; ".join([*parts, *aims]) + "."
    intervals = [(each.measured, each.interval) for each in outcomes if each.interval is not None]
    if intervals:
        inside = sum(low <= measured <= high for measured, (low, high) in intervals) / len(intervals)
        sentence += f" {percent(inside)} of {len(intervals)} rows lie within the interval of 80 % of a prediction."
    if worse:
        sentence += f" A simpler prediction has the smaller median for {', '.join(worse)}."
    return sentence


def verdict_of(known: MeasurementSet, outcomes: Sequence[Outcome]) -> str:
    """Returns the verdict on a family: whether it meets the aim of its set, or none for a few rows."""
    errors = Errors.of(each.error for each in outcomes)
    if errors is None or errors.rows < FEW:
        return "few rows"
    simpler = [Errors.of(each.error_of(name) for each in outcomes) for name in SIMPLER]
    if any(other is not None and other.median < errors.median for other in simpler):
        return BEATEN
    if known.aim == (None, None):
        return "no aim set"
    pairs = zip((errors.median, errors.p90), known.aim, strict=True)
    return "meets the aim" if all(aim is None or figure <= aim for figure, aim in pairs) else "misses the aim"


def _part(known: MeasurementSet, outcomes: Sequence[Outcome]) -> ReportSection:
    names = _simpler(outcomes)
    families = [
        (family, *_cells(own, names), verdict_of(known, own)) for family, own in groups_of(outcomes, "family").items()
    ]
    table = Table(f"{known.name}: {known.title}", [Column("family"), *_columns(names), Column("verdict")], families)
    if known.name != OWN:
        return ReportSection(known.name, known.name, [table])
    return ReportSection(known.name, known.name, [_rows_table("Rows", outcomes)])


def _rows_table(title: str, outcomes: Sequence[Outcome], *, folded: bool = False) -> Table:
    names = _simpler(outcomes)
    columns = [
        Column("row"), Column("measured", PLAIN), Column("predicted", PLAIN), Column("unit"),
        Column("error", signed=True), *(Column(name, signed=True) for name in names), Column("assumed"),
        Column("source"),
    ]  # fmt: skip
    rows = [
        (each.name, each.measured, each.predicted, each.unit, each.predicted / each.measured - 1,
         *(figure and figure / each.measured - 1 for figure in map(each.simpler.get, names)),
         "; ".join(each.assumed), each.source)
        for each in outcomes
    ]  # fmt: skip
    shown = len(columns) - (not any(each.source for each in outcomes))
    return Table(title, columns[:shown], [row[:shown] for row in rows], folded=folded)


def details_of(known: MeasurementSet, outcomes: Sequence[Outcome]) -> list[Block]:
    """Returns the blocks of a report on a set beside its families: a chart, the systems, and the largest errors."""
    names = _simpler(outcomes)
    systems = [(system, *_cells(own, names)) for system, own in groups_of(outcomes, "system").items()]
    worst = sorted(outcomes, key=lambda each: -each.error)[:WORST]
    series = [
        Series(family, [each.measured for each in own], [each.predicted for each in own], mark="points",
               texts=[each.name for each in own])
        for family, own in groups_of(outcomes, "family").items()
    ]  # fmt: skip
    ends = [min(each.measured for each in outcomes), max(each.measured for each in outcomes)]
    series.insert(0, Series("equal", ends, ends, colour="faint"))
    unit = outcomes[0].unit
    chart = Chart(
        f"{known.name}: predicted beside measured",
        "A point on the line is predicted exactly.",
        f"{len(outcomes)} predicted figures against the measured ones",
        {"": Plot(Axis(f"measured, {unit}", scale="log"), Axis(f"predicted, {unit}", scale="log"), series)},
    )
    return [
        chart,
        Table("Errors by system", [Column("system"), *_columns(names)], systems, folded=True),
        _rows_table("The largest errors", worst, folded=True),
    ]


def _left_out_words(name: str, left_out: Sequence[LeftOut]) -> str:
    """Returns how many rows of a set are left out, and why."""
    reasons = Counter(each.reason for each in left_out).most_common()
    words = [f"{count}: {reason}" for reason, count in reasons[:MOST_REASONS]]
    if others := sum(count for _, count in reasons[MOST_REASONS:]):
        words.append(f"{others} for other reasons, in the report")
    return f"{name}: {len(left_out)} row{'s' * (len(left_out) != 1)} left out: {'; '.join(words)}."


def _left_out_section(validation: Validation) -> ReportSection:
    rows = [(each.set, each.name, each.reason) for each in validation.left_out]
    table = Table("Rows that are not predicted", [Column("set"), Column("row"), Column("reason")], rows, keys=2)
    return ReportSection("left-out", "Not predicted", [table])


def document_of(validation: Validation) -> dict[str, Any]:
    """Returns the JSON answer: errors by set, family and system, in both halves, and every row."""
    document: dict[str, Any] = {"quick": validation.quick, "sets": []}
    for name in validation.sets:
        outcomes = [each for each in validation.outcomes if each.set == name]
        known = set_named(name)
        document["sets"].append(
            {
                "set": name,
                "title": known.title,
                "errors": _errors(outcomes),
                "remark": _remark(name, validation.outcomes),
                "families": [
                    {"family": family, **_errors(own), "verdict": verdict_of(known, own)}
                    for family, own in groups_of(outcomes, "family").items()
                ],
                "systems": [
                    {"system": system, **_errors(own)} for system, own in groups_of(outcomes, "system").items()
                ],
                "rows": [_row(each) for each in outcomes],
                "not_predicted": [
                    {"name": each.name, "reason": each.reason} for each in validation.left_out if each.set == name
                ],
            }
        )
    return document


def _row(outcome: Outcome) -> dict[str, Any]:
    document = outcome.document()
    del document["set"], document["scenario"]
    return {**document, "half": outcome.half, "error": outcome.error}


def _errors(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for half in ("", "open", "held back"):
        own = [each for each in outcomes if half in ("", each.half)]
        for name, errors in (
            ("", Errors.of(each.error for each in own)),
            *((code, Errors.of(each.error_of(simpler) for each in own)) for simpler, (code, _) in SIMPLER.items()),
        ):
            if errors is not None:
                key = "_".join(filter(None, [half.replace(" ", "_"), name])) or "all"
                figures[key] = {
                    "rows": errors.rows, "median": errors.median, "p90": errors.p90, "mean": errors.mean,
                }  # fmt: skip
    return figures


def report_of(validation: Validation) -> Answer:
    """Returns the answer with the details of each set, for a report."""
    answer = answer_of(validation)
    parts = [
        ReportSection(part.id, part.title, [*part.blocks, *details_of(set_named(part.id), own)])
        for part in answer.parts
        if (own := [each for each in validation.outcomes if each.set == part.id])
    ]
    return Answer(answer.title, answer.blocks, answer.data, parts=parts, sections=answer.sections)


def page_of(validation: Validation) -> str:
    """Returns the page docs/results/validation.md: the introduction, the tables, and what each set says."""
    parts = [_introduction("validation")]
    answer = answer_of(validation)
    parts += [markdown_of(block) for block in answer.blocks]
    for part in answer.parts:
        known = set_named(part.id)
        parts += [f"## {known.title}", _introduction(part.id), *map(markdown_of, part.blocks)]
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"


def _introduction(name: str) -> str:
    path = INTRODUCTIONS / f"{name}.md"
    return path.read_text(encoding="utf-8") if path.exists() else ""
