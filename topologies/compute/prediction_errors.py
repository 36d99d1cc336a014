"""Intervals of predictions, from the errors of similar predictions with their rows left out of the fit.

Similar are predictions of the same kind of device (GPUs; processors and many-core chips) and of the same class of
precision, for a chip with published rows (of other models) or without any. `SHARE` of the errors of such predictions
lie within the interval.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from paceline.topologies.catalogue.device import Interval
from paceline.topologies.catalogue.device_catalogue import DATA, Spec
from paceline.topologies.compute.device_parameters import chip_key, precision_class

FILE = DATA / "prediction_errors.csv"
CHIPS = DATA / "chip_errors.csv"
SHARE = 0.8
FEWEST = 15
"""errors that an interval is made from; with fewer, those of all precisions count"""
CLASSES = ("full", "half", "tensor")


@dataclass(frozen=True, slots=True)
class LeftOut:
    """The error of a prediction whose rows were left out of the fit.

    Args:
        host: whether the device is a processor or a many-core chip.
        precision: the class of precision.
        known: whether other rows of the chip were in the fit.
        error: ln(predicted seconds / measured seconds).
    """

    host: bool
    precision: str
    known: bool
    error: float


@dataclass(frozen=True, slots=True)
class ErrorRange:
    """The range of the errors of similar predictions.

    Args:
        low, high: quantiles of ln(predicted / measured).
        rows: the number of errors.
    """

    host: bool
    precision: str
    known: bool
    low: float
    high: float
    rows: int


def ranges(errors: Iterable[LeftOut]) -> list[ErrorRange]:
    """Returns the range of errors of every kind of device and class of precision, for chips with and without rows."""
    errors, of_group = list(errors), []
    for host in (False, True):
        for known in (False, True):
            alike = [error for error in errors if (error.host, error.known) == (host, known)]
            for precision in CLASSES:
                same = [known_error.error for known_error in alike if known_error.precision == precision]
                used = same if len(same) >= FEWEST else [known_error.error for known_error in alike]
                if used:
                    of_group.append(ErrorRange(host, precision, known, *_quantiles(used), len(used)))
    return of_group


def _quantiles(errors: Sequence[float]) -> tuple[float, float]:
    import numpy as np  # here, because `paceline list devices` does without

    low, high = np.quantile(errors, [(1 - SHARE) / 2, (1 + SHARE) / 2])
    return float(low), float(high)


@cache
def _read() -> dict[tuple[bool, str, bool], ErrorRange]:
    with FILE.open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    rows = [
        ErrorRange(
            line["host"] == "yes", line["precision"], line["known"] == "yes", float(line["low"]), float(line["high"]),
            int(line["rows"]),
        )
        for line in lines
    ]  # fmt: skip
    return {(row.host, row.precision, row.known): row for row in rows}


@dataclass(frozen=True, slots=True)
class ChipError:
    """How far off a chip is predicted from all others.

    Args:
        rows: published rows of the chip, and of cards with the same arithmetic.
        error: the mean of |predicted / published rate − 1| with these rows left out of the fit.
    """

    rows: int
    error: float


@cache
def _chips() -> dict[str, ChipError]:
    with CHIPS.open(newline="", encoding="utf-8") as file:
        return {row["chip"]: ChipError(int(row["rows"]), float(row["error"])) for row in csv.DictReader(file)}


def chip_error(spec: Spec) -> ChipError | None:
    """Returns the published rows of a chip and the error of their prediction from other chips; None without rows.

    >>> from paceline.topologies.catalogue.device_catalogue import SPECS
    >>> chip_error(SPECS["h100-sxm5"]) == chip_error(SPECS["h200"]), chip_error(SPECS["l40s"])
    (True, None)
    """
    return _chips().get(chip_key(spec))


def basis(spec: Spec) -> str:
    """Says which published rows the predictions of a device rest on, and how wide their interval is."""
    measured = chip_error(spec)
    half = max(spec.peaks, key=lambda name: spec.peaks[name] if name != "fp8" else 0.0)
    interval = interval_of(spec, half, known=measured is not None)
    width = f"{interval.low - 1:+.0%} to {interval.high - 1:+.0%} of a predicted time in {half}"
    if measured is None:
        return f"no published rows; interval {width}, by the errors of other chips, each left out"
    rows = f"{measured.rows} published row{'s' if measured.rows > 1 else ''}"
    return f"{rows}, {measured.error:.0%} off when left out; interval {width}"


def interval_of(spec: Spec, precision: str, *, known: bool) -> Interval:
    """Returns the interval of a predicted time.

    Args:
        spec: the device.
        precision: of the arithmetic.
        known: whether throughput of the chip was published.
    """
    group = precision_class(spec, precision)
    errors = _read()[spec.kind != "gpu", group, known]
    chips = "chips with published throughput" if known else "chips without published throughput"
    what = "processors" if errors.host else "GPUs"
    words = f"{errors.rows} predictions of {what} ({chips}; arithmetic: {group}), each left out of its fit"
    return Interval(math.exp(-errors.high), math.exp(-errors.low), SHARE, words)
