"""Continuing without dead ranks, naming stopped ranks, and NaNs."""

from __future__ import annotations

import importlib
import math
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.algorithms import METHODS
from paceline.algorithms.core.errors import PeerFailed
from paceline.algorithms.core.guarantees import Guarantee
from paceline.algorithms.core.job import PlannedDeath
from paceline.algorithms.core.values import Group, Rank, Samples
from paceline.algorithms.runtime.mail import Envelope
from paceline.backend.local.launch import RankFailed
from paceline.backend.rank.communication import Agreement, name_of
from paceline.backend.status.rank_status import Vote
from paceline.backend.status.status_board import StatusBoard
from paceline.backend.training import train
from paceline.backend.transports.messages import ReceiveClaim, ThreadedInbox
from paceline.records.trace import Schedule
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.network.network import NoCost
from tests.backend.jobs import no_children, run_for_real
from tests.backend.test_failures import Killer
from tests.support import Bowl, FixedTiming, built, job_of, nodes_for
from tests.thorough import extra

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))  # its modules import each other from there
fault_cases = importlib.import_module("fault_injection.cases")

pytestmark = pytest.mark.backend


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    yield
    assert no_children()


# --- what is promised -------------------------------------------------------------------------------------------------


def test_how_many_each_method_can_lose() -> None:
    spare = {name: job_of(method(), 4, nodes=nodes_for(method())).spare for name, method in METHODS.items()}
    most = "async-sgd async-msgd downpour softsync ssp dbs-sgd async-easgd async-measgd eamsgd k-batch-async"
    most += " dc-asgd gossip ad-psgd diloco async-diloco noloco"
    some = {"k-sync": 2, "k-async": 2, "backup-workers": 1, "decoupled-diloco": 2}
    assert spare == {name: 3 if name in most.split() else some.get(name, 0) for name in METHODS}
    for name, method in METHODS.items():
        assert (spare[name] > 0) == (Guarantee.SURVIVES_WORKERS in method.guarantees)


# --- reports of a death -----------------------------------------------------------------------------------------------


def test_who_waits_for_anyone_hears_of_a_death_once_and_after_the_last_message() -> None:
    board = StatusBoard(3, [Rank(2)], spare=2)
    inbox = ThreadedInbox(board.lost, [Rank(rank) for rank in range(3)])

    def get(source: Rank | None = None) -> Any:
        return inbox.get(source, "", 0.0, ReceiveClaim(inbox)).value

    inbox.put(Envelope(Rank(1), Rank(2), "", "its last", 0.0))
    board.lose(Rank(1), ends=False)
    assert get() == "its last"
    with pytest.raises(PeerFailed, match="rank 1 died") as caught:
        get()
    assert caught.value.rank == 1
    inbox.put(Envelope(Rank(1), Rank(2), "", "too late", 0.0))
    inbox.put(Envelope(Rank(0), Rank(2), "", "alive", 0.0))
    assert get() == "alive"
    for _ in range(2):
        with pytest.raises(PeerFailed):
            get(Rank(1))


def test_where_the_run_ends_every_wait_does() -> None:
    board = StatusBoard(3, [Rank(2)])
    board.lose(Rank(1))
    assert [board.lost(), board.lost([Rank(0)]), board.lost([Rank(1)])] == [1, 1, 1]


def test_where_it_goes_on_only_those_end_who_need_the_dead() -> None:
    board = StatusBoard(3, [Rank(2)], spare=2)
    board.lose(Rank(1), ends=False)
    assert [board.lost(), board.lost([Rank(0)]), board.lost([Rank(0), Rank(1)])] == [None, None, 1]


def test_a_step_that_the_dead_had_begun_is_the_others_again() -> None:
    ranks = [Rank(0), Rank(1)]
    board = StatusBoard(2, ranks, limit=3, together=True, spare=1)
    assert [board.grant(Rank(1), 0), board.grant(Rank(1), 1), board.grant(Rank(0), 0)] == [True] * 3
    board.ranks[1].step = 1  # one of its two is done
    assert not board.grant(Rank(0), 1)
    board.lose(Rank(1), ends=False)
    assert board.grant(Rank(0), 1) and not board.grant(Rank(0), 2)
    assert board.weights_owner == 0


# --- one outcome ------------------------------------------------------------------------------------------------------

