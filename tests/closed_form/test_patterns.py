"""Collectives as message patterns: closed forms (O1), an independent replay, and what disturbs a ring."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.values import Rank
from paceline.simulator.collectives.contention import Contention
from paceline.simulator.collectives.pattern_time import alone_s
from paceline.simulator.collectives.patterns import (
    PATTERNS,
    Kind,
    Setting,
    build,
    double_tree,
    joined,
    schedule,
    two_trees,
)
from paceline.simulator.collectives.plans import CollectivePlan
from paceline.simulator.flows.flow_engine import Flows
from paceline.simulator.flows.path_tables import Path
from paceline.topologies import closed_forms as forms
from tests.replay import Players, Replay, Uniform, replayed_s, simulate_by_events
from tests.thorough import examples

NUMBERS = [1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 48, 64, 100]
POWERS = [1, 2, 4, 8, 16, 64]
ALPHA_S, BETA, GAMMA = 1.3e-6, 0.7e-9, 0.11e-9
Form = Callable[..., float]


def star(p: int, workers_per_node: int = 1) -> Uniform:
    return Uniform(p, alpha_s=ALPHA_S, bytes_per_s=1 / BETA, reduce_s_per_byte=GAMMA, workers_per_node=workers_per_node)


def setting(p: int, nbytes: float, workers_per_node: int = 1, root: int = 0) -> Setting:
    nodes = tuple(tuple(range(first, min(first + workers_per_node, p))) for first in range(0, p, workers_per_node))
    return Setting(p, nbytes, root, nodes)


def plan(kind: Kind, name: str, fabric: Uniform, nbytes: float, root: int = 0) -> CollectivePlan:
    pattern = build(kind, name, setting(fabric.p, nbytes, fabric.workers_per_node, root))
    return CollectivePlan(pattern, tuple(map(Rank, range(fabric.p))), fabric.paths, fabric.reduce_s_per_byte)


def close(expected: object) -> object:
    return pytest.approx(expected, rel=1e-9, abs=0.0)


CLOSED: list[tuple[Kind, str, Form, bool, list[int]]] = [
    ("AllReduce", "ring", forms.ring_all_reduce_s, True, NUMBERS),  # C1
    ("AllReduce", "recursive-doubling", forms.recursive_doubling_s, True, NUMBERS),  # C2, C3
    ("AllReduce", "halving-doubling", forms.halving_doubling_s, True, NUMBERS),  # C4, C5
    ("AllReduce", "binomial-tree", forms.tree_all_reduce_s, True, NUMBERS),  # C6
    ("Broadcast", "binomial-tree", forms.binomial_tree_s, False, NUMBERS),  # C7
    ("Reduce", "binomial-tree", forms.binomial_tree_s, True, NUMBERS),  # C7
    ("Broadcast", "scatter-gather", forms.scatter_all_gather_broadcast_s, False, POWERS),  # C8
    ("AllGather", "ring", forms.ring_all_gather_s, False, NUMBERS),  # C9
    ("AllGather", "recursive-doubling", forms.doubling_all_gather_s, False, POWERS),  # C9
    ("ReduceScatter", "ring", forms.pairwise_reduce_scatter_s, True, NUMBERS),  # C10
    ("ReduceScatter", "halving", forms.halving_reduce_scatter_s, True, POWERS),  # C10
]


@pytest.mark.parametrize(
    ("kind", "name", "form", "reduces", "p"),
    [(kind, name, form, reduces, p) for kind, name, form, reduces, numbers in CLOSED for p in numbers],
)
def test_closed_forms(kind: Kind, name: str, form: Form, reduces: bool, p: int) -> None:
    for nbytes in (1e3, 1e6 / 3):
        expected_s = form(p, nbytes, ALPHA_S, BETA, *([GAMMA] if reduces else []))
        assert alone_s(plan(kind, name, star(p), nbytes), star(p)).max() == close(expected_s)


@pytest.mark.parametrize("p", NUMBERS)
def test_a_barrier_takes_a_latency_a_round(p: int) -> None:
    assert alone_s(plan("Barrier", "dissemination", star(p), 0.0), star(p)).max() == close(forms.barrier_s(p, ALPHA_S))


@pytest.mark.parametrize(("workers_per_node", "nodes"), [(2, 2), (4, 2), (2, 3), (3, 4), (8, 4)])
def test_two_levels_that_share_a_nic(workers_per_node: int, nodes: int) -> None:
    """C14: 2(g−1) a₁ + 2(g−1)/g n b₁ + 2(m−1) a₂ + 2(m−1)/m n b₂, and γ for what is added."""
    fabric, nbytes, g, m = star(workers_per_node * nodes, workers_per_node), 1e6, workers_per_node, nodes
    expected_s = 2 * (g - 1) * fabric.inside_s + 2 * (g - 1) / g * nbytes / fabric.inside_bytes_per_s
    expected_s += 2 * (m - 1) * ALPHA_S + 2 * (m - 1) / m * nbytes * BETA
    expected_s += ((g - 1) / g + (m - 1) / m / g) * nbytes * GAMMA
    assert alone_s(plan("AllReduce", "two-level", fabric, nbytes), fabric).max() == close(expected_s)


def test_halving_doubling_of_six_ranks_counts_the_next_power_of_two_below() -> None:
    """O1, C5: 'p=6: exact 3.512 ms against 3.679 ms from the comment' differ in n β by 2 (5/6 − 3/4)."""
    exact = forms.halving_doubling_s(6, 1e6, 0.0, 1e-9)
    comment = (2 * 5 / 6 + 2) * 1e6 * 1e-9
    assert comment - exact == pytest.approx(2 * (5 / 6 - 3 / 4) * 1e-3)


def test_ring_beats_recursive_doubling_where_the_oracle_says() -> None:
    """O1, C12: its crossing for 8 ranks, 176 000 B, fixes α/β; the one for 64 ranks, 595 349 B, must then follow."""
    ratio = 176_000 * (3 - 14 / 8) / (14 - 3)  # α/β in bytes

    def ring_wins(nbytes: float) -> bool:
        ring_s = forms.ring_all_reduce_s(64, nbytes, ratio, 1.0)
        return ring_s < forms.recursive_doubling_s(64, nbytes, ratio, 1.0)

    assert not ring_wins(595_349 * 0.999)
    assert ring_wins(595_349 * 1.001)


def test_patterns_for_powers_of_two_refuse_others() -> None:
    for pattern in (forms.doubling_all_gather_s, forms.halving_reduce_scatter_s):
        with pytest.raises(InputError, match="found 6 ranks; this pattern needs a power of two"):
            pattern(6, 1000.0, ALPHA_S, BETA)


def test_bus_bandwidth_of_a_ring_without_latency_is_the_links() -> None:
    for p in (2, 6, 64):
        seconds = forms.ring_all_reduce_s(p, 1e9, 0.0, 1 / 12e9)
        assert forms.bus_bytes_per_s("all-reduce", p, 1e9, seconds) == pytest.approx(12e9)
        seconds = forms.ring_all_gather_s(p, 1e9, 0.0, 1 / 12e9)
        assert forms.bus_bytes_per_s("all-gather", p, 1e9, seconds) == pytest.approx(12e9)
        assert forms.bus_bytes_per_s("broadcast", p, 1e9, 1.0) == 1e9


ALL: list[tuple[Kind, str]] = [(kind, name) for kind, names in PATTERNS.items() for name in names]


@pytest.mark.parametrize(("kind", "name"), ALL)
@examples(12, 200)
@given(data=st.data())
def test_every_pattern_equals_the_replay(kind: Kind, name: str, data: st.DataObject) -> None:
    """Any number of ranks, nodes of any size, ranks that come at any time: each rank is done as in the replay."""
    p = data.draw(st.integers(2, 9), label="p")
    fabric = star(p, data.draw(st.integers(1, 4), label="per node"))
    nbytes = data.draw(st.sampled_from([1.0, 1e4, 3e6]), label="bytes")
    times = st.sampled_from([0.0, 1e-6, 1.7e-5, 1e-3])
    entries_s = data.draw(st.lists(times, min_size=p, max_size=p), label="entries")
    rooted = kind in ("Broadcast", "Reduce")
    one = plan(kind, name, fabric, nbytes, data.draw(st.integers(0, p - 1), label="root") if rooted else 0)
    expected_s = replayed_s(one.pattern, fabric, entries_s)
    assert alone_s(one, fabric, np.array(entries_s)) == close(np.array(expected_s))


# --- what disturbs a ring --------------------------------------------------------------------------------------------


def ring_of(p: int) -> tuple[Uniform, CollectivePlan]:
    fabric = star(p)
    return fabric, plan("AllReduce", "ring", fabric, 1e6)


def test_one_link_at_half_rate() -> None:
    fabric, one = ring_of(64)
    fabric.capacity["up 17"] /= 2
    quick_s = alone_s(one, fabric)
    assert quick_s == close(np.array(replayed_s(one.pattern, fabric)))
    assert quick_s.max() > 1.5 * forms.ring_all_reduce_s(64, 1e6, ALPHA_S, BETA, GAMMA)  # and no formula


def test_one_rank_a_millisecond_late() -> None:
    fabric, one = ring_of(64)
    entries_s = np.zeros(64)
    entries_s[17] = 1e-3
    quick_s = alone_s(one, fabric, entries_s)
    assert quick_s == close(np.array(replayed_s(one.pattern, fabric, entries_s.tolist())))
    assert quick_s.max() > 1e-3


def test_one_link_that_two_messages_share() -> None:
    """The ranks arrive at different times: repetitions are simulated, and skipped ones are compensated exactly."""
    fabric, _ = ring_of(12)
    along = fabric.path

    def path(source: Rank, to: Rank, nbytes: float) -> Path:
        usual = along(source, to, nbytes)
        return Path((*usual.ports, "trunk"), usual.latency_s) if source in (3, 4, 9) else usual

    fabric.path, fabric.capacity["trunk"] = path, 1.1 / BETA  # type: ignore[method-assign]
    one = plan("AllReduce", "ring", fabric, 1e6)
    entries_s = np.linspace(0.0, 1e-4, 12)
    assert alone_s(one, fabric, entries_s) == close(np.array(replayed_s(one.pattern, fabric, entries_s.tolist())))
    assert alone_s(one, fabric, entries_s) == close(simulate_by_events(one, fabric, entries_s))


# --- what is pipelined -----------------------------------------------------------------------------------------------


def test_a_double_tree_from_few_bytes_to_many() -> None:
    """C16: 2 ⌈lg p⌉ α for few bytes, and 2 n β for many."""
    fabric = Uniform(64)
    few, many = (plan("AllReduce", "double-tree", fabric, nbytes) for nbytes in (1e-3, 1e9))
    assert alone_s(few, fabric).max() == pytest.approx(2 * 6 * fabric.alpha_s, rel=1e-6)
    assert (
        1.0 < alone_s(many, fabric).max() * fabric.bytes_per_s / 2e9 < 1.15
    )  # flows that share a link fairly leave some of it idle


def test_a_double_tree_is_simulated_alike_by_events() -> None:
    fabric = star(12)
    one = plan("AllReduce", "double-tree", fabric, 3e7)
    entries_s = np.linspace(0.0, 1e-4, 12)
    assert alone_s(one, fabric, entries_s) == close(simulate_by_events(one, fabric, entries_s))


# --- the data that patterns move --------------------------------------------------------------------------------------


Pieces = Callable[["Message"], set[int]]
NBYTES = 5040.0


class Message:
    """A message and its position in the pattern."""

    def __init__(self, s: Setting, number: int, repetition: int, source: int, target: int, count: int) -> None:
        self.s, self.number, self.repetition = s, number, repetition
        self.source, self.target, self.before = source, target, count
        """`before`: the number of earlier messages of the same pair"""
        self.power = 1 << (s.p.bit_length() - 1)
        self.inner = number - (1 if self.power < s.p else 0)
        """the round, not counting the round that folds ranks in"""


def all_of(number: int) -> set[int]:
    return set(range(number))


def ring(offset: int) -> Pieces:
    return lambda m: {(m.source - m.s.root + offset - m.repetition) % m.s.p}


def ring_all_reduce(m: Message) -> set[int]:
    return ring(-1 if m.number == 0 else 0)(m)


def halving(m: Message) -> set[int]:
    """The pieces whose last bits are those of the receiver, one bit more each round; then of the sender, one less."""
    steps, beyond = m.power.bit_length() - 1, m.s.p - m.power
    if m.inner in (-1, 2 * steps):
        return all_of(m.power)
    bits, place = (m.inner + 1, m.target) if m.inner < steps else (2 * steps - m.inner, m.source)
    own = place // 2 if place < 2 * beyond else place - beyond
    return {piece for piece in range(m.power) if (piece ^ own) % 2**bits == 0}


def bruck(m: Message) -> set[int]:
    return {(m.source + k) % m.s.p for k in range(min(2**m.number, m.s.p - 2**m.number))}


def scatter_gather(m: Message) -> set[int]:
    depth = (m.s.p - 1).bit_length()
    if m.number == depth:
        return ring(0)(m)
    to = (m.target - m.s.root) % m.s.p
    return set(range(to, min(to + 2 ** (depth - 1 - m.number), m.s.p)))


def halving_or_ring(m: Message) -> set[int]:
    return halving(m) if m.power == m.s.p else ring(-1)(m)


def alike(s: Setting) -> bool:
    return all(len(node) == len(s.nodes[0]) for node in s.nodes)


def among_leaders(m: Message) -> set[int]:
    """Whole vectors inside nodes, and a ring of the nodes' first ranks between them."""
    heads, number = [node[0] for node in m.s.nodes], len(m.s.nodes)
    if m.source not in heads or m.target not in heads:
        return all_of(number)
    shift, turn = (1, m.before) if m.before < number - 1 else (0, m.before - number + 1)
    return {(heads.index(m.source) - shift - turn) % number}


