"""Stored simulated runs as execution traces of Chakra, one file per rank, in the form that ASTRA-sim reads.

* Every span of a run is one node. Its times and dependencies are those of `simulator.runs.dependencies`, which repeats
  the run, because stored tables have no groups, receivers and dependencies. A repetition that does not take as
  long as the stored run is refused.
* Times are whole microseconds. A duration is the difference of rounded ends, so that errors do not add up. A node of
  communication lasts from the rank's own entry to its exit; a simulator that times communication itself ignores it.
* A group of all ranks is `pg_name` 0; other groups have the numbers of ``comm_group.json``. The tag of a message is its
  number among those of its sender to its receiver.
* Types of attributes are those that the feeder expects: FOUND (mlcommons/chakra, src/feeder/et_feeder_node.cpp).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.job import Budget
from paceline.algorithms.core.values import Group, Rank, nbytes
from paceline.records import Run
from paceline.records.figures import SECONDS
from paceline.scenarios import load
from paceline.simulator.runs.dependencies import TracedActivity, TracedSimulation
from paceline.simulator.runs.short_runs import times_only
from paceline.topologies.importing import chakra

GROUPS = "comm_group.json"
SAME = 1e-9
"""relative difference of times that are the same except for rounding"""
COMMUNICATION = {"send": "COMM_SEND_NODE", "receive": "COMM_RECV_NODE", "collective": "COMM_COLL_NODE"}


def check_chakra(run: Run) -> None:
    """Raises `InputError` if a run cannot be written: protobuf is missing, or the run was not simulated on a model.

    Args:
        run: the run.
    """
    chakra.classes()
    if run.kind != "simulated":
        raise InputError(
            f"{run.path}: found a measured run; expected a simulated one, whose operations can be repeated"
        )
    if run.scenario["cluster"].get("machine") is not None:
        raise InputError(f"{run.path}: found a run on a calibrated machine; expected one on a modelled cluster")


def write_chakra(run: Run, folder: Path, prefix: str) -> None:
    """Writes ``PREFIX.RANK.et`` for each rank, and ``comm_group.json``.

    Args:
        run: a simulated run.
        folder: the folder, which exists.
        prefix: the beginning of the names of the files.

    Raises:
        InputError: this version simulates the run's scenario with other times.
    """
    ranks = traced(run)
    groups: dict[Group, int] = {Group(tuple(ranks)): 0}
    for rank, activities in ranks.items():
        chakra.write(folder / f"{prefix}.{rank}.et", nodes(activities, groups))
    named = {str(number): list(map(int, group.ranks)) for group, number in groups.items() if number}
    (folder / GROUPS).write_text(json.dumps(named) + "\n", encoding="utf-8")


def traced(run: Run) -> dict[Rank, list[TracedActivity]]:
    """Returns the activities of a run, simulated again without learning if its method is one of Paceline's own."""
    (plan,) = load(dict(run.scenario)).plans()
    if type(plan.job.method).__module__.startswith("paceline.algorithms."):
        plan = times_only(plan, Budget(samples=int(run.summary["samples"])))
    simulation = TracedSimulation(plan)
    ranks = simulation.traced()
    wall_s, stored_s = simulation.trace.wall_s, run.summary["wall_s"]
    if not math.isclose(wall_s, stored_s, rel_tol=SAME):
        raise InputError(
            f"{run.path}: found a run of {SECONDS.with_symbol(stored_s)}, which this version simulates in "
            f"{SECONDS.with_symbol(wall_s)}; expected a run of this version"
        )
    return ranks


def nodes(activities: Sequence[TracedActivity], groups: dict[Group, int]) -> Iterator[Any]:
    """Yields the messages of a rank's activities; adds the groups that are not known yet.

    Args:
        activities: those of one rank.
        groups: the numbers of groups.
    """
    made = chakra.classes()
    for activity in activities:
        span = activity.span
        start, end = micros(span.start_s), micros(span.end_s)
        kind = COMMUNICATION.get(span.activity, "COMP_NODE")
        on_host = span.activity in ("load", "read") or getattr(activity.op, "where", "device") == "host"
        attrs = {"is_cpu_op": ("bool_val", kind == "COMP_NODE" and on_host)}
        attrs |= {"activity": ("string_val", span.activity), "step": ("int64_val", span.step)}
        attrs |= {"lane": ("string_val", span.lane), "bytes": ("int64_val", span.bytes)}
        if span.layer is not None:
            attrs["layer"] = "string_val", span.layer
        if kind == "COMM_COLL_NODE":
            op = activity.op
            value = getattr(op, "value", None)
            attrs["comm_type"] = "int64_val", chakra.COLLECTIVES[type(op).__name__]
            attrs["comm_size"] = "int64_val", 0 if value is None else nbytes(value)
            attrs["pg_name"] = "string_val", str(groups.setdefault(op.group, len(groups)))
        elif kind != "COMP_NODE" and activity.message is not None:
            attrs["comm_size"] = "int64_val", span.bytes
            keys = ("comm_src", "comm_dst", "comm_tag")
            attrs |= {key: ("int32_val", number) for key, number in zip(keys, activity.message, strict=True)}
        yield made.node(
            id=activity.number,
            name=span.activity if span.layer is None else f"{span.activity} {span.layer}",
            type=chakra.NODE_TYPES[kind],
            data_deps=activity.data,
            ctrl_deps=activity.control,
            start_time_micros=start,
            duration_micros=end - start,
            attr=[made.attribute(name=name, **{field: value}) for name, (field, value) in attrs.items()],
        )


def micros(time_s: float) -> int:
    """Converts seconds to whole microseconds.

    >>> micros(0.25)
    250000
    """
    return round(time_s * 1e6)
