"""The operations: everything that a program can request from an interpreter.

Rules of this file:

* An operation is a frozen value. Creating one has no effect; a program yields it with ``yield from`` and receives the
  answer with its exact type: ``mean = yield from AllReduce(...)``.
* No operation contains a callable, a clock or a socket, so each can be logged, compared, priced and replayed.
* There are few operations. A new method that seems to need a new one can nearly always be written with these.

Read `NextStep`, `Gradient`, `AllReduce` and `RecordUpdate` first: synchronous SGD needs only these four.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar

from paceline.algorithms.core.buckets import Bucket, buckets
from paceline.algorithms.core.fast_values import fast_constructor
from paceline.algorithms.core.traffic import COMBINE, Traffic
from paceline.algorithms.core.values import (
    Batch,
    Contribution,
    GradientResult,
    Group,
    Layout,
    Message,
    Rank,
    Samples,
    Step,
    Vector,
    Weights,
)

if TYPE_CHECKING:
    from paceline.algorithms.core.program import Routine

R = TypeVar("R", covariant=True)


class Op(Generic[R]):
    """One request; ``R`` is the type of its answer.

    `__await__` exists only for the type checker: with it, mypy's ``unused-awaitable`` reports an operation that is
    created but not yielded.
    """

    __slots__ = ()

    def __iter__(self) -> Generator[Op[Any], Any, R]:
        return (yield self)  # type: ignore[no-any-return]

    __await__ = __iter__


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Handle(Generic[R]):
    """Represents a started operation or program, for `Wait`, `WaitFor` and `Cancel`.

    A state may contain handles. When a run stops, the operations in flight are completed, so that a program that is
    restarted from its state finds their answers.
    """

    rank: Rank
    number: int


class State(Protocol):
    """A state from which a program can be restarted: at least the number of completed steps."""

    @property
    def step(self) -> int: ...


@fast_constructor
@dataclass(frozen=True, slots=True)
class NextStep(Op[Step | None]):
    """Requests the next step; None means stop. Runs stop, write checkpoints and are restarted only here.

    `state` contains all state of the rank. The ranks of a synchronous method all stop at the same step. A server that
    has stopped answers later requests with a message that makes the worker stop.
    """

    state: State


@fast_constructor
@dataclass(frozen=True, slots=True)
class Load(Op[Batch]):
    """Loads the batch of `samples`. This takes storage and host-to-device time, so it may be started early."""

    samples: Samples


@fast_constructor
@dataclass(frozen=True, slots=True)
class Gradient(Op[GradientResult]):
    """Computes the gradient of the loss over `batch` at exactly `weights`: the mean over its samples.

    If the workers' batches differ, it is the mean times `Samples.weight`, so that every sample counts as much. A
    training program multiplies its loss by this number, which takes no time.
    """

    weights: Weights
    batch: Batch


@dataclass(frozen=True, slots=True)
class LayerGradients(Op["tuple[Handle[GradientResult], ...]"]):
    """Like `Gradient`, but answers immediately with one handle per layer, last layer first, as in the backward pass.

    With `buckets`, which must contain all layers in this order, there is one handle per bucket instead. `weights` may
    be one handle per layer (first layer first): the forward pass of a layer then waits for its handle. A handle for
    several layers is repeated for each of them.
    """

    weights: Weights | tuple[Handle[Weights], ...]
    batch: Batch
    buckets: Sequence[Bucket] = ()

    def parts(self, layout: Layout) -> Sequence[Bucket]:
        """Returns the layers of each handle."""
        return self.buckets or buckets(layout.layers)


@fast_constructor
@dataclass(frozen=True, slots=True)
class Charge(Op[None]):
    """Charges the time of arithmetic that the program does itself: an update, a compression, a copy to the device.

    Programs state no numbers: `Chain.charge` derives the traffic of an update from its transforms, and other formulas
    declare theirs.

    Args:
        kind: a name for messages.
        bytes: the size of each vector.
        flops: floating-point operations, if the work is more than one operation for each number read.
        where: the place of the vectors and of the processor: the rank's device, or its node's host.
        traffic: the vectors that are read and written.
    """

    kind: str
    bytes: int
    flops: int = 0
    where: Literal["device", "host"] = "device"
    traffic: Traffic = COMBINE


@fast_constructor
@dataclass(frozen=True, slots=True, kw_only=True)
class AllReduce(Op[Vector]):
    """Sum or mean of all members' `value`, at every member. Members must issue the same keys in the same order.

    With `donate`, the program must not use the value afterwards, because the answer may be written into its buffer. An
    answer that is a tensor then belongs to the caller, which may overwrite it. Programs leave this to
    `average_gradient` and the other helpers in `core.steps`.
    """

    value: Vector
    group: Group
    key: str
    op: Literal["sum", "mean"] = "mean"
    donate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduce(Op["Vector | None"]):
    """Sum or mean of all members' `value`, at `root`; None elsewhere."""

    value: Vector
    group: Group
    root: Rank
    key: str
    op: Literal["sum", "mean"] = "sum"


