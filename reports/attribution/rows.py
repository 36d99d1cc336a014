"""The rows of an explanation: the mean time of a step by kind of layer, charge, collective, message and wait."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from paceline.algorithms.core.errors import RunFailed
from paceline.algorithms.core.values import Rank
from paceline.records.figures import significant
from paceline.records.trace import COPY_TO_DEVICE, Span
from paceline.reports.attribution.formulas import (
    KIND_NAMES,
    KINDS,
    RouteFormula,
    RouteFormulas,
    collective_words,
    gradient_words,
    joined,
    kind_formula,
    message_words,
    or_simulated,
    seconds,
    size,
)
from paceline.reports.attribution.recording import (
    AttributedSteps,
    PerformedCollective,
    RecordedRun,
    WaitCause,
    about_collective,
    attribute,
    windows,
)
from paceline.simulator.runs.cost_model import processors_of, taken_of
from paceline.topologies.catalogue.device import Curve
from paceline.topologies.catalogue.host_memory import GPUDIRECT
from paceline.topologies.catalogue.libraries import LIBRARIES
from paceline.topologies.cluster import Node

MOST_ROWS = 5
"""rows of one group that are named; the others are summed"""
NOTHING_S = 1e-12
"""a row of fewer seconds is left out"""
GROUPS = ("gradient", "interference", "loading", "staging", "charge", "collective", "message", "waiting", "queue")
"""the groups of rows, in their order"""
COPIES = {
    "batch": "copy of the batch to the device",
    "vector": "copies of gradients and weights, device ↔ host",
}


Part = tuple[str, float, str]
"""name, share and formula of a part of a gradient"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedRow:
    """One part of the mean time of a step."""

    group: str
    name: str
    seconds: float
    """seconds of a step that nothing else of the worker overlaps"""
    percent: float = 0.0
    hidden_s: float = 0.0
    """seconds of a step during which it overlaps with a gradient, which cost nothing"""
    formula: str = ""
    provenance: str = ""

    def record(self) -> dict[str, Any]:
        """Returns the entry in the JSON answer."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def breakdown(run: RecordedRun) -> tuple[float, list[ExplainedRow]]:
    """Returns the mean time of a step and its parts, which add up to it.

    Args:
        run: a short run.

    Raises:
        RunFailed: no worker began two gradients.

    >>> from paceline import load
    >>> from paceline.reports.attribution.recording import record
    >>> from paceline.simulator.runs.short_runs import length_of
    >>> (plan,) = load("quickstart", ["cluster.step_time.sigma=1e-6"], algorithms=["sync-sgd"]).plans()
    >>> step_s, rows = breakdown(record(plan, length_of(plan, 4)))
    >>> round(step_s, 5), [row.name for row in rows if row.percent > 5]
    (0.04006, ['hidden', 'output', 'slowest member of the all-reduce'])
    """
    attributed = attribute(run)
    if not attributed.steps:
        raise RunFailed(f"{run.plan.name}: no worker began two gradients, so there is no step to explain")
    rows = [row for row in ExplainedRows(run, attributed).all() if row.seconds > NOTHING_S or row.hidden_s > NOTHING_S]
    grouped = itertools.chain.from_iterable(_shortened([row for row in rows if row.group == name]) for name in GROUPS)
    step_s = attributed.whole_s / attributed.steps
    return step_s, [replace(row, percent=100 * row.seconds / step_s) for row in grouped]


def _shortened(rows: Sequence[ExplainedRow]) -> list[ExplainedRow]:
    """Returns the largest rows of a group, and the sum of the others."""
    ordered = sorted(rows, key=lambda row: (-row.seconds, -row.hidden_s))
    if len(ordered) <= MOST_ROWS + 1:
        return ordered
    rest = ordered[MOST_ROWS:]
    parts = {"gradient": "layers"}.get(rest[0].group, f"{rest[0].group}s")
    other = ExplainedRow(
        group=rest[0].group,
        name=f"{len(rest)} other {parts}",
        seconds=sum(row.seconds for row in rest),
        hidden_s=sum(row.hidden_s for row in rest),
        formula="the sum of the others",
        provenance=rest[0].provenance if len({row.provenance for row in rest}) == 1 else "as above",
    )
    return [*ordered[:MOST_ROWS], other]


class ExplainedRows:
    """The rows of a run.

    Args:
        run: a short run.
        attributed: the seconds of its windows by cause.
    """

    def __init__(self, run: RecordedRun, attributed: AttributedSteps) -> None:
        self._run, self._routes, self._windows, self._steps = run, RouteFormulas(run), windows(run), attributed.steps
        self._exposed = {cause: value / attributed.steps for cause, value in attributed.exposed_s.items()}
        self._hidden = {cause: value / attributed.steps for cause, value in attributed.hidden_s.items()}

    def all(self) -> Iterator[ExplainedRow]:
        """Yields all rows, in any order."""
        yield from self._gradient(self._exposed.get(WaitCause("gradient"), 0.0))
        yield from self._collectives()
        yield from self._messages()
        yield from self._copies()
        for cause in self._exposed:
            if cause.group == "charge":
                yield self._charge(cause)
            elif cause.group not in {"gradient", "collective", "message", "staging"}:
                yield self._other(cause)

    def _row(self, cause: WaitCause, group: str, name: str, formula: str, provenance: str) -> ExplainedRow:
        seconds, hidden_s = self._exposed.get(cause, 0.0), self._hidden.get(cause, 0.0)
        return ExplainedRow(
            group=group, name=name, seconds=seconds, hidden_s=hidden_s, formula=formula, provenance=provenance
        )

    # --- gradients

    def _gradient(self, mean_s: float) -> Iterator[ExplainedRow]:
        """Yields the parts of a gradient: by kinds of layers if all devices are of the catalogue, else by layers."""
        run = self._run
        if (lost := self._lost_share()) > 0:
            yield self._interference(lost * mean_s)
            mean_s *= 1 - lost
        curves = [(device.times, batch) for (device, batch), count in run.plan.gradients.items() for _ in range(count)]
        known = [(curve, batch) for curve, batch in curves if curve is not None]
        words, provenance = gradient_words(run, mean_s)
        if len(known) == len(curves):
            parts = self._by_kind(known, words)
        else:
            parts, how = self._by_layer(words)
            provenance += f"; divided among layers {how}" if how else ""
        for name, share, formula in parts:
            yield ExplainedRow(
                group="gradient", name=name, seconds=share * mean_s, formula=formula, provenance=provenance
            )

    def _lost_share(self) -> float:
        """Returns the part of the gradients' time that communication took from them; 0 if it takes nothing."""
        run = self._run
        if processors_of(run.plan) is None or run.plan.cluster.faults.shows:
            return 0.0
        spent_s = sum(span.end_s - span.start_s for span in run.trace.spans if span.activity == "compute")
        return max(0.0, 1 - run.gradients_s / spent_s) if spent_s else 0.0

    def _interference(self, seconds: float) -> ExplainedRow:
        kinds = {node.device.name: taken_of(self._run.plan, node) for node in self._run.plan.cluster.nodes}
        shares = ", ".join(
            f"{significant(100 * taken.share)} % of {name}" for name, taken in kinds.items() if taken.share
        )
        return ExplainedRow(
            group="interference",
            name="gradients slowed down by communication",
            seconds=seconds,
            formula=f"speed 1 / (1 + share) while a message or collective is in flight; share {shares}",
            provenance=joined(taken.provenance for taken in kinds.values()),
        )

    def _by_kind(self, curves: Sequence[tuple[Curve, int]], words: str) -> list[Part]:
        """Returns kinds of layers, memory traffic and launches; several devices contribute their mean shares."""
        parts: dict[str, list[tuple[float, float, float]]] = {}
        for curve, batch in curves:
            for part in curve.by_kind(batch):
                parts.setdefault(part.kind, []).append((part.seconds, part.amount, part.hidden_s))
        total_s = sum(value for values in parts.values() for value, _, _ in values)
        rows = []
        for kind, values in sorted(parts.items(), key=lambda entry: -sum(value for value, _, _ in entry[1])):
            share = sum(value for value, _, _ in values) / total_s
            own_s, amount, hidden_s = (sum(column) / len(values) for column in zip(*values, strict=True))
            formula = f"{kind_formula(kind, own_s, amount, hidden_s)}: {significant(100 * share)} % of {words}"
            rows.append((KIND_NAMES[kind], share, formula))
        return rows

    def _by_layer(self, words: str) -> tuple[list[Part], str]:
        """Returns the layers, and how their shares were found."""
        forward, backward, how = self._run.plan.layer_split()
        layers = self._run.plan.job.learner.layout.layers
        return [
            (
                layer.name,
                ahead + back,
                f"forward {significant(100 * ahead)} % and backward {significant(100 * back)} % of {words}",
            )
            for layer, ahead, back in zip(layers, forward, backward, strict=True)
        ], how

    # --- communication

    def _transfers(self, group: str) -> Iterator[WaitCause]:
        return (cause for cause in dict.fromkeys((*self._exposed, *self._hidden)) if cause.group == group)

    def _collectives(self) -> Iterator[ExplainedRow]:
        alike = defaultdict[tuple[Any, ...], list[PerformedCollective]](list)
        for performed in itertools.chain.from_iterable(self._run.network.performed.values()):
            if not math.isnan(performed.end_s):
                alike[about_collective(performed)].append(performed)
        for cause in self._transfers("collective"):
            kind, nbytes, p = cause.about
            name, formula, provenance = f"{KINDS.get(kind, kind)} of {size(nbytes)} among {p}", "simulated", ""
            if group := alike.get(cause.about):
                evaluated = [done for done in group if self._holds(done.group.ranks[0], done.begin_s)]
                pattern, words, provenance = collective_words(self._run, self._routes, evaluated or group)
                name, formula = f"{name}, {pattern}", words + self._often(len(evaluated) * p)
            yield self._row(cause, "collective", name, formula, provenance)

    def _messages(self) -> Iterator[ExplainedRow]:
        team = self._run.plan.job.team
        routes: dict[tuple[str, str, int], Counter[RouteFormula]] = defaultdict(Counter)
        times: dict[tuple[str, str, int], list[float]] = defaultdict(list)
        for (source, to), arrivals in self._run.network.arrivals.items():
            window = self._windows.get(source) or self._windows.get(to)
            for sent_s, arrived_s, nbytes in arrivals:
                if window is not None and window.holds(sent_s):
                    about = (team[source].role, team[to].role, nbytes)
                    routes[about][self._routes.between(source, to, nbytes)] += 1
                    times[about].append(arrived_s - sent_s)
        for cause in self._transfers("message"):
            source_role, role, nbytes = cause.about
            formula, provenance = "simulated", ""
            if sent := times.get(cause.about):
                used = routes[cause.about]
                formula = message_words(used, nbytes, sum(sent) / len(sent)) + self._often(len(sent))
                provenance = joined(route.provenance for route in used)
            yield self._row(cause, "message", f"{source_role} → {role}, {size(nbytes)}", formula, provenance)

    def _holds(self, rank: Rank, time_s: float) -> bool:
        """Returns whether a time is in the window of a worker; a server has none."""
        return rank in self._windows and self._windows[rank].holds(time_s)

    def _often(self, count: int) -> str:
        return f", × {significant(count / self._steps, 2)} per step"

    # --- copies between hosts and devices

    def _copies(self) -> Iterator[ExplainedRow]:
        """Yields the rows of the copies of batches, and of those that the library needs."""
        for what, name in COPIES.items():
            cause = WaitCause("staging", (what,))
            if cause in self._exposed or cause in self._hidden:
                copies = [span for span in self._run.trace.spans if span.activity == "copy" and span.key == what]
                evaluated = [span for span in copies if self._holds(span.rank, span.start_s)]
                formula = self._copy_formula(evaluated or copies, what) + self._often(len(evaluated))
                yield self._row(cause, "staging", name, formula, self._copy_provenance(evaluated or copies, what))

    def _copy_formula(self, copies: list[Span], what: str) -> str:
        """Returns the time of the largest copies alone, and their mean time."""
        cluster, nbytes = self._run.plan.cluster, max(span.bytes for span in copies)
        alike = [span for span in copies if span.bytes == nbytes]
        route, staging = self._copy_route(alike[0]), cluster.staging
        alone_s, words = route.message_s(nbytes), f"{size(nbytes)} / {size(route.bytes_per_s)}/s"
        words += f" + {seconds(route.latency_s)}" if route.latency_s else ""
        if what == "batch" and staging is not None:
            words = f"{significant(nbytes / staging.sample_bytes, 4)} × {size(staging.sample_bytes)} = {words}"
            if staging.batches == "pageable":
                memory = cluster.nodes[cluster.node_of(alike[0].rank)].memory
                alone_s += nbytes / memory.copy_bytes_per_s
                words += f" + {size(nbytes)} / {size(memory.copy_bytes_per_s)}/s by a core"
        mean_s = sum(span.end_s - span.start_s for span in alike) / len(alike)
        return or_simulated(f"{words} = {seconds(alone_s)}", alone_s, mean_s)

    def _copy_route(self, span: Span) -> RouteFormula:
        route = self._routes.of_copy(span.rank, to_device=span.lane == COPY_TO_DEVICE)
        assert route is not None, "a rank that copies has a host"
        return route

    def _copy_provenance(self, copies: list[Span], what: str) -> str:
        links = joined(self._copy_route(span).provenance for span in copies)
        plan = self._run.plan
        staging, library = plan.cluster.staging, LIBRARIES[plan.wiring.library]
        if what == "batch" and staging is not None:
            return f"{links}; {staging.provenance}"
        if staging is not None and library.gpudirect and staging.gpudirect == "auto":
            return f"{links}; no {GPUDIRECT}"
        return f"{links}; {library.name} copies whole vectors"

    # --- charges, waits and the rest

    def _charge(self, cause: WaitCause) -> ExplainedRow:
        kind, where, nbytes = cause.about
        run, per_step = self._run, self._exposed[cause]
        nodes = run.plan.cluster.nodes
        if kind == "access":
            name = "access to shared memory" + (f", {size(nbytes)}" if nbytes else "")
            provenance = joined(f"{node.intra_node_link.name}: {node.intra_node_link.provenance}" for node in nodes)
        else:
            name = f"{kind} on the {where}, {size(nbytes)}"
            provenance = joined(_charged_by(node, where) for node in nodes)
        durations = [
            charge.seconds
            for (rank, _), charges in run.charges.items()
            for charge in charges
            if rank < run.workers and (charge.op.kind, charge.op.where, charge.op.bytes) == cause.about
        ]
        if not durations:
            formula = "simulated with contention: the accesses of all ranks of a node share its memory"
        else:
            mean_s = sum(durations) / len(durations)
            rate = f" at {size(nbytes / mean_s)}/s" if nbytes else ""
            formula = f"{size(nbytes)}{rate}: {seconds(mean_s)} each, × {significant(per_step / mean_s)} per step"
        return self._row(cause, "charge", name, formula, provenance)

    def _other(self, cause: WaitCause) -> ExplainedRow:
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
            "collective queue": (
                "queue",
                f"earlier {kind} of the group",
                "collectives of one group are served in order",
            ),
            "late sender": ("waiting", f"{about or 'sender'} that sends later", "until the other rank sends"),
            "turn": ("waiting", f"turn at the {about}", "the message has arrived, and other workers come first"),
            "others": ("waiting", f"other workers, at the {about}", f"the {about} waits for others before it answers"),
            "queue": ("queue", f"queue at the {about}", self._busy(about)),
            "server work": ("queue", f"work of the {about} on the own message", self._busy(about)),
            "lock": ("queue", "lock of shared memory", "until other workers release the lock"),
            "other waiting": ("waiting", "other waiting", "time without a recorded activity"),
        }
        group, name, formula = names[cause.group]
        storage = self._run.plan.cluster.storage
        if cause.group == "loading" and storage is not None:
            provenance = joined(f"{storage.name}: {text}" for text in storage.provenance.values())
        elif cause.group in {"queue", "server work"}:
            provenance = "simulated; the cost of a charge is that of its device or host"
        else:
            provenance = self._variation() if group == "waiting" else "simulated"
        return self._row(cause, group, name, formula, provenance)

    def _variation(self) -> str:
        """Describes why workers take unequal times."""
        run, cluster, words = self._run, self._run.plan.cluster, list[str]()
        laws = {cluster.step_times_of(me.rank, run.plan.seed).words for me in run.plan.job.team[: run.workers]}
        if laws != {"none"}:
            words.append(f"jitter ({', '.join(sorted(laws))})")
        devices = {node.device.name for node in cluster.nodes}
        if len(devices) > 1:
            words.append(f"unequal devices ({', '.join(sorted(devices))})")
        if cluster.faults.stragglers or cluster.faults.slowdowns:
            words.append("stragglers")
        return "simulated" + (f": {', '.join(words)} of the scenario" if words else "")

    def _busy(self, role: str) -> str:
        """Describes how busy the ranks of a role are with charges."""
        ranks = {me.rank for me in self._run.plan.job.team if me.role == role}
        if not ranks:
            return "simulated"
        spans = [span for span in self._run.trace.spans if span.rank in ranks]
        total_s = sum(span.end_s - span.start_s for span in spans if span.activity == "update")
        count = sum(span.activity == "receive" for span in spans)
        end_s = max(window.end_s for window in self._windows.values())
        each, share = seconds(total_s / count) if count else "0 s", total_s / (end_s * len(ranks))
        return f"{significant(count / end_s)} messages/s × {each} each: {significant(100 * share)} % busy"


def _charged_by(node: Node, where: str) -> str:
    rates = node.host_rates if where == "host" else node.device.rates
    return f"{node.device.name}: no memory bandwidth is given" if rates is None else rates.provenance


def total(rows: Iterable[ExplainedRow]) -> float:
    """Returns the sum of the rows, in seconds."""
    return sum(row.seconds for row in rows)
