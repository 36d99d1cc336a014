"""A paced device holds each gradient for exactly its modelled time. These tests use a fake clock.

`benchmarks/machine.py` measures the additional time on a real machine, which wakes a process too late.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from paceline.algorithms.core.buckets import buckets
from paceline.algorithms.core.method import build_team
from paceline.algorithms.core.values import Batch, Rank, Samples, Weights
from paceline.algorithms.methods.baseline import SyncSgd
from paceline.backend.posix.waits import SPIN_S, RunClock
from paceline.backend.rank.pacing import SIGN_S, Pace, RankDevice
from paceline.backend.rank.rank_context import RankStation, Thread
from paceline.backend.status.recorder import FileRecorder, Tail
from paceline.backend.status.status_board import StatusBoard
from paceline.records.trace import Span
from paceline.scenarios import load
from tests.backend.jobs import Steps
from tests.support import Bowl

START_S = 100.0
TURN_S = 1e-6
"""one iteration of a loop that polls the clock"""


class FakeTime:
    """Replaces the `time` module: a sleep advances the clock by its length, at least by one turn of a polling loop."""

    def __init__(self) -> None:
        self.now_s = START_S

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += max(seconds, TURN_S)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    made = FakeTime()
    monkeypatch.setattr("paceline.backend.posix.waits.time", made)
    return made


@dataclass(frozen=True)
class Takes(Bowl):
    """A learner whose gradients take a given time to compute."""

    fake: Any = None
    seconds: float = 0.0

    def gradient(self, vector: Any, data: Any) -> tuple[Any, float]:
        self.fake.now_s += self.seconds
        return super().gradient(vector, data)


class Bench:
    """The device of a single rank, and the spans that it records."""

    def __init__(self, learner: Bowl, pace: Pace | None, folder: Path) -> None:
        me = build_team(SyncSgd(), [[Rank(0)]], learner.layout)[0]
        self.board, self._path = StatusBoard(1, [Rank(0)]), folder / "rank0.stream"
        self._recorder = FileRecorder(Rank(0), self._path)
        self.device = RankDevice(RankStation(me, self.board, self._recorder, RunClock(START_S)), learner, pace)
        self.learner = learner
        self.weights = Weights(learner.initial(), 0)

    def spans(self) -> list[Span]:
        self._recorder.flush()
        return [value for kind, value in Tail(self._path).read() if kind == "span"]

    def close(self) -> None:
        self._recorder._file.close()


Benches = Callable[[Bowl, Pace | None], Bench]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Benches]:
    made: list[Bench] = []

    def make(learner: Bowl, pace: Pace | None) -> Bench:
        made.append(Bench(learner, pace, tmp_path))
        return made[-1]

    yield make
    for one in made:
        one.close()


def batch(index: int) -> Batch:
    return Batch(Samples(worker=0, workers=1, index=index, count=8), Bowl().load(Samples(0, 1, index, 8)))


def lasted(bench: Bench, steps: int = 3) -> list[float]:
    """Returns the seconds of so many gradients, by their spans."""
    for index in range(steps):
        bench.device.gradient(Thread("main"), bench.weights, batch(index))
    spans = bench.spans()
    assert [(span.activity, span.step) for span in spans] == [("compute", index) for index in range(steps)]
    return [span.end_s - span.start_s for span in spans]


def on_time(seconds: float) -> Any:
    """Never early; late by one iteration of the polling loop at most."""
    return pytest.approx(seconds + TURN_S / 2, abs=0.51 * TURN_S)


def test_the_computing_is_within_the_modelled_time(bench: Benches, fake: FakeTime) -> None:
    """5 ms of computing and a device of 8 ms make 8 ms, not 13."""
    made = bench(Takes(fake=fake, seconds=0.005), Steps((0.008,)))
    assert lasted(made) == [on_time(0.008)] * 3
    assert 0 <= made.device.late_s <= TURN_S


HARD = """
name: hard
algorithms: [sync-sgd]
workload: {model: digits-mlp, batch_per_worker: 8}
cluster:
  nodes: [{device: {name: d, overhead: 4 ms, per_sample: 0.5 ms}}]
  step_time: {distribution: lognorm, sigma: 0.2}
  stragglers: [{worker: 0, factor: 1.5}]
  slowdowns: [{at: 55 ms, lasts: 100 ms, factor: 3}, {worker: 0, every: 50 ms, lasts: 20 ms, factor: 2}]
