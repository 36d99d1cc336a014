"""The settings of the claims: clusters, methods with their hyper-parameters, and the learning rates that are tried.

Rules of this file:

* All methods of a setting have the same workers, network, batch, jitter and end. Only the method differs.
* A network is defined by the time that the trained weights, 19 kB, need in it: `message_s` relative to a step of 10 ms.
  The clusters of the papers sent models of 0.3 to 250 MB; only the ratio to a step is of the same order here.
  Provenance of every number: ours, because the numbers of the papers are mostly not known to us.
* The learning rate is not an option of a method: every method is run at every rate of its grid.
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
"""learning rates of every method, from 0.0125 to 3.2"""
LOW = tuple(rate / 4 for rate in GRID)
"""learning rates of methods with momentum, whose steps are up to 1 / (1 − 0.9) times as long"""
FINE = tuple(0.025 * 2 ** (power / 2) for power in range(17))
"""learning rates to find the largest stable one, from 0.025 to 6.4, in steps of 41 %"""

STEP_S = 0.01
"""time of a batch of 16"""
LATENCY_S = 50e-6


@dataclass(frozen=True, slots=True)
class Setting:
    """A cluster, a batch and an end."""

    name: str
    words: str
    nodes: int = 1
    workers_per_node: int = 1
    message_s: float = 0.0001
    """time of the weights from one node to another"""
    local_s: float = 0.0001
    """time of the weights from one rank to another in one node"""
    batch: int = 16
    seconds: float | None = None
    """the end, in virtual time …"""
    samples: int | None = None
    """… or in samples of all workers"""
    target: float = 0.93
    """the target accuracy of times to accuracy"""
    unlike: bool = False
    """whether the speeds of the workers differ, as in benchmarks/dbs.py"""

    @property
    def end(self) -> float:
        """The unit of the end: seconds or samples."""
        return self.seconds or self.samples or 0

    @property
    def unit(self) -> float:
        """The factor from the unit of the run to that of figures: ms, or samples."""
        return 1.0 if self.seconds is None else 1e3

    def cluster(self) -> dict[str, Any]:
        """Returns the section of the scenario."""
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
    """Returns a link over which the weights take this time, latency included."""
    latency_s = min(LATENCY_S, message_s / 10)
    return {"latency": f"{latency_s!r} s", "bandwidth": f"{8 * _nbytes() / (message_s - latency_s)!r} bit/s"}


@dataclass(frozen=True, slots=True)
class Contender:
    """A method with its options, in a setting."""

    method: str
    setting: Setting
    options: tuple[tuple[str, Any], ...] = ()
    scale: float = 1.0
    """the factor of the learning rates of the grid"""
    grid: tuple[float, ...] = field(default=GRID, repr=False, compare=False)

    @property
    def label(self) -> str:
        """The method and its options."""
        shown = [f"{key} {'none' if value is None else value}" for key, value in self.options]
        return f"{self.method} ({', '.join(shown)})" if shown else self.method

    def scenario(self, rate: float, seed: int) -> dict[str, Any]:
        """Returns the scenario of one run.

        Args:
            rate: A learning rate of the grid. The method's own is `scale` times as large.
            seed: Of initial weights, samples and jitter.
        """
        one = self.setting
        stop: dict[str, Any] = {"samples": one.samples} if one.seconds is None else {"seconds": f"{one.seconds!r} s"}
        return {
            "name": "claims",
            "algorithms": [{"name": self.method, "learning_rate": rate * self.scale, **dict(self.options)}],
            "workload": {"model": MODEL, "dataset": "digits", "batch_per_worker": one.batch},
            "cluster": one.cluster(),
            "evaluate": {"every": f"{max(128, one.batch)} samples"},
            "stop": {**stop, "divergence": False},  # a diverged loss may decrease again
            "seed": seed,
        }


def entered(
    method: str, setting: Setting, *, scale: float = 1.0, grid: tuple[float, ...] | None = None, **options: Any
) -> Contender:
    """Returns a contender with its options as keywords. Without a grid it has the default one of its kind."""
    momentum = options.get("momentum", getattr(METHODS[method], "momentum", 0.0))
    return Contender(method, setting, tuple(options.items()), scale, grid or (LOW if momentum else GRID))
