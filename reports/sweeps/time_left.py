"""The expected remaining time of a sweep, from the runs that have ended.

Rules of this file: a run is expected to take as long as the runs of the same algorithm and size (other seeds and
values); without these, as the nearest size of the algorithm in proportion to the workers. The costs of methods differ
by orders of magnitude, so a run tells nothing of another algorithm: before each has been timed, nothing is said.
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
    >>> other = TimeLeft(1, Counter({("agd", 4): 2, ("easgd", 4): 1}))
    >>> other.ended(("agd", 4), 1.0)
    >>> other.seconds() is None  # easgd may take longer or shorter
    True
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
        """Returns the expected remaining seconds; None before a run of every waiting algorithm has succeeded."""
        waiting = {kind: count for kind, count in self.waiting.items() if count > 0}
        if not {name for name, _ in waiting} <= {name for name, _ in self._seconds}:
            return None
        total = sum(self._expected(kind) * count for kind, count in waiting.items())
        return total / self.jobs

    def _expected(self, kind: Kind) -> float:
        if kind in self._seconds:
            return _mean(self._seconds[kind])
        algorithm, workers = kind
        sizes = [size for name, size in self._seconds if name == algorithm]
        nearest = min(sizes, key=lambda size: max(size, workers) / min(size, workers))
        return _mean(self._seconds[algorithm, nearest]) * workers / nearest


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
