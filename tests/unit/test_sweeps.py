"""Shared cells in virtual time: the values that overlapping accesses read and lose, by hand and for random times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms.core.errors import ProgramError
from paceline.algorithms.core.method import RankContext, Replica
from paceline.algorithms.core.operations import Access, Cancel, Cell, Charge, Lock, Start, Unlock
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.values import Null, Step
from paceline.records.trace import LostUpdates, Schedule, Trace
from paceline.simulator.interpreter.cells import PASSES
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.interpreter.sweeps import BLOCK_BYTES, MOST_BLOCKS, CellMemory
from paceline.simulator.network.network import NoCost
from paceline.testing.contract.programs import ContractProgram
from tests.support import FixedTiming, job_of

CELL = Cell("x")
IN_A_BLOCK = BLOCK_BYTES // 8
TWO_BLOCKS = 2 * IN_A_BLOCK


@dataclass(frozen=True)
class One:
    """An access of two blocks: each block has its time, and an add writes one half of its duration later."""

    start_s: float
    seconds: float
    number: float = 0.0
    action: Literal["read", "add", "swap"] = "add"


def play(accesses: Sequence[One], size: int = TWO_BLOCKS, *, ends_first: bool = True, null: bool = False) -> CellMemory:
    """Returns the cell after these accesses, requested in this order where they begin at the same time."""
    return played(accesses, size, ends_first=ends_first, null=null)[0]


def played(
    accesses: Sequence[One], size: int = TWO_BLOCKS, *, ends_first: bool = True, null: bool = False
) -> tuple[CellMemory, list[Any]]:
    """Returns also what each access read."""

    def vector(number: float) -> Any:
        return Null(size, 8) if null else np.full(size, number)

    memory, found = CellMemory(), dict[int, Any]()
    memory.end(memory.begin(Access(CELL, "swap", vector(0.0)), 0.0, 0.0), 0.0)
    moments = [(one.start_s, ends_first, at, True) for at, one in enumerate(accesses)]
    moments += [
        (one.start_s + one.seconds, not ends_first, at, False) for at, one in enumerate(accesses) if one.seconds
    ]
    sweeps = {}
    for now_s, _, at, begins in sorted(moments):
        one = accesses[at]
        if begins:
            op = Access(CELL, one.action, None if one.action == "read" else vector(one.number))
            sweeps[at] = memory.begin(op, now_s, one.seconds)
        if not begins or not one.seconds:
            found[at] = memory.end(sweeps[at], now_s)
    return memory, [found[at] for at in range(len(accesses))]


def content(memory: CellMemory) -> Any:
    return memory.end(memory.begin(Access(CELL, "read"), 1e9, 0.0), 1e9)


def blocks(memory: CellMemory) -> list[float]:
    """The number in each block; all numbers of a block are the same."""
    whole = content(memory)
    parts = [whole[start : start + IN_A_BLOCK] for start in range(0, len(whole), IN_A_BLOCK)]
    assert all((part == part[0]).all() for part in parts)
    return [float(part[0]) for part in parts]


# --- on paper --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("accesses", "left", "lost"),
    [
        pytest.param([One(0, 2, 1), One(2, 2, 10)], [11, 11], 0, id="one after the other"),
        pytest.param([One(0, 2, 1), One(1, 2, 10)], [11, 11], 0, id="a block behind: reads what was just written"),
        pytest.param([One(0, 2, 1), One(0.5, 2, 10)], [10, 10], 1, id="half a block behind: overwrites all of it"),
        pytest.param([One(0, 2, 1), One(0, 2, 10)], [10, 10], 1, id="at once: the second one asked writes last"),
        pytest.param([One(0, 2, 1), One(0.5, 4, 10)], [10, 11], 0.5, id="a slow one overwrites the first block only"),
        pytest.param([One(0, 4, 1), One(0.5, 1, 10)], [1, 11], 0.5, id="a quick one inside a slow one"),
        pytest.param(
            [One(0, 2, 1), One(0.5, 2, 10), One(1.25, 2, 100)], [101, 101], 1, id="a third brings the first one back"
        ),
        pytest.param([One(0, 2, 1), One(0.25, 2, 10), One(0.5, 2, 100)], [100, 100], 2, id="three: the last one stays"),
        pytest.param([One(0, 2, 1), One(1, 0, 10)], [11, 1], 0.5, id="in no time, as the second block has been read"),
        pytest.param([One(0, 2, 1), One(0.5, 0, 10)], [1, 11], 0.5, id="in no time, as the first block has been read"),
    ],
)
def test_overlapping_adds_lose_what_paper_says(accesses: list[One], left: list[float], lost: float) -> None:
    memory = play(accesses)
    assert (blocks(memory), memory.adds, memory.lost) == (left, len(accesses), lost)


def test_a_read_that_overlaps_an_add_is_torn() -> None:
    """The add writes its blocks at 0.5 and 1; the read comes to them at 0.25 and 1.25."""
    _, (_, torn) = played([One(0, 1, 1), One(0.25, 2, action="read")])
    assert torn.tolist() == [0.0] * IN_A_BLOCK + [1.0] * IN_A_BLOCK


def test_a_swap_goes_block_by_block_and_may_be_overwritten_by_an_add() -> None:
    """The add reads at 0 and 1 and writes at 1 and 2; the swap writes at 0.5 and 1.5, both in the add's windows."""
    memory, (_, before) = played([One(0, 2, 1), One(0.5, 2, 50, "swap")])
    assert blocks(memory) == [1.0, 1.0]
    assert before.tolist() == [0.0] * TWO_BLOCKS
    assert memory.lost == 0  # it was not an add


