"""Explains the predicted step time of every algorithm of a scenario: its parts, and which change would shorten it.

Read this first, then `recording` and `rows`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from paceline.algorithms.core.job import PlannedDeath
from paceline.algorithms.core.values import Rank
from paceline.records.faults import NAMED, needs
from paceline.records.figures import MILLISECONDS, STEP_TIME, Unit
from paceline.reports.attribution.formulas import seconds
from paceline.reports.attribution.recording import (
    RecordedRun,
    RecordedTiming,
    mean_step,
    mean_step_s,
    record,
    short_trace,
    windows,
)
from paceline.reports.attribution.rows import GROUPS, ExplainedRow, breakdown
from paceline.reports.attribution.variation import (
    LEAST,
    NO_VARIATION,
    PARTS,
    MeanStep,
    VariationWaiting,
    variation_waiting,
    waiting_blocks,
)
from paceline.reports.blocks import Answer, Block, Claim, Column, Table, TableCell
from paceline.reports.words import listed
from paceline.scenarios import Scenario
from paceline.scenarios.resolution.plan import Plan
from paceline.simulator.runs.cost_model import processors_of
from paceline.simulator.runs.short_runs import Length, length_of
from paceline.topologies.catalogue.libraries import LIBRARIES
from paceline.topologies.catalogue.storage_devices import StorageModel
from paceline.topologies.cluster import ClusterModel
from paceline.topologies.graphs.graph import Connection
from paceline.topologies.graphs.links import LinkModel

Tick = Callable[[float], None]
"""called with the fraction that is done"""


class WhatIf(NamedTuple):
    """One change: its description, the changed plan, and the timing of its run."""

    words: str
    plan: Plan
    timing: RecordedTiming | None = None


@dataclass(frozen=True, slots=True)
class Effect:
    """The step time with one change."""

    words: str
    step_s: float
    before_s: float

    @property
    def saved(self) -> float:
        """The part of the step time that the change saves; negative if the step takes longer."""
        return 1 - self.step_s / self.before_s

    def record(self) -> dict[str, Any]:
        """Returns the entry in the JSON answer."""
        saved_s = self.before_s - self.step_s
        return {"change": self.words, "step_s": self.step_s, "saved_s": saved_s, "saved_percent": 100 * self.saved}


def effects(
    run: RecordedRun,
    before_s: float,
    progress: Tick = lambda _: None,
    length: Length | None = None,
    variation: VariationWaiting | None = None,
) -> list[Effect]:
    """Returns the effect of every change that applies, largest first.

    Args:
        run: the run without changes.
        before_s: its mean step time.
        progress: called with the fraction that is done.
        length: the length of the runs with changes; None: that of the run. If they are shorter, they are compared with
            as short a run without changes.
        variation: the steps of as long runs without parts of the variation of steps; None: steps do not vary.
    """
    kinds, every, length = list[Effect](), list(changes(run)), length or run.length
    network = run.shared_network
    if length == run.length:
        unchanged_s = before_s
    else:
        unchanged_s = mean_step_s(run.plan, length, None, network) if variation is None else variation.whole.step_s
    for number, (words, plan, timing) in enumerate(every):
        # a change that leaves links as they are uses the network of the run, and its choices, again
        step_s = mean_step_s(plan, length, timing, network if plan is run.plan else None)
        kinds.append(Effect(words, before_s * (step_s / unchanged_s), before_s))
        progress((number + 1) / len(every))
    if variation is not None:
        parts = {PARTS[part].change: mean for part, mean in variation.without.items() if len(variation.without) > 1}
        kinds += [
            Effect(words, before_s * (mean.step_s / unchanged_s), before_s)
            for words, mean in {NO_VARIATION: variation.none, **parts}.items()
        ]
    return sorted(kinds, key=lambda effect: -effect.saved)


def varied(run: RecordedRun, length: Length) -> VariationWaiting | None:
    """Returns the waiting of a run by part of the variation of its steps; None if they do not vary.

    Args:
        run: the run.
        length: the length of the runs without parts.
    """

    def simulated(plan: Plan) -> MeanStep:
        return mean_step(short_trace(plan, length, None, run.shared_network), run.workers, length)

    return variation_waiting(
        run.plan, simulated, mean_step(run.trace, run.workers, length) if length == run.length else None
    )


def shorter(run: RecordedRun) -> Length:
    """Returns the length of runs with a change: that of the run, or less if the run has very many operations.

    Args:
        run: the run without changes.
    """
    length, cost = run.length, max(len(run.trace.spans), run.trace.notes["events"])
    steps = int(length.steps * MOST_SPANS / cost) // length.period * length.period if cost else length.steps
    return replace(length, steps=min(length.steps, max(length.period, steps)))


def changes(run: RecordedRun) -> Iterator[WhatIf]:
    """Yields the changes that apply to a run."""
    plan, cluster = run.plan, run.plan.cluster
    yield WhatIf("devices twice as fast", plan, RecordedTiming(plan, compute=lambda _: 0.5))
    devices = list(dict.fromkeys(device for device, _ in plan.gradients))
    gained = {
        (device, batch): min(device.compute_s(batch) for device in devices) / own_s
        for device, batch in plan.gradients
        if (own_s := device.compute_s(batch)) > 0
    }
    if any(factor < 1 for factor in gained.values()):
        pairs = ((cluster.device_of(Rank(rank)), batch) for rank, batch in enumerate(plan.job.batches))
        equal = [gained.get(pair, 1.0) for pair in pairs]
        yield WhatIf(
            "every device as fast as the fastest", plan, RecordedTiming(plan, compute=lambda rank: equal[rank])
        )
    if len(cluster.nodes) > 1 and run.workers + (plan.job.method.has_server) > 1:
        faster, nearer = _relinked(cluster, bandwidth=2.0), _relinked(cluster, latency=0.5)
        yield WhatIf("twice the bandwidth between nodes", replace(plan, cluster=faster))
        yield WhatIf("half the latency between nodes", replace(plan, cluster=nearer))
    shared = len({cluster.node_of(me.rank) for me in plan.job.team}) < len(plan.job.team)
    if shared or any(span.activity == "copy" for span in run.trace.spans):
        near = _relinked(cluster, inside=True, bandwidth=2.0)
        yield WhatIf("twice the bandwidth inside nodes", replace(plan, cluster=near))
    if cluster.faults.stragglers or cluster.faults.slowdowns:
        faults = replace(cluster.faults, stragglers=(), slowdowns=())
        yield WhatIf("no stragglers", replace(plan, cluster=replace(cluster, faults=faults)))
    servers = frozenset(plan.job.team[0].servers)
    costly = {rank for rank, _ in run.charges}
    if costly - servers:
        yield WhatIf("charges of workers at half their cost", plan, RecordedTiming(plan, work=0.5))
    if costly & servers:
        yield WhatIf("work of the server at half its cost", plan, RecordedTiming(plan, server=0.5))
    if processors_of(plan) is not None:
        yield WhatIf("communication that takes nothing from gradients", replace(plan, interference=0.0))
    yield from _unstaged(run)
    if cluster.storage is not None and plan.work.reading is not None:
        quick = replace(cluster, storage=_quicker(cluster.storage))
        yield WhatIf("storage twice as fast", replace(plan, cluster=quick))


def _unstaged(run: RecordedRun) -> Iterator[WhatIf]:
    """Yields the changes that hide or avoid copies between hosts and devices."""
    plan, cluster, staging = run.plan, run.plan.cluster, run.plan.cluster.staging
    if staging is None:
        return
    if not staging.ahead and any(span.activity == "copy" and span.key == "batch" for span in run.trace.spans):
        ahead = replace(staging, batches="pinned", prefetch=1)
        yield WhatIf("batches copied ahead from pinned memory", replace(plan, cluster=replace(cluster, staging=ahead)))
    buffers, library = run.network.fabric.buffers, LIBRARIES[plan.wiring.library]
    if library.gpudirect and (buffers.copied or buffers.passed):
        direct = replace(staging, gpudirect="on")
        yield WhatIf("GPUDirect RDMA", replace(plan, cluster=replace(cluster, staging=direct)))


def scaled(link: LinkModel, *, bandwidth: float = 1.0, latency: float = 1.0) -> LinkModel:
    """Returns a link with its name and other values.

    Args:
        link: the link.
        bandwidth: the factor on its bandwidth.
        latency: the factor on its latency, and on the processor time in it.

    >>> from paceline.topologies import LINKS
    >>> scaled(LINKS["eth-10g"], bandwidth=2.0).bytes_per_s, scaled(LINKS["eth-10g"], latency=0.5).send_s
    (2300000000.0, 2.5e-06)
    """
    pieces = tuple(
        replace(piece, latency_s=latency * piece.latency_s, bytes_per_s=bandwidth * piece.bytes_per_s)
        for piece in link.pieces
    )
    download = link.download_bytes_per_s
    return replace(
        link,
        latency_s=latency * link.latency_s,
        bytes_per_s=bandwidth * link.bytes_per_s,
        send_s=latency * link.send_s,
        receive_s=latency * link.receive_s,
        pieces=pieces,
        download_bytes_per_s=None if download is None else bandwidth * download,
    )


def _quicker(storage: StorageModel) -> StorageModel:
    """Returns the storage with twice the bandwidths and half the latency."""
    limits = storage.one_bytes_per_s, storage.client_bytes_per_s
    server, client = (None if limit is None else 2 * limit for limit in limits)
    return replace(
        storage,
        latency_s=storage.latency_s / 2,
        bytes_per_s=2 * storage.bytes_per_s,
        one_bytes_per_s=server,
        client_bytes_per_s=client,
    )


def is_inside(cluster: ClusterModel, connection: Connection) -> bool:
    """Returns whether a connection is inside a node.

    Both ends belong to one host; in a cluster of one node, every connection is inside.

    Args:
        cluster: the cluster.
        connection: a connection of its graph.
    """
    if len(cluster.nodes) == 1:
        return True
    hosts = {vertex.name: vertex.host for vertex in cluster.graph.vertices if vertex.name in connection.ends}
    end_host, other = (hosts[end] for end in connection.ends)
    return end_host is not None and end_host == other


def _relinked(
    cluster: ClusterModel, *, inside: bool = False, bandwidth: float = 1.0, latency: float = 1.0
) -> ClusterModel:
    """Returns the cluster with other values of the links inside nodes, or of those between them."""
    connections = tuple(
        replace(connection, link=scaled(connection.link, bandwidth=bandwidth, latency=latency))
        if is_inside(cluster, connection) == inside
        else connection
        for connection in cluster.graph.connections
    )
    changed = replace(cluster, graph=replace(cluster.graph, connections=connections))
    if not inside:
        return changed
    links = [scaled(node.intra_node_link, bandwidth=bandwidth, latency=latency) for node in cluster.nodes]
    nodes = tuple(replace(node, intra_node_link=link) for node, link in zip(cluster.nodes, links, strict=True))
    return replace(changed, nodes=nodes)


MOST_SPANS = 30_000
"""recorded activities of a run with a change, and events where there are more, if it has several periods of the method;
our choice, for a few seconds of simulation each"""


def conclusion(name: str, before_s: float, ordered: list[Effect], shown: Callable[[float], str]) -> str:
    """Returns a sentence that says what would shorten a step most.

    Args:
        name: the algorithm.
        before_s: the mean step time.
        ordered: the effects, largest first.
        shown: formats seconds.

    >>> two = [Effect("twice the bandwidth between nodes", 0.0489, 0.0612), Effect("no jitter", 0.0600, 0.0612)]
    >>> conclusion("sync-sgd", 0.0612, two, lambda value: f"{1e3 * value:.1f} ms")
    'Twice the bandwidth between nodes would shorten a step of sync-sgd from 61.2 ms to 48.9 ms (−20 %); nothing else \
by more than 2 %.'
    """
    if not ordered or ordered[0].saved < LEAST:
        return f"No change that was tried shortens a step of {name} ({shown(before_s)}) by {100 * LEAST:g} % or more."
    best = ordered[0]
    ties = [change for change in ordered if best.saved - change.saved < LEAST]
    words = " or ".join(tie.words for tie in ties)
    each = " (each about the same)" if len(ties) > 1 else ""
    saved = f"from {shown(before_s)} to {shown(best.step_s)} (−{_percent(best.saved)} %)"
    rest = ordered[len(ties) :]
    after = ""
    if rest and rest[0].saved < LEAST:
        after = f"; nothing else by {100 * LEAST:g} % or more"
    elif rest:
        after = f"; nothing else by more than {math.ceil(100 * rest[0].saved)} %"
    return f"{words[0].upper()}{words[1:]}{each} would shorten a step of {name} {saved}{after}."


def _percent(share: float) -> str:
    return f"{100 * share:.0f}" if share >= 0.0995 else f"{100 * share:.1f}"


Report = Callable[[str, float], None]
"""called with the name of the algorithm, and the fraction of all that is done, 0 … 1"""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The parts of the mean step time of one algorithm, and the effects of changes."""

    name: str
    step_s: float
    steps: int
    """evaluated steps of all workers together"""
    rows: list[ExplainedRow]
    effects: list[Effect]
    waiting: VariationWaiting | None
    """by part of the variation of steps; None if they do not vary"""
    notes: list[str]

    @property
    def conclusion(self) -> str:
        """A sentence that says what would shorten a step most."""
        return conclusion(self.name, self.step_s, self.effects, seconds)

    def record(self) -> dict[str, Any]:
        """Returns the entry in the JSON answer."""
        return {
            "name": self.name,
            "step_s": self.step_s,
            "steps": self.steps,
            "rows": [row.record() for row in self.rows],
            "what_if": [effect.record() for effect in self.effects],
            "conclusion": self.conclusion,
            "variation": None if self.waiting is None else self.waiting.record(self.name),
            "notes": self.notes,
        }


