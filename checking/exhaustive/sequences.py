"""How many sequences of events a job has without reduction.

Every sequence is an order of exactly one partial order of events. So the number of all sequences is the sum, over the
inequivalent orders, of the number of linear extensions of each. `brute_force` counts one by one, for comparison.
"""

from __future__ import annotations

from collections.abc import Sequence

from paceline.algorithms.core.job import Job
from paceline.checking.exhaustive.events import Event, Key, Objects
from paceline.checking.exhaustive.observed import Observed, Options


def sequences_of(events: Sequence[Event]) -> int:
    """Returns the number of sequences of these events that are equivalent: the linear extensions of `before`.

    Args:
        events: the events of a run, with `before`.
    """
    counts = {0: 1}
    for _ in events:
        following: dict[int, int] = {}
        for done, ways in counts.items():
            for index, event in enumerate(events):
                if not done >> index & 1 and not event.before & ~done:
                    key = done | 1 << index
                    following[key] = following.get(key, 0) + ways
        counts = following
    return sum(counts.values())


def brute_force(job: Job, most: int) -> int:
    """Counts the sequences of events of a job one by one, without reduction.

    Args:
        job: the job; its budget is in samples.
        most: the largest number that is counted.

    Returns:
        The number of sequences, or `most` + 1 if there are more.
    """
    return sum(1 for _ in zip(range(most + 1), all_runs(job), strict=False))


def all_runs(job: Job):  # type: ignore[no-untyped-def]
    """Yields the run of every sequence of events, without reduction."""
    objects, path = Objects(), list[list[Key]]()
    while True:
        at, run = 0, Observed(job, objects)

        def pick(options: Options) -> Key:
            nonlocal at
            if at == len(path):
                path.append(list(options))
            at += 1
            return path[at - 1][0]

        try:
            run.perform(pick)
        except Exception as error:
            yield run, error
        else:
            yield run, None
        while path and len(path[-1]) == 1:
            path.pop()
        if not path:
            return
        del path[-1][0]
