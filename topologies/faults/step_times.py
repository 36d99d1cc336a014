"""How the time of a step varies: between workers, between nodes, over time, and from step to step.

A step takes its device's time, multiplied by a factor. The factors of all steps together have a given distribution with
mean 1 (`Jitter`). Their variance has four parts:

* *node*: the workers of a node share it. It lasts for the run, or changes with a correlation time of its own.
* *persistent*: each worker's own part, which lasts for the run.
* *correlated*: each worker's own part that changes over time.
* the rest is drawn anew for each step.

The factor of a step is that of the instant at which its gradient begins, and holds for the whole gradient. So the
distribution is that of whole steps, however long they are. If a gradient lasts for several correlation times,
successive factors are nearly independent, as measured times of such steps would be.

**How it is drawn.** Each part is a standard normal number with a weight; their weighted sum z is standard normal, and
the factor is F⁻¹(Φ(z)), where F is the distribution. Weights are chosen such that the shares are those of the factors,
not of z. A part that changes over time keeps its number until an instant of a Poisson process, whose mean gap is the
correlation time, and then gets an independent one. So the correlation of the factors of two steps of a worker that
begin Δ seconds apart is node + persistent + correlated · e^(-Δ / correlation time), for every distribution. If the
node's part changes, too, its share falls in the same way, and the formula is an approximation.

**It is a function of time**, of the seed, the worker, its node and the step: all methods of a scenario see the same
slow phases at the same times, however many steps they have taken, and in simulated and paced real runs.

Without parts, the factor is that of `Jitter`, bit for bit.
"""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from paceline.algorithms.core.errors import InputError
from paceline.topologies.faults.jitter import (
    BLOCK,
    NO_JITTER,
    BlocksOfRanks,
    Factors,
    Jitter,
    generators,
    jitter_rows,
    law,
    normal_rows,
)

NOISE, PERSISTENT, NODE, CORRELATED, MORE_WORKERS, TRACE = 21, 22, 23, 24, 25, 26
"""separate draws with one seed from each other, and from those of `jitter` and `worker_faults`"""
Part = Literal["node", "persistent", "correlated", "noise"]
"""a part of the variance of factors"""
GRID = np.linspace(-8.0, 8.0, 1025)
"""where the quantiles of a distribution are tabulated; a normal number is outside once in 10¹⁵ draws"""
GRID_POINTS: list[float] = GRID.tolist()
FIRST, LAST = GRID_POINTS[0], GRID_POINTS[-1]
PER_UNIT = 64
"""points of the grid in a distance of 1; exact in binary, as the points are"""
TERMS = 80
"""terms of the series by which shares become weights"""
CELL = 8.0
"""correlation times whose changes are drawn together"""
TRACE_BLOCK = 64
"""successive steps of a trace that are repeated together; provenance: ours, longer than most measured correlations"""
MANY = 4096
"""places whose changes are drawn together and not kept; provenance: ours, so that others fit the cache"""


@dataclass(frozen=True, eq=False)
class StepTrace:
    """Measured times of the steps of some workers, divided by their mean.

    A worker's step takes its own measured factor. Runs with more workers, or with more steps than were measured, repeat
    blocks of `TRACE_BLOCK` steps from random places, the same for all workers that were measured together, so that what
    they had in common at a time stays in common.

    Args:
        file: the path of the table.
        factors: shape (workers, steps).
        digest: of the factors.
        job: which of several in the table; "" if there is one.

    >>> trace = StepTrace.of("steps.csv", [[1.0, 3.0], [2.0, 2.0]])
    >>> trace.factor(seed=1, rank=1, step=0), trace.factor(seed=1, rank=0, step=1)
    (1.0, 1.5)
    """

    file: str
    factors: NDArray[np.float64] = field(repr=False)
    digest: str
    job: str = ""

    @staticmethod
    def of(file: str, seconds: Sequence[Sequence[float]] | NDArray[np.float64], job: str = "") -> StepTrace:
        """Returns the trace of times in any unit, one row for each worker."""
        times = np.asarray(seconds, dtype=np.float64)
        factors = times / times.mean()
        factors.flags.writeable = False
        return StepTrace(file, factors, hashlib.sha256(factors.tobytes()).hexdigest(), job)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StepTrace) and other.digest == self.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def factor(self, seed: int, rank: int, step: int) -> float:
        """Returns the factor of one step of one rank."""
        workers, steps = self.factors.shape
        copy, worker = divmod(rank, workers)
        if copy == 0 and step < steps:
            return float(self.factors[worker, step])
        length = min(TRACE_BLOCK, steps)
        block, place = divmod(step, length)
        return float(self.factors[worker, _begin_of_block(steps - length, seed, copy, block) + place])


