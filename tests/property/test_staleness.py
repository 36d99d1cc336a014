"""Properties of all kinds of staleness, in every order of moves."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms import METHODS
from paceline.algorithms.methods.layerwise import LayerwiseAgd
from paceline.algorithms.methods.parameter_server import AsyncSgd, Softsync
from paceline.algorithms.methods.periodic import KAvg
from paceline.algorithms.methods.ssp import Ssp
from paceline.checking.anyorder import AnyOrder
from paceline.checking.moves import Shuffled
from paceline.records.staleness import CLOCK_GAP, NAMES, by_rank, clock_gaps, figures, measured, over_time
from paceline.records.tables import Tables, assemble
from paceline.records.trace import Schedule, Trace
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.network.network import NoCost
from tests.support import FixedTiming, built, job_of, nodes_for
from tests.thorough import FAMILIES, examples, sampled

ORDERS = st.integers(0, 2**16).map(Shuffled)

LAYERWISE = [name for name in METHODS if name.startswith("layerwise")]


def tables_of(trace: Trace) -> Tables:
    return assemble(trace, num_samples=64)


@pytest.mark.parametrize("name", sampled(METHODS, FAMILIES))
@examples(4, 32)
@given(order=ORDERS, steps=st.integers(0, 6))
def test_every_part_adds_up_and_nothing_is_younger_than_new(name: str, order: Shuffled, steps: int) -> None:
    """Ranks and windows hold each row once, in every notion; ages are known and not negative; so is staleness."""
    method = built(name)
    trace = AnyOrder(job_of(method, nodes=nodes_for(method), steps=steps)).run(order)
    tables = tables_of(trace)
    assert (tables.updates["age_s"] >= 0).all() and (tables.layers["age_s"] >= 0).all()
    for series in measured(tables, method.staleness_kind).values():
        whole, total = figures(series), int(series["value"].sum())
        assert (series["value"] >= 0).all()
        for parts in (by_rank(series), over_time(series, trace.wall_s)):
            assert sum(part["count"] for part in parts) == len(series)
            assert sum(part["count"] * (part["mean"] or 0.0) for part in parts) == pytest.approx(total)
        if len(series):
            assert whole["max"] == max(part["max"] for part in by_rank(series))


@given(
    steps=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), max_size=24),
    workers=st.integers(2, 4),
)
def test_the_clock_gap_is_what_counting_finds(steps: list[tuple[int, int]], workers: int) -> None:
    """Each worker's steps one after the other, with times that often coincide; the slowest is asked for every time."""
    clock_s, done, rows = Counter[int](), Counter[int](), []
    for rank, took_s in steps:
        if rank < workers:
            rows.append(
                (rank, "main", "compute", None, done[rank], float(clock_s[rank]), float(clock_s[rank] + took_s), 0)
            )
            clock_s[rank] += took_s
            done[rank] += 1
    columns = ["rank", "lane", "activity", "layer", "step", "start_s", "end_s", "bytes"]
    spans = pd.DataFrame(rows, columns=columns).astype({"rank": int, "step": int})
    found = clock_gaps(spans, workers)
    for time_s, rank, gap in found.to_numpy().tolist():
        finished = [((spans["rank"] == one) & (spans["end_s"] <= time_s)).sum() for one in range(workers)]
        assert gap == finished[int(rank)] - min(finished)
    assert len(found) == len(rows)


@pytest.mark.parametrize(("workers", "ages"), [(1, {0}), (2, {0, 1, 2})])
def test_local_steps_of_a_single_worker_do_not_age(workers: int, ages: set[int]) -> None:
    """Its weights are the average of all workers after every step."""
    trace = AnyOrder(job_of(KAvg(k=3), workers, steps=7)).run()
    assert {row.staleness for row in trace.updates} == ages


