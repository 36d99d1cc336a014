"""The answer of ``paceline calibrate --steps``: how measured steps vary, and the section that repeats it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from paceline.algorithms.core.files import write_whole
from paceline.records.figures import PERCENT, SECONDS, significant
from paceline.reports.blocks import Answer, Block, Claim, Column, Row, Table
from paceline.scenarios.values.step_times import write_step_times

if TYPE_CHECKING:
    from paceline.backend.calibration.step_fit import StepFit

HEADING = """\
# How steps vary, fitted by `paceline calibrate --steps`.
# In a scenario: cluster.step_time: {file: %s}%s
"""
JOB = "\n# with several jobs, name one: cluster.step_time: {file: …, job: …}"


def fit_all(paths: Sequence[Path]) -> list[StepFit]:
    """Returns a fit of each series in some files.

    Args:
        paths: tables, stored runs and traces.

    Raises:
        InputError: a file is wrong; with all mistakes.
    """
    from paceline.backend.calibration.step_fit import fit_steps
    from paceline.backend.calibration.step_sources import read_all

    return [fit_steps(series) for series in read_all(paths)]


def save_fits(fits: Sequence[StepFit], path: Path) -> None:
    """Writes the sections of fits to a file; an interrupted write leaves an existing file as it is.

    Args:
        fits: the fits.
        path: the file.
    """
    sections = {fit.series.name: write_step_times(fit.times) for fit in fits}
    data: Mapping[str, Any] = {"step_times": sections}
    text = yaml.safe_dump(data, sort_keys=False, width=120, default_flow_style=None)
    write_whole(path, HEADING % (path.name, JOB if len(fits) > 1 else "") + text)


def fits_answer(fits: Sequence[StepFit]) -> Answer:
    """Returns the answer: what each series varies by, and how well the fitted process repeats it.

    Args:
        fits: the fits.
    """
    columns = [
        Column("job"), Column("workers"), Column("steps"), Column("variation", PERCENT), Column("persistent", PERCENT),
        Column("node", PERCENT), Column("correlated", PERCENT), Column("lasts", SECONDS), Column("noise", PERCENT),
    ]  # fmt: skip
    rows: list[Row] = []
    for fit in fits:
        times, own = fit.times, 1.0 - fit.persistent
        shape = fit.series.seconds.shape
        lasts_s = times.correlation_time_s if times.correlated else None
        shares = [own * share for share in (times.node, times.correlated)]
        known = fit.series.name, str(shape[0]), str(shape[1]), fit.variation, fit.persistent
        rows.append((*known, *shares, lasts_s, own * times.noise))
    words = (
        "Variation: the standard deviation of all steps over their mean. The other columns are shares of the variance: "
        "what lasts for the whole series, what the workers of a node have in common, what changes slowly, and what is "
        "new in every step."
    )
    blocks: list[Block] = [
        Table("How steps vary", columns, rows, words=words),
        _slowdowns(fits),
        _correlations(fits),
        _distances(fits),
        _halves(fits),
    ]
    blocks += [Claim(_conclusion(fit)) for fit in fits]
    return Answer("Step times", blocks, lambda: {"jobs": [_document(fit) for fit in fits]}, notes=_notes(fits))


def _slowdowns(fits: Sequence[StepFit]) -> Table:
    columns = [
        Column("job"), Column("steps between waits"), Column("measured"), Column("fitted"),
        Column("error", signed=True),
    ]  # fmt: skip
    rows: list[Row] = [
        (fit.series.name, str(period), significant(measured), significant(fitted), fitted / measured - 1)
        for fit in fits
        for period, measured, fitted in fit.compared
    ]
    words = "The time of a run that waits for all workers after so many steps, over that of a run without waiting."
    return Table("Slowdown by waiting", columns, rows, keys=2, words=words)


def _correlations(fits: Sequence[StepFit]) -> Table:
    columns = [Column("job"), Column("steps apart"), Column("measured"), Column("fitted")]
    rows: list[Row] = []
    for fit in fits:
        rows += [
            (fit.series.name, str(lag), f"{measured:.2f}", f"{fitted:.2f}")
            for lag, measured, fitted in fit.correlations
        ]
    return Table("Correlation of a worker's steps", columns, rows, keys=2)


def _halves(fits: Sequence[StepFit]) -> Table:
    columns = [Column(name) for name in ("job", "difference", "measured", "most in runs", "from first half")]
    rows: list[Row] = []
    for fit in fits:
        rows += [
            (fit.series.name, name, *(f"{figure:.2f}" for figure in halves))
            for name, halves in (("largest change", fit.change), ("distance", fit.distance_of_halves))
        ]
    words = (
        "The largest factor by which a worker's mean changes, relative to the mean of all workers, and the distance of "
        f"the distributions of all steps: measured, the most in {len(fits[0].runs)} runs of the fitted process, and "
        "the most in as many runs of the process that is fitted to the first half alone."
    )
    return Table("First and second half", columns, rows, keys=2, words=words)


def _distances(fits: Sequence[StepFit]) -> Table:
    laws = list(dict.fromkeys(law for fit in fits for law in fit.distances))
    rows: list[Row] = [
        (fit.series.name, *(f"{fit.distances[law]:.3f}" if law in fit.distances else None for law in laws))
        for fit in fits
    ]
    words = (
        "The largest difference of two distribution functions (Kolmogorov–Smirnov): that of all steps and that of the "
        "fitted process, or the best fit of a named distribution."
    )
    return Table("Distance of the distribution of steps", [Column("job"), *map(Column, laws)], rows, words=words)


def _conclusion(fit: StepFit) -> str:
    """Says what would remove the waiting."""
    often, rarely = fit.series.slowdown(1) - 1, fit.series.slowdown(min(32, fit.series.seconds.shape[1])) - 1
    if often < 0.01:
        return f"{fit.series.name}: workers hardly wait for each other ({100 * often:.2g} %)."
    left = max(0.0, rarely / often)
    cure = (
        "Waiting less often hardly helps: the same workers are slow for long. Rebalance their batches or replace slow "
        "nodes."
        if left > 0.7
        else "Waiting less often removes most of it: the slowest worker is another one in every step."
        if left < 0.3
        else "Waiting less often removes a part of it; rebalancing batches of slow workers removes another."
    )
    return (
        f"{fit.series.name}: waiting after every step costs {100 * often:.0f} %, after every 32 steps "
        f"{100 * rarely:.0f} %. {cure}"
    )


def _notes(fits: Sequence[StepFit]) -> list[str]:
    notes = [
        f"{fit.series.name}: a worker changes by a factor of {fit.change.measured:.2f} between the first and the "
        f"second half, and by at most {fit.change.most_from_first:.2f} in {len(fit.runs)} runs of the process that is "
        "fitted to the first half; the fit to the whole series is an average over its regimes, and cannot predict "
        "which one comes next"
        for fit in fits
        if fit.change.measured > fit.change.most_from_first
    ]
    if assumed := [fit.series.name for fit in fits if fit.series.assumed]:
        notes.append(
            f"{', '.join(assumed)}: no column says when a step began; assumed that all workers began each step "
            "together, when the slowest had ended the one before"
        )
    if unknown := [fit.series.name for fit in fits if not fit.series.nodes]:
        notes.append(
            f"{', '.join(unknown)}: no column says the node of a worker; what all have in common counts as that of one"
        )
    return notes


def _document(fit: StepFit) -> dict[str, Any]:
    return {
        "job": fit.series.name,
        "variation": fit.variation,
        "persistent": fit.persistent,
        "lag_1": fit.lag_1,
        "slowdown": [{"steps": period, "measured": was, "fitted": again} for period, was, again in fit.compared],
        "correlation": [{"steps": lag, "measured": was, "fitted": again} for lag, was, again in fit.correlations],
        "distance": fit.distances,
        "change_between_halves": fit.change._asdict(),
        "distance_of_halves": fit.distance_of_halves._asdict(),
        "step_time": write_step_times(fit.times),
    }
