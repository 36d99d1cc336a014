"""How steps vary: what is drawn has the distribution, the shares and the correlation over time that were asked for."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from paceline import load
from paceline.algorithms.core.values import Rank
from paceline.scenarios.resolution.plan import Plan
from paceline.scenarios.values.mistakes import ScenarioError
from paceline.simulator.runs.run import perform
from paceline.topologies.faults.jitter import Jitter
from paceline.topologies.faults.step_profiles import profile_named
from paceline.topologies.faults.step_times import StepTimes, StepTrace, correlation, phase_at
from tests.thorough import examples

SIGMA, WORKERS, EACH = 0.3, 2000, 8
LAWS = [Jitter.of("lognorm", sigma=SIGMA), Jitter.of("gamma", shape=4.0), Jitter.of("expon")]
ASKED: dict[str, Any] = {"node": 0.15, "persistent": 0.35, "correlated": 0.3, "correlation_time_s": 20.0}
APART_S = 10.0
BY_CHANCE = 0.05
"""what the correlation of 2,000 workers on 250 nodes differs by from that of infinitely many: three standard errors"""


def drawn(times: StepTimes, starts_s: list[float], seed: int = 1) -> NDArray[np.float64]:
    """Returns the factors of all workers for steps that begin at these times, shape (steps, workers)."""
    factors = times.of_ranks(seed, range(WORKERS), [rank // EACH for rank in range(WORKERS)])
    return np.array([factors.factors(step, np.full(WORKERS, start_s)) for step, start_s in enumerate(starts_s)])


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.distribution)
def test_shares_and_correlation_times_are_those_asked_for(law: Jitter) -> None:
    times = StepTimes(law=law, **ASKED)
    first, soon, later = drawn(times, [0.0, 1e-6, APART_S])
    apart = np.corrcoef([first, soon, later])
    assert apart[0, 1] == pytest.approx(0.8, abs=BY_CHANCE)
    assert apart[0, 2] == pytest.approx(0.5 + 0.3 * math.exp(-0.5), abs=BY_CHANCE)
    assert apart[0, 2] == pytest.approx(correlation(times, APART_S), abs=BY_CHANCE)
    neighbours = np.corrcoef(first.reshape(-1, EACH).T)
    assert neighbours[np.triu_indices(EACH, 1)].mean() == pytest.approx(0.15, abs=BY_CHANCE)


@pytest.mark.parametrize("sigma", [0.1, 0.3, 1.0])
def test_weights_of_a_lognormal_distribution_have_a_closed_form(sigma: float) -> None:
    """Normal parts whose squares add up to x explain (e^(σ²x) - 1) / (e^(σ²) - 1) of the variance."""
    weights = StepTimes(law=Jitter.of("lognorm", sigma=sigma), **ASKED).weights
    squares = np.cumsum([weights.node**2, weights.persistent**2, weights.correlated**2])
    assert np.expm1(sigma**2 * squares) / np.expm1(sigma**2) == pytest.approx([0.15, 0.5, 0.8], rel=1e-3)
    assert squares[-1] + weights.noise**2 == pytest.approx(1.0)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.distribution)
def test_all_steps_together_have_the_distribution(law: Jitter) -> None:
    """Every worker of its own node, far apart in time, so that the factors of one step are independent."""
    times = StepTimes(law=law, persistent=0.4, correlated=0.3, correlation_time_s=20.0)
    factors = np.sort(drawn(times, [0.0])[0])
    expected = law.quantiles(WORKERS)
    assert factors.mean() == pytest.approx(1.0, abs=0.08)
    inner = slice(WORKERS // 50, -WORKERS // 50)
    assert factors[inner] == pytest.approx(np.array(expected)[inner], rel=0.12, abs=0.02)


def test_a_part_keeps_its_number_for_its_correlation_time_on_average() -> None:
    lasting_s = []
    for place in range(400):
        phase = phase_at(3, 24, place, 5.0, 1000.0)
        assert phase.begin_s <= 1000.0 < phase.end_s
        assert phase_at(3, 24, place, 5.0, (phase.begin_s + phase.end_s) / 2) == phase
        lasting_s.append(phase_at(3, 24, place, 5.0, phase.end_s).end_s - phase.end_s)
    assert np.mean(lasting_s) == pytest.approx(5.0, rel=0.15)


@given(time_s=st.floats(0, 1e5), mean_s=st.floats(1e-3, 1e4), place=st.integers(0, 10**6), later_s=st.floats(0, 1e5))
@examples(100)
def test_a_phase_is_the_same_whatever_was_asked_before(
    time_s: float, mean_s: float, place: int, later_s: float
) -> None:
    phase = phase_at(1, 24, place, mean_s, time_s)
    phase_at(1, 24, place, mean_s, later_s)
    assert phase.begin_s <= time_s < phase.end_s
    assert phase_at(1, 24, place, mean_s, phase.begin_s) == phase
    assert phase_at(1, 24, place, mean_s, phase.end_s) != phase


@given(
    shares=st.lists(st.floats(0.0, 0.33), min_size=3, max_size=3), rank=st.integers(0, 40), step=st.integers(0, 600),
    start_s=st.floats(0, 1e4), law=st.sampled_from(LAWS), workers=st.sampled_from([(), (0.5, 1.5, 1.0)]),
)  # fmt: skip
@examples(60)
def test_many_ranks_have_the_factors_of_each(
    shares: list[float], rank: int, step: int, start_s: float, law: Jitter, workers: tuple[float, ...]
) -> None:
    node, persistent, correlated = shares
    times = StepTimes(
        law=law, node=node, persistent=persistent, correlated=correlated, correlation_time_s=30.0, workers=workers,
        node_correlation_time_s=60.0,
    )  # fmt: skip
    ranks, nodes = range(41), [each // 4 for each in range(41)]
    many = times.of_ranks(1, ranks, nodes).factors(step, np.full(41, start_s))
    assert float(many[rank]) == times.factor(1, rank, rank // 4, step, start_s)


@given(
    rank=st.integers(0, 4999), step=st.integers(0, 600), start_s=st.floats(0, 1e4), law=st.sampled_from(LAWS),
    seed=st.sampled_from([1, 2**40]), parts=st.booleans(),
)  # fmt: skip
@examples(5)
def test_thousands_of_ranks_have_the_factors_of_each(
    rank: int, step: int, start_s: float, law: Jitter, seed: int, parts: bool
) -> None:
    times = StepTimes(law=law)
    if parts:
        times = replace(times, node=0.1, persistent=0.3, correlated=0.2, correlation_time_s=30.0)
    ranks, nodes = range(5000), [each // 4 for each in range(5000)]
    many = times.of_ranks(seed, ranks, nodes, steps=step + 1)
    later_s = start_s + np.arange(5000.0)
    for starts_s in (np.full(5000, start_s), later_s):
        found = float(many.factors(step, starts_s)[rank])
        assert found == times.factor(seed, rank, rank // 4, step, float(starts_s[rank]))


@given(rank=st.integers(0, 40), step=st.integers(0, 600), start_s=st.floats(0, 1e4), law=st.sampled_from(LAWS))
@examples(30)
def test_without_parts_a_factor_is_that_of_the_distribution(rank: int, step: int, start_s: float, law: Jitter) -> None:
    times = StepTimes(law=law)
    assert times.factor(1, rank, 0, step, start_s) == law.factor(1, rank, step)
    assert float(times.of_ranks(1, [rank], [0]).factors(step, np.array([start_s]))[0]) == law.factor(1, rank, step)


def test_known_workers_keep_their_factors_and_others_draw_one() -> None:
    times = StepTimes(workers=(1.0, 3.0))
    assert [times.factor(1, rank, 0, 5, 0.0) for rank in range(2)] == [0.5, 1.5]
    assert {times.factor(1, rank, 0, 5, 0.0) for rank in range(2, 40)} == {0.5, 1.5}


# --- traces -----------------------------------------------------------------------------------------------------------


def test_a_trace_is_replayed_and_goes_on_in_blocks() -> None:
    seconds = np.arange(1.0, 401.0).reshape(2, 200)
    trace = StepTrace.of("made", seconds)
    replayed = [[trace.factor(1, rank, step) for step in range(200)] for rank in range(2)]
    assert replayed == pytest.approx(seconds / seconds.mean(), rel=1e-12)
    for rank, first in ((0, 256), (1, 256), (2, 0), (3, 0)):  # further steps, further workers
        block = np.array([trace.factor(1, rank, step) for step in range(first, first + 64)]) * seconds.mean()
        assert np.diff(block) == pytest.approx(1.0)
    pair = [trace.factor(1, rank, 300) * seconds.mean() for rank in (2, 3)]
    assert pair[1] - pair[0] == pytest.approx(200.0), "workers that were measured together stay together"


# --- in scenarios -----------------------------------------------------------------------------------------------------


def plan_of(step_time: dict[str, Any], *changes: str, algorithm: str = "sync-sgd") -> Plan:
    scenario = load("quickstart", ["stop={samples: 2048}", *changes], algorithms=[algorithm])
    document = scenario.dump()
    document["cluster"]["step_time"] = step_time
    return load(document).plans()[0]


PARTS = {"distribution": "lognorm", "sigma": 0.5, "persistent": "30 %", "node": 0.2, "correlation_time": "100 ms"}


@pytest.mark.parametrize("algorithm", ["sync-sgd", "local-sgd", "layerwise-sgd"])
@pytest.mark.parametrize("step_time", [PARTS, {"profile": "shared-cluster", "level": "high"}], ids=["parts", "profile"])
def test_whole_cohorts_and_events_draw_the_same(algorithm: str, step_time: dict[str, Any]) -> None:
    plan = plan_of(step_time, "workload.learning=none", algorithm=algorithm)
    whole, single = (perform(plan, plan.schedule(), engine=engine) for engine in ("cohort", "events"))
    assert whole.wall_s == pytest.approx(single.wall_s, rel=1e-9)
    seconds = [
        {(span.rank, span.step): span.end_s - span.start_s for span in trace.spans if span.activity == "compute"}
        for trace in (whole, single)
    ]
    assert seconds[0] == pytest.approx(seconds[1], rel=1e-6)


def test_every_method_sees_the_same_slow_phases() -> None:
    """Whatever the number of the step, its factor at a time is the same, apart from the step's own noise."""
    slow = {"distribution": "lognorm", "sigma": 0.5, "correlated": 1, "correlation_time": "200 ms"}
    plan = plan_of(slow)
    times = plan.cluster.step_time
    assert times.factor(1, 0, 0, 3, 0.05) == times.factor(1, 0, 0, 900, 0.05)
    assert plan.compute_s(Rank(0), 3, 32, 0.05) == plan.compute_s(Rank(0), 900, 32, 0.05)