def test_without_ssp_the_gap_is_beyond_it() -> None:
    """Without the bound, the forbidden gap occurs: 1 step of the slow worker takes as long as 8 of the fast one."""
    timing = FixedTiming(lambda rank, _: 8.0 if rank else 1.0)
    gaps = []
    for method in (Ssp(slack=1), AsyncSgd()):
        tables = tables_of(simulate_job(job_of(method, 2, steps=40), timing, NoCost(), Schedule(100)))
        gaps.append(figures(clock_gaps(tables.spans, 2))["max"])
    assert gaps[0] == 2 and gaps[1] is not None and gaps[1] > 8


@pytest.mark.parametrize("name", LAYERWISE)
@examples(6, 200)
@given(order=ORDERS, workers=st.integers(1, 3), delay=st.integers(0, 3), steps=st.integers(0, 5))
def test_every_layer_lands_once_and_is_as_late_as_promised(
    name: str, order: Shuffled, workers: int, delay: int, steps: int
) -> None:
    """Each layer of each step, on every worker, exactly `delay` steps late, with the versions of the whole update."""
    method: Any = LayerwiseAgd(delay=delay, bucket=None) if name == "layerwise-agd" else built(name)
    late = delay if name == "layerwise-agd" else 0
    job = job_of(method, workers, steps=steps)
    trace = AnyOrder(job).run(order)
    assert {row.staleness for row in trace.layers} <= {late}
    versions = {(row.rank, row.step): (row.version_read, row.version_applied) for row in trace.updates}
    landed = Counter((row.rank, row.step, row.layer) for row in trace.layers)
    names = [layer.name for layer in job.learner.layout.layers]
    assert landed == Counter((rank, step, layer) for rank, step in versions for layer in names)
    for row in trace.layers:
        assert (row.version_read, row.version_applied) == versions[row.rank, row.step]
    whole_s = {(row.rank, row.step): row.time_s for row in trace.updates}
    assert all(row.time_s <= whole_s[row.rank, row.step] for row in trace.layers)


@pytest.mark.parametrize("workers", [4, 8])
@pytest.mark.parametrize("gradients", [1, 2, 4])
def test_the_mean_of_a_server_is_that_of_the_law_and_ranks_are_not(workers: int, gradients: int) -> None:
    """Numbers 24 and 28 in the figures of a run: mean (λ − 1) / c; unlike ranks have a larger mean of their means.

    A finite run falls short by what its first and last rounds lack, O(λ²) updates in all.
    """
    updates = 2000 // gradients
    timing = FixedTiming(lambda rank, _: 1.0 + 0.37 * rank)
    method = Softsync(n=workers // gradients)
    tables = tables_of(simulate_job(job_of(method, workers, steps=updates), timing, NoCost(), Schedule(10**9)))
    found = figures(measured(tables, method.staleness_kind)[NAMES[method.staleness_kind]])
    assert found["mean"] is not None and found["mean_of_ranks"] is not None
    assert abs(found["mean"] - (workers - 1) / gradients) <= 4 * workers**2 / 2000
    assert found["mean_of_ranks"] > 1.05 * found["mean"]


def test_a_layer_that_is_reduced_sooner_is_younger() -> None:
    """The last layer's mean is applied as the next step begins, the first's once that step has got down to it."""
    timing = FixedTiming(1.0)
    job = job_of(LayerwiseAgd(delay=1, bucket=None), 2, steps=6)
    tables = tables_of(simulate_job(job, timing, NoCost(), Schedule(100)))
    means = tables.layers.groupby("layer")["age_s"].mean()
    np.testing.assert_allclose(means[["second", "first"]], [1.0, 1 + 2 / 3])


def test_every_method_with_several_workers_has_a_clock_gap() -> None:
    for name in METHODS:
        method = built(name)
        job = job_of(method, nodes=nodes_for(method), steps=4)
        found = measured(tables_of(AnyOrder(job).run()), method.staleness_kind, job.workers)
        assert list(found) == [NAMES[method.staleness_kind]] + ([CLOCK_GAP] if job.workers > 1 else [])
