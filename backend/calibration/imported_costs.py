"""Imports costs from logs of nccl-tests and OSU micro-benchmarks, traces of training steps, and stored runs.

Rules of this file:

* A log gives curves of messages and collectives. Several runs of one operation with the same ranks and hosts are one
  curve: at each size the median of their times. A log that does not tell its hosts is of one host.
* A trace gives the time of a gradient with all ranks of a host busy, which is all that was recorded. Its distribution
  is that of the trace's steps. The forward pass has its own time; the layers of a trace need not be those of the
  scenario's model, so the backward pass is divided among them as that of the scenario's device (`Plan.layer_split`).
* Of stored runs, only those that were not paced have the machine's own gradient times. The gradients of the first steps
  are left out, because caches are cold.
* Communication of a worker's program in a run is that of a collective if the run has exactly one collective with these
  bytes. Its time is that from the last entry to an exit. Collectives in sub-programs overlap other work, so they are
  left out, and so are messages, whose ends the tables of a run do not join.
* Costs without an imported figure are left out or measured, but never guessed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.values import Rank
from paceline.backend.calibration.gradient_costs import WARM_UP
from paceline.backend.calibration.probes import own_bytes
from paceline.backend.calibration.recorded_costs import uncovered
from paceline.backend.calibration.step_time_laws import correlations, fitted
from paceline.records import Run
from paceline.records.machine import package_versions
from paceline.records.store import read_run
from paceline.records.trace import Span
from paceline.scenarios.machine_file import (
    BusyPart,
    BytesPart,
    CurvePart,
    GradientPart,
    MachinePart,
    MadePart,
    OriginPart,
    OwnPart,
)
from paceline.scenarios.resolution.plan import Plan
from paceline.scenarios.resolution.schema import Scenario
from paceline.topologies.catalogue.gradient_times import slices
from paceline.topologies.catalogue.machine_profile import Asked
from paceline.topologies.importing import nccl_tests, osu, training_trace
from paceline.topologies.importing.measured import (
    RATE,
    RATE_BOTH_WAYS,
    MeasuredCurve,
    profile_points,
)


@dataclass(frozen=True, slots=True)
class Imported:
    """Costs that were imported.

    Args:
        gradients: times of gradients, one for each batch.
        curves: messages and collectives.
        own: seconds of a rank's own work, by the names of `OwnPart`.
        origins: the files, tools and versions.
        processor, cores: of the host of a run; "" and 0 if they are not known.
    """

    gradients: tuple[GradientPart, ...] = ()
    curves: tuple[CurvePart, ...] = ()
    own: Mapping[str, float] = field(default_factory=dict)
    origins: tuple[OriginPart, ...] = ()
    processor: str = ""
    cores: int = 0

    def __add__(self, other: Imported) -> Imported:
        """Returns the costs of both; of equal ones, the later counts."""
        gradients = {gradient.batch: gradient for gradient in (*self.gradients, *other.gradients)}
        curves = {(curve.operation, curve.ranks, curve.hosts): curve for curve in (*self.curves, *other.curves)}
        return Imported(
            tuple(gradients[batch] for batch in sorted(gradients)),
            tuple(curves.values()),
            {**self.own, **other.own},
            tuple(dict.fromkeys((*self.origins, *other.origins))),
            self.processor or other.processor,
            self.cores or other.cores,
        )

    def has(self, asked: Asked) -> bool:
        """Whether a curve of this collective on one host contains its size."""
        return any(
            (curve.operation, curve.ranks, curve.hosts) == (asked.operation, asked.members, 1)
            and curve.points[0].bytes <= asked.nbytes <= curve.points[-1].bytes
            for curve in self.curves
        )


NOTHING = Imported()


def with_imports(machine: MachinePart, imported: Imported) -> MachinePart:
    """Returns a machine with imported costs in the place of measured ones.

    Args:
        machine: the machine as it was measured.
        imported: the costs; own work that was imported replaces the measured one.
    """
    if not imported.origins:
        return machine
    gradients = {part.batch: part for part in (*machine.gradients, *imported.gradients)}
    taken = {(curve.operation, curve.ranks, curve.hosts) for curve in imported.curves}
    costs = [cost for cost in machine.costs if (cost.operation, cost.ranks, cost.hosts) not in taken]
    made = machine.made.model_copy(
        update={"verdict": "; ".join([machine.made.verdict, f"imported: {in_words(imported.origins)}"])}
    )
    return machine.model_copy(
        update={
            "made": made,
            "gradients": tuple(gradients[batch] for batch in sorted(gradients)),
            "costs": (*costs, *imported.curves),
            "own": machine.own.model_copy(update=dict(imported.own)),
            "imported": imported.origins,
        }
    )


def only_imports(scenario: Scenario, imported: Imported) -> MachinePart:
    """Returns a machine of imported costs alone, which need not have been measured on this machine.

    Own work that was not imported takes no time. Unless a run tells the cores of its host, each rank is assumed to have
    a core or device of its own, since the imported gradients were measured with all of them busy.

    Args:
        scenario: the scenario with its model, ranks and threads.
        imported: the costs.
    """
    versions, most = package_versions(), max(len(ranks) for ranks in scenario.cluster.placement)
    return MachinePart.model_construct(
        format=1,
        made=MadePart.model_construct(
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            processor=imported.processor,
            versions={name: versions[name] for name in ("paceline",) if name in versions},
            seconds=0.0,
            other_load=0.0,
            verdict=f"imported, nothing was measured here: {in_words(imported.origins)}",
        ),
        model=str(scenario.workload.model),
        ranks=scenario.cluster.workers,
        cores=imported.cores or most,
        torch_threads=scenario.train.torch_threads,
        own=OwnPart().model_copy(update=dict(imported.own)),
        gradients=imported.gradients,
        costs=imported.curves,
        imported=imported.origins,
    )


def in_words(origins: Sequence[OriginPart]) -> str:
    """Returns the imported files and tools as text.

    >>> in_words([OriginPart(file="log.txt", tool="nccl-tests all_reduce", version="2.17.4")])
    'log.txt (nccl-tests all_reduce 2.17.4)'
    """
    named = [f"{origin.file} ({' '.join(filter(None, [origin.tool, origin.version]))})" for origin in origins]
    return ", ".join(dict.fromkeys(named))


def nccl_log(given: str) -> Imported:
    """Returns the costs in a log of nccl-tests.

    Args:
        given: the path of the log, after ``PROGRAM=``, ``RANKS/HOSTS=`` or ``PROGRAM,RANKS/HOSTS=`` if it does not
            contain them, such as all_reduce=log.txt.

    Raises:
        InputError: the log is wrong; with all mistakes.
    """
    path, before = _before(given)
    operation: str | None = None
    ranks = hosts = None
    for part in filter(None, before.split(",")):
        if part[0].isdecimal():
            ranks, hosts = _ranks_and_hosts(part, "--nccl-tests", given)
        elif part.removesuffix("_perf") in nccl_tests.PROGRAMS:
            operation = nccl_tests.PROGRAMS[part.removesuffix("_perf")]
        else:
            raise InputError(
                f"--nccl-tests: found {given!r}, expected a log, or its program ({', '.join(nccl_tests.PROGRAMS)}), "
                "its ranks and hosts, or both, and the log, such as all_reduce=log.txt or all_reduce,16/2=log.txt"
            )
    return _of_curves(nccl_tests.read(path, operation=operation, ranks=ranks, nodes=hosts), path)


def _before(given: str) -> tuple[Path, str]:
    """Returns the path of a log, and what is given before it."""
    before, _, after = given.rpartition("=")
    return (Path(given), "") if Path(given).exists() or not before else (Path(after), before)


def osu_log(given: str) -> Imported:
    """Returns the costs in a log of OSU micro-benchmarks.

    Args:
        given: the path of the log, after ``RANKS=`` (on one host) or ``RANKS/HOSTS=`` if it has no commands.

    Raises:
        InputError: the log is wrong, or has no times of messages or collectives; with all mistakes.
    """
    path, before = _before(given)
    ranks, hosts = _ranks_and_hosts(before, "--osu", given) if before else (None, None)
    curves = osu.read(path, ranks=ranks, nodes=hosts)
    kept = [curve for curve in curves if curve.operation not in {RATE, RATE_BOTH_WAYS}]
    if not kept:
        raise InputError(
            f"{path}: found only rates of osu_bw or osu_bibw, which do not contain the latency of a message; expected "
            "a log of osu_latency or of a collective"
        )
    return _of_curves(kept, path)


def _ranks_and_hosts(text: str, option: str, given: str) -> tuple[int, int | None]:
    ranks, _, hosts = text.partition("/")
    if not ranks.isdecimal() or int(ranks) < 2 or (hosts and (not hosts.isdecimal() or int(hosts) < 1)):
        raise InputError(
            f"{option}: found {given!r}, expected a log, or the ranks of its collectives, their hosts and the log, "
            "such as 16=log.txt or 16/2=log.txt"
        )
    return int(ranks), int(hosts) if hosts else None


def _of_curves(measured: Sequence[MeasuredCurve], path: Path) -> Imported:
    alike: dict[tuple[str, int, int], list[MeasuredCurve]] = {}
    for curve in measured:
        alike.setdefault((curve.operation, curve.ranks, curve.nodes or 1), []).append(curve)
    parts = [
        CurvePart.model_construct(
            operation=operation,
            ranks=ranks,
            shared_memory=False,
            hosts=hosts,
            points=tuple(
                BytesPart.model_construct(bytes=nbytes, time=seconds) for nbytes, seconds in profile_points(curves)
            ),
            origin=_origin(curves, path),
        )
        for (operation, ranks, hosts), curves in alike.items()
    ]
    return Imported(curves=tuple(parts), origins=tuple(part.origin for part in parts if part.origin is not None))


def _origin(curves: Sequence[MeasuredCurve], path: Path) -> OriginPart:
    first = curves[0]
    notes = dict.fromkeys(note for curve in curves for note in curve.notes)
    if len(curves) > 1:
        times = "the median of the times at each size"
        notes[f"{len(curves)} runs of {first.operation} of {first.ranks} ranks: {times}"] = None
    return OriginPart(file=path.name, tool=first.tool, version=first.version, details=first.details, notes=tuple(notes))


def trace(given: str, plan: Plan, busy: int) -> Imported:
    """Returns the costs in a trace of a training step (see `training_trace`).

    Args:
        given: the path of the trace, after ``BATCH=`` if its batch is not that of the plan.
        plan: the plan with the batch and the layers.
        busy: the ranks of a host that computed at the same time.

    Raises:
        InputError: the trace is wrong; with all mistakes.
    """
    before, _, after = given.rpartition("=")
    batch, path = plan.job.batches[0], Path(given)
    if before and not path.exists():
        if not before.isdecimal() or int(before) < 1:
            raise InputError(
                f"--torch-profile: found {given!r}, expected a trace, or the samples of its gradients and the trace, "
                "such as 64=trace.json"
            )
        batch, path = int(before), Path(after)
    profiled = training_trace.profile(path)
    details = ", ".join(
        filter(
            None, [profiled.device or "", f"{profiled.ranks} ranks" if profiled.ranks else "", profiled.backend or ""]
        )
    )
    stubs = f"left out: {', '.join(profiled.left_out)}, without a backward pass"
    notes = (stubs,) if profiled.left_out else ()
    origin = OriginPart(file=path.name, tool=profiled.tool, details=details, notes=notes)
    part = gradient_part(batch, busy, {(Rank(0), 0): profiled.gradient}, origin)
    part = divided(part, profiled.forward_share, plan)
    optimizer = profiled.optimizer
    if profiled.kernels is not None:
        optimizer = tuple(map(max, optimizer, profiled.kernels.optimizer))
    own = {"load": fmean(profiled.loading), "update": fmean(optimizer)}
    return Imported(gradients=(part,), own=own, origins=(origin,))


def gradient_part(
    batch: int, busy: int, sequences: Mapping[tuple[Rank, int], Sequence[float]], origin: OriginPart
) -> GradientPart:
    """Returns the times of gradients as a section of a file.

    Args:
        batch: their samples.
        busy: the ranks of a host that computed at the same time.
        sequences: successive seconds, by rank and step of the first one.
        origin: where they come from.
    """
    every = [time for times in sequences.values() for time in times]
    mean = fmean(every)
    laws, together = fitted([time / mean for time in every]), correlations([sequences])
    return GradientPart.model_construct(
        batch=batch,
        busy=(BusyPart.model_construct(ranks=busy, mean=mean),),
        factors=slices(every),
        law=laws.law,
        fits=laws.fits,
        between_steps=together.between_steps,
        between_ranks=together.between_ranks,
        origin=origin,
    )


def divided(part: GradientPart, forward: float, plan: Plan) -> GradientPart:
    """Returns the times of gradients with the shares of the forward pass and of each layer's backward pass.

    Args:
        part: the times.
        forward: the share of the forward pass.
        plan: the plan, whose layers divide the rest.
    """
    _, shares = plan.layer_shares()
    backward = tuple((1 - forward) * share / sum(shares) for share in shares)
    return part.model_copy(update={"forward": forward, "backward": backward})


OWN_WORK = frozenset({"compute", "load", "update"})
EXPECTED = "expected a run of `paceline train` with train.pace: none"


def stored_run(folder: Path) -> Run:
    """Reads a measured run that was not paced.

    Args:
        folder: the folder of the run, or the run.json in it.

    Raises:
        InputError: it is not such a run.
    """
    run = read_run(folder.parent if folder.name == "run.json" else folder)
    if run.kind != "measured":
        raise InputError(f"--run {folder}: found a {run.kind} run, {EXPECTED}")
    if run.scenario["train"]["pace"] != "none":
        raise InputError(f"--run {folder}: found a paced run, whose gradients have modelled times; {EXPECTED}")
    if run.summary["stop_reason"] == "failure":
        raise InputError(f"--run {folder}: found a run that failed, {EXPECTED}, which has ended")
    return run


def costs_of_run(run: Run, workers: int, asked: Sequence[Asked]) -> Imported:
    """Returns the costs that a run recorded.

    Args:
        run: a measured run that was not paced.
        workers: its number of workers.
        asked: the collectives of its method.

    Raises:
        InputError: it has too few steps.
    """
    name = run.path.name if run.path is not None else run.name
    origin = OriginPart(
        file=name,
        tool="paceline train",
        version=run.versions.get("paceline", ""),
        details=f"{run.algorithm}, {workers} ranks, {run.machine.get('processor', '')}",
    )
    spans: dict[int, list[Span]] = defaultdict(list)
    for row in run.tables.spans.to_dict("records"):
        spans[int(row["rank"])].append(_span(row))
    worker_spans = [spans[rank] for rank in range(workers)]
    sequences = {
        (Rank(rank), 0): times[WARM_UP:]
        for rank, times in enumerate(_gradients(of_worker) for of_worker in worker_spans)
        if times
    }
    if not any(sequences.values()):
        raise InputError(
            f"--run {name}: found no gradients after the first {WARM_UP} steps; {EXPECTED}, and more steps"
        )
    hosts = _hosts(run, workers)
    part = gradient_part(int(run.scenario["workload"]["batch_per_worker"]), max(hosts), sequences, origin)
    updates = [_length(span) for span in _of(worker_spans, "update")]
    served = [_length(span) for span in _of([spans[rank] for rank in spans if rank >= workers], "update")]
    own = {
        "load": _mean([_length(span) for span in _of(worker_spans, "load")]),
        "update": _mean(updates),
        "rest": _mean([seconds for of_worker in worker_spans for seconds in uncovered(of_worker)]),
    }
    if served:
        own["serve"] = fmean(served)
    curves = tuple(_curves(asked, worker_spans, len(hosts), origin))
    processor, cores = str(run.machine.get("processor", "")), int(run.machine.get("cores", 0))
    return Imported((part,), curves, own, (origin,), processor, cores)


def _of(ranks: Sequence[Sequence[Span]], activity: str) -> list[Span]:
    return [span for spans in ranks for span in spans if span.activity == activity]


def _span(row: Mapping[Any, Any]) -> Span:
    """Returns a row of the table as a span. Waits are receives here, and other communication is a send."""
    named: str = row["activity"]
    activity: Any = {"communication": "send", "wait": "receive"}.get(named, named)
    names = ("rank", "lane", "layer", "step", "start_s", "end_s", "bytes")
    return Span(**{name: row[name] for name in names}, activity=activity)


def _length(span: Span) -> float:
    return span.end_s - span.start_s


def _mean(values: Sequence[float]) -> float:
    return fmean(values) if values else 0.0


def _gradients(spans: Sequence[Span]) -> list[float]:
    """Returns the seconds of a rank's gradients in order; the layers of a layer-wise gradient are added."""
    seconds: dict[int, float] = defaultdict(float)
    for span in spans:
        if span.activity == "compute":
            seconds[span.step] += _length(span)
    return [seconds[step] for step in sorted(seconds)]


