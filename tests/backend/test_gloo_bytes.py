"""The bytes that gloo sends, counted per connection, equal those of the model exactly.

Runs over loopback; needs `ss` of iproute2, which shows the bytes that a connection has received.
"""

from __future__ import annotations

import multiprocessing
import re
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore

from paceline.algorithms.core.operations import AllGather, AllReduce, Barrier, Broadcast, Reduce
from paceline.algorithms.core.values import Group, Null, Rank
from paceline.algorithms.runtime.collective_matching import Collective
from paceline.simulator.kernel.clock import VirtualClock
from paceline.simulator.kernel.simpy_events import after
from paceline.simulator.network.gloo import ProcessGroups
from paceline.topologies.catalogue.libraries import GLOO_SEGMENT_BYTES
from tests.thorough import extra

pytestmark = [pytest.mark.backend, pytest.mark.skipif(shutil.which("ss") is None, reason="no ss")]
WAIT_S = 60.0
"""for a rank that is slow to come"""
Bytes = Counter[tuple[int, int]]
"""by sender and receiver"""


def operations(p: int) -> list[Collective]:
    """One of each kind, of few and of many numbers, with different roots."""
    group = Group(tuple(map(Rank, range(p))))
    last = Rank(p - 1)
    found: list[Collective] = [Barrier(group=group, key="k")]
    for count in (16, 4811):
        value = Null(count)
        found += [
            AllReduce(value=value, group=group, key="k"),
            AllGather(value=value, group=group, key="k"),
            *(Reduce(value=value, group=group, root=root, key="k") for root in (Rank(0), last)),
            *(Broadcast(value=value, group=group, root=root, key="k") for root in (Rank(0), last)),
        ]
    large = Null(p * GLOO_SEGMENT_BYTES)  # four segments for each member's share
    return [
        *found,
        AllReduce(value=large, group=group, key="k"),
        Reduce(value=large, group=group, root=Rank(0), key="k"),
    ]


def modelled(op: Collective) -> Bytes:
    """What the model has the members send."""
    clock, sent = VirtualClock(), Bytes()

    def carry(source: Rank, to: Rank, nbytes: int, then: Callable[[], None]) -> None:
        sent[int(source), int(to)] += nbytes
        after(clock, 1e-3, lambda _: then())

    groups = ProcessGroups(clock, carry)
    for rank in op.group:
        groups.enter(rank, op, "")
    clock.run()
    return sent


def work(members: Any, rank: int, op: Collective) -> Any:
    """Begins the operation by gloo."""
    if isinstance(op, Barrier):
        return members.barrier()
    value = torch.zeros(op.value.nbytes // 4)
    match op:
        case AllGather():
            return members.allgather([[torch.empty_like(value) for _ in op.group]], [value])
        case AllReduce():
            return members.allreduce([value])
        case Reduce():
            options = dist.ReduceOptions()
            options.rootRank = int(op.root)
            return members.reduce([value], options)
        case Broadcast():
            sending = dist.BroadcastOptions()
            sending.rootRank, sending.rootTensor = int(op.root), 0
            return members.broadcast([value], sending)


def counted() -> dict[tuple[int, int], int]:
    """What each connection of this process has received, by its two ports; read until nothing changes any more.

    Not what it has sent, in which the kernel counts what it sent twice.
    """
    mine = {
        (one.laddr.port, one.raddr.port)
        for one in psutil.Process().net_connections("tcp")
        if one.status == psutil.CONN_ESTABLISHED
    }
    before: dict[tuple[int, int], int] | None = None
    while True:
        lines = subprocess.run(["ss", "-tinHO"], capture_output=True, text=True, check=True).stdout.splitlines()
        now = {}
        for line in lines:
            ports = re.findall(r":(\d+)\s", line)[:2]
            received = re.search(r"bytes_received:(\d+)", line)
            if len(ports) == 2 and (key := (int(ports[0]), int(ports[1]))) in mine:
                now[key] = int(received[1]) if received else 0
        if now == before:
            return now
        before = now
        time.sleep(0.02)


def member(rank: int, p: int, path: Path, together: Any, tell: Any) -> None:
    """One rank: each operation, with a look at its connections before and after."""
    options: Any = dist.ProcessGroupGloo._Options()  # type: ignore[attr-defined]  # missing in torch's stubs
    options._timeout = timedelta(seconds=WAIT_S)
    options._devices = [dist.ProcessGroupGloo.create_device(interface="lo")]
    members: Any = dist.ProcessGroupGloo(FileStore(str(path), p), rank, p, options)
    members.barrier().wait()
    for op in operations(p):
        together.wait(WAIT_S)
        before = counted()
        together.wait(WAIT_S)
        work(members, rank, op).wait()
        together.wait(WAIT_S)
        tell.send({ports: received - before[ports] for ports, received in counted().items()})
    together.wait(WAIT_S)


@pytest.mark.parametrize("p", [extra(2), 3, extra(4)])
def test_gloo_sends_what_the_model_says(p: int, tmp_path: Path) -> None:
    fork = multiprocessing.get_context("fork")
    together, pipes = fork.Barrier(p), [fork.Pipe(duplex=False) for _ in range(p)]
    ranks = [
        fork.Process(target=member, args=(rank, p, tmp_path / "store", together, pipes[rank][1]), daemon=True)
        for rank in range(p)
    ]
    for process in ranks:
        process.start()
    try:
        for op in operations(p):
            found = []
            for heard, _ in pipes:
                assert heard.poll(WAIT_S), "a rank has not come"
                found.append(heard.recv())
            owner = {ports[0]: rank for rank, connections in enumerate(found) for ports in connections}
            sent = Bytes()
            for rank, connections in enumerate(found):
                for (_, theirs), nbytes in connections.items():
                    if theirs in owner:
                        sent[owner[theirs], rank] += nbytes
            assert +sent == modelled(op), op
    finally:
        for process in ranks:
            process.kill()
            process.join()