TRIO = Group((Rank(0), Rank(1), Rank(2)))


def outcomes(board: StatusBoard, has_it: dict[int, bool]) -> list[str]:
    """The results of members that have, or have not, received an answer."""

    def member(rank: int) -> str:
        agreement = Agreement(board, Rank(rank))
        try:
            with agreement.failing(TRIO, "stream", 5):
                if not has_it[rank]:
                    raise PeerFailed("rank 2 died", 2)
            agreement.reach(TRIO, "stream", 5)
        except PeerFailed as failure:
            return str(failure)
        return "has it"

    with ThreadPoolExecutor(len(has_it)) as pool:
        return list(pool.map(member, has_it))


def test_all_have_the_answer_or_none() -> None:
    board = StatusBoard(3, TRIO.ranks, spare=2)
    board.lose(Rank(2), ends=False)
    assert outcomes(board, {0: True, 1: True}) == ["has it", "has it"]
    board = StatusBoard(3, TRIO.ranks, spare=2)
    board.lose(Rank(2), ends=False)
    assert outcomes(board, {0: True, 1: False}) == ["rank 2 died", "rank 2 died"]


def test_a_mark_of_the_dead_stays_and_the_others_wait_for_it() -> None:
    board = StatusBoard(3, TRIO.ranks, spare=2)
    board.ranks[Rank(2)].vote(name_of("stream"), 5, Vote.ABORT)
    board.lose(Rank(2), ends=False)
    assert outcomes(board, {0: True, 1: True}) == ["rank 2 died", "rank 2 died"]
    board = StatusBoard(3, TRIO.ranks, spare=2)
    threading.Timer(0.2, board.lose, [Rank(2)], {"ends": False}).start()
    assert outcomes(board, {0: True, 1: True}) == ["has it", "has it"]
    assert board.ranks[Rank(2)].dead, "they have waited for that"


# --- real runs --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Dies(Bowl):
    """A learner with which the process of one worker ends when it loads the batch of a step."""

    victim: int = 0
    at: int = 0
    how: signal.Signals = signal.SIGKILL

    def load(self, samples: Samples) -> Any:
        if (samples.worker, samples.index) == (self.victim, self.at):
            os.kill(os.getpid(), self.how)
        return super().load(samples)


@pytest.mark.parametrize(
    ("name", "rank", "how"),
    [
        extra(("async-sgd", 1, signal.SIGKILL)),
        ("k-sync", 2, signal.SIGTERM),
        ("diloco", 0, signal.SIGKILL),
        ("ad-psgd", 0, signal.SIGKILL),
        extra(("noloco", 1, signal.SIGKILL)),
    ],
)
def test_a_worker_dies_and_the_others_reach_the_end(name: str, rank: int, how: signal.Signals) -> None:
    """It dies in its own step 20; the others take hundreds more, however busy the machine is."""
    method = built(name)
    steps = 400 if method.weights_owner == "server" or method.independent else 60
    learner = Dies(victim=rank, at=20, how=how)
    job = job_of(method, 4, nodes=nodes_for(method), steps=steps, learner=learner)
    trace = run_for_real(job)
    (lost,) = trace.failed_ranks
    assert (lost["rank"], lost["role"], trace.stop_reason) == (rank, "worker", "samples")
    assert lost["how"] == f"died at step {lost['step']}: killed by {how.name}" and lost["step"] == 20
    assert set(trace.states) == {me.rank for me in job.team} - {rank}
    after = {update.rank for update in trace.updates if update.step > lost["step"]}
    others = {0, 1, 2, 3} - {rank}
    assert after == others or (name == "k-sync" and after and after < others), "k-sync takes the first two of three"
    if name == "diloco":
        vectors = [state.start for state in trace.states.values()]
        assert all(np.array_equal(vector, vectors[0]) for vector in vectors)


