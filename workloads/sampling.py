"""Which samples a step uses: a function of the seed and of what `Samples` says, of nothing else.

Rules of this file:

* Step number k of all workers together is one global batch of G = workers × count samples; worker r takes the r-th
  part of it. So P workers with batch b see exactly what one worker with batch P b sees, in every interpreter and at
  any pace.
* An epoch holds ⌊N / G⌋ global batches. Every epoch shuffles all N samples anew, so what does not fill a batch differs
  from epoch to epoch.
* Nobody keeps a position: workers that are many steps apart ask for what they need.
* Where batches differ, G is their sum, and worker r's part begins where those of the workers before it end. While the
  cut stays the same, an epoch is covered exactly as with equal batches. A step taken after a change begins elsewhere in
  its global batch than a step number k of other workers assumed: of that batch, samples may then come twice or never.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.values import Samples


def check(num_samples: int, *, workers: int, count: int) -> None:
    """Raises `InputError` where one step of all workers needs more samples than there are.

    >>> check(1437, workers=4, count=500)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    paceline.algorithms.core.errors.InputError: ...2000 samples a step, but 1437 an epoch; give 359 at most
    """
    if workers * count > num_samples:
        most = num_samples // workers
        right = f"give {most} at most" if most else f"use {num_samples} workers at most"
        step = f"{workers} x {count} = {workers * count} samples a step"
        raise InputError(f"batch_per_worker: {step}, but {num_samples} an epoch; {right}")


def positions(samples: Samples, *, num_samples: int, seed: int) -> NDArray[np.int64]:
    """Where the samples of a step lie in a data set of `num_samples` samples.

    >>> one = positions(Samples(worker=0, workers=1, index=3, count=6), num_samples=100, seed=1)
    >>> two = [positions(Samples(worker=r, workers=2, index=3, count=3), num_samples=100, seed=1) for r in (0, 1)]
    >>> bool((one == np.concatenate(two)).all())
    True
    """
    first, together = cut(samples)
    check(num_samples, workers=samples.workers, count=-(-together // samples.workers))
    epoch, batch = divmod(samples.index, num_samples // together)
    start = batch * together + first
    return shuffled(num_samples, seed, epoch)[start : start + samples.count]


# A few epochs are kept, because asynchronous workers may stand on both sides of the end of one.
@lru_cache(maxsize=8)
def shuffled(num_samples: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """All samples, in the order of an epoch."""
    order = np.random.default_rng(np.random.SeedSequence((seed, epoch))).permutation(num_samples)
    order.setflags(write=False)
    return order


def stream_start(samples: Samples) -> int:
    """The number of a step's first sample, for problems that draw samples without end instead of from a data set.

    The numbers of a step's samples follow each other without a gap.

    >>> stream_start(Samples(worker=1, workers=2, index=10, count=4))
    84
    >>> stream_start(Samples(worker=1, workers=2, index=10, count=2, before=6, together=8))
    86
    """
    first, together = cut(samples)
    return samples.index * together + first


def cut(samples: Samples) -> tuple[int, int]:
    """Where a worker's part of the global batch begins, and the size of the whole."""
    before, together = samples.before, samples.together
    first = samples.worker * samples.count if before is None else before
    return first, samples.workers * samples.count if together is None else together
