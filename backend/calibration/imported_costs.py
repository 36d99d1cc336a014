"""Imports costs of a machine from logs of nccl-tests and OSU micro-benchmarks, and from traces of torch.profiler.

Rules of this file:

* A log gives curves of messages and collectives. Several runs of one operation with the same ranks and hosts are one
  curve: at each size the median of their times. A log that does not tell its hosts is of one host.
* A trace gives the time of a gradient with all ranks of a host busy, which is all that was recorded. Its distribution
  is that of the trace's steps. The forward pass has its own time; a trace does not name layers, so the backward pass
  is divided among them as that of the scenario's device (`Plan.layer_split`).
* Costs without an imported figure are left out or measured, but never guessed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.values import Rank
from paceline.backend.calibration.machine_imports import Imported
from paceline.backend.calibration.step_time_laws import correlations, fitted
from paceline.scenarios.machine_file import BusyPart, BytesPart, CurvePart, GradientPart, OriginPart
from paceline.scenarios.resolution.plan import Plan
from paceline.topologies.catalogue.gradient_times import slices
from paceline.topologies.importing import nccl_tests, osu, torch_profile
from paceline.topologies.importing.measured import (
    RATE,
    RATE_BOTH_WAYS,
    MeasuredCurve,
    profile_points,
)


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
    found = osu.read(path, ranks=ranks, nodes=hosts)
    kept = [curve for curve in found if curve.operation not in {RATE, RATE_BOTH_WAYS}]
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


def _of_curves(found: Sequence[MeasuredCurve], path: Path) -> Imported:
    alike: dict[tuple[str, int, int], list[MeasuredCurve]] = {}
    for curve in found:
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
    one = curves[0]
    notes = dict.fromkeys(note for curve in curves for note in curve.notes)
    if len(curves) > 1:
        times = "the median of the times at each size"
        notes[f"{len(curves)} runs of {one.operation} of {one.ranks} ranks: {times}"] = None
    return OriginPart(file=path.name, tool=one.tool, version=one.version, details=one.details, notes=tuple(notes))


def trace(given: str, plan: Plan, busy: int) -> Imported:
    """Returns the costs in a trace of torch.profiler.

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
    found = torch_profile.profile(path)
    told = ", ".join(
        filter(None, [found.device or "", f"{found.ranks} ranks" if found.ranks else "", found.backend or ""])
    )
    stubs = f"left out: {', '.join(found.left_out)}, without a backward pass"
    notes = (stubs,) if found.left_out else ()
    origin = OriginPart(file=path.name, tool="torch.profiler", details=told, notes=notes)
    part = gradient_part(batch, busy, {(Rank(0), 0): found.gradient}, origin)
    passes = (found.forward, found.backward)
    if found.kernels is not None and sum(found.kernels.forward + found.kernels.backward) > sum(map(sum, passes)):
        passes = (found.kernels.forward, found.kernels.backward)
    forward = sum(passes[0]) / (sum(passes[0]) + sum(passes[1]))
    _, shares = plan.layer_shares()
    part = part.model_copy(
        update={
            "forward": forward,
            "backward": tuple((1 - forward) * share / sum(shares) for share in shares),
        }
    )
    optimizer = found.optimizer
    if found.kernels is not None:
        optimizer = tuple(map(max, optimizer, found.kernels.optimizer))
    own = {"load": fmean(found.loading), "update": fmean(optimizer)}
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
