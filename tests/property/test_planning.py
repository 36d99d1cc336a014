"""Properties of plans: fronts without dominated plans, bounds that stop no better plan, and disjoint seeds."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from paceline.reports.planning.request import Limits, bound_s, dominates, pareto_front, values_of
from paceline.reports.planning.search_space import TUNING_SEEDS, nodes_for, reported_seeds, tuning_seeds
from paceline.reports.run_cost import PriceRates

FIGURE = st.floats(0.001, 1000.0)
POINTS = st.lists(st.tuples(FIGURE, FIGURE, FIGURE), min_size=1, max_size=30)


@given(POINTS)
def test_a_front_has_no_dominated_plan_and_covers_all_others(points: Sequence[tuple[float, float, float]]) -> None:
    front = pareto_front(points)
    assert front
    for at in front:
        assert not any(dominates(other, points[at]) for other in points)
    for at, one in enumerate(points):
        assert at in front or any(dominates(points[member], one) for member in front)
    assert [points[at][0] for at in front] == sorted(points[at][0] for at in front)


@given(POINTS, FIGURE, FIGURE, FIGURE)
def test_a_trial_that_is_not_dominated_is_not_stopped(
    points: Sequence[tuple[float, float, float]], usd_per_hour: float, watts: float, time_s: float
) -> None:
    rates = PriceRates(usd_per_hour=usd_per_hour, watts=watts)
    own = values_of(("time", "cost", "energy"), rates, time_s)
    bound = bound_s(("time", "cost", "energy"), rates, points, Limits(), slack=1.0)
    worse = any(all(value > reached for value, reached in zip(own, point, strict=True)) for point in points)
    if time_s < bound * (1 - 1e-9):
        assert not worse
    if time_s > bound * (1 + 1e-9):
        assert worse


@given(st.integers(0, 10**6), st.integers(1, 1000), st.integers(1, TUNING_SEEDS))
def test_reported_seeds_are_never_tuning_seeds(seed: int, tuning: int, reported: int) -> None:
    assert not set(tuning_seeds(seed, tuning)) & set(reported_seeds(seed, reported))


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(1, 60))
def test_nodes_have_exactly_the_workers(sizes: Sequence[int], workers: int) -> None:
    offered = [({"device": str(number), "workers_per_node": size}, size) for number, size in enumerate(sizes)]
    made = nodes_for(offered, workers)
    assert sum(node["count"] * node["workers_per_node"] for node in made) == workers
