"""The plain tensor operations of a function, recorded once and repeated without what led to them.

Rules of this file:

* What is recorded lies below functorch and autograd: the same operations on the same numbers, so the same bits.
* It holds for inputs of the same shapes and for functions that answer by their inputs alone. Tensors that come from
  elsewhere (buffers) are taken as they are, by reference. A function that looks at numbers cannot be recorded.
* `make_fx` of torch does the same for more kinds of functions, at five times the time (75 ms for a small model), which
  is as long as a thousand gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import getitem
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

Function = Callable[..., tuple[Tensor, ...]]


class _Tape(TorchDispatchMode):
    """Writes operations into a graph as they are performed."""

    def __init__(self, inputs: tuple[Tensor, ...]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.graph, self.constants = fx.Graph(), dict[str, Tensor]()
        self._alive: list[Any] = [inputs]  # so that nobody gets the identity of another
        self._nodes = {id(one): self.graph.placeholder(f"input{place}") for place, one in enumerate(inputs)}
        self._laid = {_place(one): self._nodes[id(one)] for one in inputs}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Performs it, and writes it down."""
        answer = func(*args, **(kwargs or {}))
        if isinstance(answer, Tensor) and not func._schema.is_mutable and (same := self._laid.get(_place(answer))):
            self._nodes[id(answer)] = same  # a view of what is there in the same shape: there is nothing to do
            self._alive.append(answer)
            return answer
        node = self.graph.call_function(func, *tree_map_only(Tensor, self.node_of, (args, kwargs or {})))
        self._alive.append(answer)
        if isinstance(answer, Tensor):
            self._nodes[id(answer)] = self._laid[_place(answer)] = node
        else:
            for place, part in enumerate(answer):  # a number here would depend on data: it is no sequence, and raises
                self._nodes[id(part)] = self.graph.call_function(getitem, (node, place))
        return answer

    def node_of(self, tensor: Tensor) -> fx.Node:
        """Where a tensor came from."""
        if id(tensor) not in self._nodes:
            name = f"constant{len(self.constants)}"
            self.constants[name] = tensor
            self._nodes[id(tensor)] = self.graph.get_attr(name)
            self._alive.append(tensor)
        return self._nodes[id(tensor)]


def _place(tensor: Tensor) -> tuple[Any, ...]:
    """Where a tensor's numbers lie, and how they are read; an empty one lies nowhere, and is like no other."""
    return tensor.data_ptr() or object(), tensor.dtype, tensor.shape, tensor.stride()


def recorded(function: Function, *examples: Tensor) -> Function:
    """The operations of `function` on inputs of these shapes; itself where they cannot be recorded.

    >>> twice = recorded(lambda x: (x + x,), torch.ones(2))
    >>> twice(torch.tensor([1.0, 3.0]))
    (tensor([2., 6.]),)
    """
    try:
        tape = _Tape(examples)
        with tape:
            answers = function(*examples)
        tape.graph.output(tuple(map(tape.node_of, answers)))
        tape.graph.eliminate_dead_code()
        root = torch.nn.Module()
        for name, tensor in tape.constants.items():
            root.register_buffer(name, tensor)
        replay: Any = fx.GraphModule(root, tape.graph).forward
        agrees = all(map(torch.equal, replay(*examples), answers))
    except (TypeError, RuntimeError):  # it looks at numbers, or does what no graph can say; it stays right as it is
        return function
    return replay if agrees else function
