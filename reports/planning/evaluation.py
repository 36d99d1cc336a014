"""The scenario of a choice, and its simulation with several seeds in a worker process.

* The nodes of a choice are those of its kind in order, repeated until there are enough workers. The last node may be
  used in part; it is paid for as a whole if the scenario gives its price.
* The seeds are simulated one after the other. If one of them does not reach the target before the run ends, the later
  ones are left out: the choice is out anyway. The rows are stored, so that none is simulated twice.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.algorithms.core.errors import InputError
from paceline.records import Run
from paceline.records.metrics import smoothed
from paceline.reports.planning.objectives import Target
from paceline.reports.planning.search_space import OWN_NODES, Choice, kind_names
from paceline.scenarios import Scenario, load

Document = Mapping[str, Any]
Offered = Sequence[tuple[Mapping[str, Any], int]]
"""nodes in order: each with its entry of ``cluster.nodes`` and its number of workers"""
TUNING_SEEDS = 100_000
"""distance of the first tuning seed from the first reported seed"""
ENGINE = "paceline.simulator.runs.run"
FIGURES = (
    "wall_s",
    "steps",
    "updates",
    "samples",
    "evaluations",
    "samples_per_s",
    "time_fraction",
    "stop_reason",
    "diverged",
)
"""the figures of a summary that a row keeps"""


def tuning_seeds(seed: int, count: int) -> tuple[int, ...]:
    """Returns the seeds of trials; they are never reported.

    >>> tuning_seeds(1, 2)
    (100001, 100002)
    """
    return tuple(range(seed + TUNING_SEEDS, seed + TUNING_SEEDS + count))


def reported_seeds(seed: int, count: int) -> tuple[int, ...]:
    """Returns the seeds of the reported figures, which are those of the scenario; at most `TUNING_SEEDS`.

    >>> reported_seeds(1, 3)
    (1, 2, 3)
    """
    assert count <= TUNING_SEEDS
    return tuple(range(seed, seed + count))


def scenario_of(
    base: Document,
    kinds: Mapping[str, Offered],
    choice: Choice,
    *,
    stop: Mapping[str, Any],
    target: Mapping[str, Any],
    seed: int,
    seeds: int = 1,
) -> dict[str, Any]:
    """Returns the scenario of a choice as plain data; it is not validated.

    Args:
        base: the given scenario, with an entry for each method.
        kinds: the nodes of each kind, from `offered_nodes`.
        choice: the choice.
        stop: values of the section `stop` that replace those of the scenario.
        target: the section `target`.
        seed: the first seed.
        seeds: the number of seeds.
    """
    made = copy.deepcopy(dict(base))
    entry = next(one for one in made["algorithms"] if one["name"] == choice.method)
    made["algorithms"] = [{**entry, **choice.hyperparameters}]
    made["cluster"] = _cluster(made["cluster"], kinds, choice)
    given = made["workload"]["batch_per_worker"]
    for node in made["cluster"]["nodes"] if isinstance(made["cluster"]["nodes"], list) else ():
        if (own := node.get("batch_per_worker")) is not None:  # it stays as many times the usual batch
            node["batch_per_worker"] = max(1, round(own * choice.batch_per_worker / given))
    made["workload"] = {**made["workload"], "batch_per_worker": choice.batch_per_worker}
    made["stop"] = {**made["stop"], **stop}
    made["target"] = dict(target)
    made["seed"], made["seeds"] = seed, seeds
    made["train"] = {**made["train"], "checkpoint": None}
    return made


def offered_nodes(scenario: Scenario) -> dict[str, Offered]:
    """Returns the nodes of each kind: those of the cluster, and those of its section ``plan.nodes``.

    Args:
        scenario: the scenario.
    """
    cluster = scenario.cluster
    if not isinstance(cluster.nodes, tuple):
        return {OWN_NODES: [({}, len(cluster.layout.sites[0].seats))]}
    own = [
        ({**node.model_dump(mode="json"), "count": 1}, node.workers)
        for node in cluster.nodes
        for _ in range(node.count)
    ]
    others = zip(kind_names(scenario.plan), scenario.plan.nodes, strict=False)
    more: dict[str, Offered] = {
        name: [({**node.model_dump(mode="json"), "count": 1}, node.workers)] for name, node in others
    }
    return {OWN_NODES: own, **more}


def _cluster(cluster: Mapping[str, Any], kinds: Mapping[str, Offered], choice: Choice) -> dict[str, Any]:
    made = dict(cluster)
    if isinstance(made["nodes"], list):
        made["nodes"] = nodes_for(kinds[choice.nodes], choice.workers)
        return made
    per_node = kinds[OWN_NODES][0][1]
    if choice.workers % per_node:
        raise InputError(
            f"found {choice.workers} workers, expected a multiple of {per_node}: the nodes are whole machines"
        )
    made["nodes"] = choice.workers // per_node
    return made


def nodes_for(offered: Offered, workers: int) -> list[dict[str, Any]]:
    """Returns the entries of ``cluster.nodes`` for a number of workers.

    Args:
        offered: the nodes in order, each with its number of workers.
        workers: the number of workers.

    >>> fast, slow = {"device": "a"}, {"device": "b"}
    >>> [(node["device"], node["count"]) for node in nodes_for([(fast, 2), (slow, 2)], 6)]
    [('a', 2), ('b', 1)]
    >>> nodes_for([(fast, 2), (slow, 2)], 3)[1]
    {'device': 'b', 'count': 1, 'workers_per_node': 1}
    """
    rounds, left = divmod(workers, sum(size for _, size in offered))
    counts = [rounds] * len(offered)
    part: dict[str, Any] | None = None
    for index, (entry, size) in enumerate(offered):
        if left >= size:
            counts[index] += 1
            left -= size
        elif left:
            part = {**entry, "count": 1, "workers_per_node": left}
            break
        else:
            break
    made = _merged([{**entry, "count": count} for (entry, _), count in zip(offered, counts, strict=True) if count])
    return [*made, part] if part is not None else made


def _merged(nodes: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Joins neighbours that differ only in their number, so that a homogeneous cluster remains one entry."""
    made: list[dict[str, Any]] = []
    for node in nodes:
        if made and {**made[-1], "count": 0} == {**node, "count": 0}:
            made[-1] = {**node, "count": made[-1]["count"] + node["count"]}
        else:
            made.append(node)
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """The task of a worker process: a scenario with its seeds."""

    scenario: Mapping[str, Any]
    """a scenario of one algorithm; its seeds are `seed` … `seed + seeds − 1`"""
    target: Target
    store: Path
    all_seeds: bool = False
    """whether later seeds are simulated even if one misses the target"""


