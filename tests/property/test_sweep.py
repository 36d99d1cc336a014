"""Sweeps under Hypothesis: the grid is the product, and every sweep has a table, figures and text."""

from __future__ import annotations

import contextlib
import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.reports.comparison.ranking import Aim
from paceline.reports.png import figure_of
from paceline.reports.sweeps import sweep as sweep_module
from paceline.reports.sweeps.parallel_tasks import Done, TaskFailure
from paceline.reports.sweeps.point_store import PointStore
from paceline.reports.sweeps.sweep import SweepEntry, SweepResult
from paceline.reports.sweeps.sweep_answer import charts, sweep_answer
from paceline.reports.sweeps.sweep_table import SweepTable, tabulate
from paceline.reports.text import as_text
from paceline.scenarios.resolution.grid import axis, grid
from tests.made_up import run
from tests.thorough import examples

WORDS = st.text("abc -:.", min_size=1, max_size=4).map(str.strip).filter(bool)
LINKS: list[Any] = ["eth-1g", "ib-edr", {"latency": "2 us", "bandwidth": "1 Gbit/s"}]
VALUES: st.SearchStrategy[list[Any]] = (
    st.lists(st.integers(1, 64), min_size=1, max_size=3, unique=True)
    | st.lists(st.floats(0.1, 1e6), min_size=1, max_size=3, unique=True)
    | st.lists(
        st.sampled_from(["eth-1g", "ib-edr", {"latency": "2 us", "bandwidth": "1 Gbit/s"}]), min_size=1, max_size=3
    )
    | st.just([True, False])
    | st.just([1, "auto", None])
)
BASE: dict[str, Any] = dict(run("sync-sgd").summary)


@st.composite
def sweeps(draw: st.DrawFn) -> SweepResult:
    """Artificial runs at all points of a small grid, some of them missing as if they had failed."""
    axes = draw(st.lists(VALUES, min_size=1, max_size=2))
    paths = ["cluster.nodes[0].count", "cluster.network.link", "workload.batch_per_worker"][: len(axes)]
    size_varies = draw(st.booleans()) and all(type(value) is int for value in axes[0])
    entries = []
    for values in product(*axes):
        for algorithm in draw(st.just(["sync-sgd", "async-sgd"])):
            for seed in (1, 2)[: draw(st.integers(0, 2))]:
                figures = {
                    **BASE,
                    "samples_per_s": draw(st.none() | st.floats(1e-3, 1e9)),
                    "time_to_accuracy_s": draw(st.none() | st.floats(0, 1e6)),
                    "diverged": draw(st.booleans()),
                }
                entries.append(
                    SweepEntry(
                        vary=dict(zip(paths, values, strict=True)),
                        algorithm=algorithm,
                        seed=seed,
                        workers=int(values[0]) if size_varies else 4,
                        summary=figures,
                    )
                )
    target = draw(st.sampled_from([None, Aim("accuracy", 0.93)]))
    return SweepResult(scenario="made-up", paths=tuple(paths), target=target, entries=tuple(entries))


@given(st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=4, unique=True), min_size=1, max_size=3))
def test_the_grid_is_the_product_in_order(axes: list[list[int]]) -> None:
    paths = ["cluster.nodes[0].count", "cluster.nodes[1].count", "stop.epochs"][: len(axes)]
    vary = [f"{path}={','.join(map(str, values))}" for path, values in zip(paths, axes, strict=True)]
    points = grid("quickstart", vary, algorithms=["sync-sgd"])
    assert [tuple(point.values.values()) for point in points] == list(product(*axes))
    counts = [point.scenario.dump()["cluster"]["nodes"][0]["count"] for point in points]
    assert counts == [values[0] for values in product(*axes)]


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.integers(2, 10))
def test_a_range_by_factors_holds_exactly_the_powers_within(first: int, last: int, factor: int) -> None:
    low, high = sorted((first, last))
    values = [int(value) for value in axis(f"a={low}..{high}x{factor}").values]
    assert values[0] == low
    assert all(after == factor * before for before, after in pairwise(values))
    assert values[-1] <= high < values[-1] * factor