def two_level(m: Message) -> set[int]:
    """Pieces are (share of the ranks of a node, part of it), where all nodes are alike."""
    size, nodes = len(m.s.nodes[0]), len(m.s.nodes)
    if not alike(m.s):
        return among_leaders(m)
    node, place = divmod(m.source, size)
    if m.target // size != node:
        shift, turn = (1, m.before) if m.before < nodes - 1 else (0, m.before - nodes + 1)
        return {place * nodes + (node - shift - turn) % nodes}
    shift, turn = (1, m.before) if m.before < size - 1 else (0, m.before - size + 1)
    return {(place - shift - turn) % size * nodes + part for part in range(nodes)}


def one_piece(_: Setting) -> int:
    return 1


def the_piece(_: Message) -> set[int]:
    return {0}


WHOLE = (one_piece, the_piece)
RULES: dict[tuple[Kind, str], tuple[Callable[[Setting], int], Pieces]] = {
    ("AllReduce", "ring"): (lambda s: s.p, ring_all_reduce),
    ("AllReduce", "recursive-doubling"): WHOLE,
    ("AllReduce", "halving-doubling"): (lambda s: 1 << (s.p.bit_length() - 1), halving),
    ("AllReduce", "binomial-tree"): WHOLE,
    ("Reduce", "binomial-tree"): WHOLE,
    ("Broadcast", "binomial-tree"): WHOLE,
    ("Broadcast", "scatter-gather"): (lambda s: s.p, scatter_gather),
    ("AllGather", "ring"): (lambda s: s.p, ring(0)),
    ("AllGather", "recursive-doubling"): (lambda s: s.p, bruck),
    ("ReduceScatter", "ring"): (lambda s: s.p, ring(-1)),
    ("ReduceScatter", "halving"): (lambda s: s.p, halving_or_ring),
    ("AllReduce", "two-level"): (lambda s: len(s.nodes) * (len(s.nodes[0]) if alike(s) else 1), two_level),
    ("AllReduce", "shared-memory"): (lambda s: len(s.nodes), among_leaders),
}
"""for each pattern: the number of pieces of the vector, and the pieces that a message carries"""


