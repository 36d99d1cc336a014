"""Comparisons of methods on the digits: they can be run, and their figures and reasons follow from the runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from scipy import stats

from paceline.papers import comparisons, digits
from paceline.papers.claim import Given
from paceline.papers.comparisons import (
    CHANCE,
    Comparison,
    Contender,
    Outcome,
    Runs,
    Setting,
    difference,
    entered,
    judged,
    reasons,
)
from paceline.papers.verdicts import Predicted
from paceline.scenarios import load
from paceline.simulator.runs.run import simulate
from paceline.workloads import MODELS

QUICK = Given((), quick=True)
Outcomes = Callable[[Contender, float, int], Outcome]


def outcome(**known: Any) -> Outcome:
    """Returns an outcome with these figures."""
    usual: dict[str, Any] = {
        "samples": (0.0, 100.0), "losses": (2.0, 1.0), "loss": 1.0, "accuracy": 90.0, "reached": None,
        "staleness": 0.0, "staleness_of_ranks": 0.0, "samples_per_s": 100.0,
    }  # fmt: skip
    return Outcome(**usual | known)


def contender(name: str, grid: tuple[float, ...] = (0.1, 0.2)) -> Contender:
    return replace(entered(name, Setting("one", "one device", seconds=1.0)), grid=grid)


def pair(**more: Any) -> Comparison:
    return Comparison(contender("async-easgd"), contender("async-sgd"), **more)


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[tuple[str, float, int]]]:
    """Replaces the runs by losses of the method and the rate, a little more for each test seed; lists what is run."""

    def install(losses: dict[str, dict[float, float]], **known: Any) -> list[tuple[str, float, int]]:
        asked: list[tuple[str, float, int]] = []

        def run(one: Contender, rate: float, seed: int) -> Outcome:
            asked.append((one.method, rate, seed))
            return outcome(loss=losses[one.method][rate] + 0.001 * (seed % 100), **known)

        monkeypatch.setattr(comparisons, "outcome", run)
        return asked

    return install


# --- the claims ------------------------------------------------------------------------------------------------------


def comparison(claim: Any) -> Comparison:
    (of,) = claim.figure.args
    assert isinstance(of, Comparison)
    return of


def test_every_contender_has_a_scenario_that_loads() -> None:
    every = [one for claim in digits.CLAIMS for one in comparison(claim).contenders]
    for one in dict.fromkeys(every):
        for rate in dict.fromkeys((one.grid[0], one.grid[-1])):
            assert load(one.scenario(rate, seed=1)).algorithms[0].name == one.method


def test_comparisons_are_fair() -> None:
    """Workers, network and end are the same on both sides; if the clusters differ, the claim is about that."""
    across = set()
    for claim in digits.CLAIMS:
        of = comparison(claim)
        if of.ours.setting != of.theirs.setting:
            across.add(claim.name)
        assert len(of.ours.grid) == len(of.theirs.grid)
        assert of.direction in ("no worse", of.better) or claim.name.startswith("digits-why-delay")
        assert (of.reference is not None) == (of.figure == "distance")
    assert across == {"digits-lars-small-batch-1024-accuracy"}


def test_what_was_found_and_no_other_page_computes_is_a_headline() -> None:
    kinds = {claim.name: claim.kind for claim in digits.CLAIMS}
    assert kinds["digits-lars-large-batch-1024-accuracy"] == kinds["digits-hier-often-8x4-samples-loss"] == "headline"
    others = ("digits-k-avg-eamsgd-", "digits-agd-", "digits-why-")  # MEMORY, pages of their own, ours
    assert {kind for name, kind in kinds.items() if name.startswith(others)} == {"supporting"}


def test_a_message_takes_as_long_as_the_setting_says() -> None:
    setting = Setting("two", "two nodes", nodes=2, message_s=1e-3, local_s=2e-4, seconds=1.0)
    network = load(entered("sync-sgd", setting).scenario(0.1, 1)).cluster.network
    nbytes = 4 * MODELS[comparisons.MODEL].layout().size
    for link, took_s in ((network.link, 1e-3), (network.intra_node_link, 2e-4)):
        assert link is not None
        built = link.build()
        assert built.latency_s + nbytes / built.bytes_per_s == pytest.approx(took_s)


@pytest.mark.parametrize(
    ("figure", "direction", "asserted"),
    [
        ("loss", "lower", ("negative", None, "")),
        ("time", "lower", ("negative", None, "ms")),
        ("accuracy", "higher", ("positive", None, "points")),
        ("time", "no worse", ("at most", 10.0, "%")),
        ("accuracy", "no worse", ("at least", -1.0, "points")),
    ],
)
def test_a_direction_is_an_assertion_on_the_difference(figure: Any, direction: Any, asserted: object) -> None:
    assert pair(figure=figure, direction=direction).asserted == asserted


# --- rates and differences -------------------------------------------------------------------------------------------


def test_rates_are_chosen_on_their_own_seeds_and_compared_at_both_and_in_common(made_up: Any) -> None:
    asked = made_up({"async-easgd": {0.1: 0.5, 0.2: 0.3}, "async-sgd": {0.1: 0.4, 0.2: 0.6}})
    assert difference(pair(), replace(QUICK, seed=3)) == pytest.approx(-0.1)
    assert {seed for _, _, seed in asked} == {101, 3}
    told = " ".join(reasons(pair(), QUICK))
    assert "async-easgd 0.3020 at 0.2*; async-sgd 0.4020 at 0.1* (−25 %)" in told
    assert "Both at 0.1: misses (+25 %). Both at 0.2: holds (−50 %)." in told
    assert "Better at 1 of the 2 common rates at which one learns." in told
    tuning = {(name, rate) for name, rate, seed in asked if seed == 101}
    assert {seed for _, _, seed in asked} == {101, 1, 2, 3} and len(tuning) == 4


def test_differences_are_of_equal_seeds_and_their_interval_is_student_s(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = [1.0, 2.5, 3.0, 2.0], [1.5, 2.0, 1.0, 1.0]
    figures = {"async-easgd": ours, "async-sgd": theirs}
    monkeypatch.setattr(comparisons, "outcome", lambda one, _, seed: outcome(loss=figures[one.method][seed - 1]))
    differences = Runs(pair(), (), (1, 2, 3, 4)).differences(0.1, 0.1)
    assert differences == pytest.approx([-0.5, 0.5, 2.0, 1.0])
    expected = stats.ttest_rel(ours, theirs).confidence_interval(0.95)
    less = judged(differences)
    assert (less.low, less.high) == pytest.approx((expected.low, expected.high), rel=0.01)
    relative = Runs(pair(direction="no worse"), (), (1, 2, 3, 4)).differences(0.1, 0.1)
    assert relative == pytest.approx([-100 / 3, 25.0, 200.0, 100.0])  # per cent of theirs


def test_a_target_that_is_never_reached_leaves_the_choice_to_the_loss(made_up: Any) -> None:
    made_up({"async-sgd": {0.1: 0.9, 0.2: 0.4}})
    assert Runs(pair(figure="time"), (101,), ()).best(contender("async-sgd")) == 0.2
    made_up({"async-sgd": {0.1: 0.9, 0.2: 0.4}}, reached=500.0)
    assert Runs(pair(figure="accuracy"), (101,), ()).best(contender("async-sgd")) == 0.2


def test_a_target_that_is_not_reached_counts_as_reached_at_the_end() -> None:
    assert comparisons.value("time", contender("async-sgd"), outcome(reached=250.0)) == 250.0
    assert comparisons.value("time", contender("async-sgd"), outcome(reached=None)) == 1000.0


@pytest.mark.parametrize(("diverging", "expected"), [((0.2,), 0.1), ((0.1, 0.2), 0.0), ((), 0.4)])
def test_the_largest_rate_ends_before_the_first_divergence(
    diverging: tuple[float, ...], expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparisons, "outcome", lambda _, rate, __: outcome(loss=CHANCE if rate in diverging else 1.0))
    assert comparisons.largest(contender("async-sgd", grid=(0.1, 0.2, 0.4)), 1) == expected


def test_the_distance_of_curves_is_over_the_samples_of_both() -> None:
    other = outcome(samples=(0.0, 200.0), losses=(2.0, 2.0))
    assert comparisons.distance(outcome(), other) == pytest.approx(0.5)


# --- reasons ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verdict", "speed", "worse", "expected"),
    [
        ("misses", 0.5, 0.0, ["Why: it is slower."]),
        ("misses", 1.0, 0.1, ["Why: it learns less from a sample."]),
        ("misses", 0.5, 0.1, ["Why: it is slower and it learns less from a sample."]),
        ("misses", 1.0, 0.0, []),
        ("holds", 0.5, 0.1, []),
    ],
)
def test_what_has_lost_is_slower_or_learns_less(verdict: str, speed: float, worse: float, expected: list[str]) -> None:
    less: Predicted = judged([worse - 0.01, worse, worse + 0.01])
    assert comparisons.cause(verdict, digits.NODE, speed, less) == expected


def test_figures_are_those_of_the_runs() -> None:
    setting = Setting("four", "four devices", nodes=2, workers_per_node=2, batch=32, seconds=0.2, target=0.5)
    ours, theirs = (replace(entered(name, setting), grid=(0.4,)) for name in ("async-sgd", "async-easgd"))
    found = [difference(Comparison(ours, theirs), replace(QUICK, seed=seed)) for seed in (1, 2)]
    (run,) = simulate(load(ours.scenario(0.4, seed=1)))
    assert comparisons.outcome(ours, 0.4, 1).losses[-1] == run.summary["final_loss"]
    assert found == [
        comparisons.outcome(ours, 0.4, seed).loss - comparisons.outcome(theirs, 0.4, seed).loss for seed in (1, 2)
    ]
    assert max(found) < 0
