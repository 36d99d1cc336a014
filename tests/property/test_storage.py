"""Storage under Hypothesis: nothing is read faster than possible, and reading ahead never makes a worker late."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms.core.values import Rank
from paceline.algorithms.methods.baseline import SyncSgd
from paceline.records.trace import Schedule, Trace
from paceline.simulator.flows.flow_engine import Flows
from paceline.simulator.interpreter.host_costs import HostCosts
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.interpreter.storage import Ports, PortShare
from paceline.simulator.kernel.simpy_events import after
from paceline.simulator.network.network import NoCost
from paceline.topologies.catalogue.storage_devices import StorageModel
from paceline.workloads.reading import Order, Piece, Strategy
from tests.reading import finished_s, supply
from tests.support import FixedTiming, job_of

SLACK = 1 + 1e-9
SHARED = st.builds(
    lambda latency_s, bytes_per_s, client, depth, stripes: StorageModel(
        name="x", latency_s=latency_s, bytes_per_s=bytes_per_s, client_bytes_per_s=client, depth=depth,
        stripes=stripes, stripe_bytes=64, shared=True,
    ),
    st.sampled_from([0.0, 1e-3, 0.1]),
    st.sampled_from([1e3, 1e5]),
    st.none() | st.sampled_from([300.0, 1e5]),
    st.none() | st.integers(2, 5),
    st.integers(1, 6),
)  # fmt: skip
DISK = st.builds(
    lambda latency_s, ahead: StorageModel(
        name="x", latency_s=latency_s, bytes_per_s=1e3, depth=1, read_ahead_bytes=ahead, shared=True
    ),
    st.sampled_from([0.0, 1e-3, 0.1]),
    st.none() | st.sampled_from([1, 50, 1000]),
)
PIECES = st.lists(st.builds(Piece, st.integers(0, 500), st.integers(1, 300)), min_size=1, max_size=6)
WANTED = st.lists(PIECES, min_size=1, max_size=6)
STRATEGIES = st.sampled_from(["scattered", "strided", "contiguous"])


@given(SHARED | DISK, WANTED)
def test_nothing_is_read_faster_than_it_can_be(storage: StorageModel, wanted: list[list[Piece]]) -> None:
    """No reader is faster than alone, and no part of the device exceeds its capacity."""
    found = finished_s(storage, wanted)
    alone = [finished_s(storage, [pieces])[0] for pieces in wanted]
    assert all(one * SLACK >= best for one, best in zip(found, alone, strict=True))
    sizes = [sum(piece.records for piece in pieces) for pieces in wanted]
    assert max(found) * SLACK >= sum(sizes) / storage.bytes_per_s
    if storage.depth is not None and storage.latency_s > 0:
        least = [1 if storage.read_ahead_bytes is not None else len(pieces) for pieces in wanted]
        assert max(found) * SLACK >= sum(least) * storage.latency_s / storage.depth
    assert found == finished_s(storage, wanted)


@given(SHARED, WANTED)
def test_sharing_wastes_nothing(storage: StorageModel, wanted: list[list[Piece]]) -> None:
    """All together take no longer than one after the other."""
    alone = [finished_s(storage, [pieces])[0] for pieces in wanted]
    assert max(finished_s(storage, wanted)) <= sum(alone) * SLACK


@given(st.integers(0, 10**6), st.integers(1, 5000), st.integers(1, 7), st.sampled_from([1, 10, 64]))
def test_stripes_hold_every_byte_once(start: int, nbytes: int, stripes: int, stripe_bytes: int) -> None:
    storage = StorageModel(name="x", latency_s=0.0, bytes_per_s=1.0, stripes=stripes, stripe_bytes=stripe_bytes)
    places = np.arange(start, start + nbytes) // stripe_bytes % stripes
    servers, counts = np.unique(places, return_counts=True)
    assert storage.parts(start, nbytes) == dict(zip(servers.tolist(), counts.astype(float).tolist(), strict=True))


# --- ports ---------------------------------------------------------------------------------------------------------

CAPACITY = {"a": 1.0, "b": 2.0, "c": 5.0}
PARTS = st.lists(
    st.tuples(
        st.integers(0, 12),
        st.lists(st.sampled_from(list(CAPACITY)), min_size=1, unique=True),
        st.integers(1, 8),
        st.sampled_from([0.25, 0.5, 1.0]),
    ),
    min_size=1,
    max_size=10,
)
"""when each begins, its ports, its amount, and its pace alone, which no port is narrower than"""


def through_s(parts: list[tuple[int, list[str], int, float]], *, all_flow: bool) -> list[float]:
    """Returns when each ends: by ports that use flows only where necessary, or with a flow for each from the start."""
    env = simpy.Environment(0.0)
    ports, flows = Ports(env, CAPACITY), Flows(env, CAPACITY)
    found = [0.0] * len(parts)

    def note(place: int, _: object = None) -> None:
        found[place] = env.now

    def begin(place: int) -> None:
        _, names, amount, pace = parts[place]
        if all_flow:
            flow = flows.begin(tuple(names), amount, pace)
            assert flow.callbacks is not None
            flow.callbacks.append(partial(note, place))
        else:
            ports.begin([PortShare(tuple(names), amount, pace)], amount / pace, partial(note, place))

    for place, (begun_s, *_) in enumerate(parts):
        after(env, begun_s / 4, lambda _, place=place: begin(place))  # type: ignore[misc]
    env.run()
    return found


@given(PARTS)
def test_ports_that_cannot_be_full_need_no_flows(parts: list[tuple[int, list[str], int, float]]) -> None:
    """A timer for an undisturbed reader changes nothing for any reader."""
    assert through_s(parts, all_flow=False) == pytest.approx(through_s(parts, all_flow=True), rel=1e-9)


# --- runs ------------------------------------------------------------------------------------------------------------


def run(strategy: Strategy, prefetch: int, seed: int, *, workers: int = 3, steps: int = 6, epochs: float = 1) -> Trace:
    """Workers with separate disks and steps of random lengths."""
    disk = StorageModel(name="x", latency_s=0.05, bytes_per_s=1e4, depth=1)
    num_samples = round(workers * 8 * steps / epochs)
    order = Order(strategy=strategy, num_samples=num_samples, seed=seed, buffer=10)
    lengths = np.random.default_rng(seed).exponential(0.5, (workers, steps))
    timing = FixedTiming(compute=lambda rank, step: float(lengths[rank, step]))
    given_ = supply(disk, workers=workers, prefetch=prefetch, order=order)
    return simulate_job(
        job_of(SyncSgd(), workers, steps=steps), timing, NoCost(), Schedule(10**9), hosts=HostCosts(supply=given_)
    )


@given(STRATEGIES, st.integers(0, 4), st.integers(0, 100))
def test_reading_ahead_further_is_never_slower(strategy: Strategy, prefetch: int, seed: int) -> None:
    before, after = run(strategy, prefetch, seed), run(strategy, prefetch + 1, seed)
    assert after.wall_s <= before.wall_s * SLACK
    assert [after.reads[rank][:3] for rank in after.reads] == [before.reads[rank][:3] for rank in before.reads]


@given(STRATEGIES, st.integers(1, 4), st.integers(0, 100))
def test_a_reader_is_busy_with_one_batch_at_a_time_until_its_program_ends(
    strategy: Strategy, prefetch: int, seed: int
) -> None:
    trace = run(strategy, prefetch, seed)
    for rank in map(Rank, range(3)):
        reads = sorted((s.start_s, s.end_s) for s in trace.spans if s.activity == "read" and s.rank == rank)
        assert all(one[1] <= other[0] * SLACK for one, other in pairwise(reads))
        busy_s = sum(end_s - start_s for start_s, end_s in reads)
        assert trace.reads[rank].bytes / 1e4 <= busy_s * SLACK <= trace.wall_s * SLACK * SLACK
        assert trace.reads[rank].stall_s <= trace.wall_s


@pytest.mark.parametrize("workers", [1, 2, 5])
@given(epochs=st.integers(1, 4), seed=st.integers(0, 100))
def test_contiguous_readers_seek_at_most_twice_an_epoch(workers: int, epochs: int, seed: int) -> None:
    """Ranks × runs: with equal batches one each, which a run past the end of the file would make two."""
    trace = run("contiguous", 2, seed, workers=workers, steps=4 * epochs, epochs=epochs)
    assert sum(reads.seeks for reads in trace.reads.values()) <= 2 * workers * epochs
    scattered = run("scattered", 2, seed, workers=workers, steps=4 * epochs, epochs=epochs)
    assert sum(reads.requests for reads in scattered.reads.values()) > 2 * workers * epochs