def explain(scenario: Scenario, *, steps: int | None = None, progress: Report | None = None) -> list[Explanation]:
    """Explains the predicted step time of every algorithm, with the first seed of the scenario.

    Args:
        scenario: the scenario; its `workload.learning` is ignored, because times do not depend on it.
        steps: the number of evaluated steps of each worker; None: chosen by the number of workers and the longest
            period of the method.
        progress: called with the algorithm and the fraction of all that is done.

    >>> from paceline import load
    >>> quick = load("quickstart", ["cluster.step_time.sigma=1e-6"], algorithms=["sync-sgd"])
    >>> (explanation,) = explain(quick, steps=4)
    >>> explanation.conclusion
    'Devices twice as fast or every device as fast as the fastest (each about the same) would shorten a step of \
sync-sgd from 40.1 ms to 20.1 ms (−50 %); nothing else by 0.5 % or more.'
    """
    plans = timing_only(scenario).plans()
    changes = []
    for number, plan in enumerate(plans):

        def tick(done: float, number: int = number, name: str = plan.name) -> None:
            if progress is not None:
                progress(name, (number + done) / len(plans))

        changes.append(_explained(plan, steps, tick))
    return changes


def timing_only(scenario: Scenario) -> Scenario:
    """Returns the scenario with one seed and without learning; a model of the user's own keeps its learner."""
    workload = scenario.workload
    if ":" not in workload.model:
        workload = workload.model_copy(update={"learning": "none", "options": {}})
    return scenario.model_copy(update={"workload": workload, "seeds": 1, "extrapolate": None})


