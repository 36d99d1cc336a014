"""Readers that begin together, in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import simpy

from paceline.algorithms.core.values import Samples
from paceline.records.trace import Reads
from paceline.simulator.interpreter.loading import Supply
from paceline.simulator.interpreter.storage import Stores
from paceline.topologies.catalogue.storage_devices import StorageModel
from paceline.workloads.reading import Held, Order, Piece


def finished_s(
    storage: StorageModel,
    wanted: Sequence[Sequence[Piece]],
    *,
    nodes: Sequence[int] | None = None,
    record_bytes: int = 1,
) -> list[float]:
    """Returns when each reader has read everything, all beginning at 0; each on its own node, or on these."""
    env = simpy.Environment(0.0)
    nodes = range(len(wanted)) if nodes is None else nodes
    stores = Stores(env, storage, record_bytes, list(nodes))
    ends_s = [0.0] * len(wanted)

    def note(place: int) -> None:
        ends_s[place] = env.now

    for place, pieces in enumerate(wanted):
        reader = stores.reader(nodes[place])
        stores.read(reader, reader.ask(pieces), partial(note, place))
    env.run()
    return ends_s


def apart(count: int, size: int, *, start: int = 0, gap: int = 1) -> list[Piece]:
    """Returns this many pieces of the same size, none of which continues the one before."""
    return [Piece(start + place * (size + gap), size) for place in range(count)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted(Order):
    """An order that records the requests."""

    asked: list[Samples] = field(default_factory=list)

    def pieces(self, samples: Samples) -> list[Piece]:
        self.asked.append(samples)
        return Order.pieces(self, samples)


def supply(
    storage: StorageModel, *, workers: int, prefetch: int = 2, order: Order | None = None, record_bytes: int = 100
) -> Supply:
    """For so many workers, each on a node of its own; the 64 samples of a bowl where no order is given."""
    order = order or Noted(strategy="contiguous", num_samples=64, seed=1, buffer=16)
    nodes = list(range(workers))
    return Supply(storage=storage, order=order, record_bytes=record_bytes, prefetch=prefetch, nodes=nodes)


def counted(order: Order, batches: Sequence[Samples], record_bytes: int) -> Reads:
    """Returns the requests of one reader for these batches."""
    held, end = Held(), None
    requests = seeks = nbytes = 0
    for samples in batches:
        for first, records in held.fresh(Order.pieces(order, samples)):
            requests, seeks, nbytes = requests + 1, seeks + (first != end), nbytes + records * record_bytes
            end = first + records
    return Reads(requests, seeks, nbytes)
