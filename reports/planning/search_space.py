"""What the planner may choose, and a choice as a scenario that worker processes simulate with several seeds.

* A choice is a point of the space. The names of its parameters are those of the Optuna study: ``method``, ``nodes``,
  ``workers``, ``batch_per_worker``, and ``METHOD.NAME`` for a hyper-parameter, which only trials of this method have.
* Ranges that the scenario does not give have defaults, all of them ours (INFERENCE), not fitted. They only decide where
  the planner looks; a result at the end of a range is reported, so that the range can be widened.
* The nodes of a choice are those of its kind in order, repeated until there are enough workers. The last node may be
  used in part; it is paid for as a whole if the scenario gives its price.
* The seeds are simulated one after the other. If one of them does not reach the target before the run ends, the later
  ones are left out: the choice is out anyway. The rows are stored, so that none is simulated twice.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paceline.algorithms import find
from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.method import Method
from paceline.records import Run
from paceline.records.figures import significant
from paceline.records.metrics import smoothed
from paceline.reports.comparison.ranking import Aim
from paceline.scenarios import Scenario, ScenarioError, load
from paceline.scenarios.resolution.axes import axis
from paceline.scenarios.sections.planning import HyperparameterRange, Planning
from paceline.scenarios.values.hyperparameters import types_of
from paceline.scenarios.values.limits import MOST_WORKERS

OWN_NODES = "cluster"
"""the name of the scenario's own nodes among the kinds of nodes"""
ALTERNATIVES = ("sync-sgd", "async-sgd", "k-avg", "agd", "sync-easgd3", "hbs-sgd")
"""one method of each family: all-reduce, parameter server, local steps, delayed all-reduce, elastic averaging,
hierarchical; provenance: INFERENCE, the simplest of each family that needs no further hyper-parameter"""

RATE_FACTOR = 4.0
"""the learning rate is searched from the scenario's divided by this factor to the scenario's times it; provenance:
INFERENCE: the linear scaling rule moves a rate by as much as the batch, here at most by 2 in each direction, and as
much again is left for the scenario's own value"""

