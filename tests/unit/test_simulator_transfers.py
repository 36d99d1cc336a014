"""Lists of flows: known results, the number of solves, mistakes, and the benchmark with case files."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.network_engine.transfers import Pipe, Transfer, transfer_all
from paceline.simulator.flows import max_min
from paceline.simulator.flows.max_min import add_flow, fair_rates, network

ROOT = Path(__file__).parents[2]


def at(start_s: float, nbytes: float, *route: str) -> Transfer:
    return Transfer(start_s=start_s, nbytes=nbytes, route=route)


@pytest.mark.parametrize(
    ("flows", "capacity", "rates"),
    [  # progressive filling, as checked by an independent solver
        (["ab", "a", "b"], {"a": 1.0, "b": 1.0}, [0.5, 0.5, 0.5]),
        (["ab", "a", "b"], {"a": 1.0, "b": 2.0}, [0.5, 0.5, 1.5]),
        (["abc", "a", "b", "b", "c"], {"a": 1.0, "b": 1.0, "c": 1.0}, [1 / 3, 2 / 3, 1 / 3, 1 / 3, 2 / 3]),
        (["0p", "1p", "2p", "3p", "4p", "5p", "6p", "7p"], dict.fromkeys("01234567", 0.5) | {"p": 1.0}, [0.125] * 8),
        (["0p", "1p"], {"0": 0.25, "1": 0.25, "p": 1.0}, [0.25, 0.25]),
    ],
)
def test_rates_that_are_known(flows: list[str], capacity: dict[str, float], rates: list[float]) -> None:
    assert fair_rates([tuple(flow) for flow in flows], capacity) == pytest.approx(rates, rel=1e-15)


def test_latency_comes_first_and_bytes_then_share() -> None:
    pipes = {"a": Pipe(bytes_per_s=100.0, latency_s=0.5), "b": Pipe(bytes_per_s=1000.0, latency_s=0.25)}
    # alone on `a` from 0.75 to 1.0 the first moves 25 bytes; then each moves 50 until 2.0
    assert transfer_all(pipes, [at(0.0, 75, "a", "b"), at(0.5, 100, "a")])[0] == [2.0, 2.5]


def test_nothing_to_send_and_nowhere_to_go() -> None:
    pipes = {"a": Pipe(bytes_per_s=1.0, latency_s=0.5)}
    assert transfer_all(pipes, [at(1.0, 0, "a"), at(2.0, 9)])[0] == [1.5, 2.0]
    assert transfer_all(pipes, [])[0] == []


def test_a_limit_per_flow_is_not_shared() -> None:
    pipes = {"bus": Pipe(bytes_per_s=8.0), "each": Pipe(bytes_per_s=3.0, per_flow=True)}
    assert transfer_all(pipes, [at(0.0, 6, "bus", "each")] * 2)[0] == [2.0, 2.0]
    assert transfer_all(pipes, [at(0.0, 6, "bus", "each")] * 4)[0] == [3.0] * 4
    assert transfer_all(pipes, [at(0.0, 6, "each")])[0] == [2.0]


def test_a_flow_that_passes_a_link_twice_takes_twice_its_rate_there() -> None:
    assert transfer_all({"a": Pipe(bytes_per_s=1.0)}, [at(0.0, 1, "a", "a"), at(0.0, 1, "a")])[0] == [3.0, 3.0]


def test_simultaneous_changes_are_solved_once() -> None:
    pipes = {"a": Pipe(bytes_per_s=10.0), "b": Pipe(bytes_per_s=10.0)}
    first, second = [at(0.0, 1, "a")] * 10 + [at(0.0, 1, "b")] * 10, [at(1.0, 1, "a")] * 7
    assert transfer_all(pipes, first + second)[1] == 3  # all begin; all end as others begin; those end


def test_only_what_a_change_touches_is_solved_again() -> None:
    net = network([10.0, 10.0, 1.0])
    for route in ([0], [0], [1], [1, 2], [2]):
        max_min.enter(net, add_flow(net, route, 1.0), 0.0)
    max_min.solve(net, 0.0)
    max_min.leave(net, 0, 0.05)
    max_min.solve(net, 0.05)
    assert [link.turn for link in net.links] == [1, 0, 0]
    assert [flow.rate for flow in net.flows[1:]] == [10.0, 9.5, 0.5, 0.5]
    assert [flow.since for flow in net.flows[1:]] == [0.05, 0.0, 0.0, 0.0]


def test_machine_code_says_what_the_source_says() -> None:
    rng = np.random.default_rng(5)
    pipes = {name: Pipe(bytes_per_s=1000.0 * (1 + ord(name) % 3), latency_s=0.001) for name in "abcdefgh"}
    transfers = [
        at(float(rng.uniform(0.0, 50.0)), int(rng.integers(1, 1000)), *rng.choice(list("abcdefgh"), 3, replace=False))
        for _ in range(300)
    ]
    assert transfer_all(pipes, transfers, compiled=True) == transfer_all(pipes, transfers, compiled=False)


def test_every_part_is_compiled() -> None:
    solving = {max_min.solve, max_min.fill, max_min.recount, max_min.free_fastest, max_min.freeze, max_min.release_held}
    changing = {max_min.enter, max_min.leave, max_min.free, max_min.account, max_min.until, max_min.together}
    heap = {max_min.put, max_min.take, max_min.least, max_min.sift_up, max_min.sift_down}
    assert max_min.called_by(max_min.play) == solving | changing | heap
    assert max_min.called_by(max_min.enter_anew) == {
        max_min.enter,
        max_min.free,
        max_min.put,
        max_min.sift_up,
        max_min.sift_down,
    }


def benchmark(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "benchmarks/network.py", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("finish_s", "code"), [([1.5, 2.5], 0), ([1.5, 2.5 * (1 + 2e-9)], 1)])
def test_case_files_are_judged(tmp_path: Path, finish_s: list[float], code: int) -> None:
    case = {
        "name": "two",
        "links": [{"name": "L", "bandwidth_Bps": 100.0, "latency_s": 0.5, "policy": "shared"}],
        "routes": [{"src": "x", "dst": "y", "links": ["L"]}],
        "flows": [
            {"id": 0, "src": "x", "dst": "y", "start_s": 0.0, "bytes": 50},
            {"id": 1, "src": "x", "dst": "y", "start_s": 0.0, "bytes": 150},
        ],
        "finish_s": finish_s,
    }
    (tmp_path / "two.json").write_text(json.dumps(case))
    done = benchmark("--cases", str(tmp_path), "--json")
    assert done.returncode == code
    answer = json.loads(done.stdout)
    assert answer["largest_relative_difference"] == answer["cases"][0]["difference"] == pytest.approx(2e-9 * code)


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    case = {
        "name": "one",
        "links": [{"name": "a", "bandwidth_Bps": 0.0, "latency_s": 0.0, "policy": "shared"}],
        "routes": [{"src": 0, "dst": 1, "links": ["a"]}, {"src": 1, "dst": 0, "links": ["b"]}],
        "flows": [
            {"id": 0, "src": 0, "dst": 1, "start_s": -1.0, "bytes": 1},
            {"id": 1, "src": 1, "dst": 0, "start_s": 0.0, "bytes": 1},
        ],
        "finish_s": [0.0, 0.0],
    }
    (tmp_path / "one.json").write_text(json.dumps(case))
    done = benchmark("--cases", str(tmp_path))
    assert done.returncode == 2
    assert done.stderr.removeprefix("error: ").splitlines() == [
        "pipe 'a': found 0.0 bytes/s and a latency of 0.0 s, expected more than 0 bytes/s and 0 s or more, both finite",
        "transfer 0: found 1 bytes at -1.0 s, expected 0 or more of each",
        "transfer 1: found unknown pipes in its route: b",
    ]


def test_an_unknown_policy_is_refused(tmp_path: Path) -> None:
    link = {"name": "L", "bandwidth_Bps": 100.0, "latency_s": 0.5, "policy": "wifi"}
    (tmp_path / "one.json").write_text(json.dumps({"name": "one", "links": [link]}))
    done = benchmark("--cases", str(tmp_path))
    assert done.returncode == 2
    assert done.stderr == "error: one.json: link L: found the policy 'wifi'; there are shared, fatpipe\n"
