"""The samples of a step: a function of the seed and of `Samples` only.

* Step k of all workers together is one global batch of G = workers × count samples; worker r takes the r-th part of it.
  So P workers with batch b use exactly the samples of one worker with batch P b, in every interpreter and at any pace.
* An epoch has ⌊N / G⌋ global batches. Every epoch shuffles all N samples, so the samples that do not fill a batch
  differ from epoch to epoch.
* There is no stored position, so workers may be many steps apart.
* If batches differ, G is their sum, and worker r's part begins at the end of the previous worker's. While the division
  is constant, an epoch is covered exactly as with equal batches. After a change, a worker's part of the global batch of
  step k may overlap with, or leave a gap to, the parts of workers that took step k before the change.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.values import Samples


def check(num_samples: int, *, workers: int, count: int) -> None:
    """Raises `InputError` if one step of all workers needs more samples than the data set has.

    Args:
        num_samples: number of samples in one epoch.
        workers: number of workers.
        count: samples of one worker's batch.

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
    """Returns the positions of a step's samples in the data set.

    Args:
        samples: the worker, its step and its batch.
        num_samples: number of samples in the data set.
        seed: seed of the order.

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


# A few epochs are cached, because asynchronous workers may be in different epochs.
@lru_cache(maxsize=8)
def shuffled(num_samples: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """Returns the positions of all samples in the order of an epoch.

    Args:
        num_samples: number of samples.
        seed: seed of the order.
        epoch: number of the epoch.
    """
    order = np.random.default_rng(np.random.SeedSequence((seed, epoch))).permutation(num_samples)
    order.setflags(write=False)
    return order


def stream_start(samples: Samples) -> int:
    """Returns the number of a step's first sample, for problems with an infinite stream of samples.

    The numbers of a step's samples are consecutive.

    >>> stream_start(Samples(worker=1, workers=2, index=10, count=4))
    84
    >>> stream_start(Samples(worker=1, workers=2, index=10, count=2, before=6, together=8))
    86
    """
    first, together = cut(samples)
    return samples.index * together + first


def cut(samples: Samples) -> tuple[int, int]:
    """Returns the start of a worker's part of the global batch, and the size of the global batch."""
    before, together = samples.before, samples.together
    first = (samples.worker * samples.parts + samples.part) * samples.count if before is None else before
    return first, samples.workers * samples.parts * samples.count if together is None else together
