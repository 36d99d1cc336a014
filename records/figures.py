"""Every figure of a run, declared once: key, names, unit, which way is better, and how its error is measured.

* Tables, charts, comparisons, sweeps, plans, filters and the reference page take figures from here and choose among
  them. None of them has a unit or a number of digits of its own.
* A figure prints the same in every output, with the digits of its unit: three significant ones, if neither the unit nor
  the figure says otherwise; counts in full. Half of an interval has `UNCERTAIN` digits.
* A value is a number, None if a run does not have it, or an interval ``{mean, low, high}`` over seeds.
* `compute` says how a figure of one run follows from what was reduced from its record (`summary.Reduced`). Figures
  without it compare several runs, or need prices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from paceline.records.summary import Reduced

ACTIVITIES: tuple[str, ...] = ("compute", "load", "update", "communication", "wait")
"""the activities to which a rank's time is assigned; rows of `spans` can also have those of `FAULTS`"""
MISSING = "–"
"""printed in place of a figure that a run does not have"""


def significant(value: float, digits: int = 3) -> str:
    """Returns a number with so many significant digits, without an exponent where people read numbers without one.

    Python's format ``g`` turns 1,787 with three digits into ``1.79e+03``. Here a number with more digits before its
    point is written as a whole number with separators, up to a million million; only what is larger, or below 0.0001,
    has an exponent.

    Args:
        value: the number, in the unit that is written behind it.
        digits: significant digits; trailing zeros are left out.

    >>> [significant(value) for value in (0.00042, 0.0412, 2.0, 999.7, 1787.4, 2.3e15)]
    ['0.00042', '0.0412', '2', '1,000', '1,787', '2.3e+15']
    >>> significant(62918.25, 4), significant(float("nan"))
    ('62,918', 'nan')
    """
    text = f"{value:.{digits}g}"
    return f"{value:,.0f}" if "e+" in text and math.isfinite(value) and abs(value) < 1e12 else text


def digits_apart(values: Iterable[float]) -> int:
    """Returns the fewest significant digits, at least three, with which values that differ are written differently.

    Args:
        values: the numbers.

    >>> digits_apart([0.06047, 0.068]), digits_apart([0.3, 0.1 + 0.2]), digits_apart([1.0, 1.0])
    (3, 17, 3)
    """
    different = set(values)
    for digits in range(3, 17):
        if len({significant(value, digits) for value in different}) == len(different):
            return digits
    return 17


def written_apart(*values: float) -> list[str]:
    """Returns numbers with the digits that `digits_apart` finds.

    >>> written_apart(0.1, 0.10004)
    ['0.1', '0.10004']
    """
    digits = digits_apart(values)
    return [significant(value, digits) for value in values]


PREFIXES = (
    (1e15, "P"),
    (1e12, "T"),
    (1e9, "G"),
    (1e6, "M"),
    (1e3, "k"),
    (1.0, ""),
    (1e-3, "m"),
    (1e-6, "µ"),
    (1e-9, "n"),
)


