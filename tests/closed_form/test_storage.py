"""The duration of reading: bit for bit alone, in closed form beside others, and its distance from single requests.

Numbers P3 and P4 are those of the oracles: a loader before a queue, and random reads against runs.
"""

from __future__ import annotations

from collections.abc import Generator

import numpy as np
import pytest
import simpy

from paceline.algorithms.core.values import Samples
from paceline.algorithms.methods.baseline import SequentialSgd
from paceline.records.trace import Schedule
from paceline.simulator.flows.flow_engine import Flows
from paceline.simulator.interpreter.host_costs import HostCosts
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.interpreter.storage import Stores
from paceline.simulator.network.network import NoCost
from paceline.topologies.catalogue.storage_devices import KIB, MIB, STORAGE, StorageModel
from paceline.workloads.reading import Order, Piece
from tests.reading import apart, finished_s, supply
from tests.support import FixedTiming, job_of
from tests.thorough import sampled

KNOWN = pytest.mark.parametrize("storage", STORAGE.values(), ids=list(STORAGE))


def device(**more: object) -> StorageModel:
    """10 ms a request, and 1 MB/s shared by all."""
    return StorageModel(**{"name": "x", "latency_s": 0.01, "bytes_per_s": 1e6, "shared": True, **more})  # type: ignore[arg-type]


# --- alone: P4 -------------------------------------------------------------------------------------------------------


@KNOWN
@pytest.mark.parametrize("size", [100, 4 * KIB, 110_000])
def test_a_record_takes_its_latency_and_its_bytes(storage: StorageModel, size: int) -> None:
    """L + s / B, where B is what one server gives to one reader."""
    pace = storage.bytes_per_s / storage.stripes
    pace = min(pace, storage.client_bytes_per_s or pace)
    assert finished_s(storage, [[Piece(0, 1)]], record_bytes=size) == [storage.latency_s + size / pace]


@pytest.mark.parametrize("records", [1, 2, 64, 1000])
@pytest.mark.parametrize("name", ["hdd", "sata-ssd", "nvme", "cloud-disk"])
def test_a_run_takes_one_latency(name: str, records: int) -> None:
    """L + r s / B, as one request or as one for each record."""
    storage, size = STORAGE[name], 110_000
    expected = storage.latency_s + records * size / storage.bytes_per_s
    assert finished_s(storage, [[Piece(7, records)]], record_bytes=size) == [expected]
    assert finished_s(storage, [[Piece(7 + one, 1) for one in range(records)]], record_bytes=size) == [expected]


def test_the_gain_of_runs() -> None:
    """(L + s / B) / (L / r + s / B): 10.5 for records of 110 kB on a hard disk, in runs of 64."""
    storage, size, records = STORAGE["hdd"], 110_000, 64
    (scattered,) = finished_s(storage, [apart(records, 1)], record_bytes=size)
    (run,) = finished_s(storage, [[Piece(0, records)]], record_bytes=size)
    bytes_s = size / storage.bytes_per_s
    gain = (storage.latency_s + bytes_s) / (storage.latency_s / records + bytes_s)
    assert scattered / run == pytest.approx(gain, rel=1e-12)
    assert gain == pytest.approx(10.5, abs=0.1)


def test_without_read_ahead_every_request_has_its_latency() -> None:
    storage = device(read_ahead_bytes=None)
    assert finished_s(storage, [[Piece(0, 1000), Piece(1000, 1000)]]) == [2 * 0.01 + 2000 / 1e6]


def test_a_request_over_all_stripes_has_all_servers() -> None:
    """Four stripes on four servers are four times as fast as one, unless the client limits the rate."""
    wide = StorageModel(name="x", latency_s=0.0, bytes_per_s=4e6, stripes=4, stripe_bytes=1000)
    assert finished_s(wide, [[Piece(0, 4000)]]) == [4000 / 4e6]
    assert finished_s(wide, [[Piece(0, 1000)]]) == [1000 / 1e6]
    narrow = StorageModel(
        name="x", latency_s=0.0, bytes_per_s=4e6, stripes=4, stripe_bytes=1000, client_bytes_per_s=2e6
    )
    assert finished_s(narrow, [[Piece(0, 4000)]]) == [4000 / 2e6]