def _explained(plan: Plan, steps: int | None, progress: Callable[[float], None]) -> Explanation:
    length = length_of(plan, steps)
    run = record(plan, length)
    step_s, rows = breakdown(run)
    progress(0.1)
    fewer = shorter(run) if steps is None else length
    waiting = varied(run, fewer)
    progress(0.4)
    changed = effects(run, step_s, lambda done: progress(0.4 + 0.6 * done), fewer, waiting)
    notes = [*filter(None, [length.note, _note(plan.name, length, fewer)]), *run.trace.notes.get("warnings", ())]
    notes += _after_deaths(plan, length, step_s)
    steps_of_all = sum(window.steps for window in windows(run).values())
    return Explanation(plan.name, step_s, steps_of_all, rows, changed, waiting, notes)


def _note(name: str, length: Length, fewer: Length) -> str:
    """Returns a note if changes were evaluated over fewer steps than the step itself."""
    if fewer.steps == length.steps:
        return ""
    steps = "1 step" if fewer.steps == 1 else f"{fewer.steps} steps"
    return (
        f"{name}: changes were evaluated over {steps} of each worker, because its steps have very many operations; "
        f"--steps {length.steps} evaluates all {length.steps}"
    )


def _after_deaths(plan: Plan, length: Length, before_s: float) -> list[str]:
    """Returns a sentence about the workers that the scenario lets die, which the parts of a step do not contain."""
    if not (deaths := plan.job.deaths):
        return []
    ranks = list(dict.fromkeys(death.rank for death in deaths))
    named = listed([str(rank) for rank in ranks]) if len(ranks) <= NAMED else f"{len(ranks)} of {plan.job.workers}"
    dies = f"workers {named} die" if len(ranks) > 1 else f"worker {named} dies"
    begun = f"{plan.name}: the parts are those of a step with all workers, before {dies} (cluster.deaths)"
    after = record(plan, length, deaths=tuple(PlannedDeath(rank, step=0) for rank in ranks))
    if after.trace.ended is not None:
        return [f"{begun}; {needs(plan.job)}, so the run then ends"]
    return [f"{begun}; with the others, a step takes {seconds(breakdown(after)[0])} (with all, {seconds(before_s)})"]


