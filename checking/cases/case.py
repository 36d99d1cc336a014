"""A case describes one run of a method on a small problem so completely that the run is always the same.

Rules of this file:

* A case is data: it can be compared, changed with `dataclasses.replace`, and stored as JSON.
* A case is run in the any-order interpreter, with `choices`, or in the simulated interpreter, with `times`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.job import Budget, Job
from paceline.algorithms.core.method import Method, RankContext
from paceline.algorithms.core.values import Rank, Samples
from paceline.algorithms.registry import find, reference
from paceline.checking.small_runs import Slopes
from paceline.scenarios.values.hyperparameters import parsed
from paceline.scenarios.values.mistakes import Fault, path_of, shown

SMALLEST = {"steps": 0, "batch": 1, "seed": 0}
"""the smallest permitted values of a case's numbers"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """The times of a simulated run, in seconds.

    Args:
        compute_s: the times of gradients; step t of rank r takes ``compute_s[(3 * r + 7 * t) % len(compute_s)]``.
        latency_s: of every message and every collective.
        s_per_byte: seconds for each byte of a message or a collective.

    >>> Times(compute_s=(1.0, 2.0)).of(rank=1, step=0)
    2.0
    """

    compute_s: tuple[float, ...]
    latency_s: float = 0.0
    s_per_byte: float = 0.0

    def of(self, rank: int, step: int) -> float:
        """Returns the seconds of a gradient.

        Args:
            rank: the worker.
            step: its step.
        """
        return self.compute_s[(3 * rank + 7 * step) % len(self.compute_s)]

    def transfer_s(self, nbytes: int) -> float:
        """Returns the seconds of a message or collective of this many bytes."""
        return self.latency_s + nbytes * self.s_per_byte


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One run of a method, which is always the same.

    Args:
        method: the method with its hyper-parameters.
        nodes: number of workers on each node. Ranks count upwards; the server, if there is one, follows.
        steps: the budget: this many steps of every worker, as samples.
        batch: samples of one worker in one step.
        batches: the samples of each worker instead, by rank, from the beginning again if there are more workers.
        seed: of the problem.
        gradients: if False, all gradients are 0 and the ranks start from different weights, so that sums and means
            that the method conserves can be compared.
        choices: for the any-order interpreter: the index of the selected move among the possible ones, for each move.
            After the last one, move 0 is selected, which is the simplest order.
        times: if given, the simulated interpreter runs the case, and `choices` has no effect.
        stops: for the any-order interpreter: the run is stopped at these steps of the weights' owner and entered again
            from its states.
        deaths: for the any-order interpreter: (rank, number of the move before which it dies).
        same_as: the method with whose weights those at the end are compared; None: with no other method's.

    >>> from paceline.algorithms import find
    >>> case = Case(method=find("async-sgd")(), nodes=(2, 1), steps=3)
    >>> case.workers, case.placement, case.job().limit
    (3, ((0, 1), (2,)), 9)
    """

    method: Method
    nodes: tuple[int, ...]
    steps: int
    batch: int = 4
    batches: tuple[int, ...] = ()
    seed: int = 1
    gradients: bool = True
    choices: tuple[int, ...] = ()
    times: Times | None = None
    stops: tuple[int, ...] = ()
    deaths: tuple[tuple[int, int], ...] = ()
    same_as: Method | None = None

    @property
    def workers(self) -> int:
        return 1 if self.method.alone else sum(self.nodes)

    @property
    def placement(self) -> tuple[tuple[Rank, ...], ...]:
        """The ranks of the workers on each node."""
        return placed(self.nodes)

    @property
    def batch_of_each(self) -> tuple[int, ...]:
        """The samples of each worker in one step, by rank."""
        return tuple(islice(cycle(self.batches or (self.batch,)), self.workers))

    @property
    def interpreter(self) -> str:
        """The name of the interpreter that runs the case."""
        return "any-order" if self.times is None else "simulated"

    def job(self) -> Job:
        """Returns the job of the case."""
        method = self.method if self.gradients else without_gradients(self.method)
        batches = self.batch_of_each
        budget = Budget(samples=self.steps * sum(batches))
        learner = SmallProblem(seed=self.seed, zero=not self.gradients)
        return Job.of(method, self.placement, learner, batch=batches, budget=budget, seed=self.seed)


@dataclass(frozen=True)
class SmallProblem(Slopes):
    """Eight weights in two layers, float64; the gradient is different for each worker, step and seed, and below 1.

    Args:
        seed: changes the target of every gradient.
        zero: whether all gradients are 0.
    """

    seed: int = 1
    zero: bool = False

    def load(self, samples: Samples) -> Any:
        return super().load(samples) + 0.125 * (self.seed % 8)

    def gradient(self, vector: Any, data: Any) -> tuple[Any, float]:
        gradient, loss = super().gradient(vector, data)
        return (0.0 * gradient, loss) if self.zero else (gradient, loss)


