"""Collectives as message patterns: closed forms (O1), an independent replay, and what disturbs a ring."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms.core.values import Rank
from paceline.simulator.collectives.pattern_time import alone_s
from paceline.simulator.collectives.patterns import PATTERNS, Kind, Setting, build
from paceline.simulator.collectives.plans import CollectivePlan
from paceline.simulator.flows.path_tables import Path
from paceline.topologies import closed_forms as forms
from tests.carried_out import simulate_by_events
from tests.replay import Uniform, replayed_s
from tests.thorough import examples

NUMBERS = [2, 3, 4, 6, 8, 12, 16, 48, 64, 100]
POWERS = [2, 4, 8, 16, 64]
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


ALL = [(kind, name) for kind, names in PATTERNS.items() for name in names]


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