def test_an_access_alone_answers_the_value_before_in_one_piece() -> None:
    _, found = played([One(0, 2, 1), One(2, 2, 10), One(5, 1, action="read")])
    assert [one.tolist() for one in found] == [[0.0] * TWO_BLOCKS, [1.0] * TWO_BLOCKS, [11.0] * TWO_BLOCKS]


def test_an_add_that_is_given_up_leaves_the_blocks_that_it_had_not_come_to() -> None:
    memory = play([])
    sweep = memory.begin(Access(CELL, "add", np.ones(TWO_BLOCKS)), 1.0, 2.0)
    memory.give_up(sweep, 2.5)
    assert blocks(memory) == [1.0, 0.0]
    assert memory.lost == 0.5


@pytest.mark.parametrize(("size", "moments"), [(1, 1), (IN_A_BLOCK + 1, 2), (1000 * IN_A_BLOCK, MOST_BLOCKS)])
def test_a_small_cell_is_one_block_and_a_large_one_has_no_more_than_it_may(size: int, moments: int) -> None:
    """Two adds at once, the second a little later: with one block fewer, more is lost."""
    blocks = moments
    memory = play([One(0, blocks, 1), One(1, blocks, 1)], size)
    assert memory.lost == 0
    memory = play([One(0, blocks, 1), One(0.99, blocks, 1)], size)
    assert memory.lost == 1


# --- whatever the times ----------------------------------------------------------------------------------------------

QUARTERS = st.integers(0, 24).map(lambda n: n / 4)  # so coarse that moments coincide
ADDS = st.lists(st.builds(One, QUARTERS, st.integers(0, 16).map(lambda n: n / 4)), max_size=10)


