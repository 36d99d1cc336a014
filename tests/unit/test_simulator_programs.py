"""Operations in virtual time: when each is answered, what is cancelled, and which ranks wait for each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from paceline.algorithms.core.errors import DeadlockError, ProgramError, TimedOut
from paceline.algorithms.core.method import RankContext, Replica
from paceline.algorithms.core.operations import (
    OPERATIONS,
    Access,
    AllReduce,
    Barrier,
    Cancel,
    Cell,
    Charge,
    Gradient,
    LayerGradients,
    Load,
    Lock,
    Now,
    Op,
    Receive,
    Send,
    Start,
    Unlock,
    Wait,
    WaitFor,
)
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.values import Batch, Rank, Samples, Weights
from paceline.algorithms.methods.baseline import SyncSgd
from paceline.records.trace import Schedule
from paceline.simulator.interpreter.host_costs import Handling, HostCosts
from paceline.simulator.interpreter.interpreter import Simulation, simulate_job
from paceline.simulator.network.network import MeasuredNetwork, NoCost
from tests.clusters import Written, answer, fixed_costs, played
from tests.support import FixedTiming, job_of

CELL = Cell("counter")
HERE = "tests/unit/test_simulator_programs.py"


def samples(index: int = 0) -> Samples:
    return Samples(worker=0, workers=1, index=index, count=8)


def weights(version: int = 0) -> Weights:
    return Weights(np.zeros(4), version)


def batch(index: int = 0) -> Batch:
    return Batch(samples(index), None)  # a simulated gradient loads its data itself


def number(vector: Any) -> float:
    """The first element of a vector."""
    return float(vector[0])


@program
def after(seconds: int) -> Program[int]:
    """Waits for so many seconds, if a piece of work takes one, and returns them."""
    for _ in range(seconds):
        yield from Charge("wait", 0)
    return seconds


def speaker(*sends: tuple[float, Send]) -> Callable[[RankContext, Replica], Any]:
    """A program that sends each message at its time, in whole seconds of work."""

    @program
    def speak(me: RankContext, state: Replica) -> Program[None]:
        for time_s, send in sends:
            while (yield from Now()) < time_s:
                yield from Charge("wait", 0)
            yield from send

    return speak


ONE_S = FixedTiming(work=1.0)


# --- messages ---------------------------------------------------------------------------------------------------------


def test_a_timed_receive_gives_up_on_time_and_loses_nothing() -> None:
    @program
    def listen(me: RankContext, state: Replica) -> Program[list[Any]]:
        heard: list[Any] = []
        try:
            yield from Receive(timeout_s=2.0)
        except TimedOut as late:
            heard.append(((yield from Now()), str(late)))
        message = yield from Receive(timeout_s=2.0)
        return [*heard, ((yield from Now()), message.value)]

    (gave_up_s, words), heard = answer(played(listen, speaker((3.0, Send(Rank(0), "late"))), workers=2, timing=ONE_S))
    assert gave_up_s == 2.0 and "no message from anyone within 2.0 s" in words and "rank 0 (worker)" in words
    assert heard == (3.0, "late")


def test_messages_of_one_pair_keep_their_order_even_if_the_network_would_not() -> None:
    @program
    def listen(me: RankContext, state: Replica) -> Program[list[Any]]:
        first, second = (yield from Receive()), (yield from Receive())
        return [first.value.nbytes, second.value.nbytes, (yield from Now())]

    network = MeasuredNetwork(lambda *_: 0.0, lambda nbytes: nbytes / 8)
    sends = speaker((0.0, Send(Rank(0), np.zeros(5))), (1.0, Send(Rank(0), np.zeros(1))))
    assert answer(played(listen, sends, workers=2, timing=ONE_S, network=network)) == [40, 8, 5.0]


def test_the_inbox_is_searched_by_source_and_tag_oldest_first() -> None:
    @program
    def listen(me: RankContext, state: Replica) -> Program[list[Any]]:
        yield from after(3)
        asked = [Receive(tag="b"), Receive(Rank(2)), Receive(), Receive()]
        heard = []
        for op in asked:
            heard.append((yield from op).value)
        return heard

    @program
    def talk(me: RankContext, state: Replica) -> Program[None]:
        for number in range(2):
            yield from Send(Rank(0), f"{me.rank}{'ab'[number]}", tag="b" if number and me.rank == 1 else "")

    assert answer(played(listen, talk, workers=3, timing=ONE_S)) == ["1b", "2a", "1a", "2b"]


def test_what_was_sent_and_received_is_recorded() -> None:
    @program
    def listen(me: RankContext, state: Replica) -> Program[None]:
        yield from Receive()

    trace = played(
        listen, speaker((1.0, Send(Rank(0), np.zeros(3)))), workers=2, timing=ONE_S, network=fixed_costs(message_s=0.5)
    )
    sent = next(span for span in trace.spans if span.activity == "send")
    received = next(span for span in trace.spans if span.activity == "receive")
    assert (sent.rank, sent.start_s, sent.end_s, sent.bytes) == (1, 1.0, 1.0, 24)
    assert (received.rank, received.start_s, received.ready_s, received.end_s, received.bytes) == (0, 0.0, 1.0, 1.5, 24)
    assert trace.heard == [(0, 1)]


# --- lanes ------------------------------------------------------------------------------------------------------------


def test_waiting_for_some_answers_all_that_are_done_by_then() -> None:
    @program
    def run(me: RankContext, state: Replica) -> Program[list[Any]]:
        handles = []
        for seconds in (3, 1, 2, 2):
            handles.append((yield from Start(after(seconds))))
        found: list[Any] = []
        for need in ("any", 2, "all"):
            found.append((yield from WaitFor(handles, need)))
            found.append((yield from Now()))
        return [*found, (yield from Wait(handles[0]))]

    any_, at_1, two, at_2, all_, at_3, again = answer(played(run, timing=ONE_S))
    assert (any_, at_1) == (((1, 1),), 1.0)
    assert two[:2] == ((1, 1), (2, 2)) and at_2 == 2.0
    assert (all_, at_3) == (((0, 3), (1, 1), (2, 2), (3, 2)), 3.0)
    assert again == 3


def test_what_is_started_begins_in_program_order() -> None:
    @program
    def listen(me: RankContext, state: Replica) -> Program[list[Any]]:
        heard = []
        for _ in range(3):
            heard.append((yield from Receive()).value)
        return heard

    @program
    def talk(me: RankContext, state: Replica) -> Program[None]:
        yield from Start(Send(Rank(0), "first"))
        yield from Send(Rank(0), "second")
        yield from Start(Send(Rank(0), "third"))

    assert answer(played(listen, talk, workers=2)) == ["first", "second", "third"]


def test_lanes_are_few_and_named_by_number() -> None:
    @program
    def run(me: RankContext, state: Replica) -> Program[None]:
        for _ in range(3):
            pair = (yield from Start(Charge("a", 0))), (yield from Start(Charge("b", 0)))
            yield from WaitFor(pair)
        yield from Charge("c", 0)

    assert [span.lane for span in played(run, timing=ONE_S).spans] == ["1", "2"] * 3 + ["main"]


def test_sub_programs_have_an_order_of_collectives_of_their_own() -> None:
    @program
    def exchange(me: RankContext, seconds: int, key: str) -> Program[Any]:
        yield from after(seconds)
        return (yield from AllReduce(value=np.ones(1), group=me.workers, key=key, op="sum"))

    @program
    def run(me: RankContext, state: Replica) -> Program[list[Any]]:
        delays = (1, 2) if me.rank == 0 else (2, 1)  # so they enter their collectives in opposite orders
        handles = []
        for seconds, key in zip(delays, "ab", strict=True):
            handles.append((yield from Start(exchange(me, seconds, key))))
        return [number(total) for _, total in (yield from WaitFor(handles))]

    assert answer(played(run, workers=2, timing=ONE_S)) == [2.0, 2.0]


def test_a_failure_that_is_not_waited_for_ends_the_run() -> None:
    @program
    def fail() -> Program[None]:
        yield from Charge("wait", 0)
        raise ZeroDivisionError("in a lane")

    @program
    def run(me: RankContext, state: Replica) -> Program[None]:
        yield from Start(fail())
        yield from Charge("wait", 0)

    with pytest.raises(ZeroDivisionError, match="in a lane"):
        played(run, timing=ONE_S)


def test_a_failure_is_raised_where_it_is_waited_for_with_all_it_holds() -> None:
    class Odd(Exception):
        def __init__(self, *, size: int) -> None:
            super().__init__(f"odd: {size}")
            self.size = size

    @program
    def fail() -> Program[None]:
        yield from Charge("wait", 0)
        raise Odd(size=3)

    @program
    def run(me: RankContext, state: Replica) -> Program[int]:
        handle = yield from Start(fail())
        try:
            yield from Wait(handle)
        except Odd as odd:
            return odd.size
        return 0

    assert answer(played(run, timing=ONE_S)) == 3


# --- cancelling -------------------------------------------------------------------------------------------------------


def test_a_cancelled_gradient_frees_its_device() -> None:
    @program
    def run(me: RankContext, state: Replica) -> Program[list[Any]]:
        first = yield from Start(Gradient(weights(), batch()))
        second = yield from Start(Gradient(weights(), batch()))
        third = yield from Start(Gradient(weights(7), batch()))
        yield from Charge("wait", 0)
        in_time = [(yield from Cancel(first)), (yield from Cancel(second))]
        result = yield from Wait(third)
        return [*in_time, result.version, (yield from Now()), (yield from Cancel(third))]

    trace = played(run, timing=FixedTiming(compute=4.0, work=1.0))
    assert answer(trace) == [True, True, 7, 5.0, False]
    assert [span.end_s for span in trace.spans if span.activity == "compute"] == [1.0, 5.0]


def test_waiting_for_what_was_cancelled_is_a_mistake() -> None:
    @program
    def run(me: RankContext, state: Replica) -> Program[None]:
        handle = yield from Start(Receive())
        yield from Cancel(handle)
        yield from Wait(handle)

    with pytest.raises(ProgramError, match=r"rank 0 \(worker\).*Receive\(.*started at .*was cancelled; there is no"):
        played(run)


@pytest.mark.parametrize("message_s", [1.0, 1.5])
def test_a_cancelled_receive_leaves_the_message_to_the_next(message_s: float) -> None:
    """Also a message that was handed to it at the moment of the cancellation, before it could answer."""

    @program
    def talk(me: RankContext, state: Replica) -> Program[None]:
        yield from Send(Rank(1), "kept")

    @program
    def listen(me: RankContext, state: Replica) -> Program[list[Any]]:
        handle = yield from Start(Receive())
        yield from Charge("wait", 0)
        in_time = yield from Cancel(handle)
        message = yield from Receive(timeout_s=2.0)
        return [in_time, message.value, (yield from Now())]

    trace = played(talk, listen, workers=2, timing=ONE_S, network=fixed_costs(message_s=message_s))
    assert answer(trace, 1) == [True, "kept", message_s]


def test_the_message_of_a_cancelled_receive_stays_before_younger_ones() -> None:
    """To take the first message occupies the processor for 5 s; the receive is cancelled after 1 s of these."""

    @program
    def talk(me: RankContext, state: Replica) -> Program[None]:
        yield from Send(Rank(1), "first")
        yield from Send(Rank(1), "second")

    @program
    def listen(me: RankContext, state: Replica) -> Program[list[Any]]:
        yield from Charge("wait", 0)
        handle = yield from Start(Receive())
        yield from Charge("wait", 0)
        in_time = yield from Cancel(handle)
        return [in_time, (yield from Receive()).value, (yield from Receive()).value]

    job = job_of(Written(first=talk, others=listen), 2)
    handling = Handling(receive_s=lambda *_: 5.0)
    trace = simulate_job(job, ONE_S, NoCost(), Schedule(every=1), hosts=HostCosts(handling=handling))
    assert answer(trace, 1) == [True, "first", "second"]


def test_a_cancelled_lane_is_closed() -> None:
    closed = []

    @program
    def lane() -> Program[None]:
        try:
            yield from Receive()
        finally:
            closed.append(True)

    @program
    def run(me: RankContext, state: Replica) -> Program[bool]:
        return (yield from Cancel((yield from Start(lane()))))

    assert answer(played(run)) is True and closed == [True]


def test_a_collective_goes_on_without_the_one_who_gave_up_waiting() -> None:
    @program
    def impatient(me: RankContext, state: Replica) -> Program[Any]:
        return (yield from Cancel((yield from Start(AllReduce(value=np.ones(1), group=me.workers, key="k", op="sum")))))

    @program
    def patient(me: RankContext, state: Replica) -> Program[float]:
        return number((yield from AllReduce(value=np.ones(1), group=me.workers, key="k", op="sum")))

    trace = played(impatient, patient, workers=2)
    assert answer(trace) is True and answer(trace, 1) == 2.0


# --- devices ----------------------------------------------------------------------------------------------------------


def test_a_device_computes_one_gradient_at_a_time() -> None:
    @program
    def run(me: RankContext, state: Replica) -> Program[list[float]]:
        handles, ends = [], []
        for _ in range(3):
            handles.append((yield from Start(Gradient(weights(), batch()))))
        for handle in handles:
            yield from Wait(handle)
            ends.append((yield from Now()))
        return ends

    assert answer(played(run)) == [1.0, 2.0, 3.0]


def test_a_gradient_is_taken_at_exactly_the_weights_given() -> None:
    @program
    def run(me: RankContext, state: Replica) -> Program[Any]:
        loaded = yield from Load(samples(3))
        return (yield from Gradient(Weights(np.full(4, 10.0), 5), loaded))

    result = answer(played(run, timing=FixedTiming(load=0.5)))
    assert result.vector.tolist() == [9.0, 8.0, 7.0, 6.0]
    assert (result.version, result.step, result.samples, result.busy_s) == (5, 3, 8, 1.0)


def test_layers_come_last_first_at_their_times() -> None:
    @program
    def run(me: RankContext, state: Replica) -> Program[list[Any]]:
        found = []
        for handle in (yield from LayerGradients(weights(), batch())):
            part = yield from Wait(handle)
            found.append((part.vector.tolist(), part.busy_s, (yield from Now())))
        return found

    trace = played(run, timing=FixedTiming(compute=6.0, forward=(1 / 6, 1 / 6), backward=(1 / 2, 1 / 6)))
    assert answer(trace) == [([-3.0, -4.0], 3.0, 3.0), ([-1.0, -2.0], 6.0, 6.0)]
    spans = [(span.layer, span.start_s, span.end_s) for span in trace.spans]
    assert spans == [("second", 0.0, 3.0), ("first", 3.0, 6.0)]


def test_the_forward_pass_of_a_layer_waits_for_its_own_weights() -> None:
    @program
    def come(seconds: int, version: int) -> Program[Weights]:
        yield from after(seconds)
        return Weights(np.full(2, float(version)), version)

    @program
    def run(me: RankContext, state: Replica) -> Program[Any]:
        held = (yield from Start(come(1, 3))), (yield from Start(come(5, 2)))
        last, first = yield from LayerGradients(held, batch())
        return (yield from Wait(last)), (yield from Now()), (yield from Wait(first)), (yield from Now())

    trace = played(run, timing=FixedTiming(compute=6.0, work=1.0))
    last, last_s, first, first_s = answer(trace)
    # forward: layer 1 from 1 to 2, layer 2 from 5 to 6; backward: 2 each
    assert (last_s, first_s) == (8.0, 10.0)
    assert (last.vector.tolist(), first.vector.tolist(), last.version) == ([-1.0, -2.0], [2.0, 1.0], 2)
    computing = [(span.layer, span.start_s, span.end_s) for span in trace.spans if span.activity == "compute"]
    assert computing == [("first", 1.0, 2.0), ("second", 5.0, 6.0), ("second", 6.0, 8.0), ("first", 8.0, 10.0)]


# --- cells ------------------------------------------------------------------------------------------------------------


def test_ranks_of_a_node_take_a_lock_in_turn_and_share_the_value() -> None:
    @program
    def count(me: RankContext, state: Replica) -> Program[list[Any]]:
        yield from Lock(CELL)
        got_s = yield from Now()
        before = yield from Access(CELL, "read")
        yield from Charge("add", 0)
        yield from Access(CELL, "swap", np.ones(1) if before is None else before + 1)
        yield from Unlock(CELL)
        yield from Barrier(group=me.workers, key="all")
        total = yield from Access(CELL, "read")
        return [got_s, number(total)]

    trace = played(count, workers=4, timing=ONE_S, nodes=[[0, 1, 2], [3]])
    assert [answer(trace, rank) for rank in range(4)] == [[0.0, 3.0], [1.0, 3.0], [2.0, 3.0], [0.0, 1.0]]


def test_only_the_holder_may_unlock() -> None:
    @program
    def hold(me: RankContext, state: Replica) -> Program[None]:
        yield from Lock(CELL)

    @program
    def meddle(me: RankContext, state: Replica) -> Program[None]:
        yield from Unlock(CELL)

    with pytest.raises(ProgramError, match=r"rank 1 .* unlocks cell 'counter', which it does not hold; Lock it first"):
        played(hold, meddle, workers=2, nodes=[[0, 1]])


# --- mistakes ---------------------------------------------------------------------------------------------------------


def test_a_deadlock_names_every_lane_its_line_and_what_it_waits_for() -> None:
    @program
    def stuck(me: RankContext, state: Replica) -> Program[None]:
        handle = yield from Start(AllReduce(value=np.zeros(2), group=me.workers, key="gradient 3"))
        yield from Wait(handle)

    @program
    def deaf(me: RankContext, state: Replica) -> Program[None]:
        yield from Charge("wait", 0)
        yield from Receive(Rank(0), tag="never")

    with pytest.raises(DeadlockError) as caught:
        played(stuck, deaf, workers=2, timing=ONE_S)
    line = stuck.__wrapped__.__code__.co_firstlineno  # type: ignore[attr-defined]
    begun = f"{HERE}:{line + 2} in stuck"
    waits = f"AllReduce 'gradient 3' mean of 16 bytes over ranks 0,1, started at {begun}"
    silent = "waits to receive from rank 0 with tag 'never'"
    assert str(caught.value).splitlines() == [
        "deadlock at 1 s, nothing more can happen:",
        f"  rank 0 (worker) at {HERE}:{line + 3} in stuck, step 0: waits for {waits}",
        f"  rank 0 (worker), lane 1 at {begun}, step 0: waits in AllReduce 'gradient 3' over ranks 0,1 for ranks 1",
        f"  rank 1 (worker) at {HERE}:{line + 8} in deaf, step 0: {silent}",
    ]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (Send(Rank(9), None), r"sends to rank 9; there are ranks 0"),
        (WaitFor([], "any"), r"waits for 1 of 0 handles; ask for 0 to 0"),
    ],
)
def test_nonsense_is_told_at_the_operation(wrong: Op[Any], words: str) -> None:
    @program
    def run(me: RankContext, state: Replica) -> Program[None]:
        yield from wrong

    with pytest.raises(ProgramError, match=words):
        played(run)


def test_a_mismatch_comes_out_at_the_start_that_made_it() -> None:
    @program
    def one(me: RankContext, state: Replica) -> Program[None]:
        yield from Start(Barrier(group=me.workers, key="left"))

    @program
    def other(me: RankContext, state: Replica) -> Program[None]:
        yield from Charge("wait", 0)
        yield from Start(Barrier(group=me.workers, key="right"))

    with pytest.raises(
        ProgramError, match=r"rank 1 at .* in other enters Barrier 'right'.*rank 0 at .* in one entered"
    ):
        played(one, other, workers=2, timing=ONE_S)


def test_the_interpreter_has_a_case_for_every_operation() -> None:
    simulation = Simulation(job_of(SyncSgd(), 2, steps=1), FixedTiming(), NoCost(), Schedule(1), None, HostCosts())
    assert [op.__name__ for op in OPERATIONS if op not in simulation._meanings] == []
