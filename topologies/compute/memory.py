"""Memory as a limit: what training a model needs, whether it fits, and how fast memory is where it spills.

    needed(b) = weights + gradients + optimizer + b · activations + workspace

Rules of this file: activations are those that the backward pass waits for, each once; in half precision they take half,
and weights are kept in both precisions. What does not fit is an error that says by how much. A device with a far
memory (Knights Landing: DDR behind MCDRAM) spills into it and gets slower instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from paceline.algorithms.core.errors import InputError
from paceline.topologies.catalogue.device_catalogue import ITEM_BYTES, Kind, Spec, precision_named
from paceline.topologies.compute.model_work import WorkLike

Mode = Literal["flat", "cache"]
WORKSPACE_BYTES: dict[Kind, float] = {"gpu": 0.6e9, "manycore": 0.2e9, "cpu": 0.2e9}
"""of the framework. MEMORY medium on a GPU: 0.3 to 0.5 GB of context, the rest for convolutions; else INFERENCE"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """What training needs, in bytes; activations per sample."""

    weights_bytes: float
    gradients_bytes: float
    optimizer_bytes: float
    activation_bytes: float
    workspace_bytes: float

    @property
    def fixed_bytes(self) -> float:
        """What is needed however small the batch."""
        return self.weights_bytes + self.gradients_bytes + self.optimizer_bytes + self.workspace_bytes

    def needed_bytes(self, samples: float) -> float:
        """
        >>> Footprint(weights_bytes=4, gradients_bytes=4, optimizer_bytes=4, activation_bytes=2,
        ...           workspace_bytes=0).needed_bytes(10)
        32
        """
        return self.fixed_bytes + samples * self.activation_bytes

    def largest_batch(self, memory_bytes: float) -> int:
        """The most samples that fit; 0 if none does."""
        left = memory_bytes - self.fixed_bytes
        return max(0, int(left // self.activation_bytes)) if self.activation_bytes else 0


def footprint(spec: Spec, work: WorkLike, precision: str = "fp32", *, optimizer_copies: int = 1) -> Footprint:
    """What training a model on a device needs.

    Args:
        precision: of arithmetic. Below float32, weights are kept in float32 too, and gradients in float32.
        optimizer_copies: numbers that the optimizer keeps per weight: 0 for plain SGD, 1 for momentum, 2 for Adam.
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
    """Raises `InputError` where a batch does not fit into the device's memory, far memory included.

    A device whose memory is not known, such as a socket, takes everything.

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
        f"{work.name} with {samples} samples needs {needed / 1e9:.3g} GB of {there / 1e9:g} GB on {spec.name}: "
        f"{(needed - there) / 1e9:.2g} GB too much; {hint}"
    )


def sustained_bytes_per_s(spec: Spec, needed_bytes: float, mode: Mode = "flat") -> float:
    """What memory sustains where so many bytes are in use, all equally often.

    - flat: what fits lies near, the rest far: ``needed / (near / fast + far / slow)``.
    - cache: the near memory caches the far one, and each line has one place in it. Sweeps over W bytes through C bytes
      of cache hit with what has its place alone, 2C − W of W; every miss is read from far and written near.

    Args:
        mode: how the near memory is booted; a device without a far memory has one speed.

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
    stragglers = spec.far_bytes_per_s  # what was measured, so nothing is taken off it
    if mode == "cache":
        hits = max(0.0, 2 * spec.memory_bytes - needed_bytes)
        return needed_bytes / (needed_bytes / fast + (needed_bytes - hits) / stragglers)
    far = needed_bytes - spec.memory_bytes
    return needed_bytes / (spec.memory_bytes / fast + far / stragglers)
