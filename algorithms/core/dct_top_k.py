"""Compression that sends the largest coefficients of a discrete cosine transform."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, ClassVar, Literal, Self

import numpy as np

from paceline.algorithms.core import arrays
from paceline.algorithms.core.cosines import Tiling, coefficients, numbers
from paceline.algorithms.core.operations import AllGather, Charge
from paceline.algorithms.core.option_groups import COUNT, Options, Range
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.sparse import Sparse
from paceline.algorithms.core.traffic import COMBINE, COPY, NOTHING, READ, SCALE, ZEROS, Traffic
from paceline.algorithms.core.values import Group, Layer, Null, join, length

TRANSFORM = 2 * SCALE + COPY
"""memory traffic of `coefficients` and of `numbers`: two products, and joining the layers"""
SIDE: Range = (lambda value: 1 <= value <= 4096, "a whole number from 1 to 4096")
"""of a tile; its matrix of cosines has as many rows and columns"""


@dataclass(frozen=True, slots=True)
class Spectrum:
    """A vector as the sparse coefficients of its tiles."""

    coefficients: Sparse
    tilings: tuple[Tiling, ...]

    def dense(self) -> Any:
        """Returns the whole vector."""
        return numbers(self.coefficients.dense(), self.tilings)


@dataclass(frozen=True, slots=True)
class TopKMemory:
    """The memory of `DctTopK`: the part of the vectors that was not sent, and the tiles."""

    vector: Any
    tilings: tuple[Tiling, ...]


@dataclass(frozen=True, kw_only=True)
class DctTopK(Options):
    """Sends only the k largest coefficients of the discrete cosine transform of every tile, with their positions.

    total = vector + β · unsent;  C = D X Dᵀ for every tile X of the total;  the message has the k coefficients of
    largest magnitude of each C;  unsent = total − Dᵀ (message) D.

    With β = 1 this is error feedback; with β < 1 the unsent part is a momentum from which the message is subtracted.

    Source: Peng, Quesnelle, Kingma 2024 (DeMo, arXiv 2411.19870) and its code, github.com/bloc97/DeMo.
    """

    ranges: ClassVar[Mapping[str, Range]] = {
        "chunk": SIDE,
        "k": COUNT,
        "decay": (lambda value: 0 <= value <= 1, "a number from 0 to 1"),
    }

    kind: Literal["dct-top-k"] = "dct-top-k"
    opening: ClassVar[Traffic] = ZEROS + TRANSFORM
    """memory traffic of `Spectrum.dense`"""
    chunk: int = 64
    """s, rows and columns of a tile; provenance: `compression_chunk` of DeMo's code"""
    k: int = 32
    """coefficients sent of each tile, all of them if a tile has fewer; provenance: `compression_topk` of DeMo's code"""
    decay: float = 1.0
    """β, the factor on what was not sent before; provenance: ours, error feedback; DeMo has 0.999"""
    average_over: Literal["workers", "senders"] = "workers"
    """whether a mean divides a sum of coefficients by P, or each coefficient by the number of workers that sent it;
    provenance: ours, the mean of the messages; DeMo's code takes senders"""

    def linear_form(self) -> Self:
        """Returns the form in which all of what is not sent is sent later, as a part of a mean of all workers."""
        return replace(self, decay=1.0, average_over="workers")

    def begin(self, vector: Any, layers: Sequence[Layer]) -> TopKMemory:
        """Returns the memory in which nothing is unsent."""
        return TopKMemory(0 * vector, tuple(Tiling.of(layer, self.chunk) for layer in layers))

    def charge(self, vector: Any, *, also: Traffic = NOTHING, transforms: int = 2) -> Charge:
        """Returns the cost of compressing: the total, its transform, the selection, and the reverse for what is unsent.

        A transform has two products, each 2 s operations for a number, as if no layer were smaller than a tile.

        Args:
            vector: the vector to compress.
            also: further memory traffic on vectors of this size.
            transforms: how many transforms are computed in all.
        """
        summed = COMBINE if self.decay == 1 else SCALE + COMBINE
        traffic = summed + TRANSFORM + SCALE + READ + self.opening + COMBINE + also
        return Charge("compress", vector.nbytes, transforms * 4 * self.chunk * length(vector), traffic=traffic)

    def compress(self, vector: Any, memory: TopKMemory) -> tuple[Spectrum, TopKMemory]:
        """Returns the message and the new memory.

        >>> import numpy as np
        >>> compression = DctTopK(chunk=2, k=1)
        >>> x = np.array([1.0, 1.0, 1.0, 5.0])
        >>> message, memory = compression.compress(x, compression.begin(x, [Layer("layer", 0, 4)]))
        >>> message.dense().round(3), memory.vector.round(3)
        (array([2., 2., 2., 2.]), array([-1., -1., -1.,  3.]))
        """
        kept = memory.vector if self.decay == 1 else self.decay * memory.vector
        total = vector + kept
        message = Spectrum(self._selected(coefficients(total, memory.tilings), memory.tilings), memory.tilings)
        return message, replace(memory, vector=total - message.dense())

    def _selected(self, spectrum: Any, tilings: Sequence[Tiling]) -> Sparse:
        """Returns the k largest coefficients of every tile."""
        if isinstance(spectrum, Null):
            few = replace(spectrum, count=sum(tiling.tiles * min(self.k, tiling.area) for tiling in tilings))
            return Sparse(few, few, spectrum.count)
        chosen, at = [], 0
        for tiling in tilings:
            tiles = spectrum[at : at + tiling.size].reshape(tiling.tiles, tiling.area)
            chosen.append(at + arrays.largest_of_rows(tiles, min(self.k, tiling.area)))
            at += tiling.size
        positions = join(chosen)
        return Sparse(positions, arrays.taken(spectrum, positions), at)

    @program
    def averaged(self, group: Group, vector: Any, key: str, memory: TopKMemory) -> Program[tuple[Any, TopKMemory]]:
        """Returns the reverse transform of the mean of all members' coefficients, and the new memory."""
        members = len(group)
        summed = members * ZEROS + (members - 1) * COMBINE
        counted = summed + SCALE + COMBINE if self.average_over == "senders" else NOTHING
        gathering = summed + counted + SCALE + TRANSFORM
        yield from self.charge(vector, also=gathering, transforms=3)
        message, memory = self.compress(vector, memory)
        everyone = yield from AllGather(value=message.coefficients.packed(), group=group, key=key)
        parts = [Sparse.unpacked(part, message.coefficients.count) for part in everyone]
        total = reduce(add, (part.dense() for part in parts))
        return numbers(total / self._divisor(parts), memory.tilings), memory

    def _divisor(self, parts: Sequence[Sparse]) -> Any:
        """Returns P, or for each coefficient the number of workers that sent it, and 1 if there is none."""
        if self.average_over == "workers" or isinstance(parts[0].values, Null):
            return len(parts)
        ones = arrays.like(np.ones(length(parts[0].values)), parts[0].values)
        senders = reduce(add, (replace(part, values=ones).dense() for part in parts))
        return senders + (senders == 0)
