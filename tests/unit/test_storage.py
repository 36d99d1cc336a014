"""Batches read from storage in a run: waiting times and counts, the end of a run, and scenario options."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from paceline.algorithms import METHODS
from paceline.algorithms.core.errors import DeadlockError
from paceline.algorithms.core.job import Budget, Job
from paceline.algorithms.core.method import RankContext, Replica
from paceline.algorithms.core.operations import Cancel, Charge, Load, Now, Receive, Start
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.values import Rank, Samples
from paceline.algorithms.methods.baseline import ChipPartitionedSgd, SequentialSgd, SyncSgd, part_of
from paceline.algorithms.methods.dynamic_batch import DbsSgd
from paceline.records.trace import Reads, Schedule, Trace
from paceline.scenarios import load
from paceline.scenarios.sections import reading
from paceline.scenarios.values.mistakes import ScenarioError
from paceline.simulator.interpreter.host_costs import HostCosts
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.network.network import NoCost
from paceline.simulator.runs.run import simulate
from paceline.topologies.catalogue.storage_devices import MIB, STORAGE, StorageModel
from paceline.workloads.reading import Piece
from tests.clusters import answer, played
from tests.reading import Noted, counted, finished_s, supply
from tests.support import Bowl, FixedTiming, built, job_of, nodes_for

SLOW = StorageModel(name="slow", latency_s=0.0, bytes_per_s=100.0)
"""a batch of eight records of 100 bytes takes 8 s, scattered"""


def scattered(num_samples: int = 64) -> Noted:
    return Noted(strategy="scattered", num_samples=num_samples, seed=1)


def loads(trace: Trace) -> list[tuple[int, float, float]]:
    """Of rank 0: the step, and from when to when its program waited."""
    return [(s.step, s.start_s, s.end_s) for s in trace.spans if s.activity == "load" and s.rank == 0]


def sequential(prefetch: int, *, compute_s: float, steps: int = 4, storage: StorageModel = SLOW) -> Trace:
    given = supply(storage, workers=1, prefetch=prefetch, order=scattered(10**6))
    timing = FixedTiming(compute=compute_s)
    return simulate_job(
        job_of(SequentialSgd(), 1, steps=steps), timing, NoCost(), Schedule(10**9), hosts=HostCosts(supply=given)
    )


# --- when batches are there ------------------------------------------------------------------------------------------


def test_without_prefetch_the_program_waits_for_all_of_it() -> None:
    trace = sequential(0, compute_s=2.0)
    assert loads(trace) == [(step, 10.0 * step, 10.0 * step + 8.0) for step in range(4)]
    assert trace.wall_s == 40.0
    assert trace.reads == {0: Reads(requests=32, seeks=32, bytes=3200, stall_s=32.0)}
    assert not [span for span in trace.spans if span.activity == "read"]


def test_what_is_read_ahead_is_waited_for_only_as_far_as_it_is_late() -> None:
    """Reading takes 8 s, computing 2 s: the reader is never idle, and the last two seconds are computing."""
    trace = sequential(1, compute_s=2.0)
    assert loads(trace) == [(0, 0.0, 8.0), (1, 10.0, 16.0), (2, 18.0, 24.0), (3, 26.0, 32.0)]
    assert trace.wall_s == 34.0
    assert trace.reads[Rank(0)].stall_s == 26.0


@pytest.mark.parametrize("prefetch", [1, 2, 5])
def test_a_quick_reader_fills_its_queue_and_has_one_batch_in_hand(prefetch: int) -> None:
    """Computing takes 100 s: meanwhile d + 1 batches are read, and no more."""
    trace = sequential(prefetch, compute_s=100.0)
    reads = [(span.step, span.start_s, span.end_s) for span in trace.spans if span.activity == "read"]
    first = [(step, 8.0 * step, 8.0 * step + 8.0) for step in range(prefetch + 2)]
    assert reads[: prefetch + 2] == first
    assert reads[prefetch + 2][:2] == (prefetch + 2, 108.0)
    assert loads(trace) == [(0, 0.0, 8.0), *((step, 8.0 + 100.0 * step, 8.0 + 100.0 * step) for step in (1, 2, 3))]


def test_reads_after_the_end_are_not_counted() -> None:
    trace = sequential(3, compute_s=2.0, steps=2)
    assert trace.wall_s == 18.0
    assert max(span.end_s for span in trace.spans) == 18.0
    reads = [(span.step, span.start_s, span.end_s) for span in trace.spans if span.activity == "read"]
    assert reads == [(0, 0.0, 8.0), (1, 8.0, 16.0), (2, 16.0, 18.0)]
    assert trace.reads[Rank(0)] == Reads(requests=16, seeks=16, bytes=1600, stall_s=14.0)


def test_loading_time_of_its_own_comes_after_the_reading() -> None:
    timing = FixedTiming(compute=2.0, load=0.5)
    given = supply(SLOW, workers=1, prefetch=0, order=scattered())
    trace = simulate_job(
        job_of(SequentialSgd(), 1, steps=2), timing, NoCost(), Schedule(1), hosts=HostCosts(supply=given)
    )
    assert loads(trace) == [(0, 0.0, 8.5), (1, 10.5, 19.0)]


def test_windows_that_are_held_are_not_read_again() -> None:
    """Runs of 16 in windows of 16, batches of 8: every other batch is there already."""
    given = supply(SLOW, workers=4, prefetch=0)
    trace = simulate_job(job_of(SyncSgd(), 4), FixedTiming(), NoCost(), Schedule(1), hosts=HostCosts(supply=given))
    assert [round(end_s - start_s, 9) for _, start_s, end_s in loads(trace)] == [16.0, 0.0, 16.0, 0.0]
    assert trace.reads[Rank(0)][:3] == (2, 2, 3200)


# --- what is counted -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in METHODS if name != DbsSgd.name])
def test_requests_seeks_and_bytes_are_those_of_the_order(name: str) -> None:
    """Counted here from the steps of each rank, independent of the order of requests."""
    method = built(name)
    nodes, cut = nodes_for(method), part_of if name == ChipPartitionedSgd.name else lambda whole: whole
    job = job_of(method, nodes=nodes, steps=6)
    given = supply(STORAGE["hdd"], workers=5)
    timing = FixedTiming(compute=lambda rank, step: 0.01 + 0.003 * rank + 0.001 * step)
    trace = simulate_job(job, timing, NoCost(), Schedule(10**9), hosts=HostCosts(supply=given))
    assert trace.reads
    for me in job.team:
        taken = [span.step for span in trace.spans if span.activity == "load" and span.rank == me.rank]
        if taken:
            assert taken == list(range(len(taken)))
            batches = [cut(job.samples(me, step)) for step in taken]
            assert trace.reads[me.rank]._replace(stall_s=0.0) == counted(given.order, batches, 100)
        else:
            assert me.rank not in trace.reads


def test_a_batch_that_was_not_foreseen_is_read_anew() -> None:
    """dbs-sgd changes batches between steps: batches read ahead of a change are discarded, and count."""
    order = scattered()
    given = supply(SLOW, workers=2, prefetch=2, order=order)
    timing = FixedTiming(compute=lambda rank, _: 10.0 + 30.0 * rank)
    trace = simulate_job(
        job_of(DbsSgd(), 2, steps=24), timing, NoCost(), Schedule(10**9), hosts=HostCosts(supply=given)
    )
    for rank in (0, 1):
        asked = [samples for samples in order.asked if samples.worker == rank]
        again = len(asked) - len({samples.index for samples in asked})
        last = max(span.step for span in trace.spans if span.activity == "load" and span.rank == rank)
        end = max(place for place, samples in enumerate(asked) if samples.index == last)
        assert again > 0
        assert trace.reads[Rank(rank)]._replace(stall_s=0.0) == counted(order, asked[: end + 1], 100)


def test_stalls_are_the_time_spent_loading() -> None:
    trace = sequential(1, compute_s=5.0, steps=8)
    assert trace.reads[Rank(0)].stall_s == sum(end_s - start_s for _, start_s, end_s in loads(trace)) == 8.0 + 7 * 3.0


def test_a_batch_of_many_requests_is_a_few_events() -> None:
    """Its timer and, where the program waits, its arrival; independent of other readers while the capacity suffices."""
    storage = StorageModel(name="x", latency_s=1e-4, bytes_per_s=1e12, depth=64, shared=True)
    workers, steps = 50, 4
    order = Noted(strategy="scattered", num_samples=10**6, seed=1)
    given = dataclasses.replace(supply(storage, workers=workers, order=order), prefetch=2)
    job = Job.of(SyncSgd(), [[Rank(rank)] for rank in range(workers)], Bowl(num_samples=10**6), batch=256,
        budget=Budget(samples=steps * workers * 256), seed=1)  # fmt: skip
    traces = [
        simulate_job(job, FixedTiming(), NoCost(), Schedule(10**9), hosts=HostCosts(supply=one))
        for one in (given, None)
    ]
    more = traces[0].notes["events"] - traces[1].notes["events"]
    assert sum(reads.requests for reads in traces[0].reads.values()) == steps * workers * 256
    assert more <= workers * (steps + 2) + 2 * workers


# --- programs that fail, wait and give up ----------------------------------------------------------------------------


@program
def after(seconds: int) -> Program[None]:
    """Takes so many seconds where a piece of work takes one."""
    for _ in range(seconds):
        yield from Charge("wait", 0)


def samples(index: int) -> Samples:
    return Samples(worker=0, workers=1, index=index, count=8)


def test_lanes_of_a_rank_load_one_after_the_other() -> None:
    @program
    def both(me: RankContext, state: Replica) -> Program[list[float]]:
        first = yield from Start(Load(samples(0)))
        batch = yield from Load(samples(1))
        assert batch.samples == samples(1)
        late_s = yield from Now()
        yield from Cancel(first)
        return [late_s]

    given = supply(SLOW, workers=1, prefetch=1, order=scattered())
    assert answer(played(both, supply=given)) == [16.0]


@pytest.mark.parametrize(("asked", "there_s"), [(0, 8.0), (1, 16.0)])
def test_a_load_that_was_given_up_leaves_its_batch(asked: int, there_s: float) -> None:
    """After 1 s. The same batch is ready at the same time as before; another one is read after it."""

    @program
    def fickle(me: RankContext, state: Replica) -> Program[float]:
        handle = yield from Start(Load(samples(0)))
        yield from Charge("wait", 0)
        yield from Cancel(handle)
        yield from Load(samples(asked))
        return (yield from Now())

    given = supply(SLOW, workers=1, prefetch=1, order=scattered())
    assert answer(played(fickle, supply=given, timing=FixedTiming(work=1.0))) == there_s


def test_a_loader_hides_no_deadlock() -> None:
    @program
    def listen(me: RankContext, state: Replica) -> Program[None]:
        yield from Load(samples(0))
        yield from Receive()

    with pytest.raises(DeadlockError, match="waits to receive"):
        played(listen, supply=supply(SLOW, workers=1, order=scattered()))


def test_a_lane_that_outlives_its_program_has_its_batch() -> None:
    @program
    def leave(me: RankContext, state: Replica) -> Program[None]:
        yield from Start(Load(samples(0)))

    trace = played(leave, supply=supply(SLOW, workers=1, prefetch=3, order=scattered()))
    assert loads(trace) == [(0, 0.0, 8.0)]
    assert trace.wall_s == 8.0


def test_who_ends_first_stops_reading() -> None:
    @program
    def work(me: RankContext, state: Replica) -> Program[None]:
        yield from Load(Samples(worker=int(me.rank), workers=2, index=0, count=8))
        yield from after(50 * int(me.rank))

    given = supply(SLOW, workers=2, prefetch=2, order=scattered())
    trace = played(work, workers=2, supply=given, timing=FixedTiming(work=1.0))
    ends = [(span.rank, span.step, span.end_s) for span in trace.spans if span.activity == "read"]
    assert sorted(ends) == [(0, 0, 8.0), (0, 1, 8.0), (1, 0, 8.0), (1, 1, 16.0), (1, 2, 24.0), (1, 3, 32.0)]
    assert trace.wall_s == 58.0


# --- scenarios -------------------------------------------------------------------------------------------------------

DEVICE = {"name": "d", "overhead": "4 ms", "per_sample": "0.5 ms"}


def scenario(storage: Any = "hdd", **more: Any) -> dict[str, Any]:
    workload = {"model": "digits-mlp", "learning": "none", "reading": {"strategy": "scattered"}} | more
    cluster = {"nodes": [{"device": DEVICE, "count": 2}], "storage": storage}
    return {"name": "x", "cluster": cluster, "workload": workload, "algorithms": ["sync-sgd"], "stop": {"epochs": 1}}


@pytest.mark.parametrize("name", STORAGE)
def test_known_storage_is_read_and_written_back(name: str) -> None:
    loaded = load(scenario(name))
    built = loaded.cluster.build(loaded.workload).storage
    assert built is not None
    assert dataclasses.replace(built, title=STORAGE[name].title) == STORAGE[name]
    assert load(json.loads(json.dumps(loaded.dump()))) == loaded


def test_values_of_ones_own_replace_those_of_known_storage() -> None:
    loaded = load(scenario({"name": "lustre", "latency": "1.7 ms", "client": None, "stripes": 8}))
    built = loaded.cluster.build(loaded.workload).storage
    assert built is not None
    lustre = STORAGE["lustre"]
    given = dict.fromkeys(["latency", "client", "stripes"], "given in the scenario")
    assert built == dataclasses.replace(
        lustre,
        latency_s=0.0017,
        client_bytes_per_s=None,
        stripes=8,
        title="",
        provenance={**lustre.provenance, **given},
    )
    assert load(json.loads(json.dumps(loaded.dump()))) == loaded


def test_inline_storage_has_units() -> None:
    mapping = {
        "latency": "2 ms", "bandwidth": "8 Gbit/s", "client": "1 GB/s", "depth": 4, "stripes": 3, "stripe": "4 MiB",
        "read_ahead": None, "shared": True,
    }  # fmt: skip
    loaded = load(scenario(mapping))
    assert loaded.cluster.build(loaded.workload).storage == StorageModel(
        name="inline", latency_s=0.002, bytes_per_s=1e9, client_bytes_per_s=1e9, depth=4, stripes=3,
        stripe_bytes=4 * MIB, read_ahead_bytes=None, shared=True,
    )  # fmt: skip
    assert load(json.loads(json.dumps(loaded.dump()))) == loaded


MISTAKES: list[tuple[dict[str, Any], str]] = [
    (
        scenario("hddd"),
        "cluster.storage: found 'hddd', expected one of hdd, sata-ssd, nvme, lustre, gpfs, cloud-disk, or",
    ),
    (scenario({"latency": "1 ms"}), "cluster.storage.bandwidth: missing; expected a bandwidth with its unit: total"),
    (scenario({"name": "hdd", "latency": 4}), "cluster.storage.latency: found 4, expected a time of 0 or more"),
    (scenario({"name": "hdd", "latancy": "4 ms"}), "cluster.storage.latancy: unknown key (did you mean latency?)"),
    (scenario({"name": "hdd", "stripes": 2}), "cluster.storage.depth: found 1, expected 2 or more, or null, where"),
    (scenario(reading=None), "workload.reading: missing; cluster.storage is there, but samples are in memory"),
    (scenario(model="transformer"), "workload.reading.record: missing; expected the bytes of a sample, such as '110"),
    (scenario(reading={"prefetch": -1}), "workload.reading.prefetch: found -1, expected a whole number from 0"),
]


@pytest.mark.parametrize(("given", "words"), MISTAKES)
def test_mistakes_are_told(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        load(given)
    assert f"scenario: {words}" in str(caught.value)


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, 64 * 8 + 8),
        ({"model": "small-cnn"}, 3 * 32 * 32 + 8),
        ({"model": "resnet50"}, 3 * 224 * 224 + 8),
        ({"model": "resnet50", "reading": {"record": "110 kB"}}, 110_000),
    ],
)
def test_a_record_is_as_large_as_its_sample(more: dict[str, Any], expected: int) -> None:
    loaded = load(scenario(**more))
    assert loaded.workload.record_bytes == expected


# --- records ---------------------------------------------------------------------------------------------------------


def test_the_summary_says_what_was_read() -> None:
    (run,) = simulate(scenario({"latency": "10 ms", "bandwidth": "1 GB/s"}))
    summary = run.summary
    assert "reads" in summary
    steps = summary["steps"]
    reads = summary["reads"]
    assert reads["requests"] <= steps * 32 and reads["bytes"] == reads["requests"] * 520
    assert reads["stall_share"] == pytest.approx(summary["time_fraction"]["load"])
    assert 0.9 < summary["time_fraction"]["load"] < 1.0
    assert sum(summary["time_fraction"].values()) == pytest.approx(1.0)
    spans = run.tables.spans
    assert set(spans.loc[spans["activity"] == "read", "lane"]) == {"reader"}
    assert spans["end_s"].max() == summary["wall_s"]


def test_reading_without_storage_costs_nothing() -> None:
    (read,), (memory,) = simulate(scenario(None)), simulate(scenario(None, reading=None))
    assert read.summary == memory.summary
    assert "reads" not in read.summary


def test_storage_that_is_quick_enough_costs_nothing_but_the_first_batch() -> None:
    (quick,), (free,) = simulate(scenario("nvme", reading={})), simulate(scenario(None))
    first_s = STORAGE["nvme"].run_s(719 * 520)
    assert free.summary["wall_s"] < quick.summary["wall_s"] <= free.summary["wall_s"] + first_s * (1 + 1e-9)


def test_crashes_and_storage_go_together() -> None:
    given = scenario({"latency": "1 ms", "bandwidth": "1 GB/s"})
    given["cluster"]["crashes"] = {"at": [{"worker": 1, "at": "100 ms"}], "recovery": "500 ms"}
    (run,) = simulate(given)
    summary = run.summary
    assert "faults" in summary and "reads" in summary
    assert summary["faults"]["crashes"] == 1
    assert summary["reads"]["stall_share"] == pytest.approx(summary["time_fraction"]["load"])


def test_learning_is_the_same_with_and_without_storage() -> None:
    """Synchronous steps see the same samples however long the reading takes."""
    runs = [simulate(scenario(storage, learning="train"))[0] for storage in ("hdd", None)]
    losses = [run.tables.evaluations["loss"].tolist() for run in runs]
    assert losses[0] == losses[1]
    assert runs[0].summary["wall_s"] > runs[1].summary["wall_s"]


# --- the page --------------------------------------------------------------------------------------------------------

NAMES = ("name", "provenance")
PAGE = (Path(__file__).parents[2] / "docs/reading.md").read_text(encoding="utf-8").partition("## Simulated storage")[2]


def rows(header: str) -> list[list[str]]:
    """Of the page's table whose header begins so."""
    lines = PAGE[PAGE.index(f"| {header} |") :].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip().strip("`") for cell in line.split("|")[1:-1]] for line in lines]