stop: {samples: 160}
"""


def test_a_plan_with_slow_places_and_slowdowns_is_held_to_the_moment(bench: Benches, fake: FakeTime) -> None:
    """From its start on, every gradient takes the simulated time; some are slower than others."""
    (plan,) = load(HARD).plans(paced=True)
    made = bench(Takes(fake=fake, seconds=0.001), plan)
    found, steps = lasted(made, 20), range(20)
    work_s = [plan.compute_s(Rank(0), step, 8) for step in steps]
    due_s = [plan.end_s(Rank(0), span.start_s, work_s[span.step]) - span.start_s for span in made.spans()]
    assert found == [on_time(seconds) for seconds in due_s]
    slowed = [due > work * 1.01 for due, work in zip(due_s, work_s, strict=True)]
    assert any(slowed) and not all(slowed)


def test_a_device_that_is_too_fast_for_this_machine_is_noticed(bench: Benches, fake: FakeTime) -> None:
    made = bench(Takes(fake=fake, seconds=0.005), Steps((0.001,)))
    assert lasted(made) == [pytest.approx(0.005)] * 3
    assert made.device.late_s == pytest.approx(0.004)


def test_without_a_pace_nothing_is_waited_for(bench: Benches, fake: FakeTime) -> None:
    made = bench(Takes(fake=fake, seconds=0.005), None)
    assert lasted(made) == [pytest.approx(0.005)] * 3
    assert made.device.late_s == 0.0 and fake.now_s == pytest.approx(START_S + 0.015)


def test_layers_are_handed_out_at_their_shares_of_the_time(bench: Benches, fake: FakeTime) -> None:
    """Forward takes a third of 12 ms; backward takes a third for each of the two layers, the last layer first."""
    made = bench(Takes(fake=fake, seconds=0.001), Steps((0.012,)))
    moments: list[float] = []

    def moment(_: object = None) -> None:
        moments.append(fake.now_s - START_S)

    answers = SimpleNamespace(put=moment, fail=fail)
    layers = buckets(made.learner.layout.layers)
    made.device.layers(Thread("main"), lambda: made.weights, batch(0), layers, answers, lambda: None)  # type: ignore[arg-type]
    assert moments == [on_time(0.008), on_time(0.012)]
    spans = made.spans()
    assert [(span.layer, span.start_s) for span in spans] == [("second", 0.0), ("first", spans[0].end_s)]
    assert [span.end_s for span in spans] == moments


def fail(error: BaseException) -> None:
    raise error


def test_a_long_wait_gives_signs_of_life(bench: Benches, fake: FakeTime) -> None:
    made = bench(Takes(fake=fake, seconds=0.0), Steps((4 * SIGN_S,)))
    before = made.board.ranks[0].progress
    assert lasted(made, 1) == [on_time(4 * SIGN_S)]
    assert made.board.ranks[0].progress - before >= 4


def test_a_clock_sleeps_until_just_before_the_moment_and_never_returns_early(fake: FakeTime) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        FakeTime.sleep(fake, seconds)

    fake.sleep = sleep  # type: ignore[method-assign]
    clock = RunClock(START_S)
    assert 0 <= clock.wait_until(0.5) <= TURN_S
    assert slept[0] == pytest.approx(0.5 - SPIN_S) and sum(slept[1:]) < TURN_S
    assert clock.wait_until(0.2) == pytest.approx(0.3, abs=2 * TURN_S)
