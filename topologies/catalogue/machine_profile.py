"""The profile of a machine: costs measured by a short probe, used to predict runs on this machine.

Nothing in a profile is fitted to a run that it predicts. Times are medians over launches of each launch's mean.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.traffic import COMBINE, Traffic
from paceline.topologies.catalogue.gradient_times import GradientTimes, GradientVariation

MESSAGE = "message"
Handled = Literal["send", "receive", "start"]
"""work that takes time of a rank's own processor: handing over a message, taking one that has already arrived, and
starting a collective that is waited for later"""
Points = tuple[tuple[int, float], ...]
"""(bytes, seconds) as measured, smallest first"""
Collectives = Mapping[tuple[str, int], Points]
"""by operation and number of members"""


def seconds_at(points: Points, nbytes: int) -> float:
    """Returns the time for `nbytes`: linear between the measured sizes, and by latency and bandwidth outside them.

    Above the largest size, each further byte takes what it takes between the largest size and the largest of at most
    half of it; below the smallest, each byte less saves what it saves up to the first size of at least twice the
    smallest, and never more than its share of the time. A single size gives a time in proportion to the bytes.

    Args:
        points: measured (bytes, seconds), smallest first.
        nbytes: the size in bytes.

    >>> points = ((100, 2.0), (200, 3.0), (400, 5.0))
    >>> seconds_at(points, 150), seconds_at(points, 0), seconds_at(points, 1000)
    (2.5, 1.0, 11.0)
    >>> seconds_at(((1000, 8.0),), 500)
    4.0
    """
    at = bisect_left(points, (nbytes, 0.0))
    if at == len(points):
        size, last_s = points[-1]
        return last_s + (nbytes - size) * _slope(points, above=True)
    if at == 0:
        size, first_s = points[0]
        return max(0.0, first_s - (size - nbytes) * _slope(points, above=False))
    (low, low_s), (high, high_s) = points[at - 1], points[at]
    return low_s + (high_s - low_s) * (nbytes - low) / (high - low)


def _slope(points: Points, *, above: bool) -> float:
    """Returns the seconds of one byte more than the largest size or, not `above`, of one less than the smallest."""
    size, seconds = points[-1 if above else 0]
    if not size:
        return 0.0
    if above:
        others = [point for point in points if 2 * point[0] <= size][-1:] or points[:1]
    else:
        others = [point for point in points if point[0] >= 2 * size][:1] or points[-1:]
    other, other_s = others[0]
    if other == size:
        return seconds / size
    slope = (seconds - other_s) / (size - other)
    if above:
        return slope if slope > 0 else seconds / size
    return min(max(slope, 0.0), seconds / size)


def bus_factor(operation: str, members: int) -> float:
    """Returns the bytes that each member sends of a collective, over those of `Asked.nbytes`, if all are sent evenly.

    2 (n − 1) / n for an all-reduce, (n − 1) / n for its two halves, and 1 for one value that passes all members. It is
    busbw over algbw of nccl-tests; source: nccl-tests, doc/PERFORMANCE.md.

    Args:
        operation: our name of the operation.
        members: the number of ranks.

    >>> bus_factor("AllReduce", 8), bus_factor("AllGather", 8), bus_factor("Broadcast", 8)
    (1.75, 0.875, 1.0)
    """
    share = (members - 1) / members
    return {"AllReduce": 2 * share, "ReduceScatter": share, "AllGather": share}.get(operation, 1.0)


def seconds_of_members(points: Points, operation: str, measured: int, members: int, nbytes: int) -> float:
    """Returns the time of a collective of other members than the measured ones.

    latency · ⌈log₂ n⌉ / ⌈log₂ m⌉ + (time − latency) · factor(n) / factor(m), with `bus_factor`

    The latency is the time at 0 bytes. Small values take trees or recursive doubling in NCCL and in MPI, whose steps
    are log₂ n: INFERENCE; the bytes follow from the operation.

    Args:
        points: (bytes, seconds) of m members, smallest first.
        operation: our name of the operation.
        measured: m.
        members: n, at least 2.
        nbytes: the size in bytes.

    >>> round(seconds_of_members(((10**8, 0.875),), "AllReduce", 8, 16, 10**8), 4)
    0.9375
    >>> seconds_of_members(((0, 3.0),), "Barrier", 8, 16, 0)
    4.0
    """
    seconds = seconds_at(points, nbytes)
    latency_s = min(seconds, seconds_at(points, 0))
    steps = (members - 1).bit_length() / (measured - 1).bit_length()
    return latency_s * steps + (seconds - latency_s) * bus_factor(operation, members) / bus_factor(operation, measured)


@dataclass(frozen=True, slots=True)
class Asked:
    """A collective of the runs, which a probe has to measure.

    Args:
        operation: its name ("AllReduce", …).
        members: the number of ranks that enter it.
        nbytes: bytes of a member's value, 0 for a barrier; of all members' values for an all-gather.
        groups: the groups that enter such collectives, none of which shares a member with another.
    """

    operation: str
    members: int
    nbytes: int
    groups: tuple[tuple[int, ...], ...]
    donate: bool = False
    """whether the result may lie in the buffer of the value"""
    inside: bool = False
    """whether real runs perform it in shared memory of the ranks of a node, and not over the network"""


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Costs of this machine, for this number of ranks on its cores and messages of about these sizes.

    Args:
        collectives: by operation and number of members, seconds from the last entry to a member's exit.
        inside: the same for collectives in shared memory of the ranks of a node.
        messages: seconds from a send to the moment when the receiver, already waiting, has the value.
        inside_messages: the same for messages in shared memory of the ranks of a host.
        handling: seconds of a rank's own processor by bytes, for each kind and whether memory is shared. Those of a
            send are part of its message's time, those of a start part of its collective's.
        load_s: loading a batch.
        server_load_s: the same in runs with a server, whose workers wait for messages; 0: not measured.
        late_s: by how much a paced gradient takes longer than its modelled time.
        rest_s: a worker's step outside all its operations: the time of the program and the interpreter between them.
        server_rest_s: the same in runs with a server; 0: not measured.
        lane_s: starting a sub-program, or an operation that is not a collective.
        wait_s: how long after the end of a started operation a program that waited for it goes on.
        update_s: an update of all weights at a worker, x − a g, into new memory.
        update_into_s: the same into memory in use; 0: not measured.
        update_beside_s: the same while a collective of the worker is in flight; 0: not measured.
        update_few_s: an update of a few numbers.
        snapshot_s: storing the weights for an evaluation, by the rank that owns them.
        serve_s: a server's time for a message, from having it to waiting for the next, without its sends.
        message_beside: the speed of messages while all other workers of the host compute.
        serve_beside: the speed of a server's work then.
        served: how gradients vary in runs with a server, which has no core of its own; None: as in other runs.
        samples: the number of operations from which each figure was computed.
        gradients: the times of gradients on this machine's own cores, smallest batch first. Empty if runs are paced.
        cores: the cores that the ranks of a host share.
        verdict: how far these figures can be trusted, as `paceline calibrate` or the probe of a comparison judged them.
    """

    collectives: Collectives = field(default_factory=dict)
    inside: Collectives = field(default_factory=dict)
    messages: Points = ()
    inside_messages: Points = ()
    handling: Mapping[tuple[Handled, bool], Points] = field(default_factory=dict)
    load_s: float = 0.0
    late_s: float = 0.0
    rest_s: float = 0.0
    lane_s: float = 0.0
    wait_s: float = 0.0
    server_load_s: float = 0.0
    server_rest_s: float = 0.0
    update_s: float = 0.0
    update_into_s: float = 0.0
    update_beside_s: float = 0.0
    update_few_s: float = 0.0
    serve_s: float = 0.0
    snapshot_s: float = 0.0
    message_beside: float = 1.0
    serve_beside: float = 1.0
    served: GradientVariation | None = None
    samples: Mapping[str, int] = field(default_factory=dict)
    gradients: tuple[GradientTimes, ...] = ()
    cores: int = 1
    verdict: str = field(default="", compare=False)

    def gradient(self, batch: int) -> GradientTimes:
        """Returns the times of the measured batch that is nearest to this one.

        Raises:
            KeyError: no gradients were measured.
        """
        if not self.gradients:
            raise KeyError("the profile has no times of gradients")
        return min(self.gradients, key=lambda gradient: abs(gradient.batch - batch))

    def gradient_s(self, batch: int) -> float:
        """Returns the mean seconds of a gradient alone on its host: linear between measured batches and beyond them.

        Args:
            batch: the samples.

        >>> from paceline.topologies.catalogue.gradient_times import GradientTimes
        >>> two = (GradientTimes(batch=8, busy=((1, 0.1),)), GradientTimes(batch=16, busy=((1, 0.15),)))
        >>> round(Profile(gradients=two).gradient_s(32), 6)
        0.25
        """
        if len(self.gradients) < 2:
            return self.gradient(batch).alone_s
        at = min(max(1, bisect_left([gradient.batch for gradient in self.gradients], batch)), len(self.gradients) - 1)
        low, high = self.gradients[at - 1], self.gradients[at]
        slope = (high.alone_s - low.alone_s) / (high.batch - low.batch)
        return max(low.alone_s + slope * (batch - low.batch), 0.0)

    def arithmetic_s(self, share: float, traffic: Traffic) -> float:
        """Returns the seconds of arithmetic at a worker, from the measured updates.

        seconds = few + share · (passes · (into − few) / 3 + allocated · (update − into))

        An update x − a g reads two vectors and writes one.

        Args:
            share: the bytes of its vectors over those of all weights.
            traffic: the vectors that it reads and writes.

        >>> updates = Profile(update_s=0.9, update_into_s=0.4, update_few_s=0.1)
        >>> [round(updates.arithmetic_s(share, COMBINE), 6) for share in (1.0, 0.5)]
        [0.9, 0.5]
        """
        into_s = min(self.update_into_s or self.update_s, self.update_s)
        few_s = min(self.update_few_s, into_s)
        passed_s = traffic.passes * (into_s - few_s) / COMBINE.passes
        return few_s + share * (passed_s + traffic.allocated * (self.update_s - into_s))

    def slowed(self, factor: float) -> Profile:
        """Returns the profile of the machine while it is slower by a factor.

        All that a host does itself takes so many times as long: its memory, processors and program share one speed.

        >>> Profile(update_s=0.5, messages=((8, 0.1),)).slowed(2.0).messages
        ((8, 0.2),)
        """
        if factor == 1.0:
            return self

        def points(measured: Points) -> Points:
            return tuple((nbytes, factor * seconds) for nbytes, seconds in measured)

        return replace(
            self,
            **{name: factor * getattr(self, name) for name in SECONDS},
            collectives={kind: points(times) for kind, times in self.collectives.items()},
            inside={kind: points(times) for kind, times in self.inside.items()},
            messages=points(self.messages),
            inside_messages=points(self.inside_messages),
            handling={kind: points(times) for kind, times in self.handling.items()},
            gradients=tuple(times.slowed(factor) for times in self.gradients),
        )

    def without_spread(self) -> Profile:
        """Returns the profile with gradients that all take their mean time."""
        gradients = tuple(replace(times, factors=(1.0,)) for times in self.gradients)
        return replace(self, gradients=gradients, served=None)

    def collective_s(self, operation: str, members: int, nbytes: int, inside: bool = False) -> float:
        """Returns seconds of a collective after its last entry; of other members by `seconds_of_members`.

        Args:
            operation: its name, such as "AllReduce".
            members: the number of ranks.
            nbytes: bytes as in `Asked`.
            inside: whether it uses shared memory of a node.

        Raises:
            KeyError: no such collective was measured.
        """
        if members < 2:
            return 0.0
        measured = self.measured(inside)
        if (operation, members) in measured:
            return seconds_at(measured[operation, members], nbytes)
        known = [count for name, count in measured if name == operation]
        if not known:
            where = " inside a node" * inside
            raise KeyError(f"the profile has no {operation}{where}; it has {sorted(measured)}")
        near = min(known, key=lambda count: abs(count - members))
        return seconds_of_members(measured[operation, near], operation, near, members, nbytes)

    def measured(self, inside: bool) -> Collectives:
        """Returns the collectives in shared memory of a node, or over the network."""
        return self.inside if inside else self.collectives

    def message_s(self, nbytes: int, inside: bool = False) -> float:
        """Returns the seconds of one message, one way.

        Args:
            nbytes: the size in bytes.
            inside: whether it uses shared memory of a host.

        Raises:
            KeyError: no such messages were measured.
        """
        if not (points := self.measured_messages(inside)):
            raise KeyError(f"the profile has no messages {'inside a host' if inside else 'between hosts'}")
        return seconds_at(points, nbytes)

    def measured_messages(self, inside: bool) -> Points:
        """Returns the messages in shared memory of a host, or over the network."""
        return self.inside_messages if inside else self.messages

    def handling_s(self, kind: Handled, nbytes: int, inside: bool) -> float:
        """Returns seconds of a rank's own processor; 0 if they were not measured.

        Args:
            kind: what the processor does.
            nbytes: the size in bytes.
            inside: whether it uses shared memory.
        """
        points = self.handling.get((kind, inside))
        return seconds_at(points, nbytes) if points else 0.0


