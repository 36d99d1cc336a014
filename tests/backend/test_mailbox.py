"""Messages in memory between processes: waiting ranks are woken, a death harms no other rank, and the choice of
transport.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from paceline.algorithms.core.errors import InputError, PeerFailed, RunFailed, TimedOut
from paceline.algorithms.core.method import RankContext, Replica, on_host
from paceline.algorithms.core.operations import Receive, Send
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.values import Group, Rank, Step
from paceline.algorithms.runtime.mail import Envelope
from paceline.backend.local.launch import Launch, run_job
from paceline.backend.posix.waits import wait_until
from paceline.backend.transports import collectives, mailbox, messages
from paceline.backend.transports.collectives import Groups
from paceline.backend.transports.mail import GlooMail
from paceline.backend.transports.mailbox import Mailbox, Sender
from paceline.backend.transports.messages import OperationCancelled, ReceiveClaim, ThreadedInbox
from paceline.records.trace import Schedule
from paceline.testing.contract.programs import ContractProgram, answers
from tests.filesystems import fill_up
from tests.support import job_of

pytestmark = pytest.mark.backend

HOST = Group((Rank(0), Rank(1), Rank(2)))
ZERO, ONE, TWO = HOST.ranks
LARGE = np.arange(1_000_000.0)
"""8 MB: eight rings full"""
FOREVER_S = 60.0


@dataclass
class Host:
    """A host whose ranks are this process and its children."""

    folder: Path
    memory: Any
    dead: set[Rank]

    def lost(self, needed: Any = ()) -> Rank | None:
        return next((rank for rank in needed if rank in self.dead), None)

    def box(self, rank: Rank) -> tuple[Mailbox, ThreadedInbox]:
        inbox = ThreadedInbox(self.lost, HOST)
        return Mailbox(self.memory, HOST, rank, self.folder, inbox, self.lost), inbox

    def child(self, rank: Rank, does: Callable[[Mailbox, ThreadedInbox], object]) -> int:
        """Forks a rank; returns its process once its mailbox exists."""
        if (pid := os.fork()) == 0:
            try:
                does(*self.box(rank))
            finally:
                os._exit(0)
        assert wait_until((self.folder / f"rank{rank}.drain").exists, within_s=FOREVER_S)
        return pid


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """With waits without a timeout: a rank that is not woken sleeps for ever."""
    monkeypatch.setattr(messages, "POLL_S", FOREVER_S)
    return Host(tmp_path, mailbox.anonymous(len(HOST)), set())


def get(inbox: ThreadedInbox, source: Rank | None = None, timeout_s: float | None = None) -> Envelope:
    return inbox.get(source, "", timeout_s, ReceiveClaim(inbox))


def letter(source: Rank, to: Rank, value: Any, sent_s: float = 0.0) -> Envelope:
    return Envelope(source, to, "", value, sent_s)


# --- sleeping and waking ----------------------------------------------------------------------------------------------


def test_a_sleeping_rank_is_woken_by_a_message(host: Host) -> None:
    def echo(box: Mailbox, inbox: ThreadedInbox) -> None:
        while (value := get(inbox, ZERO).value) is not None:
            time.sleep(value)  # until the other one sleeps too
            box.send(letter(ONE, ZERO, value))

    box, inbox = host.box(ZERO)
    pid = host.child(ONE, echo)
    for pause_s in (0.0, 0.1, 0.0, 0.1):
        box.send(letter(ZERO, ONE, pause_s))
        assert get(inbox, ONE, 10.0).value == pause_s
        time.sleep(0.05)
    box.send(letter(ZERO, ONE, None))
    os.waitpid(pid, 0)


def test_who_waits_takes_no_core(host: Host) -> None:
    _, inbox = host.box(ZERO)
    began_s = time.process_time()
    threading.Timer(1.0, lambda: inbox.put(letter(TWO, ZERO, "at last"))).start()
    get(inbox)
    assert time.process_time() - began_s < 0.3


def test_what_comes_another_way_wakes_too(host: Host) -> None:
    """A message by gloo, and a receive that is cancelled, while another thread waits for shared memory."""
    _, inbox = host.box(ZERO)
    threading.Timer(0.1, lambda: inbox.put(letter(TWO, ZERO, "by gloo"))).start()
    assert get(inbox, None, 10.0).value == "by gloo"
    claim = ReceiveClaim(inbox)
    threading.Timer(0.1, claim.give_up).start()
    began_s = time.monotonic()
    with pytest.raises(OperationCancelled):
        inbox.get(None, "", 10.0, claim)
    assert time.monotonic() - began_s < FOREVER_S / 2


def test_of_lanes_that_wait_each_has_its_own(host: Host) -> None:
    """One of them fetches; when it has its message the other continues fetching."""
    _, inbox = host.box(ZERO)
    other, _ = host.box(ONE)
    found: list[str] = []
    lanes = [
        threading.Thread(target=lambda tag=tag: found.append(inbox.get(ONE, tag, 10.0, ReceiveClaim(inbox)).value))
        for tag in ("a", "b", "c")
    ]
    for lane in lanes:
        lane.start()
    time.sleep(0.1)

    def so_many(number: int) -> bool:
        return len(found) == number

    for number, tag in enumerate(("b", "a", "c"), start=1):
        other.send(Envelope(ONE, ZERO, tag, tag, 0.0))
        assert wait_until(partial(so_many, number), within_s=FOREVER_S)
    for lane in lanes:
        lane.join()
    assert found == ["b", "a", "c"]


def test_a_lane_whose_time_is_up_leaves_the_fetching_to_another(host: Host) -> None:
    (_, inbox), (other, _) = host.box(ZERO), host.box(ONE)

    def gives_up() -> None:
        with suppress(TimedOut):
            inbox.get(ONE, "never sent", 0.3, ReceiveClaim(inbox))

    lane = threading.Thread(target=gives_up)
    lane.start()
    time.sleep(0.1)
    threading.Timer(0.6, other.send, (letter(ONE, ZERO, "here"),)).start()
    began_s = time.monotonic()
    assert get(inbox, ONE, 10.0).value == "here"
    assert time.monotonic() - began_s < FOREVER_S / 2
    lane.join()


def test_the_oldest_is_heard_first_whichever_way_it_came(host: Host) -> None:
    _, inbox = host.box(ZERO)
    one, two = host.box(ONE)[0], host.box(TWO)[0]
    two.send(letter(TWO, ZERO, "second", 2.0))
    inbox.put(letter(TWO, ZERO, "third", 3.0))
    one.send(letter(ONE, ZERO, "first", 1.0))
    one.send(letter(ONE, ZERO, "fourth", 4.0))
    assert [get(inbox).value for _ in range(4)] == ["first", "second", "third", "fourth"]


# --- long messages ----------------------------------------------------------------------------------------------------


def test_a_send_waits_for_no_program(host: Host) -> None:
    """All ranks send to all others more than a ring holds, before any of them receives."""
    boxes = {rank: host.box(rank) for rank in HOST}
    for rank, (box, _) in boxes.items():
        for other in HOST:
            if other != rank:
                box.send(letter(rank, other, LARGE + int(rank)))
    for rank, (_, inbox) in boxes.items():
        for other in HOST:
            if other != rank:
                np.testing.assert_array_equal(get(inbox, other, 10.0).value, LARGE + int(other))


def test_lanes_of_one_rank_do_not_mix_their_messages(host: Host) -> None:
    box, (_, inbox) = host.box(ONE)[0], host.box(ZERO)
    lanes = [threading.Thread(target=box.send, args=(letter(ONE, ZERO, LARGE * lane),)) for lane in range(4)]
    for lane in lanes:
        lane.start()
    got = sorted((get(inbox, ONE, 10.0).value for _ in lanes), key=lambda value: float(value[-1]))
    for number, value in enumerate(got):
        np.testing.assert_array_equal(value, LARGE * number)


# --- deaths -------------------------------------------------------------------------------------------------------


def test_a_sender_killed_in_a_message_leaves_the_others_working(host: Host) -> None:
    def half(box: Mailbox, _: ThreadedInbox) -> None:
        box.send(letter(ONE, ZERO, "whole"))
        for part in messages.parts(letter(ONE, ZERO, LARGE[:1000])):
            box._out[ZERO]._write(part[: len(part) // 2 + 8])
        os.kill(os.getpid(), signal.SIGKILL)

    def whole(box: Mailbox, _: ThreadedInbox) -> None:
        for number in range(3):
            box.send(letter(TWO, ZERO, LARGE + number))

    _, inbox = host.box(ZERO)
    killed = host.child(ONE, half)
    os.waitpid(killed, 0)
    working = host.child(TWO, whole)
    assert get(inbox, ONE, 10.0).value == "whole"
    for number in range(3):
        np.testing.assert_array_equal(get(inbox, TWO, 10.0).value, LARGE + number)
    os.waitpid(working, 0)
    with pytest.raises(TimedOut, match=r"no message within 0\.3 s"):
        get(inbox, ONE, 0.3)


def test_a_send_to_a_dead_rank_ends_when_there_is_no_room(host: Host) -> None:
    box, _ = host.box(ZERO)
    pid = host.child(ONE, lambda *_: time.sleep(FOREVER_S))
    _, inbox = host.box(TWO)

    def dies() -> None:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        time.sleep(0.2)  # until one of them notices
        host.dead.add(ONE)

    def sends() -> None:
        while True:
            box.send(letter(ZERO, ONE, LARGE))

    threading.Timer(0.2, dies).start()
    with pytest.raises(PeerFailed, match="rank 1 died"):
        sends()
    with pytest.raises(PeerFailed, match="rank 1 died"):  # a part of a message was written: nothing can follow it
        box.send(letter(ZERO, ONE, 1))
    box.send(letter(ZERO, TWO, "still"))
    assert get(inbox, ZERO, 10.0).value == "still"


# --- memory in a file -------------------------------------------------------------------------------------------------


def test_processes_that_were_not_forked_find_the_memory_by_its_file(host: Host) -> None:
    """Each process maps the file itself; data written by the first one remains when the second one opens it."""
    path = host.folder / "mail"
    host.memory = mailbox.in_file(path, len(HOST))
    box, _ = host.box(ZERO)
    box.send(letter(ZERO, ONE, "early"))
    host.memory = mailbox.in_file(path, len(HOST))
    _, inbox = host.box(ONE)
    assert get(inbox, ZERO, 10.0).value == "early"


def test_too_little_room_for_the_file_is_told(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    fill_up(monkeypatch)
    with pytest.raises(RunFailed, match=r"messages of 3 ranks needs 9 MiB; found .* free in .*train.shared_memory: fa"):
        mailbox.in_file(host.folder / "mail", len(HOST))


# --- which way --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class All(ContractProgram):
    """All ranks send their number to all others."""

    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[list[int]]:
        others = [rank for rank in me.world if rank != me.rank]
        for other in others:
            yield from Send(other, int(me.rank))
        heard = []
        for other in others:
            heard.append((yield from Receive(other)).value)
        return heard


@pytest.mark.parametrize(
    ("nodes", "shared", "by_gloo"),
    [
        ([[0, 1, 2]], True, set()),
        ([[0, 1], [2]], True, {(0, 2), (1, 2), (2, 0), (2, 1)}),
        ([[0, 1, 2]], False, {(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)}),
    ],
)
def test_memory_on_a_host_and_gloo_between_hosts(
    nodes: list[list[int]], shared: bool, by_gloo: set[tuple[int, int]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Every pair always uses the same transport; without a pair that needs gloo there is none."""
    kinds: tuple[type[Any], ...] = (GlooMail, Sender)

    def noted(kind: type[Any], send: Any) -> Any:
        def noting(self: Any, envelope: Envelope) -> None:
            (tmp_path / f"{kind.__name__} {envelope.source} {envelope.to}").touch()
            send(self, envelope)

        return noting

    for kind in kinds:
        monkeypatch.setattr(kind, "send", noted(kind, kind.send))
    found = answers(lambda job: run_job(launch_of(job, shared_memory=shared)), All(), nodes=nodes)
    assert found == [[1, 2], [0, 2], [0, 1]]
    ways = {
        kind: {tuple(map(int, path.name.split()[1:])) for path in tmp_path.glob(f"{kind}*")}
        for kind in ("GlooMail", "Sender")
    }
    assert ways["GlooMail"] == by_gloo
    assert ways["Sender"] == {(a, b) for a in range(3) for b in range(3) if a != b} - by_gloo


