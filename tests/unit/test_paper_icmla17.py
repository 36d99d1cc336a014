"""The claims of ICMLA 2017: what is tuned, and how figures follow from trainings and samples per second."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from paceline.algorithms.core.method import SgdMethod
from paceline.algorithms.methods.baseline import SequentialSgd
from paceline.algorithms.methods.periodic import HbsSgd
from paceline.papers import icmla17
from paceline.papers.claim import TUNING_SEED, Given, inputs_of
from paceline.papers.runs import Trained
from paceline.scenarios import load

CENTRAL = Given(tuple((name, inputs_of("icmla17")[name].value) for name in (*icmla17.INPUTS, "final-epochs")))


def needing(samples: float) -> Trained:
    """A training whose accuracy rises linearly to 1 at so many samples and stays there."""
    return Trained((0.0, samples, 2 * samples, 3 * samples), (0.0, 1.0, 1.0, 1.0))


@pytest.fixture
def trainings(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[SgdMethod, int]]]:
    """Trainings that need the more samples the farther their rate is from 0.1 and the rarer averages are."""
    asked: list[tuple[SgdMethod, int]] = []

    def training(method: Any, stand_in: str, gpus: int, seed: int, epochs: float, accuracy: float) -> Trained:
        asked.append((method, seed))
        far = 1.0 + abs(math.log10(method.learning_rate / 0.1))
        rare = math.sqrt(method.k2) if isinstance(method, HbsSgd) else 0.5 if method.name == "sequential-sgd" else 2.0
        return needing(1000.0 * far * rare)

    monkeypatch.setattr(icmla17, "_training", training)
    clear()
    yield asked
    clear()


def clear() -> None:
    for cached in (icmla17._at_best_rate, icmla17._best, icmla17._samples_per_s):
        cached.cache_clear()


@pytest.fixture
def speeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """128 GPUs are 25 times as fast as one with an average in each step, and 100 times with rare ones."""

    def samples_per_s(method: SgdMethod, given: Given) -> float:
        if isinstance(method, HbsSgd):
            return 1000.0 / (10.0 + 30.0 / method.k2) if given.word("model") == "alexnet" else 100.0
        return 1.0 if isinstance(method, SequentialSgd) else 80.0

    monkeypatch.setattr(icmla17, "samples_per_s", samples_per_s)


@pytest.mark.usefixtures("speeds")
def test_rates_and_periods_are_tuned_on_seeds_of_their_own(trainings: list[tuple[SgdMethod, int]]) -> None:
    networks = ("cifar10-full", "alexnet")
    small, large = (icmla17.best("hbs-sgd", CENTRAL.with_value("model", name), "time") for name in networks)
    assert isinstance(small, HbsSgd) and isinstance(large, HbsSgd)
    assert (small.k2, large.k2) == (1, 4)  # 1000 / 100, and 1000 · 2 · (10 + 30 / 4) is the least
    assert small.learning_rate == large.learning_rate == 0.1
    assert {seed for _, seed in trainings} == {TUNING_SEED, TUNING_SEED + 1}
    assert icmla17.best("hbs-sgd", CENTRAL.with_value("model", "alexnet"), "samples").k2 == 1  # type: ignore[attr-defined]


@pytest.mark.usefixtures("trainings", "speeds")
def test_a_speed_up_is_the_ratio_of_rates_over_that_of_samples() -> None:
    assert icmla17.speed_up(CENTRAL) == pytest.approx(100.0 * 0.5)
    assert icmla17.speed_up(CENTRAL.with_value("model", "alexnet")) == pytest.approx(1000.0 / 17.5 * 0.5 / 2.0)


@pytest.mark.usefixtures("trainings", "speeds")
def test_a_speed_up_is_at_most_the_number_of_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(icmla17, "samples_per_s", lambda method, _: 1.0 if method.name == "sequential-sgd" else 1e4)
    assert icmla17.speed_up(CENTRAL) == 128.0


@pytest.mark.usefixtures("speeds")
def test_what_is_not_reached_counts_against_us(monkeypatch: pytest.MonkeyPatch) -> None:
    never = Trained((0.0, 100.0), (0.1, 0.2))
    monkeypatch.setattr(
        icmla17, "_training", lambda method, *_: never if isinstance(method, HbsSgd) else needing(2000.0)
    )
    clear()
    assert icmla17.speed_up(CENTRAL) == 0.0
    end = 2 * 10 * icmla17.EPOCH
    assert icmla17.compared("async-sgd", "samples", CENTRAL) == pytest.approx(needing(2000.0).samples_to(0.96) / end)
    clear()


@pytest.mark.usefixtures("trainings", "speeds")
def test_the_hierarchy_is_compared_with_averages_of_all() -> None:
    """Rare averages cost samples and save time; those inside nodes change nothing here."""
    alexnet = CENTRAL.with_value("model", "alexnet")
    assert icmla17.compared("k2 = 1", "time", alexnet, "k2 > 1") == pytest.approx(40.0 / (2.0 * 17.5))
    assert icmla17.compared("k2 = 1", "time", CENTRAL, "k2 > 1") == pytest.approx(0.5)
    assert icmla17.compared("k1 = k2", "time", alexnet, "k1 < k2") == pytest.approx(1.0)


def test_every_hierarchy_belongs_to_one_side() -> None:
    every = icmla17.settings("hbs-sgd", CENTRAL)
    for sides in (("k2 = 1", "k2 > 1"), ("k1 = k2", "k1 < k2")):
        parts = [method for side in sides for method in icmla17.settings(side, CENTRAL)]
        assert sorted(map(repr, parts)) == sorted(map(repr, every))


@pytest.mark.parametrize("machine", ["minsky", "dgx1-p100"])
def test_a_machine_has_the_number_of_gpus(machine: str) -> None:
    (plan,) = load(icmla17.SCENARIO, icmla17._machine(machine, 128), algorithms=["async-sgd"]).plans()
    assert plan.job.workers == 128


def test_accuracies_are_those_after_the_last_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    epochs = [0.0, 4.0, 8.0, 10.0, 15.0]

    def training(method: SgdMethod, *_: Any) -> Trained:
        scores = (0.1, 0.9, 0.9, 0.9, 0.5) if isinstance(method, HbsSgd) else (0.1, 0.8, 0.8, 0.8, 0.8)
        return Trained(tuple(icmla17.EPOCH * epoch for epoch in epochs), scores)

    monkeypatch.setattr(icmla17, "_training", training)
    monkeypatch.setattr(icmla17, "best", lambda *_: HbsSgd())
    monkeypatch.setattr(icmla17, "at_best_rate", lambda *_: SequentialSgd())
    assert icmla17.accuracy(CENTRAL) == pytest.approx(10.0)
    assert icmla17.accuracy(CENTRAL.with_value("final-epochs", "15")) == pytest.approx(100 * (2.3 / 3 - 0.8))
    assert icmla17.accuracy(replace(CENTRAL.with_value("final-epochs", "8"), quick=True)) == pytest.approx(
        100 * ((0.1 + 0.9) / 2 - (0.1 + 0.8) / 2)
    )


@pytest.mark.parametrize("library", ["mpi", "nccl"])
def test_samples_per_second_are_simulated_with_the_libraries_of_the_time(library: str) -> None:
    few = replace(CENTRAL, quick=True).with_value("gpus", "8").with_value("library", library)
    assert icmla17.samples_per_s(HbsSgd(k1=1, k2=1), few) > 0.0
