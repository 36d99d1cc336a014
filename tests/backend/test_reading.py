"""Reading from a file in real runs: weights and requests are those of a simulated run, and failures are reported."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import yaml

from paceline.algorithms.core.job import Job
from paceline.algorithms.core.values import Samples
from paceline.algorithms.methods.baseline import SyncSgd
from paceline.algorithms.methods.dynamic_batch import DbsSgd
from paceline.backend.local.launch import Launch, run_job
from paceline.backend.rank.checkpoint import Saving, read, steps_in
from paceline.backend.training import train
from paceline.checking.replay import Recording, replay
from paceline.records.store import read_run
from paceline.records.trace import Reads, Schedule, Trace
from paceline.scenarios import load
from paceline.simulator.interpreter.host_costs import HostCosts
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.interpreter.loading import Supply
from paceline.simulator.network.network import MeasuredNetwork
from paceline.simulator.runs.run import simulate
from paceline.topologies.catalogue.storage_devices import STORAGE
from paceline.workloads import build
from paceline.workloads.convert_dataset import convert, find_source
from paceline.workloads.reading import Held, ReadingSettings, Strategy
from paceline.workloads.reading.folder import TRAIN
from tests.backend.jobs import Started, job_with, plain, run_for_real, wait_for_ranks
from tests.backend.test_balance import PerSample
from tests.backend.test_command import Called
from tests.support import FixedTiming
from tests.thorough import sampled

pytestmark = pytest.mark.backend

STEPS = 50  # two epochs of 1437 samples and a part of the third, by 4 workers with 16 each
BATCH, RECORD_BYTES = 16, 520
TOLERANCE = 1e-12  # of the weights' scale: gloo adds up in an order of its own, in float64


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("digits")
    convert(find_source("digits", None, None), folder)
    return folder


def reading(strategy: Strategy, prefetch: int) -> ReadingSettings:
    return ReadingSettings(strategy=strategy, buffer=48, prefetch=prefetch)


def learner_of(how: ReadingSettings, digits: Path) -> Any:
    return build(
        "digits-mlp",
        dataset="records",
        data_dir=str(digits),
        learning="train",
        seed=3,
        dtype="float64",
        reading=how,
    )


def simulated(job: Job, prefetch: int) -> Trace:
    learner: Any = job.learner
    network = MeasuredNetwork(
        lambda _kind, members, size: 0.5 + 1e-3 * members + 1e-4 * size, lambda size: 0.25 + 1e-4 * size
    )
    timing = FixedTiming(compute=lambda rank, step: 1.0 + (rank + step) % 3 / 7)
    supply = Supply(
        storage=STORAGE["nvme"],
        order=learner.draw.order,
        record_bytes=RECORD_BYTES,
        prefetch=prefetch,
        nodes=[0, 0, 1, 1],
    )
    return simulate_job(job, timing, network, Schedule(every=5), hosts=HostCosts(supply=supply))


def asked_for(how: ReadingSettings, worker: int) -> Reads:
    """Returns the requests of a worker's steps, one after the other."""
    order, held, asked = how.order(1437, 3), Held(), []
    for index in range(STEPS):
        asked += held.fresh(order.pieces(Samples(worker, 4, index, BATCH)))
    ends = [-1, *(first + count for first, count in asked)]
    seeks = sum(piece.first != end for piece, end in zip(asked, ends, strict=False))
    return Reads(len(asked), seeks, sum(piece.records for piece in asked) * RECORD_BYTES)


EVERY_WAY = pytest.mark.parametrize(
    ("strategy", "prefetch"),
    sampled(
        [(strategy, prefetch) for strategy in get_args(Strategy) for prefetch in (0, 2)],
        [("contiguous", 2)],
    ),
)


@cache
def trained(digits: Path, strategy: Strategy, prefetch: int) -> tuple[Job, Trace]:
    """Returns a job of sync-sgd and its real run; one for all tests."""
    job = job_with(SyncSgd(), learner_of(reading(strategy, prefetch), digits), steps=STEPS, batch=BATCH)
    return job, run_for_real(job, prefetch=prefetch)


