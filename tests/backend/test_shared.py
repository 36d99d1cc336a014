"""Collectives inside a node: in shared memory they give the results of gloo, and those of the simulation."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, Literal

import numpy as np
import pytest
import torch

from paceline.algorithms import find
from paceline.algorithms.core.errors import DeadlockError, PeerFailed, ProgramError
from paceline.algorithms.core.job import Job
from paceline.algorithms.core.method import RankContext, Replica
from paceline.algorithms.core.operations import (
    AllGather,
    AllReduce,
    Barrier,
    Broadcast,
    NextStep,
    Receive,
    Reduce,
    Send,
    Start,
    Wait,
    WaitFor,
)
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.values import Group, Null, Rank, Step
from paceline.backend.local.launch import Launch, RankFailed, run_job
from paceline.backend.transports.collectives import TorchCollectives
from paceline.backend.transports.shared_collectives import MemoryChannel
from paceline.backend.transports.shared_segment import CHANNELS
from paceline.records.trace import Schedule, Trace
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.network.network import NoCost
from paceline.testing.contract.programs import ContractProgram, answers, number, vector
from paceline.topologies.catalogue import host_memory
from paceline.topologies.catalogue.host_memory import PIECE_BYTES
from paceline.workloads import build
from tests.backend.jobs import NEVER_S, no_children, plain, run_for_real
from tests.backend.test_failures import LONG, Killer
from tests.support import ONE_NODE, TWO_BY_TWO, UNLIKE, FixedTiming, job_of
from tests.thorough import sampled

pytestmark = pytest.mark.backend

THREE = [[0, 1, 2]]
Run = Callable[[Job], Trace]


def real(job: Job, *, shared_memory: bool = True) -> Trace:
    """An interpreter for the contract cases."""
    schedule = Schedule(every=1)
    return run_job(
        Launch(
            job=job,
            schedule=lambda: schedule,
            deadlock_timeout_s=2.0,
            timeout_s=NEVER_S,
            shared_memory=shared_memory,
        )
    )


def by_sockets(job: Job) -> Trace:
    return real(job, shared_memory=False)


@pytest.fixture
def no_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails a run in which a collective uses gloo; ranks are forked, and so inherit this."""

    def refuse(*_: Any) -> None:
        raise AssertionError("a collective went by gloo")

    monkeypatch.setattr(TorchCollectives, "issue", refuse)


KINDS = ["float64", "float32", "float16", "torch.float64", "torch.float32", "torch.float16", "torch.bfloat16"]


def numbers_of(kind: str, rank: int, size: int) -> Any:
    """Returns numbers of all magnitudes, so that another order of addition gives another sum."""
    drawn = np.random.default_rng(rank).standard_normal(size) * 10.0 ** (np.arange(size) % 4)
    if kind.startswith("torch."):
        return torch.from_numpy(drawn).to(getattr(torch, kind.removeprefix("torch.")))
    return drawn.astype(kind)


@dataclass(frozen=True, kw_only=True)
class Everything(ContractProgram):
    """Every kind of collective, on one vector each."""

    kind: str
    size: int

    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[dict[str, Any]]:
        mine, all_, root = numbers_of(self.kind, me.rank, self.size), me.node, me.node.ranks[-1]
        before = bytes_of(mine)
        found: dict[str, Any] = {"sum": (yield from AllReduce(value=mine, group=all_, key="sum", op="sum"))}
        found["mean"] = yield from AllReduce(value=mine, group=all_, key="mean")
        found["at root"] = yield from Reduce(value=mine, group=all_, root=root, key="at root")
        found["mean at root"] = yield from Reduce(value=mine, group=all_, root=root, key="mean at root", op="mean")
        found["roots"] = yield from Broadcast(value=mine, group=all_, root=root, key="roots")
        parts = yield from AllGather(value=mine, group=all_, key="all")
        found |= {f"of {rank}": part for rank, part in zip(all_, parts, strict=True)}
        yield from Barrier(group=all_, key="end")
        assert bytes_of(mine) == before, "an operation must not change what it is given"
        return {name: (str(type(value)), bytes_of(value)) for name, value in found.items()}