PERIODS: dict[tuple[str, str], tuple[int, ...]] = {
    ("agd", "delay"): (1, 2),
    ("layerwise-agd", "delay"): (1, 2),
    ("k-avg", "k"): (2, 4, 8, 16),
    ("des-loc", "period"): (2, 4, 8, 16),
    ("sasgd", "period"): (2, 4, 8, 16),
    ("eamsgd", "period"): (2, 4, 8, 16),
    ("post-local-sgd", "period"): (2, 4, 8, 16),
    ("slowmo", "period"): (2, 4, 8, 16),
    ("diloco", "period"): (4, 8, 16, 32),
    ("streaming-diloco", "period"): (4, 8, 16, 32),
    ("eager-diloco", "period"): (4, 8, 16, 32),
    ("noloco", "period"): (4, 8, 16, 32),
    ("sparse-loco", "period"): (4, 8, 16, 32),
    ("async-diloco", "period"): (4, 8, 16, 32),
    ("halos", "period"): (4, 8, 16, 32),
    ("decoupled-diloco", "period"): (4, 8, 16, 32),
    ("co2", "period"): (2, 4, 8, 16),
    ("acco", "accumulate"): (1, 2, 4),
    ("hbs-sgd", "k2"): (4, 8, 16),
    ("ssp", "slack"): (1, 3, 8),
    ("softsync", "n"): (1, 2, 4),
}
"""numbers of steps between exchanges, in powers of two around the methods' defaults; provenance: INFERENCE"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchInterval:
    """An interval of a hyper-parameter."""

    low: float
    high: float
    log: bool
    whole: bool = False
    """whether only whole numbers are possible"""


@dataclass(frozen=True, slots=True)
class Values:
    """A list of values of a hyper-parameter."""

    values: tuple[Any, ...]


Range = SearchInterval | Values


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchChoice:
    """A point of the search space."""

    method: str
    nodes: str
    workers: int
    batch_per_worker: int
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def words(self) -> str:
        """Describes the choice.

        >>> chosen = {"method": "agd", "nodes": "cluster", "workers": 4, "batch_per_worker": 32}
        >>> SearchChoice(**chosen, hyperparameters={"delay": 1}).words
        'agd on 4 workers, batch 32, delay 1'
        """
        own = [f"{name} {_brief(value)}" for name, value in self.hyperparameters.items()]
        kind = "" if self.nodes == OWN_NODES else f" of {self.nodes}"
        plural = "worker" if self.workers == 1 else "workers"
        return ", ".join([f"{self.method} on {self.workers} {plural}{kind}", f"batch {self.batch_per_worker}", *own])


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """The search space; `methods` holds the tuned hyper-parameters of each method."""

    methods: Mapping[str, Mapping[str, Range]]
    alone: frozenset[str]
    """the methods that run on one worker"""
    nodes: tuple[str, ...]
    workers: tuple[int, ...]
    batches: tuple[int, ...]
    usual: tuple[Mapping[str, Any], ...]
    """the parameters of the first trials: each method as in the scenario, with at most as many workers as it has"""


def space_of(scenario: Scenario, part: Planning) -> Space:
    """Returns the search space.

    Args:
        scenario: the scenario, whose algorithms are the methods to consider.
        part: what may change; values that are missing get their defaults.

    Raises:
        ScenarioError: a range is wrong; with all mistakes.

    >>> from paceline.scenarios import load
    >>> quick = load("quickstart", algorithms=["sync-sgd", "agd"])
    >>> space = space_of(quick, quick.plan)
    >>> space.workers, space.batches, sorted(space.methods["agd"])
    ((1, 2, 4), (16, 32, 64), ['delay', 'learning_rate'])
    """
    mistakes: list[str] = []
    entries = {method.name: method for method in reversed(scenario.algorithms)}
    names = list(dict.fromkeys(method.name for method in scenario.algorithms))
    workers = _counts(part.workers, "plan.workers", mistakes) or _usual_workers(scenario)
    batch = scenario.workload.batch_per_worker
    batches = _counts(part.batch_per_worker, "plan.batch_per_worker", mistakes) or tuple(
        sorted({max(1, batch // 2), batch, 2 * batch})  # half and twice; provenance: INFERENCE
    )
    if max(workers) > MOST_WORKERS:
        mistakes.append(f"plan.workers: found {max(workers)}, expected at most {MOST_WORKERS}")
    if part.nodes and not isinstance(scenario.cluster.nodes, tuple):
        mistakes.append("plan.nodes: found beside a named system or a file; expected a cluster with a list of nodes")
    for key in part.hyperparameters:
        if (owner := key.rpartition(".")[0]) and owner not in names:
            mistakes.append(
                f"plan.hyperparameters.{key}: {owner} is not considered; expected one of {', '.join(names)}"
            )
    methods = {name: _ranges(entries[name], part, mistakes) for name in names}
    if mistakes:
        raise ScenarioError("\n".join(dict.fromkeys(mistakes)))
    kinds = kind_names(part)
    space = Space(
        methods=methods,
        alone=frozenset(name for name in names if entries[name].alone),
        nodes=kinds,
        workers=workers,
        batches=batches,
        usual=(),
    )
    largest = max([count for count in workers if count <= scenario.cluster.workers], default=min(workers))
    nearest = min(batches, key=lambda count: abs(count - batch))
    usual = tuple(_usual(space, entries[name], largest, nearest) for name in names)
    return dataclasses.replace(space, usual=usual)


def kind_names(part: Planning) -> tuple[str, ...]:
    """Returns a name for each kind of node: `OWN_NODES`, or those of the section, by their devices."""
    if not part.nodes:
        return (OWN_NODES,)
    names: list[str] = []
    for node in part.nodes:
        device = node.device if isinstance(node.device, str) else getattr(node.device, "name", None)
        name = str(device or node.node)
        names.append(name if name not in names else f"{name}-{len(names) + 1}")
    return tuple(names)


def _usual_workers(scenario: Scenario) -> tuple[int, ...]:
    """Returns powers of two up to the workers of the cluster; for a whole machine, of its nodes."""
    cluster = scenario.cluster
    each = 1 if isinstance(cluster.nodes, tuple) else len(cluster.layout.sites[0].seats)
    return tuple(each * count for count in powers_of_two(cluster.workers // each))


def _counts(given: str | tuple[int, ...] | None, place: str, mistakes: list[str]) -> tuple[int, ...]:
    """Returns a list of counts, in ascending order."""
    if not isinstance(given, str):
        return tuple(sorted(set(given or ())))
    try:
        values = axis(f"{place}={given}").values
        counts = [int(value) for value in values]
    except ScenarioError as error:
        mistakes.append(str(error).removeprefix("--vary "))
        return ()
    except ValueError:
        counts = []
    if not counts or min(counts) < 1:
        mistakes.append(f"{place}: found {given!r}, expected whole numbers of 1 or more, such as 1..64x2")
        return ()
    return tuple(sorted(set(counts)))


def _ranges(method: Method, part: Planning, mistakes: list[str]) -> dict[str, Range]:
    """Returns the tuned hyper-parameters of a method: those of the section, or else the usual ones."""
    kinds = types_of(type(method))
    ranges: dict[str, Range] = {}
    for key, given in part.ranges.items():
        owner, _, name = key.rpartition(".")
        if owner == method.name and name not in kinds:
            known = ", ".join(kinds)
            mistakes.append(f"plan.hyperparameters.{key}: {method.name} has no hyper-parameter {name}; it has {known}")
        elif name in kinds and (
            owner == method.name or (not owner and f"{method.name}.{name}" not in part.hyperparameters)
        ):
            ranges[name] = _range(given, whole=kinds[name] is int, place=key, mistakes=mistakes)
    if part.hyperparameters:
        return ranges
    if "learning_rate" in kinds:
        rate: float = method.learning_rate  # type: ignore[attr-defined]
        ranges["learning_rate"] = SearchInterval(low=rate / RATE_FACTOR, high=rate * RATE_FACTOR, log=True)
    for name in kinds:
        if values := values_near(method.name, name, getattr(method, name)):
            ranges[name] = Values(values)
    return ranges


def _range(given: HyperparameterRange, *, whole: bool, place: str, mistakes: list[str]) -> Range:
    if given.values:
        return Values(given.values)
    assert given.low is not None
    assert given.high is not None
    if whole and not (given.low.is_integer() and given.high.is_integer()):
        mistakes.append(f"plan.hyperparameters.{place}: found {given.low:g} to {given.high:g}, expected whole numbers")
    return SearchInterval(low=given.low, high=given.high, log=given.scale == "log", whole=whole)


def _usual(space: Space, method: Method, workers: int, batch: int) -> Mapping[str, Any]:
    """Returns the parameters of a method as in the scenario, as far as the space has them."""
    params: dict[str, Any] = {"method": method.name, "nodes": space.nodes[0], "batch_per_worker": batch}
    if not method.alone:
        params["workers"] = workers
    for name, given in space.methods[method.name].items():
        params[f"{method.name}.{name}"] = _inside(given, getattr(method, name))
    return params


def _inside(given: Range, value: Any) -> Any:
    """Returns the value of a range that is nearest to a value."""
    if isinstance(given, Values):
        return value if value in given.values else given.values[0]
    near = min(max(value, given.low), given.high) if isinstance(value, int | float) else given.low
    return int(near) if given.whole else float(near)


def checked_methods(names: Sequence[str]) -> None:
    """Raises `InputError` with all unknown methods."""
    mistakes = []
    for name in names:
        try:
            find(name)
        except InputError as error:
            mistakes.append(f"plan.methods: {error}")
    if mistakes:
        raise InputError("\n".join(mistakes))


def _brief(value: Any) -> str:
    return significant(value) if isinstance(value, float) else str(value)


def powers_of_two(largest: int) -> tuple[int, ...]:
    """Returns 1, 2, 4, … up to a number, and the number itself.

    >>> powers_of_two(6)
    (1, 2, 4, 6)
    """
    return tuple(sorted({*(2**power for power in range(largest.bit_length()) if 2**power <= largest), largest}))


def values_near(method: str, name: str, own: Any) -> tuple[Any, ...]:
    """Returns the values of a method's period, with the scenario's own; empty if it is not tuned by default.

    >>> values_near("agd", "delay", 3), values_near("agd", "momentum", 0.9)
    ((1, 2, 3), ())
    """
    known = PERIODS.get((method, name), ())
    return tuple(sorted({*known, own})) if known else ()


def usual_methods(own: Sequence[str]) -> tuple[str, ...]:
    """Returns the methods of a scenario, and the usual alternatives.

    >>> usual_methods(["easgd", "agd"])
    ('easgd', 'agd', 'sync-sgd', 'async-sgd', 'k-avg', 'sync-easgd3', 'hbs-sgd')
    """
    return tuple(dict.fromkeys([*own, *ALTERNATIVES]))


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
    base: Document, kinds: Mapping[str, Offered], choice: SearchChoice, target: Aim | None, seeds: Sequence[int]
) -> dict[str, Any]:
    """Returns the scenario of a choice as plain data; it is not validated.

    Args:
        base: the given scenario, with an entry for each method.
        kinds: the nodes of each kind, from `offered_nodes`.
        choice: the choice.
        target: where its runs end, besides the stops of the scenario; None: only these.
        seeds: successive seeds.
    """
    aim = {} if target is None else {target.kind: target.value}
    made = copy.deepcopy(dict(base))
    entry = next(item for item in made["algorithms"] if item["name"] == choice.method)
    made["algorithms"] = [{**entry, **choice.hyperparameters}]
    made["cluster"] = _cluster(made["cluster"], kinds, choice)
    given = made["workload"]["batch_per_worker"]
    for node in made["cluster"]["nodes"] if isinstance(made["cluster"]["nodes"], list) else ():
        if (own := node.get("batch_per_worker")) is not None:  # it stays as many times the usual batch
            node["batch_per_worker"] = max(1, round(own * choice.batch_per_worker / given))
    made["workload"] = {**made["workload"], "batch_per_worker": choice.batch_per_worker}
    made["stop"], made["target"] = {**made["stop"], **aim}, aim
    made["seed"], made["seeds"] = seeds[0], len(seeds)
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


def _cluster(cluster: Mapping[str, Any], kinds: Mapping[str, Offered], choice: SearchChoice) -> dict[str, Any]:
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
class SearchPiece:
    """The task of a worker process: a scenario with its seeds."""

    scenario: Mapping[str, Any]
    """a scenario of one algorithm; its seeds are `seed` … `seed + seeds − 1`"""
    target: Aim
    store: Path
    all_seeds: bool = False
    """whether later seeds are simulated even if one misses the target"""


Row = dict[str, Any]
"""the figures of one run: see `row_of`"""


def evaluate(piece: SearchPiece) -> list[Row]:
    """Returns a row for each seed that was simulated."""
    from paceline.reports.sweeps.point_store import PointStore, key_of
    from paceline.scenarios.resolution.plan import names_of
    from paceline.simulator.runs.run import simulate

    store, rows = PointStore(piece.store), []
    scenario = load(piece.scenario)
    (name,) = names_of(scenario.algorithms)
    for seed in range(scenario.seed, scenario.seed + scenario.seeds):
        alone = scenario.model_copy(update={"seed": seed, "seeds": 1})
        key = key_of(alone.dump(), name)
        row = store.get(key)
        if row is None:
            (run,) = simulate(alone)
            row = row_of(run, piece.target)
            store.put(key, row)
        rows.append(dict(row))
        if row["time_s"] is None and not piece.all_seeds:
            break
    return rows


def row_of(run: Run, target: Aim) -> Row:
    """Returns the row of a run: its time to the target or how far it came, and why.

    Args:
        run: the run.
        target: the target.
    """
    summary: Mapping[str, Any] = dict(run.summary)
    extrapolated = summary.get("extrapolated")
    time_s = target.figure.of(summary) if extrapolated is None else extrapolated["time_to_target_s"]
    return {
        "seed": run.seed,
        "time_s": time_s,
        "samples_to_target": summary[f"samples_to_{target.kind}"]
        if extrapolated is None
        else extrapolated["samples_to_target"],
        "resolution_s": target.resolution.of(summary),
        "best": best_of(run, target),
        **{name: summary[name] for name in FIGURES},
        "step_s": summary["step_s"]["mean"],
        "staleness": summary["staleness"]["mean"],
        "prediction_interval": summary.get("prediction_interval"),
        "published_errors": list(summary.get("published_errors", ())),
        "extrapolated": None if extrapolated is None else list(extrapolated["assumptions"]),
        "warnings": list(run.machine.get("warnings", ())),
    }


def best_of(run: Run, target: Aim) -> float | None:
    """Returns the best smoothed accuracy or loss of a run; None if it was not evaluated."""
    values = run.tables.evaluations[target.kind].dropna().tolist()
    if not values:
        return None
    curve = smoothed(values, run.summary["smoothing"])
    return float(curve.max() if target.kind == "accuracy" else curve.min())
