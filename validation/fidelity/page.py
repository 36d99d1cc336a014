"""The answer of `paceline fidelity`: errors by group beside simpler models, the order of methods, every row; and the
file that a user sends in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from statistics import fmean
from typing import Any

from paceline.records.figures import BYTES, COUNT, MILLISECONDS, PERCENT, PLAIN, SECONDS
from paceline.records.machine import QUIET
from paceline.reports.blocks import (
    Answer,
    Axis,
    Block,
    Chart,
    Claim,
    Column,
    Plot,
    ReportSection,
    Row,
    Series,
    Table,
    TableCell,
    plain,
)
from paceline.reports.comparison.predict import WRONG_MODELS
from paceline.reports.words import listed
from paceline.validation.fidelity import rows as values
from paceline.validation.fidelity.rows import CORRECTED, MODELS, OURS, Document
from paceline.validation.fidelity.settings import STEP_AIMS
from paceline.validation.fidelity.study import Study
from paceline.validation.fidelity.summary import Sizes, Summary, by_group, by_method, grouped, pairs_of

WORDS = {
    OURS: "prediction", CORRECTED: "corrected", "no_message_cost": "without messages",
    "no_spread": "without spread", "alpha_beta": "α–β model",
}  # fmt: skip
"""the names of predictions"""
SIZES = ("mean", "p90", "worst")
EXPLAINED = (
    "Errors are |predicted − measured| / measured. A corrected error leaves out the change of the machine's speed "
    "between calibration and run. The α–β model is a gradient, an update and a measured all-reduce, in turn."
)


def answer_of(document: Document, *, notes: Sequence[str] = ()) -> Answer:
    """Returns the answer.

    Args:
        document: the finished settings; at least one.
        notes: what a reader should know beside it.
    """
    rows, groups = document.rows, by_group(document.rows)
    return Answer(
        "Fidelity of predictions on this machine",
        [*(Claim(text) for text in _conclusion(document, groups)), step_table(groups), further_table(groups)],
        lambda: document_of(document, notes),
        subtitle=document.machine.words,
        summary=lambda: [_errors_chart(groups), _steps_chart(rows)],
        sections=lambda: [
            ReportSection("methods", "Methods", _method_tables(rows)),
            ReportSection("order", "Order of methods", [_order_table(groups), _wrong_pairs(rows)]),
            ReportSection("configurations", "Configurations", [_row_table(rows)]),
            ReportSection("machine", "Machine", [_machine_table(document), _settings_table(document)]),
        ],
        notes=notes,
    )


def _conclusion(document: Document, groups: Sequence[Summary]) -> Iterator[str]:
    """Yields sentences: the errors beside their aims, simpler models that are better, and whether it was disturbed."""
    for summary in groups:
        errors = summary.step[OURS]
        aim = STEP_AIMS[summary.group]  # type: ignore[index]
        verdict = "within" if errors.mean <= aim else "above"
        said = (
            f"{summary.group}: steps of {summary.n} configurations are predicted with a mean error of "
            f"{PERCENT.with_symbol(errors.mean)}, {verdict} the aim of {PERCENT.with_symbol(aim)}"
        )
        if (corrected := summary.step.get(CORRECTED)) is not None:
            said += f"; {PERCENT.with_symbol(corrected.mean)} without the change of the machine's speed"
        if summary.better:
            said += f"; simpler and better: {listed([WORDS[name] for name in summary.better])}"
        yield f"{said}."
    others = [measured for measured in document.measured if measured.other_load > QUIET]
    worst = max(measured.other_load for measured in document.measured)
    if others:
        yield (
            f"The machine was disturbed: other programs used more than {PERCENT.with_symbol(QUIET)} of it in "
            f"{len(others)} of {len(document.measured)} settings, up to {PERCENT.with_symbol(worst)}. Errors of a "
            "quiet machine are smaller."
        )
    else:
        yield f"Other programs used at most {PERCENT.with_symbol(worst)} of the machine."


# --- tables -----------------------------------------------------------------------------------------------------------


def step_table(groups: Sequence[Summary], *, title: str = "Error of the step time") -> Table:
    """Returns the errors of the step time, ours beside those of simpler models."""
    methods = len({summary.method for summary in groups}) > 1
    columns = [
        *_names(methods),
        *(Column(size, PERCENT, code=f"step_{size}") for size in SIZES),
        *(Column(f"corrected: {size}", PERCENT, code=f"corrected_{size}") for size in SIZES),
        *(Column(f"{WORDS[name]}: mean", PERCENT, code=f"{name}_mean") for name in WRONG_MODELS),
    ]
    rows = []
    for summary in groups:
        every = [figure for name in (OURS, CORRECTED) for figure in _sizes(summary.step.get(name))]
        every += [_sizes(summary.step.get(name))[0] for name in WRONG_MODELS]
        rows.append((*_name_cells(summary, methods), *_judged(every, summary)))
    return without_empty_columns(Table(title, columns, rows, keys=1 + methods, words=EXPLAINED))


def _judged(figures: Sequence[float | None], summary: Summary) -> list[Any]:
    """Returns cells of which the first, our mean error, has the colour of its verdict."""
    aim = STEP_AIMS[summary.group]  # type: ignore[index]
    met = figures[0] is not None and figures[0] <= aim
    return [TableCell(figures[0], tone="good" if met else "bad"), *figures[1:]]


def further_table(groups: Sequence[Summary]) -> Table:
    """Returns staleness, times to accuracy, the order of methods, and stated intervals."""
    columns = [
        *_names(methods=False),
        Column("staleness: mean", PLAIN, code="staleness_mean"),
        Column("staleness: worst", PLAIN, code="staleness_worst"),
        *(Column(f"time: {size}", PERCENT, code=f"time_{size}") for size in SIZES),
        Column("time, corrected: mean", PERCENT, code="time_corrected_mean"),
        Column("τ", PLAIN, code="tau"),
        Column("pairs", COUNT),
        Column("τ, distinguished", PLAIN, code="tau_apart"),
        Column("pairs, distinguished", COUNT, code="pairs_apart"),
        Column("in the interval", PERCENT, code="within"),
    ]
    rows = []
    for summary in groups:
        staleness, time = summary.staleness.get(OURS), summary.time.get(OURS)
        corrected = summary.time.get(CORRECTED)
        rows.append(
            (
                *_name_cells(summary, methods=False),
                staleness and staleness.mean, staleness and staleness.worst, *_sizes(time),
                corrected and corrected.mean, summary.tau.get(OURS), summary.pairs, summary.tau_apart.get(OURS),
                summary.pairs_apart, summary.within,
            )
        )  # fmt: skip
    words = (
        "Staleness: total variation between the predicted and the measured distribution, 0 to 1. Time: to the target "
        "accuracy. τ: Kendall's, of the order of the methods of a setting by that time; 1 is the measured order, −1 "
        "the opposite one; distinguished are pairs whose seeds differ (95 %)."
    )
    return without_empty_columns(Table("Staleness, time to accuracy, and order of methods", columns, rows, words=words))


def without_empty_columns(table: Table) -> Table:
    """Returns a table without the columns of which no row has a value.

    Args:
        table: the table.

    >>> table = Table("Runs", [Column("name"), Column("τ", PLAIN)], [("easgd", None)])
    >>> [column.title for column in without_empty_columns(table).columns]
    ['name']
    """
    kept = [at for at in range(len(table.columns)) if any(plain(row[at]) is not None for row in table.rows)]
    rows = [[row[at] for at in kept] for row in table.rows]
    return replace(table, columns=[table.columns[at] for at in kept], rows=rows)


def _names(methods: bool) -> list[Column]:
    return [Column("group"), *([Column("method")] if methods else []), Column("n", COUNT)]


def _name_cells(summary: Summary, methods: bool) -> list[Any]:
    return [summary.group, *([summary.method] if methods else []), summary.n]


def _sizes(sizes: Sizes | None) -> list[float | None]:
    return [None] * len(SIZES) if sizes is None else [sizes.mean, sizes.p90, sizes.worst]


def _method_tables(rows: Sequence[values.Row]) -> list[Block]:
    tables: list[Block] = []
    for group, own in grouped(rows, "group").items():
        tables.append(step_table(by_method(own), title=f"Error of the step time, {group}"))
    return tables


def _order_table(groups: Sequence[Summary]) -> Table:
    models = [name for name in MODELS if name != CORRECTED]
    columns = [
        Column("group"), Column("pairs", COUNT), *(Column(WORDS[name], PLAIN, code=f"tau_{name}") for name in models),
        Column("pairs, distinguished", COUNT, code="pairs_apart"),
        *(Column(f"{WORDS[name]}, distinguished", PLAIN, code=f"tau_apart_{name}") for name in models),
    ]  # fmt: skip
    rows = [
        (each.group, each.pairs, *(each.tau.get(name) for name in models), each.pairs_apart,
         *(each.tau_apart.get(name) for name in models))
        for each in groups
    ]  # fmt: skip
    return Table("Order of the methods by time to accuracy: Kendall's τ", columns, rows)


def _wrong_pairs(rows: Sequence[values.Row]) -> Table:
    """Returns the pairs of methods in the wrong order, with the differences of their times."""
    columns = [
        Column("setting"), Column("sooner"), Column("later"), Column("later by, measured", signed=True),
        Column("predicted", signed=True), Column("error of sooner", signed=True),
        Column("error of later", signed=True), Column("distinguished"),
    ]  # fmt: skip
    wrong = [
        (
            pair.sooner.setting, pair.sooner.method, pair.later.method,
            _beyond(pair.sooner.time_measured_s, pair.later.time_measured_s),
            _beyond(pair.sooner.time_predicted_s, pair.later.time_predicted_s),
            pair.sooner.error().time, pair.later.error().time, pair.apart,
        )
        for pair in pairs_of(rows)
        if pair.sign(OURS) == -1
    ]  # fmt: skip
    words = "Methods whose times differ by less than the seeds do are in an order of chance."
    return Table("Pairs of methods in the wrong order", columns, wrong, keys=3, words=words)


def _beyond(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else second / first - 1


def _row_table(rows: Sequence[values.Row]) -> Table:
    columns = [
        Column("setting"), Column("method"), Column("runs of", SECONDS, code="run_s"),
        Column("step, predicted", MILLISECONDS, code="step_predicted_s"),
        Column("measured", MILLISECONDS, code="step_measured_s"), Column("error", signed=True, code="step_error"),
        Column("machine slower by", signed=True, code="machine_change"),
        *(Column(WORDS[name], signed=True, code=f"step_error_{name}") for name in MODELS[1:]),
        Column("interval from", MILLISECONDS, code="step_low_s"), Column("to", MILLISECONDS, code="step_high_s"),
        Column("staleness", PLAIN), Column("time, predicted", SECONDS, code="time_predicted_s"),
        Column("measured", SECONDS, code="time_measured_s"), Column("error", signed=True, code="time_error"),
    ]  # fmt: skip
    cells: list[Row] = [
        (
            row.setting, row.method, row.run_s, row.step_predicted_s, row.step_measured_s, row.error().step,
            row.machine_change, *(row.error(name).step for name in MODELS[1:]), row.step_low_s, row.step_high_s,
            row.error().staleness, row.time_predicted_s, row.time_measured_s, row.error().time,
        )
        for row in rows
    ]  # fmt: skip
    return without_empty_columns(Table("Every configuration", columns, cells, keys=2))


def _machine_table(document: Document) -> Table:
    machine = document.machine
    rows: list[Row] = [
        ("processor", machine.processor),
        ("cores", TableCell(machine.cores, unit=COUNT)),
        ("memory", TableCell(machine.memory_bytes, unit=BYTES)),
        ("system", f"{machine.system} {machine.kernel}, {machine.architecture}"),
        *machine.versions.items(),
    ]
    return Table("Machine", [Column(""), Column("")], rows)


def _settings_table(document: Document) -> Table:
    columns = [
        Column("setting"), Column("date"), Column("commit"), Column("duration", SECONDS, code="seconds"),
        Column("other programs", PERCENT, code="other_load"), Column("stolen by the hypervisor", PERCENT, code="steal"),
    ]  # fmt: skip
    rows = [
        (each.setting, each.date, each.commit, each.seconds, each.other_load, each.steal) for each in document.measured
    ]
    return Table("Settings", columns, rows, words="Other programs: their share of all cores while runs were measured.")


# --- charts -----------------------------------------------------------------------------------------------------------


def _errors_chart(groups: Sequence[Summary]) -> Chart:
    series = []
    for name in MODELS:
        known = [(summary.group, summary.step[name].mean) for summary in groups if name in summary.step]
        if known:
            series.append(Series(WORDS[name], [group for group, _ in known], [mean for _, mean in known], mark="bar"))
    return Chart(
        "Mean error of the step time",
        "A prediction that is not better than simpler ones proves nothing.",
        "Bars of the mean error of each prediction in each group",
        {"": Plot(Axis("group", scale="category"), Axis("mean error", PERCENT), series)},
    )


def _steps_chart(rows: Sequence[values.Row]) -> Chart:
    steps_s = [row.step_measured_s for row in rows]
    ends = [min(steps_s), max(steps_s)]
    series = [Series("equal", ends, ends, colour="faint")]
    series += [
        Series(
            group, [row.step_measured_s for row in own], [row.step_predicted_s for row in own], mark="points",
            texts=[f"{row.setting}: {row.method}" for row in own],
        )
        for group, own in grouped(rows, "group").items()
    ]  # fmt: skip
    x, y = (Axis(f"step time, {what}", MILLISECONDS, scale="log") for what in ("measured", "predicted"))
    return Chart(
        "Step times, predicted beside measured",
        "A point on the line is predicted exactly.",
        f"{len(rows)} predicted step times against the measured ones",
        {"": Plot(x, y, series)},
    )


def listing_of(study: Study) -> Answer:
    """Returns the table of the settings of a study, with whether its folder has them."""
    columns = [Column("setting"), Column("group"), Column("methods"), Column("seeds", COUNT), Column("finished")]
    rows = [
        (each.name, each.group(study.cores), " ".join(each.methods), study.seeds, study.finished(each))
        for each in study.settings
    ]
    data = [dict(zip((column.title for column in columns), row, strict=True)) for row in rows]
    return Answer("Settings", [Table("Settings", columns, rows)], lambda: {"settings": data})


# --- the document -----------------------------------------------------------------------------------------------------


def document_of(document: Document, notes: Sequence[str] = ()) -> Mapping[str, Any]:
    """Returns the JSON document, which `rows.read_document` reads: the machine, the errors by group, and all rows.

    Args:
        document: the finished settings.
        notes: what a reader should know beside it.
    """
    loads, steals = ([getattr(each, name) for each in document.measured] for name in ("other_load", "steal"))
    return {
        "format": document.format,
        "machine": asdict(document.machine),
        "load": {
            "other_mean": fmean(loads), "other_worst": max(loads), "steal_mean": fmean(steals),
            "steal_worst": max(steals),
        },
        "groups": [summary.document() for summary in by_group(document.rows)],
        "methods": [summary.document() for summary in by_method(document.rows)],
        "notes": list(notes),
        "measured": values.plain(document)["measured"],
    }  # fmt: skip
