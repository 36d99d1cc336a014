"""Grids of scenarios: ``--vary path=values`` gives an axis, and the points are all combinations of the axes' values.

* Every point's scenario is loaded before anything runs, and all mistakes of all points are reported together: a mistake
  that all points share without a point, any other with the values that cause it.
* The last axis changes fastest, like the last digit of a number. Paths that are joined by ``with`` are one axis.
* ``gpus`` is the path of an axis that changes the number of nodes. A number of GPUs is written as whole nodes of the
  scenario's own kind. Up to the workers of one node it is one node with fewer workers; above, it must be a multiple.
* Strong scaling keeps the total batch of the scenario as it is written, with its own number of workers: the job stays
  the same, and the cluster changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, Literal

from paceline.scenarios.resolution.axes import EXPECTED, SweepAxis, axes_of, axis, together
from paceline.scenarios.resolution.load_scenario import load
from paceline.scenarios.resolution.schema import Scenario
from paceline.scenarios.values.limits import MOST_POINTS, MOST_SWEPT_RUNS
from paceline.scenarios.values.mistakes import ScenarioError
from paceline.scenarios.values.text import parse

GPUS = "gpus"
"""the path of the axis of cluster sizes"""
BATCH = "workload.batch_per_worker"


def changes_for_gpus(scenario: Scenario, text: str) -> list[str]:
    """Returns the changes ``path=value`` that give a cluster a number of GPUs, one worker on each.

    Args:
        scenario: the scenario with its own cluster, of nodes of one kind.
        text: the number of GPUs as YAML.

    Raises:
        ScenarioError: the number does not fit the nodes, or the cluster has several kinds of nodes.

    >>> from paceline.scenarios import load
    >>> changes_for_gpus(load("dgx1-p100"), "16")
    ['cluster.nodes=2']
    >>> changes_for_gpus(load("dgx1-p100"), "12")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    paceline...ScenarioError: gpus: found 12, expected a multiple of 8, the workers of a node
    """
    number, problems = parse(text, GPUS)
    if problems or type(number) is not int or number < 1:
        raise ScenarioError(f"{GPUS}: found {text!r}, expected a whole number of 1 or more")
    nodes = scenario.cluster.nodes
    if isinstance(nodes, tuple) and len(nodes) > 1:
        raise ScenarioError(
            f"{GPUS}: found {len(nodes)} kinds of nodes in cluster.nodes, expected one; vary the number of nodes of a "
            "kind: --vary 'cluster.nodes[0].count=1..16x2'"
        )
    if isinstance(nodes, tuple) and nodes and nodes[0].groups is not None:
        raise ScenarioError(
            f"{GPUS}: found nodes that are divided into groups of cores, expected GPUs; vary the number of nodes: "
            "--vary 'cluster.nodes[0].count=1..16x2'"
        )
    each = len(scenario.cluster.layout.sites[0].seats)
    if isinstance(nodes, tuple) and number <= each:
        return ["cluster.nodes[0].count=1", f"cluster.nodes[0].workers_per_node={number}"]
    if number % each:
        fewer = f"1 to {each} or " if isinstance(nodes, tuple) else ""
        raise ScenarioError(f"{GPUS}: found {number}, expected {fewer}a multiple of {each}, the workers of a node")
    if isinstance(nodes, tuple):
        return [f"cluster.nodes[0].count={number // each}", f"cluster.nodes[0].workers_per_node={each}"]
    return [f"cluster.nodes={number // each}"]


def total_batch(scenario: Scenario) -> int:
    """Returns the samples of one step of all workers, which `--scaling strong` keeps.

    Raises:
        ScenarioError: nodes have batches of their own, which the scaling would not change.
    """
    nodes = scenario.cluster.nodes
    for number, node in enumerate(nodes if isinstance(nodes, tuple) else ()):
        if node.batch_per_worker is not None:
            raise ScenarioError(
                f"--scaling strong: found cluster.nodes[{number}].batch_per_worker, which does not follow from the "
                f"number of workers; expected {BATCH} alone"
            )
    return sum(scenario.cluster.batches(scenario.workload))


def batch_of_each(total: int, workers: int) -> int:
    """Returns the batch of each worker that keeps the total batch.

    Args:
        total: samples of one step of all workers.
        workers: number of workers.

    Raises:
        ScenarioError: the total batch cannot be divided equally.

    >>> batch_of_each(256, 8)
    32
    """
    each, rest = divmod(total, workers)
    if rest:
        raise ScenarioError(
            f"--scaling strong: found a total batch of {total} samples and {workers} workers, expected a batch that "
            f"they can divide equally: change {BATCH} or the number of nodes with --set"
        )
    return each


def misuse_of_scaling(scaling: str | None, paths: Mapping[str, object]) -> list[str]:
    """Returns the mistakes of ``--scaling`` beside these axes.

    Args:
        scaling: ``strong``, ``weak`` or None.
        paths: the paths of the axes.
    """
    if scaling is None or BATCH not in paths:
        return []
    return [f"--vary {BATCH}: found also --scaling {scaling}, which sets it; expected one of them"]


__all__ = ["Point", "Scaling", "SweepAxis", "axis", "grid"]

LISTED = 4
"""largest number of points that a message lists; it counts the others"""

Source = str | Path | Mapping[str, Any] | Scenario
Scaling = Literal["strong", "weak"]
"""strong: the total batch stays, and each worker gets a part of it; weak: the batch of each worker stays"""
Joined = tuple[SweepAxis, ...]
"""axes that change together"""


@dataclass(frozen=True, slots=True)
class Point:
    """One combination of values, and the scenario that they make."""

    values: Mapping[str, Any]
    """by path, in the order of the axes"""
    scenario: Scenario
    axes: tuple[tuple[str, ...], ...] = ()
    """the paths of each axis of the grid: several if they change together; empty: each path is an axis"""
    scaling: Scaling | None = None


def grid(
    source: Source,
    vary: str | Sequence[str] | Mapping[str, Any],
    overrides: Sequence[str] = (),
    *,
    algorithms: Sequence[str] | None = None,
    scaling: Scaling | None = None,
) -> list[Point]:
    """Returns all points with their validated scenarios.

    Args:
        source: a scenario in any form that `load` accepts.
        vary: the axes, each ``path=values``, or several joined by ``with``; or values by path.
        overrides: changes ``path=value`` for all points.
        algorithms: the algorithms to run, as for `load`.
        scaling: which batch stays when the number of workers changes; None: that of each worker, and the number of
            workers need not change.

    Raises:
        ScenarioError: an axis or a point is wrong; with all mistakes.

    >>> points = grid("quickstart", ["stop.epochs=1,2", "cluster.nodes[0].count=1..2"])
    >>> [tuple(point.values.values()) for point in points]
    [(1, 1), (1, 2), (2, 1), (2, 2)]
    """
    axes, mistakes = _axes(axes_of(vary), overrides)
    mistakes += misuse_of_scaling(scaling, {axis.path: axis for joined in axes for axis in joined})
    combinations = list(_product(axes))
    loader = _PointLoader(source, overrides, algorithms, scaling)
    points: list[Point] = []
    faulty: dict[str, list[int]] = {}
    paths = tuple(tuple(axis.path for axis in joined) for joined in axes)
    for number, texts in enumerate(combinations):
        try:
            scenario = loader.load(texts)
        except ScenarioError as error:
            for line in str(error).splitlines():
                faulty.setdefault(line, []).append(number)
        else:
            values = {path: parse(text, path)[0] for path, text in texts.items()}
            points.append(Point(values, scenario, paths, scaling))
    mistakes += [line + _where(numbers, combinations) for line, numbers in faulty.items()]
    runs = sum(len(point.scenario.algorithms) * point.scenario.seeds for point in points)
    if runs > MOST_SWEPT_RUNS:
        mistakes.append(
            f"--vary: found {runs} runs in all ({len(points)} points, each with its algorithms and seeds), "
            f"expected at most {MOST_SWEPT_RUNS}"
        )
    if scaling is not None and not mistakes and len({point.scenario.cluster.workers for point in points}) == 1:
        mistakes.append(
            f"--scaling {scaling}: found no axis that changes the number of workers, expected one such as "
            "--gpus 1..16x2"
        )
    if mistakes:
        raise ScenarioError("\n".join(mistakes))
    return points


class _PointLoader:
    """Loads the scenario of a point."""

    def __init__(
        self, source: Source, overrides: Sequence[str], algorithms: Sequence[str] | None, scaling: Scaling | None
    ) -> None:
        self._source, self._overrides, self._algorithms = source, overrides, algorithms
        self._scaling = scaling
        self._written: Scenario | None = None

    def load(self, texts: Mapping[str, str]) -> Scenario:
        """Returns the scenario with these values by path; raises `ScenarioError`."""
        changes: list[str] = []
        for path, text in texts.items():
            changes += changes_for_gpus(self.written(), text) if path == GPUS else [f"{path}={text}"]
        if self._scaling == "strong":
            workers = self._varied([*changes, f"{BATCH}=1"]).cluster.workers
            changes.append(f"{BATCH}={batch_of_each(total_batch(self.written()), workers)}")
        return self._varied(changes)

    def written(self) -> Scenario:
        """Returns the scenario without the values of the axes."""
        if self._written is None:
            self._written = load(self._source, self._overrides, algorithms=self._algorithms)
        return self._written

    def _varied(self, changes: Sequence[str]) -> Scenario:
        return load(self._source, self._overrides, algorithms=self._algorithms, varied=changes)


def _axes(vary: Sequence[str], overrides: Sequence[str]) -> tuple[list[Joined], list[str]]:
    """Returns the valid axes, and the mistakes of the others."""
    axes: list[Joined] = []
    mistakes: list[str] = []
    given = {change.partition("=")[0].strip() for change in overrides}
    known: set[str] = set()
    for text in vary:
        try:
            made = together(text)
        except ScenarioError as error:
            mistakes.append(str(error))
            continue
        wrong = []
        for axis_of_path in made:
            if axis_of_path.path in known:
                wrong.append(f"--vary {axis_of_path.path}: found twice; expected all its values in one")
            elif axis_of_path.path in given:
                wrong.append(f"--vary {axis_of_path.path}: found also with --set; expected it once")
            known.add(axis_of_path.path)
        mistakes += wrong
        if not wrong:
            axes.append(made)
    if not vary:
        mistakes.append(f"--vary: found none, {EXPECTED}")
    if (count := _count(axes)) > MOST_POINTS:
        mistakes.append(f"--vary: found {count} points in all, expected at most {MOST_POINTS}")
    return axes, mistakes


def _count(axes: Sequence[Joined]) -> int:
    return prod(len(joined[0].values) for joined in axes)


def _product(axes: Sequence[Joined]) -> Iterator[dict[str, str]]:
    """Yields the texts of each point by path, or only the first point if there are too many: it has mistakes too."""
    steps = [
        [
            dict(zip([axis.path for axis in joined], values, strict=True))
            for values in zip(*(axis.values for axis in joined), strict=True)
        ]
        for joined in axes
    ]
    for number, parts in enumerate(product(*steps)):
        if number and _count(axes) > MOST_POINTS:
            return
        yield {path: text for part in parts for path, text in part.items()}


def _where(numbers: Sequence[int], points: Sequence[Mapping[str, str]]) -> str:
    """Describes which values cause a mistake: none if all points have it, those of one axis, or those of the points."""
    if len(numbers) == len(points):
        return ""
    for path in points[0]:
        values = dict.fromkeys(points[number][path] for number in numbers)
        if [number for number, point in enumerate(points) if point[path] in values] == list(numbers):
            return f" (with {path}={','.join(values)})"
    named = [", ".join(f"{path}={text}" for path, text in points[number].items()) for number in numbers]
    more = f"; and {len(named) - LISTED} more points" if len(named) > LISTED else ""
    return f" (with {'; with '.join(named[:LISTED])}{more})"
