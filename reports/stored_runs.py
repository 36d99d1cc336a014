"""Stored runs in words and tables: the list, the comparison side by side, and the description of one run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from paceline.algorithms.core.errors import InputError
from paceline.records import Run
from paceline.records.failed_ranks import failure_sentences
from paceline.records.figures import significant
from paceline.records.record_figures import says
from paceline.records.stored_runs import StoredRun, differences, figure
from paceline.records.summary import rank_seconds
from paceline.records.tables import ACTIVITIES
from paceline.reports.comparison.run_table import runs_table
from paceline.reports.comparison.time_to_target import aim_of
from paceline.reports.comparison.words import MISSING, kind_of, milli, per_cent, plain, seconds, signed
from paceline.reports.link_words import link_sentences, links_table
from paceline.reports.plain_table import plain_table
from paceline.reports.staleness.notions import step_seconds

COLUMNS = (
    ("wall\ns", "wall_s", seconds),
    ("step\nms", "step_s.mean", milli),
    ("stale-\nness", "staleness.mean", plain),
    ("accu-\nracy %", "final_accuracy", per_cent),
)
LONGEST = 60
"""characters of a value of a scenario in a table"""
MOST_COMPARED = 6
"""runs that fit side by side in a terminal; DERIVED: 6 columns of 18 characters and names of 24 are 132"""
MOST_RANKS = 32
"""rows of the table of ranks; INFERENCE: more do not fit on a screen"""
MOST_EVALUATIONS = 10
"""rows of the table of evaluations; INFERENCE: enough to see the course"""
REASONS = {
    "samples": "the number of samples of the scenario was reached",
    "epochs": "the number of epochs of the scenario was reached",
    "updates": "the number of updates of the scenario was reached",
    "seconds": "the time limit of the scenario was reached",
    "accuracy": "the accuracy of `stop` was reached",
    "loss": "the loss of `stop` was reached",
    "divergence": "the loss diverged",
    "failure": "a rank failed",
}


def runs_list(runs: Sequence[StoredRun]) -> Table:
    """Returns a table with a row per run."""
    table = plain_table(f"{len(runs)} stored run{'s' * (len(runs) != 1)}", first="run")
    table.columns[0].no_wrap = False
    table.columns[0].overflow = "fold"
    table.add_column("stored", no_wrap=True)
    for header, _, _ in COLUMNS:
        table.add_column(header, justify="right", no_wrap=True)
    for run in runs:
        values = [(figure(run.summary, path), unit) for _, path, unit in COLUMNS]
        cells = [MISSING if value is None else unit(value) for value, unit in values]
        table.add_row(run.path.name, f"{run.written.astimezone():%Y-%m-%d %H:%M}", *cells)
    return table


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure that is compared: its name with unit, its path in the summary, and its format."""

    name: str
    path: str
    unit: Callable[[float], str]


def _whole(value: float) -> str:
    return f"{value:,.0f}"


FIGURES = (
    Figure("duration, s", "wall_s", seconds),
    Figure("updates", "updates", _whole),
    Figure("samples", "samples", _whole),
    Figure("samples per s", "samples_per_s", _whole),
    Figure("step time, mean, ms", "step_s.mean", milli),
    Figure("step time, 95 %, ms", "step_s.p95", milli),
    Figure("time computing, %", "time_fraction.compute", per_cent),
    Figure("time communicating, %", "time_fraction.communication", per_cent),
    Figure("time waiting, %", "time_fraction.wait", per_cent),
    Figure("MB sent", "bytes_sent", lambda value: significant(value / 1e6, 4)),
    Figure("staleness, mean", "staleness.mean", plain),
    Figure("time to accuracy, s", "time_to_accuracy_s", seconds),
    Figure("time to loss, s", "time_to_loss_s", seconds),
    Figure("accuracy at the end, %", "final_accuracy", per_cent),
    Figure("loss at the end", "final_loss", lambda value: significant(value, 4)),
)


@dataclass(frozen=True, slots=True)
class RunComparison:
    """The figures of several runs and the keys in which they differ; None stands for a missing value."""

    runs: list[StoredRun]
    figures: list[tuple[Figure, list[float | None]]]
    differences: list[tuple[str, list[Any]]]

    def cells(self, values: Sequence[float | None], unit: Callable[[float], str]) -> Iterator[str]:
        """Yields the text of each run's value, with its difference from the first run in per cent.

        Args:
            values: the values of a figure.
            unit: its format.
        """
        first = values[0]
        for number, value in enumerate(values):
            shown = MISSING if value is None else unit(value)
            relative = number > 0 and value is not None and first
            yield f"{shown} ({signed(value / first - 1)} %)" if relative and value is not None and first else shown

    def record(self) -> dict[str, Any]:
        """Returns the comparison for a JSON answer."""
        return {
            "runs": [str(run.path) for run in self.runs],
            "figures": [{"name": one.name, "path": one.path, "values": values} for one, values in self.figures],
            "differences": [{"key": key, "values": values} for key, values in self.differences],
        }


