"""Fits the parameters of the device model to published throughput.

    minimise  Σ ρ((ln t predicted − ln t published) / σ) + Σ ((θ − prior mean) / prior sd)²

Errors are of logarithms of seconds. ρ is Student's t with `FREEDOM` degrees of freedom, so a row that is far off does
not bend the rest. The minimum is found by reweighted Gauss-Newton steps with exact derivatives, in some seconds. Rows
of a chip, a model or a family are left out by the caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from paceline.topologies.catalogue.device_catalogue import ITEM_BYTES, Spec, precision_named
from paceline.topologies.compute.device_parameters import (
    Parameters,
    Software,
    filling_of,
    launch_terms,
    launches_ahead,
    memory_terms,
    prior,
    reachable_flops_per_s,
    terms,
)
from paceline.topologies.compute.layer_times import KINDS, passes
from paceline.topologies.compute.model_work import WorkLike

SIGMA = 0.12
"""of a published row's logarithm: FOUND by a trial on these rows"""
FREEDOM = 4.0
STEPS = 30
ENOUGH = 1e-5
"""a step of any logarithm below which the fit ends"""
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PublishedTime:
    """A published time of a gradient.

    Args:
        weight: of the row in the fit; less than 1 for one of many alike.
    """

    spec: Spec
    work: WorkLike
    precision: str
    samples: int
    software: Software
    seconds: float
    weight: float = 1.0


class Fit:
    """The rows as arrays, to be fitted once or several times with rows left out.

    Args:
        observations: the published rows.
    """

    def __init__(self, observations: Sequence[PublishedTime]) -> None:
        self.observations = tuple(observations)
        names = {
            name: None
            for observation in self.observations
            for kind in KINDS
            for name in (
                *memory_terms(observation.spec, observation.software),
                *launch_terms(observation.spec, observation.software),
                *terms(kind, observation.spec, observation.precision, observation.software),
            )
        }
        self.names = list(names)
        index = {name: place for place, name in enumerate(self.names)}
        count, kinds = len(self.observations), len(KINDS)
        efficiency = []
        self._launch, self._memory = np.zeros((count, len(self.names))), np.zeros((count, len(self.names)))
        for case, observation in enumerate(self.observations):
            self._launch[case, [index[name] for name in launch_terms(observation.spec, observation.software)]] = 1.0
            self._memory[case, [index[name] for name in memory_terms(observation.spec, observation.software)]] = 1.0
            for kind in range(kinds):
                columns = [
                    index[name]
                    for name in terms(KINDS[kind], observation.spec, observation.precision, observation.software)
                ]
                efficiency += [(case * kinds + kind, column) for column in set(columns)]
        self._row, self._column = np.array(efficiency, dtype=np.int64).T
        cuts = [_cuts(observation) for observation in self.observations]
        self._cuts, counts = np.concatenate(cuts).T.copy(), np.array([len(cut) for cut in cuts])
        self._case, self._first = np.repeat(np.arange(count), counts), np.cumsum(counts) - counts
        self._mean, self._sd = (np.array(part) for part in zip(*map(prior, self.names), strict=True))
        self._logs = np.log([observation.seconds for observation in self.observations])
        self._weights = np.array([observation.weight for observation in self.observations])
        self._start = self._mean
        with threadpool_limits(1, "blas"):  # threads cost more than they save on matrices of this size
            self._start = self._found(self._weights)

    def parameters(self, left_out: Iterable[int] = ()) -> Parameters:
        """Returns the parameters fitted to all rows but those left out.

        Args:
            left_out: places of the rows that are not to be used.
        """
        weights = self._weights.copy()
        weights[list(left_out)] = 0.0
        with threadpool_limits(1, "blas"):
            theta = self._found(weights)
        used = {name for name, rows in self._used(weights).items() if rows}
        return Parameters({name: float(value) for name, value in zip(self.names, theta, strict=True) if name in used})

    def rows_of(self) -> dict[str, int]:
        """Returns the number of rows that each parameter appears in."""
        return self._used(self._weights)

    def _used(self, weights: Floats) -> dict[str, int]:
        appears = (self._by_case(np.ones(len(self._row))) + self._memory + self._launch) * weights[:, None]
        return {name: int(np.count_nonzero(appears[:, place])) for place, name in enumerate(self.names)}

    def _found(self, weights: Floats) -> Floats:
        """The logarithms at the minimum; the search begins where that of all rows ended."""
        theta, largest = self._start.copy(), 1.0
        for _ in range(STEPS):
            logs, slopes = self._linearised(theta)
            residuals = logs - self._logs
            robust = weights * (FREEDOM + 1) / (FREEDOM + (residuals / SIGMA) ** 2) / SIGMA**2
            matrix = slopes.T @ (robust[:, None] * slopes) + np.diag(self._sd**-2)
            step = np.linalg.solve(matrix, slopes.T @ (robust * residuals) + (theta - self._mean) / self._sd**2)
            largest = float(np.max(np.abs(step)))
            theta = np.asarray(theta - np.clip(step, -0.5, 0.5), dtype=np.float64)
            if largest < ENOUGH:
                break
        return theta

    def predicted_s(self, parameters: Parameters) -> Floats:
        """Returns the seconds of all rows by parameters that may be fitted without some of them."""
        return np.exp(self._linearised(np.array([parameters[name] for name in self.names]))[0])

    def _linearised(self, theta: Floats) -> tuple[Floats, Floats]:
        """ln t of every row, and its derivatives."""
        factors = np.column_stack(
            [
                np.exp(-np.bincount(self._row, theta[self._column]).reshape(len(self._logs), -1)),
                np.exp(-self._memory @ theta),
                np.exp(self._launch @ theta),
            ]
        )
        seconds = np.zeros(len(self._case))
        for part, factor in zip(self._cuts, factors.T, strict=True):
            seconds += part * factor[self._case]
        longest = np.flatnonzero(seconds == np.maximum.reduceat(seconds, self._first)[self._case])
        first = longest[np.searchsorted(self._case[longest], np.arange(len(factors)))]
        parts = self._cuts[:, first].T * factors
        total = parts.sum(axis=1)
        shares = parts / total[:, None]
        slopes = -self._by_case(shares[:, :-2].ravel()[self._row])
        slopes += self._launch * shares[:, -1:] - self._memory * shares[:, -2:-1]
        return np.log(total), slopes

    def _by_case(self, weights: Floats) -> Floats:
        """Returns for each row and parameter the sum of the weights of the kinds of layers whose efficiency has it."""
        count, names = len(self._logs), len(self.names)
        place = self._row // len(KINDS) * names + self._column
        return np.asarray(np.bincount(place, weights, count * names), dtype=np.float64).reshape(count, names)