@given(st.integers(0, 10**6), st.integers(1, 10**6), st.integers(2, 60), st.booleans())
def test_a_number_of_values_has_both_ends_and_is_increasing(first: int, more: int, count: int, log: bool) -> None:
    low, high = first + 1, first + 1 + more
    whole = [int(value) for value in axis(f"a={low}..{high}:{count}{'log' * log}").values]
    parts = [float(value) for value in axis(f"a={low}.0..{high}.0:{count}{'log' * log}").values]
    for values in (whole, parts):
        assert (values[0], values[-1]) == (low, high)
        assert all(low <= value <= high for value in values)
    assert len(parts) == count and all(after > before for before, after in pairwise(whole))
    steps = [math.log(after / before) if log else after - before for before, after in pairwise(parts)]
    spread = 2e-3 if log else 1e-9 * high  # values between the ends have four digits
    assert max(steps) - min(steps) <= spread


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 10**4))
def test_a_range_by_steps_is_that_of_python(first: int, more: int, step: int) -> None:
    step = max(step, more // 9_000 + 1)
    values = [int(value) for value in axis(f"a={first}..{first + more}+{step}").values]
    assert values == list(range(first, first + more + 1, step))


POINTS = """
name: subset
algorithms: [sync-sgd]
workload: {model: lenet, batch_per_worker: 4, learning: none}
cluster: {nodes: [{device: {name: fast, overhead: 4 ms, per_sample: 0.5 ms}}], step_time: {distribution: expon}}
stop: {updates: 5}
"""


def in_process(
    order: list[int], bad: set[int], computed: list[int], end: int
) -> Callable[..., Iterator[tuple[int, Any]]]:
    """Runs tasks in this order; some fail; Ctrl-C comes after `end` of them."""

    def each(work: Any, pieces: Sequence[Any], **_: Any) -> Iterator[tuple[int, Any]]:
        for done, position in enumerate(sorted(range(len(pieces)), key=lambda at: order[at % len(order)])):
            if done == end:
                raise KeyboardInterrupt
            workers = pieces[position].scenario["cluster"]["nodes"][0]["count"]
            computed.append(workers)
            yield position, TaskFailure("died") if workers in bad else Done(work(pieces[position]))

    return each


@given(st.permutations(range(6)), st.integers(0, 6), st.sets(st.integers(1, 6), max_size=2))
@examples(4, 60)
def test_any_subset_before_a_kill_gives_the_same_table(order: list[int], end: int, bad: set[int]) -> None:
    points = grid(POINTS, ["gpus=1..6"])
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        store, computed = PointStore(Path(folder) / "points"), list[int]()
        patch.setattr(sweep_module, "each", in_process(order, bad, computed, 6))
        whole = tabulate(sweep_module.run(points)).whole
        computed.clear()
        patch.setattr(sweep_module, "each", in_process(order, bad, computed, end))
        with contextlib.suppress(KeyboardInterrupt):
            sweep_module.run(points, store=store)
        before = [workers for workers in computed if workers not in bad]
        computed.clear()
        patch.setattr(sweep_module, "each", in_process(order[::-1], bad, computed, 6))
        continued = tabulate(sweep_module.run(points, store=store)).whole
        assert not set(before) & set(computed)
        assert continued.to_csv() == whole.to_csv()


@given(sweeps().filter(lambda sweep: sweep.entries))
@examples(8, 200)
def test_anything_can_be_told_and_derived_figures_hold(sweep: SweepResult) -> None:
    table = tabulate(sweep)
    assert len(table.frame) == len(sweep.entries)
    answer = sweep_answer(table, sweep)
    assert as_text(answer.blocks, 80) and answer.sections() and answer.data()
    _check_derived(table)


@given(sweeps().filter(lambda sweep: sweep.entries))
@examples(2, 40)
def test_anything_can_be_drawn(sweep: SweepResult) -> None:
    table = tabulate(sweep)
    for rows in (table.frame, table.frame.head(4)):
        if shown := charts(table, rows):
            figure_of(shown).draw_without_rendering()


def _check_derived(table: SweepTable) -> None:
    """Compared with another algorithm: look the smallest cluster up for each row."""
    frame = table.frame
    fixed = ["algorithm", "seed", *(path for path in table.paths if path not in table.sizes)]
    rows = frame.to_dict("records")
    for row in rows:
        alike = [other for other in rows if all(_same(row[key], other[key]) for key in fixed)]
        base = min(alike, key=lambda other: other["workers"])
        if len({other["workers"] for other in alike}) == 1:
            assert pd.isna(row["base_workers"]) and pd.isna(row["speed_up"]) and pd.isna(row["efficiency"])
            continue
        assert row["base_workers"] == base["workers"]
        if pd.isna(row["samples_per_s"]) or pd.isna(base["samples_per_s"]):
            assert pd.isna(row["speed_up"])
            continue
        assert math.isclose(row["speed_up"], row["samples_per_s"] / base["samples_per_s"], rel_tol=1e-12)
        ideal = row["workers"] / base["workers"]
        assert math.isclose(row["efficiency"], row["speed_up"] / ideal, rel_tol=1e-12)


def _same(one: Any, other: Any) -> bool:
    return bool(one == other) or (pd.isna(one) and pd.isna(other))
