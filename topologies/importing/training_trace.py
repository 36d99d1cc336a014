"""Costs of a training step from a trace, whatever wrote it: `torch.profiler` (see `torch_profile`) or Chakra.

Rules for Chakra's execution traces, of which one file is one rank:

* An all-reduce reduces a part of the gradient, of ``comm_size`` bytes. A part is ready when the computation that its
  all-reduce depends on, directly or not, has ended. A gradient ends with its last part.
* When computations end follows from their durations and dependencies, with communication that takes no time; so a wait
  for other ranks does not count, and traces without start times can be read.
* Nodes of `paceline export` say in ``activity`` and ``step`` what they are. In other traces, all is one step, and
  computation that no all-reduce depends on is that of the optimizer.
* In traces that PyTorch's converter writes, durations are exclusive, a control dependency is the calling operator, and
  kernels depend only on their launches (FOUND: mlcommons/chakra at 02bbd24f, src/converter/pytorch_converter.py, and
  its tests/data/feeder_tests_trace.tar.gz). So control dependencies do not count there, the kernels of a stream run in
  the order of their numbers, and an all-reduce waits for the kernels before it, as DistributedDataParallel has it.
* A trace does not say where the forward pass ends. It is taken as `FORWARD` of the gradient, or as all of the time
  before the first part if that is shorter.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path
from typing import Any

from paceline.algorithms.core.errors import InputError
from paceline.topologies.catalogue.device import FORWARD
from paceline.topologies.importing import chakra, torch_profile
from paceline.topologies.importing.torch_profile import (
    GZIP,
    STEP,
    GradientProfile,
    Interval,
    PartialGradient,
    common,
    length,
    union,
)

FORMATS = f"{torch_profile.EXPECTED}, or an execution trace of Chakra (.et)"
JSON = re.compile(rb"(?:\xef\xbb\xbf)?\s*[\[{]\s*(?:[\"\[{\]}]|\Z)")
"""the beginning of JSON; the length of Chakra's first message may be the number of a brace, but what follows differs"""
TEXT = re.compile(rb"[\t\n\r -~]*")
COMPUTATION = chakra.NODE_TYPES["COMP_NODE"]
COLLECTIVE = chakra.NODE_TYPES["COMM_COLL_NODE"]
COMMUNICATION = {*chakra.NODE_TYPES.values()} - {COMPUTATION}
PHASES = {"compute": "gradient", "update": "optimizer", "load": "loading", "read": "loading"}
"""the phase of a step, by the activity"""
CONVERTED = "rf_id"
"""an attribute that only PyTorch's converter writes"""


def profile(path: Path) -> GradientProfile:
    """Returns the costs of the training steps in a trace; its format is recognised by its content.

    Args:
        path: a file of torch.profiler's `export_chrome_trace`, plain or gzip, or an execution trace of Chakra.

    Raises:
        InputError: the file is no such trace, or not one of training steps.
    """
    try:
        with path.open("rb") as file:
            start = file.read(4096)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    if start.startswith(GZIP) or JSON.match(start):
        return torch_profile.profile(path)
    if TEXT.fullmatch(start):
        raise InputError(f"{path}: found {start[:40].decode()!r}; expected {FORMATS}")
    return of_nodes(chakra.read(path).nodes, str(path))


@dataclass(frozen=True, slots=True)
class _Node:
    """A node of a trace, in seconds."""

    id: int
    type: int
    phase: str
    """gradient, optimizer or loading; "" if it is none of them or not known"""
    after: tuple[int, ...]
    start_s: float
    seconds: float
    about: Mapping[str, Any]