def bytes_of(value: Any) -> bytes | None:
    if value is None or len(value) == 0:
        return None if value is None else b""
    return (value.view(torch.uint8).numpy() if isinstance(value, torch.Tensor) else value).tobytes()


def expected(kind: str, size: int, rank: int, ranks: int) -> dict[str, Any]:
    """Returns the simulator's results: sums in rank order."""
    values = [numbers_of(kind, one, size) for one in range(ranks)]
    total, last = reduce(add, values), ranks - 1
    found = {"sum": total, "mean": total / ranks, "at root": None, "mean at root": None, "roots": values[last]}
    if rank == last:
        found |= {"at root": total, "mean at root": total / ranks}
    found |= {f"of {one}": value for one, value in enumerate(values)}
    return {name: (str(type(value)), bytes_of(value)) for name, value in found.items()}


EDGES = [("torch.bfloat16", 0), ("float32", 1), ("float16", 1000), ("torch.float64", PIECE_BYTES // 4 + 1)]
SIZES = [0, 1, 1000, PIECE_BYTES // 4 + 1]
"""elements; of float32 the last is a piece and one more, of float64 two pieces and one more"""


@pytest.mark.usefixtures("no_sockets")
@pytest.mark.parametrize(
    ("kind", "size"),
    sampled([(kind, size) for size in SIZES for kind in KINDS], EDGES),
)
def test_every_collective_answers_bit_for_bit_what_the_simulator_does(kind: str, size: int) -> None:
    for rank, found in enumerate(answers(real, Everything(kind=kind, size=size), nodes=THREE)):
        assert found == expected(kind, size, rank, 3)


@pytest.mark.usefixtures("no_sockets")
@pytest.mark.parametrize(("kind", "size"), [("float64", 1), ("torch.float32", SIZES[-1])])
def test_a_sum_that_members_share_has_the_same_bits(monkeypatch: pytest.MonkeyPatch, kind: str, size: int) -> None:
    """Also with fewer numbers than members, where some have nothing to add."""
    monkeypatch.setattr(host_memory, "SHARERS", 3)
    monkeypatch.setattr(host_memory, "MUCH_BYTES", 0)
    for rank, found in enumerate(answers(real, Everything(kind=kind, size=size), nodes=THREE)):
        assert found == expected(kind, size, rank, 3)


@dataclass(frozen=True, kw_only=True)
class Mean(ContractProgram):
    """One mean over all ranks."""

    size: int

    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[float]:
        value = torch.full((self.size,), float(me.rank))
        mean: Any = yield from AllReduce(value=value, group=me.node, key="mean")
        return float(mean[-1])


@pytest.mark.usefixtures("no_sockets")
@pytest.mark.parametrize(("less", "way"), [(0, "_add_shares"), (1, "_add_all")])
def test_members_share_a_sum_from_so_much_on(monkeypatch: pytest.MonkeyPatch, less: int, way: str) -> None:
    ranks = list(range(host_memory.SHARERS))
    case = Mean(size=host_memory.MUCH_BYTES // (4 * len(ranks)) - less)

    def not_this_way(*_: Any, **__: Any) -> None:
        raise ProgramError("not this way")

    assert answers(real, case, nodes=[ranks]) == [sum(ranks) / len(ranks)] * len(ranks)
    monkeypatch.setattr(MemoryChannel, way, not_this_way)
    with pytest.raises(ProgramError, match="not this way"):
        answers(real, case, nodes=[ranks])


@pytest.mark.parametrize("ranks", sampled([2, 3], [3]))
def test_gloo_answers_the_same(ranks: int) -> None:
    """Two numbers have one sum; with three, gloo's may be rounded in another order."""
    case, nodes = Everything(kind="float64", size=1000), [list(range(ranks))]
    memory, gloo = answers(real, case, nodes=nodes), answers(by_sockets, case, nodes=nodes)
    for mine, theirs in zip(memory, gloo, strict=True):
        assert mine.keys() == theirs.keys()
        for name in mine:
            assert mine[name][0] == theirs[name][0]
            found, expected = (np.frombuffer(one[name][1] or b"") for one in (mine, theirs))
            np.testing.assert_allclose(found, expected, rtol=0 if ranks == 2 else 1e-12)


@dataclass(frozen=True, kw_only=True)
class Sizes(ContractProgram):
    """Vectors without numbers."""

    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[list[Any]]:
        mine = Null(PIECE_BYTES // 4 + 3)
        found: list[Any] = [(yield from AllReduce(value=mine, group=me.node, key="mean"))]
        found.append((yield from Reduce(value=mine, group=me.node, root=Rank(0), key="sum")))
        found.append((yield from Broadcast(value=mine, group=me.node, root=Rank(1), key="root")))
        found += yield from AllGather(value=mine, group=me.node, key="all")
        return found


@pytest.mark.usefixtures("no_sockets")
def test_vectors_without_numbers_pass_too() -> None:
    mine = Null(PIECE_BYTES // 4 + 3)
    assert answers(real, Sizes(), nodes=[[0, 1]]) == [[mine] * 5, [mine, None, mine, mine, mine]]


# --- groups, streams and what is started ------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Pairs(ContractProgram):
    """Parts of a node run collectives of their own, in an order that is not that of ranks."""

    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[tuple[float, float, float]]:
        first = me.rank // 2 * 2
        pair = Group((Rank(first + 1), Rank(first)))
        alone = yield from AllReduce(value=vector(me.rank), group=Group((me.rank,)), key="alone")
        value: Any = vector(me.rank)
        for turn in range(1 + first):
            value = yield from AllReduce(value=value, group=pair, key=f"pair {turn}", op="sum")
        everyone = yield from AllReduce(value=value, group=me.workers, key="all", op="sum")
        return number(alone), number(value), number(everyone)


@pytest.mark.usefixtures("no_sockets")
def test_parts_of_a_node_meet_each_for_itself() -> None:
    assert answers(real, Pairs(), nodes=ONE_NODE) == [(0, 1, 42), (1, 1, 42), (2, 20, 42), (3, 20, 42)]


@dataclass(frozen=True, kw_only=True)
class Mixed(ContractProgram):
    """Ranks start or call the collectives that others call or start, and wait in different orders."""

    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[list[float]]:
        handles, found = {}, {}
        for turn in range(12):
            op = AllReduce(value=vector(turn + me.rank), group=me.node, key=str(turn), op="sum")
            if (turn + me.rank) % 3:
                handles[turn] = yield from Start(op)
            else:
                found[turn] = yield from op
        for turn in sorted(handles, reverse=me.rank == 1):
            found[turn] = yield from Wait(handles[turn])
        again = yield from WaitFor(list(handles.values()), "any")
        assert again[0][1] is found[min(handles)]
        return [number(found[turn]) for turn in range(12)]


@pytest.mark.usefixtures("no_sockets")
def test_some_start_what_others_call() -> None:
    assert answers(real, Mixed(), nodes=THREE) == [[3.0 * turn + 3 for turn in range(12)]] * 3


@dataclass(frozen=True, kw_only=True)
class FarAhead(ContractProgram):
    """Rank 0 starts a hundred before the other begins with any, the first larger than a piece."""

    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[bool]:
        if me.rank == 1:
            yield from Receive(Rank(0))
        handles = []
        for turn in range(100):
            part = np.full(1000 if turn else PIECE_BYTES // 4 + 1, turn, dtype=np.float32)
            handles.append((yield from Start(AllReduce(value=part, group=me.node, key=str(turn), op="sum"))))
        if me.rank == 0:
            yield from Send(Rank(1), "begin")
        means = yield from WaitFor(handles)
        return all(bool((plain(mean) == 2 * turn).all()) for turn, mean in means)


@pytest.mark.usefixtures("no_sockets")
def test_a_start_does_not_wait() -> None:
    assert answers(real, FarAhead(), nodes=[[0, 1]]) == [True, True]


@program
def in_turn(me: RankContext, lane: int) -> Program[float]:
    """A sub-program with its own collectives, one of them started and not waited for."""
    yield from Start(Barrier(group=me.node, key=f"left {lane}"))
    total = yield from AllReduce(value=vector(lane), group=me.node, key=f"lane {lane}", op="sum")
    return number(total)


@dataclass(frozen=True, kw_only=True)
class Lanes(ContractProgram):
    """More sub-programs than channels: a limited number at a time, and repeated."""

    at_once: int

    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[list[float]]:
        found: list[float] = []
        for turn in range(3 * CHANNELS // self.at_once):
            lanes = []
            for lane in range(self.at_once):
                lanes.append((yield from Start(in_turn(me, turn * self.at_once + lane))))
            found += [value for _, value in (yield from WaitFor(lanes))]
        return found


@pytest.mark.usefixtures("no_sockets")
def test_channels_are_given_back() -> None:
    """One after the other, all of them get a channel."""
    assert answers(real, Lanes(at_once=2), nodes=[[0, 1]]) == [[2.0 * lane for lane in range(3 * CHANNELS)]] * 2


def test_streams_that_find_no_channel_go_by_gloo() -> None:
    assert (
        answers(real, Lanes(at_once=3 * CHANNELS), nodes=[[0, 1]]) == [[2.0 * lane for lane in range(3 * CHANNELS)]] * 2
    )


# --- methods ----------------------------------------------------------------------------------------------------------


def simulated(job: Job) -> Trace:
    return simulate_job(job, FixedTiming(), NoCost(), Schedule(every=5))


@pytest.mark.parametrize("nodes", sampled([ONE_NODE, TWO_BY_TWO, [[0], [1, 2, 3]], UNLIKE], [TWO_BY_TWO]), ids=str)
@pytest.mark.parametrize("precision", sampled(["float32", "float64"], ["float32"]))
def test_hsgd_for_real_is_hsgd_simulated(
    nodes: Sequence[Sequence[int]], precision: Literal["float32", "float64"]
) -> None:
    """Bit for bit with up to two leaders: gloo adds the vectors of three in another order."""
    learner = build("digits-mlp", dataset="digits", learning="train", seed=3, dtype=precision)
    job = job_of(find("hsgd")(), nodes=nodes, steps=12, learner=learner)
    found, expected = (plain(run(job).weights) for run in (real, simulated))
    assert np.abs(expected - plain(learner.initial())).max() > 0.01 * np.abs(expected).max(), "nothing was learned"
    if len(nodes) < 3:
        np.testing.assert_array_equal(found, expected)
    else:  # a rounding of each step's sum, as in test_differential
        tolerance = 12 * float(np.finfo(precision).eps)
        np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * np.abs(expected).max())


@dataclass(frozen=True, kw_only=True)
class BothSums(ContractProgram):
    """The sum of all ranks in two levels, as in HSGD, and the flat one."""

    whole: bool
    """numbers whose sums are exact, whatever the order"""

    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[tuple[Any, Any]]:
        mine = numbers_of("float32", me.rank, 5000)
        mine = np.round(mine) if self.whole else mine
        two = yield from find("hsgd")().mean(me, mine, 0)  # type: ignore[attr-defined]
        flat = yield from AllReduce(value=mine, group=me.workers, key="flat")
        return two, flat


@pytest.mark.parametrize("nodes", sampled([ONE_NODE, TWO_BY_TWO, UNLIKE], [ONE_NODE, UNLIKE]), ids=str)
def test_two_levels_sum_up_to_the_flat_sum(nodes: Sequence[Sequence[int]]) -> None:
    """Whole numbers bit for bit; others within the roundings of that many additions, of the largest partial sum."""
    for two, flat in answers(real, BothSums(whole=True), nodes=[*map(list, nodes)]):
        np.testing.assert_array_equal(two, flat)
    ranks = sum(map(len, nodes))
    largest = sum(np.abs(numbers_of("float32", rank, 5000)) for rank in range(ranks)) / ranks
    for two, flat in answers(real, BothSums(whole=False), nodes=[*map(list, nodes)]):
        assert (np.abs(two - flat) <= 2 * ranks * np.finfo(np.float32).eps * largest).all()


# --- what goes wrong --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class DiesInside(ContractProgram):
    """Rank 1 dies while the others wait for it in a collective: called, started, or begun by all."""

    how: str

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        yield from NextStep(state)
        mine = np.zeros(8 * PIECE_BYTES, dtype=np.uint8)
        if me.rank == 1 and self.how != "halfway":
            time.sleep(0.2)
            os.kill(os.getpid(), signal.SIGKILL)
        if me.rank == 1:
            signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
            signal.setitimer(signal.ITIMER_REAL, 0.2)
        try:
            if self.how == "started":
                yield from Wait((yield from Start(AllReduce(value=mine, group=me.node, key="last"))))
            while True:
                yield from AllReduce(value=mine, group=me.node, key="last", op="sum")
        except PeerFailed as failure:
            return Replica(1, state.weights, str(failure))

    def body(self, me: RankContext, step: Step, state: Replica) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize("how", ["called", "started", "halfway"])
def test_a_rank_killed_in_a_collective_is_named_to_the_others(how: str) -> None:
    with pytest.raises(RankFailed, match=r"rank 1 \(worker\) died at step 0: killed by SIGKILL") as caught:
        real(job_of(DiesInside(how=how), nodes=THREE, steps=1))
    assert caught.value.trace is not None
    for rank in (0, 2):
        assert caught.value.trace.states[Rank(rank)].optimizer_state == "rank 1 died"
    assert no_children()


@pytest.mark.parametrize(
    "name", sampled(["sync-sgd", "hsgd", "sync-easgd3", "layerwise-sgd", "agd"], ["sync-sgd", "layerwise-sgd"])
)
def test_a_killed_rank_ends_a_run_on_one_node(name: str) -> None:
    killer = Killer(2, signal.SIGKILL, after_s=0.5)
    with pytest.raises(RankFailed, match=r"rank 2 \(worker\) died at step \d+: killed by SIGKILL"):
        run_for_real(job_of(find(name)(), nodes=ONE_NODE, steps=LONG), progress=killer)
    assert no_children()


@dataclass(frozen=True, kw_only=True)
class Stuck(ContractProgram):
    """Rank 0 misses a collective because it waits for a message that is never sent."""

    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[None]:
        if me.rank == 0:
            yield from Receive(Rank(1))
        elif me.rank == 1:
            yield from Wait((yield from Start(Barrier(group=me.node, key="stuck"))))
        yield from Barrier(group=me.node, key="stuck")


def test_a_deadlock_in_memory_is_told() -> None:
    with pytest.raises(DeadlockError) as caught:
        run_for_real(job_of(Stuck(), nodes=THREE, steps=1), deadlock_timeout_s=2.0)
    assert len(re.findall(r"rank [12] .* waits .*Barrier 'stuck' over ranks 0,1,2", str(caught.value))) == 2


@dataclass(frozen=True, kw_only=True)
class Lengths(ContractProgram):
    """Members gather vectors of different sizes, which the names do not show."""

    kind: str
    size: int

    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[None]:
        mine = np.zeros(3) if me.rank else np.zeros(self.size, dtype=self.kind)
        yield from AllGather(value=mine, group=me.node, key="all")


@pytest.mark.parametrize(("kind", "size"), [("float64", 4), ("float32", 3)])
def test_unlike_values_are_told_from_each_other(kind: str, size: int) -> None:
    found = rf"{size} numbers of {kind}"
    with pytest.raises(ProgramError, match=rf"{found}, where .* 3 numbers of float64|3 numbers of float64.*{found}"):
        run_for_real(job_of(Lengths(kind=kind, size=size), nodes=[[0, 1]], steps=1))


@dataclass(frozen=True, kw_only=True)
class GivesAway(ContractProgram):
    """Whether the result is in the memory of the input; it is if the program does not use the input again."""

    spent: bool

    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[Any]:
        value: Any = torch.full((PIECE_BYTES // 4 + 7,), 1.0 + me.rank)
        handle = yield from Start(AllReduce(value=value, group=me.workers, key="a", donate=self.spent))
        total: Any = yield from Wait(handle)
        return total.data_ptr() == value.data_ptr(), total[[0, -1]].tolist(), value[[0, -1]].tolist()


@pytest.mark.parametrize("interpreter", [real, by_sockets])
@pytest.mark.parametrize("spent", [False, True])
def test_the_sum_lies_where_a_spent_value_lay_and_nowhere_else(interpreter: Run, spent: bool) -> None:
    for rank, (same, total, value) in enumerate(answers(interpreter, GivesAway(spent=spent), nodes=[[0, 1]])):
        assert same == spent
        assert total == [1.5, 1.5]
        assert value == (total if spent else [1.0 + rank] * 2)