def test_a_paced_run_and_its_prediction_draw_at_the_same_time_of_a_stretched_clock() -> None:
    slow = {"distribution": "lognorm", "sigma": 0.5, "correlated": 1, "correlation_time": "200 ms"}
    plain, stretched = plan_of(slow), load(plan_of(slow, "train.time_dilation=10").document).plans(paced=True)[0]
    assert stretched.compute_s(Rank(1), 7, 32, 20.0) == pytest.approx(10 * plain.compute_s(Rank(1), 7, 32, 2.0))


@pytest.mark.parametrize(
    ("step_time", "message"),
    [
        ({"distribution": "lognorm", "sigma": 0.3, "persistent": 0.8, "node": "30 %"}, "add up to 100 % at most"),
        ({"distribution": "lognorm", "sigma": 0.3, "correlated": 0.8}, "correlation_time: missing"),
        ({"distribution": "lognorm", "sigma": 0.3, "persistent": 1.2}, "expected a share from 0 to 1"),
        ({"distribution": "lognorm", "sigma": 0.3, "correlation_time": 3}, "with its unit"),
        ({"distribution": "none", "persistent": 0.2}, "expected a distribution"),
        ({"distribution": "lognorm", "sigma": 0.3, "workers": [1, -1]}, "numbers above 0"),
        ({"distribution": "lognorm", "sigma": 0.3, "workers": [1, 2], "persistent": 0.1}, "one of the two"),
        ({"profile": "shared"}, "did you mean shared-cluster?"),
        ({"profile": "dedicated", "level": "middle"}, "low, typical or high"),
        ({"profile": "dedicated", "level": "high", "sigma": 0.1}, "sigma: found beside level"),
        ({"profile": "dedicated", "sgma": 0.1}, "did you mean sigma?"),
        ({"profile": "dedicated", "persistent": "90 %"}, "node 10 % + persistent 90 % + correlated 20 %"),
        ({"trace": "missing.csv"}, "found no such file"),
        ({"trace": 3}, "the path of a file"),
        ({"sigma": 0.3}, "{profile: shared-cluster}"),
    ],
)  # fmt: skip
def test_mistakes_are_explained(step_time: dict[str, Any], message: str) -> None:
    with pytest.raises(ScenarioError) as raised:
        plan_of(step_time)
    assert message in str(raised.value)