@given(accesses=ADDS, ends_first=st.booleans(), size=st.sampled_from([1, IN_A_BLOCK, 3 * IN_A_BLOCK + 1]))
def test_everything_added_is_there_or_counted_as_lost(accesses: list[One], ends_first: bool, size: int) -> None:
    """Each add is a power of two of its own, so a number tells which adds are in it. Exactly, in every block."""
    accesses = [One(one.start_s, one.seconds, 2.0**at) for at, one in enumerate(accesses)]
    memory = play(accesses, size, ends_first=ends_first)
    there = [int(number).bit_count() for number in content(memory)]
    count = 1 if size <= IN_A_BLOCK else 4
    means = [np.mean(there[block * size // count : (block + 1) * size // count]) for block in range(count)]
    assert memory.adds == len(accesses)
    assert memory.lost == len(accesses) - np.mean(means)
    assert play(accesses, size, ends_first=ends_first, null=True).lost == memory.lost


@given(gaps=st.lists(st.tuples(QUARTERS, QUARTERS), max_size=8))
def test_adds_that_do_not_overlap_lose_nothing(gaps: list[tuple[float, float]]) -> None:
    accesses, now_s = [], 0.0
    for wait_s, seconds in gaps:
        accesses.append(One(now_s + wait_s, seconds, 1.0))
        now_s = accesses[-1].start_s + seconds
    memory = play(accesses)
    assert blocks(memory) == [float(len(gaps))] * 2
    assert memory.lost == 0


@given(accesses=ADDS, reads=ADDS)
def test_the_order_of_ends_and_beginnings_at_one_moment_makes_no_difference(
    accesses: list[One], reads: list[One]
) -> None:
    """An interpreter may report them in either order; only the order of requests counts."""
    everything = [One(one.start_s, one.seconds, 2.0**at) for at, one in enumerate(accesses)]
    everything += [One(one.start_s, one.seconds, action="read") for one in reads]
    (one, found), (other, seen) = (played(everything, ends_first=first) for first in (True, False))
    assert (content(one) == content(other)).all()
    assert all((here == there).all() for here, there in zip(found, seen, strict=True))


# --- in programs -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Adding(ContractProgram):
    """Rank r adds 10^r after 2 seconds and r quarters, the first one fills the cell till then; all read much later."""

    lock: bool = False

    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[Any]:
        if me.rank == me.node.ranks[0]:
            yield from Access(CELL, "swap", np.zeros(TWO_BLOCKS))
        else:
            yield from wait(8 + me.rank)
        if self.lock:
            yield from Lock(CELL)
        yield from Access(CELL, "add", np.full(TWO_BLOCKS, 10.0**me.rank))
        if self.lock:
            yield from Unlock(CELL)
        yield from wait(40)
        return (yield from Access(CELL, "read"))


@program
def wait(quarters: int) -> Program[None]:
    """Waits for so many quarters of a second."""
    for _ in range(quarters):
        yield from Charge("wait", 0)


def simulated(method: ContractProgram, nodes: list[list[int]]) -> Trace:
    """An add takes 2 seconds, a second a block."""
    timing = FixedTiming(work=0.25, access=lambda _, nbytes: 2.0 * nbytes / (PASSES["add"] * 8 * TWO_BLOCKS))
    return simulate_job(job_of(method, nodes=nodes, steps=1), timing, NoCost(), Schedule(every=1))


@pytest.mark.parametrize(("lock", "left", "lost"), [(False, 100.0, 2 / 3), (True, 111.0, 0.0)])
def test_programs_lose_updates_without_a_lock_and_none_with_it(lock: bool, left: float, lost: float) -> None:
    """Three ranks a quarter of a second apart, a second a block: each overwrites the one before."""
    trace = simulated(Adding(lock=lock), [[0, 1, 2]])
    assert trace.lost_updates == LostUpdates(adds=3, lost_share=lost)
    for state in trace.states.values():
        assert state.optimizer_state.tolist() == [left] * TWO_BLOCKS


def test_nodes_share_nothing() -> None:
    trace = simulated(Adding(), [[0], [1]])
    assert trace.lost_updates == LostUpdates(adds=2, lost_share=0.0)


def test_an_access_that_takes_time_leaves_a_span() -> None:
    spans = [span for span in simulated(Adding(), [[0, 1]]).spans if span.end_s - span.start_s == 2.0]  # a read takes 1
    assert [(span.rank, span.activity, span.start_s, span.bytes) for span in spans] == [
        (0, "update", 0.0, 0),
        (0, "update", 2.0, 0),
        (1, "update", 2.25, 0),
    ]


@dataclass(frozen=True, kw_only=True)
class GivenUp(ContractProgram):
    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[Any]:
        yield from Access(CELL, "swap", np.zeros(TWO_BLOCKS))
        adding = yield from Start(Access(CELL, "add", np.ones(TWO_BLOCKS)))
        yield from wait(6)
        assert (yield from Cancel(adding))
        return (yield from Access(CELL, "read"))


def test_a_cancelled_add_has_added_the_blocks_that_it_came_to() -> None:
    """After one and a half of its two seconds the first block is written."""
    (state,) = simulated(GivenUp(), [[0]]).states.values()
    assert state.optimizer_state.tolist() == [1.0] * IN_A_BLOCK + [0.0] * IN_A_BLOCK


@dataclass(frozen=True, kw_only=True)
class Growing(ContractProgram):
    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[None]:
        yield from Access(CELL, "swap", np.zeros(2))
        yield from Access(CELL, "add", np.zeros(3))


def test_a_cell_keeps_its_size() -> None:
    with pytest.raises(ProgramError, match="gives cell 'x' 24 bytes; it has 16 and keeps its size"):
        simulated(Growing(), [[0]])