@dataclass(frozen=True, slots=True)
class Unit:
    """How the values of a quantity are written.

    Args:
        symbol: the symbol behind a number, and in the header of a column; empty for a plain number.
        factor: a stored value times this is the written number.
        counts: whether values are counts, which are written in full.
        prefixed: whether each value has the prefix that fits it, such as 12.4 GB.
        words: what the number counts or means, for the axis of a chart, if the symbol does not say it.
        digits: significant digits, if a figure does not say otherwise.

    >>> MILLISECONDS.text(0.0000412), PERCENT.text(0.9724), COUNT.text(1234567.0), RATE.text(1.2341)
    ('0.0412', '97.2', '1,234,567', '1.23')
    >>> MILLISECONDS.with_symbol(0.0467), SECONDS.with_symbol(None)
    ('46.7 ms', '–')
    >>> BYTES.text(12_400_000_000), DURATION.text(0.00042), DURATION.text(0.0), DURATION.text(12980.4)
    ('12.4 GB', '420 µs', '0 s', '12,980 s')
    """

    symbol: str
    factor: float = 1.0
    counts: bool = False
    prefixed: bool = False
    words: str = ""
    digits: int = 3

    def text(self, value: float | None, digits: int | None = None) -> str:
        """Returns a value as a number without its symbol, or with prefix and symbol if the unit is `prefixed`."""
        digits = self.digits if digits is None else digits
        if value is None or value != value:
            return MISSING
        if self.counts:
            return f"{value:,.0f}"
        if self.prefixed:
            return self._with_prefix(value, digits)
        return significant(self.factor * value, digits)

    def _with_prefix(self, value: float, digits: int) -> str:
        if not value or not math.isfinite(value):
            return f"{value:g} {self.symbol}"
        usual = [prefix for prefix in PREFIXES if prefix[0] == 1.0 or (prefix[0] < 1) == (self.symbol == "s")]
        rounded = float(f"{abs(value):.{digits}g}")
        factor, prefix = next((prefix for prefix in usual if rounded >= prefix[0]), usual[-1])
        return f"{significant(value / factor, digits)} {prefix}{self.symbol}"

    def with_symbol(self, value: float | None, digits: int | None = None) -> str:
        """Returns a value with its symbol, as in a sentence."""
        text = self.text(value, digits)
        return f"{text} {self.in_header}" if self.in_header and text != MISSING else text

    @property
    def in_header(self) -> str:
        """The symbol that stands in the header of a column, because the cells do not have it."""
        return "" if self.prefixed else self.symbol

    @property
    def axis(self) -> str:
        """What stands behind the name of a quantity at the axis of a chart."""
        return self.words or self.symbol


SECONDS = Unit("s")
MILLISECONDS = Unit("ms", 1e3)
DURATION = Unit("s", prefixed=True)
PERCENT = Unit("%", 100.0)
POINTS = Unit("points", 100.0)
COUNT = Unit("", counts=True)
PLAIN = Unit("")
RATE = Unit("samples/s")
MEGABYTES = Unit("MB", 1e-6)
BYTES = Unit("B", prefixed=True)
BYTES_PER_SECOND = Unit("B/s", prefixed=True)
BITS_PER_SECOND = Unit("bit/s", prefixed=True)
GIGABYTES_PER_SECOND = Unit("GB/s", 1e-9)
HOURS = Unit("h", 1 / 3600)
MILLIONS = Unit("millions", 1e-6)
USD = Unit("USD")
KWH = Unit("kWh")
UPDATES = Unit("", words="updates or steps, as each method counts it")


def number(value: Any) -> float | None:
    """Returns the number of a value, which for an interval over seeds is its mean.

    >>> number(2.5), number({"mean": 2.0, "low": 1.0, "high": 3.0}), number(None)
    (2.5, 2.0, None)
    """
    mean: float | None = value["mean"] if isinstance(value, Mapping) else value
    return mean


def half_width(value: Any) -> float | None:
    """Returns half of the width of an interval over seeds; None for a single value.

    >>> half_width({"mean": 2.0, "low": 1.5, "high": 2.5}), half_width(2.0)
    (0.5, None)
    """
    return (value["high"] - value["low"]) / 2 if isinstance(value, Mapping) else None


UNCERTAIN = 2
"""significant digits of half of an interval; more say nothing about a value that is uncertain by so much"""


def written(value: Any, unit: Unit, digits: int | None = None, between: str = " ") -> str:
    """Returns a value without its symbol, followed by half of its interval if it has one.

    Args:
        value: a number, an interval over seeds, or None.
        unit: its unit.
        digits: significant digits; None: those of the unit.
        between: what stands between the value and half of its interval.

    >>> written({"mean": 2.0, "low": 1.5, "high": 2.5}, SECONDS), written(None, SECONDS)
    ('2 ±0.5', '–')
    """
    half = half_width(value)
    return unit.text(number(value), digits) + ("" if half is None else f"{between}±{unit.text(half, UNCERTAIN)}")