@lru_cache(maxsize=16_384)
def _begin_of_block(last: int, seed: int, copy: int, block: int) -> int:
    """Returns where in a trace the repeated block begins, at most at `last`."""
    return int(_generator(seed, TRACE, copy, block).integers(last + 1))


@dataclass(frozen=True, kw_only=True)
class StepTimes:
    """The factors of the steps of all workers: see the module.

    Args:
        law: the distribution of the factors.
        node: the share of the variance that the workers of a node have in common.
        persistent: the share of each worker's own part that lasts for the run.
        correlated: the share of each worker's own part that changes over time.
        correlation_time_s: the mean time between its changes.
        node_correlation_time_s: the mean time between the changes of the node's part; infinite: it lasts for the run.
        workers: known factors of the first workers, scaled to mean 1, in place of a persistent share; `law` is then the
            distribution of each worker's times over its own mean. Further workers draw one of these factors.
        trace: measured factors, in place of all others.
        profile: the keys that a scenario gives for a profile, such as its name and level; empty if it names none.
        averaged: parts in whose place factors have their mean over all that these parts may be; see `without`.

    >>> slow_for_long = StepTimes(law=Jitter.of("lognorm", sigma=0.3), correlated=0.9, correlation_time_s=1000.0)
    >>> first, second = (slow_for_long.factor(seed=1, rank=0, node=0, step=5, start_s=at) for at in (0.1, 0.2))
    >>> first == second
    True
    >>> law = Jitter.of("lognorm", sigma=0.3)
    >>> StepTimes(law=law).factor(1, 0, 0, 5, 0.0) == law.factor(1, 0, 5)
    True
    """

    law: Jitter = NO_JITTER
    node: float = 0.0
    persistent: float = 0.0
    correlated: float = 0.0
    correlation_time_s: float = math.inf
    node_correlation_time_s: float = math.inf
    workers: tuple[float, ...] = ()
    trace: StepTrace | None = None
    profile: tuple[tuple[str, object], ...] = ()
    averaged: tuple[Part, ...] = ()

    @property
    def independent(self) -> bool:
        """Whether every step is drawn on its own."""
        return not (self.node or self.persistent or self.correlated or self.workers or self.trace or self.averaged)

    @property
    def varies(self) -> bool:
        """Whether not all steps take their device's time."""
        return self != NO_VARIATION

    @property
    def words(self) -> str:
        """What decides the factors, in a few words; "none" if nothing varies."""
        if self.trace is not None:
            return f"steps of {self.trace.file}"
        keys = (f"{value}" if key in ("profile", "level") else f"{key} {value}" for key, value in self.profile)
        return ", ".join(keys) or self.law.distribution

    @property
    def parts(self) -> dict[Part, float]:
        """The share of each part of the variance; with known workers, of the variance of one worker."""
        return {
            "node": self.node, "persistent": self.persistent, "correlated": self.correlated, "noise": self.noise,
        }  # fmt: skip

    def without(self, part: Part) -> StepTimes:
        """Returns the factors as they would be without a part: their mean over all that it may be.

        Args:
            part: the part; the others keep their numbers.

        >>> times = StepTimes(law=Jitter.of("lognorm", sigma=0.3), persistent=1.0)
        >>> round(times.without("persistent").factor(1, rank=0, node=0, step=5, start_s=0.0), 4)
        1.0
        """
        workers = () if part == "persistent" else self.workers
        return replace(self, workers=workers, profile=(), averaged=(*self.averaged, part))

    @property
    def noise(self) -> float:
        """The share of the variance that is drawn anew for each step."""
        return max(0.0, 1.0 - self.node - self.persistent - self.correlated)

    def factor(self, seed: int, rank: int, node: int, step: int, start_s: float) -> float:
        """Returns the factor of one step of one rank.

        Args:
            seed: the seed of the run.
            rank: the rank.
            node: the index of its node.
            step: the step, from 0.
            start_s: when the gradient begins, in seconds on the run's clock.

        Returns:
            The step's time divided by the device's time.
        """
        if self.independent:
            return self.law.factor(seed, rank, step)
        if self.trace is not None:
            return self.trace.factor(seed, rank, step)
        parts = _parts_of(seed, rank, node, self.correlation_time_s, self.node_correlation_time_s)
        weights = self._kept
        total = weights.noise * parts.noise(step)
        if weights.persistent:
            total += weights.persistent * parts.persistent
        if weights.node:
            total += weights.node * parts.of_node(start_s)
        if weights.correlated:
            total += weights.correlated * parts.correlated(start_s)
        factor = _interpolated(total, self._values)
        return factor * parts.known(self.workers) if self.workers else factor

    def of_ranks(
        self, seed: int, ranks: Sequence[int], nodes: Sequence[int], steps: int | None = None
    ) -> FactorsOfRanks:
        """Returns the factors of many ranks, those of `factor` bit for bit.

        Args:
            seed: the seed of the run.
            ranks: the ranks.
            nodes: the index of the node of each rank.
            steps: how many steps are probably asked for, if that is known.
        """
        return FactorsOfRanks(self, seed, ranks, nodes, steps)

    @cached_property
    def weights(self) -> PartWeights:
        """The weights of the parts in the normal number that determines a factor."""
        return _weights(self)

    @cached_property
    def _kept(self) -> PartWeights:
        """The weights, 0 for parts that are averaged."""
        return replace(self.weights, **dict.fromkeys(self.averaged, 0.0))

    @cached_property
    def _table(self) -> NDArray[np.float64]:
        return _averaged_table(self)

    @cached_property
    def _values(self) -> list[float]:
        """The table as Python's numbers, which are faster one by one."""
        values: list[float] = self._table.tolist()
        return values

    def drawn(self, step: int, parts: _NormalParts, starts_s: Factors) -> Factors:
        """Returns the factors of some ranks, given the normal numbers of their parts; not for traces.

        Args:
            step: the step.
            parts: the normal numbers.
            starts_s: when the gradient of each rank begins, in seconds on the run's clock.
        """
        weights = self._kept
        total = weights.noise * parts.noise(step)
        if weights.persistent:
            total = total + weights.persistent * parts.persistent()
        if weights.node:
            total = total + weights.node * parts.of_nodes(starts_s)
        if weights.correlated:
            total = total + weights.correlated * parts.correlated(starts_s)
        factors: Factors = np.interp(total, GRID, self._table)
        return factors * parts.known(self.workers) if self.workers else factors