def carried_out(kind: Kind, name: str, s: Setting) -> np.ndarray:
    """Returns the final vectors of all ranks, piece by piece, as shares of the initial vectors of all ranks."""
    number, rule = RULES[kind, name]
    parts = number(s)
    data = np.zeros((s.p, parts, s.p), dtype=int)
    for place in range(s.p):
        own = (place - s.root) % s.p if kind == "AllGather" else slice(None)
        data[place, own, place] = 1
    sent: Counter[tuple[int, int]] = Counter()
    (rounds,) = build(kind, name, s).parts
    for index, one in enumerate(rounds):
        for repetition in range(one.times):
            before = data.copy()
            for source, target, nbytes in zip(one.sources, one.targets, one.nbytes, strict=True):
                pair = int(source), int(target)
                pieces = sorted(rule(Message(s, index, repetition, *pair, sent[pair])))
                assert nbytes == pytest.approx(len(pieces) * NBYTES / parts)
                data[target, pieces] = before[source, pieces] + (data[target, pieces] if one.reduces else 0)
                sent[pair] += 1
    return data


SOME = st.integers(2, 20)


@pytest.mark.parametrize(("kind", "name"), RULES)
@examples(25, 200)
@given(data=st.data())
def test_everybody_ends_with_the_right_result(kind: Kind, name: str, data: st.DataObject) -> None:
    p = data.draw(SOME, label="p")
    root = data.draw(st.integers(0, p - 1), label="root") if kind in ("Broadcast", "Reduce") else 0
    workers_per_node = data.draw(st.integers(1, p), label="per node")
    result = carried_out(kind, name, setting(p, NBYTES, workers_per_node, root))
    match kind:
        case "AllReduce":
            assert (result == 1).all()
        case "Reduce":
            assert (result[root] == 1).all()
        case "Broadcast":
            assert (result == np.eye(p, dtype=int)[root]).all()
        case "AllGather":
            assert (result == np.eye(p, dtype=int)).all()
        case "ReduceScatter":
            assert all((result[place, place] == 1).all() for place in range(p))


