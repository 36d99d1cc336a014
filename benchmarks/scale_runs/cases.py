"""The cases of `scale.py`: what is simulated, and what it may cost."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from paceline.workloads.models.zoo import IMAGENET

GIBIBYTE = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One simulated run."""

    name: str
    algorithm: str
    workers: int
    steps: int
    """gradients of each worker"""
    gpus_per_node: int = 8
    device: str | None = None
    """the device of nodes with one worker each; None: nodes with GPUs"""
    batch: int = 32
    """most samples of a gradient"""
    settings: dict[str, Any] = field(default_factory=dict)
    """hyper-parameters of the method"""
    learning: str = "none"
    aim_s: float | None = None
    """seconds of wall time on an idle core that it should stay below"""
    aim_bytes: float | None = None
    aim_floor: float | None = None
    """largest CPU time relative to drawing as many lognormal numbers with NumPy alone"""

    @property
    def worker_steps(self) -> int:
        return self.workers * self.steps

    def scenario(self) -> dict[str, Any]:
        """Returns the scenario: workers with jitter on a fat tree of InfiniBand links, evaluated only at both ends.

        The nodes are those of the scenario fat-tree-100k: eight GPUs behind PCIe switches, and one network card. With a
        `device`, a node is one processor, such as a Knights Landing, that trains in the memory of its host.
        """
        nodes = self.workers // self.gpus_per_node
        hosts = nodes if self.device is None else nodes + 1  # and one for the server
        batch = min(self.batch, IMAGENET // self.workers)  # one batch of all workers takes no more than all samples
        return {
            "name": f"{self.algorithm}-{self.workers}",
            "algorithms": [{"name": self.algorithm, **self.settings}],
            "workload": self._workload(batch),
            "cluster": {
                "nodes": [self._node(nodes)],
                "network": {"topology": "fat-tree", "k": ports(hosts), "link": "ib-edr", "routing": "ecmp"},
                "step_time": {"distribution": "lognorm", "sigma": 0.1},
            },
            "evaluate": {"every": f"{self.worker_steps * batch} samples"},
            "stop": {"samples": self.worker_steps * batch},
            "seed": 1,
        }

    def _workload(self, batch: int) -> dict[str, Any]:
        model = "quadratic" if self.learning == "quadratic" else "resnet50"
        return {"model": model, "batch_per_worker": batch, "learning": self.learning}

    def _node(self, count: int) -> dict[str, Any]:
        if self.device is not None:
            return {"device": self.device, "count": count}
        settings = {"roots": 2, "switches": 2, "gpus_per_switch": 2, "nics": 1, "gpu": "p100-pcie"}
        return {"node": "pcie-tree", "settings": settings, "count": count}


def ports(hosts: int) -> int:
    """Returns the ports of the switches of the smallest fat tree with so many hosts: k³/4 ≥ hosts, k even.

    >>> ports(1024), ports(100_000)
    (16, 74)
    """
    k = 2
    while k**3 // 4 < hosts:
        k += 2
    return k


WITHOUT_COPIES: dict[str, Any] = {"device": "knl-7250", "gpus_per_node": 1, "batch": 8}
"""nodes without copies between host and device"""
LARGE = (
    Case(
        name="sync-sgd, 100,000 workers",
        algorithm="sync-sgd",
        workers=100_000,
        steps=1000,
        aim_s=30.0,
        aim_bytes=4 * GIBIBYTE,
        aim_floor=5.0,
    ),
    Case(
        name="hbs-sgd, 16,384 GPUs",
        algorithm="hbs-sgd",
        settings={"k1": 2, "k2": 8, "group": "node"},
        workers=16_384,
        steps=10_000,
        aim_s=60.0,
    ),
    Case(
        name="layerwise-sgd, 1,024 GPUs",
        algorithm="layerwise-sgd",
        settings={"bucket": None},
        workers=1024,
        steps=8,
        aim_s=20.0,
    ),
)
SHORT_SHARE = 10
"""the short form has this many times fewer workers"""


def shortened(case: Case) -> Case:
    """Returns a smaller case without aims, for the short form."""
    workers = case.workers // SHORT_SHARE // case.gpus_per_node * case.gpus_per_node
    steps = max(4, case.steps // SHORT_SHARE)
    return replace(
        case,
        name=f"{case.algorithm}, {workers:,} workers",
        workers=workers,
        steps=steps,
        aim_s=None,
        aim_bytes=None,
        aim_floor=None,
    )


def growth(algorithm: str, sizes: tuple[int, ...] = (1000, 3160, 10_000, 31_600, 100_000)) -> tuple[Case, ...]:
    """Returns runs of growing clusters with ten steps each, from which the exponent of the cost is fitted.

    Args:
        algorithm: the method; nodes of async-sgd have no copies between host and device.
        sizes: the numbers of workers.
    """
    nodes = WITHOUT_COPIES if algorithm == "async-sgd" else {}
    return tuple(
        Case(name=f"{algorithm}, {workers:,} workers", algorithm=algorithm, workers=workers, steps=10, **nodes)
        for workers in sizes
    )


def every_method(names: list[str], workers: int = 1000, steps: int = 1000) -> tuple[Case, ...]:
    """Returns one case for each method, on one cluster."""
    return tuple(Case(name=name, algorithm=name, workers=workers, steps=steps, aim_s=5.0) for name in names)