SECONDS = (
    "load_s", "late_s", "rest_s", "lane_s", "wait_s", "server_load_s", "server_rest_s", "update_s", "update_into_s",
    "update_beside_s", "update_few_s", "serve_s", "snapshot_s",
)  # fmt: skip
"""the fields of a `Profile` that are seconds"""
MESSAGE_LEGS = 3
"""latencies per message in gloo's rendezvous: request, answer, data"""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulationCosts:
    """Costs that a machine adds to a network that it emulates, whose rates and latencies are known.

    Args:
        message_s: a message between hosts without a vector, in addition to `MESSAGE_LEGS` latencies of its route.
        all_reduce_s: an all-reduce of `few_bytes` by all workers, with its route.
        few_bytes: the size of its value.
        packet_bytes: the size of the largest packet, which a line forwards when it is complete.
        leads_s: how long before the last worker each one entered that all-reduce; empty: all at the same time.
        start_s: the time that a program needs to start a collective, until it can start the next.
    """

    message_s: float
    all_reduce_s: float
    few_bytes: int
    packet_bytes: int
    leads_s: tuple[float, ...] = ()
    start_s: float = 0.0


@dataclass(frozen=True, slots=True)
class JoinedHosts:
    """What joins several hosts that are alike.

    Args:
        between: the costs of messages and collectives between the hosts, as of a network; None: they were not measured,
            and the links of a scenario join the hosts.
        placement: the number of workers on each host when `between` was measured; empty: imported, for all placements.
        assumed: sentences on what was assumed when files were imported.
    """

    between: Profile | None = None
    placement: tuple[int, ...] = ()
    assumed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MeasuredCosts:
    """What was measured of one host, and what joins several: nothing, a network that it emulates, or other hosts.

    Args:
        host: the costs of a host: the ranks' own work, and messages and collectives inside it.
        emulation: the costs that it adds to a network that it emulates; None: it emulates none.
        joined: what joins hosts like it; None: all ranks are on this host, be it as emulated hosts.
        slowness: that of the host while it was measured (see `records.machine_speed`); None: it is not known.
        spread: the standard deviation of a run's mean step time around its prediction, over the time, as the
            calibration shows it; None: it is not known.

    >>> alone, several = MeasuredCosts(Profile()), MeasuredCosts(Profile(), joined=JoinedHosts())
    >>> alone.paced, several.paced
    (True, False)
    """

    host: Profile
    emulation: EmulationCosts | None = None
    joined: JoinedHosts | None = None
    slowness: float | None = None
    spread: float | None = None

    def at(self, slowness: float | None) -> MeasuredCosts:
        """Returns the costs while the host has another slowness; the same if one of both is not known.

        Lines of an emulated network and links between hosts keep their times.

        >>> host = Profile(update_s=0.5, gradients=(GradientTimes(batch=8, busy=((1, 0.1),)),))
        >>> MeasuredCosts(host, slowness=0.5).at(1.0).host.update_s
        1.0
        """
        if slowness is None or self.slowness is None or self.paced:
            return self
        factor, added = slowness / self.slowness, self.emulation
        if added is not None:
            added = replace(added, message_s=factor * added.message_s, start_s=factor * added.start_s)
        return replace(self, host=self.host.slowed(factor), emulation=added, slowness=slowness)

    @property
    def paced(self) -> bool:
        """Whether real runs on it are paced to the devices of their scenario, since it has no gradients of its own."""
        return self.joined is None and not self.host.gradients

    def between(self, placement: tuple[int, ...]) -> Profile | None:
        """Returns the costs between hosts if they were measured with this number of workers on each host.

        >>> costs = MeasuredCosts(Profile(), joined=JoinedHosts(Profile(messages=((8, 1e-3),)), (2, 2)))
        >>> costs.between((2, 2)).messages, costs.between((2, 2, 2))
        (((8, 0.001),), None)
        """
        joined = self.joined
        return joined.between if joined is not None and joined.placement in ((), placement) else None

    def without_spread(self) -> MeasuredCosts:
        """Returns the costs with every gradient in its mean time."""
        return replace(self, host=self.host.without_spread())

    def judged(self, verdict: str) -> MeasuredCosts:
        """Returns the costs with a verdict on their measurement."""
        return replace(self, host=replace(self.host, verdict=verdict))


