"""The errors of a table by system: by the catalogue, and with two factors fitted on half of the sizes.

Rules of this file:

* A row that cannot be read is listed with its reason and counted; it never stops the others.
* Errors are |predicted − measured| / measured for each row, averaged by system, then averaged over systems.
* Of the sorted sizes of a system, those at even places (the first, the third …) are used for the fit and those at odd
  places for the test, with all their rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import optimize

from paceline.algorithms.core.errors import PacelineError
from paceline.validation.machines import Row, Unread, number, read
from published_timings.predictions import (
    Job,
    LeftOut,
    costs,
    gradient_parts_s,
    interval_of_row,
    job_of,
    kind_of,
    same_job,
    scaled_images_per_s,
    step_s,
)

LEAST_SIZES = 6
PULL = 0.003
"""weight of a regularisation towards the catalogue: two factors that few rows cannot separate stay near it"""

SMALL = 0.05
"""errors below this count as squares"""

Floats = npt.NDArray[np.float64]
Ways = Sequence[Sequence[tuple[float, float]]]
"""for each row, (latency_s, transfer_s) of each way"""


def mean_error(predicted: Sequence[float], measured: Sequence[float]) -> float | None:
    """Returns the mean absolute percentage error, as a fraction; None for no rows.

    >>> mean_error([1.1, 1.5], [1.0, 2.0])
    0.175
    """
    if not measured:
        return None
    return round(math.fsum(abs(p - m) / m for p, m in zip(predicted, measured, strict=True)) / len(measured), 12)


def mean_of(errors: Sequence[float | None]) -> float | None:
    """Returns the mean of the values that are not None."""
    known = [error for error in errors if error is not None]
    return math.fsum(known) / len(known) if known else None


def halves(sizes: Sequence[float]) -> tuple[list[int], list[int]] | None:
    """Returns the places of the rows to fit and of those to test; None if there are too few sizes.

    >>> halves([1, 1, 2, 3, 4, 5, 6])
    ([0, 1, 3, 5], [2, 4, 6])
    """
    known = sorted(set(sizes))
    if len(known) < LEAST_SIZES:
        return None
    fitted = set(known[::2])
    return (
        [place for place, size in enumerate(sizes) if size in fitted],
        [place for place, size in enumerate(sizes) if size not in fitted],
    )


def predicted_s(ways: Ways, factors: tuple[float, float]) -> list[float]:
    """Returns the seconds of each row: λ · latency + transfer / σ of its cheapest way."""
    return [min(factors[0] * latency + transfer / factors[1] for latency, transfer in row) for row in ways]


def fitted(ways: Ways, measured_s: Sequence[float]) -> tuple[float, float]:
    """Returns λ and σ that minimise the mean of |predicted − measured| / measured, smoothed below `SMALL`.

    This is the error that is reported. Absolute values prevent that a measurement far off dominates the fit. The search
    starts from the best point of a grid.

    Args:
        ways: One or more ways for each row.
        measured_s: Seconds of each row.

    >>> ways = [[(1.0, 0.1 * n)] for n in (1, 10, 100, 1000)]
    >>> [round(factor, 1) for factor in fitted(ways, predicted_s(ways, (2.0, 0.5)))]
    [2.0, 0.5]
    """
    widest = max(map(len, ways))
    padded = np.array([list(row) + [row[-1]] * (widest - len(row)) for row in ways])
    latency, transfer, measured = padded[:, :, 0], padded[:, :, 1], np.array(measured_s)

    def loss(logs: Floats) -> float:
        seconds = np.min(math.exp(logs[0]) * latency + transfer / math.exp(logs[1]), axis=1)
        errors = 2 * SMALL**2 * (np.sqrt(1 + ((seconds / measured - 1) / SMALL) ** 2) - 1)
        return float(np.mean(errors) + PULL * np.sum(np.square(logs)))

    start = optimize.brute(loss, ((-2.0, 2.5), (-2.0, 1.5)), Ns=41, finish=None)
    minimum = optimize.minimize(loss, start, method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-9})
    return math.exp(minimum.x[0]), math.exp(minimum.x[1])


# --- systems ----------------------------------------------------------------------------------------------------------

MISS = 0.15
"""errors above this are listed"""
CATALOGUE = (1.0, 1.0)
"""factors that change nothing; then the product's own choice of a way counts"""


