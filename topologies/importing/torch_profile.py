"""Costs of a training step from a trace of ``torch.profiler``: phases on the host and on a GPU, and communication.

* A step is an annotation ``ProfilerStep#N``, which the profiler writes if it has a schedule and `step` is called. One
  without a backward pass is no training step and is left out: the stub that is begun by the last call of `step` (FOUND:
  HolisticTraceAnalysis, tests/data/amd_trace), waiting, or an evaluation.
* Backward passes consist of ``autograd::engine::evaluate_function: …``: from the start of the first to the end of the
  last one, unless another operator runs in between on the thread of the step, as with accumulated gradients. A forward
  pass lasts from the first operator after loading, or after the previous backward pass, to the start of the backward
  pass. It contains copies of the batch to a GPU.
* The optimizer's time is that of ``Optimizer.step#…``, and loading that of ``enumerate(DataLoader)#…``.
* Kernels belong to the phase in which the host launched them, which is known by ``correlation``. The time of a phase on
  a GPU is that in which at least one of its kernels runs. NCCL's kernels are communication only.
* Communication is NCCL's kernels, or, if there are none, annotations such as ``gloo:all_reduce``. ``nccl:…`` counts
  only on the GPU, because on the host it lasts as long as the launch. It contains the time that ranks wait for each
  other.
* Overlapped is communication while other kernels run, or, without kernels, while the host is in a phase of the step.
* A gradient is what ``AccumulateGrad`` adds; its size is in ``Input Dims``, which ``record_shapes`` writes. Without
  them, a gradient is what an all-reduce of NCCL has as ``In msg nelems`` in ``record_param_comms`` (FOUND:
  pytorch/pytorch, torch/csrc/profiler/util.cpp). The end of the former and the start of the latter divide the last
  backward pass of a step.

Traces of ``torch.profiler`` (``export_chrome_trace``): the events of a file, checked.

The format is the Trace Event Format of Chrome as Kineto writes it: FOUND (pytorch/kineto, output_json.cpp). Times are
in microseconds, whatever ``displayTimeUnit`` says, which is for the display. Only complete events (``ph`` X) are read;
flow, counter and metadata events are ignored. A compressed file is recognised by its content, not by its name. Times of
events are seconds since the first event, as microseconds since the machine's start have too many digits.
"""

from __future__ import annotations

import gzip
import json
import math
import re
import zlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from paceline.algorithms.core.errors import InputError
from paceline.topologies.importing.assembly import refuse

LARGEST = 1024 * 1024 * 1024
"""the maximum size of a trace, uncompressed, in bytes: INFERENCE, several million events"""

EXPECTED = "the JSON of torch.profiler's export_chrome_trace, plain or gzip"
GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """An event with a duration."""

    name: str
    category: str
    """cpu_op, user_annotation, kernel, cuda_runtime, …, in lower case"""
    lane: tuple[str, str]
    """process and thread, or device and stream"""
    start: float
    end: float
    args: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TorchTrace:
    """The events of a trace in order of their starts, and what the file tells of the run."""

    events: tuple[TraceEvent, ...]
    devices: Mapping[int, str]
    """names of the GPUs, by number"""
    ranks: int | None
    backend: str | None
    """of torch.distributed"""