def test_all_mistakes_of_a_mapping_are_reported_together() -> None:
    with pytest.raises(ScenarioError) as raised:
        plan_of({"distribution": "lognorm", "sigmaa": 0.3, "persistent": 3, "correlation_time": "soon"})
    assert all(key in str(raised.value) for key in ("sigmaa", "persistent", "correlation_time"))


@pytest.mark.parametrize(
    "step_time",
    [PARTS, {"profile": "large-pretraining"}, {"profile": "dedicated", "sigma": 0.1, "persistent": "50 %"},
     {"distribution": "measured", "factors": [1, 1.5], "workers": [1, 2]}],
)  # fmt: skip
def test_a_stored_scenario_has_the_same_steps(step_time: dict[str, Any]) -> None:
    plan = plan_of(step_time)
    again = load(plan.document).plans()[0]
    assert again.cluster.step_time == plan.cluster.step_time


def test_keys_beside_a_profile_replace_its_own() -> None:
    times = plan_of({"profile": "dedicated", "sigma": 0.3, "persistent": "50 %"}).cluster.step_time
    assert times.law == Jitter.of("lognorm", sigma=0.3)
    assert times.parts["persistent"] == 0.5 and times.parts["node"] == profile_named("dedicated").node


def test_a_table_of_measured_steps_is_replayed(tmp_path: Path) -> None:
    rows = [(worker, step, 1.0 + worker + step % 2) for worker in range(4) for step in range(40)]
    file = tmp_path / "steps.csv"
    file.write_text("worker,step,seconds\n" + "".join(f"{w},{s},{x}\n" for w, s, x in rows), encoding="utf-8")
    plan = plan_of({"trace": str(file)})
    mean = np.mean([x for *_, x in rows])
    device_s = plan.cluster.device_of(Rank(3)).compute_s(32)
    assert plan.compute_s(Rank(3), 5, 32) == pytest.approx(device_s * 5.0 / mean)
