"""Simulated runs of two workers that are joined by one link, and their compute utilisation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from paceline.algorithms import find
from paceline.algorithms.core.job import Budget, Job
from paceline.algorithms.core.method import Method
from paceline.algorithms.core.operations import Charge
from paceline.algorithms.core.quantization import Quantization
from paceline.algorithms.core.values import Layer, Layout, Rank
from paceline.records.trace import Schedule, Trace
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.kernel.crash_timeline import CrashTimeline
from paceline.simulator.network.network import ClusterNetwork
from paceline.topologies.catalogue.device import DeviceModel
from paceline.topologies.cluster import on_a_star
from paceline.topologies.graphs.links import LINKS, LinkModel
from paceline.workloads.learners.timing_only import TimingOnly
from utilisation_runs.published import GRID, Row

PERIOD = 100
"""H, steps between the exchanges of a fragment; provenance: FOUND, caption of the table"""
FRAGMENT_LAYERS = 3
"""provenance: FOUND, caption of the table"""
OVERLAP = 1
"""steps during which an exchange goes on; provenance: FOUND, section 3.3.2: 1 in the main experiments"""
ITEM_BYTES = 2
"""bytes of a number that is not quantised; provenance: INFERENCE. The paper does not say how many bits its simulator
counts; `Setting.scale` corrects for all of them alike, so only the ratio to 4 bits depends on this value."""
FORWARD = 1 / 3
"""share of the forward pass in a gradient; provenance: INFERENCE, the backward pass has twice the operations"""
PRECISION = 0.002
"""of the decimal logarithm of a bandwidth, which is 0.5 %"""
ROUNDS = (2, 4)
"""rounds of a shorter and a longer run; the time of the rounds between them is counted, so that start and end, where
nothing overlaps with the exchanges, are not"""


def streaming(row: Row, **settings: object) -> Method:
    """Returns Streaming DiLoCo with the fragments of the table."""
    return find("streaming-diloco")(
        period=PERIOD, fragments=row.layers // FRAGMENT_LAYERS, pattern="strided", inner="sgd", **settings
    )


METHODS: Mapping[str, Callable[[Row], Method]] = {
    "data-parallel": lambda _: find("layerwise-sgd-next-forward")(bucket=None),
    "diloco": lambda _: find("diloco")(period=PERIOD, inner="sgd"),
    "streaming": lambda row: streaming(row, overlap=0),
    "overlapped": lambda row: streaming(row, overlap=OVERLAP),
    "overlapped-fp4": lambda row: streaming(row, overlap=OVERLAP, quantization=Quantization()),
}
"""our method for each of the paper's"""


@dataclass(frozen=True, slots=True)
class Setting:
    """A run of a row of the table.

    Args:
        row: the model and the method.
        gigabits_per_s: bandwidth between the two workers, in each direction.
        scale: bytes that are sent, relative to those of a number of `ITEM_BYTES` for each parameter.
    """

    row: Row
    gigabits_per_s: float
    scale: float

    @property
    def link(self) -> LinkModel:
        bytes_per_s = self.gigabits_per_s * 1e9 / 8 / self.scale
        return LinkModel(name="between sites", latency_s=0.0, bytes_per_s=bytes_per_s, provenance="the table")


@dataclass(frozen=True, slots=True)
class EqualLayers:
    """Gradients that take the same time in every step, divided equally among the layers; all else takes no time."""

    step_s: float
    layers: int

    completes = False

    def compute_s(self, rank: Rank, step: int, samples: int) -> float:
        return self.step_s

    def paused_s(self, samples: int, pause_s: float) -> float:
        return 0.0

    def started_factor(self, samples: int) -> float:
        return 1.0

    def layer_shares(self) -> tuple[Sequence[float], Sequence[float]]:
        return [FORWARD / self.layers] * self.layers, [(1 - FORWARD) / self.layers] * self.layers

    def timeline(self, rank: Rank) -> CrashTimeline | None:
        return None

    def work_s(self, rank: Rank, op: Charge) -> float:
        return 0.0

    def load_s(self, rank: Rank, samples: int) -> float:
        return 0.0

    def rest_s(self, rank: Rank) -> float:
        return 0.0


def utilisation(setting: Setting) -> float:
    """Simulates runs and returns the share of their time in which the workers compute gradients."""
    method = METHODS[setting.row.method](setting.row)
    steps = [rounds * method.longest_period(2) for rounds in ROUNDS]
    shorter_s, longer_s = (_simulated(setting, method, number).wall_s for number in steps)
    return setting.row.step_s * (steps[1] - steps[0]) / (longer_s - shorter_s)


def _simulated(setting: Setting, method: Method, steps: int) -> Trace:
    row = setting.row
    size = round(row.parameters / row.layers)
    layout = Layout(tuple(Layer(f"layer{n}", n * size, (n + 1) * size) for n in range(row.layers)))
    learner = TimingOnly(layout, num_samples=2 * steps, item_bytes=ITEM_BYTES)
    job = Job.of(method, [[Rank(0)], [Rank(1)]], learner, batch=1, budget=Budget(samples=2 * steps))
    device = DeviceModel(name="site", overhead_s=row.step_s, per_sample_s=0.0)
    cluster = on_a_star([(device, 1)] * 2, link=setting.link, local=LINKS["shared-memory"])
    times = EqualLayers(row.step_s, row.layers)
    return simulate_job(job, times, ClusterNetwork(cluster, "ring"), Schedule(every=10**9))


def needed(row: Row, target: float) -> float:
    """Returns the bandwidth in Gbit/s at which a utilisation is reached, if a parameter has `ITEM_BYTES`.

    Args:
        row: the model and the method.
        target: the utilisation, below 1.

    Raises:
        ValueError: it is not reached between the ends of a hundredth and a hundred times the published grid.
    """

    def missing(exponent: float) -> float:
        return target - utilisation(Setting(row, 10**exponent, scale=1.0))

    low, high = np.log10(GRID[0]) - 2, np.log10(GRID[-1]) + 2
    return float(10 ** brentq(missing, low, high, xtol=PRECISION))
