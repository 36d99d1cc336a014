"""A uniform random sample of a stream of unknown length: Algorithm L.

After n items, every item is in the sample of size k with probability k/n. The number of items until the next
replacement is drawn at once, so that the items in between cost one comparison.

Source: FOUND Li, "Reservoir-sampling algorithms of time complexity O(n(1 + log(N/n)))", ACM TOMS 20(4), 1994.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator


class Reservoir:
    """Chooses the items to keep; the items themselves are kept by its user.

    Args:
        size: the number of items kept, at least 0.
        seed: the seed; equal seeds choose the same places of the stream.

    >>> reservoir = Reservoir(2, seed=1)
    >>> [reservoir.offer() for _ in range(3)][:2]
    [0, 1]
    >>> reservoir.seen
    3
    """

    __slots__ = ("_next", "_random", "_share", "seen", "size")

    def __init__(self, size: int, seed: int | str) -> None:
        self.size, self.seen = size, 0
        self._random = random.Random(f"reservoir {seed}")
        self._share = 1.0
        """the W of the paper: distributed as the largest of `size` random numbers of all items seen"""
        self._next = math.inf if size == 0 else 0
        """the number of the next item that is kept"""

    def offer(self) -> int | None:
        """Returns the place in the sample of the next item; None if it is not kept."""
        number = self.seen
        self.seen = number + 1
        return self._place(number) if number >= self._next else None

    def offer_many(self, count: int) -> Iterator[tuple[int, int]]:
        """Yields (number among these, place in the sample) of the items that are kept, of many items.

        The choice is that of as many calls of `offer`.

        Args:
            count: number of items.
        """
        first, self.seen = self.seen, self.seen + count
        while self._next < self.seen:
            number = int(self._next)
            yield number - first, self._place(number)

    def _place(self, number: int) -> int:
        if number < self.size - 1:
            self._next = number + 1
            return number
        place = number if number < self.size else self._random.randrange(self.size)
        self._share *= math.exp(math.log(1.0 - self._random.random()) / self.size)
        skipped = math.floor(math.log(1.0 - self._random.random()) / math.log1p(-self._share)) if self._share < 1 else 0
        self._next = number + skipped + 1
        return place
