"""A learner from any torch module, the examples it is trained on, and a loss.

* Weights are one flat tensor; the module's parameters are views of it during use. Arguments are not changed in place,
  and every gradient is a new tensor. One thread may use a learner at a time; another may call `load` meanwhile.
* A layer is a module with its own parameters, in the order of the module tree, as in `layer_tables`.
* Gradients are computed one by one, or many together by `torch.func.vmap` over stacked weights and batches, with the
  same numbers up to rounding. The choice depends on sizes only, never on timings, so that runs are reproducible bit for
  bit.
* A module that draws random numbers, such as the masks of a dropout, draws them from torch's generator, which is seeded
  for each forward pass from the seed and the samples of the batch alone, and restored afterwards. So every interpreter
  draws the same masks, in any order and after a restart. Its gradients are computed one by one: `torch.func.vmap` draws
  the masks of all gradients from one stream, so that those of one would depend on those beside it.

Gradients layer by layer, from within torch's backward pass.

The whole gradient is one new vector, in the order of the parameters, and the gradient of a layer is a slice of it. So
consecutive layers can be joined without a copy.
"""

from __future__ import annotations

import copy
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._utils import _unflatten_dense_tensors  # views of a flat tensor by one call: what DDP uses
from torch.func import functional_call, grad_and_value, vmap
from torch.utils.flop_counter import flop_registry

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.job import Evaluation
from paceline.algorithms.core.lazy_concat import Unjoined
from paceline.algorithms.core.values import Layout, Samples
from paceline.workloads.batches.drawing import Draw, InMemoryExamples
from paceline.workloads.batches.examples import Examples, LabelledBatch, Loss
from paceline.workloads.models.layer_tables import LayerInfo, layout_of
from paceline.workloads.models.tensor_recording import DispatchMode, Function, recorded
from paceline.workloads.sampling import cut

if TYPE_CHECKING:
    from paceline.workloads.choices import Vmap


Ready = Callable[[str, Tensor], None]
"""called with a layer's name and its gradient"""


@dataclass(frozen=True, slots=True)
class ParameterPlace:
    """One parameter's place in the flat vector."""

    name: str
    layer: str
    part: slice
    shape: torch.Size


@dataclass(slots=True)
class BackwardPass:
    """A running backward pass: the vector of gradients, the missing gradients of each layer, and the callback."""

    whole: Tensor
    places: Sequence[Tensor]
    """the slice of each parameter"""
    missing: Counter[str]
    ready: Ready


class ByLayer:
    """Calls back with each layer's gradient when those of all its parameters are complete, in any order.

    Args:
        parameters: the parameters of the module.
        pieces: their slices of the vector.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], pieces: Sequence[ParameterPlace]) -> None:
        self._parameters = parameters
        self._size = pieces[-1].part.stop
        self._counts = Counter(piece.layer for piece in pieces)
        self._parts: dict[str, slice] = {}
        self._pass: BackwardPass | None = None
        for place, (parameter, piece) in enumerate(zip(parameters, pieces, strict=True)):
            start = self._parts.get(piece.layer, piece.part).start
            self._parts[piece.layer] = slice(start, piece.part.stop)
            parameter.register_post_accumulate_grad_hook(self._hook(place, piece.layer))

    def run(self, loss: Tensor, ready: Ready) -> None:
        """Runs the backward pass of a loss.

        Args:
            loss: the loss.
            ready: called with each layer's gradient.
        """
        first = self._parameters[0]
        whole = torch.empty(self._size, dtype=first.dtype, device=first.device)
        self._pass = BackwardPass(whole, _unflatten_dense_tensors(whole, self._parameters), self._counts.copy(), ready)
        try:
            loss.backward()
        finally:
            self._pass = None
            for parameter in self._parameters:
                parameter.grad = None

    def _hook(self, place: int, layer: str) -> Callable[[Tensor], None]:
        def arrived(parameter: Tensor) -> None:
            now = self._pass
            if now is None:  # a backward pass outside of `run`
                return
            assert parameter.grad is not None
            now.places[place].copy_(parameter.grad)
            parameter.grad = None
            now.missing[layer] -= 1
            if now.missing[layer] == 0:
                now.ready(layer, now.whole[self._parts[layer]])

        return arrived


# * `torch.func.vmap` derives the computation, for any module that it supports.
# * Block sizes are powers of two. A block is padded with the last gradient's weights and batch, and the surplus
#   results are dropped: the rows of a block are independent.
# * If a shape is requested several times, its operations are recorded and repeated (`tensor_recording`): the same
#   bits with a third of the calls, and intermediate results are freed after their last use.
# * Every result is a separate vector, which does not keep its block alive.


LossAt = Callable[[tuple[Tensor, ...], Tensor, Tensor], Tensor]
"""the mean loss as a function of a module's parameters, inputs and labels"""
Shape = tuple[torch.Size, torch.Size]
"""the shapes of inputs and labels"""