NO_VARIATION = StepTimes()
"""every step takes exactly its device's time"""


class FactorsOfRanks:
    """The factors of many ranks, one step after the other; see `StepTimes.of_ranks`."""

    def __init__(
        self, times: StepTimes, seed: int, ranks: Sequence[int], nodes: Sequence[int], steps: int | None
    ) -> None:
        self._times, self._seed, self._ranks = times, seed, list(ranks)
        self._blocks = BlocksOfRanks(partial(jitter_rows, times.law, seed), self._ranks, steps)
        self._parts = _NormalParts(
            seed, self._ranks, nodes, times.correlation_time_s, times.node_correlation_time_s, steps
        )

    def factors(self, step: int, starts_s: Factors) -> Factors:
        """Returns the factor of each rank.

        Args:
            step: the step.
            starts_s: when the gradient of each rank begins, in seconds on the run's clock.
        """
        if self._times.independent:
            return np.ones(len(self._ranks)) if self._times.law == NO_JITTER else self._blocks.of_step(step)
        if self._times.trace is not None:
            trace = self._times.trace
            return np.array([trace.factor(self._seed, rank, step) for rank in self._ranks])
        return self._times.drawn(step, self._parts, starts_s)


# --- the normal numbers -----------------------------------------------------------------------------------------------


def _generator(*words: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(words))


@lru_cache(maxsize=65_536)
def _lasting(seed: int, stream: int, place: int) -> float:
    """Returns the normal number that a worker or a node keeps for the run."""
    return float(_generator(seed, stream, place).standard_normal())


class _Phase(NamedTuple):
    """A time during which a part keeps its normal number."""

    value: float
    begin_s: float
    end_s: float


Cell = tuple[list[float], list[float]]
"""when a part changes in a cell of time, and to which numbers"""
NO_CELLS: Mapping[tuple[int, int], Cell] = {}


