"""Execution traces of Chakra: read back, replayed, malformed, and without protobuf."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simpy
from typer.testing import CliRunner

from paceline import load, simulate
from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.operations import AllReduce
from paceline.algorithms.core.values import Group, Rank
from paceline.cli.app import app
from paceline.records import Run
from paceline.records.store import read_run, save
from paceline.reports.export.chakra import traced
from paceline.reports.export.export_run import export_run
from paceline.simulator.kernel.clock import VirtualClock
from paceline.simulator.kernel.simpy_events import upon
from paceline.simulator.runs.cost_model import modelled
from paceline.topologies.importing import chakra
from tests.made_up import run as run_of

METHODS: dict[str, Any] = {
    "sync-sgd": "sync-sgd",
    "layerwise-sgd": {"name": "layerwise-sgd", "bucket": 1000},
    "diloco": {"name": "diloco", "period": 5},
    "async-sgd": "async-sgd",
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """A stored run of each method."""
    folder = tmp_path_factory.mktemp("runs")
    sets = ["stop.epochs=2", "workload.learning=none", "workload.model=digits-cnn", "cluster.network.link=eth-1g"]
    made = {}
    for name, method in METHODS.items():
        (run,) = simulate(load({**load("quickstart", sets).dump(), "algorithms": [method]}))
        stored = save(run, folder)
        assert stored.path is not None
        made[name] = read_run(stored.path)
    return made


@pytest.fixture(params=METHODS)
def run(request: pytest.FixtureRequest, runs: dict[str, Run]) -> Run:
    return runs[request.param]


def exported(run: Run, folder: Path) -> dict[int, Sequence[Any]]:
    """The nodes of each rank of an exported run."""
    out = export_run(run, "chakra", folder / "out")
    files = {int(path.name.split(".")[-2]): path for path in out.glob("*.et")}
    return {rank: chakra.read(files[rank]).nodes for rank in sorted(files)}


def test_an_export_reads_back_with_the_same_dependencies_counts_and_bytes(run: Run, tmp_path: Path) -> None:
    ranks, read = traced(run), exported(run, tmp_path)
    assert list(read) == [int(rank) for rank in ranks]
    for rank, activities in ranks.items():
        nodes = read[int(rank)]
        assert [(node.id, tuple(node.data_deps), tuple(node.ctrl_deps)) for node in nodes] == [
            (activity.number, activity.data, activity.control) for activity in activities
        ]
        spans = [activity.span for activity in activities]
        assert [chakra.attributes(node)["bytes"] for node in nodes] == [span.bytes for span in spans]
        assert [node.duration_micros for node in nodes] == pytest.approx(
            [1e6 * (span.end_s - span.start_s) for span in spans], abs=1.0
        )


def test_counts_and_bytes_are_those_of_the_stored_tables(run: Run, tmp_path: Path) -> None:
    nodes = [(rank, node) for rank, of_rank in exported(run, tmp_path).items() for node in of_rank]
    spans = run.tables.spans
    for activity in ("compute", "update", "load"):
        counted = Counter(rank for rank, node in nodes if chakra.attributes(node)["activity"] == activity)
        assert counted == Counter(spans.loc[spans["activity"] == activity, "rank"].tolist())
    attributes = [chakra.attributes(node) for _, node in nodes]
    sent = sum(entry["bytes"] for entry in attributes if entry["activity"] != "receive")
    assert sent == spans["bytes"].sum() > 0


def test_waits_of_the_program_are_dependencies(runs: dict[str, Run], tmp_path: Path) -> None:
    nodes = exported(runs["layerwise-sgd"], tmp_path)[0]
    by_id = {node.id: node for node in nodes}
    collectives = [node for node in nodes if node.type == chakra.NODE_TYPES["COMM_COLL_NODE"]]
    layers = {chakra.attributes(node)["layer"] for node in nodes if node.name.startswith("compute")}
    assert len(layers) > 1
    for node in collectives:  # each waits for the gradient of its own layers
        assert any(by_id[number].name.startswith("compute") for number in node.data_deps)
    updates = [node for node in nodes if node.name == "update"]
    kinds = {by_id[number].name for node in updates for number in node.data_deps}
    assert "collective" in kinds


def replayed_s(run: Run, ranks: dict[int, Sequence[Any]]) -> float:
    """The end of a trace whose communication the network of the run's cluster times again."""
    (plan,) = load(dict(run.scenario)).plans()
    env, network = VirtualClock(), modelled(plan).network
    network.attach(env)
    done = {(rank, node.id): env.event() for rank, nodes in ranks.items() for node in nodes}
    arrived: dict[tuple[int, ...], simpy.Event] = defaultdict(env.event)
    meetings: dict[tuple[str, int], list[Any]] = defaultdict(lambda: [0, env.event()])
    everyone = Group(tuple(map(Rank, ranks)))

    def performed(rank: int, node: Any, place: int) -> Generator[simpy.Event, Any, None]:
        yield env.all_of([done[rank, number] for number in (*node.data_deps, *node.ctrl_deps)])
        about = chakra.attributes(node)
        if node.type == chakra.NODE_TYPES["COMM_COLL_NODE"]:
            group = everyone if about["pg_name"] == "0" else Group(tuple(map(Rank, range(len(ranks) - 1))))
            meeting = meetings[about["pg_name"], place]
            meeting[0] += 1
            if meeting[0] == len(group):
                value: Any = np.zeros(about["comm_size"], np.uint8)
                over = network.collective(AllReduce(value=value, group=group, key=str(place)), value.nbytes, "")
                upon(over, lambda _: meeting[1].succeed())
            yield meeting[1]
        elif node.type == chakra.NODE_TYPES["COMM_RECV_NODE"]:
            yield arrived[about["comm_src"], about["comm_dst"], about["comm_tag"]]
        elif node.type == chakra.NODE_TYPES["COMM_SEND_NODE"]:
            key = about["comm_src"], about["comm_dst"], about["comm_tag"]
            message = network.message(Rank(key[0]), Rank(key[1]), about["comm_size"])
            upon(message, lambda _: arrived[key].succeed())
            yield env.timeout(node.duration_micros * 1e-6)
        else:
            yield env.timeout(node.duration_micros * 1e-6)
        done[rank, node.id].succeed()

    for rank, nodes in ranks.items():
        places: Counter[str] = Counter()
        for node in nodes:
            name = chakra.attributes(node).get("pg_name", "")
            env.process(performed(rank, node, places[name]))
            places[name] += 1
    env.run()
    assert all(event.processed for event in done.values())
    return float(env.now)


