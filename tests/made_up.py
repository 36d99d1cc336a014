"""Artificial runs whose figures are visible in their arguments."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.algorithms.core.job import Evaluation
from paceline.algorithms.core.method import StalenessKind
from paceline.algorithms.core.values import Rank
from paceline.algorithms.runtime.weights_owner import Update
from paceline.records import Run
from paceline.records.summary import Kind, reduce_tables, summarise
from paceline.records.tables import assemble
from paceline.records.targets import Targets
from paceline.records.trace import Snapshot, Span, Trace


def run(
    algorithm: str,
    kind: Kind = "simulated",
    *,
    step_s: float = 1.0,
    seed: int = 1,
    lags: Sequence[int] = (0, 0, 1, 1),
    accuracies: Sequence[float] = (0.1, 0.5, 0.9, 1.0),
    target: float | None = 0.9,
) -> Run:
    """Two workers whose gradients start every `step_s` seconds; evaluation number k comes at k seconds, unsmoothed."""
    trace = Trace(wall_s=step_s * len(lags))
    for step, lag in enumerate(lags):
        for rank in (Rank(0), Rank(1)):
            trace.spans.append(Span(rank, "main", "compute", None, step, step * step_s, (step + 0.5) * step_s))
            trace.spans.append(Span(rank, "main", "send", None, step, (step + 1) * step_s, (step + 1) * step_s, 100))
        trace.updates.append(Update((step + 1) * step_s, Rank(step % 2), step, step - lag, step, lag, 10))
    for second, accuracy in enumerate(accuracies):
        trace.snapshots.append(Snapshot(float(second), second, 10 * second, None, Evaluation(1 - accuracy, accuracy)))
    tables = assemble(trace, num_samples=40)
    summary = summarise(
        reduce_tables(
            tables,
            wall_s=trace.wall_s,
            workers=2,
            staleness_kind=StalenessKind.VERSION_LAG,
            targets=Targets(accuracy=target, smoothing=1),
        ),
        kind=kind,
        paced=kind == "measured",
    )
    return Run(scenario={"name": "tiny"}, name="tiny", algorithm=algorithm, seed=seed, summary=summary, tables=tables)
