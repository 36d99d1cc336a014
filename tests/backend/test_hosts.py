"""Hosts as network namespaces: ranks communicate only over the shaped link, and nothing is left behind.

Needs root, iproute2 and a kernel with bridges, veth pairs and token buckets; otherwise only the refusals are tested.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from paceline.algorithms import find
from paceline.algorithms.core.method import RankContext, build_team
from paceline.algorithms.core.operations import AllReduce
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.values import Layout, Rank, Step
from paceline.backend.emulation import emulated_hosts as module
from paceline.backend.emulation.emulated_hosts import hosts
from paceline.backend.local.launch import Launch, RankFailed, run_job
from paceline.backend.posix import network_namespaces
from paceline.backend.posix.network_namespaces import NoHosts
from paceline.records.trace import Schedule, Trace
from paceline.testing.contract.programs import ContractProgram, vector
from tests import warm
from tests.support import TWO_BY_TWO, Bowl, job_of

pytestmark = pytest.mark.backend

RATE = 125e6
SIZE = 20_000
"""numbers of 8 bytes: 160 kB"""
STEPS = 10


def lacking() -> str | None:
    """What this machine lacks, asked of iproute2 itself; None if nothing."""
    if os.geteuid() != 0:
        return "needs root"
    if shutil.which("ip") is None or shutil.which("tc") is None:
        return "needs iproute2"
    name = f"trial-{os.getpid()}"
    trial = [
        f"ip netns add {name}",
        f"ip -n {name} link add bridge type bridge",
        f"ip -n {name} link add one type veth peer name other",
        f"tc -n {name} qdisc add dev one root tbf rate 1gbit burst 64kb limit 1mb",
    ]
    try:
        for command in trial:
            done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
            if done.returncode != 0:
                return f"`{command}` says {done.stderr.strip()}"
        return None
    finally:
        subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


LACKING = lacking()
needs_hosts = pytest.mark.skipif(LACKING is not None, reason=f"no network namespaces with shaped links: {LACKING}")


def network() -> tuple[list[str], set[str]]:
    """Namespaces that no other process is using, and the links of this machine itself."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    ours = [name for name in listed.split() if name.startswith("paceline-")]
    makers = {name: int(name.split("-")[1]) for name in ours}
    free = [name for name in ours if makers[name] == os.getpid() or not psutil.pid_exists(makers[name])]
    return free, {link.name for link in Path("/sys/class/net").iterdir()}


@pytest.fixture
def left_alone() -> Iterator[None]:
    """No namespace, and no link, is there afterwards that was not there before."""
    before = network()
    yield
    assert network() == before


def run_on(made: module.Hosts, name: str = "sync-sgd", *, steps: int = STEPS, **options: Any) -> Trace:
    learner = Bowl(size=SIZE)
    job = job_of(find(name)(**options), steps=steps, nodes=TWO_BY_TWO, learner=learner)
    return run_job(Launch(job=job, schedule=lambda: Schedule(every=float("inf")), hosts=made))


@needs_hosts
@pytest.mark.parametrize(
    ("name", "options", "share"),
    [
        ("sync-sgd", {}, 2 * 3 / 4),  # a ring of four crosses each link with 2 (P − 1) / P of a vector each way
        ("hsgd", {"lars": None}, 2 * 1 / 2),  # and one of two leaders with 2 (N − 1) / N
    ],
)
def test_what_crosses_the_links_is_what_theory_says(
    left_alone: None, name: str, options: dict[str, Any], share: float
) -> None:
    with hosts(2, bytes_per_s=RATE) as made:
        few = run_on(made, name, steps=1, **options)
        before = made.crossed()
        trace = run_on(made, name, **options)
        after = made.crossed()
    assert len(few.updates) > 0 and len(trace.updates) == STEPS * len(few.updates)
    payload = STEPS * share * SIZE * 8
    crossed = [
        (then.sent - first.sent, then.received - first.received) for first, then in zip(before, after, strict=True)
    ]
    for sent, received in crossed:
        # headers are 66 of 1514 bytes; beside them acknowledgements, the ranks' meeting, and what TCP sends again
        assert payload * 1514 / 1448 <= sent < 1.15 * payload
        assert payload * 1514 / 1448 <= received < 1.15 * payload


@needs_hosts
def test_the_weights_are_those_of_a_run_without_hosts(left_alone: None) -> None:
    with hosts(2, bytes_per_s=RATE) as made:
        there = run_on(made)
    job = job_of(find("sync-sgd")(), steps=STEPS, nodes=TWO_BY_TWO, learner=Bowl(size=SIZE))
    here = run_job(Launch(job=job, schedule=lambda: Schedule(every=float("inf"))))
    assert there.weights is not None and (there.weights == here.weights).all()


@needs_hosts
def test_messages_to_a_server_cross_from_the_other_host_alone(left_alone: None) -> None:
    with hosts(2, bytes_per_s=RATE) as made:
        trace = run_on(made, "async-sgd", steps=40)
        _, second = made.crossed()
    far = sum(update.rank in (2, 3) for update in trace.updates)
    assert 0 < far < 40
    # their gradients, and at most one more of each that came after the end
    assert far * SIZE * 8 * 1514 / 1448 <= second.sent < 1.15 * (far + 2) * SIZE * 8