def launch_of(job: Any, **options: Any) -> Launch:
    return Launch(job=job, schedule=lambda: Schedule(every=1), **options)


def test_a_server_is_on_the_first_nodes_host() -> None:
    from paceline.algorithms import find

    team = job_of(find("async-sgd")(), nodes=[[0, 1], [2, 3]], steps=1).team
    assert [me.host for me in team] == [0, 0, 1, 1, 0]
    assert [on_host(team, host).ranks for host in (0, 1)] == [(0, 1, 4), (2, 3)]


# --- network interfaces -----------------------------------------------------------------------------------------------


def interfaces_of(names: Sequence[str], nodes: list[list[int]]) -> list[str]:
    team = job_of(All(), nodes=nodes, steps=1).team
    return [collectives.interface_of(me, team, names) for me in team]


def test_the_kth_rank_of_a_host_has_the_kth_interface() -> None:
    assert interfaces_of(("eth0", "eth1"), [[0, 1, 2], [3, 4]]) == ["eth0", "eth1", "eth0", "eth0", "eth1"]
    assert interfaces_of(("eth0",), [[0, 1]]) == ["eth0", "eth0"]
    assert interfaces_of((), [[0, 1]]) == ["lo", "lo"]


def test_ranks_meet_by_the_interfaces_that_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = Groups.make

    def noting(self: Groups, name: str, group: Group) -> Any:
        (tmp_path / str(self.rank)).write_text(self.interface)
        return made(self, name, group)

    monkeypatch.setattr(Groups, "make", noting)
    job, here = job_of(All(), nodes=[[0, 1], [2]], steps=1), psutil.net_if_addrs()
    names = ["lo", *(name for name in sorted(here) if name != "lo" and here[name][0].family == socket.AF_INET)]
    run_job(launch_of(job, interfaces=names))
    found = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert found == {"0": "lo", "1": names[min(1, len(names) - 1)], "2": "lo"}
    with pytest.raises(
        InputError, match=r"train.interfaces\[1\]: found no 'eth77' on this host; expected some of .*lo"
    ):
        run_job(launch_of(job, interfaces=("lo", "eth77")))


def test_an_interface_without_an_address_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    here = psutil.net_if_addrs()
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: here | {"ib7": []})
    with pytest.raises(InputError, match=r"train.interfaces\[0\]: found 'ib7', which has no internet address here"):
        collectives.check_interfaces(["ib7"])


def test_a_process_that_goes_on_keeps_nothing_of_a_closed_box(tmp_path: Path) -> None:
    """No thread and no open file remains; everything sent before has arrived."""
    before = psutil.Process().num_fds(), threading.active_count()
    memory = mailbox.anonymous(2)
    group = Group((Rank(0), Rank(1)))
    inboxes = [ThreadedInbox(lambda _: None, group) for _ in group]
    boxes = [
        Mailbox(memory, group, rank, tmp_path, inbox, lambda _: None)
        for rank, inbox in zip(group, inboxes, strict=True)
    ]
    boxes[0].send(Envelope(Rank(0), Rank(1), "", "hello", 0.0))
    assert inboxes[1].get(Rank(0), "", 10.0, ReceiveClaim(inboxes[1])).value == "hello"
    for box in boxes:
        box.close()
    assert (psutil.Process().num_fds(), threading.active_count()) == before