CALIBRATED = "calibrated, "
"""beginning of the provenance of a device whose times are from a calibration; its file and verdict follow"""


def is_poor(verdict: str) -> bool:
    """Whether a verdict on measured costs, or one of several, is poor.

    >>> is_poor("poor: other programs used 64 % of the cores"), is_poor("imported, nothing was measured here: b.txt")
    (True, False)
    >>> is_poor("lenet: good: other programs used 1 %\\nalexnet: poor: other programs used 30 %")
    True
    """
    return re.search(r"(^|: )poor: ", verdict, re.MULTILINE) is not None


def caution(verdict: str) -> str:
    """Returns what a poor verdict means for the figures that rest on it; "" if it is not poor.

    >>> caution("poor: other programs used 64 % of the cores")
    'poor: other programs used 64 % of the cores. Figures that rest on it are those of a disturbed machine and may be \
wrong by such shares; stop other programs and measure again'
    """
    meaning = "Figures that rest on it are those of a disturbed machine and may be wrong by such shares"
    return f"{verdict}. {meaning}; stop other programs and measure again" if is_poor(verdict) else ""


def _unmeasured(error: KeyError) -> InputError:
    """Returns the error of a user whose machine file lacks a cost."""
    return InputError(
        f"cluster.machine: {error.args[0]}; run `paceline calibrate` with the algorithms and ranks of this scenario"
    )


