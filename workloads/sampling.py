"""Which samples a step uses: a function of the seed and of (worker, workers, index, count), of nothing else.

Rules of this file:

* Step number k of all workers together is one global batch of G = workers × count samples; worker r takes the r-th
  part of it. So P workers with batch b see exactly what one worker with batch P b sees, in every interpreter and at
  any pace. Where parts are unequal, samples say themselves where in the global batch they start, and how large it is.
* An epoch holds ⌊N / G⌋ global batches. Every epoch shuffles all N samples anew, so what does not fill a batch differs
  from epoch to epoch.
* Nobody keeps a position: workers that are many steps apart ask for what they need.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from paceline.algorithms.errors import InputError
from paceline.algorithms.values import Samples


def check(population: int, *, workers: int, count: int) -> None:
    """Raises `InputError` where one step of all workers needs more samples than there are.

    >>> check(1437, workers=4, count=500)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    paceline.algorithms.errors.InputError: ...2000 samples a step, but 1437 an epoch; give 359 at most
    """
    if workers * count > population:
        most = population // workers
        right = f"give {most} at most" if most else f"use {population} workers at most"
        step = f"{workers} x {count} = {workers * count} samples a step"
        raise InputError(f"batch_per_worker: {step}, but {population} an epoch; {right}")


def positions(samples: Samples, *, population: int, seed: int) -> NDArray[np.int64]:
    """Where the samples of a step lie in a data set of `population` samples.

    >>> one = positions(Samples(worker=0, workers=1, index=3, count=6), population=100, seed=1)
    >>> two = [positions(Samples(worker=r, workers=2, index=3, count=3), population=100, seed=1) for r in (0, 1)]
    >>> bool((one == np.concatenate(two)).all())
    True
    """
    if samples.total is None:
        check(population, workers=samples.workers, count=samples.count)
    else:
        check(population, workers=1, count=samples.total)
    start, together = _place(samples)
    epoch, batch = divmod(samples.index, population // together)
    start += batch * together
    return _shuffled(population, seed, epoch)[start : start + samples.count]


def _place(samples: Samples) -> tuple[int, int]:
    """Where in the global batch the samples start, and how large it is."""
    start = samples.worker * samples.count if samples.start is None else samples.start
    return start, samples.workers * samples.count if samples.total is None else samples.total


# A few epochs are kept, because asynchronous workers may stand on both sides of the end of one.
@lru_cache(maxsize=8)
def _shuffled(population: int, seed: int, epoch: int) -> NDArray[np.int64]:
    order = np.random.default_rng(np.random.SeedSequence((seed, epoch))).permutation(population)
    order.setflags(write=False)
    return order


def stream_start(samples: Samples) -> int:
    """The number of a step's first sample, for problems that draw samples without end instead of from a data set.

    The numbers of a step's samples follow each other without a gap.

    >>> stream_start(Samples(worker=1, workers=2, index=10, count=4))
    84
    """
    start, together = _place(samples)
    return samples.index * together + start
