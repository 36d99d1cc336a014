"""Staleness of stored runs, in tables and charts: every notion that applies, by rank, by layer, over time, its effects.

Everything is computed from the stored run, so simulated and measured runs are treated the same. If records were
sampled, courses over time, ages, and gradients between evaluations are estimated from the updates that were kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.method import StalenessKind
from paceline.records import Run
from paceline.records.figures import (
    COUNT,
    MILLISECONDS,
    PERCENT,
    PLAIN,
    SECONDS,
    STALENESS,
    STEP_TIME,
    UPDATES,
    significant,
)
from paceline.records.keeping import says as records_in_words
from paceline.records.metrics import finite
from paceline.records.staleness import (
    CLOCK_GAP,
    COUNTS,
    NAMES,
    WINDOWS,
    Notion,
    ages,
    at_least,
    between_evaluations,
    by_age,
    by_staleness,
    layers_of,
    notions_of,
    records_of,
    slope,
    update_weight,
)
from paceline.records.summary import step_seconds
from paceline.reports.blocks import Answer, Axis, Block, Chart, Claim, Column, Plot, Row, Series, Table
from paceline.reports.run_charts import looks
from paceline.reports.timeline_data import MOST_RANKS as MOST_DRAWN
from paceline.reports.timeline_data import evenly
from paceline.reports.words import kind_of, listed

MOST_RANKS = 16
"""largest number of ranks that are all shown; of more, the stalest and the freshest are shown"""


@dataclass(frozen=True, slots=True)
class RunStaleness:
    """The staleness of one run, from its tables."""

    run: Run
    own: str
    """the name of the method's own notion"""
    notions: Mapping[str, Notion]
    """the method's own first"""
    step_s: Mapping[int, float]
    """mean time of a worker's steps"""

    @staticmethod
    def of(run: Run) -> RunStaleness:
        """Computes the staleness from the tables of a run."""
        staleness_kind = StalenessKind(run.summary["staleness"]["notion"])
        return RunStaleness(run=run, own=NAMES[staleness_kind], notions=notions_of(run), step_s=step_seconds(run))

    @property
    def title(self) -> str:
        """Identifies the run."""
        where = "" if self.run.path is None else f"{self.run.path}: "
        return f"{where}{self.run.algorithm}, seed {self.run.seed}, {kind_of(self.run.summary)}"

    def answer(self) -> dict[str, Any]:
        """Returns the JSON answer."""
        tables, wall_s = self.run.tables, self.run.summary["wall_s"]
        return {
            "path": None if self.run.path is None else str(self.run.path),
            "name": self.run.name,
            "algorithm": self.run.algorithm,
            "seed": self.run.seed,
            "kind": self.run.kind,
            "own": self.own,
            "notions": {
                name: {
                    "counts": COUNTS[name],
                    **notion.figures,
                    "histogram": notion.histogram,
                    "by_rank": notion.by_rank,
                    "over_time": notion.over_time(wall_s),
                }
                for name, notion in self.notions.items()
            },
            "records": "full" if (records := records_of(self.run)) is None else records["kind"],
            "age": ages(tables.updates),
            "step_s": [[rank, finite(seconds)] for rank, seconds in self.step_s.items()],
            "layers": layers_of(self.run),
            "drift": by_age(tables.drift),
            "loss": {
                "between_evaluations": between_evaluations(tables.updates, tables.evaluations, update_weight(self.run)),
                "by_staleness": by_staleness(tables.probes),
                "slope": slope(tables.probes),
            },
        }


# --- tables ----------------------------------------------------------------------------------------------------------


def answer_of_staleness(
    runs: Sequence[RunStaleness], *, layer: bool = False, over_time: bool = False, why: bool = False
) -> Answer:
    """Returns the answer of `paceline staleness`.

    Args:
        runs: the staleness of each run.
        layer: whether each layer is shown.
        over_time: whether intervals of the run are shown.
        why: whether the effects of staleness are shown.
    """
    blocks: list[Block] = []
    for run in runs:
        blocks += [Claim(f"{run.title}\n"), notions_table(run), ranks_table(run)]
        blocks += [layers_table(run)] if layer else []
        blocks += time_tables(run) if over_time else []
        blocks += why_tables(run) if why else []
        blocks.append(Claim(says(run)))
    return Answer("Staleness", blocks, lambda: {"runs": [{**run.answer(), "says": says(run).strip()} for run in runs]})


