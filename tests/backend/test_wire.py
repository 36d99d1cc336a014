"""Messages as bytes, and their transport."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from paceline.algorithms.core.method import RankContext, Replica
from paceline.algorithms.core.operations import Receive, Send
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.values import Contribution, GradientResult, Null, Rank, Step, Weights
from paceline.backend.transports import messages
from paceline.backend.transports.collectives import tensor_of
from paceline.testing.contract.programs import ContractProgram, vector
from tests.backend.jobs import run_for_real
from tests.support import job_of

DTYPES = (np.float64, np.float32, np.float16, np.int64, np.int32, np.uint8)


def arrays() -> st.SearchStrategy[Any]:
    """Vectors and matrices of several data types, also empty ones and ones with NaN and −0."""
    return st.one_of(*(hnp.arrays(dtype, hnp.array_shapes(max_dims=2, min_side=0, max_side=9)) for dtype in DTYPES))


def values() -> st.SearchStrategy[Any]:
    plain = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=9))
    leaves = st.one_of(
        plain,
        arrays(),
        arrays().map(torch.from_numpy),
        st.builds(Null, st.integers(0, 10**4), st.sampled_from([1, 2, 4])),
    )
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.tuples(inner, inner),
            st.dictionaries(st.text(max_size=5), inner, max_size=3),
            st.builds(Weights, inner, st.integers(0, 99)),
        ),
        max_leaves=6,
    )


def same(one: Any, other: Any) -> bool:
    """Equal in value and kind, bit for bit."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        return same(one.numpy(), other.numpy())
    if isinstance(one, np.ndarray):
        return bool(one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes())
    if isinstance(one, Weights):
        return one.version == other.version and same(one.vector, other.vector)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return bool(one == other)


@given(message=values(), slack=st.integers(0, 40))
def test_a_message_comes_back_equal_from_a_buffer_that_may_be_longer(message: Any, slack: int) -> None:
    data = messages.encode(message).numpy()
    assert same(messages.decode(np.concatenate([data, np.full(slack, 255, np.uint8)])), message)


@given(message=values(), capacity=st.integers(1, 200))
def test_chunks_fit_and_make_up_the_message(message: Any, capacity: int) -> None:
    """Each arrives in a buffer of that capacity; behind the last one are the bytes of earlier ones."""
    chunks = [chunk.numpy() for chunk in messages.chunks(messages.encode(message), capacity)]
    assert all(0 < len(chunk) <= capacity for chunk in chunks)
    assembly = messages.Assembly()
    for number, chunk in enumerate(chunks, 1):
        assert not assembly.whole, f"whole after {number - 1} of {len(chunks)}"
        assembly.take(np.concatenate([chunk, np.full(capacity - len(chunk), 255, np.uint8)]))
    assert assembly.whole and same(assembly.value, message)


@pytest.mark.parametrize("make", [lambda: np.arange(4.0), lambda: torch.arange(4.0)])
def test_a_message_is_the_value_of_the_moment_and_its_own(make: Any) -> None:
    """The vector of the sender does not remain in memory, and two reads do not share one."""
    value = make()
    data = messages.encode(value).numpy()
    value[0] = 7.0
    first, second = messages.decode(data), messages.decode(data)
    first[1] = 9.0
    assert second.tolist() == [0.0, 1.0, 2.0, 3.0]


def test_views_and_strides_are_sent_as_what_they_show() -> None:
    grid = np.arange(12.0).reshape(3, 4)
    sent = (grid[:, 1], grid.T, torch.from_numpy(grid)[:, ::2], torch.ones(3, requires_grad=True) * 2)
    column, turned, every_other, grown = messages.decode(messages.encode(sent).numpy())
    np.testing.assert_array_equal(column, grid[:, 1])
    np.testing.assert_array_equal(turned, grid.T)
    np.testing.assert_array_equal(every_other.numpy(), grid[:, ::2])
    assert grown.tolist() == [2.0, 2.0, 2.0] and not grown.requires_grad


def test_what_programs_send_keeps_its_fields() -> None:
    origin = GradientResult(torch.ones(3), 4, 0.5, 32, Rank(2), 9, 0.01).contribution()
    assert messages.decode(messages.encode(origin).numpy()) == Contribution(Rank(2), 9, 4, 32)


# --- through the transport -------------------------------------------------------------------------------------------

SIZES = (1, 600, 3, 100_000, 0, 4_000, 512, 1)
"""elements; the receive buffers hold about 520 float64 of this job, so some go in one piece and some in two hundred"""


@dataclass(frozen=True, kw_only=True)
class Bulky(ContractProgram):
    """All ranks send rank 0 messages of all sizes at the same time; each must arrive complete and in the order sent."""

    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[Any]:
        if me.rank != 0:
            for number, size in enumerate(SIZES):
                yield from Send(Rank(0), (number, np.arange(size) * 1.0 + me.rank))
            return None
        heard: dict[int, list[tuple[int, int, bool]]] = {}
        for _ in range(len(SIZES) * (len(me.workers) - 1)):
            message = yield from Receive()
            number, numbers = message.value
            whole = bool((numbers == np.arange(len(numbers)) + message.source).all())
            heard.setdefault(int(message.source), []).append((number, len(numbers), whole))
        return heard


@pytest.mark.backend
def test_messages_larger_than_the_buffers_arrive_whole_and_in_order() -> None:
    trace = run_for_real(job_of(Bulky(), 3, steps=1))
    in_order = [(number, size, True) for number, size in enumerate(SIZES)]
    assert trace.states[Rank(0)].optimizer_state == {1: in_order, 2: in_order}


@dataclass(frozen=True, kw_only=True)
class ToItself(ContractProgram):
    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[Any]:
        value = vector(1.0, 2.0)
        yield from Send(me.rank, value)
        value[0] = 5.0
        return (yield from Receive(me.rank)).value.tolist()


@pytest.mark.backend
def test_a_rank_may_send_to_itself() -> None:
    assert run_for_real(job_of(ToItself(), 1, steps=1)).states[Rank(0)].optimizer_state == [1.0, 2.0]


def test_a_null_vector_travels_in_its_full_size() -> None:
    vector = Null(1000)
    data = messages.encode(vector)
    assert len(data) >= vector.nbytes
    assert messages.decode(data.numpy()) == vector


@pytest.mark.parametrize("item_bytes", [1, 2, 4, 8])
def test_a_null_vector_takes_part_in_collectives_in_its_full_size(item_bytes: int) -> None:
    vector = Null(1000, item_bytes)
    tensor, back = tensor_of(vector)
    assert tensor.nbytes == vector.nbytes
    assert back(tensor) == vector
