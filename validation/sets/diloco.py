"""Compute utilisation: the published table of Streaming DiLoCo (arXiv 2501.18512, Table 4), and simulated runs.

Two workers are joined by one link. Compute utilisation is the share of time in which they compute gradients. The
published table lists the smallest bandwidth, of a grid whose values are 21 % apart, at which a utilisation is reached.

The paper publishes the layers, the seconds of a step, the period and the size of fragments. It does not publish how
many bits its simulator counts for a parameter, the cost of an all-reduce, or the share of the forward pass. We assume
16 bits, a ring of two workers, and a third. The rows of DiLoCo up to 80 % determine one number, the bytes relative to
these assumptions. All other rows are predictions. The simulator of the paper starts the exchange of a layer when its
backward pass ends, and only the next forward pass of this layer waits for it, which is `layerwise` of
`streaming-diloco`. DiLoCo exchanges all weights at once, after the whole inner step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.optimize import brentq

from paceline.algorithms.core.job import Budget, Job
from paceline.algorithms.core.method import Method
from paceline.algorithms.core.quantization import Quantization
from paceline.algorithms.core.values import Layer, Layout, Rank
from paceline.algorithms.methods.layerwise import LayerwiseSgdNextForward
from paceline.algorithms.methods.local_sgd import DiLoCo
from paceline.algorithms.methods.streaming_diloco import StreamingDiLoCo
from paceline.records.trace import Schedule, Trace
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.kernel.timing import GradientsOnly
from paceline.simulator.network.network import ClusterNetwork
from paceline.topologies.catalogue.device import DeviceModel
from paceline.topologies.cluster import on_a_star
from paceline.topologies.graphs.links import LINKS, LinkModel
from paceline.validation.outcome import LeftOut, Outcome
from paceline.validation.sets import Line, MeasurementSet
from paceline.workloads.learners.stand_in import TimingOnly

GRID = tuple(float(value) for value in np.logspace(-1, 3, 50))
"""bandwidths in Gbit/s; provenance: INFERENCE, all values of the table are among them"""
TARGETS = (0.5, 0.8, 0.9, 0.95, 0.99)
"""the utilisations of the table's columns"""


@dataclass(frozen=True, slots=True)
class Row:
    """A method on a model: the smallest bandwidth of the grid at which each utilisation is reached.

    Args:
        model: the paper's name of the model, such as 1B.
        parameters: its number of parameters, taken from the name.
        layers: number of layers of equal size.
        step_s: seconds of a gradient, without communication.
        method: the paper's method, see `runs.METHODS`.
        bandwidths: positions in `GRID`, one for each of `TARGETS`.
    """

    model: str
    parameters: float
    layers: int
    step_s: float
    method: str
    bandwidths: tuple[int, ...]


def position(printed: float) -> int:
    """Returns the place in the grid of a bandwidth as the table prints it.

    The table was rounded to two decimal places and then to one, which explains 0.9 for 0.954 and 3.0 for 2.947.

    Raises:
        ValueError: no value of the grid is printed like this.

    >>> round(GRID[position(3.0)], 3), round(GRID[position(0.4)], 3)
    (2.947, 0.373)
    """
    for place, value in enumerate(GRID):
        if round(round(value, 2), 1) == printed:
            return place
    raise ValueError(f"found {printed} Gbit/s, expected a value of the grid of bandwidths")


def row_of(line: Line) -> Row:
    """Returns the row of a line."""
    return Row(
        line["model"],
        float(line["model"].removesuffix("B")) * 1e9,
        int(line["layers"]),
        float(line["step_s"]),
        line["method"],
        tuple(position(float(line[f"u{target * 100:.0f}"])) for target in TARGETS),
    )


# --- simulated runs ---------------------------------------------------------------------------------------------------

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


