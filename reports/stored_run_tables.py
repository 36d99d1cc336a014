"""Stored runs in words and tables: the list, the comparison side by side, and the description of one run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from paceline.algorithms.core.errors import InputError
from paceline.records import Run
from paceline.records.faults import failure_sentences
from paceline.records.figures import (
    ACTIVITIES,
    BYTES,
    BYTES_SENT,
    COMMUNICATION,
    COMPUTING,
    COUNT,
    FINAL_ACCURACY,
    FINAL_LOSS,
    PLAIN,
    SAMPLES,
    SECONDS,
    STALENESS,
    STEP_TIME,
    STEP_TIME_95,
    THROUGHPUT,
    TIME_FRACTIONS,
    TIME_TO_ACCURACY,
    TIME_TO_LOSS,
    UPDATE_COUNT,
    WAITING,
    WALL_TIME,
    Figure,
    present,
    signed_percent,
)
from paceline.records.keeping import says
from paceline.records.stored_runs import RunFolders, StoredRun, differences
from paceline.records.summary import rank_seconds, step_seconds
from paceline.reports.blocks import Answer, Block, Claim, Column, Table, TableCell
from paceline.reports.comparison.ranking import aim_of
from paceline.reports.comparison.run_table import runs_table
from paceline.reports.link_words import link_sentences, links_table
from paceline.reports.timeline_data import evenly
from paceline.reports.words import kind_of

LISTED = (WALL_TIME, STEP_TIME, STALENESS, FINAL_ACCURACY)
"""the figures in the list of runs"""
COMPARED = (
    WALL_TIME, UPDATE_COUNT, SAMPLES, THROUGHPUT, STEP_TIME, STEP_TIME_95, COMPUTING, COMMUNICATION, WAITING,
    BYTES_SENT, STALENESS, TIME_TO_ACCURACY, TIME_TO_LOSS, FINAL_ACCURACY, FINAL_LOSS,
)  # fmt: skip
"""the figures of a comparison of stored runs"""
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
    columns = [Column("run"), Column("stored"), *map(Column.of, LISTED)]
    rows = [
        (run.path.name, f"{run.written.astimezone():%Y-%m-%d %H:%M}", *(figure.of(run.summary) for figure in LISTED))
        for run in runs
    ]
    return Table(f"{len(runs)} stored run{'s' * (len(runs) != 1)}", columns, rows)


def answer_of_stored_runs(selected: Sequence[StoredRun], folders: RunFolders) -> Answer:
    """Returns the answer of `paceline runs`.

    Args:
        selected: the runs to list.
        folders: all runs, and the folders that are damaged.
    """
    document = {
        "runs": [run.document() for run in selected],
        "damaged": [{"path": str(path), "reason": reason} for path, reason in folders.damaged],
    }
    nothing = [] if folders.runs else [Claim("no stored runs")]
    return Answer("Stored runs", [runs_list(selected)] if selected else nothing, lambda: document)


def answer_of_compared_runs(runs: Sequence[StoredRun]) -> Answer:
    """Returns the answer of `paceline runs --compare`: the figures of runs, and the keys in which they differ.

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
    figures = [
        (figure, [None if (value := figure.of(run.summary)) is None else float(value) for run in runs])
        for figure in present(COMPARED, (run.summary for run in runs))
    ]
    different = list(differences(runs))
    document = {
        "runs": [str(run.path) for run in runs],
        "figures": [{"name": figure.title, "path": figure.key, "values": values} for figure, values in figures],
        "differences": [{"key": key, "values": values} for key, values in different],
    }
    numbers = [str(number) for number in range(1, len(runs) + 1)]
    legend = "\n".join(f"{number}  {run.path}" for number, run in zip(numbers, runs, strict=True))
    table = Table(
        "Figures, and below them the difference from run 1 in %",
        [Column("figure"), *(Column(number, PLAIN) for number in numbers)],
        [(figure.title, *_beside_first(figure, values)) for figure, values in figures],
    )
    rows = [(key, *(None if value is None else str(value) for value in values)) for key, values in different]
    columns = [Column("key"), *map(Column, numbers)]
    last = (
        Table("Differences of scenario, versions and machine", columns, rows)
        if different
        else Claim("The runs have the same scenario, versions and machine.")
    )
    return Answer("Stored runs side by side", [Claim(f"{legend}\n"), table, last], lambda: document)