def compare_runs(runs: Sequence[StoredRun]) -> RunComparison:
    """Compares stored runs.

    Args:
        runs: the runs; the first is the reference.

    Raises:
        InputError: there are fewer than two runs, or more than fit side by side.
    """
    if not 2 <= len(runs) <= MOST_COMPARED:
        raise InputError(
            f"--compare: found {len(runs)} run{'s' * (len(runs) != 1)}; expected 2 to {MOST_COMPARED}: give their "
            "folders, or select them with --scenario, --algorithm, --seed, --kind or --where"
        )
    figures = []
    for one in FIGURES:
        values = [_number(figure(run.summary, one.path)) for run in runs]
        if any(value is not None for value in values):
            figures.append((one, values))
    return RunComparison(list(runs), figures, list(differences(runs)))


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


def comparison_tables(compared: RunComparison) -> list[Any]:
    """Returns the legend, the table of figures and the table of differences."""
    numbers = [str(number) for number in range(1, len(compared.runs) + 1)]
    legend = "\n".join(f"{number}  {run.path}" for number, run in zip(numbers, compared.runs, strict=True))
    figures = plain_table("Figures; in brackets the difference from run 1", first="figure")
    different = plain_table("Differences of scenario, versions and machine", first="key")
    for number in numbers:
        figures.add_column(number, justify="right")
        different.add_column(number, overflow="fold")
    for shown, values in compared.figures:
        figures.add_row(shown.name, *compared.cells(values, shown.unit))
    for key, values in compared.differences:
        different.add_row(key, *(MISSING if value is None else str(value)[:LONGEST] for value in values))
    rest = [different] if compared.differences else ["The runs have the same scenario, versions and machine."]
    return [f"{legend}\n", figures, *rest]


def description(run: Run, stored: StoredRun) -> list[Any]:
    """Returns texts and tables about a run.

    Args:
        run: the run with its tables.
        stored: the same run as it was found.
    """
    heading = f"{title(run)}\n{stored.path}\n"
    parts: list[Any] = [heading, "\n".join(sentences(run, stored)) + "\n", runs_table([run])]
    if len(ranks := rank_rows(run)):
        parts.append(ranks_table(ranks))
    if len(run.tables.links):
        parts.append(links_table(run))
    if len(run.tables.evaluations):
        parts.append(evaluations_table(run))
    parts.append(files_table(stored))
    return parts


def title(run: Run) -> str:
    """Returns the heading."""
    return f"{run.name}: {run.algorithm}, seed {run.seed}, {kind_of(run.summary)}"


def sentences(run: Run, stored: StoredRun) -> Iterator[str]:
    """Yields what there is to say about a run.

    Args:
        run: the run.
        stored: the same run as it was found.
    """
    summary, machine = run.summary, run.machine
    clock = "virtual time" if run.kind == "simulated" else "real time"
    reason = summary["stop_reason"]
    ended = "" if reason is None else f", and ended because {REASONS.get(reason, reason)}"
    yield f"It took {significant(summary['wall_s'])} s of {clock}{ended}."
    yield f"{summary['updates']} updates applied gradients of {summary['samples']} samples in {summary['steps']} steps."
    yield from _goal(summary)
    staleness = summary["staleness"]
    if staleness["mean"] is not None:
        yield f"Staleness ({staleness['notion']}) is {staleness['mean']:.2f} on average, {staleness['max']} at most."
    if (records := summary.get("records")) is not None:
        yield says(records, int((run.tables.ranks["gradients"] > 0).sum())).capitalize() + "."
    yield from (f"{text}." for text in failure_sentences(summary, "The run"))
    yield from link_sentences(summary)
    versions = ", ".join(
        f"{name} {run.versions[name]}" for name in ("paceline", "python", "torch") if name in run.versions
    )
    cores = f"{machine['cores']} cores, " if "cores" in machine else ""
    where = f" on {machine['processor']} ({cores}{machine['system']})" if "processor" in machine else ""
    yield f"It was computed{where} with {versions}, and stored at {stored.written.astimezone():%Y-%m-%d %H:%M}."
    for text in dict.fromkeys([*summary.get("broken_promises", ()), *machine.get("warnings", ())]):
        yield f"Warning: {text}"
    for text in machine.get("assumptions", ()):
        yield f"Assumption: {text}"


