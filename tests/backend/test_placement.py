"""The cores that ranks get: on described machines, and on this one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from paceline.algorithms import find
from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.method import RankContext, Replica, build_team
from paceline.algorithms.core.operations import Barrier
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.values import Layout, Rank, Step
from paceline.backend.devices.cpu_affinity import Pin, found_domains, placement
from paceline.backend.local.launch import Launch, run_job
from paceline.backend.training import train
from paceline.cli.app import app
from paceline.records.trace import Schedule
from paceline.testing.contract.programs import ContractProgram
from tests.support import ONE_NODE, TWO_BY_TWO, job_of, placed

TWO_SOCKETS = [[0, 1, 2, 3], [4, 5, 6, 7]]


def team(nodes: Sequence[Sequence[int]], method: str = "sync-sgd") -> tuple[RankContext, ...]:
    return build_team(find(method)(), [list(map(Rank, node)) for node in nodes], Layout(()))


def test_cores_gives_each_rank_its_own() -> None:
    found = placement("cores", team(TWO_BY_TWO), 2, TWO_SOCKETS)
    assert found.cores == {0: (0, 1), 1: (2, 3), 2: (4, 5), 3: (6, 7)}
    assert found.why == "8 cores for 4 ranks of 2 threads"


def test_auto_pins_where_a_core_is_left_for_others() -> None:
    found = placement("auto", team(TWO_BY_TWO), 1, TWO_SOCKETS)
    assert found == placement("cores", team(TWO_BY_TWO), 1, TWO_SOCKETS)
    assert found.cores == {0: (0,), 1: (1,), 2: (2,), 3: (3,)}
    assert placement("auto", team(TWO_BY_TWO), 2, TWO_SOCKETS).words == (
        "not pinned (8 cores for 4 ranks of 2 threads, and none left over)"
    )


def test_auto_leaves_ranks_alone_where_there_are_not() -> None:
    """A server is a rank, too."""
    assert placement("auto", team(ONE_NODE), 1, [[0, 1, 2, 3, 4]]).pinned == "cores"
    found = placement("auto", team(ONE_NODE, "async-sgd"), 1, [[0, 1, 2, 3]])
    assert (found.pinned, found.cores) == ("none", {})
    assert found.words == "not pinned (4 cores for 5 ranks of 1 thread)"


def test_cores_that_are_not_there_are_refused() -> None:
    with pytest.raises(
        InputError, match=r"train\.cpu_affinity: found cores, with 1 core for 2 ranks .*; expected 2 cores or mo"
    ):
        placement("cores", team([[0, 1]]), 1, [[0]])


@pytest.mark.parametrize("pin", ["none", "auto", "numa"])
def test_what_cannot_be_pinned_is_not(pin: Pin) -> None:
    assert placement(pin, team(TWO_BY_TWO), 1, []).pinned == "none"
    assert placement("none", team(TWO_BY_TWO), 1, TWO_SOCKETS).why == "train.cpu_affinity is none"


def test_numa_gives_each_node_one_in_turn() -> None:
    found = placement("numa", team([[0, 1], [2], [3]]), 1, TWO_SOCKETS)
    low, high = map(tuple, TWO_SOCKETS)
    assert (found.pinned, found.cores) == ("numa", {0: low, 1: low, 2: high, 3: low})
    assert "one NUMA node" in placement("numa", team(TWO_BY_TWO), 1, [[0, 1, 2, 3]]).why


def test_a_node_stays_in_one_numa_node_where_it_fits() -> None:
    """The second one skips the two cores that the first one has left, and the third one gets them."""
    found = placement("cores", team([[0, 1], [2, 3, 4], [5, 6]]), 1, [[0, 1, 2, 3], [8, 9, 10, 11]])
    assert [found.cores[Rank(rank)] for rank in range(7)] == [(0,), (1,), (8,), (9,), (10,), (2,), (3,)]


@given(
    counts=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    threads=st.integers(1, 3),
)
def test_no_two_ranks_share_a_core(counts: list[int], sizes: list[int], threads: int) -> None:
    """Each thread gets a core, and one remains; or no rank has a core of its own."""
    cores = iter(range(100))
    domains = [[next(cores) for _ in range(size)] for size in sizes]
    found = placement("auto", team(placed(counts)), threads, domains)
    given_away = list(chain.from_iterable(found.cores.values()))
    assert len(set(given_away)) == len(given_away)
    assert set(given_away) <= set(chain.from_iterable(domains))
    expected = threads * sum(counts) if threads * sum(counts) < sum(sizes) else 0
    assert len(given_away) == expected
    assert all(len(cores) == threads for cores in found.cores.values())


def test_numa_nodes_are_read_as_linux_lists_them(tmp_path: Path) -> None:
    """Cores that this process may not use are left out; without a list, there is one node."""
    mine = sorted(os.sched_getaffinity(0))
    for number, text in ((10, f"{mine[0]},900-903\n"), (2, "904\n"), (3, "\n")):
        (tmp_path / f"node{number}").mkdir()
        (tmp_path / f"node{number}" / "cpulist").write_text(text)
    assert found_domains(tmp_path) == [[mine[0]]]
    assert found_domains(tmp_path / "missing") == [mine]
    assert sorted(chain.from_iterable(found_domains())) == mine


# --- for real --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Where(ContractProgram):
    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[Any]:
        yield from Barrier(group=me.node, key="here")
        return sorted(os.sched_getaffinity(0))


def ran(pin: Pin, ranks: int, threads: int = 1) -> tuple[list[list[int]], dict[str, Any]]:
    """Returns the cores of each rank, and those in the record."""
    job = job_of(Where(), nodes=[list(range(ranks))], steps=1)
    trace = run_job(Launch(job=job, schedule=lambda: Schedule(every=1), cpu_affinity=pin, torch_threads=threads))
    return [trace.states[Rank(rank)].optimizer_state for rank in range(ranks)], trace.notes["placement"]


@pytest.mark.backend
def test_ranks_are_where_the_record_says_and_the_launcher_is_not_moved() -> None:
    before = os.sched_getaffinity(0)
    where, record = ran("auto", 1)
    assert record["pinned"] == "cores" and record["cores"] == {"0": where[0]}
    assert len(where[0]) == 1
    where, record = ran("auto", 1, threads=len(before) + 1)
    assert record["pinned"] == "none" and where == [sorted(before)]
    assert ran("none", 2)[0] == [sorted(before)] * 2
    assert os.sched_getaffinity(0) == before


SCENARIO: dict[str, Any] = {
    "name": "crowded",
    "algorithms": ["sync-sgd"],
    "workload": {"model": "quadratic", "learning": "quadratic"},
    "cluster": {
        "nodes": [{"device": {"name": "any", "overhead": "5 ms", "per_sample": "0.1 ms"}, "workers_per_node": 2}],
        "network": {"link": "eth-10g"},
    },
    "stop": {"updates": 3},
}


@pytest.mark.backend
def test_training_refuses_cores_that_are_not_there_before_it_begins() -> None:
    with pytest.raises(InputError, match=r"train\.cpu_affinity: found cores, with .* for 2 ranks of 1024 threads"):
        train(SCENARIO | {"train": {"cpu_affinity": "cores", "torch_threads": 1024}})


@pytest.mark.backend
def test_verbose_training_says_where_ranks_were(tmp_path: Path) -> None:
    (tmp_path / "crowded.yaml").write_text(yaml.safe_dump(SCENARIO | {"train": {"cpu_affinity": "none"}}))
    words = ["train", str(tmp_path / "crowded.yaml"), "--out", str(tmp_path / "out"), "--verbose"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.stderr
    assert "  not pinned (train.cpu_affinity is none)\n" in result.stderr