@dataclass(frozen=True, kw_only=True)
class Divides(ContractProgram):
    """One rank's program fails in its second step."""

    @program
    def body(self, me: RankContext, step: Step, state: Any) -> Program[None]:
        if step.number == 1 and me.rank == 3:
            raise ZeroDivisionError("by the program itself")
        yield from AllReduce(value=vector(1.0), group=me.workers, key=f"gradient {step.number}")


@needs_hosts
def test_a_failing_rank_leaves_no_hosts(left_alone: None) -> None:

    def fails() -> None:
        job = job_of(Divides(), steps=5, nodes=TWO_BY_TWO)
        with hosts(2, bytes_per_s=RATE) as made:
            run_job(Launch(job=job, schedule=lambda: Schedule(every=1), hosts=made))

    with pytest.raises(RankFailed, match=r"rank 3 \(worker\) failed: ZeroDivisionError"):
        fails()


ENDLESS = """
import signal
from paceline.algorithms import find
from paceline.backend.emulation.emulated_hosts import hosts
from paceline.backend.posix.network_namespaces import NoHosts
from paceline.backend.local.launch import Launch, run_job
from paceline.records.trace import Schedule
from tests.support import job_of

signal.signal(signal.SIGINT, signal.default_int_handler)  # the parent process may ignore it
with hosts(2, bytes_per_s=125e6) as made:
    job = job_of(find("sync-sgd")(), steps=10**6, nodes=[[0, 1], [2, 3]])
    tell = lambda step, elapsed_s: step > 3 and print("runs", flush=True)
    run_job(Launch(job=job, schedule=lambda: Schedule(every=float("inf")), hosts=made, progress=tell))
"""


def endless() -> warm.Program:
    """A launcher whose ranks run in two hosts, on and on; answered once they do."""
    started = warm.Program(ENDLESS, [], start_new_session=True)
    assert started.printed("runs")
    return started


def gone(prefix: str) -> None:
    """Waits until no namespace is called so."""
    until = time.monotonic() + 60.0
    while any(path.name.startswith(prefix) for path in network_namespaces.NAMESPACES.iterdir()):
        assert time.monotonic() < until, f"namespaces {prefix}… are left"
        time.sleep(0.05)


@needs_hosts
def test_an_interrupt_leaves_no_hosts(left_alone: None) -> None:
    """As a terminal does it: the whole group of processes hears of it."""
    process = endless()
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode != 0


@needs_hosts
def test_a_killed_launcher_leaves_no_hosts(left_alone: None) -> None:
    """Its guard outlives it, by as long as it takes to delete them."""
    process = endless()
    prefix = f"paceline-{process.pid}-"
    assert sum(path.name.startswith(prefix) for path in network_namespaces.NAMESPACES.iterdir()) == 3
    process.kill()
    process.communicate(timeout=120)
    gone(prefix)


@needs_hosts
def test_those_of_a_process_that_lives_are_left_alone(left_alone: None) -> None:
    with hosts(2, bytes_per_s=RATE) as made:
        network_namespaces.sweep()
        assert made.switch is not None
        assert all((network_namespaces.NAMESPACES / name).exists() for name in (*made.names, made.switch))


@needs_hosts
def test_those_of_a_process_whose_id_is_used_again_go(left_alone: None) -> None:
    name = f"paceline-{os.getpid()}-1-0-switch"
    subprocess.run(["ip", "netns", "add", name], check=True)
    network_namespaces.sweep()
    assert not (network_namespaces.NAMESPACES / name).exists()


@needs_hosts
def test_what_fails_half_way_is_taken_down(left_alone: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUEUE_BYTES", "many")
    with (
        pytest.raises(NoHosts, match=r"`tc -n paceline-\S+ qdisc add .* limit manyb` says: "),
        hosts(2, bytes_per_s=1e6),
    ):
        raise AssertionError("no hosts can be made")


@needs_hosts
def test_a_message_takes_the_links_time(left_alone: None) -> None:
    """At 20 Mbit/s nothing else counts: no less than the bytes over the rate, but for what passes after a pause."""
    rate, nbytes = 2.5e6, SIZE * 8
    with hosts(2, bytes_per_s=rate) as made:
        run_on(made, steps=1)
        trace = run_on(made, steps=5)
    spans = [span for span in trace.spans if span.activity == "collective" and span.rank == 0]
    least_s = 1.5 * nbytes * 1514 / 1448 / rate
    assert min(span.end_s - span.start_s for span in spans) > least_s - 6 * (module.BURST_S + 4096 / rate)


# --- refused ---------------------------------------------------------------------------------------------------------


def test_without_root_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(NoHosts, match="needs root"), hosts(2, bytes_per_s=RATE):
        raise AssertionError("no hosts without root")


def test_without_iproute2_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(NoHosts, match="found no program ip and no tc; hosts need iproute2"), hosts(2, bytes_per_s=RATE):
        raise AssertionError("no hosts without iproute2")


@pytest.mark.parametrize(("count", "rate"), [(0, 1e6), (251, 1e6), (2, 0.0), (2, float("nan"))])
def test_sizes_that_make_no_sense(count: int, rate: float) -> None:
    with pytest.raises(NoHosts, match="expected 1 to 250 and a rate above 0"), hosts(count, bytes_per_s=rate):
        raise AssertionError("no such hosts")


def test_a_rank_of_a_node_without_a_host_is_refused() -> None:
    team = build_team(find("sync-sgd")(), [[Rank(0)], [Rank(1)]], Layout(()))
    with pytest.raises(NoHosts, match="found 1 host for 2 nodes"):
        module.Hosts(names=("one",), switch="none").check(team)
