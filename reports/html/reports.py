"""Builds reports: of runs, of a comparison, of a sweep, of a plan and of a check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.algorithms.core.errors import InputError
from paceline.records import Run
from paceline.reports.comparison.seeds import by_algorithm
from paceline.reports.comparison.words import listed
from paceline.reports.html.report_parts import Report, Section

if TYPE_CHECKING:
    from paceline.checking.counterexamples import Counterexample
    from paceline.reports.blocks import Answer
    from paceline.reports.comparison.compare import Comparison
    from paceline.reports.sweeps.sweep_table import SweepTable


def report_of(paths: Sequence[Path]) -> Report | Answer:
    """Returns the report of stored results.

    Args:
        paths: folders of runs, or one comparison, sweep or plan, or counterexamples.

    Raises:
        InputError: a path is none of these, or they do not go together.
    """
    from paceline.reports.html.sources import read_source

    source = read_source(paths)
    match source.kind:
        case "runs":
            return report_of_runs(source.runs, notes=source.notes)
        case "comparison":
            return report_of_comparison(source.answer, source.runs)
        case "sweep":
            assert source.table is not None, "the table of a sweep is read with it"
            return report_of_sweep(source.table, source.request.get("scenario"))
        case "plan":
            return report_of_plan(source.answer, source.request, source.trials)
    return report_of_check(source.counterexamples, source.answers)


def report_of_runs(runs: Sequence[Run], *, notes: Sequence[str] = ()) -> Report:
    """Returns the report of simulated or measured runs of one scenario.

    Args:
        runs: the runs, of any algorithms and seeds.
        notes: further sentences for the summary.

    Raises:
        InputError: there is no run, or the runs are of several scenarios.
    """
    from dataclasses import replace

    from paceline.reports.html.sections.summary import summary_section

    check_runs(runs)
    kinds = listed([kind for kind in ("simulated", "measured") if any(run.kind == kind for run in runs)])
    named, seeds = by_algorithm(runs), {run.seed for run in runs}
    summary = summary_section(runs)
    return Report(
        title=f"{runs[0].name}: {kinds} runs",
        subtitle=f"{listed(list(named))}; {len(seeds)} seed{'s' * (len(seeds) > 1)}",
        sections=[replace(summary, words=[*summary.words, *notes]), *_sections_of_runs(runs)],
    )


def check_runs(runs: Sequence[Run]) -> None:
    """Raises `InputError` if runs cannot be shown in one report."""
    if not runs:
        raise InputError("found no run, expected at least one")
    if len(names := dict.fromkeys(run.name for run in runs)) > 1:
        raise InputError(f"found runs of the scenarios {listed(list(names))}; expected runs of one scenario")


def _sections_of_runs(runs: Sequence[Run], *errors: Section) -> list[Section]:
    """Returns the sections of runs after the summary; sections of errors are third."""
    from paceline.reports.html.sections.learning import learning_section
    from paceline.reports.html.sections.links import links_section
    from paceline.reports.html.sections.scenario import scenario_section
    from paceline.reports.html.sections.staleness import staleness_section
    from paceline.reports.html.sections.summary import workers_of
    from paceline.reports.html.sections.time_use import time_section
    from paceline.reports.html.sections.timeline import timeline_section
    from paceline.reports.html.sections.versions import versions_section

    assumptions = list(dict.fromkeys(text for run in runs for text in run.machine.get("assumptions", ())))
    made = [
        learning_section(runs),
        *errors,
        timeline_section(runs),
        staleness_section(runs),
        time_section(runs),
        links_section(runs),
        scenario_section(scenario_of(runs), assumptions, max(map(workers_of, runs))),
        versions_section(runs),
    ]
    return [section for section in made if section is not None]


def scenario_of(runs: Sequence[Run]) -> dict[str, Any]:
    """Returns the scenario of runs, with the methods and the seeds of all of them."""
    first = dict(runs[0].scenario)
    methods = [method for mine in by_algorithm(runs).values() for method in mine[0].scenario.get("algorithms", ())]
    seeds = sorted({run.seed for run in runs})
    distinct = [one for at, one in enumerate(methods) if one not in methods[:at]]
    return {**first, "algorithms": distinct, "seed": seeds[0], "seeds": len(seeds)}


def report_of_comparison(comparison: Comparison | Mapping[str, Any], runs: Sequence[Run] | None = None) -> Report:
    """Returns the report of a comparison.

    Args:
        comparison: the comparison, or its JSON answer; of the latter, ``words`` is the conclusion.
        runs: its simulated and measured runs; None: those of the comparison.
    """
    from paceline.reports.html.sections.errors import MAIN, errors_chart, errors_grid, errors_section
    from paceline.reports.html.sections.summary import introduction, terms

    if isinstance(comparison, Mapping):
        answer, words = comparison, str(comparison.get("words", ""))
    else:
        from paceline.reports.comparison.conclusion import conclusion

        answer, words = comparison.document(), conclusion(comparison)
        if runs is None:
            runs = [run for line in comparison.lines for run in (*line.predicted_runs, *line.measured_runs)]
    runs = runs or []
    errors = errors_section(answer)
    first = introduction(runs) if runs else ""
    paragraphs = [first, words, *_missing(answer, runs)]
    summary = Section(
        id="summary",
        title="Summary",
        words=[one for one in paragraphs if one],
        parts=[errors_chart(answer["algorithms"]), errors_grid(answer["algorithms"], MAIN), terms()],
    )
    rest = _sections_of_runs(runs, errors) if runs else [errors]
    return Report(
        title=f"{answer['scenario']}: predicted and measured",
        subtitle=listed([line["name"] for line in answer["algorithms"]]),
        sections=[summary, *rest],
    )


def _missing(answer: Mapping[str, Any], runs: Sequence[Run]) -> list[str]:
    expected = len(answer.get("runs", ()))
    if len(runs) >= expected:
        return []
    return [f"{expected - len(runs)} of {expected} runs of this comparison were not found, so charts lack them."]


def report_of_sweep(table: SweepTable, scenario: Mapping[str, Any] | None = None) -> Answer:
    """Returns the report of a sweep.

    Args:
        table: its table.
        scenario: the scenario of its first point; None if it is not known.
    """
    from paceline.reports.sweeps.sweep_answer import sweep_answer

    return _with_scenario(sweep_answer(table), scenario)


def _with_scenario(answer: Answer, scenario: Mapping[str, Any] | None) -> Answer:
    """Returns an answer with the sections that every report has: its scenario, if it is known, and the versions."""
    from dataclasses import replace

    from paceline.reports.html.sections.scenario import scenario_section
    from paceline.reports.html.sections.summary import terms
    from paceline.reports.html.sections.versions import versions_section

    known = [] if scenario is None else [scenario_section(scenario)]
    return replace(
        answer,
        summary=lambda: [*answer.summary(), terms()],  # type: ignore[list-item]  # renderers take both kinds
        sections=lambda: [*answer.sections(), *known, versions_section()],  # type: ignore[list-item]
    )


def report_of_plan(
    answer: Mapping[str, Any], request: Mapping[str, Any], trials: Sequence[Mapping[str, Any]] = ()
) -> Answer:
    """Returns the report of a plan.

    Args:
        answer: the JSON answer of ``paceline plan``; ``words`` is the answer in sentences.
        request: the content of request.json.
        trials: the rows of trials.csv.
    """
    from paceline.reports.planning.plan_blocks import answer_of_plan

    scenario = request["scenario"]
    return _with_scenario(answer_of_plan(answer, scenario["name"], trials), scenario)


def report_of_check(counterexamples: Sequence[Counterexample], answers: Sequence[Mapping[str, Any]] = ()) -> Report:
    """Returns the report of a check.

    Args:
        counterexamples: the counterexamples that were found.
        answers: the JSON answers of ``paceline check``, one for each method; empty if they were not stored.
    """
    from paceline.reports.html.sections.counterexamples import check_summary_section, counterexample_sections
    from paceline.reports.html.sections.versions import versions_section

    names = list(dict.fromkeys([one["algorithm"] for one in answers] + [one.story.method for one in counterexamples]))
    count = len(counterexamples)
    return Report(
        title=f"Check of {listed(names)}",
        subtitle=f"{count or 'no'} counterexample{'s' * (count != 1)}",
        sections=[
            check_summary_section(counterexamples, answers),
            *counterexample_sections(counterexamples),
            versions_section(),
        ],
    )
