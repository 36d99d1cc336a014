"""The answer of `simulate` and `train`: the figures of runs, which of them reaches the target soonest, and notes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from paceline.algorithms.core.errors import InputError
from paceline.records import Run
from paceline.records.faults import failure_sentences
from paceline.records.figures import PERCENT
from paceline.records.keeping import says
from paceline.records.step_errors import StepErrors, sentence
from paceline.reports.blocks import Answer, Block, Claim, ReportSection
from paceline.reports.comparison.ranking import by_algorithm, figures, say_unfinished_runs, soonest
from paceline.reports.comparison.run_table import runs_table, seeds_table
from paceline.reports.extrapolation_table import extrapolation_table, lines_of, words
from paceline.reports.link_words import links_table
from paceline.reports.words import listed


def answer_of_runs(runs: Sequence[Run], *, each: bool = False, links: bool = False) -> Answer:
    """Returns the answer of simulated or measured runs of one scenario.

    Args:
        runs: the runs, of any algorithms and seeds.
        each: whether each run has a row, too, if there are several seeds.
        links: whether there is a table of the busiest links of each run.

    Raises:
        InputError: there is no run, or the runs are of several scenarios.

    >>> import paceline
    >>> answer = answer_of_runs(paceline.simulate(paceline.load("quickstart", ["stop.epochs=1"], algorithms=["agd"])))
    >>> [type(block).__name__ for block in answer.blocks], list(answer.data())
    (['Table', 'Claim'], ['scenario', 'runs', 'figures'])
    """
    if not runs:
        raise InputError("runs: found none, expected at least one run")
    if len(names := dict.fromkeys(run.name for run in runs)) > 1:
        raise InputError(f"found runs of the scenarios {listed(list(names))}; expected runs of one scenario")
    one_each = len(by_algorithm(runs)) == len(runs)
    blocks: list[Block] = [runs_table(runs)] if one_each or each else []
    blocks += [] if one_each else [seeds_table(runs)]
    blocks += [links_table(run, named=True) for run in runs if links and len(run.tables.links)]
    blocks += [Claim(text) for text in (soonest(runs), say_unfinished_runs(runs)) if text]
    blocks += [Claim(sentence(errors)) for errors in published_errors_of(runs)]
    if lines := lines_of(runs):
        blocks += [extrapolation_table(lines), Claim(words(lines))]

    def summary() -> Sequence[Block]:
        from paceline.reports.provenance import terms

        return [*broken_promises(runs), terms()]

    def sections() -> Sequence[ReportSection]:
        from paceline.reports.run_report import sections_of_runs

        return sections_of_runs(runs)

    return Answer(
        title=f"{runs[0].name}: {_kinds(runs)} runs",
        blocks=blocks,
        data=lambda: document_of(runs),
        subtitle=introduction(runs),
        sections=sections,
        summary=summary,
        notes=list(notes_of(runs)),
    )


def published_errors_of(runs: Sequence[Run]) -> list[StepErrors]:
    """Returns the errors of the published steps that are similar to those of simulated runs, each once."""
    errors = [error for run in runs if run.kind == "simulated" for error in run.summary.get("published_errors", ())]
    return list({sentence(error): error for error in errors}.values())


def broken_promises(runs: Sequence[Run]) -> list[Claim]:
    """Returns which promises of methods small runs have broken; a command has said this before the runs.

    Args:
        runs: the runs.
    """
    texts = chain.from_iterable(run.summary.get("broken_promises", ()) for run in runs)
    return [Claim(f"Note: {text}") for text in dict.fromkeys(texts)]


def introduction(runs: Sequence[Run]) -> str:
    """Returns a sentence about what was run: the scenario, the methods, the workers and the seeds."""
    named = by_algorithm(runs)
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
        f"This report shows {methods}, {_kinds(runs)}, {learned} with {listed([f'{count:,}' for count in workers])} "
        f"worker{'s' * (workers != [1])} and {batches} samples per worker and step: "
        f"{len(seeds)} seed{'s' * (len(seeds) > 1)} of the scenario {runs[0].name}."
    )


def _kinds(runs: Sequence[Run]) -> str:
    return listed([kind for kind in ("simulated", "measured") if any(run.kind == kind for run in runs)])


def workers_of(run: Run) -> int:
    """Returns the number of workers of a run, from its figures."""
    summary = run.summary
    return round(summary["steps"] / (summary["periods"] * summary["longest_period"])) if summary["periods"] else 0


def document_of(runs: Sequence[Run]) -> dict[str, Any]:
    """Returns the JSON document of runs.

    Args:
        runs: the runs.
    """
    document: dict[str, Any] = {
        "scenario": runs[0].name,
        "runs": [_described(run) for run in runs],
        "figures": [
            {"algorithm": name, **figures([dict(run.summary) for run in of_one])}
            for name, of_one in by_algorithm(runs).items()
        ],
    }
    return document | ({"extrapolated": lines} if (lines := lines_of(runs)) else {})


def _described(run: Run) -> dict[str, Any]:
    return {
        "algorithm": run.algorithm,
        "seed": run.seed,
        "kind": run.kind,
        "summary": run.summary,
        "path": str(run.path),
        "warnings": list(run.machine.get("warnings", ())),
        **{key: run.machine[key] for key in ("gradient_times",) if key in run.machine},
    }


def notes_of(runs: Sequence[Run]) -> Iterator[str]:
    """Yields what a reader should know beside the figures: ranges, warnings, estimates and ranks that died.

    Args:
        runs: the runs.
    """
    from paceline.scenarios.resolution.fitted_ranges import describe_time

    both = len({run.kind for run in runs}) > 1
    notes = [describe_time(times) for run in runs for times in run.machine.get("gradient_times", ())]
    if shares := {run.summary["prediction_interval"]["share"] for run in runs if "prediction_interval" in run.summary}:
        notes.append(f"a range below a time: {PERCENT.with_symbol(min(shares))} of similar predictions")
    notes += [text for run in runs for text in run.machine.get("warnings", ())]
    for run in runs:
        if (records := run.summary.get("records")) is not None:
            workers = int((run.tables.ranks["gradients"] > 0).sum())
            notes.append(f"{run.algorithm}: {says(records, workers)}")
    for run in runs:
        name = f"{run.algorithm} with seed {run.seed}{f' ({run.kind})' if both else ''}"
        notes += failure_sentences(run.summary, name)
    yield from dict.fromkeys(notes)