def test_the_page_has_the_figures_of_all_known_storage() -> None:
    for row, one in zip(rows("name"), STORAGE.values(), strict=True):
        client = "" if one.client_bytes_per_s is None else f"{one.client_bytes_per_s / 1e9:g} GB/s"
        figures = [f"{one.latency_s * 1e3:g} ms", f"{one.bytes_per_s / 1e9:g} GB/s", client]
        assert row == [one.name, *figures, str(one.depth or ""), str(one.stripes), one.title]


def test_the_page_has_the_keys_of_storage() -> None:
    assert [row[0] for row in rows("storage key")] == [key for key in reading.Storage.model_fields if key not in NAMES]
    needed = [key for key, field in reading.Storage.model_fields.items() if field.is_required()]
    assert [row[0] for row in rows("storage key") if row[2] == "required"] == needed


def test_the_page_says_what_its_scenario_takes() -> None:
    text = PAGE.partition("```yaml\n")[2].partition("```")[0]
    for strategy in ("scattered", "contiguous"):
        (run,) = simulate(text.replace("scattered", strategy))
        step_s = run.summary["step_s"]["p50"]
        assert step_s is not None
        assert f"takes {step_s * 1e3:.0f} ms" in PAGE


def test_the_page_says_what_two_readers_have_of_a_hard_disk() -> None:
    disk, stretches = STORAGE["hdd"], 100
    assert disk.read_ahead_bytes is not None
    size = stretches * disk.read_ahead_bytes
    end_s = max(finished_s(disk, [[Piece(0, size)], [Piece(10**9, size)]], nodes=[0, 0]))
    assert f"{2 * size / end_s / 1e6:.0f} MB/s together, where one has {disk.bytes_per_s / 1e6:.0f}" in PAGE
