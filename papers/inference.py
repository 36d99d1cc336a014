"""`paceline reproduce --infer`: which values of the inputs make the published figures of a paper true, together.

The search uses the results of the claims: each figure with one input changed at a time. Between the ends of a range, a
figure is interpolated, and the effects of several inputs add up, on the scale on which figures are averaged. The
figures are then computed with the inferred values by the code that computes the claims, and only those are shown.

An inference explains; it is not a result. Its inputs come from the figures that it is compared with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.papers.claim import Claim, Input, first_word
from paceline.papers.reproduce import Computation, Stored
from paceline.papers.verdicts import LOGARITHMIC, TOLERANCE, Case, effect_of, scale_of
from paceline.reports.blocks import Answer, Column, Table
from paceline.reports.blocks import Claim as Sentence

SEEDS = 3
PULL = 0.05
"""weight of an input's distance from its most plausible value, so that inputs without influence stay; ours"""
Progress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class InferredInput:
    """An input with its most plausible and its inferred value."""

    name: str
    plausible: str
    low: str
    high: str
    inferred: str


@dataclass(frozen=True, slots=True)
class InferredFigure:
    """A published figure beside ours with the most plausible and with the inferred inputs."""

    name: str
    published: float
    unit: str
    plausible: float
    inferred: float

    @property
    def miss(self) -> float:
        """The difference of the inferred figure from the published one, relative to it."""
        return (self.inferred - self.published) / abs(self.published)


@dataclass(frozen=True, slots=True)
class Inference:
    """The inferred inputs of one table of a paper, and the figures with them."""

    together: str
    inputs: tuple[InferredInput, ...]
    figures: tuple[InferredFigure, ...]

    @property
    def contradicts(self) -> InferredFigure:
        """The figure that is farthest from the published one."""
        return max(self.figures, key=lambda figure: abs(figure.miss))

    @property
    def sentence(self) -> str:
        """What the inference says, in words."""
        agree, count = sum(abs(figure.miss) <= TOLERANCE for figure in self.figures), len(self.figures)
        verb, most = "contradicts them most" if agree < count else "is farthest", self.contradicts
        return (
            f"{self.together}: with the inferred inputs, {agree} of {count} figures are within "
            f"{100 * TOLERANCE:.0f} %. {most.name} {verb} ({100 * most.miss:+.0f} %)."
        )

    def document(self) -> dict[str, Any]:
        """Returns the inference for a JSON answer."""
        return {**asdict(self), "sentence": self.sentence}


def inferable(claims: Sequence[Claim]) -> tuple[Claim, ...]:
    """Returns the claims with a published figure that belongs to a table of figures with common inputs."""
    return tuple(claim for claim in claims if claim.together and claim.published)


def infer(
    claims: Sequence[Claim],
    results: Mapping[str, Stored],
    computation: Computation,
    progress: Progress | None = None,
) -> tuple[Inference, ...]:
    """Fits the inputs of each table of a paper to its published figures.

    It minimises the sum over the table's figures of ((ours − published) / tolerance)², where positive figures are
    compared by their logarithms.

    Args:
        claims: Claims of a paper, from `inferable`.
        results: Their results by name, in which each input was changed.
        computation: How the figures with the inferred inputs are computed.
        progress: Called after each figure.

    Returns:
        One inference for each table.
    """
    tables: dict[str, list[Claim]] = {}
    for claim in claims:
        tables.setdefault(claim.together, []).append(claim)
    inferred: list[Inference] = []
    done = 0
    for together, own in tables.items():
        inputs = computation.inputs_of(own[0])
        responses = [_Response(claim, results[claim.name]) for claim in own]
        varied = {
            name: inputs[name]
            for name in dict.fromkeys(name for claim in own for name in claim.inputs)
            if not inputs[name].certain
        }
        values = _fitted(responses, varied)
        figures = []
        for claim, response in zip(own, responses, strict=True):
            figures.append(_computed(claim, response, inputs, values, computation))
            done += 1
            if progress is not None:
                progress(f"{together}: {claim.name} with the inferred inputs", done / len(claims))
        rows = [
            InferredInput(name, row.value, row.low or "", row.high or "", values[name]) for name, row in varied.items()
        ]
        inferred.append(Inference(together, tuple(rows), tuple(figures)))
    return tuple(inferred)


# --- the search -------------------------------------------------------------------------------------------------------


class _Response:
    """How a claim's figure depends on its inputs, interpolated between the computed cases."""

    def __init__(self, claim: Claim, result: Stored) -> None:
        cases = [Case(tuple(case["changed"].items()), tuple(case["figures"])) for case in result["cases"]]
        self.claim, self.central, self.scale = claim, cases[0].figures, scale_of(claim, cases)
        central = [self.scale.there(figure) for figure in self.central]
        self.mean = fmean(central)
        """with the most plausible inputs, on the claim's scale"""
        self.effects: dict[str, dict[str, float]] = {}
        """by input and its value"""
        for case in cases:
            if len(case.changed) == 1:
                ((name, value),) = case.changed
                moved = [self.scale.there(figure) for figure in case.figures]
                self.effects.setdefault(name, {})[value] = fmean(effect_of(moved, central))

    def miss(self, changes: Mapping[str, float]) -> float:
        """Returns the distance from the published figure in units of the tolerance.

        Args:
            changes: The effect of each input.
        """
        assert self.claim.published is not None
        figure = self.mean + sum(changes.values())
        if self.scale is LOGARITHMIC:
            return (figure - math.log(self.claim.published)) / math.log1p(TOLERANCE)
        return (figure - self.claim.published) / (TOLERANCE * abs(self.claim.published))