def placed(nodes: tuple[int, ...]) -> tuple[tuple[Rank, ...], ...]:
    """Returns consecutive ranks on nodes of these sizes.

    >>> placed((2, 1))
    ((0, 1), (2,))
    """
    ranks = iter(range(sum(nodes)))
    return tuple(tuple(Rank(next(ranks)) for _ in range(size)) for size in nodes)


class _Apart:
    """Each rank starts from other weights, so that there is a distance that averages reduce."""

    def begin(self, me: RankContext, vector: Any) -> Any:
        return super().begin(me, vector + me.rank**2)  # type: ignore[misc]


def without_gradients(method: Method) -> Method:
    """Returns the method with different initial weights on each rank, and without weight decay."""
    kind = type(method)
    derived = type(kind.__name__, (_Apart, kind), {"__module__": kind.__module__})
    apart: Any = dataclass(frozen=True, kw_only=True)(derived)
    given = {field.name: getattr(method, field.name) for field in dataclasses.fields(method)}
    return apart(**given | ({"weight_decay": 0.0} if "weight_decay" in given else {}))  # type: ignore[no-any-return]


# --- JSON ------------------------------------------------------------------------------------------------------------


def to_json(case: Case) -> dict[str, Any]:
    """Returns the case as a JSON document.

    >>> from paceline.algorithms import find
    >>> document = to_json(Case(method=find("agd")(delay=2), nodes=(1, 1), steps=2, choices=(0, 3)))
    >>> document["method"], document["hyper_parameters"]["delay"], document["choices"]
    ('agd', 2, [0, 3])
    >>> from_json(document).method.delay
    2
    """
    methods = ("method", "same_as")
    fields = {field.name: getattr(case, field.name) for field in dataclasses.fields(case) if field.name not in methods}
    if case.times is not None:
        fields["times"] = dataclasses.asdict(case.times)
    other = {} if case.same_as is None else {"same_as": _named(case.same_as)}
    return {**_named(case.method), **_lists(fields), **other}


def _named(method: Method) -> dict[str, Any]:
    return {"method": reference(type(method)), "hyper_parameters": _lists(dataclasses.asdict(method))}


def _lists(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_lists(part) for part in value]
    return {name: _lists(part) for name, part in value.items()} if isinstance(value, dict) else value


def from_json(data: Any) -> Case:
    """Returns the case of a JSON document.

    Raises:
        InputError: the document is not that of a case; the message lists all mistakes.
    """
    if not isinstance(data, Mapping) or not isinstance(data.get("method"), str):
        raise InputError(f"case: found {data!r:.60}, expected a JSON object with the name of a method as 'method'")
    method, said = _method(find(data["method"]), data.get("hyper_parameters", {}))
    values: dict[str, Any] = {}
    if (other := data.get("same_as")) is not None:
        if not isinstance(other, Mapping) or not isinstance(other.get("method"), str):
            raise InputError(f"case: same_as: found {other!r:.60}, expected an object with the name of a method")
        values["same_as"], wrong = _method(find(other["method"]), other.get("hyper_parameters", {}))
        said += [f"same_as: {words}" for words in wrong]
    kinds = {name: kind for name, kind in _KINDS.items() if name in data}
    for name, kind in kinds.items():
        values[name], faults = parsed(kind, _tuples(data[name]) if name == "deaths" else data[name], (name,))
        said += [_words(fault) for fault in faults]
        if not faults and name in SMALLEST and values[name] < SMALLEST[name]:
            said.append(f"{name}: found {values[name]}, expected {SMALLEST[name]} or more")
    said += [f"{name}: missing, expected {words}" for name, words in _REQUIRED.items() if name not in data]
    known = {*_KINDS, "method", "hyper_parameters", "same_as"}
    said += [f"{name}: unknown; expected {', '.join(sorted(known))}" for name in data if name not in known]
    if not said and not (values["nodes"] and min(values["nodes"]) >= 1):
        said.append(f"nodes: found {list(values['nodes'])}, expected at least one node, each with 1 worker or more")
    if any(size < 1 for size in values.get("batches", ())):
        said.append(f"batches: found {list(values['batches'])}, expected numbers of 1 or more")
    if said:
        raise InputError("case: " + "; ".join(said))
    return Case(method=method, **values)


_KINDS: dict[str, Any] = {
    "nodes": tuple[int, ...],
    "steps": int,
    "batch": int,
    "batches": tuple[int, ...],
    "seed": int,
    "gradients": bool,
    "choices": tuple[int, ...],
    "times": Times | None,
    "stops": tuple[int, ...],
    "deaths": tuple[tuple[int, int], ...],
}
_REQUIRED = {"nodes": "a list with the number of workers on each node", "steps": "a number of steps"}


def _method(kind: type[Method], given: Any) -> tuple[Any, list[str]]:
    made, faults = parsed(kind, given, ("hyper_parameters",))
    return made, [_words(fault) for fault in faults]


def _tuples(value: Any) -> Any:
    return [tuple(part) for part in value] if isinstance(value, list) else value


def _words(fault: Fault) -> str:
    place, error, value = fault
    prefix = "" if error.type == "wrong" else f"found {shown(value)}, expected "
    return f"{path_of(place)}: {prefix}{error.message()}"