def answer_of_explanations(scenario: str, explanations: Sequence[Explanation]) -> Answer:
    """Returns the answer of `paceline explain`.

    Args:
        scenario: the name of the scenario.
        explanations: what was found of each algorithm.
    """
    return Answer(
        title=f"{scenario}: where the time of a step goes",
        blocks=[block for explanation in explanations for block in blocks(explanation)],
        data=lambda: {"scenario": scenario, "algorithms": [explanation.record() for explanation in explanations]},
        notes=[note for explanation in explanations for note in explanation.notes],
    )


def blocks(explanation: Explanation) -> list[Block]:
    """Returns the tables of one algorithm, and its conclusion."""
    return [
        breakdown_table(explanation),
        Claim(formula_list(explanation)),
        what_if_table(explanation),
        *waiting_blocks(explanation.name, explanation.waiting),
        Claim(explanation.conclusion + "\n"),
    ]


def breakdown_table(explanation: Explanation) -> Table:
    """Returns the parts of the mean step time, with a sum for each group."""
    step = STEP_TIME.with_symbol(explanation.step_s)
    columns = [
        Column("part"), Column("time", MILLISECONDS, code="seconds"), Column("", Unit("%"), code="percent"),
        Column("hidden", MILLISECONDS, code="hidden_s"),
    ]  # fmt: skip
    rows: list[tuple[str, float, float, Any]] = []
    sums = []
    for group in GROUPS:
        if parts := [row for row in explanation.rows if row.group == group]:
            sums.append(len(rows))
            rows.append(_cells(group, parts))
            rows += [_cells(f"  {mark(explanation, row)} {row.name}", [row]) for row in parts]
    title = f"{explanation.name}: a step takes {step}, the mean of {explanation.steps} steps of all workers"
    return Table(title, columns, rows, tones=dict.fromkeys(sums, "strong"))