@pytest.mark.parametrize("name", ["sync-sgd", "k-sync", extra("diloco")])
def test_a_death_of_the_job_has_the_outcome_of_its_simulation(name: str) -> None:
    method = built(name)
    job = replace(job_of(method, 4, nodes=nodes_for(method), steps=30), deaths=(PlannedDeath(Rank(2), step=7),))
    predicted = simulate_job(job, FixedTiming(), NoCost(), Schedule(every=math.inf))
    if job.spare:
        trace = run_for_real(job)
    else:
        with pytest.raises(RankFailed) as failed:
            run_for_real(job)
        trace = failed.value.trace
        assert trace.ended == str(failed.value)
    (lost,) = trace.failed_ranks
    assert (lost["rank"], lost["step"], lost["how"]) == (2, 7, "died at step 7: killed by SIGKILL (cluster.deaths)")
    assert [(one["rank"], one["step"]) for one in predicted.failed_ranks] == [(2, 7)]
    assert trace.stop_reason == predicted.stop_reason == ("samples" if job.spare else "failure")
    assert {row.rank for row in trace.updates if row.step >= 7}.isdisjoint({2})
    if not job.spare:
        assert trace.ended is not None and trace.ended.startswith(f"rank 2 (worker) {lost['how']}, at ")
        assert f"{name} needs all of its workers" in trace.ended


def test_a_death_at_a_time_ends_one_algorithm_and_the_others_are_trained(tmp_path: Path) -> None:
    scenario = {
        "name": "deaths",
        "algorithms": ["sync-sgd", "async-sgd"],
        "workload": {"model": "quadratic", "learning": "quadratic", "batch_per_worker": 4},
        "cluster": {
            "nodes": [{"device": {"name": "d", "overhead": "10 ms", "per_sample": "0 ms"}, "count": 3}],
            "deaths": [{"worker": 1, "at": "100 ms"}],
        },
        "stop": {"updates": 60},
    }
    ended, goes_on = train(scenario, out=tmp_path)
    assert (ended.summary["stop_reason"], goes_on.summary["stop_reason"]) == ("failure", "updates")
    for run in (ended, goes_on):
        (lost,) = run.summary.get("failed_ranks", [])
        assert lost["rank"] == 1 and lost["time_s"] >= 0.1
    assert "sync-sgd needs all of its workers" in ended.summary.get("ended", "")


def test_a_stopped_rank_is_named_with_those_who_wait_for_it() -> None:
    job = job_of(METHODS["sync-sgd"](), 3, steps=5000)
    with pytest.raises(RankFailed) as caught:
        run_for_real(job, progress=Killer(1, signal.SIGSTOP, after_s=0.3), timeout_s=0.5)
    first, *others = str(caught.value).splitlines()
    assert first.startswith("rank 1 (worker) was stopped (SIGSTOP) for 0.5 s at step ")
    assert others and all("waits in AllReduce 'gradient" in line for line in others)


@dataclass(frozen=True)
class Explodes(Bowl):
    """Its gradients are NaN from some step on, in the second layer."""

    def load(self, samples: Any) -> Any:
        data = super().load(samples)
        return data * math.nan if samples.index == 3 and samples.worker == 1 else data

    def gradient(self, vector: Any, data: Any) -> tuple[Any, float]:
        gradient, loss = super().gradient(vector, data)
        if math.isnan(loss):
            gradient = np.where(np.arange(4) < 2, 0.0, math.nan)
        return gradient, loss


def test_a_loss_that_is_no_number_names_rank_step_and_layer() -> None:
    said = "rank 1 (worker), step 3: the loss is nan; the gradient is not finite in 'second'"
    with pytest.raises(RankFailed) as caught:
        run_for_real(job_of(METHODS["sync-sgd"](), 2, steps=40, learner=Explodes()), on_nonfinite="raise")
    assert str(caught.value) == said
    trace = run_for_real(job_of(METHODS["sync-sgd"](), 2, steps=10, learner=Explodes()))
    assert trace.stop_reason == "samples"
    assert said in trace.files["logs/rank1.log"].decode()


# --- the campaign, shortly --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [12, extra(27)])
def test_a_short_campaign_finds_nothing(number: int, tmp_path: Path) -> None:
    case = fault_cases.draw(number, 1)
    what = in_a_process(lambda: fault_cases.happened(case, tmp_path))
    assert [words for check in fault_cases.CHECKS for words in check(what)] == []


def in_a_process(do: Callable[[], Any]) -> Any:
    """Returns the result of `do` in a new process, which becomes the parent of orphans for the rest of its life."""
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        with os.fdopen(writing, "wb") as file:
            pickle.dump(do(), file)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        answer = pickle.load(file)
    os.waitpid(child, 0)
    return answer