def phase_at(
    seed: int, stream: int, place: int, mean_s: float, time_s: float, ready: Mapping[tuple[int, int], Cell] = NO_CELLS
) -> _Phase:
    """Returns the phase of a worker's or a node's part at a time.

    Times are divided into cells of `CELL` correlation times, each with a generator of its own: any time can be asked
    for without drawing what came before.

    Args:
        seed: the seed of the run.
        stream: of the part.
        place: the worker or the node.
        mean_s: the correlation time in seconds.
        time_s: the time in seconds.
        ready: cells that were drawn already, by place and number.
    """
    if math.isinf(mean_s):
        return _Phase(_lasting(seed, stream, place), -math.inf, math.inf)
    cell = _cell_of(time_s, mean_s)
    changes_s, values = ready.get((place, cell)) or _cell(seed, stream, place, cell, mean_s)
    index = bisect_right(changes_s, time_s) - 1
    end_s = changes_s[index + 1] if index + 1 < len(changes_s) else _first_change_s(seed, stream, place, cell, mean_s)
    if index >= 0:
        return _Phase(values[index], changes_s[index], end_s)
    before = cell - 1
    while True:
        changes_s, values = _cell(seed, stream, place, before, mean_s)
        if changes_s:
            return _Phase(values[-1], changes_s[-1], end_s)
        before -= 1


def _cell_of(time_s: float, mean_s: float) -> int:
    return max(0, math.floor(time_s / (CELL * mean_s)))


def _first_change_s(seed: int, stream: int, place: int, cell: int, mean_s: float) -> float:
    """Returns the first change after a cell."""
    while not (changes_s := _cell(seed, stream, place, cell + 1, mean_s)[0]):
        cell += 1
    return changes_s[0]


@lru_cache(maxsize=65_536)
def _cell(seed: int, stream: int, place: int, cell: int, mean_s: float) -> Cell:
    return next(_cells(seed, stream, [place], cell, mean_s))


def _cells(seed: int, stream: int, places: Sequence[int], cell: int, mean_s: float) -> Iterator[Cell]:
    """Yields when the part of each place changes in a cell, and to which numbers; the first cell begins with one."""
    for generator in generators(seed, stream, places, cell):
        count = int(generator.poisson(CELL))
        changes_s = np.sort(generator.uniform(cell * CELL * mean_s, (cell + 1) * CELL * mean_s, count)).tolist()
        if cell == 0:
            changes_s.insert(0, 0.0)
        yield changes_s, generator.standard_normal(len(changes_s)).tolist()


class _PresentPhases:
    """The present phases of many places."""

    def __init__(self, seed: int, stream: int, places: Sequence[int], mean_s: float) -> None:
        self._seed, self._stream, self._places, self._mean_s = seed, stream, list(places), mean_s
        self._values = np.zeros(len(places))
        self._begins_s, self._ends_s = np.full(len(places), math.inf), np.full(len(places), -math.inf)

    def values(self, times_s: Factors) -> Factors:
        """Returns the normal number of each place at its time; only places whose phase is over are looked up."""
        late = np.flatnonzero((times_s >= self._ends_s) | (times_s < self._begins_s)).tolist()
        ready = self._drawn_together(late, times_s) if len(late) > MANY and math.isfinite(self._mean_s) else NO_CELLS
        for index in late:
            phase = phase_at(self._seed, self._stream, self._places[index], self._mean_s, float(times_s[index]), ready)
            self._values[index], self._begins_s[index], self._ends_s[index] = phase
        return self._values

    def _drawn_together(self, indices: Sequence[int], times_s: Factors) -> dict[tuple[int, int], Cell]:
        places_of: dict[int, dict[int, None]] = defaultdict(dict)
        for index in indices:
            places_of[_cell_of(float(times_s[index]), self._mean_s)][self._places[index]] = None
        return {
            (place, cell): drawn
            for cell, places in places_of.items()
            for place, drawn in zip(
                places, _cells(self._seed, self._stream, list(places), cell, self._mean_s), strict=True
            )
        }