@EVERY_WAY
def test_the_same_weights_and_requests_as_simulated(digits: Path, strategy: Strategy, prefetch: int) -> None:
    """Independent of the position of a reader at the end: records that were read ahead and not used do not count."""
    how = reading(strategy, prefetch)
    job, found = trained(digits, strategy, prefetch)
    expected = simulated(job, prefetch)
    scale = np.abs(plain(expected.weights)).max()
    assert np.abs(plain(expected.weights) - plain(job.learner.initial())).max() > 0.01 * scale, "nothing was learned"
    np.testing.assert_allclose(plain(found.weights), plain(expected.weights), rtol=0, atol=TOLERANCE * scale)
    assert set(found.reads) == set(expected.reads) == {me.rank for me in job.team}
    for rank in expected.reads:
        counts = [trace.reads[rank]._replace(stall_s=0.0) for trace in (expected, found)]
        assert counts == [asked_for(how, rank)] * 2
    if strategy == "contiguous":
        assert max(reads.seeks for reads in found.reads.values()) <= 2 * 3 + 1  # a run an epoch, one of them in two


def test_a_resumed_run_counts_the_requests_before_its_checkpoint_too(digits: Path, tmp_path: Path) -> None:
    how = reading("scattered", 2)
    job = job_with(SyncSgd(), learner_of(how, digits), steps=STEPS, batch=BATCH)
    folder, about = tmp_path / "checkpoints", {"scenario": {}, "algorithm": "sync-sgd", "seed": job.seed}
    launch = Launch(job=job, schedule=lambda: Schedule(every=5), prefetch=2)
    run_job(replace(launch, saving=Saving(folder=folder, every=STEPS // 2, keep=9, about=about)))
    resumed = run_job(replace(launch, start=read(steps_in(folder)[0])))
    for rank, found in resumed.reads.items():
        assert found._replace(stall_s=0.0) == asked_for(how, rank)


def test_weights_do_not_depend_on_how_far_is_read_ahead(digits: Path) -> None:
    job = job_with(SyncSgd(), learner_of(reading("contiguous", 0), digits), steps=STEPS, batch=BATCH)
    in_memory, (_, ahead) = run_for_real(job, prefetch=None), trained(digits, "contiguous", 2)
    np.testing.assert_array_equal(plain(ahead.weights), plain(in_memory.weights))


@pytest.mark.parametrize(
    ("strategy", "prefetch"),
    sampled([(strategy, prefetch) for strategy in get_args(Strategy) for prefetch in (0, 2)], [("scattered", 2)]),
)
def test_batches_that_change_are_read_anew(digits: Path, strategy: Strategy, prefetch: int) -> None:
    """The sizes depend on the clock, so the weights are compared with those of a replay with the same readings."""
    job = job_with(DbsSgd(interval=4), learner_of(reading(strategy, prefetch), digits), steps=40, batch=BATCH)
    run = run_for_real(job, pace=PerSample(), prefetch=prefetch)
    again = replay(job, Recording.of(run.heard, run.now_s))
    np.testing.assert_array_equal(again.weights, run.weights)
    sizes = {row.samples for row in run.updates}
    assert len(sizes) > 1, "no worker was ever measured to be slower"
    used = sum(row.samples for row in run.updates)
    if strategy != "contiguous":  # windows are read completely, and kept while the next batch continues in them
        assert sum(reads.requests for reads in run.reads.values()) >= used


def test_spans_show_what_is_read_beside_the_program(digits: Path) -> None:
    job = job_with(SyncSgd(), learner_of(reading("scattered", 2), digits), steps=10, batch=BATCH)
    trace = run_for_real(job, prefetch=2)
    for rank in trace.reads:
        mine = [span for span in trace.spans if span.rank == rank]
        read = [span for span in mine if span.activity == "read"]
        assert {span.lane for span in read} == {"reader"} and all(span.bytes == 0 for span in read)
        assert [span.step for span in read][:10] == list(range(10)), "in order, and on beyond the last step"
        stalls = [span.end_s - span.start_s for span in mine if span.activity == "load"]
        assert len(stalls) == 10 and trace.reads[rank].stall_s == pytest.approx(sum(stalls))


# --- as a scenario ---------------------------------------------------------------------------------------------------

SCENARIO = """
name: endless
algorithms: [{algorithm}]
workload:
  model: digits-mlp
  dataset: records
  data_dir: {directory}
  batch_per_worker: 8
  reading: {{strategy: {strategy}, buffer: 16, prefetch: {prefetch}}}
cluster:
  nodes: [{{device: {{name: fast, overhead: 3 ms, per_sample: 0.1 ms}}, workers_per_node: 3}}]
  storage: nvme
train: {{pace: device}}
evaluate: {{every: 50 updates}}
stop: {{{stop}}}
seed: 3
"""


def text_of(digits: Path, *, strategy: str = "contiguous", prefetch: int = 2, stop: str = "seconds: 25 s") -> str:
    return SCENARIO.format(algorithm="sync-sgd", directory=digits, strategy=strategy, prefetch=prefetch, stop=stop)


@pytest.mark.parametrize("prefetch", sampled([0, 2], [2]))
def test_the_summary_says_what_was_read(digits: Path, prefetch: int) -> None:
    scenario = load(yaml.safe_load(text_of(digits, strategy="strided", prefetch=prefetch, stop="updates: 30")))
    (measured,), (predicted,) = train(scenario), simulate(scenario)
    for run in (measured, predicted):
        summary = run.summary
        assert "reads" in summary
        reads = summary["reads"]
        assert reads["requests"] == 3 * 30 * 8 and reads["bytes"] == 3 * 30 * 8 * RECORD_BYTES
        assert reads["seeks"] == reads["requests"], "neighbours go to other workers"
        assert reads["bytes_per_s"] == pytest.approx(reads["bytes"] / run.summary["wall_s"])
        assert reads["stall_share"] is not None and 0 <= reads["stall_share"] < 1
    assert measured.summary["final_accuracy"] == pytest.approx(predicted.summary["final_accuracy"], abs=0.01)


@pytest.fixture
def own_digits(tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    (tmp_path / "digits").mkdir()
    convert(find_source("digits", None, None), tmp_path / "digits")
    return tmp_path / "digits"


class Training:
    """The command, while it trains from a file."""

    def __init__(self, folder: Path, digits: Path, prefetch: int) -> None:
        self.called = Called(folder, "train", text=text_of(digits, prefetch=prefetch))

    def at_work(self) -> Started:
        started = wait_for_ranks(self.called.pid, 3)
        time.sleep(0.5)
        return started

    def failed(self, started: Started) -> str:
        """Returns its final output; only the record of it remains."""
        status, said = self.called.ends(within_s=60.0)
        assert status == 1, said
        assert "Traceback" not in said
        assert self.called.left() == [] and started.removed()
        (kept,) = self.called.stored()
        assert read_run(kept).summary["stop_reason"] == "failure"
        return said.replace("\n", "")

    def end(self) -> None:
        for pid in self.called.left():
            os.kill(pid, signal.SIGKILL)
        self.called.process.communicate()


@pytest.fixture(params=sampled([0, 2], [2]))
def training(request: pytest.FixtureRequest, tmp_path: Path, own_digits: Path) -> Iterator[Training]:
    found = Training(tmp_path, own_digits, request.param)
    yield found
    if found.called.process.poll() is None:
        found.end()


def test_a_file_that_becomes_shorter_ends_the_run(training: Training, own_digits: Path) -> None:
    """By name and offset, whether the program reads itself or a thread reads ahead of it."""
    started = training.at_work()
    os.truncate(own_digits / TRAIN, 200_000)
    said = training.failed(started)
    assert re.search(
        r"error: sync-sgd: found 200,000 bytes in .*train\.npy, expected [\d,]+: it ends inside record", said
    )
    assert re.search(r"at offset [\d,]+", said)


def test_a_killed_reader_is_named(training: Training) -> None:
    started = training.at_work()
    started.ranks[1].kill()
    said = training.failed(started)
    assert re.search(r"error: sync-sgd: rank 1 \(worker\) died at step \d+: killed by SIGKILL", said)