def _hosts(run: Run, workers: int) -> list[int]:
    """Returns the number of workers of each host; without a record of hosts, all ranks were on one."""
    seats = [seat["host"] for seat in run.machine.get("seats", ())][:workers]
    return list(Counter(seats).values()) or [workers]


def sent_by_each(collective: Asked) -> int | None:
    """Returns the bytes that each member of a collective sends; None if members differ (see `sent_bytes`).

    >>> sent_by_each(Asked("AllReduce", 4, 1000, ())), sent_by_each(Asked("Broadcast", 4, 1000, ()))
    (1500, None)
    """
    match collective.operation:
        case "AllReduce":
            return 2 * (collective.members - 1) * collective.nbytes // collective.members
        case "AllGather":
            return (collective.members - 1) * own_bytes(collective.operation, collective.members, collective.nbytes)
        case _:
            return None


def _curves(
    asked: Sequence[Asked], workers: Sequence[Sequence[Span]], hosts: int, origin: OriginPart
) -> list[CurvePart]:
    """Returns the curves of the collectives that are the only ones with their bytes."""
    if hosts > 1:
        asked = [collective for collective in asked if collective.members == len(workers)]
    sent = {collective: sent_by_each(collective) for collective in asked}
    often, points = Counter(sent.values()), defaultdict[tuple[str, int, bool], list[BytesPart]](list)
    every = [(span.bytes, _length(span)) for spans in workers for span in _alone(spans)]
    for collective, own in sorted(sent.items(), key=lambda pair: pair[0].nbytes):
        seconds = [length for nbytes, length in every if nbytes == own]
        if own and often[own] == 1 and seconds:
            point = BytesPart.model_construct(bytes=collective.nbytes, time=fmean(seconds))
            points[collective.operation, collective.members, collective.inside].append(point)
    return [
        CurvePart.model_construct(
            operation=operation,
            ranks=ranks,
            shared_memory=inside,
            hosts=hosts,
            points=tuple(curve_points),
            origin=origin,
        )
        for (operation, ranks, inside), curve_points in points.items()
    ]


def _alone(spans: Sequence[Span]) -> list[Span]:
    """Returns the communication of a rank's program during which nothing else began or went on."""
    alone, others = list[Span](), sorted((own.start_s, own.end_s) for own in spans if own.activity in OWN_WORK)
    starts = [start_s for start_s, _ in others]
    for span in spans:
        if span.activity != "send" or span.lane != "main":
            continue
        at = bisect_left(starts, span.end_s)
        if not any(end_s > span.start_s for _, end_s in others[max(0, at - 2) : at]):
            alone.append(span)
    return alone