class _NormalParts:
    """The normal numbers of the parts of many ranks, whose phases last `own_s` and `node_s` seconds on average."""

    def __init__(
        self, seed: int, ranks: Sequence[int], nodes: Sequence[int], own_s: float, node_s: float, steps: int | None
    ) -> None:
        self._seed, self._ranks = seed, ranks
        self._own, self._shared = (
            _PresentPhases(seed, CORRELATED, ranks, own_s),
            _PresentPhases(seed, NODE, nodes, node_s),
        )
        self._noise = BlocksOfRanks(partial(normal_rows, seed, NOISE), ranks, steps)
        self._persistent: Factors | None = None
        self._known: dict[tuple[float, ...], Factors] = {}

    def persistent(self) -> Factors:
        if self._persistent is None:
            self._persistent = normal_rows(self._seed, PERSISTENT, self._ranks, None, 1)[:, 0]
        return self._persistent

    def of_nodes(self, starts_s: Factors) -> Factors:
        return self._shared.values(starts_s)

    def correlated(self, starts_s: Factors) -> Factors:
        return self._own.values(starts_s)

    def noise(self, step: int) -> Factors:
        return self._noise.of_step(step)

    def known(self, factors: tuple[float, ...]) -> Factors:
        """Returns the known factors of the ranks; further ranks draw one of them."""
        if factors not in self._known:
            mean = math.fsum(factors) / len(factors)
            self._known[factors] = np.array([_known(factors, self._seed, rank) / mean for rank in self._ranks])
        return self._known[factors]


class _PartsOfOne:
    """The numbers of one rank, bit for bit those of `_NormalParts`, in Python's numbers: arrays of one take longer."""

    __slots__ = ("_block", "_known", "_node", "_node_s", "_noise", "_own_s", "_phases", "_rank", "_seed", "persistent")

    def __init__(self, seed: int, rank: int, node: int, own_s: float, node_s: float) -> None:
        self._seed, self._rank, self._node, self._own_s, self._node_s = seed, rank, node, own_s, node_s
        self._block, self._noise = -1, np.empty(0)
        self._phases = {stream: _Phase(0.0, math.inf, -math.inf) for stream in (CORRELATED, NODE)}
        self._known: dict[tuple[float, ...], float] = {}
        self.persistent = float(normal_rows(seed, PERSISTENT, [rank], None, 1)[0, 0])

    def noise(self, step: int) -> float:
        block, place = divmod(step, BLOCK)
        if block != self._block:
            self._block, self._noise = block, normal_rows(self._seed, NOISE, [self._rank], block, BLOCK)[0]
        return float(self._noise[place])

    def of_node(self, start_s: float) -> float:
        return self._present(NODE, self._node, self._node_s, start_s)

    def correlated(self, start_s: float) -> float:
        return self._present(CORRELATED, self._rank, self._own_s, start_s)

    def _present(self, stream: int, place: int, mean_s: float, start_s: float) -> float:
        value, begin_s, end_s = self._phases[stream]
        if not begin_s <= start_s < end_s:
            self._phases[stream] = phase = phase_at(self._seed, stream, place, mean_s, start_s)
            return phase.value
        return value

    def known(self, factors: tuple[float, ...]) -> float:
        if factors not in self._known:
            self._known[factors] = _known(factors, self._seed, self._rank) / (math.fsum(factors) / len(factors))
        return self._known[factors]


@lru_cache(maxsize=16_384)
def _parts_of(seed: int, rank: int, node: int, own_s: float, node_s: float) -> _PartsOfOne:
    """Returns the numbers of one rank, which remember its present phase."""
    return _PartsOfOne(seed, rank, node, own_s, node_s)


def _interpolated(number: float, table: Sequence[float]) -> float:
    """Returns the value of a table over `GRID` at a number, as `np.interp` computes it."""
    if not FIRST < number < LAST:
        return table[0 if number <= FIRST else -1]
    place = int((number - FIRST) * PER_UNIT)
    if GRID_POINTS[place] > number:  # rounding
        place -= 1
    low, high = table[place], table[place + 1]
    return (high - low) / (GRID_POINTS[place + 1] - GRID_POINTS[place]) * (number - GRID_POINTS[place]) + low


def _known(factors: tuple[float, ...], seed: int, rank: int) -> float:
    return factors[rank if rank < len(factors) else int(_generator(seed, MORE_WORKERS, rank).integers(len(factors)))]


