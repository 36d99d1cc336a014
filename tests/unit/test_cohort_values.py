"""Values that vary over the ranks of a class, and the division of classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from paceline.algorithms.core.values import Group
from paceline.simulator.cohort.classes import divided
from paceline.simulator.cohort.values import Diverges, NotACohort, Ranks, Stacked, Varying, VaryingRanks, ranks_of, vary

RANK: Any = Varying(np.arange(6))


def test_arithmetic_is_that_of_each_rank() -> None:
    computations: list[Callable[[Any], Any]] = [
        lambda r: 3 * r + 1,
        lambda r: (r - 7) // 2,
        lambda r: -r % 4,
        lambda r: (r + 1) / 3,
        lambda r: 7 - r,
    ]
    for compute in computations:
        assert compute(RANK).values.tolist() == [compute(rank) for rank in range(6)]
    assert (5 + (RANK < 2)).values.tolist() == [6, 6, 5, 5, 5, 5]


def test_equal_numbers_are_plain() -> None:
    assert RANK - RANK == 0
    assert (RANK >= 0) is True
    assert type(RANK * 0) is int


@pytest.mark.parametrize("use", [bool, int, hash, str, float, lambda r: [0] * r, lambda r: min(r, 3)])
def test_a_use_that_depends_on_the_rank_divides_the_class(use: Any) -> None:
    with pytest.raises(Diverges) as raised:
        use(RANK)
    assert 0 < raised.value.mask.sum() < 6


def test_divisions_and_products_as_in_python() -> None:
    with pytest.raises(Diverges):
        _ = 7 // RANK  # only rank 0 fails
    with pytest.raises(NotACohort, match="64 bits"):
        _ = RANK * 2**61


def test_ranks_of_nodes() -> None:
    node: Any = ranks_of([(0, 1, 2), (3, 4, 5)], np.array([0, 0, 0, 1, 1, 1]))
    assert type(node) is VaryingRanks
    make: Any = Group
    group = make(node)
    assert node[0].values.tolist() == [0, 0, 0, 3, 3, 3]
    assert node.index(RANK).values.tolist() == [0, 1, 2, 0, 1, 2]
    assert len(group) == 3
    assert RANK in group
    with pytest.raises(TypeError):
        hash(group)
    with pytest.raises(Diverges):
        len(ranks_of([(0,), (1, 2)], np.array([0, 1, 1])))


def test_slices_of_all_ranks() -> None:
    everyone: Any = Ranks(range(6))
    first = everyone.index(RANK) // 3 * 3
    assert everyone[first : first + 3].parts == ((0, 1, 2), (3, 4, 5))
    assert everyone[RANK // 6 :] == tuple(range(6))


def test_classes_are_divided_by_the_mask() -> None:
    classes = divided([np.arange(3), np.arange(3, 6)], Diverges(np.array([False, True, False]), 1))
    assert [ranks.tolist() for ranks in classes] == [[0, 1, 2], [4], [3, 5]]


def test_stacked_vectors_have_the_bits_of_single_ones() -> None:
    rows = np.random.default_rng(1).standard_normal((4, 5))
    vector, factor = rows[0], vary(np.array([0.1, 0.2, 0.3, 0.4]))
    found = vector - factor * Stacked(rows)
    expected = np.stack([vector - own * row for own, row in zip((0.1, 0.2, 0.3, 0.4), rows, strict=True)])
    assert found.values.tobytes() == expected.tobytes()
    assert Stacked(rows).norm().values.tolist() == [float(np.linalg.norm(row)) for row in rows]