@dataclass(frozen=True)
class _Axis:
    """An input as a coordinate: a number between the ends of its range, or the index of an alternative."""

    given: Input

    @cached_property
    def numbers(self) -> list[float] | None:
        """The numbers of the plausible values, ascending; None if they are words."""
        try:
            return sorted(float(first_word(text)) for text in self.given.plausible)
        except ValueError:
            return None

    @cached_property
    def bounds(self) -> tuple[float, float]:
        """The least and the largest coordinate."""
        if self.numbers is None:
            return 0.0, len(self.given.plausible) - 1.0
        return self._place(self.numbers[0]), self._place(self.numbers[-1])

    @cached_property
    def points(self) -> tuple[list[float], list[str]]:
        """The coordinates of the plausible values that are numbers, ascending, and the values as text."""
        texts = sorted(self.given.plausible, key=lambda text: float(first_word(text)))
        return [self._place(float(first_word(text))) for text in texts], texts

    def _place(self, number: float) -> float:
        """Returns the coordinate of a number: its logarithm, if all are positive."""
        return math.log(number) if self.numbers and self.numbers[0] > 0 else number

    def text(self, coordinate: float) -> str:
        """Returns the value of an input at a coordinate, with its unit."""
        if self.numbers is None:
            return self.given.plausible[round(coordinate)]
        number = math.exp(coordinate) if self.numbers[0] > 0 else coordinate
        whole = all(value == int(value) for value in self.numbers)
        first, _, unit = self.given.value.partition(" ")
        return " ".join(filter(None, [f"{round(number)}" if whole else f"{number:.3g}", unit])) if first else ""

    def effect(self, response: _Response, coordinate: float) -> float:
        """Returns what the input at a coordinate adds to a figure."""
        effects = response.effects.get(self.given.name, {})
        if not effects:
            return 0.0
        if self.numbers is None:
            return effects.get(self.given.plausible[round(coordinate)], 0.0)
        places, texts = self.points
        return float(np.interp(coordinate, places, [effects.get(text, 0.0) for text in texts]))

    def pull(self, coordinate: float) -> float:
        """Returns the distance from the most plausible value, in ranges."""
        low, high = self.bounds
        if self.numbers is None:
            return float(round(coordinate) != 0)
        places, texts = self.points
        return abs(coordinate - places[texts.index(self.given.value)]) / ((high - low) or 1.0)


def _fitted(responses: Sequence[_Response], varied: Mapping[str, Input]) -> dict[str, str]:
    """Returns the values of the inputs that come closest to all published figures."""
    from scipy.optimize import Bounds, differential_evolution  # slow to import, so only when needed

    axes = [_Axis(given) for given in varied.values()]
    if not axes:
        return {}

    def cost(point: NDArray[np.float64]) -> float:
        misses = [
            response.miss({axis.given.name: axis.effect(response, at) for axis, at in zip(axes, point, strict=True)})
            for response in responses
        ]
        pulls = [PULL * axis.pull(at) for axis, at in zip(axes, point, strict=True)]
        return float(np.square(misses).sum() + np.sum(pulls))

    words = [axis.numbers is None for axis in axes]
    low, high = (np.array(ends) for ends in zip(*(axis.bounds for axis in axes), strict=True))
    found = differential_evolution(cost, Bounds(low, high), integrality=words, rng=0, polish=False)
    return {axis.given.name: axis.text(at) for axis, at in zip(axes, found.x, strict=True)}


def _computed(
    claim: Claim, response: _Response, inputs: Mapping[str, Input], values: Mapping[str, str], computation: Computation
) -> InferredFigure:
    given = claim.given(inputs, quick=computation.effort.quick)
    for name in claim.inputs:
        if name in values:
            given = given.with_value(name, values[name])
    seeds = range(1, min(SEEDS, claim.seeds) + 1)
    figures = [claim.figure(replace(given, seed=seed)) for seed in seeds]
    assert claim.published is not None
    return InferredFigure(claim.name, claim.published, claim.unit, fmean(response.central), fmean(figures))


# --- the answer -------------------------------------------------------------------------------------------------------


def answer_of_inference(paper: str, inferred: Sequence[Inference]) -> Answer:
    """Returns the answer of `paceline reproduce --infer`.

    Args:
        paper: The paper's title.
        inferred: One inference for each table.
    """
    blocks: list[Any] = [
        Sentence("An inference, not a result: these inputs were chosen so that the figures come out as published.")
    ]
    for table in inferred:
        blocks.append(Sentence(table.sentence))
        rows = [(row.name, row.plausible, f"{row.low} to {row.high}", row.inferred) for row in table.inputs]
        columns = [Column(header) for header in ("input", "most plausible", "range", "inferred")]
        blocks.append(Table(f"{table.together}: inputs", columns, rows))
        figures = [
            (
                row.name,
                f"{row.published:.3g} {row.unit}",
                *(f"{figure:.3g}" for figure in (row.plausible, row.inferred)),
            )
            for row in table.figures
        ]
        headers = ("claim", "published", "with the most plausible inputs", "with the inferred inputs")
        blocks.append(Table(f"{table.together}: figures", [Column(header) for header in headers], figures))
    return Answer(paper, blocks, lambda: {"inferences": [table.document() for table in inferred]})
