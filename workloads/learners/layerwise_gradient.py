"""Gradients layer by layer, from within torch's backward pass.

Rules of this file:

* All of a gradient lies in one new vector, in the order of the parameters; a layer's is a slice of it. So layers that
  follow one another can be joined without a copy.
* The hooks are put onto the parameters once, and do nothing but in `ByLayer.run`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch._utils import _unflatten_dense_tensors

Ready = Callable[[str, Tensor], None]
"""told a layer's name and its gradient"""


@dataclass(frozen=True, slots=True)
class Piece:
    """One parameter's place in the flat vector."""

    name: str
    layer: str
    part: slice
    shape: torch.Size


@dataclass(slots=True)
class Pass:
    """A backward pass under way: where gradients are put, how many of a layer's are missing, and who is told."""

    whole: Tensor
    places: Sequence[Tensor]
    """each parameter's in it"""
    missing: Counter[str]
    ready: Ready


class ByLayer:
    """Hands out each layer's gradient once all of its parameters have theirs, whichever comes last.

    Args:
        parameters: of the module.
        pieces: their places.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], pieces: Sequence[Piece]) -> None:
        self._parameters = parameters
        self._size = pieces[-1].part.stop
        self._counts = Counter(piece.layer for piece in pieces)
        self._parts: dict[str, slice] = {}
        self._pass: Pass | None = None
        for place, (parameter, piece) in enumerate(zip(parameters, pieces, strict=True)):
            start = self._parts.get(piece.layer, piece.part).start
            self._parts[piece.layer] = slice(start, piece.part.stop)
            parameter.register_post_accumulate_grad_hook(self._hook(place, piece.layer))

    def run(self, loss: Tensor, ready: Ready) -> None:
        """The backward pass of a loss."""
        first = self._parameters[0]
        whole = torch.empty(self._size, dtype=first.dtype, device=first.device)
        self._pass = Pass(whole, _unflatten_dense_tensors(whole, self._parameters), self._counts.copy(), ready)
        try:
            loss.backward()
        finally:
            self._pass = None
            for parameter in self._parameters:
                parameter.grad = None

    def _hook(self, place: int, layer: str) -> Callable[[Tensor], None]:
        def arrived(parameter: Tensor) -> None:
            now = self._pass
            if now is None:  # somebody else's backward pass
                return
            assert parameter.grad is not None
            now.places[place].copy_(parameter.grad)
            parameter.grad = None
            now.missing[layer] -= 1
            if now.missing[layer] == 0:
                now.ready(layer, now.whole[self._parts[layer]])

        return arrived
