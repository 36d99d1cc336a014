"""The operations: everything a program may ask of the machine it runs on.

Rules of this file:

* An operation is a frozen value. Building one does nothing; a program hands it over with ``yield from`` and gets
  the answer back, exactly typed: ``mean = yield from AllReduce(...)``.
* No operation holds a callable, a clock or a socket, so that each can be logged, compared, priced and replayed.
* There are few of them. A new method that seems to need a new operation nearly always needs a better program.

Read `NextStep`, `Gradient`, `AllReduce` and `RecordUpdate` first: with these four, synchronous SGD is written.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar

from paceline.algorithms.core.buckets import Bucket, buckets
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

    `__await__` exists for the type checker alone: with it, mypy's ``unused-awaitable`` reports an operation that was
    built and forgotten.
    """

    __slots__ = ()

    def __iter__(self) -> Generator[Op[Any], Any, R]:
        return (yield self)  # type: ignore[no-any-return]

    __await__ = __iter__


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Handle(Generic[R]):
    """A started operation or program that somebody will `Wait` for.

    A value, so that a state may hold it: when a run is stopped, whatever is in flight is completed, and a program that
    is entered again from its state finds the handle answered.
    """

    rank: Rank
    number: int


class State(Protocol):
    """What a program needs to be entered again: at least the number of steps it has completed."""

    @property
    def step(self) -> int: ...


@dataclass(frozen=True, slots=True)
class NextStep(Op[Step | None]):
    """The next step, or None: stop. The only place where runs stop, checkpoint and are entered again.

    All of a rank's state is in `state`. Ranks of a synchronous method all learn of a stop at the same step; a server
    answers the requests that reach it after its own stop with a goodbye.
    """

    state: State


@dataclass(frozen=True, slots=True)
class Load(Op[Batch]):
    """The batch that `samples` names; takes storage and host-to-device time, so it may be started early."""

    samples: Samples


@dataclass(frozen=True, slots=True)
class Gradient(Op[GradientResult]):
    """Mean gradient of the loss over `batch` at exactly `weights`."""

    weights: Weights
    batch: Batch


@dataclass(frozen=True, slots=True)
class LayerGradients(Op["tuple[Handle[GradientResult], ...]"]):
    """As `Gradient`, answered at once with one handle per layer, last layer first: the order in which backward ends.

    With `buckets`, all layers in their order, there is one handle for each of these instead. `weights` may hold one
    handle per layer (first layer first): the forward pass of a layer then waits for its own. One that stands for
    several layers is given once for each of them.
    """

    weights: Weights | tuple[Handle[Weights], ...]
    batch: Batch
    buckets: Sequence[Bucket] = ()

    def parts(self, layout: Layout) -> Sequence[Bucket]:
        """What each handle stands for."""
        return self.buckets or buckets(layout.layers)


@dataclass(frozen=True, slots=True)
class Charge(Op[None]):
    """Charges arithmetic that the program does itself: an update, a compression, a copy between host and device."""

    kind: str
    bytes: int
    flops: int = 0
    where: Literal["device", "host"] = "device"


@dataclass(frozen=True, slots=True, kw_only=True)
class AllReduce(Op[Vector]):
    """Sum or mean of every member's `value`, on every member. Members must issue the same keys in the same order.

    With `donate` the program gives its value away: nobody looks at it again, and its memory may become the answer's. A
    tensor that answers is then the caller's own, to be given away in its turn.
    """

    value: Vector
    group: Group
    key: str
    op: Literal["sum", "mean"] = "mean"
    donate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduce(Op["Vector | None"]):
    """Sum or mean of every member's `value`, on `root`; None elsewhere."""

    value: Vector
    group: Group
    root: Rank
    key: str
    op: Literal["sum", "mean"] = "sum"


@dataclass(frozen=True, slots=True, kw_only=True)
class Broadcast(Op[Vector]):
    """The root's `value`, on every member. Others pass a vector of the same shape, which is not changed."""

    value: Vector
    group: Group
    root: Rank
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AllGather(Op["tuple[Vector, ...]"]):
    """Every member's `value` in the order of the group, on every member."""

    value: Vector
    group: Group
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Barrier(Op[None]):
    """Nobody goes on before every member has come."""

    group: Group
    key: str


@dataclass(frozen=True, slots=True)
class Send(Op[None]):
    """Give `to` the value as it is now; completes without waiting for the receiver."""

    to: Rank
    value: Any
    tag: str = ""


@dataclass(frozen=True, slots=True)
class Receive(Op[Message]):
    """The oldest message with this tag from `source`, or from anyone.

    With `timeout_s`, raises `TimedOut` into the program when none has come by then; the message is not lost.
    """

    source: Rank | None = None
    tag: str = ""
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class Start(Op["Handle[R]"], Generic[R]):
    """Begin an operation or a sub-program and go on at once. Collectives are issued in the order of their starts."""

    what: Op[R] | Routine[R]


@dataclass(frozen=True, slots=True)
class Wait(Op[R], Generic[R]):
    """The answer of a started operation or program, once it is there; its failure is raised here."""

    handle: Handle[R]


@dataclass(frozen=True, slots=True)
class WaitFor(Op["tuple[tuple[int, R], ...]"], Generic[R]):
    """Waits until `need` of the handles are done: "all", "any" or a number; answers (index, answer) of all done."""

    handles: Sequence[Handle[R]]
    need: Literal["all", "any"] | int = "all"

    @property
    def least(self) -> int:
        """How many handles must be done; interpreters refuse more than there are."""
        return self.need if isinstance(self.need, int) else {"all": len(self.handles), "any": 1}[self.need]


@dataclass(frozen=True, slots=True)
class Cancel(Op[bool]):
    """Give up a started operation; True if that was in time, that is before it was done."""

    handle: Handle[Any]


@dataclass(frozen=True, slots=True)
class Now(Op[float]):
    """Seconds on the run's own clock; recorded, so that a replay sees the same."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Names a value that the ranks and lanes of one host share."""

    name: str


@dataclass(frozen=True, slots=True)
class Access(Op["Vector | None"]):
    """Reads, adds to or swaps a shared cell, without any lock; answers the value before, None if there was none."""

    cell: Cell
    action: Literal["read", "add", "swap"]
    value: Vector | None = None


@dataclass(frozen=True, slots=True)
class Lock(Op[None]):
    """Wait until nobody else holds the cell's lock, then hold it."""

    cell: Cell


@dataclass(frozen=True, slots=True)
class Unlock(Op[None]):
    """Let the next one have the cell's lock."""

    cell: Cell


@dataclass(frozen=True, slots=True)
class RecordUpdate(Op[int]):
    """`weights` (the new vector, with the version it replaces) came about from `inputs`; answers its new version.

    This is what staleness, evaluation and time to accuracy are computed from. With ``advance=False`` a local step is
    recorded and the version stays: it then counts averages, and staleness is the age in steps since the last one.
    With `layer`, one layer alone has landed, before or while others do: it is recorded apart, and no version moves
    until the whole is applied.
    """

    weights: Weights
    inputs: Sequence[Contribution] = ()
    advance: bool = True
    layer: str | None = None


OPERATIONS: tuple[type[Op[Any]], ...] = tuple(op for op in Op.__subclasses__() if globals().get(op.__name__) is op)
"""Every operation there is; the contract suite checks that each interpreter has a case for each.

A dataclass with slots is a second class in place of the first, which lingers among the subclasses: hence the test.
"""
