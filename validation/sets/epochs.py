"""MLPerf Training v0.6 to v1.1: epochs to the target by global batch, from those of other batches.

* The epochs of a batch are the median over systems, of medians over runs.
* The relation of the extrapolation, E (1 + B / Bn), is fitted to the batches of one half and predicts those of the
  other, in both directions. So no batch is predicted from itself.
* Rounds of a benchmark are kept apart where their recipes differ (`Benchmark`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from paceline.simulator.runs.extrapolation import samples_needed
from paceline.validation.outcome import CONSTANT, Half, LeftOut, Outcome, half_of
from paceline.validation.sets import Line, MeasurementSet

if TYPE_CHECKING:
    import pandas as pd

NAME = "epochs"
FEWEST, SPAN = 3, 4.0
"""fewest batches that a noise scale is fitted to, and the ratio of the largest to the smallest; provenance: ours"""
SAME_TARGET = 0.05
"""runs whose metric differs by more from the median of their benchmark had another target; provenance: ours"""
OPEN = "of the open division, or with an optimiser of its own"
COLUMNS = (
    "round", "submitter", "system", "benchmark", "accelerators", "global_batch_size_samples", "duration_s", "status",
    "last_eval_epoch_or_samples", "last_eval_value", "source",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Benchmark:
    """Rounds of a benchmark that have one target and one kind of recipe.

    Args:
        name: In the logs.
        rounds: The rounds. Epochs at the same batch fell between v0.6 and v0.7 (ResNet-50 with 3,328 pictures from 60
            to 41), so these are apart. INFERENCE: submitters adopted the hyper-parameters of the best submission.
        least: Smaller counts of epochs are placeholders or in other units.
    """

    name: str
    rounds: tuple[str, ...]
    least: float = 1.5

    @property
    def words(self) -> str:
        """The benchmark and its rounds."""
        return f"{self.name} v{self.rounds[0]}" + (f" to v{self.rounds[-1]}" if len(self.rounds) > 1 else "")


LATER = ("0.7", "1.0", "1.1")
BERT_SAMPLES = 100_000.0
"""bert counts samples since v1.0; smaller counts are placeholders; provenance: the logs"""
BENCHMARKS = (
    Benchmark("resnet", ("0.6",)), Benchmark("resnet", LATER), Benchmark("ssd", ("0.6",)), Benchmark("ssd", LATER),
    Benchmark("maskrcnn", ("0.6",)), Benchmark("maskrcnn", LATER), Benchmark("gnmt", ("0.6",)),
    Benchmark("gnmt", LATER[:1]), Benchmark("rnnt", LATER[1:]), Benchmark("unet3d", LATER[1:]),
    Benchmark("dlrm", LATER[1:]), Benchmark("bert", LATER[1:], BERT_SAMPLES),
)  # fmt: skip
NOT_COMPARED = {
    "v0.5": "its logs give the batch of a GPU or of the whole run (INFERENCE), so too few batches are known",
    "transformer": "its batches are counted in sentences or in tokens",
    "ncf": "its logs have no batches",
    "minigo": "its logs have no epochs",
    "bert and dlrm v0.7": "their logs count evaluations, updates or samples",
}


@dataclass(frozen=True, slots=True)
class AtBatch:
    """What the trainings of a benchmark with one global batch needed to their target.

    Args:
        benchmark: The benchmark and its rounds.
        batch: Samples of an update.
        needed: Epochs, or samples of bert: the median over systems.
        systems: Their number.
        source: Where one of them was published.
    """

    benchmark: str
    batch: int
    needed: float
    systems: int
    source: str

    @property
    def name(self) -> str:
        """The name of the row."""
        return f"{self.benchmark}, batch {self.batch}"

    @property
    def half(self) -> Half:
        """The half of the row."""
        return half_of(f"{NAME} {self.name}")


@dataclass(frozen=True, slots=True)
class Relation:
    """The relation of the extrapolation for one training.

    Args:
        smallest: Epochs or samples to the target with vanishing batches.
        noise_scale: The gradient noise scale, samples.
        constant: The simpler prediction: the median of what it was fitted to.
    """

    smallest: float
    noise_scale: float
    constant: float

    def needed(self, batch: float) -> float:
        """Returns the epochs or samples to the target with a batch."""
        return self.smallest * samples_needed(batch, self.noise_scale)


def fit(batches: Sequence[float], needed: Sequence[float]) -> Relation:
    """Fits the relation to what several batches needed, by least squares of relative errors.

    E (1 + B / Bn) = E + (E / Bn) B is linear in E and E / Bn, and neither may be negative.

    Args:
        batches: Samples of an update.
        needed: Epochs or samples to the target.

    Raises:
        ValueError: What is needed is proportional to the batch, so no smallest amount is left.

    >>> relation = fit([1000, 2000, 8000], [44, 48, 72])
    >>> round(relation.smallest, 6), round(relation.noise_scale, 6)
    (40.0, 10000.0)
    >>> fit([1000, 2000, 8000], [50, 40, 45]).noise_scale
    inf
    """
    from scipy.optimize import nnls

    sizes, amounts = np.asarray(batches, float), np.asarray(needed, float)
    largest = sizes.max()
    parts, _ = nnls(np.column_stack([1 / amounts, sizes / largest / amounts]), np.ones(len(amounts)))
    smallest, rise = map(float, parts)
    if smallest <= 0:
        raise ValueError(f"batches {list(batches)} need {list(needed)}, found no smallest amount")
    noise_scale = math.inf if rise <= 0 else smallest / rise * float(largest)
    return Relation(smallest, noise_scale, constant=float(np.median(amounts)))


def is_open(system: str) -> bool:
    """Returns whether a system's name says that its training did not follow the rules of the closed division.

    >>> is_open("modelarts_512_tensorflow_open"), is_open("tpu-v4-256-JAX-Distributed-Shampoo"), is_open("tpu-v4-16-TF")
    (True, True, False)
    """
    return system.endswith("_open") or "Shampoo" in system


def runs_of(lines: Sequence[Line]) -> pd.DataFrame:
    """Returns the successful runs of the closed division, each once.

    Later rounds repeat results of earlier ones: one duration, batch and number of accelerators is one run.
    """
    import pandas as pd

    runs = pd.DataFrame([{name: line[name] for name in COLUMNS} for line in lines])
    runs = runs.replace({"benchmark": {"mask": "maskrcnn"}})  # INFERENCE: a submitter's own name for it
    runs = runs[runs.status.str.lower().isin(["success", "true"]) & ~runs.system.map(is_open)]
    for name in ("global_batch_size_samples", "accelerators", "duration_s"):
        runs[name] = pd.to_numeric(runs[name], errors="coerce")
    runs["needed"] = pd.to_numeric(runs.last_eval_epoch_or_samples, errors="coerce")
    runs["metric"] = pd.to_numeric(runs.last_eval_value, errors="coerce")
    once = ["benchmark", "duration_s", "global_batch_size_samples", "accelerators"]
    return runs.sort_values("round", kind="stable").drop_duplicates(once)


def at_batches(runs: pd.DataFrame, benchmark: Benchmark) -> list[AtBatch]:
    """Returns what each batch of a benchmark needed, smallest batch first.

    Args:
        runs: Those of `runs_of`.
        benchmark: The benchmark.
    """
    runs = runs[runs.benchmark.eq(benchmark.name) & runs["round"].isin(benchmark.rounds)]
    runs = runs[runs.needed >= benchmark.least]
    if runs.metric.notna().any():
        runs = runs[(runs.metric / runs.metric.median() - 1).abs() <= SAME_TARGET]
    rows = []
    for batch in sorted(runs.global_batch_size_samples.dropna().unique()):
        same = runs[runs.global_batch_size_samples == batch]
        needed = same.groupby(["round", "submitter", "system"]).needed.median()
        rows.append(AtBatch(benchmark.words, int(batch), float(needed.median()), len(needed), str(same.source.iloc[0])))
    return rows


def groups(lines: Sequence[Line]) -> tuple[list[list[AtBatch]], list[LeftOut]]:
    """Returns the batches of every benchmark, and what is not compared."""
    runs = runs_of(lines)
    left_out = [LeftOut(NAME, name, reason) for name, reason in NOT_COMPARED.items()]
    other = sorted({line["system"] for line in lines if is_open(line["system"])})
    left_out += [LeftOut(NAME, system, OPEN) for system in other]
    return [rows for benchmark in BENCHMARKS if (rows := at_batches(runs, benchmark))], left_out


def known_to(row: AtBatch, rows: Sequence[AtBatch]) -> list[AtBatch]:
    """Returns the batches that a batch is predicted from, those of the other half."""
    return [other for other in rows if other.half != row.half]


@cache
def _fit(known: tuple[AtBatch, ...]) -> Relation | None:
    if len(known) < FEWEST or known[-1].batch < SPAN * known[0].batch:
        return None
    return fit([row.batch for row in known], [row.needed for row in known])


def predict(rows: Sequence[AtBatch]) -> list[Outcome | LeftOut]:
    """Predicts the batches of a benchmark, each from those of the other half."""
    outcomes: list[Outcome | LeftOut] = []
    for row in rows:
        known = known_to(row, rows)
        relation = _fit(tuple(known))
        if relation is None:
            batches = ", ".join(str(other.batch) for other in known) or "none"
            reason = (
                f"found batches of the other half: {batches}; a fit takes {FEWEST} or more, over a factor of {SPAN:g}"
            )
            outcomes.append(LeftOut(NAME, row.name, reason))
            continue
        outcomes.append(
            Outcome(
                set=NAME,
                name=row.name,
                system=row.benchmark,
                family=row.benchmark,
                unit="samples" if row.benchmark.startswith("bert") else "epochs",
                measured=row.needed,
                predicted=relation.needed(row.batch),
                simpler={CONSTANT: relation.constant},
                assumed=(f"noise scale {relation.noise_scale:.3g} samples, fitted to {len(known)} other batches",),
                source=row.source,
            )
        )
    return outcomes


@cache
def published_relations(rounds: tuple[str, ...]) -> dict[int, Relation]:
    """Returns the relation of ResNet-50 for each of its batches, fitted to the batches of the other half.

    Args:
        rounds: Those of a benchmark in `BENCHMARKS`.
    """
    rows = at_batches(runs_of(SET.lines()), Benchmark("resnet", rounds))
    relations = {row.batch: _fit(tuple(known_to(row, rows))) for row in rows}
    return {batch: relation for batch, relation in relations.items() if relation is not None}


SET = MeasurementSet(
    name=NAME,
    title="MLPerf Training: epochs to the target by global batch, from other batches",
    file="mlperf_training_runs.csv.gz",
    columns=frozenset(COLUMNS),
    aim=(0.10, None),
    groups=groups,
    predict=predict,
    in_sight=True,
)
