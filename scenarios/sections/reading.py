"""The sections of a scenario for the reading of samples, and for the storage."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, model_validator

from paceline import topologies
from paceline.algorithms.core.naming import near_miss
from paceline.scenarios.values import fields
from paceline.scenarios.values.mistakes import complain, expected
from paceline.scenarios.values.section import Default, Field, Given, Nested, Quantity, Section
from paceline.topologies import STORAGE
from paceline.topologies.catalogue.storage_devices import MIB, READ_AHEAD
from paceline.workloads import reading
from paceline.workloads.reading.orders import BUFFER

GIVEN = "given in the scenario"


class Reading(Section):
    """How samples are read from storage."""

    strategy: Default[fields.StrategyName] = Field(
        default="contiguous",
        description="scattered: every sample anywhere; strided; contiguous: one run per worker, another in each epoch; "
        "or sharded: always the same run",
    )
    buffer: Default[fields.Count] = Field(
        default=BUFFER, description="records shuffled among each other, where contiguous or sharded"
    )
    prefetch: Default[fields.Prefetched] = Field(
        default=2, description="batches read ahead; 0: a worker waits for every batch"
    )
    record: Quantity[fields.Size | None] = Field(
        default=None,
        description="size of one sample in the file, with its unit: '110 kB'; default: that of the data set",
    )

    def settings(self) -> reading.ReadingSettings:
        """Returns the settings for the workload."""
        record = None if self.record is None else round(self.record)
        return reading.ReadingSettings(
            strategy=self.strategy, buffer=self.buffer, prefetch=self.prefetch, record=record
        )


class Storage(Section):
    """The storage that samples are read from."""

    name: Default[fields.Name] = Field(
        default="inline",
        description="a name of `paceline list storage`, which gives defaults for the other values; or a new name",
    )
    latency: Given[fields.Time, str | float] = Field(
        description="a time with its unit: latency of a request that does not continue another one, '0.7 ms'"
    )
    bandwidth: Given[fields.Rate, str | float] = Field(
        description="a bandwidth with its unit: total of all readers, '10 GB/s'"
    )
    reader: Quantity[fields.Rate | None] = Field(
        default=None, description="bandwidth limit of one reader, with its unit; default: no limit"
    )
    client: Quantity[fields.Rate | None] = Field(
        default=None, description="bandwidth limit of all readers of a node, with its unit; default: no limit"
    )
    depth: fields.Factor | None = Field(
        default=None,
        description="requests whose latencies overlap, also 1.5; 1: a disk with one arm; default: no limit",
    )
    waiting: Default[fields.Share] = Field(
        default=0.0, description="fraction of a request's latency that excludes other requests, 0 to 1"
    )
    stripes: Default[fields.Stripes] = Field(
        default=1, description="servers that the file lies on, with equal bandwidths"
    )
    stripe: Quantity[fields.Size] = Field(
        default=float(MIB), description="amount of the file on one server before the next: '1 MiB'"
    )
    read_ahead: Quantity[fields.Size | None] = Field(
        default=float(READ_AHEAD), description="distance of read-ahead for sequential readers: '128 KiB'; null: none"
    )
    shared: Default[fields.Flag] = Field(default=False, description="true: one for all nodes; false: one in each")
    provenance: Nested[dict[str, str]] = Field(default={}, description="source of each value")

    @model_validator(mode="before")
    @classmethod
    def _completed(cls, value: object) -> object:
        """Takes the values that are not given from the storage of this name in the catalogue."""
        if not isinstance(value, dict) or not isinstance(name := value.get("name"), str) or name not in STORAGE:
            return value
        known = known_storage(name).model_dump(mode="json")
        own = {key: part for key, part in value.items() if key not in known or part != known[key]}
        given = dict.fromkeys([key for key in known["provenance"] if key in own], GIVEN)
        return known | {"provenance": known["provenance"] | given} | own

    @model_validator(mode="after")
    def _one_arm(self) -> Storage:
        if self.depth == 1 and self.stripes > 1:
            complain([(("depth",), expected("2 or more, or null, where a file lies on several servers"), 1)])
        return self

    def build(self) -> topologies.StorageModel:
        """Returns the storage."""
        return topologies.StorageModel(
            name=self.name,
            latency_s=self.latency,
            bytes_per_s=self.bandwidth,
            one_bytes_per_s=self.reader,
            client_bytes_per_s=self.client,
            depth=self.depth,
            waiting=self.waiting,
            stripes=self.stripes,
            stripe_bytes=max(1, round(self.stripe)),
            read_ahead_bytes=None if self.read_ahead is None else max(1, round(self.read_ahead)),
            shared=self.shared,
            provenance=self.provenance,
        )


def known_storage(name: str) -> Storage:
    """Returns a storage of the catalogue as a section."""
    storage = STORAGE[name]
    return Storage.model_construct(
        name=storage.name,
        latency=storage.latency_s,
        bandwidth=storage.bytes_per_s,
        reader=storage.one_bytes_per_s,
        client=storage.client_bytes_per_s,
        depth=storage.depth,
        waiting=storage.waiting,
        stripes=storage.stripes,
        stripe=float(storage.stripe_bytes),
        read_ahead=None if storage.read_ahead_bytes is None else float(storage.read_ahead_bytes),
        shared=storage.shared,
        provenance=dict(storage.provenance),
    )


def _storage(value: object) -> object:
    if isinstance(value, str) and value in STORAGE:
        return known_storage(value)
    if isinstance(value, dict | Storage):
        return value
    raise expected(f"one of {', '.join(STORAGE)}, or a mapping with latency and bandwidth{near_miss(value, STORAGE)}")


AnyStorage = Annotated[
    Storage,
    BeforeValidator(_storage, json_schema_input_type=Annotated[str, fields.choices(*STORAGE)] | Storage),
]
