"""How many sequences of events a job has without reduction.

Every sequence is an order of exactly one partial order of events. So the number of all sequences is the sum, over the
inequivalent orders, of the number of linear extensions of each. `brute_force` makes all runs instead, for comparison.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from paceline.algorithms.core.job import Job
from paceline.checking.exhaustive.events import Event, Key, LaneId, Objects
from paceline.checking.exhaustive.recorded_events import Options, RunWithEvents

MOST_SETS = 100_000
"""limit of memory: sets of events that can come first, of one size"""


def sequences_of(events: Sequence[Event], most_sets: int = MOST_SETS) -> int | None:
    """Returns the number of sequences of these events that are equivalent: the linear extensions of `before`.

    It counts, for each set of n events that can come first, the number of their sequences, from n = 0 upwards.

    Args:
        events: the events of a run, with `before`.
        most_sets: the largest number of such sets.

    Returns:
        The number; None if there are more sets.
    """
    lanes: dict[LaneId, list[int]] = {}
    for index, event in enumerate(events):
        lanes.setdefault(event.key.lane, []).append(index)
    each = list(lanes.values())
    counts = {0: ((0,) * len(each), 1)}
    for _ in events:
        following: dict[int, tuple[tuple[int, ...], int]] = {}
        for done, (at, ways) in counts.items():
            for lane, position in enumerate(at):
                if position == len(each[lane]) or events[each[lane][position]].before & ~done:
                    continue
                longer = done | 1 << each[lane][position]
                before = following.get(longer)
                moved = (*at[:lane], position + 1, *at[lane + 1 :])
                following[longer] = (moved, ways) if before is None else (before[0], before[1] + ways)
        if len(following) > most_sets:
            return None
        counts = following
    return sum(ways for _, ways in counts.values())


def brute_force(job: Job, most: int) -> int:
    """Counts the sequences of events of a job by making all of these runs, without reduction.

    Args:
        job: the job; its budget is in samples.
        most: the largest number of runs.

    Returns:
        The number of sequences, or `most` + 1 if there are more.
    """
    return sum(1 for _ in zip(range(most + 1), all_runs(job), strict=False))


def all_runs(job: Job) -> Iterator[tuple[RunWithEvents, Exception | None]]:
    """Yields the run of every sequence of events, without reduction, and its exception if it failed."""
    objects = Objects()
    path: list[list[Key]] = []
    while True:
        run = RunWithEvents(job, objects)
        yield run, _follow(run, path)
        while path and len(path[-1]) == 1:
            path.pop()
        if not path:
            return
        del path[-1][0]


def _follow(run: RunWithEvents, path: list[list[Key]]) -> Exception | None:
    """Makes the run that begins with the first events of `path`, and adds the choices of the later ones to it."""
    at = 0

    def pick(options: Options) -> Key:
        nonlocal at
        if at == len(path):
            path.append(list(options))
        at += 1
        return path[at - 1][0]

    try:
        run.perform(pick)
    except Exception as error:  # it is one of the results
        return error
    return None