@given(SOME)
def test_a_barrier_hears_of_everybody_and_no_sooner(p: int) -> None:
    heard = np.eye(p, dtype=bool)
    (rounds,) = build("Barrier", "dissemination", Setting(p, 0.0, 0, ())).parts
    for messages in rounds:
        assert not heard.all()
        before = heard.copy()
        for source, target in zip(messages.sources, messages.targets, strict=True):
            heard[target] |= before[source]
    assert heard.all()


@given(SOME, st.integers(1, 5), st.sampled_from([1000.0, 1e8]))
def test_two_trees_add_up_the_values_and_hand_them_out(nodes: int, size: int, nbytes: float) -> None:
    p = nodes * size
    chains = [tuple(range(node * size, (node + 1) * size)) for node in range(nodes)]
    trees = two_trees(nodes)
    inner = [{up for up in tree if up >= 0} for tree in trees]
    assert len(inner[0] & inner[1]) <= nodes % 2  # a leaf of one tree is an inner vertex of the other
    for parents in joined(chains):
        assert sum(up < 0 for up in parents) == 1
        its = schedule(parents)
        edges = sorted(
            zip(*(one.tolist() for one in (its.first, its.sources, its.targets)), range(2 * p), strict=False)
        )
        data = np.eye(p, dtype=int)
        for _, source, target, number in edges:
            data[target] = data[source] + (data[target] if number < p - 1 else 0)
        assert (data == 1).all()
        apart = [(one // size, other // size) for _, one, other, _ in edges if one // size != other // size]
        assert len(apart) == 2 * (nodes - 1)  # a chain is left at its head only
    rounds = double_tree([(chains, 0.75), (chains, 0.25)], nbytes)
    moved = sum(float(one.nbytes.sum()) for one in rounds)
    assert moved == pytest.approx(2 * (p - 1) * nbytes)  # each byte goes up and down one of the trees


def test_every_pattern_has_a_rule_or_a_test_of_its_own() -> None:
    assert set(ALL) - set(RULES) == {
        ("AllReduce", "double-tree"),
        ("AllReduce", "ring-channels"),
        ("Barrier", "dissemination"),
    }


# --- collectives that share ports with messages and with each other ---------------------------------------------------


Crossing = tuple[float, float, tuple[str, ...]]
"""a flow beside collectives: its start, its bytes, its ports"""
Beginning = tuple[float, CollectivePlan]


def simulated_s(fabric: Uniform, plans: list[Beginning], crossing: list[Crossing]) -> list[float]:
    """Returns when each collective, and then each flow, is done, on our network."""
    env = simpy.Environment(0.0)
    flows = Flows(env, fabric.capacity)

    def carry(_one: Rank, _other: Rank, nbytes: float, path: Path) -> simpy.Event:
        return flows.begin(path.ports, nbytes, path.limit_bytes_per_s)

    contention = Contention(env, fabric, carry)
    ends = [0.0] * (len(plans) + len(crossing))

    def perform(at: int, begin_s: float, one: CollectivePlan) -> Iterator[simpy.Event]:
        yield env.timeout(begin_s)
        yield contention.start(one)
        ends[at] = env.now

    def cross(at: int, begin_s: float, nbytes: float, ports: tuple[str, ...]) -> Iterator[simpy.Event]:
        yield env.timeout(begin_s)
        moving = flows.begin(ports, nbytes)
        contention.message(moving, ports)
        yield moving
        contention.passed(moving)
        ends[at] = env.now

    for at, (begin_s, one) in enumerate(plans):
        env.process(perform(at, begin_s, one))  # type: ignore[arg-type]
    for at, (begin_s, nbytes, ports) in enumerate(crossing, len(plans)):
        env.process(cross(at, begin_s, nbytes, ports))  # type: ignore[arg-type]
    env.run()
    return ends


def replayed_together_s(fabric: Uniform, plans: list[Beginning], crossing: list[Crossing]) -> list[float]:
    """Returns the same from a simulation message by message, with rates solved from scratch at every change."""
    run = Replay(fabric.capacity)
    players = [Players(run, one.pattern, fabric, [begin_s] * fabric.p) for begin_s, one in plans]
    ends = [0.0] * len(crossing)

    def note(at: int) -> None:
        ends[at] = run.now

    for at, (begin_s, nbytes, ports) in enumerate(crossing):
        run.at(begin_s, lambda at=at, n=nbytes, p=ports: run.flow(p, n, lambda: note(at)))  # type: ignore[misc]
    run.run()
    return [*(max(one.finish_s) for one in players), *ends]


def test_a_flow_that_crosses_a_ring_of_64() -> None:
    """It begins when the ring, of which no message has been simulated so far, is half done."""
    fabric = Uniform(64)
    ring = plan("AllReduce", "ring", fabric, 4e6)
    quiet_s = float(alone_s(ring, fabric).max())
    crossing: list[Crossing] = [(0.45 * quiet_s, 1.5e6, ("up 3", "down 40"))]
    found_s = simulated_s(fabric, [(0.0, ring)], crossing)
    assert found_s == pytest.approx(replayed_together_s(fabric, [(0.0, ring)], crossing), rel=1e-9)
    assert found_s[0] > 1.05 * quiet_s


def test_a_ring_that_begins_beside_a_flow_shares_its_port() -> None:
    fabric = Uniform(8)
    ring = plan("AllReduce", "ring", fabric, 4e6)
    quiet_s = float(alone_s(ring, fabric).max())
    crossing: list[Crossing] = [(0.0, 4e6, ("up 3",))]
    found_s = simulated_s(fabric, [(1e-6, ring)], crossing)
    assert found_s == pytest.approx(replayed_together_s(fabric, [(1e-6, ring)], crossing), rel=1e-9)
    assert found_s[0] > 1.05 * quiet_s


def test_flows_after_the_end_or_elsewhere_disturb_nothing() -> None:
    fabric = Uniform(8)
    tree = plan("Broadcast", "binomial-tree", fabric, 1e6)
    quiet_s = float(alone_s(tree, fabric).max())
    crossing: list[Crossing] = [(0.0, 1e7, ("up 7",)), (2 * quiet_s, 1e7, ("up 0",))]
    assert simulated_s(fabric, [(0.0, tree)], crossing)[0] == pytest.approx(quiet_s, rel=1e-9)


SMALL = [1e3, 1e5]


@examples(25, 240)
@given(data=st.data())
def test_collectives_and_flows_that_share_ports_equal_the_replay(data: st.DataObject) -> None:
    fabric = Uniform(
        data.draw(st.integers(2, 6), label="p"), workers_per_node=data.draw(st.integers(1, 3), label="per node")
    )
    begins = st.sampled_from([0.0, 3e-6, 1.1e-5, 4e-5])
    plans = [
        (data.draw(begins), plan(*data.draw(st.sampled_from(ALL)), fabric, data.draw(st.sampled_from(SMALL))))
        for _ in range(data.draw(st.integers(1, 2), label="collectives"))
    ]
    ports = sorted(fabric.capacity)
    crossing: list[Crossing] = [
        (data.draw(begins), data.draw(st.sampled_from(SMALL)), (data.draw(st.sampled_from(ports)),))
        for _ in range(data.draw(st.integers(0, 2), label="flows"))
    ]
    expected_s = replayed_together_s(fabric, plans, crossing)
    assert simulated_s(fabric, plans, crossing) == pytest.approx(expected_s, rel=1e-9)