def _cells(name: str, rows: Sequence[ExplainedRow]) -> tuple[str, float, float, Any]:
    """Returns the cells of the sum of some rows; what is not hidden has no figure."""
    hidden_s = sum(row.hidden_s for row in rows)
    return name, sum(row.seconds for row in rows), sum(row.percent for row in rows), hidden_s or TableCell("")


def mark(explanation: Explanation, row: ExplainedRow) -> str:
    """Returns the number of a row, by which the list of formulas refers to it.

    Args:
        explanation: the explanation.
        row: one of its rows.
    """
    return f"[{explanation.rows.index(row) + 1}]"


def formula_list(explanation: Explanation) -> str:
    """Returns the formula of each row, and the provenance of the values, each once."""
    lines, sources = [], dict[str, list[int]]()
    for number, row in enumerate(explanation.rows, 1):
        lines.append(f"{mark(explanation, row)} {row.formula}")
        if row.provenance:
            sources.setdefault(row.provenance, []).append(number)
    lines += ["", "Values:"]
    lines += [f"[{', '.join(map(str, numbers))}] {provenance}" for provenance, numbers in sources.items()]
    return "\n".join([*lines, ""])


def what_if_table(explanation: Explanation) -> Table:
    """Returns the effects of changes, largest first."""
    columns = [Column("change"), Column.of(STEP_TIME), Column("difference", signed=True)]
    rows = [
        (
            effect.words,
            effect.step_s,
            TableCell(-effect.saved, words=f"under {100 * LEAST:g}" if abs(effect.saved) < LEAST else ""),
        )
        for effect in explanation.effects
    ]
    return Table(f"{explanation.name}: one change at a time", columns, rows)
