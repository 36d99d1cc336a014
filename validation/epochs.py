"""Epochs to a target by batch: published trainings beside the relation that the extrapolation of a scenario uses.

* MLPerf Training: the median epochs to the target at each global batch, over systems and runs. The smallest amount and
  the noise scale are fitted to the batches of one half and predict those of the other.
* Pollux: samples to a target metric at each global batch. The noise scale is measured from the gradients of the
  smallest batch, so larger batches are predicted without a fit.
* The half of a row follows from its name (`half_of`): 0 was looked at and fitted, 1 is tested.
* The spread over MLPerf's repeated runs gives the interval of a single run. Submitters choose the runs that they submit
  (traps in `data/README.md`), so it is a lower bound.
"""

from __future__ import annotations

import csv
import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from paceline.records import epoch_errors
from paceline.records.epoch_errors import SHARE, RelationError, RunSpread
from paceline.records.metrics import smoothed
from paceline.records.targets import SMOOTHING, crossing
from paceline.simulator.runs.extrapolation import batch_penalty, samples_needed

if TYPE_CHECKING:
    import pandas as pd

DATA = Path(__file__).parent / "data"
FEWEST, SPAN = 3, 4.0
"""fewest batches that a noise scale is fitted to, and the ratio of the largest to the smallest; provenance: ours"""
SAME_TARGET = 0.05
"""runs whose metric differs by more from the median of their group reached another target; provenance: ours"""
OF_THE_WAY = 0.99
"""the target of a Pollux model, from the first evaluation at the smallest batch to the worst batch's best evaluation;
provenance: ours, since not all models have a published target in this metric"""
FALLING = ("deepspeech2", "yolov3")
"""models of Pollux whose metric falls during training: word error rate and validation loss"""
EVALUATIONS = 5
"""fewer evaluations of a run say too little about when a target was reached; provenance: ours"""
IMAGENET = 1_281_167
"""training images; source: train_samples of the ResNet-50 logs"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A measured value beside its prediction.

    Args:
        name: the row, unique.
        half: 0 if the row was looked at or fitted, 1 if it is only tested.
        measured: the published value.
        predicted: the value that Paceline predicts.
        baseline: the value of the naive prediction that epochs do not depend on the batch.
        unit: of the three values.
        source: repository, commit and path.
    """

    name: str
    half: int
    measured: float
    predicted: float
    baseline: float
    unit: str
    source: str

    @property
    def error(self) -> float:
        """|predicted − measured| / measured."""
        return abs(self.predicted / self.measured - 1)


def half_of(name: str) -> int:
    """Returns the half of a row: the lowest bit of the first byte of the SHA-256 of its name.

    >>> [half_of(f"batch {batch}") for batch in (256, 512, 1024)]
    [0, 0, 0]
    """
    return hashlib.sha256(name.encode()).digest()[0] & 1


# --- MLPerf: the relation with a fitted noise scale


@dataclass(frozen=True, slots=True)
class Benchmark:
    """Rounds of a benchmark of MLPerf Training that have one target and one kind of recipe.

    Args:
        name: in the logs.
        rounds: the rounds. Epochs at the same batch fell between v0.6 and v0.7 (ResNet-50 with 3,328 images from 60 to
            41), so these are apart (INFERENCE: hyper-parameters of the best submission were adopted).
        unit: what the logs count at an evaluation.
        least: smaller counts are placeholders or other units.
    """

    name: str
    rounds: tuple[str, ...]
    unit: str = "epochs"
    least: float = 1.5

    @property
    def words(self) -> str:
        return f"{self.name} v{self.rounds[0]}" + (f" to v{self.rounds[-1]}" if len(self.rounds) > 1 else "")