@dataclass(frozen=True, slots=True)
class Case:
    """A row and its prediction.

    Args:
        system: The system of the row.
        size: The value by which the rows of a system are sorted.
        ways: (latency_s, transfer_s) of each way to run it, the library's choice first.
        measured_s: The published seconds.
        label: A short label of the row.
        remarks: The notes of the row and our assumptions.
        interval: Factors of the predicted time, between which most similar measurements lie.
        is_rate: Whether the published figure is a rate: the error is that of 1 / seconds.
    """

    system: str
    size: float
    ways: tuple[tuple[float, float], ...]
    measured_s: float
    label: str
    remarks: str
    is_rate: bool = False
    interval: tuple[float, float] | None = None

    @property
    def inside(self) -> bool | None:
        """Whether the measurement lies within the interval of the catalogue's prediction; None if it has none."""
        if self.interval is None:
            return None
        predicted = sum(self.ways[0])
        return self.interval[0] * predicted <= self.measured_s <= self.interval[1] * predicted


@dataclass(frozen=True, slots=True)
class Skipped:
    """A row that is not predicted."""

    system: str
    row: int
    reason: str


@dataclass(frozen=True, slots=True)
class System:
    """A system and its errors, as fractions; None where nothing was tested.

    Args:
        swapped: The error with the halves exchanged: fitted on the usual test half, and tested on the other.
    """

    name: str
    cases: tuple[Case, ...]
    catalogue: float
    tested: float | None
    swapped: float | None
    factors: tuple[float, float] | None
    misses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Section:
    """All systems of a table."""

    systems: tuple[System, ...]
    skipped: tuple[Skipped, ...]

    def mean(self, figure: Literal["catalogue", "tested", "swapped"]) -> float | None:
        """Returns the mean of an error over systems."""
        return mean_of([getattr(system, figure) for system in self.systems])


def collective_case(row: Row) -> Case:
    """Reads a row of collectives. Raises `Unread`."""
    machine, nbytes = read(row), number(row, "bytes")
    kind = kind_of(str(row.get("collective") or ""))
    ways = costs(machine, kind, nbytes)
    notes = str(row.get("notes") or "").strip()
    return Case(
        system=_name(row, "system"),
        size=nbytes,
        ways=tuple((cost.latency_s, cost.transfer_s) for cost in ways),
        measured_s=number(row, "time_us") * 1e-6,
        label=f"{kind} of {nbytes:.0f} B, {machine.ranks} ranks, {ways[0].name}",
        remarks="; ".join(filter(None, [*machine.assumed, notes])),
    )


def throughput_case(row: Row, left_out: LeftOut = "chip", chips: frozenset[str] = frozenset()) -> Case:
    """Reads a row of throughput. A system is a device with a framework, a size the operations of a step.

    Args:
        row: The row.
        left_out: The kind of rows that the device model is fitted without.
        chips: Keys of the chips that may be left out.

    Raises:
        Unread: No prediction can be made for the row.
    """
    job = job_of(row)
    fixed_s, rest_s = gradient_parts_s(job, left_out, chips)
    interval = interval_of_row(job, chips)
    rest_s = step_s(job, fixed_s + rest_s) - fixed_s
    return Case(
        system=f"{_name(row, 'device')} / {_name(row, 'framework')}",
        size=_operations(job),
        ways=((fixed_s, rest_s),),
        measured_s=job.step_s,
        label=f"{job.model.name}, {job.devices} x {job.batch:g}, {job.precision}",
        remarks=str(row.get("notes") or "").strip(),
        is_rate=True,
        interval=(interval.low, interval.high),
    )


def _operations(job: Job) -> float:
    return job.devices * job.batch * job.model.training_flops


def _name(row: Row, column: str) -> str:
    return str(row.get(column) or "").strip() or f"no {column} named"