@dataclass(frozen=True, slots=True, kw_only=True)
class Broadcast(Op[Vector]):
    """The root's `value`, at every member. The others pass a vector of the same shape, which is not changed."""

    value: Vector
    group: Group
    root: Rank
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AllGather(Op["tuple[Vector, ...]"]):
    """All members' values in the order of the group, at every member."""

    value: Vector
    group: Group
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Barrier(Op[None]):
    """Waits until all members have arrived."""

    group: Group
    key: str


@fast_constructor
@dataclass(frozen=True, slots=True)
class Send(Op[None]):
    """Sends the current value to `to`; completes without waiting for the receiver."""

    to: Rank
    value: Any
    tag: str = ""


@fast_constructor
@dataclass(frozen=True, slots=True)
class Receive(Op[Message]):
    """Receives the oldest message with this tag from `source`, or from any rank.

    With `timeout_s`, raises `TimedOut` in the program if no message arrives in that time; a later message is not lost.
    """

    source: Rank | None = None
    tag: str = ""
    timeout_s: float | None = None


@fast_constructor
@dataclass(frozen=True, slots=True)
class Start(Op["Handle[R]"], Generic[R]):
    """Starts an operation or a sub-program and continues immediately. Collectives are issued in the order of starts."""

    what: Op[R] | Routine[R]


@fast_constructor
@dataclass(frozen=True, slots=True)
class Wait(Op[R], Generic[R]):
    """Waits for the answer of a started operation or program; raises its exception if it failed."""

    handle: Handle[R]


@dataclass(frozen=True, slots=True)
class WaitFor(Op["tuple[tuple[int, R], ...]"], Generic[R]):
    """Waits until `need` handles are done ("all", "any" or a number); answers (index, answer) of all that are done."""

    handles: Sequence[Handle[R]]
    need: Literal["all", "any"] | int = "all"

    @property
    def least(self) -> int:
        """The number of handles that must be done; interpreters refuse more than there are."""
        return self.need if isinstance(self.need, int) else {"all": len(self.handles), "any": 1}[self.need]


@dataclass(frozen=True, slots=True)
class Cancel(Op[bool]):
    """Cancels a started operation; True if it was not done yet."""

    handle: Handle[Any]


@dataclass(frozen=True, slots=True)
class Now(Op[float]):
    """Reads the clock of the run, in seconds. Recorded, so a replay gives the same answer."""


@dataclass(frozen=True, slots=True)
class Cell:
    """The name of a value that the ranks and lanes of one host share."""

    name: str


@dataclass(frozen=True, slots=True)
class Access(Op["Vector | None"]):
    """Reads, adds to or swaps a shared cell without a lock; answers the value before, None if there was none."""

    cell: Cell
    action: Literal["read", "add", "swap"]
    value: Vector | None = None


@dataclass(frozen=True, slots=True)
class Lock(Op[None]):
    """Waits for the lock of the cell and acquires it."""

    cell: Cell


@dataclass(frozen=True, slots=True)
class Unlock(Op[None]):
    """Releases the lock of the cell."""

    cell: Cell


@fast_constructor
@dataclass(frozen=True, slots=True)
class RecordUpdate(Op[int]):
    """Records an update: `weights` (the new vector, with the version that it replaces) and its `inputs`.

    Answers the new version. Staleness, evaluation and time to accuracy are computed from these records. With
    ``advance=False`` it records a local step and the version stays the same: versions then count averages, and
    staleness is the number of steps since the last average. With `layer`, it records that one layer was updated; the
    version advances only when the whole update is recorded.
    """

    weights: Weights
    inputs: Sequence[Contribution] = ()
    advance: bool = True
    layer: str | None = None


OPERATIONS: tuple[type[Op[Any]], ...] = tuple(op for op in Op.__subclasses__() if globals().get(op.__name__) is op)
"""All operations; the contract tests check that each interpreter implements each of them.

A dataclass with slots replaces the class it decorates, but the original remains among the subclasses. The condition
removes it.
"""