LATER = ("0.7", "1.0", "1.1")
# Not here: v0.5, whose logs have batches per GPU (trap 2), so that too few remain; transformer, whose batches are in
# sentences or in tokens; ncf and minigo, whose logs have no batches or no epochs; v0.7 of bert and dlrm, which counted
# in other units.
BENCHMARKS = (
    Benchmark("resnet", ("0.6",)), Benchmark("resnet", LATER), Benchmark("ssd", ("0.6",)), Benchmark("ssd", LATER),
    Benchmark("maskrcnn", ("0.6",)), Benchmark("maskrcnn", LATER), Benchmark("gnmt", ("0.6",)),
    Benchmark("gnmt", LATER[:1]), Benchmark("rnnt", LATER[1:]), Benchmark("unet3d", LATER[1:]),
    Benchmark("dlrm", LATER[1:]), Benchmark("bert", LATER[1:], "samples", 100_000),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class AtBatch:
    """What the trainings with a global batch needed to their target: the median over systems."""

    name: str
    batch: int
    needed: float
    systems: int
    source: str

    @property
    def half(self) -> int:
        return half_of(self.name)


@dataclass(frozen=True, slots=True)
class Fit:
    """The relation, fitted: `smallest` at vanishing batches, and the noise scale in samples."""

    smallest: float
    noise_scale: float

    def needed(self, batch: float) -> float:
        """Returns the epochs or samples to the target, by the relation of the extrapolation."""
        return self.smallest * samples_needed(batch, self.noise_scale)


def fit(batches: Sequence[float], needed: Sequence[float]) -> Fit:
    """Fits the relation to the epochs or samples that several batches needed, by least squares of relative errors.

    E (1 + B / Bn) = E + (E / Bn) B is linear in E and E / Bn, neither of which is negative.

    Args:
        batches: samples of one update.
        needed: epochs or samples to the target.

    Raises:
        ValueError: what is needed grows at least in proportion to the batch, so there is no smallest amount.

    >>> fitted = fit([1000, 2000, 8000], [44, 48, 72])
    >>> round(fitted.smallest, 6), round(fitted.noise_scale, 6)
    (40.0, 10000.0)
    >>> fit([1000, 2000, 8000], [50, 40, 45]).noise_scale
    inf
    """
    from scipy.optimize import nnls

    sizes, amounts = np.asarray(batches, float), np.asarray(needed, float)
    scale = sizes.max()
    (smallest, slope), _ = nnls(np.column_stack([1 / amounts, sizes / scale / amounts]), np.ones(len(amounts)))
    if smallest <= 0:
        raise ValueError(
            f"batches {list(batches)} need {list(needed)}: at least proportional to the batch, so no noise scale fits"
        )
    return Fit(float(smallest), math.inf if slope <= 0 else float(smallest / slope * scale))


@cache
def mlperf_runs() -> pd.DataFrame:
    """Returns the successful runs of MLPerf Training in its closed division, each once.

    Later rounds repeat results of earlier ones (trap 1): one duration, batch and number of accelerators is one run.
    Systems that name the open division or another optimiser are left out.
    """
    import pandas as pd

    runs = pd.read_csv(DATA / "mlperf_training_runs.csv.gz", dtype={"round": str, "status": str})
    runs = runs.replace({"benchmark": {"mask": "maskrcnn"}})  # INFERENCE: a submitter's own name for it
    runs = runs[runs.status.str.lower().isin(["success", "true"]) & ~runs.system.map(is_open)]
    runs["needed"] = pd.to_numeric(runs.last_eval_epoch_or_samples, errors="coerce")
    runs["metric"] = pd.to_numeric(runs.last_eval_value, errors="coerce")
    once = ["benchmark", "duration_s", "global_batch_size_samples", "accelerators"]
    return runs.sort_values("round", kind="stable").drop_duplicates(once)


def is_open(system: str) -> bool:
    """Returns whether a system's name says that its training did not follow the rules of the closed division.

    >>> is_open("modelarts_512_tensorflow_open"), is_open("tpu-v4-256-JAX-Distributed-Shampoo"), is_open("tpu-v4-16-TF")
    (True, True, False)
    """
    return system.endswith("_open") or "Shampoo" in system


def at_batches(benchmark: Benchmark) -> list[AtBatch]:
    """Returns what each batch of a benchmark needed to the target, smallest batch first."""
    runs = mlperf_runs()
    runs = runs[
        (runs.benchmark == benchmark.name) & runs["round"].isin(benchmark.rounds) & (runs.needed >= benchmark.least)
    ]
    if runs.metric.notna().any():
        runs = runs[(runs.metric / runs.metric.median() - 1).abs() <= SAME_TARGET]
    rows = []
    for batch, group in runs.groupby("global_batch_size_samples"):
        by_system = group.groupby(["round", "submitter", "system"]).needed.median()
        name = f"mlperf {benchmark.words}, batch {batch:.0f}"
        rows.append(AtBatch(name, int(batch), float(by_system.median()), len(by_system), group.source.iloc[0]))  # type: ignore[call-overload]
    return rows


def fitted(rows: Sequence[AtBatch]) -> Fit | None:
    """Returns the relation fitted to half 0 of a benchmark; None if that half is too small or no test is left."""
    known = [row for row in rows if not row.half]
    if len(known) < FEWEST or len(known) == len(rows) or known[-1].batch < SPAN * known[0].batch:
        return None
    return fit([row.batch for row in known], [row.needed for row in known])


def epochs_by_batch() -> list[Outcome]:
    """Returns the epochs to the target of MLPerf's trainings beside those of the relation, if it could be fitted."""
    outcomes = []
    for benchmark in BENCHMARKS:
        rows = at_batches(benchmark)
        if (relation := fitted(rows)) is None:
            continue
        constant = float(np.median([row.needed for row in rows if not row.half]))
        outcomes += [
            Outcome(row.name, row.half, row.needed, relation.needed(row.batch), constant, benchmark.unit, row.source)
            for row in rows
        ]
    return outcomes


def time_to_accuracy() -> list[Outcome]:
    """Returns MLPerf's times to 75.9 % with ResNet-50 beside predicted epochs × images / measured images per second.

    A system has the half of its batch.
    """
    import pandas as pd

    systems = pd.read_csv(DATA / "mlperf_resnet50_systems.csv", dtype={"round": str})
    systems = systems[systems.images_per_s_in_blocks_incl_eval.notna() & ~systems.system.map(is_open)]
    systems = systems.drop_duplicates(["mean_time_to_75.9pct_s", "global_batch_size_samples", "accelerators"])
    outcomes = []
    for benchmark in BENCHMARKS:
        if benchmark.name != "resnet":
            continue
        rows = at_batches(benchmark)
        relation, halves = fitted(rows), {row.batch: row.half for row in rows}
        if relation is None:
            continue
        constant = float(np.median([row.needed for row in rows if not row.half]))
        for row in systems[systems["round"].isin(benchmark.rounds)].to_dict("records"):
            batch, epoch_s = int(row["global_batch_size_samples"]), IMAGENET / row["images_per_s_in_blocks_incl_eval"]
            outcomes.append(
                Outcome(
                    name=f"mlperf resnet v{row['round']} {row['submitter']} {row['system']}, time",
                    half=halves[batch],
                    measured=row["mean_time_to_75.9pct_s"],
                    predicted=relation.needed(batch) * epoch_s,
                    baseline=constant * epoch_s,
                    unit="s",
                    source=row["first_source"],
                )
            )
    return outcomes


# --- Pollux: the relation with a measured noise scale


def measured_noise_scale(run: pd.DataFrame) -> float:
    """Returns the noise scale of a training from the squared norm and the variance of its gradients.

    AdaptDL estimates both at the initial batch, so Bn = batch × variance / squared norm; that this is its unit was
    checked with the gains that the same runs had at larger batches. The median over the evaluations counts: the noise
    scale grows a hundredfold during training, and the mean of 1 / Bn, which a constant penalty per sample would ask
    for, is that of the first epochs alone. The median was chosen among mean, harmonic mean and median with all rows
    in sight.

    Args:
        run: the evaluations at the smallest batch.
    """
    return float((run.global_batch_size * run.grad_var / run.grad_sqr).median())


def epochs_by_noise_scale() -> list[Outcome]:
    """Returns the samples to a target of Pollux's trainings beside those of the relation, but for the smallest batch.

    The relation has the measured noise scale up to the target and the samples of the smallest batch. Learning rates
    followed AdaScale, whose schedule counts the same gradients, so this tests how far one batch tells the others.
    """
    import pandas as pd

    curves = pd.read_csv(DATA / "pollux_sia_convergence.csv.gz")
    outcomes = []
    for model, of_model in curves.groupby("model"):
        runs = {int(batch): run.sort_values("iteration") for batch, run in of_model.groupby("global_batch_size")}  # type: ignore[call-overload]
        if min(map(len, runs.values())) >= EVALUATIONS:
            outcomes += _by_noise_scale(str(model), runs)
    return outcomes


def _by_noise_scale(model: str, runs: dict[int, pd.DataFrame]) -> Iterator[Outcome]:
    sign = -1.0 if model in FALLING else 1.0
    metrics = {batch: smoothed((sign * run.validation_metric).tolist(), SMOOTHING) for batch, run in runs.items()}
    first, *larger = sorted(runs)
    start, reached = metrics[first][0], min(metric.max() for metric in metrics.values())
    target = start + OF_THE_WAY * (reached - start)

    def crossed(batch: int) -> tuple[float, int]:
        at = crossing(target, metrics[batch].tolist())
        assert at is not None, "every batch reaches the target, which is below its best"
        return at.at(smoothed((runs[batch].iteration * float(batch)).tolist(), SMOOTHING).tolist()), at.index

    alone, index = crossed(first)
    noise_scale = measured_noise_scale(runs[first].iloc[: index + 1])
    for batch in larger:
        predicted = alone * batch_penalty(batch, first, noise_scale)
        name, source = f"pollux {model}, batch {batch}", str(runs[batch].source.iloc[0])
        yield Outcome(name, half_of(name), crossed(batch)[0], predicted, alone, "samples", source)


# --- The interval of a single run, and what the product states


def run_spreads() -> list[RunSpread]:
    """Returns the interval of a single run for every benchmark of MLPerf, and `other`: the median of these.

    Runs of a system with one batch count if there are four or more. Deviations from the mean of n runs are
    multiplied by √(n / (n − 1)), because that mean contains the run.
    """
    runs = mlperf_runs().copy()
    runs["folder"] = runs.source.str.rsplit("/", n=1).str[0]
    times = runs.groupby(["folder", "global_batch_size_samples"], dropna=False).duration_s
    runs["n"], runs["mean_s"] = times.transform("size"), times.transform("mean")
    runs = runs[runs.n >= 4]
    runs["factor"] = 1 + (runs.duration_s / runs.mean_s - 1) * np.sqrt(runs.n / (runs.n - 1))
    spreads = []
    for name, group in runs.groupby("benchmark"):
        low, high = group.factor.quantile([(1 - SHARE) / 2, (1 + SHARE) / 2])
        systems = group.groupby(["folder", "global_batch_size_samples"], dropna=False).ngroups
        spreads.append(RunSpread(str(name), float(low), float(high), len(group), systems))
    middle = [float(np.median([getattr(spread, end) for spread in spreads])) for end in ("low", "high")]
    total = [sum(getattr(spread, count) for spread in spreads) for count in ("runs", "systems")]
    return [*spreads, RunSpread(epoch_errors.OTHER, *middle, *total)]  # type: ignore[arg-type]


def relation_errors() -> list[RelationError]:
    """Returns the errors of the relation that the product states: of MLPerf's tested half, and of Pollux."""
    tested = [outcome for outcome in epochs_by_batch() if outcome.half]
    return [_summary("fitted", tested), _summary("measured", epochs_by_noise_scale())]


def _summary(noise_scale: epoch_errors.Origin, outcomes: Sequence[Outcome]) -> RelationError:
    errors = [outcome.error for outcome in outcomes]
    naive = [abs(outcome.baseline / outcome.measured - 1) for outcome in outcomes]
    trainings = {outcome.name.split(",")[0] for outcome in outcomes}
    figures = [float(quantile) for values in (errors, naive) for quantile in np.quantile(values, [0.5, 0.9])]
    return RelationError(noise_scale, len(trainings), len(outcomes), *figures)


def written(rows: Iterable[Any]) -> str:
    """Returns frozen values of one class as the text of a CSV file, with four significant digits."""
    import dataclasses
    import io

    text, rows = io.StringIO(), [dataclasses.asdict(row) for row in rows]
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: f"{value:.4g}" if isinstance(value, float) else value for key, value in row.items()})
    return text.getvalue()


def write_errors() -> None:
    """Writes the figures that predictions state into the data of `paceline.records`."""
    epoch_errors.RELATION.write_text(written(relation_errors()), encoding="utf-8")
    epoch_errors.SPREADS.write_text(written(run_spreads()), encoding="utf-8")
