"""Stored results of sweeps: what changes a point's key, and what a reader finds after a process was killed."""

from __future__ import annotations

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from paceline.reports.sweeps import point_store
from paceline.reports.sweeps.point_store import ABANDONED_S, PointStore, key_of, model_version
from paceline.reports.sweeps.sweep import _planned, keys_of
from paceline.scenarios import load
from paceline.scenarios.resolution.grid import Point

METHOD = """
from paceline.algorithms.methods.synchronous import SyncSgd


class Mine(SyncSgd):
    pass
"""


def key(*changes: str, algorithm: str = "agd", seed: int = 3) -> str:
    """The key of one run of a sweep with one point."""
    point = Point(values={}, scenario=load("quickstart", [f"seed={seed}", *changes]))
    keys = {(run.algorithm, run.seed): key_of(alone.dump(), run.algorithm) for run, alone in _planned([point], None)}
    assert sorted(keys.values()) == sorted(keys_of([point]))
    return keys[algorithm, seed]


@pytest.mark.parametrize(
    "changed",
    [
        key("workload.batch_per_worker=3"),
        key("cluster.nodes[0].count=2"),
        key("algorithms.agd.delay=4"),
        key("stop.epochs=0.5"),
        key(seed=4),
        key(algorithm="sync-sgd"),
    ],
)
def test_what_changes_the_result_changes_the_key(changed: str) -> None:
    assert changed != key()


def test_other_algorithms_and_seeds_do_not_change_the_key() -> None:
    assert key("algorithms=[agd]", "seeds=7", "seed=2") == key()


def test_the_key_does_not_depend_on_how_values_are_written() -> None:
    assert key("cluster.network.link={latency: 2 us, bandwidth: 8 Gbit/s}") == key(
        "cluster.network.link={bandwidth: 1 GB/s, latency: 0.002 ms}"
    )


def test_an_edited_source_file_changes_every_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def version(content: str) -> str:
        (tmp_path / "paceline/simulator").mkdir(parents=True, exist_ok=True)
        (tmp_path / "paceline/simulator/engine.py").write_text(content)
        monkeypatch.setattr("paceline.__path__", [str(tmp_path / "paceline")])
        model_version.cache_clear()
        return model_version()

    try:
        assert version("one = 1") == version("one = 1") != version("one = 2")
    finally:
        monkeypatch.undo()
        model_version.cache_clear()
    before = key()
    monkeypatch.setattr(point_store, "model_version", lambda: "of tomorrow")
    assert key() != before


def test_an_edited_method_of_ones_own_changes_its_key(tmp_path: Path) -> None:
    source = tmp_path / "mine.py"
    found = []
    for content in (METHOD, METHOD, METHOD + "    periods = 3\n"):
        source.write_text(content)
        found.append(key_of({"algorithms": [{"name": f"{source}:Mine"}]}, "mine"))
    assert found[0] == found[1] != found[2]


def test_an_edited_data_set_changes_the_key(tmp_path: Path) -> None:
    (tmp_path / "train.bin").write_bytes(b"12")
    dump = {"workload": {"data_dir": str(tmp_path)}}
    before = key_of(dump, "agd")
    (tmp_path / "train.bin").write_bytes(b"123")
    assert key_of(dump, "agd") != before


def test_numbers_survive_exactly(tmp_path: Path) -> None:
    store = PointStore(tmp_path / "points")
    store.put("ab12", {"wall_s": np.float64(0.1) + 0.2, "steps": np.int64(7), "none": None, "order": {"b": 1, "a": 2}})
    found = store.get("ab12")
    assert found == {"wall_s": 0.1 + 0.2, "steps": 7, "none": None, "order": {"b": 1, "a": 2}}
    assert list(found["order"]) == ["b", "a"]  # pyright: ignore[reportOptionalSubscript]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": 1}', '{"format": 0, "key": "ab12", "row": {}}', '"x"'])
def test_what_cannot_be_read_is_missing(content: str, tmp_path: Path) -> None:
    store = PointStore(tmp_path)
    store.put("ab12", {"steps": 1})
    (path,) = tmp_path.glob("*/*.json")
    path.write_text(content)
    assert store.get("ab12") is None
    store.put("ab12", {"steps": 2})
    assert store.get("ab12") == {"steps": 2}


def test_a_file_under_the_wrong_name_is_missing(tmp_path: Path) -> None:
    store = PointStore(tmp_path)
    store.put("ab12", {"steps": 1})
    (tmp_path / "ab/ab12.json").rename(tmp_path / "ab/ab34.json")
    assert store.get("ab34") is None


def test_a_row_that_is_no_json_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        PointStore(tmp_path).put("ab12", {"steps": object()})
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_several_writers_and_readers_see_whole_rows(tmp_path: Path) -> None:
    row = {"values": list(range(5000))}

    def write_and_read(_: int) -> bool:
        store = PointStore(tmp_path)
        store.put("ab12", row)
        return store.get("ab12") == row

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(write_and_read, range(64)))
    assert [path.name for path in tmp_path.rglob("*.json")] == ["ab12.json"]


def test_files_of_killed_writers_are_removed_when_they_are_old(tmp_path: Path) -> None:
    (tmp_path / "ab").mkdir()
    old, new = tmp_path / "ab/.ab12-old", tmp_path / "ab/.ab12-new"
    for path in (old, new):
        path.write_text(json.dumps({})[:1])
    then = time.time() - ABANDONED_S - 1
    os.utime(old, (then, then))
    PointStore(tmp_path)
    assert not old.exists() and new.exists()