def read(path: Path) -> TorchTrace:
    """Returns the trace in a file.

    Args:
        path: a file of `export_chrome_trace`, with or without gzip.

    Raises:
        InputError: the file cannot be read, is not such a trace, or has wrong events, all of which are listed.
    """
    where = str(path)
    content = _json(_content(path), where)
    if not isinstance(content, dict) or not isinstance(content.get("traceEvents"), list):
        raise InputError(f"{where}: has no list traceEvents; expected {EXPECTED}")
    problems: list[str] = []
    events = [_event(number, entry, problems) for number, entry in enumerate(content["traceEvents"])]
    refuse(where, problems)
    kept = [event for event in events if event is not None]
    first = min((event.start for event in kept), default=0.0)
    moved = (
        TraceEvent(
            event.name, event.category, event.lane, (event.start - first) / 1e6, (event.end - first) / 1e6, event.args
        )
        for event in kept
    )
    run = content.get("distributedInfo")
    run = run if isinstance(run, dict) else {}
    ranks, backend = run.get("world_size"), run.get("backend")
    return TorchTrace(
        tuple(sorted(moved, key=lambda event: (event.start, -event.end))),
        _devices(content.get("deviceProperties")),
        ranks if isinstance(ranks, int) and not isinstance(ranks, bool) and ranks > 0 else None,
        backend if isinstance(backend, str) else None,
    )


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            packed = file.read(2) == GZIP
        with gzip.open(path) if packed else path.open("rb") as stream:
            content = stream.read(LARGEST + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise InputError(f"{path}: is damaged or cut off; expected a complete gzip file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    if len(content) > LARGEST:
        raise InputError(f"{path}: found more than {LARGEST} bytes; profile fewer steps")
    return content


def _json(content: bytes, where: str) -> object:
    try:
        return json.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise InputError(f"{where}: is not text; expected {EXPECTED}") from None
    except json.JSONDecodeError as error:
        at = f"line {error.lineno}, column {error.colno}: not valid JSON: {error.msg}"
        hint = "" if content.rstrip().endswith(b"}") else "; the file seems to be cut off"
        raise InputError(f"{where}: {at}{hint}; expected {EXPECTED}") from None
    except RecursionError:
        raise InputError(f"{where}: has too many brackets inside each other; expected {EXPECTED}") from None
    except ValueError:  # a number with more digits than Python converts
        raise InputError(f"{where}: has a number with too many digits; expected {EXPECTED}") from None


def _event(number: int, entry: object, problems: list[str]) -> TraceEvent | None:
    """Returns the event in microseconds; None for other kinds and for a wrong one, which is added to the problems."""
    if not isinstance(entry, dict):
        problems.append(f"traceEvents[{number}]: found {str(entry)[:40]!r}, expected an object")
        return None
    if entry.get("ph") != "X":
        return None
    name, category, args = entry.get("name"), entry.get("cat", ""), entry.get("args", {})
    at = f"traceEvents[{number}] ({name!r:.60})"
    if not isinstance(name, str) or not isinstance(category, str) or not isinstance(args, dict):
        problems.append(f"{at}: expected text as name and cat, and an object as args")
        return None
    start, duration = _number(entry.get("ts")), _number(entry.get("dur"))
    if start is None:
        problems.append(f"{at}: found ts {entry.get('ts')!r:.40}, expected microseconds")
    elif duration is None or duration < 0:
        problems.append(f"{at}: found dur {entry.get('dur')!r:.40}, expected 0 or more microseconds")
    else:
        lane = str(entry.get("pid")), str(entry.get("tid"))
        return TraceEvent(name, category.lower(), lane, start, start + duration, args)
    return None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < 1e300 and math.isfinite(value) else None


def _devices(properties: object) -> dict[int, str]:
    """Returns the names of the GPUs; a list that is not as expected is as good as none."""
    entries = [entry for entry in properties if isinstance(entry, dict)] if isinstance(properties, list) else []
    return {
        entry["id"]: entry["name"]
        for entry in entries
        if isinstance(entry.get("id"), int) and isinstance(entry.get("name"), str)
    }


Interval = tuple[float, float]
"""(start, end) with start ≤ end; a union of intervals is sorted, and they are disjoint"""
Launched = Sequence[tuple[float, Interval]]
"""kernels, each after the time of its launch"""
STEP = re.compile(r"ProfilerStep#(\d{1,15})", re.ASCII)
OPERATORS = frozenset({"cpu_op", "operator"})
"""categories of operators; the second one in PyTorch 1.8 to 1.10: MEMORY medium. There it is that of annotations, too,
such as those of steps: FOUND (traces in the tests of Kineto's TensorBoard plugin)"""
BACKWARD = "autograd::engine::evaluate_function"
OPTIMIZER = "Optimizer.step#"
ZERO_GRAD = "Optimizer.zero_grad#"
LOADING = "enumerate(DataLoader)#"
ON_HOST = re.compile(r"(?:gloo|mpi|ucc):\w+", re.ASCII)
ON_GPU = re.compile(r"(?:nccl|gloo|mpi|ucc):\w+", re.ASCII)
ROUNDED_S = 2e-6
"""by how much steps may overlap: MEMORY medium (old versions of kineto rounded to whole microseconds), twice that"""
ACCUMULATE = "torch::autograd::AccumulateGrad"
COLLECTIVE = "record_param_comms"
ITEM_BYTES = {"float": 4, "double": 8, "half": 2, "bfloat16": 2}
"""bytes of a number, by its type in lower case without ``c10::``"""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTimes:
    """Seconds of each step in which a GPU ran kernels of a phase."""

    forward: tuple[float, ...]
    backward: tuple[float, ...]
    optimizer: tuple[float, ...]


class PartialGradient(NamedTuple):
    """A part of a gradient that is there at once: that of a parameter, or of a bucket of them."""

    name: str
    """"" if it is not known"""
    nbytes: int
    share: float
    """the fraction of the backward pass that computes it"""


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientProfile:
    """Seconds of each profiled step of one rank. The rules of the module say what belongs to each phase.

    Args:
        steps: whole steps.
        loading: waiting for the batch.
        forward: forward passes on the host.
        backward: backward passes on the host.
        optimizer: the optimizer on the host.
        communication: at least one collective or message in progress.
        overlapped: the part of the communication that overlaps computation.
        kernels: the phases on the GPU, None if the trace has no kernels.
        device: the name of the GPU, None if the trace has no kernels or does not name it.
        ranks: the number of ranks of torch.distributed, None if the trace does not tell.
        backend: the backend of torch.distributed, None if the trace does not tell.
        tool: what recorded it.
        left_out: names of steps without a backward pass, which the other fields do not contain.
        parts: the parts of a gradient in the order in which backward passes compute them; empty if they are not known.
        no_parts: why they are not known, and what would be right.
    """

    steps: tuple[float, ...]
    loading: tuple[float, ...]
    forward: tuple[float, ...]
    backward: tuple[float, ...]
    optimizer: tuple[float, ...]
    communication: tuple[float, ...]
    overlapped: tuple[float, ...]
    kernels: KernelTimes | None
    device: str | None
    ranks: int | None
    backend: str | None
    tool: str
    left_out: tuple[str, ...] = ()
    parts: tuple[PartialGradient, ...] = ()
    no_parts: str = ""

    @property
    def on_gpu(self) -> bool:
        """Whether passes take longer on the GPU than on the host."""
        kernels = self.kernels
        return kernels is not None and sum(kernels.forward + kernels.backward) > sum(self.forward + self.backward)

    @property
    def forward_share(self) -> float:
        """The fraction of the forward passes in the time of gradients."""
        passes = self.kernels if self.kernels is not None and self.on_gpu else self
        return sum(passes.forward) / (sum(passes.forward) + sum(passes.backward))

    @property
    def gradient(self) -> tuple[float, ...]:
        """Seconds of the forward and backward passes of each step, on the host or on the GPU, whichever is longer."""
        host = [forward + backward for forward, backward in zip(self.forward, self.backward, strict=True)]
        if self.kernels is None:
            return tuple(host)
        there = zip(self.kernels.forward, self.kernels.backward, strict=True)
        return tuple(max(here, sum(passes)) for here, passes in zip(host, there, strict=True))


@dataclass(frozen=True, slots=True)
class _Phases:
    """The phases of a step on the host, each a union of intervals."""

    loading: list[Interval]
    forward: list[Interval]
    backward: list[Interval]
    optimizer: list[Interval]


def profile(path: Path) -> GradientProfile:
    """Returns the costs of the steps in a trace.

    Args:
        path: a file of torch.profiler's `export_chrome_trace`, plain or gzip.

    Raises:
        InputError: the file is not a trace, or not one of training steps; everything wrong is listed.
    """
    return from_trace(read(path), str(path))


def from_trace(trace: TorchTrace, where: str) -> GradientProfile:
    """Returns the costs of the steps in a trace.

    Args:
        trace: the events.
        where: the file, for messages.

    Raises:
        InputError: the trace has no steps, steps that contradict each other, or no backward pass.
    """
    steps = _steps(trace.events, where)
    process = steps[0].lane[0]
    own = [event for event in trace.events if event.lane[0] == process]
    if not any(event.name.startswith(BACKWARD) for event in own):
        problem = f"has no events {BACKWARD}: …; expected a training step profiled with ProfilerActivity.CPU"
        refuse(where, [problem])
    spans = [(step.start, step.end) for step in steps]
    phases = _phases(own, steps[0].lane, spans)
    kernels = [event for event in trace.events if event.category == "kernel"]
    computing = [event for event in kernels if not _is_nccl(event)]
    messages = union((event.start, event.end) for event in _communication(trace.events, process))
    busy = union((event.start, event.end) for event in computing)
    if not kernels:
        busy = union(part for phase in phases for part in [*phase.forward, *phase.backward, *phase.optimizer])
    until = [(span[0], following[0]) for span, following in pairwise(spans)] + spans[-1:]
    whole = [number for number, phase in enumerate(phases) if phase.backward]
    if not whole:
        refuse(where, [f"has no event {BACKWARD}: … inside a step; expected whole training steps"])
    left_out = [steps[number].name for number in range(len(steps)) if number not in whole]
    launched = _launched(trace.events, computing)
    phases, spans = [phases[number] for number in whole], [spans[number] for number in whole]
    during = [common(messages, [until[number]]) for number in whole]
    made = GradientProfile(
        steps=tuple(end - start for start, end in spans),
        loading=tuple(length(phase.loading) for phase in phases),
        forward=tuple(length(phase.forward) for phase in phases),
        backward=tuple(length(phase.backward) for phase in phases),
        optimizer=tuple(length(phase.optimizer) for phase in phases),
        communication=tuple(map(length, during)),
        overlapped=tuple(length(common(intervals, busy)) for intervals in during),
        kernels=_kernel_times(launched, phases) if kernels else None,
        device=_device(trace, kernels),
        ranks=trace.ranks,
        backend=trace.backend,
        tool="torch.profiler",
        left_out=tuple(left_out),
    )
    parts, no_parts = _parts(own, [phase.backward[-1] for phase in phases], launched if made.on_gpu else None)
    return replace(made, parts=parts, no_parts=no_parts)


# --- steps and phases on the host ------------------------------------------------------------------------------------


def _steps(events: Sequence[TraceEvent], where: str) -> list[TraceEvent]:
    """Returns the events of the steps in order; raises `InputError` if they are not steps of one thread."""
    steps = [event for event in events if event.category != "gpu_user_annotation" and STEP.fullmatch(event.name)]
    if not steps:
        hint = "expected a profile with a schedule, whose step() is called after each training step"
        refuse(where, [f"has no events ProfilerStep#N; {hint}"])
    problems = [
        f"found {name} {count} times, expected the trace of one process and one cycle of the schedule"
        for name, count in Counter(step.name for step in steps).items()
        if count > 1
    ]
    if len(lanes := sorted({"/".join(step.lane) for step in steps})) > 1:
        problems.append(f"found steps of the threads {', '.join(lanes)}, expected those of one thread")
    problems += [
        f"found that {later.name} starts {(earlier.end - later.start) * 1e6:.4g} us before {earlier.name} ends"
        for earlier, later in pairwise(steps)
        if later.start < earlier.end - ROUNDED_S
    ]
    problems += [f"found a duration of 0 for {step.name}, expected more" for step in steps if step.end <= step.start]
    refuse(where, problems)
    return steps


def _phases(own: Sequence[TraceEvent], lane: tuple[str, str], spans: Sequence[Interval]) -> list[_Phases]:
    """Returns the phases of each step; an event belongs to the step in which it starts."""

    def named(*prefixes: str) -> list[list[Interval]]:
        return _by_step((event for event in own if event.name.startswith(prefixes)), spans)

    loading, backward, optimizer = named(LOADING), named(BACKWARD), named(OPTIMIZER)
    aside = union(part for step in (*loading, *backward, *named(OPTIMIZER, ZERO_GRAD)) for part in step)
    operators = _by_step(
        (
            event
            for event in own
            if event.category in OPERATORS
            and event.lane == lane
            and within(aside, event.start) is None
            and not STEP.fullmatch(event.name)
        ),
        spans,
    )
    phases: list[_Phases] = []
    for number in range(len(spans)):
        forward, passes = _passes(operators[number], backward[number])
        phases.append(_Phases(loading[number], forward, passes, optimizer[number]))
    return phases


def _by_step(events: Iterable[TraceEvent], spans: Sequence[Interval]) -> list[list[Interval]]:
    """Returns for each step the union of the events that start in it, up to its end."""
    of_step: list[list[Interval]] = [[] for _ in spans]
    for event in events:
        step = within(spans, event.start)
        if step is not None:
            of_step[step].append((event.start, min(event.end, spans[step][1])))
    return [union(step) for step in of_step]


def _passes(operators: Sequence[Interval], backward: Sequence[Interval]) -> tuple[list[Interval], list[Interval]]:
    """Returns the forward and the backward passes of a step, of operators that belong to neither and of backward ones.

    >>> _passes([(0.0, 1.0), (6.0, 7.0)], [(2.0, 3.0), (4.0, 5.0)])
    ([(0.0, 2.0)], [(2.0, 5.0)])
    """
    forward: list[Interval] = []
    passes: list[Interval] = []
    begun: float | None = None
    ended = True
    for start, end, is_backward in sorted(
        [(*interval, False) for interval in operators] + [(*interval, True) for interval in backward]
    ):
        if not is_backward:
            begun = start if begun is None else begun
            ended = True
            continue
        if begun is not None:
            forward.append((begun, start))
        if ended:
            passes.append((start, end))
        else:
            passes[-1] = passes[-1][0], end
        begun, ended = None, False
    return forward, passes


# --- kernels and communication ---------------------------------------------------------------------------------------


def _is_nccl(kernel: TraceEvent) -> bool:
    return kernel.name.lower().startswith(("nccl", "rccl", "msccl"))  # the latter two of RCCL: MEMORY medium


def _communication(events: Sequence[TraceEvent], process: str) -> list[TraceEvent]:
    """Returns NCCL's kernels, or the annotations of other backends."""
    kernels = [event for event in events if event.category == "kernel" and _is_nccl(event)]
    kernels = kernels or [
        event for event in events if event.category == "gpu_user_annotation" and ON_GPU.fullmatch(event.name)
    ]
    return kernels or [
        event
        for event in events
        if event.category != "gpu_user_annotation" and event.lane[0] == process and ON_HOST.fullmatch(event.name)
    ]


def _launched(events: Sequence[TraceEvent], computing: Sequence[TraceEvent]) -> Launched:
    """Returns the kernels whose launches the trace has, which `correlation` joins."""
    launches = {
        str(event.args["correlation"]): event.start
        for event in events
        if event.category != "kernel" and event.category.endswith(("runtime", "driver")) and "correlation" in event.args
    }
    return [
        (launches[correlation], (kernel.start, kernel.end))
        for kernel in computing
        if (correlation := str(kernel.args.get("correlation"))) in launches
    ]


def _during(launched: Launched, parts: Sequence[Sequence[Interval]]) -> tuple[float, ...]:
    """Returns for each part of the host's time, which are disjoint, the time of the kernels that it launched."""
    owner = {interval: number for number, part in enumerate(parts) for interval in part}
    united = sorted(owner)
    of_part: list[list[Interval]] = [[] for _ in parts]
    for launch, kernel in launched:
        place = within(united, launch)
        if place is not None:
            of_part[owner[united[place]]].append(kernel)
    return tuple(length(union(part)) for part in of_part)


def _kernel_times(launched: Launched, phases: Sequence[_Phases]) -> KernelTimes:
    return KernelTimes(
        forward=_during(launched, [phase.forward for phase in phases]),
        backward=_during(launched, [phase.backward for phase in phases]),
        optimizer=_during(launched, [phase.optimizer for phase in phases]),
    )


# --- parts of a gradient ---------------------------------------------------------------------------------------------


def _parts(
    own: Sequence[TraceEvent], passes: Sequence[Interval], launched: Launched | None
) -> tuple[tuple[PartialGradient, ...], str]:
    """Returns the parts of a gradient, and why they are not known if there are none.

    Args:
        own: the events of the host.
        passes: the last backward pass of each step.
        launched: the kernels, if the passes take longer on the GPU.
    """
    added = [(event.end, event.start, _added_bytes(event)) for event in own if event.name == ACCUMULATE]
    if not added or any(nbytes is None for _, _, nbytes in added):
        reduced = [event for event in own if event.name == COLLECTIVE and _reduced_bytes(event)]
        if len({str(event.args.get("Process Group Name")) for event in reduced}) > 1:
            return (), "has all-reduces of several process groups; expected a profile with record_shapes=True"
        added = [(event.start, event.start, _reduced_bytes(event)) for event in reduced]
    known = [(ready, start, nbytes) for ready, start, nbytes in added if nbytes is not None]
    seconds: list[tuple[float, ...]] = []
    sizes: set[tuple[int, ...]] = set()
    for begin, end in passes:
        of_step = sorted((ready, nbytes) for ready, start, nbytes in known if begin <= start < end)
        bounds = [begin, *(min(ready, end) for ready, _ in of_step[:-1]), end]
        intervals = [[part] for part in pairwise(bounds)]
        host = tuple(until - since for since, until in pairwise(bounds))
        seconds.append(host if launched is None else _during(launched, intervals))
        sizes.add(tuple(nbytes for _, nbytes in of_step))
    if () in sizes:
        return (), "has no sizes of gradients; expected a profile with record_shapes=True"
    if len(sizes) > 1:
        return (), "has gradients of other sizes in one step than in another; expected the same in every step"
    times = [sum(part) for part in zip(*seconds, strict=True)]
    return tuple(
        PartialGradient("", nbytes, time / sum(times) if sum(times) else 1 / len(times))
        for nbytes, time in zip(*sizes, times, strict=True)
    ), ""


def _added_bytes(event: TraceEvent) -> int | None:
    """Returns the bytes of the gradient that is added to those of its parameter; None if they are not known."""
    dims, kinds = event.args.get("Input Dims"), event.args.get("Input type")
    if not (isinstance(dims, list) and dims and isinstance(kinds, list) and kinds and isinstance(dims[0], list)):
        return None
    item = ITEM_BYTES.get(str(kinds[0]).lower().removeprefix("c10::"))
    whole = all(isinstance(size, int) and size > 0 for size in dims[0])
    return item * math.prod(dims[0]) if item and whole else None


def _reduced_bytes(event: TraceEvent) -> int | None:
    """Returns the bytes of an all-reduce; None of other collectives."""
    count, item = event.args.get("In msg nelems"), ITEM_BYTES.get(str(event.args.get("dtype")).lower())
    if event.args.get("Collective name") != "allreduce" or not isinstance(count, int) or count < 1:
        return None
    return item and item * count


def _device(trace: TorchTrace, kernels: Sequence[TraceEvent]) -> str | None:
    """Returns the names of the GPUs that ran kernels, or None."""
    used = {number for event in kernels if isinstance(number := event.args.get("device"), int)}
    names = sorted({name for number, name in trace.devices.items() if number in used})
    return ", ".join(names) or None


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Returns the union of intervals; those that touch become one.

    >>> union([(3.0, 4.0), (0.0, 1.0), (0.5, 2.0)])
    [(0.0, 2.0), (3.0, 4.0)]
    """
    joined: list[Interval] = []
    for start, end in sorted(intervals):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return joined


def length(united: Iterable[Interval]) -> float:
    """Returns the total length of a union."""
    return sum((end - start for start, end in united), 0.0)


def common(first: Sequence[Interval], second: Sequence[Interval]) -> list[Interval]:
    """Returns the intersection of two unions.

    Args:
        first: a union.
        second: a union.

    >>> common([(0.0, 2.0), (3.0, 4.0)], [(1.0, 3.5)])
    [(1.0, 2.0), (3.0, 3.5)]
    """
    shared: list[Interval] = []
    here = there = 0
    while here < len(first) and there < len(second):
        start, end = max(first[here][0], second[there][0]), min(first[here][1], second[there][1])
        if start < end:
            shared.append((start, end))
        if first[here][1] < second[there][1]:
            here += 1
        else:
            there += 1
    return shared


def within(united: Sequence[Interval], at: float) -> int | None:
    """Returns the number of the interval of a union that contains a time, or None; ends are not contained.

    Args:
        united: a union.
        at: the time.

    >>> within([(0.0, 2.0), (3.0, 4.0)], 3.5), within([(0.0, 2.0)], 2.0)
    (1, None)
    """
    place = bisect_right(united, (at, float("inf"))) - 1
    return place if place >= 0 and at < united[place][1] else None
