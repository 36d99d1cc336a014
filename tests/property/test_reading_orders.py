"""Reading orders: every epoch has every sample once, for any number of readers, and contiguous readers seldom seek.

An order is used as in a run: a worker takes `counts[worker]` samples per step, and those of all workers are a global
batch.
"""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count, islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.values import Samples
from paceline.workloads.reading import Held, Order, Strategy, following
from paceline.workloads.reading.file import RecordFile
from paceline.workloads.reading.reader import Counts, Reader
from tests.records import numbered

SEEDS = st.integers(0, 2**32 - 1)
STRATEGIES = st.sampled_from(["scattered", "strided", "contiguous", "sharded"])
COUNTS = st.lists(st.integers(1, 4), min_size=1, max_size=6)
EQUAL = st.builds(lambda workers, batch: [batch] * workers, st.integers(1, 6), st.integers(1, 4))
SPARE = st.integers(0, 40)
BUFFERS = st.integers(1, 12)
EPOCHS = st.integers(0, 9)


def step(worker: int, index: int, counts: Sequence[int]) -> Samples:
    """Of this worker, where the workers take so many samples a step."""
    first, whole = sum(counts[:worker]), sum(counts)
    if len(set(counts)) == 1:
        return Samples(worker, len(counts), index, counts[worker])
    return Samples(worker, len(counts), index, counts[worker], before=first, together=whole)