SMALLEST = 8
"""number of gradients in the smallest block"""
RECORDED_AFTER = 20
"""number of calls of a shape before it is recorded; recording costs as much as these calls would save"""


def block_size(wanted: int, most: int) -> int:
    """Returns the size of a block for as many of the wanted gradients as possible.

    Args:
        wanted: number of gradients.
        most: largest size of a block.

    >>> [block_size(wanted, 32) for wanted in (5, 9, 32, 57)]
    [8, 16, 32, 32]
    """
    return min(most, max(SMALLEST, 1 << (wanted - 1).bit_length()))


class FlopCounter(DispatchMode):
    """Counts the operations of the operators by torch's formulas; torch's own counter imports torch._dynamo."""

    flops = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        answer = func(*args, **(kwargs or {}))
        if (formula := flop_registry.get(func.overloadpacket)) is not None:
            self.flops += int(formula(*args, **(kwargs or {}), out_val=answer))
        return answer


class Joint:
    """Computes many gradients of a module together.

    Args:
        loss_at: the loss.
        shapes: shapes of the parameters, in their order in a flat vector.
    """

    def __init__(self, loss_at: LossAt, shapes: Sequence[torch.Size]) -> None:
        self._shapes, self._sizes = shapes, [shape.numel() for shape in shapes]
        together = vmap(grad_and_value(loss_at))

        def flat(*given: Tensor) -> tuple[Tensor, ...]:
            *parameters, inputs, labels = given
            gradients, losses = together(tuple(parameters), inputs, labels)
            return (*gradients, losses)

        self._eager: Function = flat
        self._asked: Counter[Shape] = Counter()
        self._recorded: dict[Shape, Function] = {}
        self._blocks: dict[int, tuple[Tensor, Tensor]] = {}
        """reused buffers of weights and gradients by size, since new memory costs as much as the arithmetic"""

    def __call__(self, vectors: Sequence[Tensor], batch: LabelledBatch) -> list[tuple[Tensor, float]]:
        """Returns gradients, each a new flat vector, and losses.

        Args:
            vectors: the weights, each flat.
            batch: the batches, with an additional first dimension for the vectors.
        """
        count = len(vectors)
        if count not in self._blocks:
            room = vectors[0].new_empty(2, count, len(vectors[0]))
            self._blocks[count] = room[0], room[1]
        weights, rows = self._blocks[count]
        with torch.no_grad():
            torch.stack(list(vectors), out=weights)
            parts = zip(weights.split(self._sizes, dim=1), self._shapes, strict=True)
            parameters = [part.view(count, *shape) for part, shape in parts]
            *gradients, losses = self._function(parameters, batch)(*parameters, *batch)
            torch.cat([gradient.reshape(count, -1) for gradient in gradients], dim=1, out=rows)
        return [(row.clone(), loss) for row, loss in zip(rows.unbind(), losses.tolist(), strict=True)]

    def _function(self, parameters: Sequence[Tensor], batch: LabelledBatch) -> Function:
        shape = batch.inputs.shape, batch.labels.shape
        if (known := self._recorded.get(shape)) is not None:
            return known
        self._asked[shape] += 1
        if self._asked[shape] > RECORDED_AFTER:
            self._recorded[shape] = recorded(self._eager, *parameters, *batch)
        return self._eager


