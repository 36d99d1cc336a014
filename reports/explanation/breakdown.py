"""The rows of an explanation: the mean time of a step by kind of layer, charge, collective, message and wait."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from paceline.algorithms.core.errors import RunFailed
from paceline.algorithms.core.values import Rank
from paceline.records.figures import significant
from paceline.reports.comparison.words import size
from paceline.reports.explanation.attribution import Attributed, Cause, about_collective, attribute
from paceline.reports.explanation.formulas import (
    KINDS,
    Route,
    Routes,
    collective_words,
    joined,
    message_words,
    seconds,
)
from paceline.reports.explanation.gradient_rows import gradient_rows
from paceline.reports.explanation.recording import Performed, Recorded, windows
from paceline.reports.explanation.row import Row
from paceline.reports.explanation.staging_rows import staging_rows
from paceline.topologies.cluster import Node

MOST_ROWS = 5
"""rows of one group that are named; the others are summed"""
NOTHING_S = 1e-12
"""a row of fewer seconds is left out"""
GROUPS = ("gradient", "interference", "loading", "staging", "charge", "collective", "message", "waiting", "queue")
"""the groups of rows, in their order"""


def breakdown(run: Recorded) -> tuple[float, list[Row]]:
    """Returns the mean time of a step and its parts, which add up to it.

    Args:
        run: a short run.

    Raises:
        RunFailed: no worker began two gradients.

    >>> from paceline import load
    >>> from paceline.reports.explanation.recording import record
    >>> from paceline.simulator.runs.short_runs import length_of
    >>> (plan,) = load("quickstart", ["cluster.step_time.sigma=1e-6"], algorithms=["sync-sgd"]).plans()
    >>> step_s, rows = breakdown(record(plan, length_of(plan, 4)))
    >>> round(step_s, 5), [row.name for row in rows if row.percent > 5]
    (0.04006, ['hidden', 'output', 'slowest member of the all-reduce'])
    """
    found = attribute(run)
    if not found.steps:
        raise RunFailed(f"{run.plan.name}: no worker began two gradients, so there is no step to explain")
    rows = [row for row in _rows(run, found) if row.seconds > NOTHING_S or row.hidden_s > NOTHING_S]
    grouped = itertools.chain.from_iterable(_shortened([row for row in rows if row.group == name]) for name in GROUPS)
    return found.step_s, [replace(row, percent=100 * row.seconds / found.step_s) for row in grouped]


def _shortened(rows: Sequence[Row]) -> list[Row]:
    """Returns the largest rows of a group, and the sum of the others."""
    ordered = sorted(rows, key=lambda row: (-row.seconds, -row.hidden_s))
    if len(ordered) <= MOST_ROWS + 1:
        return ordered
    rest = ordered[MOST_ROWS:]
    parts = {"gradient": "layers"}.get(rest[0].group, f"{rest[0].group}s")
    other = Row(
        group=rest[0].group,
        name=f"{len(rest)} other {parts}",
        seconds=sum(row.seconds for row in rest),
        hidden_s=sum(row.hidden_s for row in rest),
        formula="the sum of the others",
        provenance=rest[0].provenance if len({row.provenance for row in rest}) == 1 else "as above",
    )
    return [*ordered[:MOST_ROWS], other]


def _rows(run: Recorded, found: Attributed) -> Iterator[Row]:
    routes = Routes(run)
    per_step = {cause: value / found.steps for cause, value in found.exposed_s.items()}
    hidden = {cause: value / found.steps for cause, value in found.hidden_s.items()}
    yield from gradient_rows(run, per_step.get(Cause("gradient"), 0.0))
    yield from _collectives(run, routes, per_step, hidden)
    yield from _messages(run, routes, per_step, hidden)
    yield from staging_rows(run, routes, per_step, hidden)
    for cause, value in per_step.items():
        match cause.group:
            case "charge":
                yield _charge(run, cause, value)
            case "gradient" | "collective" | "message" | "staging":
                pass
            case _:
                yield _other(run, cause, value)


def _charge(run: Recorded, cause: Cause, per_step: float) -> Row:
    kind, where, nbytes = cause.about
    durations = [
        value
        for rank, charges in run.charges.items()
        if rank < run.workers
        for op, value in charges
        if (op.kind, op.where, op.bytes) == cause.about
    ]
    mean_s = sum(durations) / len(durations) if durations else per_step
    rate = f" at {size(nbytes / mean_s)}/s" if nbytes and mean_s > 0 else ""
    name = "access to shared memory" if kind == "access" else f"{kind} on the {where}"
    nodes = run.plan.cluster.nodes
    return Row(
        group="charge",
        name=f"{name}, {size(nbytes)}",
        seconds=per_step,
        formula=f"{size(nbytes)}{rate}: {seconds(mean_s)} each, × {significant(per_step / mean_s)} per step",
        provenance=joined(_charged_by(one, kind, where) for one in nodes),
    )


def _charged_by(node: Node, kind: str, where: str) -> str:
    if kind == "access":
        return f"{node.intra_node_link.name}: {node.intra_node_link.provenance}"
    rates = node.host_rates if where == "host" else node.device.rates
    return f"{node.device.name}: no memory bandwidth is given" if rates is None else rates.provenance


def _collectives(
    run: Recorded, routes: Routes, per_step: Mapping[Cause, float], hidden: Mapping[Cause, float]
) -> Iterator[Row]:
    evaluated, alike = windows(run), defaultdict[tuple[str, int, int], list[Performed]](list)
    for one in itertools.chain.from_iterable(run.network.performed.values()):
        if evaluated[one.group.ranks[0]].holds(one.begin_s) and not math.isnan(one.end_s):
            alike[about_collective(one)].append(one)
    steps = sum(window.steps for window in evaluated.values())
    for about, performed in alike.items():
        cause = Cause("collective", about)
        if cause not in per_step and cause not in hidden:
            continue
        kind, nbytes, p = about
        name, formula, provenance = collective_words(run, routes, performed)
        often = len(performed) * p / steps
        yield Row(
            group="collective",
            name=f"{KINDS.get(kind, kind)} of {size(nbytes)} among {p}, {name}",
            seconds=per_step.get(cause, 0.0),
            hidden_s=hidden.get(cause, 0.0),
            formula=f"{formula}, × {significant(often, 2)} per step",
            provenance=provenance,
        )


def _messages(
    run: Recorded, routes: Routes, per_step: Mapping[Cause, float], hidden: Mapping[Cause, float]
) -> Iterator[Row]:
    team, evaluated = run.plan.job.team, windows(run)
    alike: dict[tuple[str, str, int], Counter[tuple[Rank, Rank]]] = defaultdict(Counter)
    times: dict[tuple[str, str, int], list[float]] = defaultdict(list)
    for (source, to), arrivals in run.network.arrivals.items():
        window = evaluated.get(source) or evaluated.get(to)
        for sent_s, arrived_s, nbytes in arrivals:
            if window is None or not window.holds(sent_s):
                continue
            about = (team[source].role, team[to].role, nbytes)
            alike[about][source, to] += 1
            times[about].append(arrived_s - sent_s)
    steps = sum(window.steps for window in evaluated.values())
    for cause in dict.fromkeys(one for one in (*per_step, *hidden) if one.group == "message"):
        source_role, role, nbytes = cause.about
        formula, provenance = "simulated", ""
        if cause.about in alike:
            taken: Counter[Route] = Counter()
            for pair, count in alike[cause.about].items():
                taken[routes.between(pair[0], pair[1], nbytes)] += count
            mean_s = sum(times[cause.about]) / len(times[cause.about])
            often = len(times[cause.about]) / steps
            formula = f"{message_words(taken, nbytes, mean_s)}, × {significant(often, 2)} per step"
            provenance = joined(route.provenance for route in taken)
        yield Row(
            group="message",
            name=f"{source_role} → {role}, {size(nbytes)}",
            seconds=per_step.get(cause, 0.0),
            hidden_s=hidden.get(cause, 0.0),
            formula=formula,
            provenance=provenance,
        )


def _other(run: Recorded, cause: Cause, per_step: float) -> Row:
    about = cause.about[0] if cause.about else ""
    kind = KINDS.get(about, about)
    names = {
        "loading": ("loading", "loading of the batch", "the rest of the reading that prefetching does not hide"),
        "lost work": ("gradient", "work lost in crashes", "gradients that are computed again"),
        "recovery": ("waiting", "recovery from crashes", "the time to restart a worker"),
        "checkpoint": ("waiting", "checkpoints", "the time to write checkpoints"),
        "sending": ("message", "sending", "processor time of the sender"),
        "slowest member": (
            "waiting",
            f"slowest member of the {kind}",
            "from the own entry to the entry of the last member, mean of the workers",
        ),
        "collective queue": ("queue", f"earlier {kind} of the group", "collectives of one group are served in order"),
        "late sender": ("waiting", f"{about or 'sender'} that sends later", "until the other rank sends"),
        "turn": ("waiting", f"turn at the {about}", "the message has arrived, and other workers come first"),
        "others": ("waiting", f"other workers, at the {about}", f"the {about} waits for others before it answers"),
        "queue": ("queue", f"queue at the {about}", _busy(run, about)),
        "server work": ("queue", f"work of the {about} on the own message", _busy(run, about)),
        "lock": ("queue", "lock of shared memory", "until other workers release the lock"),
        "other waiting": ("waiting", "other waiting", "time without a recorded activity"),
    }
    group, name, formula = names[cause.group]
    storage = run.plan.cluster.storage
    if cause.group == "loading" and storage is not None:
        provenance = joined(f"{storage.name}: {text}" for text in storage.provenance.values())
    elif group == "queue" and cause.group in {"queue", "server work"}:
        provenance = "simulated; the cost of a charge is that of its device or host"
    else:
        provenance = _variation(run) if group == "waiting" else "simulated"
    return Row(group=group, name=name, seconds=per_step, formula=formula, provenance=provenance)


def _variation(run: Recorded) -> str:
    """Describes why workers take unequal times."""
    cluster, words = run.plan.cluster, list[str]()
    laws = {cluster.spread_of(me.rank, run.plan.seed).distribution for me in run.plan.job.team[: run.workers]}
    if laws != {"none"}:
        words.append(f"jitter ({', '.join(sorted(laws))})")
    devices = {node.device.name for node in cluster.nodes}
    if len(devices) > 1:
        words.append(f"unequal devices ({', '.join(sorted(devices))})")
    if cluster.faults.stragglers or cluster.faults.slowdowns:
        words.append("stragglers")
    return "simulated" + (f": {', '.join(words)} of the scenario" if words else "")


def _busy(run: Recorded, role: str) -> str:
    """Describes how busy the ranks of a role are with charges."""
    ranks = {me.rank for me in run.plan.job.team if me.role == role}
    ends = [window.end_s for window in windows(run).values()]
    spans = [span for span in run.trace.spans if span.rank in ranks and span.activity == "update"]
    total_s = sum(span.end_s - span.start_s for span in spans)
    count = sum(1 for span in run.trace.spans if span.rank in ranks and span.activity == "receive")
    share = total_s / (max(ends) * len(ranks)) if ends and ranks else 0.0
    each = seconds(total_s / count) if count else "0 s"
    return (
        f"{significant(count / max(ends))} messages/s × {each} each: {significant(100 * share)} % busy"
        if ends
        else "simulated"
    )


def total(rows: Iterable[Row]) -> float:
    """Returns the sum of the rows, in seconds."""
    return sum(row.seconds for row in rows)