def order_of(strategy: Strategy, counts: Sequence[int], spare: int, seed: int = 1, buffer: int = 4) -> Order:
    """Of a file that holds a global batch at least."""
    num_samples = max(sum(counts) + spare, len(counts) * -(-sum(counts) // len(counts)))
    return Order(strategy=strategy, num_samples=num_samples, seed=seed, buffer=buffer)


def used(order: Order, worker: int, counts: Sequence[int]) -> Iterator[int]:
    """Yields the records that a worker uses, one after the other, without end."""
    for index in count():
        yield from order.positions(step(worker, index, counts)).tolist()


def run_of(num_samples: int, worker: int, counts: Sequence[int]) -> int:
    """Records that a contiguous worker reads in an epoch."""
    first, whole = sum(counts[:worker]), sum(counts)
    return num_samples * (first + counts[worker]) // whole - num_samples * first // whole


def epoch_of(order: Order, epoch: int, worker: int, counts: Sequence[int]) -> list[int]:
    """What a contiguous worker uses in an epoch."""
    length = run_of(order.num_samples, worker, counts)
    return list(islice(used(order, worker, counts), epoch * length, (epoch + 1) * length))


# --- every sample once -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["scattered", "strided", "contiguous"])
def test_micro_batches_of_an_epoch_are_all_samples_once(strategy: Strategy) -> None:
    """Two workers, three micro-batches of two samples in a step; each is expected after the one before."""
    order = Order(strategy=strategy, num_samples=24, seed=1, buffer=5)
    seen = []
    for rank in range(2):
        expected = Samples(rank, 2, 0, 6).micro_batches(3)[0]
        for index in range(2):
            for one in Samples(rank, 2, index, 6).micro_batches(3):
                assert one == expected
                seen.append(order.positions(one))
                expected = following(one)
    assert sorted(np.concatenate(seen)) == list(range(24))


@given(counts=COUNTS, spare=SPARE, seed=SEEDS, steps=st.integers(0, 60))
@pytest.mark.parametrize("strategy", ["scattered", "strided"])
def test_no_sample_is_an_epoch_ahead_of_another(
    strategy: Strategy, counts: list[int], spare: int, seed: int, steps: int
) -> None:
    """After k global batches of G, each of N samples has come ⌊k G/N⌋ times or once more: every epoch holds all."""
    order = order_of(strategy, counts, spare, seed)
    came = Counter(range(order.num_samples))
    for index in range(steps):
        for worker in range(len(counts)):
            came.update(order.positions(step(worker, index, counts)).tolist())
    epochs = steps * sum(counts) // order.num_samples
    assert set(came) == set(range(order.num_samples))
    assert {often - 1 for often in came.values()} <= {epochs, epochs + 1}


@given(counts=COUNTS | EQUAL, spare=SPARE, seed=SEEDS, buffer=BUFFERS, epoch=EPOCHS)
def test_contiguous_runs_of_an_epoch_hold_every_sample_once(
    counts: list[int], spare: int, seed: int, buffer: int, epoch: int
) -> None:
    order = order_of("contiguous", counts, spare, seed, buffer)
    seen = [place for worker in range(len(counts)) for place in epoch_of(order, epoch, worker, counts)]
    assert sorted(seen) == list(range(order.num_samples))


@given(counts=COUNTS, spare=SPARE, seed=SEEDS, buffer=BUFFERS, epochs=st.integers(1, 4))
def test_a_shard_is_its_workers_own_in_every_epoch(
    counts: list[int], spare: int, seed: int, buffer: int, epochs: int
) -> None:
    order = order_of("sharded", counts, spare, seed, buffer)
    workers, number = len(counts), order.num_samples
    for worker in range(workers):
        shard = list(range(number * worker // workers, number * (worker + 1) // workers))
        seen = list(islice(used(order, worker, counts), epochs * len(shard)))
        for epoch in range(epochs):
            assert sorted(seen[epoch * len(shard) : (epoch + 1) * len(shard)]) == shard


@given(counts=COUNTS, spare=SPARE, seed=SEEDS, strategy=STRATEGIES, index=st.integers(0, 99))
def test_positions_lie_in_the_pieces_and_the_same_seed_gives_the_same(
    counts: list[int], spare: int, seed: int, strategy: Strategy, index: int
) -> None:
    one, same = (order_of(strategy, counts, spare, seed) for _ in range(2))
    for worker in range(len(counts)):
        samples = step(worker, index, counts)
        held = {first + at for first, records in one.pieces(samples) for at in range(records)}
        places = one.positions(samples).tolist()
        assert len(places) == counts[worker]
        assert set(places) <= held <= set(range(one.num_samples))
        assert same.positions(samples).tolist() == places
        assert same.pieces(samples) == one.pieces(samples)


@given(seed=SEEDS, strategy=st.sampled_from(["scattered", "contiguous"]))
def test_seeds_and_epochs_shuffle_differently(seed: int, strategy: Strategy) -> None:
    epochs = [
        tuple(
            islice(used(Order(strategy=strategy, num_samples=50, seed=chosen, buffer=50), 0, [10]), start, start + 50)
        )
        for chosen in (seed, seed + 1)
        for start in (0, 50)
    ]
    assert len(set(epochs)) == 4


@given(counts=COUNTS, spare=SPARE, seed=SEEDS)
def test_strided_workers_of_equal_batches_read_neighbours_in_turn(counts: list[int], spare: int, seed: int) -> None:
    """Nothing is shuffled: worker r of P takes records r, r + P, r + 2 P … of the global batch."""
    equal = [counts[0]] * len(counts)
    order = order_of("strided", equal, spare, seed)
    for worker in range(len(equal)):
        wanted = [worker + len(equal) * number for number in range(counts[0])]
        assert order.positions(step(worker, 0, equal)).tolist() == wanted


@pytest.mark.parametrize("strategy", ["scattered", "strided", "contiguous"])
def test_a_global_batch_that_is_no_epoch_is_refused(strategy: Strategy) -> None:
    order = Order(strategy=strategy, num_samples=11, seed=1)
    with pytest.raises(InputError, match="12 samples a step, but 11 an epoch; give 3 at most"):
        order.positions(Samples(0, 3, 0, 4))


# --- how well contiguous readers shuffle -----------------------------------------------------------------------------


@given(counts=COUNTS | EQUAL, spare=SPARE, seed=SEEDS, buffer=BUFFERS, epoch=EPOCHS)
def test_a_sample_travels_by_less_than_a_buffer(
    counts: list[int], spare: int, seed: int, buffer: int, epoch: int
) -> None:
    """From its place in the run, which begins ⌊N f/G⌋ − ⌊N j/P⌋ into the file, j = epoch mod P."""
    order = order_of("contiguous", counts, spare, seed, buffer)
    num_samples, workers = order.num_samples, len(counts)
    for worker in range(workers):
        begins = num_samples * sum(counts[:worker]) // sum(counts) - num_samples * (epoch % workers) // workers
        for turn, place in enumerate(epoch_of(order, epoch, worker, counts)):
            assert abs((place - begins) % num_samples - turn) < buffer


@given(batch=st.integers(1, 4), workers=st.integers(1, 6), each=st.integers(4, 12), epoch=EPOCHS, buffer=BUFFERS)
def test_runs_are_handed_on_so_that_everybody_sees_all_in_as_many_epochs_as_workers(
    batch: int, workers: int, each: int, epoch: int, buffer: int
) -> None:
    """Where batches are equal and runs, too: worker r has in an epoch what worker r − 1 had in the one before."""
    order, counts = Order(strategy="contiguous", num_samples=each * workers, seed=1, buffer=buffer), [batch] * workers
    for worker in range(workers):
        runs = [set(epoch_of(order, epoch + later, worker, counts)) for later in range(workers)]
        assert sorted(place for run in runs for place in run) == list(range(order.num_samples))
        before = epoch_of(order, epoch, (worker - 1) % workers, counts)
        assert set(epoch_of(order, epoch + 1, worker, counts)) == set(before)


@given(counts=COUNTS, seed=SEEDS, epoch=EPOCHS, spare=st.integers(10, 40))
def test_strided_and_scattered_samples_go_anywhere(counts: list[int], seed: int, epoch: int, spare: int) -> None:
    """Of what the docs say of the other two: strided never shuffles, scattered shuffles all of an epoch."""
    num_samples = sum(counts) + spare
    strided, scattered = (
        list(islice(used(Order(strategy=strategy, num_samples=num_samples, seed=seed), 0, [1]), epoch * num_samples,
                    (epoch + 1) * num_samples))
        for strategy in ("strided", "scattered")
    )  # fmt: skip
    assert strided == list(range(num_samples))
    assert sorted(scattered) == strided != scattered


# --- what a reader asks of a file ------------------------------------------------------------------------------------


@contextmanager
def file_of(num_samples: int) -> Iterator[RecordFile]:
    """A real file, whose records are labelled with their numbers."""
    with tempfile.TemporaryDirectory() as folder:
        yield numbered(Path(folder, "train.npy"), num_samples)


def read_whole_epochs(file: RecordFile, order: Order, counts: Sequence[int], epochs: int) -> list[Counts]:
    """The requests of each worker's reader, after the records of so many epochs were used; they are checked, too."""
    answers = []
    for worker, batch in enumerate(counts):
        reader = Reader(file, order)
        for index in range(epochs * run_of(order.num_samples, worker, counts) // batch):
            samples = step(worker, index, counts)
            assert reader.records(samples)["label"].tolist() == order.positions(samples).tolist()
        reader.close()
        answers.append(reader.counts)
    return answers


@given(counts=EQUAL, spare=SPARE, buffer=BUFFERS, times=st.integers(1, 2))
def test_contiguous_readers_of_equal_batches_seek_once_an_epoch_each(
    counts: list[int], spare: int, buffer: int, times: int
) -> None:
    order = order_of("contiguous", counts, spare, buffer=buffer)
    epochs = times * counts[0]  # so that batches fill them
    with file_of(order.num_samples) as file:
        asked = read_whole_epochs(file, order, counts, epochs)
    assert all(one.seeks <= epochs for one in asked)
    assert sum(one.bytes for one in asked) <= epochs * order.num_samples * file.record_bytes


@given(counts=COUNTS, spare=SPARE, buffer=BUFFERS)
@example(counts=[1, 2], spare=0, buffer=1)
def test_contiguous_readers_of_unequal_batches_seek_once_more_among_all(
    counts: list[int], spare: int, buffer: int
) -> None:
    order = order_of("contiguous", counts, spare, buffer=buffer)
    epochs = math.lcm(*counts)
    with file_of(order.num_samples) as file:
        asked = read_whole_epochs(file, order, counts, epochs)
    assert sum(one.seeks for one in asked) <= epochs * (len(counts) + 1)


@given(counts=COUNTS, spare=SPARE, buffer=BUFFERS, strategy=STRATEGIES, steps=st.integers(1, 30))
def test_a_reader_asks_for_each_piece_as_it_becomes_needed(
    counts: list[int], spare: int, buffer: int, strategy: Strategy, steps: int
) -> None:
    """Requests, seeks and bytes are those that `Held` computes from the order's pieces, which a simulation charges."""
    order = order_of(strategy, counts, spare, buffer=buffer)
    with file_of(order.num_samples) as file:
        reader, held, samples = Reader(file, order), Held(), step(0, 0, counts)
        fresh = []
        for _ in range(steps):
            reader.records(samples)
            fresh += held.fresh(order.pieces(samples))
            samples = following(samples)
        reader.close()
    ends = [-1, *(first + records for first, records in fresh)]
    seeks = sum(piece.first != end for piece, end in zip(fresh, ends, strict=False))
    assert reader.counts == Counts(len(fresh), seeks, sum(one.records for one in fresh) * file.record_bytes)


# --- batches that change: dbs-sgd ------------------------------------------------------------------------------------

CUTS = st.integers(1, 5).flatmap(
    lambda workers: st.lists(st.lists(st.integers(1, 4), min_size=workers, max_size=workers), min_size=2, max_size=4)
)
"""the batches of the same workers, stage after stage"""


@given(cuts=CUTS, spare=SPARE, buffer=BUFFERS, strategy=STRATEGIES, steps=st.integers(1, 8), seed=SEEDS)
def test_a_reader_answers_what_the_order_says_whatever_was_asked_before(
    cuts: list[list[int]], spare: int, buffer: int, strategy: Strategy, steps: int, seed: int
) -> None:
    """Batches follow from `Samples` alone, although batches change between steps and steps are requested twice."""
    order = order_of(strategy, max(cuts, key=sum), spare + len(cuts[0]), seed, buffer)
    with file_of(order.num_samples) as file:
        reader = Reader(file, order)
        for stage, counts in enumerate(cuts):
            for index in (*range(stage * steps, (stage + 1) * steps), stage * steps):
                samples = step(0, index, counts)
                assert reader.records(samples)["label"].tolist() == order.positions(samples).tolist()
        reader.close()


@given(cuts=CUTS, spare=SPARE, buffer=BUFFERS, steps=st.integers(1, 8))
def test_a_change_of_batches_costs_a_contiguous_reader_a_jump(
    cuts: list[list[int]], spare: int, buffer: int, steps: int
) -> None:
    """Between changes, seeks are those of runs begun and of runs that go past the file's end: two an epoch at most."""
    order = order_of("contiguous", max(cuts, key=sum), spare + len(cuts[0]), buffer=buffer)
    begun = 0
    with file_of(order.num_samples) as file:
        reader = Reader(file, order)
        for stage, counts in enumerate(cuts):
            length = run_of(order.num_samples, 0, counts)
            used_up = [index * counts[0] // length for index in (stage * steps, (stage + 1) * steps)]
            begun += used_up[1] - used_up[0] + 1
            for index in range(stage * steps, (stage + 1) * steps):
                reader.records(step(0, index, counts))
        reader.close()
    assert reader.counts.seeks <= 2 * begun
    assert len(cuts) <= begun


@given(counts=COUNTS, spare=SPARE, seed=SEEDS, changed=st.integers(0, 30), later=st.integers(0, 2))
def test_epochs_begun_after_a_change_are_whole(
    counts: list[int], spare: int, seed: int, changed: int, later: int
) -> None:
    """In the epoch of a change samples may come twice or never. Scattered numbers go through the ranks in turn."""
    order = order_of("scattered", counts, spare, seed)
    whole, num_samples = sum(counts), order.num_samples
    begins = (changed * whole // num_samples + 1 + later) * num_samples
    steps = range(begins // whole, -(-(begins + num_samples) // whole))
    assert changed <= steps.start
    parts = [order.positions(step(worker, index, counts)) for index in steps for worker in range(len(counts))]
    start = begins - steps.start * whole
    assert sorted(np.concatenate(parts)[start : start + num_samples].tolist()) == list(range(num_samples))
