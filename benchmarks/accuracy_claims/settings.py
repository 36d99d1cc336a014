"""What the claims are tested on: clusters, methods with their hyper-parameters, and the rates that are tried.

Rules of this file:

* All methods of a setting have the same workers, network, batch, spread and end. What differs is the method.
* A network is given by how long the weights that are trained, 19 kB, take in it: `message_s` against a step of 10 ms.
  The clusters of the papers sent models of 0.3 to 250 MB; it is the ratio to a step that is of the same order here.
  Provenance of every number: ours, since the papers' are mostly not known to us.
* The rate is none of a method's options: every method is run at every rate of its grid.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from accuracy_claims import unequal_workers
from paceline.algorithms import METHODS
from paceline.workloads import MODELS

MODEL = "digits-mlp"
GRID = tuple(0.0125 * 2**power for power in range(9))
"""of every method, from 0.0125 to 3.2"""
LOW = tuple(rate / 4 for rate in GRID)
"""of methods with momentum, whose steps are up to 1 / (1 − 0.9) times as long"""
FINE = tuple(0.025 * 2 ** (power / 2) for power in range(17))
"""for the largest rate that a method stands, from 0.025 to 6.4, in steps of 41 %"""

STEP_S = 0.01
"""of a batch of 16"""
LATENCY_S = 50e-6


@dataclass(frozen=True, slots=True)
class Setting:
    """A cluster, a batch and an end."""

    name: str
    words: str
    nodes: int = 1
    workers_per_node: int = 1
    message_s: float = 0.0001
    """the weights from one node to another"""
    local_s: float = 0.0001
    """the weights from one rank to another in one node"""
    batch: int = 16
    seconds: float | None = None
    """the end, in virtual time …"""
    samples: int | None = None
    """… or in samples of all workers"""
    target: float = 0.93
    """the accuracy that times are measured to"""
    unlike: bool = False
    """whether workers differ, as in benchmarks/dbs.py"""

    @property
    def end(self) -> float:
        """Seconds or samples."""
        return self.seconds or self.samples or 0

    @property
    def unit(self) -> float:
        """What figures of time are multiplied by: they are in ms, or in samples."""
        return 1.0 if self.seconds is None else 1e3

    def cluster(self) -> dict[str, Any]:
        """The scenario's section."""
        if self.unlike:
            return unequal_workers.cluster()
        device = {"name": "device", "overhead": f"{STEP_S / 5} s", "per_sample": f"{STEP_S / 20} s"}
        return {
            "nodes": [{"device": device, "count": self.nodes, "workers_per_node": self.workers_per_node}],
            "network": {"topology": "star", "link": _link(self.message_s), "intra_node_link": _link(self.local_s)},
            "step_time": {"distribution": "lognorm", "sigma": unequal_workers.SPREAD},
        }


@lru_cache
def _nbytes() -> int:
    return MODELS[MODEL].layout().size * 4


def _link(message_s: float) -> dict[str, str]:
    """One through which the weights take so long, latency included."""
    latency_s = min(LATENCY_S, message_s / 10)
    return {"latency": f"{latency_s!r} s", "bandwidth": f"{8 * _nbytes() / (message_s - latency_s)!r} bit/s"}


@dataclass(frozen=True, slots=True)
class Contender:
    """A method with its options, in a setting."""

    method: str
    setting: Setting
    options: tuple[tuple[str, Any], ...] = ()
    scale: float = 1.0
    """what the rates of the grid are multiplied by"""
    grid: tuple[float, ...] = field(default=GRID, repr=False, compare=False)

    @property
    def label(self) -> str:
        """The method and its options."""
        shown = [f"{key} {'none' if value is None else value}" for key, value in self.options]
        return f"{self.method} ({', '.join(shown)})" if shown else self.method

    def scenario(self, rate: float, seed: int) -> dict[str, Any]:
        """One run of it.

        Args:
            rate: of the grid; `scale` times it is the method's.
            seed: of initial weights, samples and spread.
        """
        one = self.setting
        stop: dict[str, Any] = {"samples": one.samples} if one.seconds is None else {"seconds": f"{one.seconds!r} s"}
        return {
            "name": "claims",
            "algorithms": [{"name": self.method, "learning_rate": rate * self.scale, **dict(self.options)}],
            "workload": {"model": MODEL, "dataset": "digits", "batch_per_worker": one.batch},
            "cluster": one.cluster(),
            "evaluate": {"every": f"{max(128, one.batch)} samples"},
            "stop": {**stop, "divergence": False},  # what comes apart may still come back
            "seed": seed,
        }


def entered(
    method: str, setting: Setting, *, scale: float = 1.0, grid: tuple[float, ...] | None = None, **options: Any
) -> Contender:
    """A contender, its options as keywords; without a grid it has that of its kind."""
    momentum = options.get("momentum", getattr(METHODS[method], "momentum", 0.0))
    return Contender(method, setting, tuple(options.items()), scale, grid or (LOW if momentum else GRID))