def notions_table(staleness: RunStaleness) -> Table:
    """Returns a table with a line for each notion."""
    columns = [Column(name, UPDATES) for name in ("mean", "half are at least", "mean of ranks", "largest")]
    rows = [
        (
            name,
            notion.figures["mean"],
            at_least(notion.histogram, 0.5) if notion.histogram else None,
            notion.figures["mean_of_ranks"],
            notion.figures["max"],
        )
        for name, notion in staleness.notions.items()
    ]
    return Table("all updates", [Column("notion"), *columns], rows)


def ranks_table(staleness: RunStaleness) -> Table:
    """Returns a line for each worker: mean and maximum of every notion, the age of gradients, and the step time."""
    columns = [Column(f"{name}, {what}", UPDATES) for name in staleness.notions for what in ("mean", "largest")]
    ranks = {name: {row["rank"]: row for row in notion.by_rank} for name, notion in staleness.notions.items()}
    ages_s = {int(rank): age_s for rank, age_s in ages(staleness.run.tables.updates)["by_rank"]}
    all_ranks = sorted({rank for of_notion in ranks.values() for rank in of_notion})
    means = {rank: row["mean"] for rank, row in ranks[staleness.own].items()}
    chosen = _chosen(all_ranks, lambda rank: means.get(rank, 0.0))
    title = "by rank" if len(chosen) == len(all_ranks) else f"by rank: the stalest and the freshest of {len(all_ranks)}"
    rows = []
    for rank in chosen:
        of_rank = [of_notion.get(rank) for of_notion in ranks.values()]
        cells = [
            None if row is None else value
            for row in of_rank
            for value in ((row and (row["mean"], row["max"])) or (None, None))
        ]
        rows.append((rank, *cells, ages_s.get(rank), staleness.step_s.get(rank)))
    return Table(title, [Column("rank", COUNT), *columns, AGE, Column.of(STEP_TIME)], rows)