def signed_percent(share: float | None) -> str:
    """Returns a relative difference in per cent with its sign and one decimal; one that rounds to 0 has no sign.

    >>> signed_percent(0.1234), signed_percent(-0.00001), signed_percent(None)
    ('+12.3', '0.0', '–')
    """
    if share is None or share != share:
        return MISSING
    rounded = round(100 * share, 1)
    return f"{rounded:+,.1f}" if rounded else "0.0"


def at(summary: Mapping[str, Any], key: str) -> Any:
    """Returns what stands at a place in a summary; None if it is missing.

    Args:
        summary: the summary of a run, or mappings of the same form.
        key: the names on the way, joined by points.

    >>> at({"step_s": {"mean": 0.5}}, "step_s.mean"), at({"step_s": {"mean": 0.5}}, "step_s.p99")
    (0.5, None)
    """
    value: Any = summary
    for name in key.split("."):
        if not isinstance(value, Mapping) or name not in value:
            return None
        value = value[name]
    return value


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns values by key as a summary has them; the inverse of `at`.

    Args:
        values: values by names joined by points.

    >>> nested({"wall_s": 2.0, "step_s.mean": 0.5, "step_s.p95": 0.7})
    {'wall_s': 2.0, 'step_s': {'mean': 0.5, 'p95': 0.7}}
    """
    summary: dict[str, Any] = {}
    for key, value in values.items():
        *way, name = key.split(".")
        place = summary
        for part in way:
            place = place.setdefault(part, {})
        place[name] = value
    return summary


Better = Literal["low", "high"]
Error = Literal["relative", "difference"]
Type = Literal["Float64", "Int64", "boolean", "string"]


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of a run.

    Args:
        key: its place in the summary of a run: names separated by points.
        label: its name in sentences, charts and pages.
        header: its short name, the header of a column.
        unit: its unit.
        meaning: what it says, in a sentence for readers of a report and of the reference page.
        better: whether low or high values are better; None if neither is.
        error: how the error of its prediction is measured: relative to the measured value, or as a difference; None
            if no error is shown.
        digits: significant digits; None: those of its unit.
        type: the type of its column in data frames and files.
        compute: how it is computed from what was reduced from the record of a run; None if that is not enough.

    >>> STEP_TIME.column, STEP_TIME.of({"step_s": {"mean": 0.0467}}), STEP_TIME.text(0.0467), STEP_TIME.title
    ('step_s_mean', 0.0467, '46.7', 'step time, ms')
    >>> TIME_TO_ACCURACY.of({"step_s": {}}) is None
    True
    """

    key: str
    label: str
    header: str
    unit: Unit
    meaning: str
    better: Better | None = None
    error: Error | None = "relative"
    digits: int | None = None
    type: Type = "Float64"
    compute: Callable[[Reduced], Any] | None = None

    @property
    def column(self) -> str:
        """The name of its column in data frames and files."""
        return self.key.replace(".", "_")

    @property
    def title(self) -> str:
        """Its name with its unit."""
        return f"{self.label}, {self.unit.in_header}" if self.unit.in_header else self.label

    def of(self, summary: Mapping[str, Any]) -> Any:
        """Returns its value in a summary, or in the summaries of several seeds together; None if it is missing."""
        return at(summary, self.key)

    def text(self, value: Any, between: str = " ") -> str:
        """Returns a value as a number without its symbol, with half of its interval if it has one."""
        return written(value, self.unit, self.digits, between)

    def with_symbol(self, value: Any) -> str:
        """Returns a value with its symbol, as in a sentence."""
        text = self.text(value)
        return f"{text} {self.unit.in_header}" if self.unit.in_header and text != MISSING else text