def streaming(row: Row, **settings: Any) -> Method:
    """Returns Streaming DiLoCo with the fragments of the table."""
    fragments = row.layers // FRAGMENT_LAYERS
    return StreamingDiLoCo(
        period=PERIOD, fragments=fragments, pattern="strided", inner="sgd", layerwise=True, **settings
    )


METHODS: Mapping[str, Callable[[Row], Method]] = {
    "data-parallel": lambda _: LayerwiseSgdNextForward(bucket=None),
    "diloco": lambda _: DiLoCo(period=PERIOD, inner="sgd"),
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
class EqualLayers(GradientsOnly):
    """Gradients that take the same time in every step, divided equally among the layers; all else takes no time."""

    step_s: float
    layers: int

    def compute_s(self, rank: Rank, step: int, samples: int, start_s: float = 0.0) -> float:
        return self.step_s

    def layer_shares(self) -> tuple[Sequence[float], Sequence[float]]:
        return [FORWARD / self.layers] * self.layers, [(1 - FORWARD) / self.layers] * self.layers


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


# --- beside the table -------------------------------------------------------------------------------------------------

FITTED, FITTED_BELOW = "diloco", 0.85
"""the method to whose rows the scale is fitted, and the utilisations up to which they are used"""
Place = tuple[Row, float, int]
"""a row, the utilisation of a column, and the published bandwidth as a position in the grid"""


def scale_of(places: Sequence[Place], unscaled: Sequence[float]) -> float:
    """Returns the scale that puts most places into their step of the grid: the middle of the range with as many.

    Args:
        places: those to which it is fitted.
        unscaled: our bandwidths if a parameter has `ITEM_BYTES`.
    """
    ranges = [(GRID[at - 1] / ours, GRID[at] / ours) for (_, _, at), ours in zip(places, unscaled, strict=True)]
    edges = sorted({math.log(edge) for pair in ranges for edge in pair})
    middles = [math.exp((low + high) / 2) for low, high in pairwise(edges)]
    return max(middles, key=lambda scale: sum(low < scale <= high for low, high in ranges))


def groups_of(lines: Sequence[Line]) -> tuple[list[list[Line]], list[LeftOut]]:
    """Returns all rows as one group, because one number is fitted to those of all models."""
    return [list(lines)] if lines else [], []


def outcomes(lines: Sequence[Line]) -> list[Outcome | LeftOut]:
    """Predicts the utilisation at the published bandwidth of each cell of the table.

    The published utilisation is known to lie between the target of the column and what the next smaller bandwidth would
    give, so a prediction in this range has no error.
    """
    places = [
        (row, target, at) for row in map(row_of, lines) for target, at in zip(TARGETS, row.bandwidths, strict=True)
    ]
    fitted = [place for place in places if place[0].method == FITTED and place[1] < FITTED_BELOW]
    scale = scale_of(fitted, [needed(row, target) for row, target, _ in fitted])
    results: list[Outcome | LeftOut] = []
    for row, target, at in places:
        here, below = (utilisation(Setting(row, GRID[place], scale)) for place in (at, at - 1))
        results.append(
            Outcome(
                set="diloco",
                name=f"{row.model} {row.method}, {target:.0%} at {GRID[at]:.3g} Gbit/s",
                system=f"{row.model} {row.method}",
                family=row.method,
                unit="%",
                measured=100 * target,
                predicted=100 * (here if here < target else max(target, below)),
                assumed=(f"a parameter counts as {16 * scale:.1f} bits, fitted to {FITTED} up to 80 %",),
                source="arXiv 2501.18512v1, table 4",
            )
        )
    return results


SET = MeasurementSet(
    name="diloco",
    title="Compute utilisation of low-communication methods by bandwidth, in the table of Streaming DiLoCo",
    file="streaming_diloco_utilisation.csv",
    columns=frozenset({"model", "layers", "step_s", "method", "u50", "u99"}),
    in_sight=True,
    groups=groups_of,
    predict=outcomes,
    quick=lambda groups: [[line for line in group if line["model"] == group[0]["model"]] for group in groups],
)
