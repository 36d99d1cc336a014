"""The properties of a model that the compute and memory models need; `workloads.ModelInfo` has them. All in float32.

Memory as a limit: the memory for training a model, whether it fits, and the bandwidth if it does not.

    needed(b) = weights + gradients + optimizer + b · activations + workspace

Activations are those that the backward pass needs, each once; in half precision they need half the memory, and weights
are stored in both precisions. If a model does not fit, the error says by how much. A device with a far memory (Knights
Landing: DDR behind MCDRAM) uses it too and becomes slower instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from paceline.algorithms.core.errors import InputError
from paceline.topologies.catalogue.device_catalogue import ITEM_BYTES, Kind, Spec, precision_named


class PassLike(Protocol):
    """One direction through a module: FLOPs and bytes moved per sample, bytes moved in any batch, and kernels."""

    @property
    def flops(self) -> float: ...
    @property
    def moved_bytes(self) -> float: ...
    @property
    def fixed_bytes(self) -> float: ...
    @property
    def kernels(self) -> int: ...


class ProductLike(Protocol):
    """A convolution or a matrix product of a forward pass, with its sizes; see `workloads.models.layer_tables`."""

    @property
    def form(self) -> str: ...
    @property
    def count(self) -> int: ...
    @property
    def channels_in(self) -> int: ...
    @property
    def channels_out(self) -> int: ...
    @property
    def kernel_height(self) -> int: ...
    @property
    def kernel_width(self) -> int: ...
    @property
    def stride(self) -> int: ...
    @property
    def groups(self) -> int: ...
    @property
    def height_in(self) -> int: ...
    @property
    def width_in(self) -> int: ...
    @property
    def height_out(self) -> int: ...
    @property
    def width_out(self) -> int: ...
    @property
    def flops(self) -> int: ...


class RowLike(Protocol):
    """A module: its parameters, saved activations per sample, its two passes, and the products of its forward pass."""

    @property
    def name(self) -> str: ...
    @property
    def parameters(self) -> int: ...
    @property
    def saved_bytes(self) -> float: ...
    @property
    def forward(self) -> PassLike: ...
    @property
    def backward(self) -> PassLike: ...
    @property
    def products(self) -> Sequence[ProductLike]: ...


class WorkLike(Protocol):
    """A model, such as `workloads.ModelInfo`."""

    @property
    def name(self) -> str: ...
    @property
    def family(self) -> str: ...
    @property
    def works(self) -> Sequence[RowLike]: ...


Mode = Literal["flat", "cache"]
WORKSPACE_BYTES: dict[Kind, float] = {"gpu": 0.6e9, "manycore": 0.2e9, "cpu": 0.2e9}
"""workspace of the framework. MEMORY medium on a GPU: 0.3 to 0.5 GB of context, the rest for convolutions; else
INFERENCE"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """The memory for training, in bytes; activations per sample."""

    weights_bytes: float
    gradients_bytes: float
    optimizer_bytes: float
    activation_bytes: float
    workspace_bytes: float

    @property
    def fixed_bytes(self) -> float:
        """The memory that does not depend on the batch."""
        return self.weights_bytes + self.gradients_bytes + self.optimizer_bytes + self.workspace_bytes

    def needed_bytes(self, samples: float) -> float:
        """Returns the memory for a batch of so many samples.

        >>> Footprint(weights_bytes=4, gradients_bytes=4, optimizer_bytes=4, activation_bytes=2,
        ...           workspace_bytes=0).needed_bytes(10)
        32
        """
        return self.fixed_bytes + samples * self.activation_bytes

    def largest_batch(self, memory_bytes: float) -> int:
        """Returns the largest number of samples that fit; 0 if none does."""
        left = memory_bytes - self.fixed_bytes
        return max(0, int(left // self.activation_bytes)) if self.activation_bytes else 0


def footprint(spec: Spec, work: WorkLike, precision: str = "fp32", *, optimizer_copies: int = 1) -> Footprint:
    """Returns the memory for training a model on a device.

    Args:
        spec: the device.
        work: the model.
        precision: the precision of arithmetic. Below float32, weights and gradients are stored in float32 too.
        optimizer_copies: numbers of optimizer state per weight: 0 for plain SGD, 1 for momentum, 2 for Adam.
    """
    item = ITEM_BYTES[precision_named(precision)]
    parameters = sum(row.parameters for row in work.works)
    full = max(item, 4)
    return Footprint(
        weights_bytes=parameters * (full if item == full else full + item),
        gradients_bytes=parameters * full,
        optimizer_bytes=parameters * full * optimizer_copies,
        activation_bytes=sum(row.saved_bytes for row in work.works) * item / 4,
        workspace_bytes=WORKSPACE_BYTES[spec.kind],
    )


def check_fits(
    spec: Spec, work: WorkLike, precision: str = "fp32", samples: int = 32, *, optimizer_copies: int = 1
) -> None:
    """Raises `InputError` if a batch does not fit into the device's memory, including far memory.

    If the memory of a device is not known, such as a socket's, every batch fits.

    Args:
        spec: the device.
        work: the model.
        precision: the precision of arithmetic.
        samples: the batch.
        optimizer_copies: numbers of optimizer state per weight.

    >>> from types import SimpleNamespace as Row
    >>> from paceline.topologies.catalogue.device_names import named
    >>> net = Row(name="net", works=(Row(parameters=10**8, saved_bytes=10**8),))
    >>> try: check_fits(named("k20"), net, samples=64)
    ... except InputError as error: print(str(error).replace(": ", ":\\n"))
    net with 64 samples needs 8.2 GB of 5 GB on k20:
    3.2 GB too much; the largest batch that fits is 32
    """
    if spec.memory_bytes is None:
        return
    there = spec.memory_bytes + (spec.far_bytes or 0.0)
    wanted = footprint(spec, work, precision, optimizer_copies=optimizer_copies)
    needed = wanted.needed_bytes(samples)
    if needed <= there:
        return
    most = wanted.largest_batch(there)
    hint = f"the largest batch that fits is {most}" if most else "not even one sample fits"
    raise InputError(
        f"{work.name} with {samples} samples needs {_gigabytes(needed)} of {there / 1e9:g} GB on {spec.name}: "
        f"{_gigabytes(needed - there)} too much; {hint}"
    )


def _gigabytes(nbytes: float) -> str:
    """
    >>> _gigabytes(8.2e9), _gigabytes(2.4612e12)
    ('8.2 GB', '2461 GB')
    """
    return f"{nbytes / 1e9:.2g} GB" if nbytes < 10e9 else f"{nbytes / 1e9:.0f} GB"


def sustained_bytes_per_s(spec: Spec, needed_bytes: float, mode: Mode = "flat") -> float:
    """Returns the sustained bandwidth of memory with so many bytes in use, all equally often.

    - flat: as much as fits is in near memory, the rest in far memory: ``needed / (near / fast + far / slow)``.
    - cache: the near memory is a direct-mapped cache of the far one. Sweeps over W bytes through C bytes of cache hit
      the lines that share their place with no other, 2C − W of W; every miss is read from far and written to near
      memory.

    Args:
        spec: the device.
        needed_bytes: the bytes in use.
        mode: the boot mode of the near memory; a device without far memory has one bandwidth.

    >>> from paceline.topologies.catalogue.device_names import named
    >>> knl = named("knl-7250")
    >>> [round(sustained_bytes_per_s(knl, gigabytes * 1e9) / 1e9) for gigabytes in (1, 16, 32)]
    [480, 480, 152]
    >>> [round(sustained_bytes_per_s(knl, gigabytes * 1e9, "cache") / 1e9) for gigabytes in (1, 16, 32)]
    [480, 480, 76]
    """
    fast = spec.sustained_bytes_per_s
    if spec.far_bytes_per_s is None or spec.memory_bytes is None or needed_bytes <= spec.memory_bytes:
        return fast
    slow = spec.far_bytes_per_s  # a measured figure, so it is not reduced
    if mode == "cache":
        hits = max(0.0, 2 * spec.memory_bytes - needed_bytes)
        return needed_bytes / (needed_bytes / fast + (needed_bytes - hits) / slow)
    far = needed_bytes - spec.memory_bytes
    return needed_bytes / (spec.memory_bytes / fast + far / slow)