WALL_TIME = Figure(
    "wall_s", "time of the run", "wall", SECONDS, "Length of the whole run on its own clock.", "low",
    compute=lambda run: run.wall_s,
)  # fmt: skip
STEPS = Figure(
    "steps", "steps", "steps", COUNT, "Gradients of all workers.", type="Int64", compute=lambda run: run.steps
)
LONGEST_PERIOD = Figure(
    "longest_period", "longest period of the method", "period", COUNT,
    "Steps of a worker after which the method has done everything once.", error=None, type="Int64",
    compute=lambda run: run.longest_period,
)  # fmt: skip
PERIODS = Figure(
    "periods", "periods of the method", "periods", PLAIN,
    "Steps of a worker over the longest period; below 1, the run ended before the method had done everything once.",
    error=None, compute=lambda run: run.steps / run.workers / run.longest_period,
)  # fmt: skip
UPDATE_COUNT = Figure(
    "updates", "updates", "updates", COUNT, "Changes of the weights being learned.", type="Int64",
    compute=lambda run: run.updates,
)  # fmt: skip
EVALUATIONS = Figure(
    "evaluations", "evaluations", "evaluations", COUNT, "Evaluations of the weights on test samples.",
    error=None, type="Int64", compute=lambda run: len(run.losses),
)  # fmt: skip
SAMPLES = Figure(
    "samples", "samples", "samples", COUNT, "Training samples of all applied gradients.", type="Int64",
    compute=lambda run: run.samples,
)  # fmt: skip
THROUGHPUT = Figure(
    "samples_per_s", "throughput", "throughput", RATE,
    "Training samples per second of all workers together, whatever they learn from them.", "high",
    compute=lambda run: run.samples / run.wall_s if run.wall_s > 0 else None,
)  # fmt: skip
STEP_TIME = Figure(
    "step_s.mean", "step time", "step", MILLISECONDS,
    "Mean time from the start of a worker's gradient to that of its next one.", "low",
    compute=lambda run: run.step_s["mean"],
)  # fmt: skip
STEP_TIME_MEDIAN = Figure(
    "step_s.p50", "step time, median", "median", MILLISECONDS, "Half of the steps are shorter.", "low",
    compute=lambda run: run.step_s["p50"],
)  # fmt: skip
STEP_TIME_95 = Figure(
    "step_s.p95", "step time, 95 %", "95 %", MILLISECONDS, "95 % of the steps are shorter.", "low",
    compute=lambda run: run.step_s["p95"],
)  # fmt: skip
ACTIVITY_LABELS: Mapping[str, str] = {
    "compute": "computing", "load": "loading", "update": "updating", "communication": "communicating",
    "wait": "waiting",
}  # fmt: skip
ACTIVITY_HEADERS: Mapping[str, str] = {
    "compute": "compute", "load": "load", "update": "update", "communication": "comm.", "wait": "wait",
}  # fmt: skip


def _time_fraction(activity: str) -> Figure:
    """Returns the figure of the time that workers spend on an activity."""
    return Figure(
        f"time_fraction.{activity}", f"time {ACTIVITY_LABELS[activity]}", ACTIVITY_HEADERS[activity], PERCENT,
        f"Share of the workers' time spent {ACTIVITY_LABELS[activity]}; during a gradient, all counts as computing.",
        "high" if activity == "compute" else "low", compute=lambda run: run.time_fraction[activity],
    )  # fmt: skip


TIME_FRACTIONS: Mapping[str, Figure] = {activity: _time_fraction(activity) for activity in ACTIVITIES}
COMPUTING, COMMUNICATION, WAITING = (TIME_FRACTIONS[name] for name in ("compute", "communication", "wait"))
BYTES_SENT = Figure(
    "bytes_sent", "bytes sent", "sent", MEGABYTES, "Sent by all ranks together.", "low", type="Int64",
    compute=lambda run: run.bytes_sent,
)  # fmt: skip
STALENESS = Figure(
    "staleness.mean", "staleness, mean of updates", "staleness", UPDATES,
    "How many changes of the weights a gradient misses when it is applied: the mean over all inputs of updates, as "
    "each method counts it.", compute=lambda run: run.staleness["mean"],
)  # fmt: skip
STALENESS_OF_RANKS = Figure(
    "staleness.mean_of_ranks", "staleness, mean of ranks", "staleness of ranks", UPDATES,
    "The mean of the ranks' own mean staleness: every rank counts alike, however many gradients it has.",
    compute=lambda run: run.staleness["mean_of_ranks"],
)  # fmt: skip
STALENESS_MAX = Figure(
    "staleness.max", "staleness, largest", "largest staleness", UPDATES, "The largest staleness of an update.",
    type="Int64", compute=lambda run: run.staleness["max"],
)  # fmt: skip