def _beside_first(figure: Figure, values: Sequence[float | None]) -> Iterator[TableCell]:
    """Yields the value of each run, and below it the difference from the first run."""
    first = values[0]
    for number, value in enumerate(values):
        relative = f"\n{signed_percent(value / first - 1)}" if number > 0 and value is not None and first else ""
        yield TableCell(value, words=f"{figure.text(value)}{relative}")


def description(run: Run, stored: StoredRun) -> list[Block]:
    """Returns texts and tables about a run.

    Args:
        run: the run with its tables.
        stored: the same run as it was found.
    """
    heading = f"{title(run)}\n{stored.path}\n"
    parts: list[Block] = [Claim(heading), Claim("\n".join(sentences(run, stored)) + "\n"), runs_table([run])]
    if len(ranks := rank_rows(run)):
        parts.append(ranks_table(ranks))
    if len(run.tables.links):
        parts.append(links_table(run))
    if len(run.tables.evaluations):
        parts.append(evaluations_table(run))
    parts.append(files_table(stored))
    return parts


def answer_of_stored_run(run: Run, stored: StoredRun) -> Answer:
    """Returns the answer of `paceline show`.

    Args:
        run: the run with its tables.
        stored: the same run as it was found.
    """

    def document() -> dict[str, Any]:
        return {
            **stored.document(),
            "ranks": rank_rows(run),
            "scenario_document": stored.record["scenario"],
            "versions": stored.record["versions"],
            "machine": stored.record["machine"],
        }

    return Answer(title(run), description(run, stored), document)


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
    yield f"It took {WALL_TIME.with_symbol(summary['wall_s'])} of {clock}{ended}."
    yield f"{summary['updates']} updates applied gradients of {summary['samples']} samples in {summary['steps']} steps."
    yield from _goal(summary)
    staleness = summary["staleness"]
    if staleness["mean"] is not None:
        mean = STALENESS.text(staleness["mean"])
        yield f"Staleness ({staleness['notion']}) is {mean} on average, {staleness['max']} at most."
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
    reached_s = aim.figure.of(summary)
    if reached_s is None:
        yield f"It did not reach its target, {aim.words}."
    else:
        samples = summary[f"samples_to_{aim.kind}"]
        after = aim.figure.with_symbol(reached_s)
        yield f"It reached its target, {aim.words}, after {after} and {samples:.0f} samples."


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
            **{name: seconds[name] / wall_s if wall_s else None for name in ACTIVITIES},
        }
        for rank, seconds in zip(ranks, spent, strict=True)
    ]


def ranks_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Returns the table of ranks, at most `MOST_RANKS` of them.

    Args:
        rows: the rows of `rank_rows`.
    """
    left_out = f"; {len(rows) - MOST_RANKS} more are left out" if len(rows) > MOST_RANKS else ""
    columns = [Column("rank", COUNT), *map(Column.of, (STEP_TIME, STALENESS, *TIME_FRACTIONS.values()))]
    keys = ("rank", "step_s", "staleness", *TIME_FRACTIONS)
    shown = [[row[key] for key in keys] for row in rows[:MOST_RANKS]]
    return Table(f"Ranks, with fractions of their time{left_out}", columns, shown)


def evaluations_table(run: Run) -> Table:
    """Returns a table of at most `MOST_EVALUATIONS` evaluations, with the first and the last.

    Args:
        run: the run.
    """
    rows = run.tables.evaluations.to_dict("records")
    shown = evenly(len(rows), MOST_EVALUATIONS).tolist()
    columns = [
        Column("time", SECONDS, code="time_s"), Column("samples", COUNT), Column("epoch", PLAIN),
        Column.of(FINAL_LOSS), Column.of(FINAL_ACCURACY),
    ]  # fmt: skip
    keys = ("time_s", "samples", "epoch", "loss", "accuracy")
    return Table(
        f"Evaluations, {len(shown)} of {len(rows)}", columns, [[rows[at][key] for key in keys] for at in shown]
    )


def files_table(stored: StoredRun) -> Table:
    """Returns the table of the files in a run's folder; folders are one row each.

    Args:
        stored: the run.
    """
    rows = []
    for path in sorted(stored.path.iterdir()):
        inside = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
        name = f"{path.name}/ ({len(inside)} files)" if path.is_dir() else path.name
        rows.append((name, sum(file.stat().st_size for file in inside)))
    return Table("Files", [Column("name"), Column("size", BYTES, code="bytes")], rows)