def test_a_replay_takes_as_long_as_the_run(run: Run, tmp_path: Path) -> None:
    assert run.summary["wall_s"] > 0.1
    assert replayed_s(run, exported(run, tmp_path)) == pytest.approx(run.summary["wall_s"], rel=0.02)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda content: content[:-3], "the file is cut off"),
        (lambda _: b"", "found no nodes"),
        (lambda content: content[:1] + b"\xff" * (len(content) - 1), "not of its schema"),
        (lambda content: b"\xff" * len(content), "no length of a message"),
        (lambda content: content + content[8:], "several nodes with the same id"),
    ],
)
def test_a_malformed_file_is_refused(change: Any, words: str, runs: dict[str, Run], tmp_path: Path) -> None:
    out = export_run(runs["sync-sgd"], "chakra", tmp_path / "out")
    path = next(out.glob("*.0.et"))
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(InputError, match=words):
        chakra.read(path)


def test_a_measured_run_is_refused_by_the_command(tmp_path: Path) -> None:
    stored = save(run_of("sync-sgd", "measured"), tmp_path)
    out = tmp_path / "out"
    result = CliRunner().invoke(app, ["export", str(stored.path), "--format", "chakra", "--out", str(out)])
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.endswith("found a measured run; expected a simulated one, whose operations can be repeated")
    assert not out.exists()


def test_without_protobuf_the_command_says_what_to_install(
    runs: dict[str, Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    chakra.classes.cache_clear()
    place = str(runs["sync-sgd"].path)
    result = CliRunner().invoke(app, ["export", place, "--format", "chakra", "--out", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert "pip install 'paceline[chakra]'" in result.stderr