Row = dict[str, Any]
"""the figures of one run: see `row_of`"""


def evaluate(piece: Piece) -> list[Row]:
    """Returns a row for each seed that was simulated."""
    from paceline.reports.sweeps.point_store import PointStore, point_key
    from paceline.scenarios.resolution.plan import names_of
    from paceline.simulator.runs.run import simulate

    store, rows = PointStore(piece.store), []
    scenario = load(piece.scenario)
    (name,) = names_of(scenario.algorithms)
    for seed in range(scenario.seed, scenario.seed + scenario.seeds):
        alone = scenario.model_copy(update={"seed": seed, "seeds": 1})
        key = point_key(alone, name, seed)
        row = store.get(key)
        if row is None:
            (run,) = simulate(alone)
            row = row_of(run, piece.target)
            store.put(key, row)
        rows.append(dict(row))
        if row["time_s"] is None and not piece.all_seeds:
            break
    return rows


def row_of(run: Run, target: Target) -> Row:
    """Returns the row of a run: its time to the target or how far it came, and why.

    Args:
        run: the run.
        target: the target.
    """
    summary: Mapping[str, Any] = dict(run.summary)
    extrapolated = summary.get("extrapolated")
    time_s = summary[f"time_to_{target.aim}_s"] if extrapolated is None else extrapolated["time_to_target_s"]
    return {
        "seed": run.seed,
        "time_s": time_s,
        "samples_to_target": summary[f"samples_to_{target.aim}"]
        if extrapolated is None
        else extrapolated["samples_to_target"],
        "resolution_s": summary[f"time_to_{target.aim}_resolution_s"],
        "best": best_of(run, target),
        **{name: summary[name] for name in FIGURES},
        "step_s": summary["step_s"]["mean"],
        "staleness": summary["staleness"]["mean"],
        "prediction_interval": summary.get("prediction_interval"),
        "extrapolated": None if extrapolated is None else list(extrapolated["assumptions"]),
        "warnings": list(run.machine.get("warnings", ())),
    }


def best_of(run: Run, target: Target) -> float | None:
    """Returns the best smoothed accuracy or loss of a run; None if it was not evaluated."""
    values = run.tables.evaluations[target.aim].dropna().tolist()
    if not values:
        return None
    curve = smoothed(values, run.summary["smoothing"])
    return float(curve.max() if target.aim == "accuracy" else curve.min())
