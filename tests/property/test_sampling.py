"""Sampling: for every number of workers, a global batch has the samples that one worker would use."""

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from paceline.algorithms.core.values import Samples
from paceline.workloads.learners.quadratic import Noise
from paceline.workloads.sampling import positions, stream_start

SEEDS = st.integers(0, 2**32 - 1)
WORKERS = st.integers(1, 8)
COUNTS = st.integers(1, 6)


def of_one_step(index: int, *, workers: int, count: int, num_samples: int, seed: int) -> list[int]:
    """The positions of all workers' samples, in rank order."""
    steps = (Samples(worker=rank, workers=workers, index=index, count=count) for rank in range(workers))
    return [place for samples in steps for place in positions(samples, num_samples=num_samples, seed=seed).tolist()]


@given(workers=st.integers(1, 4), parts=st.integers(1, 4), count=st.integers(1, 3), index=st.integers(0, 20))
def test_micro_batches_are_the_parts_of_a_batch(workers: int, parts: int, count: int, index: int) -> None:
    for rank in range(workers):
        whole = Samples(rank, workers, index, parts * count)
        pieces = [positions(one, num_samples=100, seed=1) for one in whole.micro_batches(parts)]
        np.testing.assert_array_equal(np.concatenate(pieces), positions(whole, num_samples=100, seed=1))


@given(seed=SEEDS, workers=WORKERS, count=COUNTS, index=st.integers(0, 200), spare=st.integers(0, 40))
def test_workers_together_see_what_one_worker_sees(seed: int, workers: int, count: int, index: int, spare: int) -> None:
    num_samples = workers * count + spare
    shared = of_one_step(index, workers=workers, count=count, num_samples=num_samples, seed=seed)
    assert shared == of_one_step(index, workers=1, count=workers * count, num_samples=num_samples, seed=seed)


@given(seed=SEEDS, workers=WORKERS, count=COUNTS, epoch=st.integers(0, 20), spare=st.integers(0, 40))
def test_no_sample_comes_twice_in_an_epoch(seed: int, workers: int, count: int, epoch: int, spare: int) -> None:
    num_samples = workers * count + spare
    batches = num_samples // (workers * count)
    seen = [
        place
        for index in range(epoch * batches, (epoch + 1) * batches)
        for place in of_one_step(index, workers=workers, count=count, num_samples=num_samples, seed=seed)
    ]
    assert len(set(seen)) == len(seen) == batches * workers * count
    assert set(seen) <= set(range(num_samples))


@given(seed=SEEDS, counts=st.lists(COUNTS, min_size=1, max_size=6), epoch=st.integers(0, 20), spare=st.integers(0, 40))
def test_unlike_batches_cut_a_global_batch_as_exactly(seed: int, counts: list[int], epoch: int, spare: int) -> None:
    """While the cut stays the same: together workers see what one would see, each sample of an epoch once at most."""
    whole, workers = sum(counts), len(counts)
    num_samples = whole + spare
    # a batch per worker of whole / workers, rounded up, must fit an epoch: that is how the scenario gave it
    assume(-(-whole // workers) * workers <= num_samples)
    batches = num_samples // whole
    seen: list[int] = []
    for index in range(epoch * batches, (epoch + 1) * batches):
        parts = [
            Samples(rank, workers, index, count, before=sum(counts[:rank]), together=whole)
            for rank, count in enumerate(counts)
        ]
        places = [place for part in parts for place in positions(part, num_samples=num_samples, seed=seed).tolist()]
        assert places == of_one_step(index, workers=1, count=whole, num_samples=num_samples, seed=seed)
        firsts = [stream_start(part) for part in parts]
        assert firsts == [index * whole + sum(counts[:rank]) for rank in range(workers)]
        seen += places
    assert len(set(seen)) == len(seen) == batches * whole


@given(seed=SEEDS, workers=WORKERS, count=COUNTS, rank=st.integers(0, 7), index=st.integers(0, 99))
def test_an_equal_cut_is_none(seed: int, workers: int, count: int, rank: int, index: int) -> None:
    rank %= workers
    plain = Samples(rank, workers, index, count)
    cut = Samples(rank, workers, index, count, before=rank * count, together=workers * count)
    num_samples = workers * count + 3
    one, other = (positions(samples, num_samples=num_samples, seed=seed) for samples in (plain, cut))
    np.testing.assert_array_equal(one, other)
    assert stream_start(plain) == stream_start(cut)


@given(seed=SEEDS)
def test_epochs_and_seeds_shuffle_differently(seed: int) -> None:
    orders = [
        of_one_step(epoch, workers=1, count=50, num_samples=50, seed=chosen)
        for chosen in (seed, seed + 1)
        for epoch in (0, 1)
    ]
    assert len({tuple(order) for order in orders}) == 4
    assert all(sorted(order) == list(range(50)) for order in orders)


@given(seed=SEEDS, dimensions=st.integers(1, 3000), first=st.integers(0, 2**40), cuts=st.lists(st.integers(1, 70)))
def test_the_noise_of_a_batch_is_the_mean_of_its_samples_however_it_is_cut(
    seed: int, dimensions: int, first: int, cuts: list[int]
) -> None:
    """Samples one by one, from another copy and backwards, so that nothing depends on earlier requests."""
    noise, other = Noise(seed=seed, dimensions=dimensions), Noise(seed=seed, dimensions=dimensions)
    ends = np.cumsum([0, *cuts])
    alone = [other.mean(first + number, 1) for number in reversed(range(ends[-1]))][::-1]
    for start, count in zip(ends, cuts, strict=False):
        expected = np.mean(alone[start : start + count], axis=0)
        np.testing.assert_allclose(noise.mean(first + int(start), count), expected, rtol=0, atol=1e-14)
    assert np.isfinite(alone).all() and len(np.unique(alone)) == np.size(alone)
