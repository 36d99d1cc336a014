"""The runs that `benchmarks/simulator.py` measures: their scenarios, and what they may cost."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from paceline.workloads.models.zoo import IMAGENET

GIBIBYTE = 2**30
WITHOUT_COPIES: dict[str, Any] = {"device": "knl-7250", "batch": 8}
"""nodes with one processor that trains in the memory of its host"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One simulated run."""

    algorithm: str
    workers: int
    steps: int
    """gradients of each worker"""
    device: str | None = None
    """the device of nodes with one worker each; None: nodes of eight GPUs"""
    batch: int = 32
    """most samples of a gradient"""
    settings: dict[str, Any] = field(default_factory=dict)
    """hyper-parameters of the method"""
    learning: str = "none"
    records: str = "full"
    engine: str = "auto"
    aim_s: float | None = None
    """seconds of wall time on an idle core that it should stay below"""
    aim_bytes: float | None = None
    aim_floor: float | None = None
    """largest CPU time relative to drawing as many lognormal numbers with NumPy alone"""

    @property
    def name(self) -> str:
        return f"{self.algorithm}, {self.workers:,} workers"

    @property
    def worker_steps(self) -> int:
        return self.workers * self.steps

    def scenario(self) -> dict[str, Any]:
        """Returns the scenario: workers with jitter on a fat tree of InfiniBand links, evaluated only at both ends.

        The nodes are those of the scenario fat-tree-100k: eight GPUs behind PCIe switches, and one network card. With a
        `device`, a node is one processor, such as a Knights Landing.
        """
        nodes = self.workers if self.device else self.workers // 8
        gpus = {"roots": 2, "switches": 2, "gpus_per_switch": 2, "nics": 1, "gpu": "p100-pcie"}
        node = {"device": self.device} if self.device else {"node": "pcie-tree", "settings": gpus}
        batch = min(self.batch, IMAGENET // self.workers)  # one batch of all workers takes no more than all samples
        model = "quadratic" if self.learning == "quadratic" else "resnet50"
        hosts = nodes + 1 if self.device else nodes  # and one for the server
        return {
            "name": f"{self.algorithm}-{self.workers}",
            "algorithms": [{"name": self.algorithm, **self.settings}],
            "workload": {"model": model, "batch_per_worker": batch, "learning": self.learning},
            "cluster": {
                "nodes": [{**node, "count": nodes}],
                "network": {"topology": "fat-tree", "k": ports(hosts), "link": "ib-edr", "routing": "ecmp"},
                "step_time": {"distribution": "lognorm", "sigma": 0.1},
            },
            "evaluate": {"every": f"{self.worker_steps * batch} samples"},
            "stop": {"samples": self.worker_steps * batch},
            "records": self.records,
            "seed": 1,
        }


def ports(hosts: int) -> int:
    """Returns the ports of the switches of the smallest fat tree with so many hosts: k³/4 ≥ hosts, k even.

    >>> ports(1024), ports(100_000)
    (16, 74)
    """
    k = 2
    while k**3 // 4 < hosts:
        k += 2
    return k


LARGE = (
    Case(
        algorithm="sync-sgd", workers=100_000, steps=1000, aim_s=30.0, aim_bytes=4 * GIBIBYTE, aim_floor=5.0,
    ),
    Case(
        algorithm="hbs-sgd", workers=16_384, steps=10_000, settings={"k1": 2, "k2": 8, "group": "node"}, aim_s=60.0,
    ),
    Case(algorithm="layerwise-sgd", workers=1024, steps=8, settings={"bucket": None}, aim_s=20.0),
)  # fmt: skip
"""with the aims of the project"""


def shortened(case: Case) -> Case:
    """Returns a case without aims, with a tenth of the workers and steps."""
    smaller = replace(case, workers=case.workers // 80 * 8, steps=max(4, case.steps // 10))
    return replace(smaller, aim_s=None, aim_bytes=None, aim_floor=None)