# --- beside others ---------------------------------------------------------------------------------------------------


def test_readers_share_the_device() -> None:
    """N readers of long runs: N s / B, on any number of nodes; the latencies overlap with transfers."""
    for readers in (2, 5, 40):
        wanted = [[Piece(10**7 * reader, 10**6)] for reader in range(readers)]
        assert finished_s(device(), wanted) == pytest.approx([float(readers)] * readers, rel=1e-12)


def test_readers_below_capacity_do_not_slow_each_other() -> None:
    """Each needs the bandwidth for a tenth of the time: ten readers are as fast as one, eleven are not."""
    wanted = [apart(20, 1000, start=10**6 * reader) for reader in range(11)]
    storage = device(latency_s=0.009)
    alone = 20 * (0.009 + 0.001)
    assert finished_s(storage, wanted[:10]) == pytest.approx([alone] * 10, rel=1e-12)
    assert finished_s(storage, wanted) == pytest.approx([alone * 1.1] * 11, rel=1e-12)


def test_readers_of_one_node_share_its_client() -> None:
    """Three readers on one node have a third of its rate each; the one on the other node has its full demand."""
    storage = device(bytes_per_s=1e9, client_bytes_per_s=3e6, latency_s=0.0)
    wanted = [[Piece(10**7 * reader, 3 * 10**6)] for reader in range(4)]
    assert finished_s(storage, wanted, nodes=[0, 0, 0, 1]) == pytest.approx([3.0, 3.0, 3.0, 1.0], rel=1e-12)


def test_readers_of_one_stripe_share_its_server() -> None:
    """Where N read from one of S servers, they have a S-th of the bandwidth together."""
    storage = device(latency_s=0.0, stripes=8, stripe_bytes=MIB, bytes_per_s=8e6)
    wanted = [[Piece(1000 * reader, 1000)] for reader in range(5)]
    assert finished_s(storage, wanted) == pytest.approx([5 * 1000 / 1e6] * 5, rel=1e-12)
    spread = [[Piece(MIB * reader, 1000)] for reader in range(5)]
    assert finished_s(storage, spread) == pytest.approx([1000 / 1e6] * 5, rel=1e-12)


@pytest.mark.parametrize("readers", [4, 5, 12])
def test_no_more_latencies_than_its_depth_pass_at_once(readers: int) -> None:
    """Small requests: depth / latency a second, from as many readers on."""
    storage = device(depth=4, bytes_per_s=1e12)
    wanted = [apart(50, 1, start=10**6 * reader) for reader in range(readers)]
    assert finished_s(storage, wanted) == pytest.approx([50 * 0.01 * max(1, readers / 4)] * readers, rel=1e-6)


@pytest.mark.parametrize("readers", [1, 2, 4, 12])
def test_readers_wait_for_the_part_of_a_latency_that_one_has_to_itself(readers: int) -> None:
    """Small requests: k / (1 + w (k − 1)) latencies pass at once, for k readers."""
    storage = device(waiting=0.25, bytes_per_s=1e12)
    wanted = [apart(50, 1, start=10**6 * reader) for reader in range(readers)]
    assert finished_s(storage, wanted) == pytest.approx([50 * 0.01 * (1 + 0.25 * (readers - 1))] * readers, rel=1e-6)


def test_who_is_left_waits_for_fewer() -> None:
    """Two readers, one with half the work: both at half the rate until it is done, then the other alone."""
    storage = device(waiting=0.5, bytes_per_s=1e12)
    wanted = [apart(50, 1, start=0), apart(100, 1, start=10**6)]
    assert finished_s(storage, wanted) == pytest.approx([50 * 0.015, 50 * 0.015 + 50 * 0.01], rel=1e-6)