def _chosen(ranks: Sequence[int], staleness: Callable[[int], float]) -> list[int]:
    if len(ranks) <= MOST_RANKS:
        return list(ranks)
    ordered = sorted(ranks, key=staleness)
    return sorted([*ordered[: MOST_RANKS // 2], *ordered[-MOST_RANKS // 2 :]])


def layers_table(staleness: RunStaleness) -> Table | Claim:
    """Returns a table with a line for each layer, or the reason why there is none."""
    layers = layers_of(staleness.run)
    if not layers:
        name = staleness.run.algorithm
        return Claim(f"{name} applies whole gradients: every layer is as stale as the update it is in.\n")
    columns = [
        Column("layer"),
        Column("landed", COUNT),
        Column(staleness.own, UPDATES),
        Column("largest", UPDATES),
        AGE,
    ]
    rows = [(layer["layer"], layer["count"], layer["mean"], layer["max"], layer["age_s"]) for layer in layers]
    return Table("by layer", columns, rows)


def time_tables(staleness: RunStaleness) -> Iterator[Table | Claim]:
    """Yields a table for each notion, with a line for each interval of the run."""
    figures = {"mean": "mean", "p50": "half at most", "p95": "95 % at most", "max": "largest"}
    columns = [UP_TO, Column("counted", COUNT), *(Column(header, UPDATES) for header in figures.values())]
    for name, notion in staleness.notions.items():
        if (windows := notion.over_time(staleness.run.summary["wall_s"])) is None:
            said = "not available, because the run has only counts of it; records: full keeps all."
            yield Claim(f"{name} over time: {said}\n")
            continue
        rows = [[window["to_s"], window["count"], *(dict(window)[figure] for figure in figures)] for window in windows]
        yield Table(f"{name} over time", columns, rows)


def why_tables(staleness: RunStaleness) -> Iterator[Table | Claim]:
    """Yields tables of staleness against change of loss: between evaluations and, if recorded, by update.

    At most `WINDOWS` evaluations are shown.
    """
    tables, records = staleness.run.tables, records_of(staleness.run)
    if records is not None and not records["updates_kept"]:
        said = "not available, because the run keeps no updates; use records: sampled or full."
        yield Claim(f"between evaluations: {said}\n")
    else:
        yield _between_table(staleness)
    if len(tables.probes):
        width = -(-(int(tables.probes["staleness"].max()) + 1) // WINDOWS)
        rows: list[Row] = []
        for probed in by_staleness(tables.probes, width):
            change, lag = probed["loss_change"], probed["staleness"]
            ends = (change[end] for end in ("mean", "low", "high"))
            rows.append((str(lag) if width == 1 else f"{lag}–{lag + width - 1}", probed["count"], *ends))
        columns = [
            Column(staleness.own),
            Column("updates", COUNT),
            *(Column(end, PLAIN) for end in ("mean", "low", "high")),
        ]
        yield Table("by update: change of the loss held out", columns, rows)
    if len(tables.drift):
        rows = [(age["staleness"], age["count"], age["mean"], age["max"]) for age in by_age(tables.drift)]
        columns = [
            Column(staleness.own, UPDATES),
            Column("counted", COUNT),
            Column("mean", PLAIN),
            Column("largest", PLAIN),
        ]
        yield Table("drift: distance from the mean of all workers", columns, rows)


def _between_table(staleness: RunStaleness) -> Table:
    tables = staleness.run.tables
    columns = [
        UP_TO, Column("gradients", COUNT), Column(staleness.own, UPDATES), AGE, Column("change of the loss", PLAIN),
        Column("change by gradient", PLAIN),
    ]  # fmt: skip
    chosen = evenly(len(tables.evaluations), WINDOWS + 1)
    between = between_evaluations(tables.updates, tables.evaluations.iloc[chosen], update_weight(staleness.run))
    keys = ("to_s", "gradients", "staleness", "age_s", "loss_change", "loss_change_per_gradient")
    return Table("between evaluations", columns, [[dict(row)[key] for key in keys] for row in between])


AGE = Column("gradient's age", MILLISECONDS, code="age_s")
UP_TO = Column("up to", SECONDS, code="to_s")


def _change(value: float) -> str:
    return f"{value:+.3g}"


# --- words -----------------------------------------------------------------------------------------------------------


def says(staleness: RunStaleness) -> str:
    """Describes the staleness in sentences."""
    return (
        " ".join(
            [
                *_of_records(staleness),
                *_of_all(staleness),
                *_of_ranks(staleness),
                *_of_clocks(staleness),
                *_of_ages(staleness),
                *_of_probes(staleness),
            ]
        )
        + "\n"
    )


def _of_records(staleness: RunStaleness) -> Iterator[str]:
    if (records := records_of(staleness.run)) is not None:
        workers = int((staleness.run.tables.ranks["gradients"] > 0).sum())
        yield records_in_words(records, workers)
        if records["updates_kept"] < records["updates"] and records["updates_kept"]:
            yield "Ages and courses over time are estimated from the updates that were kept."


def _of_all(staleness: RunStaleness) -> Iterator[str]:
    own = staleness.notions[staleness.own].histogram
    if not own:
        yield "Nothing was applied."
        return
    low, high = own[0][0], own[-1][0]
    if low == high:
        yield f"Every update has the same {staleness.own}, {high}."
    else:
        half, twentieth = at_least(own, 0.5), at_least(own, 0.05)
        more = f", one in twenty of {twentieth} or more" if twentieth > half else ""
        yield f"Half of the updates have a {staleness.own} of {half} or more{more}; the largest is {high}."


def _of_ranks(staleness: RunStaleness) -> Iterator[str]:
    """Yields which rank has the stalest gradients, if the ranks differ by more than a tenth."""
    means = {row["rank"]: row["mean"] for row in staleness.notions[staleness.own].by_rank}
    if len(means) < 2 or not means.keys() <= staleness.step_s.keys():
        return
    most, least = max(means, key=means.__getitem__), min(means, key=means.__getitem__)
    if means[most] < 1 or means[most] < 1.1 * means[least]:
        return
    times = staleness.step_s[most] / staleness.step_s[least]
    pace = f", {significant(times, 2)} times as slow as rank {least}," if times > 1.1 else ""
    yield f"Rank {most}{pace} sees {significant(means[most])} on average;"
    yield f"rank {least} sees {significant(means[least])}."


def _of_clocks(staleness: RunStaleness) -> Iterator[str]:
    for name, notion in staleness.notions.items():
        if name != staleness.own:
            ahead = significant(notion.figures["mean"] or 0.0)
            yield f"A worker that finishes a step is {ahead} ahead of the slowest on average,"
            yield f"{notion.figures['max']} at most."


def _of_ages(staleness: RunStaleness) -> Iterator[str]:
    age = ages(staleness.run.tables.updates)
    if age["mean_s"] is not None and age["p95_s"] is not None:
        mean = MILLISECONDS.with_symbol(age["mean_s"])
        yield f"When it was applied, a gradient had been begun {mean} before on average, 95 %"
        yield f"at most {MILLISECONDS.with_symbol(age['p95_s'])}."


def _of_probes(staleness: RunStaleness) -> Iterator[str]:
    line = slope(staleness.run.tables.probes)
    if line is None or line["low"] is None or line["high"] is None:
        return
    probed = by_staleness(staleness.run.tables.probes)
    count = sum(row["count"] for row in probed)
    change = sum(row["count"] * row["loss_change"]["mean"] for row in probed) / count
    interval = f"{_change(line['mean'])} ({_change(line['low'])} to {_change(line['high'])})"
    yield f"By {count} probes, an update changes the loss by {_change(change)} on average, and each unit of"
    yield f"staleness adds {interval}" + (", which may be nothing." if line["low"] <= 0 <= line["high"] else ".")


MOST_RUNS = 12
"""runs in one picture"""
MOST_VALUES = 200
"""values of a distribution; larger ones are left out of the chart"""
OWN = "each method's own"
"""the choice of all methods together, each with the kind by which it counts"""

Look = Mapping[str, Any]
"""name, colour and style of the series of a run"""
Drawn = tuple[Look, Notion, float]
"""one kind of staleness of a run: the look of its series, its figures, and the length of the run in s"""
Kinds = Mapping[str, Sequence[Drawn]]
"""by kind of staleness"""


def staleness_charts(kinds: Kinds) -> list[Chart]:
    """Returns the charts of which the reader selects the kind of staleness; without a course if none is known.

    Args:
        kinds: the runs by kind of staleness.
    """
    alt = listed([f"{kind}: {_means(drawn)}" for kind, drawn in kinds.items() if kind != OWN])
    charts = [
        Chart(
            title="How often each staleness occurs",
            words="0 means fresh gradients; a long tail to the right means that some are applied very late.",
            alt=f"Bar chart of the distribution of staleness. Means: {alt}.",
            plots=_plots(kinds, Axis("staleness"), Axis("share of updates", PERCENT), _distribution),
            choice="Kind of staleness",
        ),
        Chart(
            title="Mean staleness of each rank",
            words="Ranks above the others read their weights earlier, compared with the progress of the rest: usually "
            "they are the slower ones. For clock gaps it is the opposite.",
            alt=f"Dot chart of the mean staleness by rank. Means over ranks: {alt}.",
            plots=_plots(kinds, Axis("rank", zero=False), Axis("mean staleness", PLAIN), _ranks),
            choice="Kind of staleness",
            height=340,
        ),
    ]
    course = _course_chart(kinds, alt)
    return [*charts, course] if course is not None else charts


def kinds_of(runs: Sequence[Run]) -> Kinds:
    """Returns what charts show of some runs; of several kinds besides the clock gap, first each method's own.

    Args:
        runs: the runs.
    """
    look, own = looks(runs), list[Drawn]()
    kinds: dict[str, list[Drawn]] = {}
    for run in runs:
        for kind, notion in notions_of(run).items():
            if notion.by_rank:
                drawn = (look[run.algorithm, run.kind], notion, run.summary["wall_s"])
                kinds.setdefault(kind, []).append(drawn)
                own += [drawn] * (kind != CLOCK_GAP)
    kinds = dict(sorted(kinds.items(), key=lambda entry: (entry[0] == CLOCK_GAP, -_largest_mean(entry[1]))))
    return {OWN: own, **kinds} if len(kinds.keys() - {CLOCK_GAP}) > 1 else kinds


def _largest_mean(drawn: Sequence[Drawn]) -> float:
    return max(notion.figures["mean"] or 0.0 for _, notion, _ in drawn)


def figure_charts(runs: Sequence[Run]) -> list[Chart]:
    """Returns the charts of ``--out``, which are those of a report.

    Args:
        runs: the runs.

    Raises:
        InputError: there are too many runs for a picture.
    """
    if len(runs) > MOST_RUNS:
        raise InputError(f"--out: found {len(runs)} runs, expected at most {MOST_RUNS} in one figure")
    return staleness_charts(kinds_of(runs))


def _course_chart(kinds: Kinds, alt: str) -> Chart | None:
    """Returns the chart of staleness against time; None if no course is known."""
    known = {
        kind: series
        for kind, drawn in kinds.items()
        if (series := [pair for pair in drawn if pair[1].series is not None])
    }
    if not known:
        return None
    return Chart(
        title="Staleness during the run",
        words="Thick lines are means in twenty windows of the run, thin dotted lines the 95th percentile. A rising "
        "line means that ranks drift apart.",
        alt=f"Line chart of staleness against time. Means over the run: {alt}.",
        plots=_plots(known, Axis("time since the start", SECONDS), Axis("staleness", PLAIN), _course, _colours(kinds)),
        choice="Kind of staleness",
        height=360,
    )


def _colours(kinds: Kinds) -> list[str]:
    return list(dict.fromkeys(look["colour"] for drawn in kinds.values() for look, _, _ in drawn))


def _plots(
    kinds: Kinds, x: Axis, y: Axis, draw: Callable[[Drawn], list[Series]], colours: Sequence[str] = ()
) -> dict[str, Plot]:
    colours = colours or _colours(kinds)
    return {
        kind: Plot(x, y, [series for run in drawn for series in draw(run)], colours=colours)
        for kind, drawn in kinds.items()
    }


def _means(drawn: Sequence[Drawn]) -> str:
    return listed([f"{look['name']} {STALENESS.text(notion.figures['mean'] or 0.0)}" for look, notion, _ in drawn])


def _distribution(drawn: Drawn) -> list[Series]:
    look, notion, _ = drawn
    rows, total = notion.histogram[:MOST_VALUES], sum(count for _, count in notion.histogram)
    return [Series(x=[value for value, _ in rows], y=[count / total for _, count in rows], mark="bar", **look)]


def _ranks(drawn: Drawn) -> list[Series]:
    look, notion, _ = drawn
    rows = [notion.by_rank[at] for at in evenly(len(notion.by_rank), MOST_DRAWN)]
    ranks, means = [row["rank"] for row in rows], [row["mean"] for row in rows]
    return [Series(x=ranks, y=means, mark="points", texts=[f"largest {row['max']}" for row in rows], **look)]


def _course(drawn: Drawn) -> list[Series]:
    look, notion, wall_s = drawn
    windows = [window for window in notion.over_time(wall_s) or () if window["mean"] is not None]
    x = [(window["from_s"] + window["to_s"]) / 2 for window in windows]
    late = {**look, "style": "dotted", "name": f"{look['name']}: 95th percentile"}
    return [
        Series(x=x, y=[window["mean"] for window in windows], **look),
        Series(x=x, y=[window["p95"] for window in windows], legend=False, **late),
    ]