PROCESSOR = torch.device("cpu")
APART_BYTES = 2**21
"""bytes of the smallest gradient whose parts are not concatenated; provenance: ours. A gradient of 0.8 MB stays in a
processor's cache while it is concatenated, and is then faster to use; one of 39 MB does not"""
TOGETHER = 32
"""largest number of gradients that are computed together, which bounds the memory"""
BLOCKS = {32: 128 * 1024, 16: 512 * 1024}
"""gradients per block, and the bytes of the largest weights for which this is faster"""
WORTH_FLOPS = 16e6
"""operations of the largest forward pass of a batch for which this is faster"""
VMAP_REFUSES = (RuntimeError, NotImplementedError, ValueError)
"""exceptions of `torch.func.vmap` for an unsupported module, such as one that depends on values"""
FEWEST = 5
"""smallest number of gradients that are computed together"""
AT_ONCE = 1024
"""number of examples per evaluation batch"""
MASKS, EVALUATION = 3, 4
"""streams of the random numbers of gradients and of evaluations"""


@contextmanager
def seeded(device: torch.device, *key: int) -> Iterator[None]:
    """Seeds torch's generators of the processor and of a device for the block, and restores them afterwards.

    Args:
        device: the device that computes.
        key: numbers of at least 0, which determine the random numbers.
    """
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> np.uint64(1)))
        yield


class DrawnBatch(LabelledBatch):
    """A batch that knows the samples that it was drawn by, for modules that draw random numbers."""

    samples: Samples

    @staticmethod
    def of(batch: LabelledBatch, samples: Samples) -> DrawnBatch:
        """Returns the batch with its samples."""
        drawn = DrawnBatch(*batch)
        drawn.samples = samples
        return drawn