def _cuts(observation: PublishedTime) -> Floats:
    """Of every kernel that the device may wait for last: the device's work from it on, and the launches up to it.

    The time of a gradient is the largest of these sums (see `layer_times.Queue`). Columns are seconds of arithmetic at
    the peak by kinds of layers, of memory traffic at the catalogue's bandwidth, and of launches. A row is such a
    kernel, the first or the last of a pass through a module. A processor waits for every launch.
    """
    spec, samples = observation.spec, observation.samples
    reachable, kinds = reachable_flops_per_s(spec, observation.precision), len(KINDS)
    scale = ITEM_BYTES[precision_named(observation.precision)] / 4 / spec.sustained_bytes_per_s
    ways = list(passes(observation.work.works, filling_of(spec, observation.software), samples))
    work, kernels = np.zeros((len(ways), kinds + 2)), np.array([way.kernels for _, way, _ in ways])
    for place, (_, way, products) in enumerate(ways):
        for kind, flops in products:
            work[place, KINDS.index(kind)] += flops / reachable
        work[place, kinds] = (way.fixed_bytes + samples * way.moved_bytes) * scale
    after = np.cumsum(work[::-1], axis=0)[::-1] - work
    launched = np.cumsum(kernels)
    if not launches_ahead(spec):
        whole = work.sum(axis=0)
        whole[-1] = launched[-1] * spec.launch_s
        return np.asarray(whole[None], dtype=np.float64)
    first, last = after + work, after + work / np.maximum(kernels, 1)[:, None]
    first[:, -1], last[:, -1] = (launched - kernels + 1) * spec.launch_s, launched * spec.launch_s
    return np.asarray(np.concatenate([first[kernels > 0], last[kernels > 1]]), dtype=np.float64)
