"""Formulas with the numbers put in: messages, collectives and gradients, and the provenance of their values."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from paceline.algorithms.core.values import Group, Rank
from paceline.records.figures import BYTES, DURATION, significant
from paceline.reports.attribution.recording import PerformedCollective, RecordedRun
from paceline.simulator.collectives.pattern_time import alone_s
from paceline.simulator.collectives.plans import CollectivePlan
from paceline.topologies import closed_forms
from paceline.topologies.catalogue.device import DeviceModel
from paceline.topologies.catalogue.host_memory import PIECE_BYTES, shares_sum
from paceline.topologies.graphs.links import LinkModel
from paceline.topologies.graphs.routing import port

size, seconds = BYTES.text, DURATION.text
"""numbers of bytes and of seconds, with the prefix that fits"""
MOST_ROUTES = 3
"""routes that are listed in the formula of a message"""
SAME = 0.01
"""relative difference up to which a closed form is said to give the simulated time"""
KINDS = {
    "AllReduce": "all-reduce",
    "Reduce": "reduce",
    "Broadcast": "broadcast",
    "AllGather": "all-gather",
    "Barrier": "barrier",
}


def joined(provenances: Iterable[str]) -> str:
    """Joins provenances without duplicates."""
    return "; ".join(dict.fromkeys(filter(None, provenances)))


@dataclass(frozen=True, slots=True)
class RouteFormula:
    """The values of a route: its latency, its smallest bandwidth, and the link that has it."""

    latency_s: float
    bytes_per_s: float
    link: LinkModel

    @property
    def provenance(self) -> str:
        return f"{self.link.name}: {self.link.provenance}"

    def message_s(self, nbytes: float) -> float:
        """Returns the time of a message that shares no link."""
        return self.latency_s + nbytes / self.bytes_per_s


class RouteFormulas:
    """The routes of a run's network.

    Args:
        run: the run.
    """

    def __init__(self, run: RecordedRun) -> None:
        self._cluster, self._fabric = run.plan.cluster, run.network.fabric
        self._links: dict[str, LinkModel] = {}
        for connection in self._cluster.graph.striped().connections:
            for ends in (connection.ends, connection.ends[::-1]):
                self._links[port(*ends)] = connection.link

    def between(self, source: Rank, to: Rank, nbytes: float, plan: CollectivePlan | None = None) -> RouteFormula:
        """Returns the route of a message.

        Args:
            source: the sender.
            to: the receiver.
            nbytes: its bytes.
            plan: the collective that it belongs to, whose protocol may change latency and limit.
        """
        if plan is None:
            path = self._fabric.path(source, to, nbytes)
        else:
            path = plan.find(np.array([source]), np.array([to]), np.array([nbytes])).path(0)
        local = self._cluster.nodes[self._cluster.node_of(source)].intra_node_link
        slowest = min(path.ports, key=self._flow_rate, default=None)
        rate = math.inf if slowest is None else self._fabric.capacity[slowest]
        link = local if slowest is None else self._links.get(slowest, local)
        return RouteFormula(path.latency_s, min(rate, path.limit_bytes_per_s), link)

    def _flow_rate(self, port: str) -> float:
        """Returns the bandwidth that a port has for a single flow."""
        link, rate = self._links.get(port), self._fabric.capacity[port]
        return rate if link is None or not link.pieces else min(rate, link.piece(math.inf).bytes_per_s)

    def in_memory(self, group: Group) -> bool:
        """Returns whether the members of a group share the main memory of one node."""
        return len(set(map(self._fabric.node_of, group))) == 1 and bool(self._fabric.seats_in_memory(group.ranks))

    def memory(self, group: Group, plan: CollectivePlan) -> tuple[RouteFormula, str]:
        """Returns the latency of a counter and the rate of a core while all members access memory, and its provenance.

        Args:
            group: members that share memory.
            plan: their collective.
        """
        first, second, *_ = group
        access = plan.find(np.array([first]), np.array([first]), np.ones(1)).path(0)
        node = self._cluster.nodes[self._cluster.node_of(first)]
        rates = [self._fabric.capacity[memory] / len(group) for memory in access.ports]
        link = node.intra_node_link
        latency_s = self._fabric.path(first, second, 0.0).latency_s
        route = RouteFormula(latency_s, min([access.limit_bytes_per_s, *rates]), link)
        return route, f"{route.provenance}; memory: {node.memory.provenance}"

    def of_copy(self, rank: Rank, *, to_device: bool) -> RouteFormula | None:
        """Returns the route between a rank's device and its socket; None if they are the same.

        Args:
            rank: the rank.
            to_device: the direction.
        """
        if (socket := self._cluster.socket_of(rank)) is None:
            return None
        ends = (socket, self._cluster.vertex_of(rank)) if to_device else (self._cluster.vertex_of(rank), socket)
        path = self._fabric.between(*ends)
        slowest = min(path.ports, key=lambda port: self._fabric.capacity[port])
        rate = min(self._fabric.capacity[slowest], path.limit_bytes_per_s)
        return RouteFormula(path.latency_s, rate, self._links[slowest])


def message_words(routes: Mapping[RouteFormula, int], nbytes: int, mean_s: float) -> str:
    """Returns the formula of like messages.

    Args:
        routes: their routes, with the number of messages on each.
        nbytes: bytes of a message.
        mean_s: their mean time in the simulation.

    >>> from paceline.topologies import LINKS
    >>> message_words({RouteFormula(40e-6, 1e9, LINKS["eth-10g"]): 3}, 1_000_000, 0.00104)
    'n / B + α = 1 MB / 1 GB/s + 40 µs = 1.04 ms'
    """
    each = [
        (
            f"{size(nbytes)} / {size(route.bytes_per_s)}/s + {seconds(route.latency_s)} = "
            f"{seconds(route.message_s(nbytes))}"
        )
        + (f" by {route.link.name}" if len(routes) > 1 else "")
        for route in routes
    ]
    alone_s = sum(route.message_s(nbytes) * count for route, count in routes.items()) / sum(routes.values())
    words = "n / B + α = " + ", ".join(each[:MOST_ROUTES]) + (", …" if len(each) > MOST_ROUTES else "")
    words += f"; {seconds(alone_s)} on average" if len(routes) > 1 else ""
    return or_simulated(words, alone_s, mean_s)


def or_simulated(words: str, alone_s: float, mean_s: float) -> str:
    """Returns a formula, behind the simulated time if contention changes it.

    Args:
        words: the formula.
        alone_s: its value.
        mean_s: the mean time in the simulation.
    """
    if abs(alone_s - mean_s) <= SAME * mean_s:
        return words
    return f"simulated with contention: {seconds(mean_s)} on average; alone {words}"


Form = tuple[str, str, Callable[..., float]]
"""a formula in words, its term with γ (empty: nothing is added), and its value for p, n, α, β and with such a term γ"""
FORMS: Mapping[tuple[str, str], Form] = {
    ("AllReduce", "ring"): ("2 ({p} − 1) · α + 2 {share} / B", "{share}", closed_forms.ring_all_reduce_s),
    ("AllReduce", "binomial-tree"): ("2 · {lg} · (α + n / B)", "{lg} · n", closed_forms.tree_all_reduce_s),
    ("AllReduce", "recursive-doubling"): ("{lg} · (α + n / B)", "{lg} · n", closed_forms.recursive_doubling_s),
    ("AllReduce", "halving-doubling"): ("{twice} · α + 2 {share} / B", "{share}", closed_forms.halving_doubling_s),
    ("Reduce", "binomial-tree"): ("{lg} · (α + n / B)", "{lg} · n", closed_forms.binomial_tree_s),
    ("Broadcast", "binomial-tree"): ("{lg} · (α + n / B)", "", closed_forms.binomial_tree_s),
    ("Broadcast", "scatter-gather"): ("{all} · α + 2 {share} / B", "", closed_forms.scatter_all_gather_broadcast_s),
    ("AllGather", "ring"): ("({p} − 1) · α + {share} / B", "", closed_forms.ring_all_gather_s),
    ("AllGather", "recursive-doubling"): ("{lg} · α + {share} / B", "", closed_forms.doubling_all_gather_s),
    ("Barrier", "dissemination"): ("{lg} · α", "", lambda p, _n, alpha_s, _beta: closed_forms.barrier_s(p, alpha_s)),
}
"""the closed forms of collectives by their algorithm; `lg` is ⌈lg p⌉, `twice` is 2 ⌈lg p⌉, `all` is ⌈lg p⌉ + p − 1"""


def _memory_form(kind: str, p: int, nbytes: float) -> Form:
    """Returns the closed form of a collective in the memory of a node."""
    shares, pieces = shares_sum(p, nbytes), max(1.0, (nbytes / p if kind == "AllGather" else nbytes) / PIECE_BYTES)
    passes = closed_forms.shared_memory_passes(kind, p, pieces, shares=shares)
    turns = closed_forms.shared_memory_s(kind, p, 0.0, 1.0, 0.0, pieces, shares=shares)
    value = partial(closed_forms.shared_memory_s, kind, pieces=pieces, shares=shares)
    return f"{turns:g} · α" + f" + {passes:.4g} · n / B" * (passes > 0), "", value


def _form(kind: str, algorithm: str, p: int) -> Form | None:
    """Returns the closed form of a collective with the number of its members put in; None without one."""
    if (kind, algorithm) not in FORMS or ("doubling" in algorithm and p & (p - 1)):
        return None
    text, summed, value = FORMS[kind, algorithm]
    lg = (p - 1).bit_length()
    numbers = {"p": p, "lg": lg, "twice": 2 * lg, "all": lg + p - 1, "share": f"({p} − 1)/{p} · n"}
    return text.format(**numbers), summed.format(**numbers), value


def collective_words(
    run: RecordedRun, routes: RouteFormulas, group: Sequence[PerformedCollective]
) -> tuple[str, str, str]:
    """Returns the pattern of like collectives, their formula, and the provenance of its values.

    Args:
        run: the run.
        routes: its routes.
        group: collectives of one kind, size and number of members, at least one.
    """
    first, (members, _) = group[0], Counter(item.group for item in group).most_common(1)[0]
    mean_s = sum(item.end_s - item.begin_s for item in group) / len(group)
    tuner = run.network.tuner
    plan = tuner.plan(first.kind, members, first.nbytes, first.root)  # type: ignore[arg-type]
    choice = tuner.choices[first.kind, members, first.nbytes]  # type: ignore[index]
    name = choice.algorithm if choice.protocol is None else f"{choice.algorithm} by {choice.protocol}"
    label, p = f"{name} {KINDS.get(first.kind, first.kind)}", len(members)
    if not plan.pattern.parts:
        return name, f"{label}: one member, nothing to send", ""
    form: Form | None
    if choice.algorithm == "shared-memory" and routes.in_memory(members):
        route, provenance = routes.memory(members, plan)
        form = _memory_form(first.kind, p, first.nbytes)
    else:
        pairs = list(zip(members, (*members.ranks[1:], members.ranks[0]), strict=True))
        every = [routes.between(source, to, first.nbytes / p, plan) for source, to in pairs]
        route = max(every, key=lambda one_route: one_route.message_s(first.nbytes / p))
        provenance = route.provenance if choice.protocol is None else f"{route.provenance}; protocols of the library"
        form = _form(first.kind, choice.algorithm, p)
    alone = float(max(alone_s(plan, run.network.fabric)))
    same = abs(alone - mean_s) <= SAME * mean_s
    simulated = seconds(mean_s) if same else f"{seconds(mean_s)} simulated with contention, {seconds(alone)} alone"
    if form is None:
        return name, f"{label}: {simulated}, simulated message by message; no closed form", provenance
    text, summed, value = form
    adding = [plan.reduce_s_per_byte] if summed else []
    closed = value(p, first.nbytes, route.latency_s, 1 / route.bytes_per_s, *adding) + plan.base_s
    put_in = text.replace("n / B", f"{size(first.nbytes)} / {size(route.bytes_per_s)}/s")
    put_in = put_in.replace("α", seconds(route.latency_s))
    if plan.reduce_s_per_byte and summed:
        put_in += f" + {summed.replace('n', size(first.nbytes))} / {size(1 / plan.reduce_s_per_byte)}/s to add"
    put_in += f" + {seconds(plan.base_s)} to start" if plan.base_s else ""
    if same and abs(closed - mean_s) <= SAME * mean_s:
        return name, f"{label}: {put_in} = {seconds(closed)}", provenance
    return name, f"{label}: {simulated}; if every route were its slowest one, {put_in} = {seconds(closed)}", provenance


KIND_NAMES = {
    "1x1": "convolutions of 1 × 1",
    "3x3": "convolutions of 3 × 3",
    "large": "larger convolutions",
    "strided": "convolutions with a stride, or oblong",
    "first": "first convolution",
    "depthwise": "depthwise convolutions",
    "dense": "fully connected layers",
    "attention": "products of activations (attention)",
    "other": "other arithmetic",
    "memory": "memory traffic of all layers",
    "launches": "kernel launches that the device waits for",
}
"""names of the kinds of layers of `layer_times`, and of the two other parts of a gradient"""


def kind_formula(kind: str, part_s: float, amount: float, hidden_s: float = 0.0) -> str:
    """Returns the formula of a part of a gradient, with its numbers.

    Args:
        kind: a key of `KIND_NAMES`.
        part_s: seconds of the part.
        amount: its FLOPs, bytes or launches.
        hidden_s: of launches, the seconds of the host that are hidden behind the device.

    >>> kind_formula("3x3", 0.02, 60e9)
    '60 GFLOP at 3 TFLOP/s'
    >>> kind_formula("launches", 0.0003, 100, 0.0012)
    '100 kernels · 15 µs = 1.5 ms of the host, 1.2 ms hidden behind the device, 300 µs exposed'
    """
    if kind == "launches" and amount and hidden_s > 0:
        whole_s = part_s + hidden_s
        issued = f"{amount:.4g} kernels · {seconds(whole_s / amount)} = {seconds(whole_s)} of the host"
        return f"{issued}, {seconds(hidden_s)} hidden behind the device, {seconds(part_s)} exposed"
    if part_s <= 0:
        return "none"
    if kind == "launches":
        return f"{significant(amount, 4)} kernels · {seconds(part_s / amount)}"
    if kind == "memory":
        return f"{size(amount)} at {size(amount / part_s)}/s"
    return f"{significant(amount / 1e9, 4)} GFLOP at {significant(amount / part_s / 1e12)} TFLOP/s"


def _origin(device: DeviceModel) -> str:
    """Returns where the time of a gradient on a device comes from."""
    if device.measured is not None:
        return "through measured times"
    return "given as overhead and time per sample" if device.times is None else "predicted by the device model"


def gradient_words(run: RecordedRun, mean_s: float) -> tuple[str, str]:
    """Returns a description of the time of the gradients of a step, and of the values that it is computed from.

    Args:
        run: the run.
        mean_s: the mean time of a step's gradient, or of its micro-batches together, in the simulation.
    """
    kinds = run.plan.gradients
    times = {(device, batch): device.compute_s(batch) for device, batch in kinds}
    parts = run.plan.job.method.micro_batches
    each_s = mean_s / parts
    modelled = sum(times[kind] * count for kind, count in kinds.items()) / run.workers
    origins = " and ".join(dict.fromkeys(_origin(device) for device, _ in kinds))
    batches = list(dict.fromkeys(str(batch) for _, batch in kinds))
    what = "a gradient" if parts == 1 else f"{parts} gradients"
    words = f"{what} of {seconds(each_s)}, {origins} at batch {' and '.join(batches)}"
    if abs(each_s - modelled) > SAME * modelled:
        ratio = significant(each_s / modelled)
        words += f" ({seconds(modelled)}) × {ratio} by jitter, stragglers and unequal numbers of steps"
    return words, joined(
        f"{seconds(own_s)} on {device.name}{f' at batch {batch}' if len(batches) > 1 else ''}: {device.provenance}"
        for (device, batch), own_s in times.items()
    )