class TorchLearner:
    """A torch module as a learner.

    Args:
        module: returns a batch's outputs; its own weights are not used.
        examples: the training and test data.
        start: the initial weights, flat, in the order of the module's parameters.
        seed: seed of the order of samples.
        dtype: type of weights and inputs.
        loss: the mean loss of a batch's outputs.
        draw: the source of batches; None: the examples, shuffled in every epoch.
        together: largest number of gradients that are computed together; None: by the rule on sizes.
        device: the device that computes; examples stay in the host's memory.
        random: whether a forward pass of the module draws random numbers.
    """

    def __init__(
        self,
        module: nn.Module,
        examples: Examples,
        start: Tensor,
        *,
        seed: int,
        dtype: torch.dtype = torch.float32,
        loss: Loss = F.cross_entropy,
        draw: Draw | None = None,
        together: int | None = None,
        device: torch.device = PROCESSOR,
        random: bool = False,
    ) -> None:
        self.seed, self.dtype, self.examples, self.loss = seed, dtype, examples.rounded(dtype), loss
        self.draw = draw or InMemoryExamples.shuffled(self.examples.train, seed)
        self.device = device
        self.random = random
        self.module = module.to(device, dtype)
        self.layout: Layout = layout_of(tuple(_layers(module)))
        self._start = start.to(device, dtype)
        self._parameters = [parameter for _, parameter in module.named_parameters()]
        self._pieces = _pieces(module)
        self.together = 1 if random else together_of(module, dtype) if together is None else together
        self.worth_flops = math.inf if together else WORTH_FLOPS
        self._joint = Joint(self._loss_at, [piece.shape for piece in self._pieces])

    def on(self, device: torch.device) -> TorchLearner:
        """Returns the same learner on this device, with weights and gradients there; batches are moved there."""
        return TorchLearner(
            copy.deepcopy(self.module),
            self.examples,
            self._start,
            seed=self.seed,
            dtype=self.dtype,
            loss=self.loss,
            draw=self.draw,
            together=self.together,
            device=device,
            random=self.random,
        )

    @property
    def num_samples(self) -> int:
        return self.draw.num_samples

    def initial(self) -> Tensor:
        return self._start

    def load(self, samples: Samples) -> LabelledBatch:
        """Returns inputs and labels of the batch."""
        batch = self._shaped(self.draw.batch(samples))
        return DrawnBatch.of(batch, samples) if self.random else batch

    def _shaped(self, batch: LabelledBatch) -> LabelledBatch:
        """Converts a batch to the module's form and moves it to the device."""
        shaped = self.examples.shaped(batch, self.dtype)
        return shaped if self.device.type == "cpu" else LabelledBatch(*(part.to(self.device) for part in shaped))

    def gradient(self, vector: Tensor, data: LabelledBatch) -> tuple[Tensor, float]:
        """Returns the mean gradient, a new flat vector that is concatenated on demand, and the mean loss.

        Args:
            vector: the weights, flat.
            data: the batch.
        """
        loss = self._forward(vector, data)
        gradients = torch.autograd.grad(loss, self._parameters)
        if self._start.nbytes >= APART_BYTES:
            return Unjoined(gradients), loss.item()
        return torch.cat([part.reshape(-1) for part in gradients]), loss.item()

    def _forward(self, vector: Tensor, data: LabelledBatch) -> Tensor:
        """Returns the mean loss of a batch in training mode, with the random numbers of its samples."""
        self._hold(vector)
        if not self.random:
            return self.loss(self.module(data.inputs), data.labels)
        assert isinstance(data, DrawnBatch), "the batch of a random module is from load"
        with seeded(self.device, self.seed, MASKS, data.samples.index, data.samples.count, *cut(data.samples)):
            return self.loss(self.module(data.inputs), data.labels)

    def gradients(self, vectors: Sequence[Tensor], samples: Sequence[Samples]) -> list[tuple[Tensor, float]]:
        """Computes `gradient` for each vector and samples, up to `together` at a time if their sizes agree.

        Args:
            vectors: the weights of each gradient, flat.
            samples: the samples of each gradient.
        """
        answers: list[tuple[Tensor, float]] = [(torch.empty(0), math.nan)] * len(vectors)
        alike: dict[int, list[int]] = defaultdict(list)
        for place, sample in enumerate(samples):
            alike[sample.count].append(place)
        for places in alike.values():
            for first in range(0, len(places), self.together):
                some = places[first : first + self.together]
                computed = self._some([vectors[place] for place in some], [samples[place] for place in some])
                for place, answer in zip(some, computed, strict=True):
                    answers[place] = answer
        return answers

    def choose(self, how: Vmap) -> None:
        """Selects whether gradients are computed together; auto: by the rule on sizes.

        Raises:
            InputError: `how` is on, and the module does not support it.
        """
        if how == "on" and self.random:
            why = "the module draws random numbers, which would depend on the gradients that are computed together"
            raise InputError(f"workload.vmap: found 'on', expected auto or off: {why}")
        if how == "auto":
            return
        self.together, self.worth_flops = (TOGETHER if how == "on" else 1), math.inf
        if how == "on":
            some = [Samples(worker, FEWEST, 0, 1) for worker in range(FEWEST)]
            try:
                self._together([self._start] * FEWEST, some)
            except VMAP_REFUSES as error:
                right = "expected auto or off: torch.func.vmap refuses the module"
                raise InputError(f"workload.vmap: found 'on', {right}: {error}") from error

    def _some(self, vectors: Sequence[Tensor], samples: Sequence[Samples]) -> list[tuple[Tensor, float]]:
        """Computes gradients of equal batches, together unless there are too few or the module does not support it."""
        if len(vectors) >= FEWEST and self.together > 1 and self._pays(samples[0].count):
            try:
                return self._together(vectors, samples)
            except VMAP_REFUSES:
                self.together = 1  # any other error is raised again one by one
        return [self.gradient(vector, self.load(sample)) for vector, sample in zip(vectors, samples, strict=True)]

    def _pays(self, count: int) -> bool:
        """Whether batches of this size are small enough to be computed together."""
        return self.worth_flops == math.inf or count * self.forward_flops <= self.worth_flops

    @cached_property
    def forward_flops(self) -> int:
        """Operations of the forward pass of one sample."""
        self._hold(self._start)
        sample = self._shaped(self.examples.train.at(slice(0, 1)))
        counter = FlopCounter()
        with torch.no_grad(), counter, seeded(self.device, 0):
            self.module(sample.inputs)
        return counter.flops

    def _together(self, vectors: Sequence[Tensor], samples: Sequence[Samples]) -> list[tuple[Tensor, float]]:
        missing = block_size(len(vectors), self.together) - len(vectors)
        batch = self._shaped(self.draw.batches([*samples, *[samples[-1]] * missing]))
        return self._joint([*vectors, *[vectors[-1]] * missing], batch)[: len(vectors)]

    def _loss_at(self, parameters: tuple[Tensor, ...], inputs: Tensor, labels: Tensor) -> Tensor:
        named = {piece.name: parameter for piece, parameter in zip(self._pieces, parameters, strict=True)}
        return self.loss(functional_call(self.module, named, (inputs,)), labels)

    def layer_gradients(self, vector: Tensor, data: LabelledBatch, ready: Ready) -> float:
        """Like `gradient`, but calls `ready` with each layer's part during the backward pass, when it is complete.

        Returns the mean loss. The parts are bit for bit those of `gradient`.
        """
        loss = self._forward(vector, data)
        self._by_layer.run(loss, ready)
        return loss.item()

    @cached_property
    def _by_layer(self) -> ByLayer:
        return ByLayer(self._parameters, self._pieces)

    def evaluate(self, vector: Tensor) -> Evaluation:
        """Returns the mean loss on the held-out examples, and the accuracy if labels are classes.

        Both are means over labels: over samples, or over all tokens if each sample has several labels. Modules are in
        evaluation mode; random numbers that are drawn even so are the same in every evaluation.
        """
        self._hold(vector)
        test, losses, right = self.examples.test, [], 0
        whole = len(test.labels)
        fixed = seeded(self.device, self.seed, EVALUATION) if self.random else nullcontext()
        with torch.no_grad(), evaluating(self.module), fixed:
            for first in range(0, whole, AT_ONCE):
                batch = self._shaped(test.at(slice(first, first + AT_ONCE)))
                outputs = self.module(batch.inputs)
                losses.append(self.loss(outputs, batch.labels).item() * (len(batch.labels) / whole))
                if self.examples.classes is not None:
                    right += int((outputs.argmax(dim=1) == batch.labels).sum())
        return Evaluation(math.fsum(losses), None if self.examples.classes is None else right / test.labels.numel())

    def _hold(self, vector: Tensor) -> None:
        """Makes the module's parameters views of `vector`."""
        parts = _unflatten_dense_tensors(vector.detach(), self._parameters)
        for parameter, part in zip(self._parameters, parts, strict=True):
            parameter.data = part


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Switches a module to evaluation for the block, and to training afterwards."""
    module.eval()
    try:
        yield
    finally:
        module.train()


def together_of(module: nn.Module, dtype: torch.dtype) -> int:
    """Returns the number of gradients to compute together, by the size of the weights; 1: none.

    A block of weights must fit in a processor's cache to be faster than single weights: 32 vectors of at most 128 KiB,
    16 of at most 512 KiB. Batches of more than `WORTH_FLOPS` are not faster together either. The measurements are in
    docs/results/simulator.md.

    Args:
        module: the module.
        dtype: type of the weights.

    >>> [together_of(nn.Linear(64, width), torch.float32) for width in (64, 784, 4096)]
    [32, 16, 1]
    """
    nbytes = sum(parameter.numel() for parameter in module.parameters()) * dtype.itemsize
    return next((most for most, largest in BLOCKS.items() if nbytes <= largest), 1)


def _layers(module: nn.Module) -> list[LayerInfo]:
    """Returns the modules with their own parameters, and the sizes of these."""
    sizes: dict[str, int] = {}
    for name, parameter in module.named_parameters():
        layer = name.rpartition(".")[0]
        sizes[layer] = sizes.get(layer, 0) + parameter.numel()
    return [LayerInfo(name, size) for name, size in sizes.items()]


def _pieces(module: nn.Module) -> list[ParameterPlace]:
    pieces, start = [], 0
    for name, parameter in module.named_parameters():
        part = slice(start, start + parameter.numel())
        pieces.append(ParameterPlace(name, name.rpartition(".")[0], part, parameter.shape))
        start = part.stop
    return pieces