def _at_target(aim: Literal["accuracy", "loss"]) -> tuple[Figure, ...]:
    """Returns the figures at a target: time, its resolution, samples and updates."""
    return (
        Figure(
            f"time_to_{aim}_s", f"time to the target {aim}", "target", SECONDS,
            f"Time until the target {aim} is reached; speed and learning count.", "low",
            compute=lambda run: run.at_target(aim, run.axes.times_s),
        ),
        Figure(
            f"time_to_{aim}_resolution_s", f"resolution of the time to the target {aim}", "resolution", SECONDS,
            "Time between the two evaluations around the target.", error=None,
            compute=lambda run: run.resolution_s(aim),
        ),
        Figure(
            f"samples_to_{aim}", f"samples to the target {aim}", "samples needed", COUNT,
            f"Training samples until the target {aim} is reached.", "low",
            compute=lambda run: run.at_target(aim, run.axes.samples),
        ),
        Figure(
            f"updates_to_{aim}", f"updates to the target {aim}", "updates needed", COUNT,
            f"Changes of the weights until the target {aim} is reached.", "low",
            compute=lambda run: run.at_target(aim, run.axes.updates),
        ),
    )  # fmt: skip


TIME_TO_ACCURACY, TIME_TO_ACCURACY_RESOLUTION, SAMPLES_TO_ACCURACY, UPDATES_TO_ACCURACY = _at_target("accuracy")
TIME_TO_LOSS, TIME_TO_LOSS_RESOLUTION, SAMPLES_TO_LOSS, UPDATES_TO_LOSS = _at_target("loss")
FINAL_ACCURACY = Figure(
    "final_accuracy", "accuracy at the end", "accuracy", PERCENT, "Accuracy on test samples at the end of the run.",
    "high", "difference", compute=lambda run: run.last(run.accuracies),
)  # fmt: skip
FINAL_LOSS = Figure(
    "final_loss", "loss at the end", "loss", PLAIN, "Loss on test samples at the end of the run.", "low", digits=4,
    compute=lambda run: run.last(run.losses),
)  # fmt: skip
DIVERGED = Figure(
    "diverged", "diverged", "diverged", PLAIN, "Whether the loss became infinite, or ten times the first one.",
    error=None, type="boolean", compute=lambda run: run.diverged,
)  # fmt: skip
STOP_REASON = Figure(
    "stop_reason", "reason for the end", "ended by", PLAIN, "Why the run ended.", error=None, type="string",
    compute=lambda run: run.stop_reason,
)  # fmt: skip

IN_SUMMARY: tuple[Figure, ...] = (
    WALL_TIME, STEPS, LONGEST_PERIOD, PERIODS, UPDATE_COUNT, EVALUATIONS, SAMPLES, THROUGHPUT, STEP_TIME,
    STEP_TIME_MEDIAN, STEP_TIME_95, *TIME_FRACTIONS.values(), BYTES_SENT, STALENESS, STALENESS_OF_RANKS, STALENESS_MAX,
    TIME_TO_ACCURACY, TIME_TO_ACCURACY_RESOLUTION, SAMPLES_TO_ACCURACY, UPDATES_TO_ACCURACY,
    TIME_TO_LOSS, TIME_TO_LOSS_RESOLUTION, SAMPLES_TO_LOSS, UPDATES_TO_LOSS,
    FINAL_LOSS, FINAL_ACCURACY, DIVERGED, STOP_REASON,
)  # fmt: skip
"""the figures of every summary, in the order of a summary"""