def of_nodes(nodes: Sequence[Any], where: str) -> GradientProfile:
    """Returns the costs of the training steps of a rank.

    Args:
        nodes: messages of Chakra's class `Node`.
        where: the file, for messages.

    Raises:
        InputError: they are not those of training steps.
    """
    steps = _steps(nodes, where)
    costs = [_Step.of(step) for step in steps.values()]
    whole = [step for step in costs if step.gradient_s > 0]
    if not whole:
        what = "no computation that an all-reduce depends on" if {""} == {*steps} else "no time of a gradient"
        raise InputError(f"{where}: found {what}; expected the execution trace of a worker of data-parallel training")
    parts, no_parts = _parts(whole)
    return GradientProfile(
        steps=tuple(step.whole_s for step in whole),
        loading=tuple(step.loading_s for step in whole),
        forward=tuple(step.forward_s for step in whole),
        backward=tuple(step.gradient_s - step.forward_s for step in whole),
        optimizer=tuple(step.optimizer_s for step in whole),
        communication=tuple(length(step.messages) for step in whole),
        overlapped=tuple(length(common(step.messages, step.busy)) for step in whole),
        kernels=None,
        device=None,
        ranks=None,
        backend=None,
        tool="Chakra",
        left_out=tuple(f"step {name}" for name, step in zip(steps, costs, strict=True) if step.gradient_s <= 0),
        parts=parts,
        no_parts=no_parts,
    )


def _steps(nodes: Sequence[Any], where: str) -> dict[str, list[_Node]]:
    """Returns the nodes of each step, none before one that it depends on."""
    profiled = {node.name for node in nodes if STEP.fullmatch(node.name)}
    if len(profiled) > 1:
        raise InputError(f"{where}: found {len(profiled)} steps ({', '.join(sorted(profiled))[:60]}); expected one")
    if not any(node.duration_micros for node in nodes if node.type == COMPUTATION):
        raise InputError(f"{where}: found no durations of computation; expected nodes with duration_micros")
    described = {node.id: chakra.attributes(node) for node in nodes}
    earlier = _kernels_before(nodes, described) if any(CONVERTED in about for about in described.values()) else None
    made: dict[int, _Node] = {}
    for node in nodes:
        about = described[node.id]
        phase = PHASES.get(str(about.get("activity")), "") if node.type == COMPUTATION else ""
        after = (*node.data_deps, *(node.ctrl_deps if earlier is None else earlier.get(node.id, ())))
        after = tuple(number for number in after if number in described)
        seconds = 1e-6 * node.duration_micros
        made[node.id] = _Node(node.id, node.type, phase, after, 1e-6 * node.start_time_micros, seconds, about)
    try:
        order = [*TopologicalSorter({node.id: node.after for node in made.values()}).static_order()]
    except CycleError as error:
        raise InputError(f"{where}: found nodes that depend on each other: {error.args[1]}; expected none") from None
    steps: dict[str, list[_Node]] = defaultdict(list)
    for number in order:
        steps[str(made[number].about.get("step", ""))].append(made[number])
    return dict(sorted(steps.items(), key=lambda pair: min(node.id for node in pair[1])))


