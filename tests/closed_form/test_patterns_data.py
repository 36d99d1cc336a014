"""The data that patterns move: the right bytes of the right pieces, so that all ranks end with the right result.

A pattern lists the sender, receiver and size of each message. Here each pattern gets the rule of its algorithm by which
a message carries pieces of the vector; sizes must agree with the pieces, and the resulting vectors must be right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from tests.thorough import examples

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
    mine = place // 2 if place < 2 * beyond else place - beyond
    return {piece for piece in range(m.power) if (piece ^ mine) % 2**bits == 0}


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
        mine = (place - s.root) % s.p if kind == "AllGather" else slice(None)
        data[place, mine, place] = 1
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
    nodes = tuple(tuple(range(first, min(first + workers_per_node, p))) for first in range(0, p, workers_per_node))
    result = carried_out(kind, name, Setting(p, NBYTES, root, nodes))
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
def test_a_barrier_hears_of_everybody(p: int) -> None:
    heard = np.eye(p, dtype=bool)
    (rounds,) = build("Barrier", "dissemination", Setting(p, 0.0, 0, ())).parts
    for one in rounds:
        before = heard.copy()
        for source, target in zip(one.sources, one.targets, strict=True):
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
    names = {(kind, name) for kind, several in PATTERNS.items() for name in several}
    assert names - set(RULES) == {
        ("AllReduce", "double-tree"),
        ("AllReduce", "ring-channels"),
        ("Barrier", "dissemination"),
    }
