"""Figures of runs small enough to compute by hand."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd
import pytest

from paceline.algorithms.core.job import Evaluation
from paceline.algorithms.core.method import StalenessKind
from paceline.algorithms.core.values import Rank
from paceline.algorithms.runtime.weights_owner import Update
from paceline.records.figures import IN_SUMMARY, THROUGHPUT
from paceline.records.metrics import total_variation
from paceline.records.summary import Summary, reduce_tables, summarise
from paceline.records.tables import assemble
from paceline.records.targets import Targets, axes_of, crossing
from paceline.records.trace import Activity, Snapshot, Span, Trace


def span(
    rank: int,
    activity: Activity,
    start_s: float,
    end_s: float,
    *,
    step: int = 0,
    lane: str = "main",
    key: str | None = None,
    sent: int = 0,
) -> Span:
    return Span(Rank(rank), lane, activity, None, step, start_s, end_s, sent, None, key)


def summary(
    trace: Trace,
    *,
    staleness_kind: StalenessKind = StalenessKind.STEPS,
    target: float | None = None,
    smoothing: int = 1,
    workers: int = 2,
) -> Summary:
    tables = assemble(trace, num_samples=100)
    return summarise(
        reduce_tables(
            tables,
            wall_s=trace.wall_s,
            workers=workers,
            staleness_kind=staleness_kind,
            targets=Targets(accuracy=target, smoothing=smoothing),
        ),
        kind="simulated",
    )


def two_steps_of_two_workers() -> Trace:
    """Rank 0 computes 0–2 and 4–6, rank 1 0–3 and 4–7; each all-reduce of 80 bytes takes a second; nothing else."""
    spans, updates = [], []
    for step, began_s in enumerate((0.0, 4.0)):
        for rank, busy_s in enumerate((2.0, 3.0)):
            spans.append(span(rank, "compute", began_s, began_s + busy_s, step=step))
            spans.append(
                span(rank, "collective", began_s + busy_s, began_s + 4.0, step=step, key=f"gradient {step}", sent=80)
            )
            updates.append(Update(began_s + 4.0, Rank(rank), step, step, step, 0, 10))
    return Trace(spans=spans, updates=updates, wall_s=8.0)


def test_two_synchronous_steps() -> None:
    found = summary(two_steps_of_two_workers())
    assert found["steps"] == 4
    assert found["updates"] == 2  # both replicas applied each of the two means
    assert found["samples"] == 40
    assert found["samples_per_s"] == 5.0
    assert found["step_s"] == {"mean": 4.0, "p50": 4.0, "p95": 4.0}
    assert found["bytes_sent"] == 320
    assert found["time_fraction"] == {
        "compute": 10 / 16,
        "load": 0,
        "update": 0,
        "communication": 4 / 16,
        "wait": 2 / 16,
    }
    assert found["staleness"]["mean"] == found["staleness"]["mean_of_ranks"] == found["staleness"]["max"] == 0
    assert found["staleness"]["histogram"] == [[0, 4]]


def test_communication_behind_a_gradient_is_hidden_and_uncovered_time_is_waiting() -> None:
    spans = [
        span(0, "compute", 0.0, 4.0),
        span(0, "collective", 1.0, 6.0, lane="1", key="k"),
        span(0, "load", 5.5, 7.0),
        span(0, "update", 6.5, 8.0),
    ]
    share = summary(Trace(spans=spans, wall_s=10.0), workers=1)["time_fraction"]
    assert share == {"compute": 0.4, "communication": 0.15, "load": 0.15, "update": 0.1, "wait": 0.2}


def test_the_server_has_no_share_and_no_steps() -> None:
    spans = [span(0, "compute", 0.0, 1.0), span(1, "update", 0.0, 2.0)]
    found = summary(Trace(spans=spans, wall_s=2.0), workers=1)
    assert found["time_fraction"] == {"compute": 0.5, "communication": 0, "load": 0, "update": 0, "wait": 0.5}
    assert found["steps"] == 1


def test_step_times_are_pooled_over_ranks_and_layers_make_one_step() -> None:
    spans = [span(0, "compute", start_s, start_s + 0.1, step=step) for step, start_s in enumerate((0.0, 1.0, 3.0))]
    spans += [span(1, "compute", start_s, start_s + 0.1, step=step) for step, start_s in enumerate((0.0, 9.0))]
    spans += [span(1, "compute", 9.5, 9.6, step=1)]  # another layer of the same gradient
    found = summary(Trace(spans=spans, wall_s=10.0))
    assert found["steps"] == 5
    # steps of 1, 2 and, to the end of the last activity, 0.1 s; and of 9 and 0.6 s
    assert found["step_s"] == pytest.approx({"mean": 12.7 / 5, "p50": 1.0, "p95": 2 + 0.8 * 7})


def test_the_last_average_of_a_run_belongs_to_its_last_step() -> None:
    spans = [span(0, "compute", 0.25 + step, 1.25 + step, step=step) for step in range(4)]
    spans += [span(0, "collective", 4.25, 7.25, step=3), span(0, "copy", 7.25, 9.0, step=3)]
    found = summary(Trace(spans=spans, wall_s=7.25), workers=1)
    assert found["step_s"] == pytest.approx({"mean": 7 / 4, "p50": 1.0, "p95": 1 + 3 * 0.85})
    assert found["wall_s"] == 0.25 + found["steps"] * found["step_s"]["mean"]  # type: ignore[operator]


def test_staleness_per_update_and_per_rank() -> None:
    """Rank 0 is fast: three updates at 0, 1, 1; rank 1 has one at 6. Mean 2; mean of ranks (2/3 + 6) / 2."""
    lags = [(0, 0), (0, 1), (1, 6), (0, 1)]
    updates = [Update(float(n), Rank(rank), n, n - lag, n, lag, 1) for n, (rank, lag) in enumerate(lags)]
    found = summary(Trace(updates=updates, wall_s=4.0), staleness_kind=StalenessKind.VERSION_LAG)["staleness"]
    assert found == {
        "notion": StalenessKind.VERSION_LAG.value,
        "mean": 2.0,
        "mean_of_ranks": pytest.approx(10 / 3),
        "max": 6,
        "histogram": [[0, 1], [1, 2], [6, 1]],
        "by_rank": [[0, pytest.approx(2 / 3)], [1, 6.0]],
        "notions": {"version lag": {"mean": 2.0, "max": 6, "mean_of_ranks": pytest.approx(10 / 3)}},
    }


def test_local_steps_between_averages_are_updates_too() -> None:
    """Versions count averages: four local steps of two workers, averaged after every second one."""
    updates = [
        Update(float(step), Rank(rank), step, step // 2, step // 2, step % 2, 1)
        for step in range(4)
        for rank in range(2)
    ]
    trace = Trace(updates=updates, wall_s=4.0)
    assert summary(trace, staleness_kind=StalenessKind.LOCAL_AGE)["updates"] == 4
    assert summary(trace, staleness_kind=StalenessKind.STEPS)["updates"] == 2


def learning(*points: tuple[float, float, float | None]) -> Trace:
    return Trace(
        snapshots=[Snapshot(t, 0, 0, None, Evaluation(loss, accuracy)) for t, loss, accuracy in points],
        wall_s=points[-1][0],
    )


@pytest.mark.parametrize(
    ("target", "smoothing", "expected"),
    [
        pytest.param(0.5, 1, 1.5, id="raw: between 0.3 at 1 and 0.7 at 2"),
        pytest.param(0.5, 2, 2.0, id="smoothed over two: 0.1, 0.2, 0.5, 0.8"),
        pytest.param(0.1, 1, 0.0, id="reached before the first step"),
        pytest.param(0.95, 1, None, id="not reached"),
    ],
)
def test_time_to_accuracy(target: float, smoothing: int, expected: float | None) -> None:
    trace = learning((0.0, 2.0, 0.1), (1.0, 1.5, 0.3), (2.0, 1.0, 0.7), (3.0, 0.5, 0.9))
    found = summary(trace, target=target, smoothing=smoothing)
    assert found["time_to_accuracy_s"] == pytest.approx(expected)
    assert found["smoothing"] == smoothing
    assert (found["final_loss"], found["final_accuracy"]) == (0.5, 0.9)


def test_a_gap_in_the_values_is_not_interpolated_over() -> None:
    found = crossing(0.5, [0.1, float("nan"), 0.9])
    assert found is not None and found.at([0.0, 1.0, 2.0]) == 2.0


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ((2.0, 0.1), False),
        ((2.0, float("inf")), True),
        ((2.0, 21.0), True),
        ((2.0, 19.0), False),
        ((float("nan"), float("nan")), False),
    ],
)
def test_diverged(losses: tuple[float, float], expected: bool) -> None:
    found = summary(learning((0.0, losses[0], None), (1.0, losses[1], None)))
    assert found["diverged"] is expected


def test_an_empty_run_has_every_key_and_is_json_without_nan() -> None:
    found = summary(Trace())
    text = json.dumps(found, allow_nan=False)
    assert json.loads(text)["staleness"]["mean"] is None
    assert found["step_s"] == {"mean": None, "p50": None, "p95": None}
    assert found["samples_per_s"] is None
    promised = {
        "kind",
        "wall_s",
        "steps",
        "updates",
        "samples",
        "samples_per_s",
        "step_s",
        "time_fraction",
        "bytes_sent",
        "staleness",
        "time_to_accuracy_s",
        "final_loss",
        "final_accuracy",
        "diverged",
    }
    assert promised <= found.keys()


def test_total_variation() -> None:
    assert total_variation([[0, 3], [1, 1]], [[0, 30], [1, 10]]) == 0
    assert total_variation([[0, 3]], [[1, 1]]) == 1
    assert total_variation([[0, 1], [1, 1]], [[0, 1], [1, 3]]) == 0.25
    assert total_variation([], [[0, 1]]) is None


def test_in_shared_memory_each_row_is_an_update_even_of_the_same_version() -> None:
    """Two workers may have replaced the same version, because neither had counted when the other read."""
    trace = Trace(updates=[Update(1.0, Rank(rank), 0, 0, 1, 1, 10) for rank in (0, 1)], wall_s=1.0)
    trace.lost_updates = {"adds": 2, "lost_share": 0.25}
    found = summarise(
        reduce_tables(
            assemble(trace, num_samples=100),
            wall_s=1.0,
            workers=2,
            staleness_kind=StalenessKind.VERSION_LAG,
            each_counts=True,
        ),
        trace,
        kind="measured",
    )
    assert (found["updates"], found["lost_updates"]) == (2, {"adds": 2, "lost_share": 0.25})
    assert summary(trace, staleness_kind=StalenessKind.VERSION_LAG)["updates"] == 1
    assert summary(trace)["lost_updates"] is None


def test_an_evaluation_comes_after_the_updates_of_its_time() -> None:
    evaluations = pd.DataFrame({"time_s": [0.0, 1.0, 2.0], "samples": [0, 20, 30]})
    updates = pd.DataFrame({"time_s": [1.0, 1.0, 1.5]})
    assert list(axes_of(evaluations, updates).updates) == [0, 2, 3]


def test_every_figure_of_a_run_is_computed_and_stands_at_its_key() -> None:
    """A figure is added to all outputs by its declaration alone."""
    found = summary(two_steps_of_two_workers())
    for figure in IN_SUMMARY:
        *way, name = figure.key.split(".")
        place: Any = found
        for one in way:
            place = place[one]
        assert figure.compute is not None and name in place, figure.key
    assert THROUGHPUT.of(found) == found["samples_per_s"] == found["samples"] / found["wall_s"]
