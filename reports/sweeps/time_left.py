"""The expected remaining time of a sweep, from the runs that have ended.

Rules of this file: a run is expected to take as long as the runs of the same algorithm and size (other seeds and
values); without these, as the nearest size of the algorithm in proportion to the workers; without these, as all runs in
proportion to the workers. The costs of methods differ by an order of magnitude, so an average of all would mislead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

Kind = tuple[str, int]
"""an algorithm and a number of workers"""


@dataclass(slots=True)
class TimeLeft:
    """Estimates the remaining seconds of runs in parallel.

    Args:
        jobs: number of parallel runs.

    >>> left = TimeLeft(2, Counter({("agd", 4): 2, ("agd", 8): 2}))
    >>> left.ended(("agd", 4), 1.0)
    >>> left.seconds()  # 1 s for the other run of 4 workers, 2 s for each of 8, by two
    2.5
    """

    jobs: int
    waiting: Counter[Kind]
    """number of runs of each kind that have not ended"""
    _seconds: dict[Kind, list[float]] = field(default_factory=dict)

    @classmethod
    def of(cls, jobs: int, kinds: Iterable[Kind]) -> TimeLeft:
        """Returns an estimate for runs of these kinds, of which none has ended."""
        return cls(jobs, Counter(kinds))

    def ended(self, kind: Kind, seconds: float | None) -> None:
        """Records the end of a run.

        Args:
            kind: its algorithm and number of workers.
            seconds: how long it took; None if it failed.
        """
        self.waiting[kind] -= 1
        if seconds is not None:
            self._seconds.setdefault(kind, []).append(seconds)

    def seconds(self) -> float | None:
        """Returns the expected remaining seconds; None before the first run has succeeded."""
        if not self._seconds:
            return None
        total = sum(self._expected(kind) * count for kind, count in self.waiting.items() if count > 0)
        return total / self.jobs

    def _expected(self, kind: Kind) -> float:
        if kind in self._seconds:
            return _mean(self._seconds[kind])
        algorithm, workers = kind
        sizes = [size for name, size in self._seconds if name == algorithm]
        if sizes:
            nearest = min(sizes, key=lambda size: max(size, workers) / min(size, workers))
            return _mean(self._seconds[algorithm, nearest]) * workers / nearest
        all_workers = sum(size * len(found) for (_, size), found in self._seconds.items())
        return sum(map(sum, self._seconds.values())) * workers / all_workers


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