def test_one_reader_may_have_less_than_the_device() -> None:
    storage = device(one_bytes_per_s=4e5, latency_s=0.0)
    wanted = [[Piece(10**7 * reader, 10**6)] for reader in range(4)]
    assert finished_s(storage, wanted[:1]) == pytest.approx([2.5], rel=1e-12)
    assert finished_s(storage, wanted[:2]) == pytest.approx([2.5] * 2, rel=1e-12)
    assert finished_s(storage, wanted) == pytest.approx([4.0] * 4, rel=1e-12)


def test_each_node_has_a_disk_of_its_own() -> None:
    storage = StorageModel(name="x", latency_s=0.01, bytes_per_s=1e6, depth=1)
    wanted = [[Piece(0, 10**6)] for _ in range(3)]
    assert finished_s(storage, wanted, nodes=[0, 1, 2]) == [1.01] * 3


# --- one arm ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("readers", [2, 3, 8])
def test_two_who_read_on_make_a_disk_seek(readers: int) -> None:
    """One reader: L + S / B. N: for each stretch that is read ahead an L, so N (S / a L + S / B)."""
    disk, stretches = STORAGE["hdd"], 40
    size = stretches * 128 * KIB
    alone = disk.latency_s + size / disk.bytes_per_s
    assert finished_s(disk, [[Piece(0, size)]]) == [alone]
    wanted = [[Piece(10**9 * reader, size)] for reader in range(readers)]
    together = readers * (stretches * disk.latency_s + size / disk.bytes_per_s)
    assert finished_s(disk, wanted, nodes=[0] * readers) == pytest.approx([together] * readers, rel=1e-12)
    assert together > 8 * readers * alone


def test_random_readers_of_a_disk_wait_for_each_other() -> None:
    """N (n L + S / B), as for one reader of everything: a disk does one thing at a time."""
    disk = STORAGE["hdd"]
    wanted = [apart(32, 10_000, start=10**8 * reader) for reader in range(3)]
    one = 32 * (disk.latency_s + 10_000 / disk.bytes_per_s)
    assert finished_s(disk, wanted, nodes=[0] * 3) == pytest.approx([3 * one] * 3, rel=1e-12)


def test_who_is_alone_again_is_as_fast_as_alone() -> None:
    """Both have 1 s of work each, the second twice: 2 s together, then the rest of it."""
    disk = StorageModel(name="x", latency_s=0.0, bytes_per_s=1e6, depth=1)
    wanted = [[Piece(0, 10**6)], [Piece(10**8, 2 * 10**6)]]
    assert finished_s(disk, wanted, nodes=[0, 0]) == pytest.approx([2.0, 3.0], rel=1e-12)


def test_an_arm_that_has_been_elsewhere_comes_back() -> None:
    """A reader that continues has been read ahead of, but for one latency if another reader was served in between."""
    disk = StorageModel(name="x", latency_s=0.5, bytes_per_s=1e6, depth=1, read_ahead_bytes=10**5)
    env = simpy.Environment(0.0)
    stores = Stores(env, disk, 1, [0, 0])
    one, other = stores.reader(0), stores.reader(0)
    ends: list[float] = []
    for reader, first, size in [(one, 0, 10**6), (one, 10**6, 10**6), (other, 0, 1), (one, 2 * 10**6, 10**6)]:
        stores.read(reader, reader.ask([Piece(first, size)]), lambda: ends.append(env.now))
        env.run()
    assert np.diff([0.0, *ends]) == pytest.approx([0.5 + 1.0, 1.0, 0.5 + 1e-6, 0.5 + 1.0], rel=1e-12)


# --- request by request ----------------------------------------------------------------------------------------------


