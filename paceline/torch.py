"""Records a training script of your own, and writes a scenario and a machine file with which predictions continue.

    with paceline.torch.hook(model, optimizer, out="my-run"):
        for inputs, labels in loader:
            ...  # the loop as it was

Rules of this file:

* Only times are recorded: callbacks of the module, its parameters and the optimizer read a clock. They change no
  tensor, and are removed after the last recorded step.
* A step lasts from the end of an update to the end of the next one: loading until the forward pass begins, the forward
  pass, the backward pass until the last gradient is there, waiting for the gradients of other ranks until the optimizer
  begins, and the update. The loss counts as a part of the backward pass.
* On a GPU, times are those of events in the current stream, which are read after the last recorded step.
* Then all ranks time all-reduces of several sizes on the group of the training, which takes a second or two, once. In
  the training they run beside a backward pass and take longer. By how much follows from the waits of the recorded
  steps: the rank that is the last to have its gradient waits only for the all-reduces that are left.
* The trace has the names of events that `torch.profiler` writes, so there is one reader for both.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch
import torch.distributed as dist
import yaml
from scipy.optimize import brentq

from paceline.algorithms.core.errors import InputError, PacelineError
from paceline.algorithms.core.files import write_whole
from paceline.algorithms.core.values import Rank
from paceline.algorithms.methods.layerwise import LayerwiseSgd
from paceline.backend.calibration.imported_costs import Imported, divided, gradient_part, only_imports
from paceline.records.machine import machine_facts
from paceline.scenarios import load
from paceline.scenarios.machine_file import BytesPart, CurvePart, GradientPart, MachinePart, OriginPart, save_machine
from paceline.scenarios.resolution.plan import Plan
from paceline.topologies.catalogue.device_names import named
from paceline.topologies.importing.torch_profile import ACCUMULATE, BACKWARD

LEAST = 5
"""the fewest steps from which costs are computed"""
SMALLEST_BYTES = 1024
REPEATS = 12
"""all-reduces of a size, of which the first two are not counted"""
LONGEST_S = 1.0
"""seconds after which a size is not repeated any more"""
SLOWEST = 0.05
"""the lowest speed of collectives beside a gradient; INFERENCE: below it, something else is the cause"""
USUAL = {"cpu": "xeon-8180", "cuda": "a100-sxm4-40"}
"""devices in the place of those that are not in the catalogue"""
Mark = Any
"""a time: seconds of the host's clock, or an event of a GPU"""


