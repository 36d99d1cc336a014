"""The time of a collective on a machine that was read from a table, separated into latency and bandwidth.

Rules of this file:

* A `Cost` is one way to run it: an algorithm with a protocol. Its time is λ · latency_s + transfer_s / σ. The catalogue
  means λ = σ = 1, and only these two factors are ever fitted.
* NCCL's collectives are those of the product on the product's cluster (`clusters.py`). All collectives of MPI with one
  rank per node are run by the simulator (`simulated.py`); several ranks per node use closed forms, those of
  `message_passing.py`.
* A library that takes the cheapest way gets all of them, the product's choice first; a library that decides by a table
  gets only those of the table.
"""

from __future__ import annotations

from dataclasses import dataclass

from published_timings.machines import Machine
from published_timings.parsing import Unread

STEPS = {"allreduce": 2.0, "reducescatter": 1.0, "allgather": 1.0, "broadcast": 1.0, "reduce": 1.0, "alltoall": 1.0}
"""number of times that data goes around a ring"""


@dataclass(frozen=True, slots=True)
class Cost:
    """One way to run a collective."""

    name: str
    latency_s: float
    transfer_s: float

    def seconds(self, latency_factor: float = 1.0, bandwidth_factor: float = 1.0) -> float:
        """Returns λ · latency + transfer / σ.

        >>> Cost("ring", 1.0, 4.0).seconds(2.0, 4.0)
        3.0
        """
        return latency_factor * self.latency_s + self.transfer_s / bandwidth_factor


def cheapest_s(costs: tuple[Cost, ...], latency_factor: float = 1.0, bandwidth_factor: float = 1.0) -> float:
    """Returns the seconds of the cheapest way."""
    return min(cost.seconds(latency_factor, bandwidth_factor) for cost in costs)


def kind_of(text: str) -> str:
    """Returns the collective that a word means. Raises `Unread`.

    >>> kind_of("All-Reduce"), kind_of("reduce_scatter_perf")
    ('allreduce', 'reducescatter')
    """
    word = "".join(letter for letter in text.lower() if letter.isalpha())
    for kind in STEPS:
        if kind in word:
            return kind
    if not word or "bcast" in word:
        return "broadcast" if word else "allreduce"
    raise Unread(f"collective: found {text!r}, which is not modelled")


def costs(machine: Machine, kind: str, nbytes: float) -> tuple[Cost, ...]:
    """Returns the ways in which the machine's library may run a collective, its choice first.

    Raises:
        Unread: there is none.
    """
    from published_timings.clusters import costs_of
    from published_timings.message_passing import gloo, message_passing

    if machine.library == "nccl":
        return costs_of(machine, kind, nbytes)
    make = {"mpi": message_passing, "gloo": gloo}[machine.library]
    found = tuple(sorted(make(machine, kind, nbytes), key=lambda cost: cost.seconds()))
    if not found:
        raise Unread(f"{machine.library} {machine.version} has no {' or '.join(machine.algorithms)} for {kind}")
    return found
