"""The profile of a machine: costs measured by a short probe, used to predict runs on this machine.

Nothing in a profile is fitted to a run that it predicts. Times are medians over launches of each launch's mean.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.traffic import COMBINE, Traffic
from paceline.topologies.catalogue.gradient_times import GradientTimes

MESSAGE = "message"
Handled = Literal["send", "receive", "start"]
"""work that takes time of a rank's own processor: handing over a message, taking one that has already arrived, and
starting a collective that is waited for later"""
Points = tuple[tuple[int, float], ...]
"""(bytes, seconds) as measured, smallest first"""
Collectives = Mapping[tuple[str, int], Points]
"""by operation and number of members"""


def seconds_at(points: Points, nbytes: int) -> float:
    """Returns the time for `nbytes`: linear between the measured sizes, and that of the nearest size outside them.

    Args:
        points: measured (bytes, seconds), smallest first.
        nbytes: the size in bytes.

    >>> seconds_at(((100, 1.0), (200, 3.0)), 150)
    2.0
    >>> seconds_at(((100, 1.0), (200, 3.0)), 10)
    1.0
    """
    at = bisect_left(points, (nbytes, 0.0))
    if at == 0 or at == len(points):
        return points[min(at, len(points) - 1)][1]
    (low, low_s), (high, high_s) = points[at - 1], points[at]
    return low_s + (high_s - low_s) * (nbytes - low) / (high - low)


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
        samples: the number of operations from which each figure was computed.
        gradients: the times of gradients on this machine's own cores, smallest batch first. Empty if runs are paced.
        cores: the cores that the ranks of a host share.
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
    samples: Mapping[str, int] = field(default_factory=dict)
    gradients: tuple[GradientTimes, ...] = ()
    cores: int = 1

    def gradient(self, batch: int) -> GradientTimes:
        """Returns the times of the measured batch that is nearest to this one.

        Raises:
            KeyError: no gradients were measured.
        """
        if not self.gradients:
            raise KeyError("the profile has no times of gradients")
        return min(self.gradients, key=lambda one: abs(one.batch - batch))

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
        at = min(max(1, bisect_left([one.batch for one in self.gradients], batch)), len(self.gradients) - 1)
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

    def without_spread(self) -> Profile:
        """Returns the profile with gradients that all take their mean time."""
        return replace(self, gradients=tuple(replace(times, factors=(1.0,)) for times in self.gradients))

    def collective_s(self, operation: str, members: int, nbytes: int, inside: bool = False) -> float:
        """Returns seconds of a collective after its last entry, scaled from the nearest probed number of members.

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
        return seconds_at(measured[operation, near], nbytes) * members / near

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


MESSAGE_LEGS = 3
"""latencies per message in gloo's rendezvous: request, answer, data"""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatedProfile:
    """Costs that this machine adds to a network that it emulates, whose rates and latencies are known.

    Args:
        machine: this machine alone: the ranks' own work, and messages and collectives inside a host.
        message_s: a message between hosts without a vector, in addition to `MESSAGE_LEGS` latencies of its route.
        all_reduce_s: an all-reduce of `few_bytes` by all workers, with its route.
        few_bytes: the size of its value.
        packet_bytes: the size of the largest packet, which a line forwards when it is complete.
        leads_s: how long before the last worker each one entered that all-reduce; empty: all at the same time.
        start_s: the time that a program needs to start a collective, until it can start the next.
    """

    machine: Profile
    message_s: float
    all_reduce_s: float
    few_bytes: int
    packet_bytes: int
    leads_s: tuple[float, ...] = ()
    start_s: float = 0.0


@dataclass(frozen=True, slots=True)
class LinkedProfile:
    """The profile of one host, for runs on hosts like it.

    Args:
        machine: the costs of a host.
        between: the costs of messages and collectives between the hosts, as of a network; None: they were not measured,
            and the links of a scenario join the hosts.
        placement: the number of workers on each host when `between` was measured; empty: imported, for all placements.
    """

    machine: Profile
    between: Profile | None = None
    placement: tuple[int, ...] = ()

    def measured_between(self, placement: tuple[int, ...]) -> Profile | None:
        """Returns the costs between hosts if they were measured with this number of workers on each host.

        >>> linked = LinkedProfile(Profile(), Profile(messages=((8, 1e-3),)), (2, 2))
        >>> linked.measured_between((2, 2)).messages, linked.measured_between((2, 2, 2))
        (((8, 0.001),), None)
        """
        return self.between if self.placement in ((), placement) else None


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
        >>> [consulted.message_s(nbytes) for nbytes in (500, 4000)][1]
        0.0002
        >>> consulted.outside()
        ['network: found messages of 4000 bytes; measured were 8 to 1000 bytes']
        """
        found: dict[str, None] = {}
        for operation, members, nbytes, inside in self.asked:
            if operation == MESSAGE and not nbytes:
                continue
            where = " in a node's memory" * inside
            what = (MESSAGE + "s" if operation == MESSAGE else f"{operation} of {members} ranks") + where
            points = self._points(operation, members, inside)
            if points is None:
                known = self._members(operation, inside)
                found[f"network: found {what}; measured was {operation} of {known} ranks{where}"] = None
            elif not points[0][0] <= nbytes <= points[-1][0]:
                measured = " to ".join(f"{size}" for size in sorted({points[0][0], points[-1][0]}))
                found[f"network: found {what} of {nbytes} bytes; measured were {measured} bytes"] = None
        return list(found)

    def _points(self, operation: str, members: int, inside: bool) -> Points | None:
        if operation == MESSAGE:
            return self.profile.measured_messages(inside)
        if members < 2:
            return ((0, 0.0), (sys.maxsize, 0.0))  # a single member sends nothing
        return self.profile.measured(inside).get((operation, members))

    def _members(self, operation: str, inside: bool) -> str:
        return ", ".join(str(count) for name, count in sorted(self.profile.measured(inside)) if name == operation)