def one_by_one(storage: StorageModel, readers: int, requests: int, size: int, *, in_turn: bool) -> float:
    """When the last reader is done, with each request simulated separately; a server shares its rate, or serves in
    turn.
    """
    env = simpy.Environment(0.0)
    flows, server = Flows(env, {"server": storage.bytes_per_s}), simpy.Resource(env)
    slots = simpy.Resource(env, int(storage.depth or readers))

    def reader() -> Generator[simpy.Event, None, None]:
        for _ in range(requests):
            with slots.request() as slot:
                yield slot
                yield env.timeout(storage.latency_s)
            if in_turn:
                with server.request() as turn:
                    yield turn
                    yield env.timeout(size / storage.bytes_per_s)
            else:
                yield flows.begin(("server",), size)

    for _ in range(readers):
        env.process(reader())
    env.run()
    return env.now


@pytest.mark.parametrize("readers", [1, 2, 4, 8, 16, 64])
@pytest.mark.parametrize("depth", [None, 3])
def test_batches_take_what_their_requests_take(readers: int, depth: int | None) -> None:
    """At most 0.5 % less where servers serve in turn; at most half as long where they share and all run in step.

    Latency is seven times the transfer, so eight readers just saturate the device, which is the worst case.
    """
    storage, requests, size = device(latency_s=0.007, depth=depth), 200, 1000
    wanted = [apart(requests, size, start=10**7 * reader) for reader in range(readers)]
    ours = max(finished_s(storage, wanted))
    in_turn = one_by_one(storage, readers, requests, size, in_turn=True)
    in_step = one_by_one(storage, readers, requests, size, in_turn=False)
    assert 0.995 * in_turn <= ours <= in_turn * (1 + 1e-9)
    assert 0.5 * in_step <= ours <= in_step * (1 + 1e-9)
    if readers == 1:
        assert ours == pytest.approx(in_step, rel=1e-12)


# --- a loader before a queue: P3 -------------------------------------------------------------------------------------


class Drawn(Order):
    """Every batch is one piece of a random length, exponential around a million records."""

    def pieces(self, samples: Samples) -> list[Piece]:
        length = np.random.default_rng((3, samples.index)).exponential(1e6)
        return [Piece(10**9 * samples.index, max(1, round(length)))]


def throughput(prefetch: int, *, step_s: float, steps: int = 8000, blocks: int = 50) -> tuple[float, float]:
    """Steps a second where loading takes a second in the mean, and the standard error of that, from blocks of steps."""
    storage = StorageModel(name="x", latency_s=0.0, bytes_per_s=1e6)
    order = Drawn(strategy="scattered", num_samples=64, seed=1)
    timing = FixedTiming(compute=lambda _, step: np.random.default_rng((4, step)).exponential(step_s))
    trace = simulate_job(
        job_of(SequentialSgd(), 1, steps=steps), timing, NoCost(), Schedule(10**9),
        hosts=HostCosts(supply=supply(storage, workers=1, prefetch=prefetch, order=order, record_bytes=1)),
    )  # fmt: skip
    begun = np.array([span.start_s for span in trace.spans if span.activity == "compute"])[steps // blocks :]
    each = np.diff(begun[:: steps // blocks]) / (steps // blocks)
    mean = each.mean()
    return 1 / mean, each.std(ddof=1) / np.sqrt(len(each)) / mean**2


P3 = sampled([(1, 1.0), (2, 1.0), (3, 1.0), (5, 1.0), (9, 1.0), (2, 0.8)], [(1, 1.0), (2, 0.8)])


@pytest.mark.parametrize(("prefetch", "step_s"), P3)
def test_p3_what_a_prefetched_queue_lets_through(prefetch: int, step_s: float) -> None:
    """l (1 − π_K), π_k ~ (l / m)^k, K = w + 2; within three standard errors, each below 1.2 %."""
    ratios = step_s ** np.arange(prefetch + 3)
    expected = 1 - ratios[-1] / ratios.sum()
    found, error = throughput(prefetch, step_s=step_s)
    assert error < 0.012 * expected
    assert abs(found - expected) < 3 * error


def test_without_prefetch_loading_and_computing_take_turns() -> None:
    """1 / (1 / l + 1 / m)."""
    found, error = throughput(0, step_s=1.0)
    assert abs(found - 0.5) < 3 * error