class Hook:
    """The recording of a training; use `hook`."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        out: str | Path,
        steps: int,
        warm_up: int,
        batch: int | None,
        samples: int | None,
    ) -> None:
        self.model, self.optimizer, self.out = model, optimizer, Path(out)
        self.batch, self.samples = batch, samples
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        problems = [
            f"{name}: found {value}, expected {least} or more"
            for name, value, least in (("steps", steps, LEAST), ("warm_up", warm_up, 1))
            if value < least
        ]
        if not self.parameters:
            problems.append("model: found no parameter that requires a gradient, expected a model that is trained")
        if len({parameter.device for parameter in self.parameters}) > 1:
            problems.append("model: found parameters on several devices, expected all on the device of this rank")
        if problems:
            raise InputError("\n".join(problems))
        self.device = self.parameters[0].device
        self.warm_up, self.last = warm_up, warm_up + steps
        self.group = getattr(model, "process_group", None)
        self.count = 0
        """updates so far"""
        self.recorded: list[_Marks] = []
        self.left_out = 0
        """steps that were not one forward and one backward pass"""
        self.step: _Marks | None = None
        self.removable: list[Any] = []
        self.written: Path | None = None
        """the scenario, once it is written"""

    def __enter__(self) -> Self:
        self.attach()
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        """Ends the recording; writes the files if the training ended before the last step that was to be recorded."""
        if kind is None and self.removable:
            self._finish()
        self.detach()

    def attach(self) -> None:
        """Registers the callbacks."""
        add = self.removable.append
        add(self.model.register_forward_pre_hook(self._forward_begins))
        add(self.model.register_forward_hook(self._forward_ends))
        for number, parameter in enumerate(self.parameters):
            add(parameter.register_post_accumulate_grad_hook(self._gradient_of(number)))
        add(self.optimizer.register_step_pre_hook(self._update_begins))
        add(self.optimizer.register_step_post_hook(self._update_ends))

    def detach(self) -> None:
        """Removes the callbacks; a step that has begun is not recorded."""
        self.step = None
        for callback in self.removable:
            callback.remove()
        self.removable.clear()

    # --- callbacks ----------------------------------------------------------------------------------------------------

    def _now(self) -> Mark:
        if self.device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _forward_begins(self, _: torch.nn.Module, inputs: tuple[Any, ...]) -> None:
        if self.step is not None:
            if self.batch is None:
                self.batch = next((len(given) for given in inputs if torch.is_tensor(given) and given.dim()), None)
            self.step.forward.append(self._now())

    def _forward_ends(self, _: torch.nn.Module, __: object, ___: object) -> None:
        if self.step is not None:
            self.step.forward.append(self._now())

    def _gradient_of(self, number: int) -> Callable[[torch.Tensor], None]:
        def ready(_: torch.Tensor) -> None:
            if self.step is not None:
                self.step.ready.append((number, self._now()))

        return ready

    def _update_begins(self, *_: object) -> None:
        if self.step is not None:
            self.step.update = self._now()

    def _update_ends(self, *_: object) -> None:
        now, self.count = self._now(), self.count + 1
        if self.step is not None:
            self.step.end = now
            if self.step.whole(len(self.parameters)):
                self.recorded.append(self.step)
            else:
                self.left_out += 1
        self.step = None
        if self.count >= self.last:
            self._finish()
            self.detach()
        elif self.count >= self.warm_up:
            self.step = _Marks(start=now)

    # --- results ------------------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        """Gathers what all ranks have recorded, times all-reduces, and writes the files on rank 0."""
        own = _OwnRecord(socket.gethostname(), self._timed(), self.left_out)
        every, rank = [own], 0
        curve: tuple[tuple[int, float], ...] = ()
        if dist.is_available() and dist.is_initialized():
            rank = dist.get_rank(self.group)
            every = [own] * dist.get_world_size(self.group)
            if len(every) > 1:
                dist.all_gather_object(every, own, group=self.group)
                total = sum(parameter.numel() * parameter.element_size() for parameter in self.parameters)
                curve = all_reduce_times(total, self.device, self.group)
        if rank == 0:
            try:
                self._write(every, curve)
            except Exception as error:  # whatever it is, the training goes on
                known = isinstance(error, PacelineError | OSError)
                words = str(error) if known else f"{type(error).__name__}: {error}"
                _say(f"nothing could be written to {self.out}: {words}")

    def _timed(self) -> list[_Times]:
        """Returns the recorded steps in seconds since the first one began."""
        if not self.recorded:
            return []
        first = self.recorded[0].start
        if self.device.type != "cuda":
            return [step.times(lambda mark: mark - first) for step in self.recorded]
        torch.cuda.synchronize(self.device)
        return [step.times(lambda mark: 1e-3 * first.elapsed_time(mark)) for step in self.recorded]

    def _write(self, every: Sequence[_OwnRecord], curve: Sequence[tuple[int, float]]) -> None:
        fewest = min(len(record.steps) for record in every)
        if fewest < LEAST or self.batch is None:
            left_out = max(record.left_out for record in every)
            found = f"{fewest} steps of one forward and one backward pass after {self.warm_up} steps"
            if left_out:
                found += f", and {left_out} others: accumulated gradients and unused parameters are not supported"
            if fewest >= LEAST:
                found = "no tensor among the inputs of the model, whose length is the batch: give batch"
            _say(f"nothing was written: found {found}; expected {LEAST} or more")
            return
        self.out.mkdir(parents=True, exist_ok=True)
        trace, machine, scenario = (self.out / name for name in ("trace.json", "machine.yaml", "scenario.yaml"))
        write_whole(trace, json.dumps(self._trace(every)))
        placed = [*Counter(record.host for record in every).values()]
        described = self._scenario(placed)
        alone = {**described, "workload": {**described["workload"], "trace": str(trace)}}
        save_machine(self._machine(alone, every, curve, placed), machine)
        described["cluster"]["machine"] = machine.name
        write_whole(scenario, HEADING + yaml.safe_dump(described, sort_keys=False))
        self.written = scenario
        steps = [times.step_s for record in every for times in record.steps]
        _say(f"{len(steps)} steps of {fmean(steps) * 1e3:.3g} ms; wrote {scenario}, {machine.name} and {trace.name}")
        _say(f"next: paceline simulate {scenario}")

    def _trace(self, every: Sequence[_OwnRecord]) -> dict[str, Any]:
        """Returns rank 0's steps as events of `torch.profiler`."""
        sizes = [(parameter.numel(), _type_of(parameter)) for parameter in self.parameters]
        events = [event for number, times in enumerate(every[0].steps) for event in times.events(number, sizes)]
        about = {"backend": dist.get_backend(self.group), "rank": 0} if len(every) > 1 else {}
        return {"traceEvents": events, "distributedInfo": {**about, "world_size": len(every)}}

    def _scenario(self, placed: Sequence[int]) -> dict[str, Any]:
        """Returns the scenario of the recorded training, without the machine.

        Args:
            placed: the ranks on each host.
        """
        device = _device(self.device)
        if len(set(placed)) == 1:
            nodes = [{"device": device, "workers_per_node": placed[0], "count": len(placed)}]
        else:
            nodes = [{"device": device, "workers_per_node": count} for count in placed]
        workload: dict[str, Any] = {"trace": "trace.json", "trace_batch": self.batch, "batch_per_worker": self.batch}
        if self.samples is not None:
            workload["samples"] = self.samples
        return {
            "name": self.out.name,
            "algorithms": ["layerwise-sgd"] if sum(placed) > 1 else ["sequential-sgd"],
            "workload": workload,
            "cluster": {"nodes": nodes, "network": {"library": "nccl" if self.device.type == "cuda" else "gloo"}},
            "train": {"pace": "none", "shared_memory": False, "torch_threads": torch.get_num_threads()},
            "stop": {"updates": 200},
        }

    def _machine(
        self,
        scenario: Mapping[str, Any],
        every: Sequence[_OwnRecord],
        curve: Sequence[tuple[int, float]],
        placed: Sequence[int],
    ) -> MachinePart:
        """Returns the machine file; arguments as in `_scenario`, and what was recorded and timed."""
        batch, loaded = self.batch or 1, load(scenario)
        steps = [times for record in every for times in record.steps]
        details = f"{len(every)} ranks, {len(steps)} steps"
        origin = OriginPart(file="trace.json", tool="paceline.torch.hook", version=torch.__version__, details=details)
        sequences = {(Rank(rank), 0): [times.gradient_s for times in record.steps] for rank, record in enumerate(every)}
        forward = fmean(times.forward_s for times in steps) / fmean(times.gradient_s for times in steps)
        plan = loaded.plans()[0]
        part = divided(gradient_part(batch, max(placed), sequences, origin), forward, plan)
        if curve:
            steps_of_all = zip(*(record.steps for record in every), strict=False)
            waits = [min(times.wait_s for times in step) for step in steps_of_all]
            part = part.model_copy(update={"overlap": self._overlap(part, plan, curve, fmean(waits))})
        own = {"load": fmean(times.load_s for times in steps), "update": fmean(times.update_s for times in steps)}
        curves: tuple[CurvePart, ...] = ()
        if curve:
            points = tuple(BytesPart.model_construct(bytes=nbytes, time=seconds) for nbytes, seconds in curve)
            curves = (
                CurvePart.model_construct(
                    operation="AllReduce",
                    ranks=len(every),
                    shared_memory=False,
                    hosts=len(placed),
                    points=points,
                    origin=origin,
                ),
            )
        cores = max(1, len(os.sched_getaffinity(0)) // torch.get_num_threads()) if self.device.type == "cpu" else 0
        imported = Imported((part,), curves, own, (origin,), str(machine_facts()["processor"]), cores)
        machine = only_imports(loaded, imported)
        made = machine.made.model_copy(update={"verdict": f"recorded in a training script: {details}"})
        return machine.model_copy(update={"made": made})

    def _overlap(self, part: GradientPart, plan: Plan, curve: Sequence[tuple[int, float]], exposed_s: float) -> float:
        """Returns the speed of all-reduces beside a backward pass, relative to those of ranks that compute nothing.

        Args:
            part: the times of gradients.
            plan: the recorded training, whose method says which layers are all-reduced together.
            curve: bytes and seconds of all-reduces.
            exposed_s: for how long the last rank with its gradient waits for those of the others.
        """
        me, sizes = plan.job.team[0], [parameter.element_size() for parameter in self.parameters]
        gradient_s, item_bytes, begun = part.busy[-1].mean, sum(sizes) / len(sizes), list[tuple[float, float]]()
        measured, seconds = (np.array(values, dtype=float) for values in zip(*curve, strict=True))
        assert isinstance(plan.job.method, LayerwiseSgd), "several ranks train by layerwise-sgd"
        layers = {layer.name: number for number, layer in enumerate(me.layout.layers)}
        for bucket in plan.job.method.buckets(me):
            left = sum(part.backward[: layers[bucket.name]])  # of the layers before the bucket's first one
            nbytes = item_bytes * (bucket.part.stop - bucket.part.start)
            begun.append(((1 - left) * gradient_s, float(np.interp(nbytes, measured, seconds))))
        return overlap_of(begun, gradient_s, exposed_s)


def overlap_of(collectives: Sequence[tuple[float, float]], gradient_s: float, exposed_s: float) -> float:
    """Returns the speed of collectives beside a gradient with which so much of them is left at its end.

    Args:
        collectives: when each one can begin, since the start of the gradient, and the seconds that it takes alone; they
            follow one another.
        gradient_s: the seconds of the gradient.
        exposed_s: the seconds from the end of the gradient to that of the last collective.

    Returns:
        `SLOWEST` to 1; one of them if no speed between them leaves `exposed_s`.

    >>> overlap_of([(2.0, 1.0), (3.0, 1.0)], gradient_s=4.0, exposed_s=0.0)
    1.0
    >>> round(overlap_of([(2.0, 2.0)], gradient_s=4.0, exposed_s=1.0), 2)  # one of two seconds is left
    0.5
    """

    def left_s(speed: float) -> float:
        end_s = 0.0
        for begin_s, alone_s in collectives:
            begin_s = max(begin_s, end_s)
            inside = speed * max(0.0, gradient_s - begin_s)
            late_s = max(begin_s, gradient_s) + alone_s - inside
            end_s = begin_s + alone_s / speed if alone_s <= inside else late_s
        return max(0.0, end_s - gradient_s)

    if left_s(1.0) >= exposed_s:
        return 1.0
    if left_s(SLOWEST) <= exposed_s:
        return SLOWEST
    return float(brentq(lambda speed: left_s(speed) - exposed_s, SLOWEST, 1.0, xtol=1e-3))


def hook(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    out: str | Path = "paceline-recorded",
    steps: int = 50,
    warm_up: int = 10,
    batch: int | None = None,
    samples: int | None = None,
) -> Hook:
    """Returns a context manager that records a training loop, and writes what predictions need.

    In the folder `out`, rank 0 writes ``scenario.yaml``, from which `paceline simulate`, `sweep` and `plan` continue,
    ``machine.yaml`` with the times of gradients, updates, loading and all-reduces, and ``trace.json`` with the layers
    of the recorded steps, which https://ui.perfetto.dev shows. The training is not changed: the same tensors are
    computed in the same order.

    Args:
        model: the module whose forward pass the loop calls: a `DistributedDataParallel`, or a module of one rank.
        optimizer: its optimizer.
        out: the folder of the files; files of an earlier recording are replaced.
        steps: the recorded steps.
        warm_up: the steps before them, which are not recorded.
        batch: samples of a gradient; None: the length of the first tensor that the model is given.
        samples: samples of an epoch; None: not known, so that budgets in epochs mean little.

    Raises:
        InputError: an argument is wrong; with all mistakes.

    >>> import tempfile, torch
    >>> model = torch.nn.Linear(4, 2)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with hook(model, optimizer, out=folder, steps=5, warm_up=1) as recording:
    ...         for _ in range(8):
    ...             optimizer.zero_grad()
    ...             model(torch.ones(3, 4)).sum().backward()
    ...             optimizer.step()
    ...     sorted(path.name for path in Path(folder).iterdir())
    ['machine.yaml', 'scenario.yaml', 'trace.json']

    Source: ours. The callbacks are torch's (`Tensor.register_post_accumulate_grad_hook` and others).
    """
    return Hook(model, optimizer, out=out, steps=steps, warm_up=warm_up, batch=batch, samples=samples)


HEADING = """\
# The recorded training, written by paceline.torch.hook. The times of machine.yaml are those of its ranks and hosts;
# on others, messages take the links of the network. What a larger cluster does:
#   paceline simulate scenario.yaml --set cluster.nodes[0].count=8 --set cluster.network.link=eth-25g
"""


@dataclass(slots=True)
class _Marks:
    """The marks of a step."""

    start: Mark
    forward: list[Mark] = field(default_factory=list)
    """begin and end of each forward pass"""
    ready: list[tuple[int, Mark]] = field(default_factory=list)
    """when the gradient of each parameter was there"""
    update: Mark = None
    end: Mark = None

    def whole(self, parameters: int) -> bool:
        """Whether it is one forward and one backward pass of all parameters, and an update."""
        numbers = {number for number, _ in self.ready}
        return len(self.forward) == 2 and len(numbers) == len(self.ready) == parameters and self.update is not None

    def times(self, seconds: Callable[[Mark], float]) -> _Times:
        begin, end = map(seconds, self.forward)
        ready = tuple((number, seconds(mark)) for number, mark in self.ready)
        return _Times(seconds(self.start), begin, end, ready, seconds(self.update), seconds(self.end))


@dataclass(frozen=True, slots=True)
class _Times:
    """When the parts of a step begin and end, in seconds."""

    start: float
    forward: float
    backward: float
    ready: tuple[tuple[int, float], ...]
    """the parameter and when its gradient was there"""
    update: float
    end: float

    @property
    def step_s(self) -> float:
        return self.end - self.start

    @property
    def load_s(self) -> float:
        return self.forward - self.start

    @property
    def forward_s(self) -> float:
        return self.backward - self.forward

    @property
    def gradient_s(self) -> float:
        return max(time for _, time in self.ready) - self.forward

    @property
    def wait_s(self) -> float:
        return max(0.0, self.update - max(time for _, time in self.ready))

    @property
    def update_s(self) -> float:
        return self.end - self.update

    def events(self, number: int, sizes: Sequence[tuple[int, str]]) -> Iterator[dict[str, Any]]:
        """Yields the step as events of `torch.profiler`.

        Args:
            number: the number of the step.
            sizes: the numbers in each parameter, and their type.
        """

        def event(
            name: str, begin: float, end: float, kind: str = "cpu_op", about: Mapping[str, Any] | None = None
        ) -> dict[str, Any]:
            at = {"ph": "X", "pid": 0, "tid": 0, "ts": 1e6 * begin, "dur": 1e6 * max(0.0, end - begin)}
            return {"name": name, "cat": kind, **at, **({"args": about} if about else {})}

        yield event(f"ProfilerStep#{number}", self.start, self.end, "user_annotation")
        yield event("enumerate(DataLoader)#of the script", self.start, self.forward, "user_annotation")
        yield event("forward", self.forward, self.backward)
        bounds = pairwise([self.backward, *(time for _, time in self.ready)])
        for (begin, end), (parameter, _) in zip(bounds, self.ready, strict=True):
            numel, kind = sizes[parameter]
            yield event(f"{BACKWARD}: {ACCUMULATE}", begin, end)
            about: dict[str, Any] = {"Input Dims": [[numel]], "Input type": [kind]}
            yield event(ACCUMULATE, begin, end, about=about)
        yield event("Optimizer.step#of the script", self.update, self.end, "user_annotation")


@dataclass(frozen=True, slots=True)
class _OwnRecord:
    """What a rank has recorded."""

    host: str
    steps: list[_Times]
    left_out: int


def all_reduce_times(largest_bytes: int, device: torch.device, group: Any = None) -> tuple[tuple[int, float], ...]:
    """Returns bytes and seconds of all-reduces, of the same sizes on all ranks, which call this at the same time.

    Args:
        largest_bytes: the largest size; the others are a quarter of the next one.
        device: where the vectors are.
        group: the process group; None: the default one.
    """
    sizes = [4 * max(1, largest_bytes // 4)]
    while sizes[0] > 4 * SMALLEST_BYTES:
        sizes.insert(0, sizes[0] // 16 * 4)
    measured = []
    for nbytes in sizes:
        vector, times = torch.zeros(nbytes // 4, device=device), list[float]()
        for _ in range(REPEATS):
            dist.barrier(group)
            _synchronize(device)
            start = time.perf_counter()
            dist.all_reduce(vector, group=group)
            _synchronize(device)
            times.append(time.perf_counter() - start)
            over = torch.tensor([sum(times)], device=device)
            dist.all_reduce(over, group=group)  # all ranks go on, or none
            if len(times) > 3 and float(over) > LONGEST_S * dist.get_world_size(group):
                break
        own = torch.tensor([median(times[2:])], device=device)
        dist.all_reduce(own, group=group)
        measured.append((nbytes, float(own) / dist.get_world_size(group)))
    return tuple(measured)


def _device(device: torch.device) -> str:
    """Returns the name of a device in the catalogue, or of one like it, since the trace has the times of gradients."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else str(machine_facts()["processor"])
    try:
        return named(name).name
    except InputError:
        return USUAL[device.type]


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _type_of(parameter: torch.Tensor) -> str:
    names = {torch.float64: "double", torch.float16: "half", torch.bfloat16: "bfloat16"}
    return names.get(parameter.dtype, "float")


def _say(text: str) -> None:
    sys.stderr.write(f"paceline: {text}\n")