# --- the distribution and the weights ---------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def quantile_table(jitter: Jitter) -> NDArray[np.float64]:
    """Returns the factors of a distribution at the normal numbers of `GRID`, with mean exactly 1.

    Factors between them are interpolated, which changes a lognormal factor with sigma 1 by at most 0.01 %.

    Args:
        jitter: the distribution.
    """
    from scipy.special import ndtr

    below = ndtr(GRID)
    if jitter == NO_JITTER:
        values = np.ones_like(GRID)
    elif jitter.values:
        ordered = np.sort(np.asarray(jitter.values, dtype=np.float64))
        values = ordered[np.minimum(len(ordered) - 1, (below * len(ordered)).astype(int))]
    elif hasattr(drawn := law(jitter), "isf"):
        values = np.where(GRID < 0, drawn.ppf(below), drawn.isf(ndtr(-GRID)))
    else:
        values = np.exp(drawn.s * GRID)
    values = np.maximum(values, 0.0)
    table: NDArray[np.float64] = values / float(_densities() @ values)
    return table


def _averaged_table(times: StepTimes) -> NDArray[np.float64]:
    """Returns the factors at `GRID`, averaged over the parts that are left out."""
    table = quantile_table(times.law)
    if not times.averaged:
        return table
    weights = times.weights
    left_out = math.sqrt(sum(getattr(weights, part) ** 2 for part in times.averaged))
    numbers, probabilities = np.polynomial.hermite_e.hermegauss(64)
    means = np.zeros_like(GRID)
    for number, probability in zip(numbers.tolist(), (probabilities / probabilities.sum()).tolist(), strict=True):
        means += probability * np.interp(GRID + left_out * number, GRID, table)
    return means


@lru_cache(maxsize=1)
def _densities() -> NDArray[np.float64]:
    """Returns the probability of the slice around each number of `GRID`."""
    weights = np.exp(-(GRID**2) / 2)
    densities: NDArray[np.float64] = weights / weights.sum()
    return densities


@dataclass(frozen=True, slots=True)
class PartWeights:
    """The weights of the parts; their squares add up to 1."""

    node: float
    persistent: float
    correlated: float
    noise: float


def _weights(times: StepTimes) -> PartWeights:
    """Returns weights such that the shares are those of the variance of the factors.

    If z and z' have correlation x, the covariance of their factors is Σ aⱼ² xʲ, with the coefficients aⱼ of the factor
    in Hermite polynomials of z (Mehler's formula). What parts with squares adding up to x explain of the variance is
    this sum over its value at 1.
    """
    if not (times.node or times.persistent or times.correlated):
        return PartWeights(0.0, 0.0, 0.0, 1.0)
    squares = np.interp(
        np.cumsum([times.node, times.persistent, times.correlated]), explained(times.law), np.linspace(0.0, 1.0, 1025)
    )
    node, persistent, correlated = np.sqrt(np.diff(squares, prepend=0.0)).tolist()
    return PartWeights(node, persistent, correlated, math.sqrt(max(0.0, 1.0 - float(squares[-1]))))


@lru_cache(maxsize=64)
def explained(jitter: Jitter) -> NDArray[np.float64]:
    """Returns the share of the variance of factors that parts with squares of 0, 1/1024, …, 1 explain.

    Args:
        jitter: the distribution.
    """
    table, densities = quantile_table(jitter), _densities()
    variance = float(densities @ table**2) - 1.0
    if variance <= 0:
        raise InputError("distribution: it has no variance that could be shared")
    before, polynomial = np.zeros_like(GRID), np.ones_like(GRID)
    shares, squares = np.zeros(1025), np.linspace(0.0, 1.0, 1025)
    for degree in range(1, TERMS + 1):  # normalised: √j hⱼ = z hⱼ₋₁ − √(j − 1) hⱼ₋₂
        following = (GRID * polynomial - math.sqrt(degree - 1) * before) / math.sqrt(degree)
        before, polynomial = polynomial, following
        shares += float(densities @ (table * polynomial)) ** 2 / variance * squares**degree
    shares[-1] = 1.0  # what higher terms add is only seen near 1
    return np.maximum.accumulate(np.minimum(shares, 1.0))


def correlation(times: StepTimes, apart_s: float) -> float:
    """Returns the correlation of the factors of two steps of a worker, by the formula of the module.

    Args:
        times: the factors; a node's part that changes over time makes this an approximation.
        apart_s: the seconds between the beginnings of the two gradients, above 0.

    >>> times = StepTimes(law=Jitter.of("expon"), persistent=0.2, correlated=0.5, correlation_time_s=10.0)
    >>> round(correlation(times, 10.0), 3)
    0.384
    """
    node = times.node * math.exp(-apart_s / times.node_correlation_time_s)
    return node + times.persistent + times.correlated * math.exp(-apart_s / times.correlation_time_s)