@dataclass(frozen=True, slots=True)
class Consulted:
    """A profile that records which of its costs were requested."""

    profile: Profile
    asked: dict[tuple[str, int, int, bool], None] = field(default_factory=dict)
    """operation, members, bytes, and whether it is in a node's memory; each once"""

    def collective_s(self, operation: str, members: int, nbytes: int, inside: bool = False) -> float:
        self.asked[operation, members, nbytes, inside] = None
        try:
            return self.profile.collective_s(operation, members, nbytes, inside)
        except KeyError as error:
            raise _unmeasured(error) from error

    def message_s(self, nbytes: int, inside: bool = False) -> float:
        self.asked[MESSAGE, 2, nbytes, inside] = None
        try:
            return self.profile.message_s(nbytes, inside)
        except KeyError as error:
            raise _unmeasured(error) from error

    def outside(self) -> list[str]:
        """Returns the requests outside the measured range, as text; one line for each kind of request.

        A message without a vector is not reported: it costs about as much as any that fits into a packet.

        >>> consulted = Consulted(Profile(messages=((8, 1e-4), (1000, 2e-4))))
        >>> [round(consulted.message_s(nbytes), 6) for nbytes in (500, 4000)][1]
        0.000502
        >>> consulted.outside()  # doctest: +NORMALIZE_WHITESPACE
        ['network: found messages of 4000 bytes; measured were 8 to 1000 bytes;
         assumed: 0.00992 GB/s for the bytes above them, as between the largest sizes']
        """
        sentences: dict[str, None] = {}
        for operation, members, nbytes, inside in self.asked:
            if operation == MESSAGE and not nbytes:
                continue
            where = " in a node's memory" * inside
            what = (MESSAGE + "s" if operation == MESSAGE else f"{operation} of {members} ranks") + where
            points = self._points(operation, members, inside)
            if points is None:
                known = sorted(count for name, count in self.profile.measured(inside) if name == operation)
                near = min(known, key=lambda count: abs(count - members))
                points = self.profile.measured(inside)[operation, near]
                ranks = ", ".join(map(str, known))
                sentences[
                    f"network: found {what}; measured was {operation} of {ranks} ranks{where}; assumed: the bytes that "
                    f"each rank of {members} sends at the speed of {near}, and a latency by log2 of the ranks"
                ] = None
            if not points[0][0] <= nbytes <= points[-1][0]:
                sentences[f"network: found {what} of {nbytes} bytes; {_assumed(points, nbytes)}"] = None
        return list(sentences)

    def _points(self, operation: str, members: int, inside: bool) -> Points | None:
        if operation == MESSAGE:
            return self.profile.measured_messages(inside)
        if members < 2:
            return ((0, 0.0), (sys.maxsize, 0.0))  # a single member sends nothing
        return self.profile.measured(inside).get((operation, members))


def _assumed(points: Points, nbytes: int) -> str:
    """Describes the measured sizes, and how `seconds_at` continues them to a size outside."""
    measured = f"measured were {' to '.join(str(size) for size in sorted({points[0][0], points[-1][0]}))} bytes"
    if len(points) == 1:
        return f"{measured}; assumed: a time in proportion to the bytes"
    above = nbytes > points[-1][0]
    slope = _slope(points, above=above)
    speed = f"{1e-9 / slope:.3g} GB/s" if slope else "no time"
    of = "largest" if above else "smallest"
    return f"{measured}; assumed: {speed} for the bytes {'above' if above else 'below'} them, as between the {of} sizes"
