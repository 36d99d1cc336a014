"""Sizes of a cluster: a number of GPUs as nodes of the scenario, and the batch of strong scaling.

Rules of this file:

* A number of GPUs is written as whole nodes of the scenario's own kind. Up to the workers of one node it is one node
  with fewer workers; above, it must be a multiple.
* Strong scaling keeps the total batch of the scenario as it is written, with its own number of workers: the job stays
  the same, and the cluster changes.
"""

from __future__ import annotations

from collections.abc import Mapping

from paceline.scenarios.resolution.schema import Scenario
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
