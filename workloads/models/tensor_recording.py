"""Records the tensor operations of a function once, and repeats them without the overhead of the function.

The recording is below functorch and autograd: the same operations on the same numbers, so the same bits. It is valid
for inputs of the same shapes and for functions of their inputs alone. Other tensors (buffers) are used by reference. A
function that depends on values cannot be recorded. `make_fx` of torch does the same for more kinds of functions, but
takes five times as long (75 ms for a small model), as long as a thousand gradients.
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


class DispatchMode(TorchDispatchMode):
    """A mode that torch may compile: the guard that torch puts around others imports torch._dynamo, for a second."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


class _Tape(DispatchMode):
    """Adds operations to a graph when they are performed."""

    def __init__(self, inputs: tuple[Tensor, ...]) -> None:
        super().__init__()
        self.graph, self.constants = fx.Graph(), dict[str, Tensor]()
        self._alive: list[Any] = [inputs]  # keeps tensors alive, so that their ids are unique
        self._nodes = {id(tensor): self.graph.placeholder(f"input{place}") for place, tensor in enumerate(inputs)}
        self._laid = {_place(tensor): self._nodes[id(tensor)] for tensor in inputs}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Performs and records an operation."""
        answer = func(*args, **(kwargs or {}))
        if isinstance(answer, Tensor) and not func._schema.is_mutable and (same := self._laid.get(_place(answer))):
            self._nodes[id(answer)] = same  # a view of a known tensor in the same shape: nothing to record
            self._alive.append(answer)
            return answer
        node = self.graph.call_function(func, *tree_map_only(Tensor, self.node_of, (args, kwargs or {})))
        self._alive.append(answer)
        if isinstance(answer, Tensor):
            self._nodes[id(answer)] = self._laid[_place(answer)] = node
        else:
            for place, part in enumerate(answer):  # raises for a number, which would depend on data
                self._nodes[id(part)] = self.graph.call_function(getitem, (node, place))
        return answer

    def node_of(self, tensor: Tensor) -> fx.Node:
        """Returns the node of a tensor."""
        if id(tensor) not in self._nodes:
            name = f"constant{len(self.constants)}"
            self.constants[name] = tensor
            self._nodes[id(tensor)] = self.graph.get_attr(name)
            self._alive.append(tensor)
        return self._nodes[id(tensor)]


def _place(tensor: Tensor) -> tuple[Any, ...]:
    """Identifies the memory and layout of a tensor; every empty tensor is different."""
    return tensor.data_ptr() or object(), tensor.dtype, tensor.shape, tensor.stride()


def recorded(function: Function, *examples: Tensor) -> Function:
    """Records the operations of a function on inputs of the examples' shapes.

    Args:
        function: the function.
        examples: inputs.

    Returns:
        The recorded operations; the function itself if they cannot be recorded.

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
    except (TypeError, RuntimeError):  # it depends on values, or a graph cannot represent it
        return function
    return replay if agrees else function
