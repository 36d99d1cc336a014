"""The assignment of ranks to processes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from paceline.algorithms import find
from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.method import build_team
from paceline.algorithms.core.values import Layout, Rank
from paceline.algorithms.methods.parameter_server import AsyncSgd
from paceline.backend.multihost.rank_mapping import Host, RankMapping, map_ranks, refuse
from tests.support import Bowl, job_of


def hosts(*counts: int) -> tuple[Host, ...]:
    """Returns hosts with these numbers of processes, numbered in order."""
    ends = [sum(counts[: index + 1]) for index in range(len(counts))]
    return tuple(Host(f"h{i}", tuple(range(end - counts[i], end))) for i, end in enumerate(ends))


def seated(name: str, nodes: Sequence[int], on: tuple[Host, ...]) -> RankMapping:
    placed = [list(map(Rank, host.processes)) for host in hosts(*nodes)]
    return map_ranks(on, build_team(find(name)(), placed, Layout(())))


def ranks(mapping: RankMapping) -> list[list[int]]:
    return [[int(rank) for rank in mapping.on(index)] for index in range(len(mapping.hosts))]


@pytest.mark.parametrize(
    ("name", "nodes", "on", "expected"),
    [
        ("sync-sgd", [2, 2], [4], [[0, 1, 2, 3]]),
        ("sync-sgd", [2, 2], [2, 2], [[0, 1], [2, 3]]),
        ("sync-sgd", [2, 2], [4, 4], [[0, 1], [2, 3]]),  # distributed evenly, although the first host had room
        ("async-sgd", [2, 2], [3, 3], [[0, 1, 4], [2, 3]]),
        ("async-sgd", [2, 2], [2, 3], [[0, 1], [2, 3, 4]]),
        ("sync-sgd", [1, 2], [1, 2], [[0], [1, 2]]),
        ("sync-sgd", [2, 1], [1, 2], [[2], [0, 1]]),  # the first node does not fit on its assigned host
        ("sync-sgd", [4], [2, 2], [[0, 1], [2, 3]]),  # no host has room for all of it
        ("sequential-sgd", [2, 2], [2, 2], [[0], []]),
        ("sync-sgd", [1, 1, 1, 1], [2, 2], [[0, 1], [2, 3]]),
    ],
)
def test_nodes_keep_together(name: str, nodes: list[int], on: list[int], expected: list[list[int]]) -> None:
    assert ranks(seated(name, nodes, hosts(*on))) == expected


def test_several_servers_are_on_the_nodes_in_turn() -> None:
    def on_hosts(servers: int, *processes: int) -> list[list[int]]:
        placed = [[Rank(0), Rank(1)], [Rank(2)], [Rank(3), Rank(4)]]
        return ranks(map_ranks(hosts(*processes), build_team(AsyncSgd(servers=servers), placed, Bowl().layout)))

    assert on_hosts(3, 4, 4, 4) == [[0, 1, 5], [2, 6], [3, 4, 7]]
    assert on_hosts(4, 4, 4, 4) == [[0, 1, 5, 8], [2, 6], [3, 4, 7]]
    assert on_hosts(2, 2, 3, 3) == [[0, 1], [2, 5, 6], [3, 4]]  # the host of the first node is full
    team = build_team(AsyncSgd(servers=4), [[Rank(0)], [Rank(1)]], Bowl().layout)
    assert [me.host for me in team] == [0, 1, 0, 1, 0, 1]


def test_servers_of_several_hosts_are_not_evaluated_during_a_run() -> None:
    scored = job_of(AsyncSgd(servers=2), 2, steps=9, accuracy=0.9)
    with pytest.raises(InputError, match=r"async-sgd: its 2 servers are on more than one host, .* no stop.accuracy"):
        refuse(hosts(2, 2), {"async-sgd": scored})
    refuse(hosts(4), {"async-sgd": scored})
    refuse(hosts(2, 2), {"async-sgd": job_of(AsyncSgd(servers=2), 2, steps=9, divergence=True)})


def test_everybody_finds_a_seat_of_their_own() -> None:
    mapping = seated("async-sgd", [3, 2, 1], hosts(2, 2, 2, 2))
    assert sorted(map(int, mapping.rank_of.values())) == list(range(7))
    assert len(mapping.rank_of) == 7


def test_too_few_processes_are_told_how_many() -> None:
    jobs = {"sync-sgd": job_of(find("sync-sgd")(), 4, steps=1), "async-sgd": job_of(find("async-sgd")(), 4, steps=1)}
    message = r"found 4 processes, and async-sgd has 5 ranks, its server included; start 5 or more"
    with pytest.raises(InputError, match=message):
        refuse(hosts(2, 2), jobs)
    refuse(hosts(3, 2), jobs)


def test_shared_memory_does_not_reach_from_host_to_host() -> None:
    together = [list(map(Rank, range(4)))]
    jobs = {"hogwild-sgd": job_of(find("hogwild-sgd")(), steps=1, nodes=together)}
    with pytest.raises(InputError, match=r"hogwild-sgd: its 4 workers share memory, and are on more than one host"):
        refuse(hosts(2, 2), jobs)
    refuse(hosts(2, 4), jobs)


def test_lines_and_record_say_the_same() -> None:
    mapping = seated("async-sgd", [1, 1], hosts(2, 2))
    assert mapping.lines[0] == "host 0 (h0): process 0 is rank 0 (worker, leader), process 1 is rank 2 (server)"
    assert mapping.lines[1] == "host 1 (h1): process 2 is rank 1 (worker, leader), process 3 takes no part"
    assert [(one["rank"], one["role"], one["process"], one["host"]) for one in mapping.record()] == [
        (0, "worker, leader", 0, 0),
        (1, "worker, leader", 2, 1),
        (2, "server", 1, 0),
    ]