def section(rows: Iterable[Row], make: Callable[[Row], Case], column: str) -> Section:
    """Returns all systems of a table, and the rows that are not predicted."""
    cases: dict[str, list[Case]] = {}
    skipped = []
    for place, row in enumerate(rows, start=2):  # line numbers as in an editor: the first line has the names
        try:
            case = make(row)
            cases.setdefault(case.system, []).append(case)
        except PacelineError as error:
            skipped.append(Skipped(_name(row, column), place, str(error)))
    return Section(tuple(_system(name, own) for name, own in cases.items()), tuple(skipped))


def _error(cases: Sequence[Case], factors: tuple[float, float]) -> float | None:
    ways = [case.ways[:1] if factors == CATALOGUE else case.ways for case in cases]
    seconds = predicted_s(ways, factors)
    pairs = [
        (1 / s, 1 / case.measured_s) if case.is_rate else (s, case.measured_s)
        for s, case in zip(seconds, cases, strict=True)
    ]
    return mean_error([predicted for predicted, _ in pairs], [measured for _, measured in pairs])


def _system(name: str, cases: Sequence[Case]) -> System:
    split = halves([case.size for case in cases])
    catalogue = _error(cases, CATALOGUE)
    assert catalogue is not None  # a system has at least one row
    if split is None:
        return System(name, tuple(cases), catalogue, None, None, None, _misses(cases, cases, CATALOGUE))
    fit, test = ([cases[place] for place in half] for half in split)
    factors, exchanged = (
        fitted([case.ways for case in half], [case.measured_s for case in half]) for half in (fit, test)
    )
    misses = _misses(test, cases, factors)
    return System(name, tuple(cases), catalogue, _error(test, factors), _error(fit, exchanged), factors, misses)


def _misses(shown: Sequence[Case], cases: Sequence[Case], factors: tuple[float, float]) -> tuple[str, ...]:
    """Returns the rows with errors above `MISS`, with hints on the cause."""
    lines = []
    for case in shown:
        predicted = predicted_s([case.ways[:1] if factors == CATALOGUE else case.ways], factors)[0]
        if abs(predicted - case.measured_s) > MISS * case.measured_s:
            why = case.remarks or _why(case, cases, factors)
            lines.append(
                f"{case.label}: predicted {predicted * 1e3:.4g} ms, measured {case.measured_s * 1e3:.4g} ms "
                f"({predicted / case.measured_s - 1:+.0%}): {why}"
            )
    return tuple(lines)


def _why(case: Case, cases: Sequence[Case], factors: tuple[float, float]) -> str:
    """Returns hints from the table itself: not monotonic, bound by latency or by bandwidth."""
    smaller = [
        other for other in cases if other.size < case.size and other.label.split(",")[1:2] == case.label.split(",")[1:2]
    ]
    if any(other.measured_s > case.measured_s for other in smaller):
        return "a smaller size took longer in the same table"
    latency_s, transfer_s = min(case.ways, key=lambda way: factors[0] * way[0] + way[1] / factors[1])
    bound = "latency" if factors[0] * latency_s > transfer_s / factors[1] else "bandwidth"
    what = "the catalogue is off" if factors == CATALOGUE else "two factors do not carry this size"
    return f"bound by {bound}, as modelled; {what}"


def scaling(rows: Sequence[Row]) -> tuple[list[tuple[Job, float]], list[Skipped]]:
    """Returns jobs on several devices with predicted images per second, if the same job on one device was published."""
    alone: dict[tuple[str, ...], Row] = {same_job(row): row for row in rows if _devices(row) == 1}
    jobs, skipped = [], []
    for place, row in enumerate(rows, start=2):
        if _devices(row) > 1 and same_job(row) in alone:
            try:
                job = job_of(row)
                jobs.append((job, scaled_images_per_s(job, job_of(alone[same_job(row)]))))
            except PacelineError as error:
                skipped.append(Skipped(_name(row, "device"), place, str(error)))
    return jobs, skipped


def _devices(row: Mapping[str, str]) -> float:
    try:
        return number(row, "n_devices")
    except Unread:
        return 0.0