SPEED_UP = Figure(
    "speed_up", "speed-up", "speed-up", Unit("", words="over the smallest cluster"),
    "Samples per second over those of the smallest cluster: along the ideal line, twice as many workers process twice "
    "as many samples.", "high",
)  # fmt: skip
EFFICIENCY = Figure(
    "efficiency", "efficiency", "efficiency", Unit("%", 100.0, words="% of the ideal speed-up"),
    "Speed-up per worker: below 50 %, half of the workers are wasted.", "high",
)  # fmt: skip
SPEED_UP_TO_ACCURACY, SPEED_UP_TO_LOSS = (
    Figure(
        f"speed_up_to_{aim}", f"speed-up to the target {aim}", "speed-up to target",
        Unit("", words="over the smallest cluster"), "How much sooner the target is reached than on the smallest one.",
        "high",
    )
    for aim in ("accuracy", "loss")
)  # fmt: skip
BYTES_PER_STEP = Figure(
    "bytes_per_step", "bytes sent per step", "per step", MEGABYTES,
    "Sent by a worker per gradient: its messages, and its vectors in collectives.", "low",
)  # fmt: skip
COST = Figure("cost_usd", "cost", "cost", USD, "Price of the cluster for the whole run.", "low")
COST_TO_ACCURACY, COST_TO_LOSS = (
    Figure(
        f"cost_to_{aim}_usd", f"cost to the target {aim}", "cost", USD,
        f"Price of the cluster until the target {aim} is reached.", "low",
    )
    for aim in ("accuracy", "loss")
)  # fmt: skip
ENERGY = Figure("energy_kwh", "energy", "energy", KWH, "Energy of the devices for the whole run.", "low")
LINK_UTILISATION = Figure(
    "links.busiest.utilisation", "use of the busiest link", "busiest link", PERCENT,
    "Bytes that the busiest link carried over what it could have carried during the run.",
)  # fmt: skip

TIME_TO_TARGET = Figure(
    "time_s", "time to the target", "time", SECONDS, "Time until the target of a plan is reached.", "low"
)
COST_TO_TARGET = Figure(
    "cost_usd", "price of a run to the target", "cost", USD, "Price of the nodes until the target is reached.", "low"
)
ENERGY_TO_TARGET = Figure(
    "energy_kwh", "energy to the target", "energy", KWH, "Energy of the nodes until the target is reached.", "low"
)

OF_PLANS: Mapping[str, Figure] = {"time": TIME_TO_TARGET, "cost": COST_TO_TARGET, "energy": ENERGY_TO_TARGET}
"""what a plan may minimise; keys of figures are those of a plan in plan.json"""

OF_SEVERAL_RUNS: tuple[Figure, ...] = (
    SPEED_UP, EFFICIENCY, SPEED_UP_TO_ACCURACY, SPEED_UP_TO_LOSS, BYTES_PER_STEP, COST, COST_TO_ACCURACY, COST_TO_LOSS,
    ENERGY, LINK_UTILISATION,
)  # fmt: skip
"""figures that a sweep adds to those of a summary: relative to other runs, or from prices"""

FIGURES: Mapping[str, Figure] = {figure.key: figure for figure in (*IN_SUMMARY, *OF_SEVERAL_RUNS)}
"""all figures by key"""
WITH_ERRORS: tuple[Figure, ...] = tuple(figure for figure in IN_SUMMARY if figure.error is not None)
"""the figures of a summary that measured runs are compared in"""


def present(figures: Iterable[Figure], summaries: Iterable[Mapping[str, Any]]) -> list[Figure]:
    """Returns the figures that at least one of several runs has.

    >>> [figure.key for figure in present([STEP_TIME, FINAL_LOSS], [{"step_s": {"mean": 1.0}, "final_loss": None}])]
    ['step_s.mean']
    """
    several = list(summaries)
    return [figure for figure in figures if any(figure.of(summary) is not None for summary in several)]
