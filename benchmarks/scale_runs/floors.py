"""Floors: the CPU time of the parts that no simulation of this kind can avoid, without anything around them."""

from __future__ import annotations

import heapq
import time
from collections.abc import Generator
from itertools import count

import numpy as np
import simpy

BLOCK = 1_000_000
"""numbers drawn at once; the memory of a floor stays small"""


def lognormals_s(number: int, sigma: float = 0.1) -> float:
    """Returns the seconds in which NumPy alone draws so many lognormal numbers.

    Args:
        number: how many.
        sigma: the standard deviation of their logarithm.
    """
    random = np.random.default_rng(1)
    start_s = time.process_time()
    for first in range(0, number, BLOCK):
        random.lognormal(0.0, sigma, min(BLOCK, number - first))
    return time.process_time() - start_s


def simpy_s(events: int, processes: int = 64) -> float:
    """Returns the seconds in which SimPy alone processes so many time-outs.

    Args:
        events: how many.
        processes: SimPy processes that wait for them in turn.
    """
    env = simpy.Environment()

    def waits(number: int) -> Generator[simpy.Event, None, None]:
        for _ in range(number):
            yield env.timeout(1.0)

    for _ in range(processes):
        env.process(waits(events // processes))
    start_s = time.process_time()
    env.run()
    return time.process_time() - start_s


def heap_s(events: int, waiting: int = 64) -> float:
    """Returns the seconds in which a loop takes so many times from a heap, and puts a later one back.

    Args:
        events: how many.
        waiting: size of the heap.
    """
    numbers = count()
    heap = [(float(time_s), next(numbers)) for time_s in range(waiting)]
    start_s = time.process_time()
    for _ in range(events):
        time_s, _ = heapq.heappop(heap)
        heapq.heappush(heap, (time_s + waiting, next(numbers)))
    return time.process_time() - start_s
