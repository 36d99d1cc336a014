"""The first section of a report of runs: what was run, what came out, in words and as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from paceline.records import Run
from paceline.records.failed_ranks import failure_sentences
from paceline.records.record_figures import says
from paceline.reports.comparison.periods import say_unfinished_runs
from paceline.reports.comparison.run_table import runs_table, seeds_table
from paceline.reports.comparison.seeds import by_algorithm, soonest
from paceline.reports.comparison.words import listed
from paceline.reports.html.grids import grid_of
from paceline.reports.html.report_parts import Grid, Section

TERMS = (
    ("worker", "a process that computes gradients; each process of a run has a number, its rank"),
    ("step", "one gradient of one worker, to the start of its next one; the last step lasts to its last activity"),
    ("update", "one change of the weights that are being learned"),
    ("staleness", "how old the weights are on which a gradient was computed, when the gradient is applied; 0 is fresh"),
    ("simulated", "computed in virtual time by a model of the cluster; training itself may be real arithmetic"),
    ("measured", "run for real, by processes that communicate through torch.distributed"),
    ("seed", "the number that determines all random choices; several seeds show how much is chance"),
)
"""terms for readers who have not seen Paceline"""


def summary_section(runs: Sequence[Run]) -> Section:
    """Returns the section.

    Args:
        runs: all runs of the report, of one scenario.
    """
    named = by_algorithm(runs)
    one_each = len(named) == len(runs)
    table = runs_table(runs) if one_each else seeds_table(runs)
    words = "" if one_each else "± is half of the 95 % interval of the mean over seeds."
    paragraphs = [introduction(runs), soonest(runs), say_unfinished_runs(runs), *_limits(runs)]
    return Section(
        id="summary",
        title="Summary",
        words=[one for one in paragraphs if one],
        parts=[grid_of(table, words=words), terms()],
    )


def introduction(runs: Sequence[Run]) -> str:
    """Returns sentences about what was run: the scenario, the methods, the workers and the seeds."""
    named = by_algorithm(runs)
    kinds = listed([kind for kind in ("simulated", "measured") if any(run.kind == kind for run in runs)])
    seeds = sorted({run.seed for run in runs})
    workers = sorted({workers_of(run) for run in runs})
    workload, nodes = runs[0].scenario.get("workload", {}), runs[0].scenario.get("cluster", {}).get("nodes")
    usual = workload.get("batch_per_worker", "some")
    own = [node.get("batch_per_worker") or usual for node in nodes] if isinstance(nodes, list) else [usual]
    batches = listed(list(dict.fromkeys(map(str, own))))
    model = workload.get("model", "a model")
    stand_in = runs[0].summary.get("stand_in")
    learned = {
        "train": f"training {stand_in}" if stand_in else f"training {model} on {workload.get('dataset')}",
        "quadratic": "minimising a noisy quadratic",
    }.get(str(workload.get("learning")), f"the times of training {model} (without learning)")
    methods = f"{len(named)} methods of distributed training" if len(named) > 1 else f"the method {next(iter(named))}"
    return (
        f"This report shows {methods}, {kinds}, {learned} with {listed([f'{one:,}' for one in workers])} "
        f"worker{'s' * (workers != [1])} and {batches} samples per worker and step: "
        f"{len(seeds)} seed{'s' * (len(seeds) > 1)} of the scenario {runs[0].name}."
    )


def workers_of(run: Run) -> int:
    """Returns the number of workers of a run, from its figures."""
    summary = run.summary
    return round(summary["steps"] / (summary["periods"] * summary["longest_period"])) if summary["periods"] else 0


def _limits(runs: Sequence[Run]) -> Iterator[str]:
    """Yields notes: sampled records, failed ranks and warnings."""
    for run in runs:
        if (records := run.summary.get("records")) is not None:
            yield f"{run.algorithm}: {says(records, workers_of(run))}"
        for text in failure_sentences(run.summary, f"{run.algorithm} with seed {run.seed}"):
            yield f"{text}."
    yield from dict.fromkeys(f"Note: {text}" for run in runs for text in run.summary.get("broken_promises", ()))
    yield from dict.fromkeys(f"Note: {text}" for run in runs for text in run.machine.get("warnings", ()))


def terms() -> Grid:
    """Returns the table of terms."""
    return Grid(title="Terms", columns=["term", "meaning"], rows=TERMS, folded=True)