def _kernels_before(nodes: Sequence[Any], described: Mapping[int, Mapping[str, Any]]) -> dict[int, set[int]]:
    """Returns the kernels that each kernel of a converted trace runs after.

    Args:
        nodes: all nodes.
        described: their attributes.
    """
    last: dict[object, int] = {}
    earlier: dict[int, set[int]] = {}
    for node in sorted(nodes, key=lambda node: node.id):
        about = described[node.id]
        if about.get("is_cpu_op", True):
            continue
        stream = about.get("stream", about.get("tid"))
        computing = node.type == COMPUTATION
        earlier[node.id] = {last[key] for key in ((stream,) if computing else (stream, "computing")) if key in last}
        last[stream] = node.id
        if computing:
            last["computing"] = node.id
    return earlier


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """The costs of a step in seconds."""

    whole_s: float
    loading_s: float
    optimizer_s: float
    gradient_s: float
    ready: tuple[tuple[float, str, _Node], ...]
    """when each part of the gradient is ready, the layer that is computed last, and its all-reduce; earliest first"""
    messages: list[Interval]
    busy: list[Interval]

    @property
    def forward_s(self) -> float:
        first = min((time for time, _, _ in self.ready), default=self.gradient_s)
        return min(FORWARD * self.gradient_s, first)

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(node.about["comm_size"] for _, _, node in self.ready)

    @classmethod
    def of(cls, nodes: Sequence[_Node]) -> _Step:
        """Returns the costs of nodes, none before one that it depends on."""
        reductions = [node for node in nodes if _is_reduction(node)]
        known = any("activity" in node.about for node in nodes)
        gradient = {node.id for node in nodes if node.phase == "gradient"} if known else _before(reductions, nodes)
        alone = [node for node in nodes if node.id in gradient]
        ends, layers = _ends(nodes, gradient)
        gradient_s = max((ends[node.id] for node in alone), default=0.0)
        if known:
            optimizer_s = sum(node.seconds for node in nodes if node.phase == "optimizer")
        else:
            computed, _ = _ends(nodes, {node.id for node in nodes if node.type == COMPUTATION})
            optimizer_s = max(computed.values()) - gradient_s
        starts = {node.id: node.start_s for node in nodes}
        if not any(starts.values()):
            every, _ = _ends(nodes, {*starts})
            starts = {node.id: every[node.id] - node.seconds for node in nodes}
        placed = [(node, (starts[node.id], starts[node.id] + node.seconds)) for node in nodes]
        ready = sorted(((ends[node.id], layers[node.id], node) for node in reductions), key=lambda part: part[0])
        return cls(
            whole_s=max(end for _, (_, end) in placed) - min(start for _, (start, _) in placed),
            loading_s=sum(node.seconds for node in nodes if node.phase == "loading"),
            optimizer_s=optimizer_s,
            gradient_s=gradient_s,
            ready=tuple(ready),
            messages=union(times for node, times in placed if node.type in COMMUNICATION),
            busy=union(times for node, times in placed if node.type == COMPUTATION),
        )


def _is_reduction(node: _Node) -> bool:
    kind, size = node.about.get("comm_type"), node.about.get("comm_size")
    is_one = node.type == COLLECTIVE and kind == chakra.COLLECTIVES["AllReduce"]
    return is_one and isinstance(size, int) and size > 0


def _before(targets: Sequence[_Node], nodes: Sequence[_Node]) -> set[int]:
    """Returns the computation that targets depend on, directly or not."""
    inside = {node.id for node in targets}
    for node in reversed(nodes):
        if node.id in inside:
            inside.update(node.after)
    return {node.id for node in nodes if node.id in inside and node.type == COMPUTATION}


def _ends(nodes: Sequence[_Node], counted: set[int]) -> tuple[dict[int, float], dict[int, str]]:
    """Returns when each node ends if only some take time, and the layer of the last of those that it waits for."""
    ends: dict[int, float] = {}
    layers: dict[int, str] = {}
    for node in nodes:
        last = max((number for number in node.after if number in ends), key=lambda number: ends[number], default=None)
        start, layer = (0.0, "") if last is None else (ends[last], layers[last])
        ends[node.id] = start + (node.seconds if node.id in counted else 0.0)
        layers[node.id] = str(node.about.get("layer", "")) or layer if node.id in counted else layer
    return ends, layers


def _parts(steps: Sequence[_Step]) -> tuple[tuple[PartialGradient, ...], str]:
    """Returns the parts of a gradient, and why they are not known if there are none."""
    steps = [step for step in steps if step.ready]
    if not steps:
        return (), "has no all-reduces; expected those of gradients, with comm_size"
    if len({str(node.about.get("pg_name", "")) for step in steps for _, _, node in step.ready}) > 1:
        return (), "has all-reduces of several groups of ranks (pg_name); expected those of one group"
    if len({step.sizes for step in steps}) > 1:
        return (), "has all-reduces of other sizes in one step than in another; expected the same in every step"
    seconds = [0.0] * len(steps[0].ready)
    for step in steps:
        bounds = [step.forward_s, *(time for time, _, _ in step.ready[:-1]), step.gradient_s]
        seconds = [sum(pair) for pair in zip(seconds, (end - start for start, end in pairwise(bounds)), strict=True)]
    names = [layer for _, layer, _ in steps[0].ready]
    distinct = len({*names}) == len(names)
    return tuple(
        PartialGradient(name if distinct else "", nbytes, time / sum(seconds))
        for name, nbytes, time in zip(names, steps[0].sizes, seconds, strict=True)
    ), ""
