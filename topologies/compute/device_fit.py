"""Fits the parameters of the device model to published throughput.

    minimise  Σ ρ((ln t predicted − ln t published) / σ) + Σ ((θ − prior mean) / prior sd)²

Rules of this file: errors are of logarithms of seconds. ρ is Student's t with `FREEDOM` degrees of freedom, so a row
that is far off does not bend the rest. The minimum is found by reweighted Gauss-Newton steps with exact derivatives, in
a second or so. Rows of a chip, a model or a family are left out by the caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from paceline.topologies.catalogue.device_catalogue import ITEM_BYTES, Spec, precision_named
from paceline.topologies.compute.device_parameters import (
    Parameters,
    filling_of,
    launch_terms,
    memory_terms,
    prior,
    reachable_flops_per_s,
    terms,
)
from paceline.topologies.compute.layer_kinds import KINDS, Work, backward_work, forward_work
from paceline.topologies.compute.model_work import PassLike, WorkLike
from paceline.topologies.compute.software import Software

SIGMA = 0.12
"""of a published row's logarithm: FOUND by a trial on these rows"""
FREEDOM = 4.0
STEPS = 30
ENOUGH = 1e-5
"""a step of any logarithm below which the fit ends"""
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Observation:
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

    def __init__(self, observations: Sequence[Observation]) -> None:
        self.observations = tuple(observations)
        names = {
            name: None
            for one in self.observations
            for kind in KINDS
            for name in (
                *memory_terms(one.spec, one.software),
                *launch_terms(one.spec, one.software),
                *terms(kind, one.spec, one.precision, one.software),
            )
        }
        self.names = list(names)
        index = {name: place for place, name in enumerate(self.names)}
        count, kinds = len(self.observations), len(KINDS)
        self._efficiency = np.zeros((count, kinds, len(self.names)))
        self._launch, self._memory = np.zeros((count, len(self.names))), np.zeros((count, len(self.names)))
        for case, one in enumerate(self.observations):
            self._launch[case, [index[name] for name in launch_terms(one.spec, one.software)]] = 1.0
            self._memory[case, [index[name] for name in memory_terms(one.spec, one.software)]] = 1.0
            for kind in range(kinds):
                columns = [index[name] for name in terms(KINDS[kind], one.spec, one.precision, one.software)]
                self._efficiency[case, kind, columns] = 1.0
        self._passes = _Passes.of(self.observations)
        self._mean, self._sd = (np.array(part) for part in zip(*map(prior, self.names), strict=True))
        self._logs = np.log([one.seconds for one in self.observations])
        self._weights = np.array([one.weight for one in self.observations])

    def parameters(self, left_out: Iterable[int] = ()) -> Parameters:
        """Returns the parameters fitted to all rows but those left out.

        Args:
            left_out: places of the rows that are not to be used.
        """
        weights = self._weights.copy()
        weights[list(left_out)] = 0.0
        with threadpool_limits(1, "blas"):  # threads cost more than they save on matrices of this size
            return self._fitted(weights)

    def rows_of(self) -> dict[str, int]:
        """Returns the number of rows that each parameter appears in."""
        return self._used(self._weights)

    def _used(self, weights: Floats) -> dict[str, int]:
        appears = (self._efficiency.any(axis=1) + self._memory + self._launch) * weights[:, None]
        return {name: int(np.count_nonzero(appears[:, place])) for place, name in enumerate(self.names)}

    def _fitted(self, weights: Floats) -> Parameters:
        theta, largest = self._mean.copy(), 1.0
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
        used = {name for name, rows in self._used(weights).items() if rows}
        return Parameters({name: float(value) for name, value in zip(self.names, theta, strict=True) if name in used})

    def predicted_s(self, parameters: Parameters) -> Floats:
        """Returns the seconds of all rows by parameters that may be fitted without some of them."""
        return np.exp(self._linearised(np.array([parameters[name] for name in self.names]))[0])

    def _linearised(self, theta: Floats) -> tuple[Floats, Floats]:
        """ln t of every row, and its derivatives."""
        memory, launch = np.exp(self._memory @ theta), np.exp(self._launch @ theta)
        seconds = self._passes.seconds(np.exp(self._efficiency @ theta), memory, launch)
        total = seconds.kinds.sum(axis=1) + seconds.memory + seconds.launch
        slopes = -np.einsum("ck,ckp->cp", seconds.kinds / total[:, None], self._efficiency)
        slopes -= self._memory * (seconds.memory / total)[:, None]
        return np.log(total), slopes + self._launch * (seconds.launch / total)[:, None]


@dataclass(frozen=True, slots=True)
class _Seconds:
    """Of every row: arithmetic by kind, memory, and launches."""

    kinds: Floats
    memory: Floats
    launch: Floats


@dataclass(frozen=True, slots=True)
class _Passes:
    """The work of all rows.

    Args:
        ideal: seconds at the peak, rows × kinds.
        moved: seconds of memory traffic.
        launch: seconds of starting kernels.
    """

    ideal: Floats
    moved: Floats
    launch: Floats

    @staticmethod
    def of(observations: Sequence[Observation]) -> _Passes:
        count = len(observations)
        ideal, moved, launch = np.zeros((count, len(KINDS))), np.zeros(count), np.zeros(count)
        for case, one in enumerate(observations):
            scale = ITEM_BYTES[precision_named(one.precision)] / 4
            for way, work in _ways(one):
                moved[case] += (way.fixed_bytes + one.samples * way.moved_bytes) * scale
                launch[case] += way.kernels * one.spec.launch_s
                for kind, flops in work:
                    ideal[case, KINDS.index(kind)] += flops / reachable_flops_per_s(one.spec, one.precision)
            moved[case] /= one.spec.sustained_bytes_per_s
        return _Passes(ideal, moved, launch)

    def seconds(self, efficiency: Floats, memory: Floats, launch: Floats) -> _Seconds:
        """The times at these efficiencies (rows × kinds), and factors on bandwidth and on the cost of a launch."""
        return _Seconds(self.ideal / efficiency, self.moved / memory, self.launch * launch)


def _ways(one: Observation) -> Iterator[tuple[PassLike, Iterator[Work]]]:
    filling = filling_of(one.spec, one.software)
    for row in one.work.works:
        yield row.forward, forward_work(row, one.samples, filling)
        yield row.backward, backward_work(row, one.samples, filling)