def _goal(summary: Mapping[str, Any]) -> Iterator[str]:
    """Yields a sentence about the target."""
    if summary["diverged"]:
        yield "Its loss diverged."
    aim = aim_of(summary)
    if aim is None:
        return
    reached_s = summary[aim.path]
    if reached_s is None:
        yield f"It did not reach its target, {aim.words}."
    else:
        samples = summary[f"samples_to_{aim.kind}"]
        yield f"It reached its target, {aim.words}, after {significant(reached_s)} s and {samples:.0f} samples."


def rank_rows(run: Run) -> list[dict[str, Any]]:
    """Returns the time fractions of each rank, with mean step time and staleness of workers.

    Fractions of a run with complete records add up to at most 1: where lanes are busy at once, the first activity of
    `ACTIVITIES` counts. Of sampled records, each lane counts, and fractions may add up to more.

    Args:
        run: the run.
    """
    wall_s, tables = run.summary["wall_s"], run.tables
    ranks: Sequence[int]
    spent: Sequence[Mapping[Any, Any]]
    if len(tables.ranks):
        ranks = tables.ranks["rank"].tolist()
        spent = tables.ranks.rename(columns={f"{name}_s": name for name in ACTIVITIES}).to_dict("records")
    else:
        ranks = sorted(tables.spans["rank"].unique().tolist())
        spent = list(rank_seconds(tables.spans, wall_s=wall_s, ranks=ranks))
    steps = step_seconds(run) if ranks else {}
    staleness = {int(rank): mean for rank, mean in run.summary["staleness"]["by_rank"]}
    return [
        {
            "rank": rank,
            "step_s": steps.get(rank),
            "staleness": staleness.get(rank),
            **{name: one[name] / wall_s if wall_s else None for name in ACTIVITIES},
        }
        for rank, one in zip(ranks, spent, strict=True)
    ]


def ranks_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Returns the table of ranks, at most `MOST_RANKS` of them.

    Args:
        rows: the rows of `rank_rows`.
    """
    left_out = f"; {len(rows) - MOST_RANKS} more are left out" if len(rows) > MOST_RANKS else ""
    table = plain_table(f"Ranks, with fractions of their time{left_out}", first="rank")
    for header in (
        "step\nms",
        "stale-\nness",
        *(f"{name}\n%" for name in ("compute", "load", "update", "comm.", "wait")),
    ):
        table.add_column(header, justify="right")
    for row in rows[:MOST_RANKS]:
        cells = [_cell(row["step_s"], milli), _cell(row["staleness"], plain)]
        table.add_row(str(row["rank"]), *cells, *(_cell(row[name], per_cent) for name in ACTIVITIES))
    return table


def evaluations_table(run: Run) -> Table:
    """Returns a table of at most `MOST_EVALUATIONS` evaluations, with the first and the last.

    Args:
        run: the run.
    """
    rows = run.tables.evaluations.to_dict("records")
    count = min(MOST_EVALUATIONS, len(rows))
    shown = sorted({round(part * (len(rows) - 1) / max(1, count - 1)) for part in range(count)})
    table = plain_table(f"Evaluations, {len(shown)} of {len(rows)}", first="time\ns")
    for header in ("samples", "epoch", "loss", "accu-\nracy %"):
        table.add_column(header, justify="right")
    for row in (rows[number] for number in shown):
        loss, accuracy = _cell(row["loss"], lambda loss: significant(loss, 4)), _cell(row["accuracy"], per_cent)
        table.add_row(seconds(row["time_s"]), f"{row['samples']:.0f}", plain(row["epoch"]), loss, accuracy)
    return table


def files_table(stored: StoredRun) -> Table:
    """Returns the table of the files in a run's folder; folders are one row each.

    Args:
        stored: the run.
    """
    table = plain_table("Files", first="name")
    table.add_column("kB", justify="right")
    for path in sorted(stored.path.iterdir()):
        inside = [one for one in path.rglob("*") if one.is_file()] if path.is_dir() else [path]
        name = f"{path.name}/ ({len(inside)} files)" if path.is_dir() else path.name
        table.add_row(name, f"{sum(one.stat().st_size for one in inside) / 1e3:,.1f}")
    return table


def _cell(value: Any, unit: Any) -> str:
    return MISSING if value is None or value != value else unit(value)
