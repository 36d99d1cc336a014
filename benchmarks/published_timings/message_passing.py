"""MPI and gloo: rounds of messages between ranks at a distance, with several ranks on each node.

Rules of this file:

* Ranks fill one node after the other. A round at distance d leaves some node unless blocks of 2 d ranks fill every node
  exactly; then its cards are shared by as many ranks as have their partner on another node. Inside a node, ranks share
  the memory bandwidth.
* The library chooses the algorithm. If its version is not known, the cheapest one of the versions before 5 is taken;
  since then a two-level algorithm with one leader per node is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial

from paceline.topologies.catalogue.charge_rates import CACHE_BYTES_PER_CORE, CORE_CACHE_BYTES_PER_S
from paceline.topologies.catalogue.libraries import (
    CACHE_TRAFFIC,
    CARD_MESSAGES_PER_S,
    EXCHANGE_S,
    HIERARCHY_SEGMENT_BYTES,
    HIERARCHY_SINCE,
    KNOMIAL_RADIX,
    LIBRARIES,
    MEMORY_TRAFFIC,
)
from paceline.topologies.graphs.wires import link_named
from published_timings.cost_model import STEPS, Cost
from published_timings.machines import Machine
from published_timings.simulated import MachineFabric, all_reduce_s

NODE_MEMORY_BYTES_PER_S = {"cpu": 2 * 204.8e9, "manycore": 90e9}
"""bandwidth of a node: two sockets with eight channels of DDR4-3200, or a KNL's DDR; MEMORY high, which node it is
INFERENCE
"""
CORE_BYTES_PER_S = CORE_CACHE_BYTES_PER_S / MEMORY_TRAFFIC
"""bytes of sum that one core makes per second in its cache"""
SLOW_CORES = {"manycore": 3.0}
"""factor of the time that a core needs for the software of a message: MEMORY medium (1.4 GHz, two wide)"""
COPIES_SINCE = 2017
"""GPUs before this year send through their host, one copy after the other: INFERENCE"""

Time = tuple[float, float]


def message_passing(machine: Machine, kind: str, nbytes: float) -> Iterator[Cost]:
    """Returns the ways that MPI may take."""
    if kind != "allreduce":
        yield _textbook(machine, kind, nbytes)
        return
    hierarchical = not machine.algorithms and (machine.version or (0, 0)) >= HIERARCHY_SINCE
    if hierarchical and 1 < machine.nodes < machine.ranks:
        yield Cost("hierarchy", *_hierarchy(machine, nbytes))
        return
    for algorithm in _chosen(machine, nbytes):
        if machine.workers_per_node == 1 and nbytes / 4 >= machine.ranks:
            yield Cost(algorithm, *_played(machine, algorithm, nbytes))
            continue
        message = partial(_message, machine, vector=nbytes)
        yield Cost(algorithm, *ALGORITHMS[algorithm](message, machine.ranks, nbytes))


def _played(machine: Machine, algorithm: str, nbytes: float) -> Time:
    """Yields the ways with one rank per node: its cards are not shared, and the simulator's patterns are those of the
    library.
    """
    name = {"reduce-broadcast": "binomial-tree"}.get(algorithm, algorithm)
    million_s = _message(machine, 1e6, machine.ranks)[1]  # includes copies over the host
    between = replace(machine.between, bytes_per_s=1e6 / million_s)
    fabric = MachineFabric(replace(machine, between=between))
    message = partial(_message, machine, distance=machine.ranks, exchange=name != "binomial-tree")
    return all_reduce_s(fabric, name, nbytes, lambda _, size: message(nbytes=size)[0], 1 / CORE_BYTES_PER_S)


def _chosen(machine: Machine, nbytes: float) -> set[str]:
    library = LIBRARIES["mpi"]
    named = {one for one in machine.algorithms if one in ALGORITHMS}
    versions = [machine.version] if machine.version else [(1, 0), (999, 0)]
    found = {library.algorithm(machine.ranks, nbytes, version) for version in versions}
    return named or {one for one in found if one} or set(ALGORITHMS)


def _message(
    machine: Machine,
    nbytes: float,
    distance: int,
    adds: bool = False,
    active: float = 1.0,
    vector: float = math.inf,
    exchange: bool = False,
) -> Time:
    """Returns the latency and transfer of a message while a fraction `active` of the ranks of a node send at once.

    Args:
        machine: The machine.
        nbytes: Bytes of the message.
        distance: Distance to the destination rank; 0 for a neighbour on the same node.
        adds: Whether the receiver adds the data to its own.
        active: Fraction of ranks that send.
        vector: Bytes of a rank's whole vector.
        exchange: Whether every rank sends and receives at once.
    """
    ranks = machine.workers_per_node
    sending = max(1.0, ranks * active)
    cached = 2 * vector <= CACHE_BYTES_PER_CORE  # what is received lies beside the vector
    memory = NODE_MEMORY_BYTES_PER_S.get(machine.chip.generation, math.inf)
    memory /= CACHE_TRAFFIC if cached else MEMORY_TRAFFIC
    if _leaves(machine, distance):
        crossing = max(1.0, min(ranks, distance) * active)
        hop, rate = machine.between, machine.between.bytes_per_s / crossing
        latency_s = hop.latency_s + (crossing - 1) / CARD_MESSAGES_PER_S
    else:
        hop, rate = machine.inside, min(machine.inside.bytes_per_s, memory / sending)
        latency_s = hop.latency_s
    if not machine.chip.is_host and machine.chip.year < COPIES_SINCE:
        card = link_named(f"pcie{max(3, machine.chip.pcie)}-device")
        latency_s += 2 * card.latency_s
        rate = 1 / (1 / rate + 2 / card.bytes_per_s)
    latency_s *= SLOW_CORES.get(machine.chip.generation, 1.0)
    protocol = LIBRARIES["mpi"].message(nbytes, hop.transport)
    latency_s = protocol.latency_factor * latency_s + protocol.step_extra_s
    if exchange:
        latency_s += EXCHANGE_S * SLOW_CORES.get(machine.chip.generation, 1.0)
    adding_s = nbytes * (1 / CORE_BYTES_PER_S if cached else max(1 / CORE_BYTES_PER_S, sending / memory))
    return latency_s, nbytes / rate + (adding_s if adds else 0.0)


def _leaves(machine: Machine, distance: int) -> bool:
    """Whether a round of exchanges at a distance leaves a node: 96 ranks are one and a half blocks of 64."""
    return machine.nodes > 1 and distance > 0 and machine.workers_per_node % (2 * distance) > 0


Message = Callable[..., Time]


def _total(messages: Iterable[Time]) -> Time:
    times = list(messages)
    return sum(one[0] for one in times), sum(one[1] for one in times)


def _folded(message: Message, p: int, nbytes: float) -> list[Time]:
    """Ranks beyond a power of two send their vectors before and get the result after."""
    return [] if p & (p - 1) == 0 else [message(nbytes, 1, True, 0.5), message(nbytes, 1, False, 0.5)]


def _doubling(message: Message, p: int, nbytes: float) -> Time:
    rounds = [message(nbytes, 2**n, True, exchange=True) for n in range(int(math.log2(p)))]
    return _total(rounds + _folded(message, p, nbytes))


def _halving(message: Message, p: int, nbytes: float) -> Time:
    rounds = []
    for n in range(int(math.log2(p))):
        part = nbytes / 2 ** (n + 1)
        rounds += [message(part, 2**n, adds, exchange=True) for adds in (True, False)]
    return _total(rounds + _folded(message, p, nbytes))


def _ring(message: Message, p: int, nbytes: float) -> Time:
    if nbytes / 4 < p:  # with fewer numbers than ranks, Open MPI uses the algorithm below
        return _doubling(message, p, nbytes)
    adding, copying = (_neighbours(message, p, nbytes / p, adds) for adds in (True, False))
    return (p - 1) * (adding[0] + copying[0]), (p - 1) * (adding[1] + copying[1])


def _neighbours(message: Message, p: int, nbytes: float, adds: bool) -> Time:
    """All send to the next at once: one rank of a node to another node, the others inside; the slower one counts."""
    across, inside = message(nbytes, p, adds, 1 / p, exchange=True), message(nbytes, 0, adds, exchange=True)
    return max(across[0], inside[0]), max(across[1], inside[1])


def _tree(message: Message, p: int, nbytes: float) -> Time:
    """Up a binomial tree, then down one. Of the remaining ranks, every second sends."""
    levels = range(math.ceil(math.log2(p)))
    up, down = ([message(nbytes, 2**n, adds, 0.5 / 2**n) for n in levels] for adds in (True, False))
    return _total(up + down)


def _hierarchy(machine: Machine, nbytes: float) -> Time:
    """Segments are reduced inside every node and broadcast inside it, one after the other; one leader per node is part
    of a tree.

    Nodes process a segment while the leaders process the previous one.
    """
    segment = min(nbytes, HIERARCHY_SEGMENT_BYTES)
    within = partial(_message, replace(machine, nodes=1, ranks=machine.workers_per_node), vector=segment)
    levels = range(math.ceil(math.log2(machine.workers_per_node)))
    up = [within(segment, 2**n, True, 0.5 / 2**n) for n in levels]
    radix = KNOMIAL_RADIX
    wide = range(math.ceil(math.log(machine.workers_per_node, radix) - 1e-9))
    down = [within(segment, radix**n, False, (1 - 1 / radix) / radix**n) for n in wide]
    node = _total(up + down)
    leaders = _tree(partial(_message, replace(machine, ranks=machine.nodes)), machine.nodes, segment)
    slow, quick = (node, leaders) if sum(node) > sum(leaders) else (leaders, node)
    times = nbytes / segment
    return times * slow[0] + quick[0], times * slow[1] + quick[1]


ALGORITHMS: dict[str, Callable[[Message, int, float], Time]] = {
    "recursive-doubling": _doubling,
    "halving-doubling": _halving,
    "ring": _ring,
    "reduce-broadcast": _tree,
}


def _textbook(machine: Machine, kind: str, nbytes: float) -> Cost:
    """Other collectives: a binomial tree for one root, otherwise a ring."""
    p = machine.ranks
    message = partial(_message, machine, vector=nbytes)
    if kind in ("broadcast", "reduce"):
        levels = [message(nbytes, 2**n, kind == "reduce", 0.5 / 2**n) for n in range(math.ceil(math.log2(p)))]
        return Cost("binomial", *_total(levels))
    if kind == "alltoall":
        latency_s, transfer_s = message(nbytes / p, p)
    else:
        latency_s, transfer_s = _neighbours(message, p, nbytes / p, kind == "reducescatter")
    return Cost("ring", (p - 1) * latency_s, (p - 1) * transfer_s)


def gloo(machine: Machine, kind: str, nbytes: float) -> Iterator[Cost]:
    """Rings: in old versions with whole vectors, one round after the other (FOUND gloo/allreduce_ring.h @cc44198), or
    4 p steps; in new ones at least two segments per rank, two of them in flight.
    """
    protocol = LIBRARIES["gloo"].protocols[0]
    p, hop = machine.ranks, machine.between if machine.nodes > 1 else machine.inside
    step_s = hop.latency_s + protocol.step_extra_s
    rate = min(hop.bytes_per_s, protocol.limit_bytes_per_s)
    if "ring-whole" in machine.algorithms and kind == "allreduce":
        # a round: copy to the outbox, send, add, and tell the neighbour that its inbox is free; nothing overlaps
        byte_s = 1 / rate + 2 / CORE_BYTES_PER_S
        yield Cost("ring-whole", 2 * (p - 1) * step_s, (p - 1) * nbytes * byte_s)
    else:
        steps, share = STEPS[kind] * (p - 1), STEPS[kind] * (p - 1) / p
        yield Cost("ring", 2 * steps * step_s, nbytes * share / rate)
