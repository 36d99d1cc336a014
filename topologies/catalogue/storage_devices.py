"""Storage: the cost of a request for bytes of a file, alone and with concurrent readers.

The model:

* A reader has one request in flight at a time. A request costs a latency, then the transfer of its bytes.
* A request that continues at the end of the reader's last one was read ahead, and costs no latency. Without
  `read_ahead_bytes` every request costs the latency.
* The bytes come from `stripes` servers with equal parts of the bandwidth, which all readers share max-min fairly:
  stripe number i of `stripe_bytes` is on server i mod `stripes`. Readers of one node also share the client bandwidth.
* `depth` latencies overlap, so there are never more than depth / latency requests per second. If a fraction `waiting`
  of each latency cannot overlap with others, k readers make at most k / (latency (1 + waiting (k − 1))) requests.
* A device of depth 1 has one arm. It does one thing at a time, a latency or a transfer, and serves its readers in turn.
  After it has served another reader it must seek back: a latency for every `read_ahead_bytes` of a sequential reader.

Values of known storage are in `data/storage.yaml`, not here, and are read when first needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from math import inf
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, StringConstraints

from paceline.topologies.catalogue.device_catalogue import DATA

KIB, MIB = 2**10, 2**20
READ_AHEAD = 128 * KIB
"""default in bytes: what Linux reads ahead, MEMORY high"""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageModel:
    """Storage for files; the model is described at the head of this file.

    A run of r records of s bytes each takes L + r s / B without concurrent readers.

    Args:
        latency_s: L, of a request that does not continue another one.
        bytes_per_s: B, the bandwidth of all readers together.
        one_bytes_per_s: the bandwidth limit of one reader; None: no limit.
        client_bytes_per_s: the bandwidth limit of the readers of one node together; None: no limit.
        depth: requests whose latencies overlap, on average; 1: one arm; None: no limit.
        waiting: the fraction of a latency that cannot overlap with others, 0 to 1.
        stripes: the number of servers of a file.
        stripe_bytes: bytes of a file on one server before the next one follows.
        read_ahead_bytes: how far the system reads ahead of a sequential reader; None: not at all.
        shared: whether there is one storage for all nodes, or one in each.
        title: a description.
        provenance: of each value, by its name in scenarios.

    >>> round(STORAGE["hdd"].run_s(110_000) * 1e3, 2), round(STORAGE["hdd"].run_s(64 * 110_000) * 1e3, 2)
    (9.03, 55.23)
    """

    name: str
    latency_s: float
    bytes_per_s: float
    one_bytes_per_s: float | None = None
    client_bytes_per_s: float | None = None
    depth: float | None = None
    waiting: float = 0.0
    stripes: int = 1
    stripe_bytes: int = MIB
    read_ahead_bytes: int | None = READ_AHEAD
    shared: bool = False
    title: str = ""
    provenance: Mapping[str, str] = field(default_factory=dict)

    @property
    def server_bytes_per_s(self) -> float:
        """The bandwidth of one of its servers."""
        return self.bytes_per_s / self.stripes

    @property
    def one_arm(self) -> bool:
        """Whether it does one thing at a time."""
        return self.depth == 1

    @property
    def limited(self) -> bool:
        """Whether the number of requests per second that do not continue another one is limited."""
        return self.latency_s > 0 and (self.depth is not None or self.waiting > 0)

    def requests_per_s(self, readers: int) -> float:
        """Returns the highest rate of requests that do not continue another one, for `readers` readers.

        min(D, k / (1 + w (k − 1))) / L

        The second term is Amdahl's law, or Gunther's law of scalability without its coherence term: a fraction w of a
        request is served while no other request is.

        >>> half = StorageModel(name="x", latency_s=0.25, bytes_per_s=1.0, depth=8, waiting=0.5)
        >>> [round(half.requests_per_s(readers), 3) for readers in (1, 2, 10_000)]
        [4.0, 5.333, 7.999]
        """
        at_once = readers / (1 + self.waiting * (readers - 1))
        return min(self.depth or inf, at_once) / self.latency_s if self.latency_s > 0 else inf

    @property
    def limit_bytes_per_s(self) -> float:
        """The highest bandwidth of one reader, for any number of servers."""
        return min(self.client_bytes_per_s or inf, self.one_bytes_per_s or inf)

    @property
    def reader_bytes_per_s(self) -> float:
        """The bandwidth of one reader from one server."""
        return min(self.server_bytes_per_s, self.limit_bytes_per_s)

    def transfer_s(self, parts: Mapping[int, float]) -> float:
        """Returns the seconds to transfer one request, with these bytes from each server, to a single reader."""
        return max(max(parts.values()) / self.server_bytes_per_s, sum(parts.values()) / self.limit_bytes_per_s)

    def run_s(self, nbytes: int) -> float:
        """Returns the seconds of a request from the beginning of a file, with its latency, for a single reader."""
        return self.latency_s + self.transfer_s(self.parts(0, nbytes))

    def parts(self, start: int, nbytes: int) -> dict[int, float]:
        """Returns how many of the bytes from `start` on are on each server, for servers with any.

        Args:
            start: offset in the file, in bytes.
            nbytes: the number of bytes.

        >>> StorageModel(name="x", latency_s=0.0, bytes_per_s=1.0, stripes=3, stripe_bytes=10).parts(5, 32)
        {0: 12.0, 1: 10.0, 2: 10.0}
        """
        if self.stripes == 1:
            return {0: float(nbytes)}
        first, last = start // self.stripe_bytes, (start + nbytes - 1) // self.stripe_bytes
        if first == last:
            return {first % self.stripes: float(nbytes)}
        nbytes_of = {first % self.stripes: float((first + 1) * self.stripe_bytes - start)}
        rounds, rest = divmod(last - first - 1, self.stripes)
        for place in range(self.stripes if rounds else rest):
            server, whole = (first + 1 + place) % self.stripes, rounds + (place < rest)
            nbytes_of[server] = nbytes_of.get(server, 0.0) + whole * self.stripe_bytes
        server = last % self.stripes
        nbytes_of[server] = nbytes_of.get(server, 0.0) + (start + nbytes - last * self.stripe_bytes)
        return nbytes_of


# --- known storage ---------------------------------------------------------------------------------------------------

_Figure = tuple[float, Annotated[str, StringConstraints(pattern=r"^(FOUND|DERIVED|INFERENCE|MEMORY)\b")]]
KEYS = {
    "latency_ms": "latency",
    "gb_per_s": "bandwidth",
    "client_gb_per_s": "client",
    "depth": "depth",
    "stripes": "stripes",
    "stripe_kib": "stripe",
    "read_ahead_kib": "read_ahead",
}
"""names of values of the file without a unit, as in scenarios"""


class _StorageEntry(BaseModel):
    """Storage as in its file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str
    shared: bool = False
    latency_ms: _Figure
    gb_per_s: _Figure
    client_gb_per_s: _Figure | None = None
    depth: _Figure | None = None
    stripes: _Figure | None = None
    stripe_kib: _Figure | None = None
    read_ahead_kib: _Figure

    def storage(self, name: str) -> StorageModel:
        """Returns the values in SI units."""
        given: dict[str, _Figure] = {key: value for key, value in self if isinstance(value, tuple)}

        def whole(key: str, scale: int = 1) -> int | None:
            return round(given[key][0] * scale) if key in given else None

        return StorageModel(
            name=name,
            latency_s=float(f"{self.latency_ms[0]}e-3"),  # exactly the decimal value of the file
            bytes_per_s=self.gb_per_s[0] * 1e9,
            client_bytes_per_s=self.client_gb_per_s[0] * 1e9 if self.client_gb_per_s else None,
            depth=whole("depth"),
            stripes=whole("stripes") or 1,
            stripe_bytes=whole("stripe_kib", KIB) or MIB,
            read_ahead_bytes=whole("read_ahead_kib", KIB),
            shared=self.shared,
            title=self.title,
            provenance={KEYS[key]: words for key, (_, words) in given.items()},
        )


@cache
def _read() -> dict[str, StorageModel]:
    raw: dict[str, Any] = yaml.safe_load((DATA / "storage.yaml").read_text(encoding="utf-8"))
    return {name: _StorageEntry(**entry).storage(name) for name, entry in raw.items()}


class _Known(Mapping[str, StorageModel]):
    """Reads the file at the first access."""

    def __getitem__(self, name: str) -> StorageModel:
        return _read()[name]

    def __iter__(self) -> Any:
        return iter(_read())

    def __len__(self) -> int:
        return len(_read())


STORAGE: Mapping[str, StorageModel] = _Known()
"""known storage by name"""
