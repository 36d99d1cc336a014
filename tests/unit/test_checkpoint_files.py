"""Checkpoints on disk: they are read as written, an incomplete one is ignored, and reading runs no code."""

from __future__ import annotations

import dataclasses
import io
import pickle
import shutil
import tempfile
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from paceline.algorithms.core.checksums import checksum, checksums_in
from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.method import Replica
from paceline.algorithms.core.operations import Handle
from paceline.algorithms.core.values import Contribution, Null, Rank, Weights
from paceline.algorithms.methods.layerwise import BucketsInFlight, Delayed
from paceline.algorithms.runtime.handles import Promise, answered
from paceline.backend.rank.checkpoint import (
    Checkpoint,
    Mark,
    RankPart,
    Restricted,
    Saving,
    find_last,
    record_of,
    steps_in,
)
from paceline.backend.rank.checkpoint_parts import read_part, write_part
from paceline.backend.rank.communication import RankHandles
from paceline.backend.training import differences, plan_of, resume_point, saving_of
from paceline.cli.app import app
from paceline.cli.options import EXIT_INPUT
from paceline.records.learned import Kept, Learned
from paceline.records.trace import Reads, Schedule, Snapshot, Span
from paceline.scenarios import load
from paceline.scenarios.values.mistakes import ScenarioError
from tests.stored import flip, rewrite
from tests.support import built, job_of

SCENARIO = {
    "name": "cut",
    "algorithms": ["sync-sgd", "async-sgd"],
    "workload": {"model": "digits-mlp", "dataset": "digits", "batch_per_worker": 8},
    "cluster": {"nodes": [{"device": "p100", "count": 2}], "network": {"link": "eth-10g"}},
    "train": {"pace": "none", "checkpoint": {"every": "10 updates"}},
    "stop": {"updates": 60},
}


def part_of(state: Any, learned: Kept | None = None) -> RankPart:
    return RankPart(state, learned, age=2, late_s=0.5, reads=Reads(1, 2, 3, 4.0))


def nothing(handle: Handle[Any]) -> Any:
    raise AssertionError(f"there is no {handle}")


# --- parts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int8, torch.bool])
def test_vectors_come_back_as_they_were(dtype: torch.dtype, tmp_path: Path) -> None:
    """Bit for bit, in their own types; an array that occurs twice is stored once."""
    vector = torch.tensor([0.1, float("nan"), -0.0, 3e38]).to(dtype)
    part = part_of(Replica(3, Weights(vector, 7), (vector, np.arange(4)[::2], np.array(2.5), np.float32(0.1))))
    checksums = write_part(tmp_path / "rank0", part, nothing)
    found, answers = read_part(tmp_path / "rank0", checksums)
    state = found.state
    assert (state.step, state.weights.version, answers) == (3, 7, {})
    assert state.weights.vector.dtype is dtype and state.weights.vector is state.optimizer_state[0]
    assert state.weights.vector.view(torch.uint8).tolist() == vector.view(torch.uint8).tolist()
    assert isinstance(state.optimizer_state[1], np.ndarray) and state.optimizer_state[1].tolist() == [0, 2]
    assert state.optimizer_state[2].shape == () and type(state.optimizer_state[3]) is np.float32
    assert dataclasses.replace(found, state=None) == part_of(None)


def test_a_part_without_numbers(tmp_path: Path) -> None:
    """Of a run without learning."""
    checksums = write_part(tmp_path / "rank0", part_of(Replica(1, Weights(Null(9), 1))), nothing)
    assert list(checksums) == ["state.pickle"]
    assert read_part(tmp_path / "rank0", checksums)[0].state.weights.vector == Null(9)


def test_handles_are_found_answered(tmp_path: Path) -> None:
    """With their answers, as one object wherever the state refers to it."""
    handle: Handle[Any] = Handle(Rank(1), 7)
    flight = BucketsInFlight((handle,), Contribution(Rank(1), 2, 2, 8))
    state = Delayed(3, Weights(np.zeros(2), 3), (flight, flight), None)
    checksums = write_part(tmp_path / "rank1", part_of(state), {handle: np.ones(2)}.__getitem__)
    found, answers = read_part(tmp_path / "rank1", checksums)
    (one,) = answers
    assert one == handle and answers[one].tolist() == [1.0, 1.0]
    assert [flight.means[0] is one for flight in found.state.flights] == [True, True]


def test_what_a_failed_attempt_left_is_replaced(tmp_path: Path) -> None:
    write_part(tmp_path / "rank0", part_of(Replica(1, Weights(np.zeros(2), 1))), nothing)
    checksums = write_part(tmp_path / "rank0", part_of(Replica(2, Weights(np.ones(2), 2))), nothing)
    assert read_part(tmp_path / "rank0", checksums)[0].state.weights.vector.tolist() == [1.0, 1.0]


FILES = ["state.pickle", "vectors/.metadata", "vectors/__0_0.distcp"]


def halved(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def replaced_by_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (halved, "is damaged: found checksum"),
        (lambda path: flip(path, path.stat().st_size // 2), "is damaged: found checksum"),
        (Path.unlink, r"cannot be read \(No such file"),
        (replaced_by_a_folder, r"cannot be read \(Is a directory"),
    ],
    ids=["halved", "flipped", "missing", "a folder"],
)
@pytest.mark.parametrize("file", FILES)
def test_a_damaged_part_is_refused(file: str, damage: Callable[[Path], None], words: str, tmp_path: Path) -> None:
    part = part_of(Replica(1, Weights(torch.zeros(200), 1)))
    checksums = write_part(tmp_path / "rank0", part, nothing)
    assert sorted(checksums) == FILES
    damage(tmp_path / "rank0" / file)
    with pytest.raises(InputError, match=f"rank0/{file}: {words}"):
        read_part(tmp_path / "rank0", checksums)


@pytest.mark.parametrize("file", FILES)
def test_a_part_with_a_right_checksum_may_still_be_unreadable(file: str, tmp_path: Path) -> None:
    """Every error of a parser names the file; each of these bytes raised something else."""
    part = part_of(Replica(1, Weights(torch.zeros(200), 1)))
    write_part(tmp_path / "rank0", part, nothing)
    whole = (tmp_path / "rank0" / file).read_bytes()
    for content in (
        b"",
        whole[:40],
        b"\x80\x05K\x01.",
        b"\x80\x05X\x04\0\0\0\xff\xff\xff\xff.",
        b"(lp0\nF1e999x\na.",
        b"b.",
    ):
        (tmp_path / "rank0" / file).write_bytes(content)
        with pytest.raises(InputError, match=r"rank0/(state\.pickle|vectors): cannot be read \("):
            read_part(tmp_path / "rank0", checksums_in(tmp_path / "rank0"))


class Colour(Enum):
    RED = 1


@pytest.mark.parametrize(
    "value", [Span(Rank(0), "main", "load", None, 1, 0.0, 1.0), Colour.RED, np.float64(1), {1, 2}, Null(3)]
)
def test_values_may_be_read(value: Any) -> None:
    assert Restricted(pickle_of(value)).load() == value


class Harmful:
    def __init__(self, what: Any) -> None:
        self.what = what

    def __reduce__(self) -> Any:
        return self.what, ("1 + 1",)


@pytest.mark.parametrize(
    "what",
    [eval, Path.write_text, pickle.loads, np.load, torch.load, Learned],
    ids=lambda what: f"{what.__module__}.{what.__name__}",
)
def test_anything_else_may_not(what: Any) -> None:
    with pytest.raises(pickle.UnpicklingError, match="which no checkpoint holds"):
        Restricted(pickle_of(Harmful(what))).load()


def pickle_of(value: Any) -> Any:
    import io

    return io.BytesIO(pickle.dumps(value))


# --- folders ---------------------------------------------------------------------------------------------------------


def made(folder: Path, *steps: int, keep: int = 2) -> Saving:
    saving = Saving(folder=folder / "checkpoints", every=5, keep=keep, about={"scenario": {}, "algorithm": "a"})
    for step in steps:
        saving.building(step).mkdir(parents=True)
        saving.commit(step, [Mark(1.0 * step, step, 10, "", {}), Mark(2.0 * step, step + 1, 20, "", {})])
    return saving


def test_the_last_ones_are_kept(tmp_path: Path) -> None:
    saving = made(tmp_path, 5, 10, 100)
    assert [path.name for path in steps_in(saving.folder)] == ["step-10", "step-100"]
    assert sorted(path.name for path in saving.folder.iterdir()) == ["step-10", "step-100"]
    last = find_last(tmp_path)
    assert (last.step, last.time_s, last.granted, last.ranks) == (100, 200.0, [100, 101], 2)
    assert find_last(tmp_path / "checkpoints/step-10").step == 10


def test_checkpoints_come_at_multiples_wherever_a_run_goes_on() -> None:
    saving = Saving(folder=Path(), every=10, keep=1, about={})
    assert [saving.following(step) for step in (0, 9, 10, 13)] == [10, 10, 20, 20]


def test_handles_are_numbered_after_those_of_the_checkpoint() -> None:
    recorder = SimpleNamespace(outcome=lambda *_: None)
    station: Any = SimpleNamespace(me=SimpleNamespace(rank=Rank(0)), recorder=recorder)
    started = RankHandles(station)
    started.restore(answered({Handle(Rank(0), 2): "old", Handle(Rank(0), 4): "old, too"}))
    assert started.give(Promise(lambda: "something")).number == 5


def test_a_checksum_covers_all_of_a_long_file(tmp_path: Path) -> None:
    content = bytes(range(256)) * 10_000
    (tmp_path / "long").write_bytes(content)
    assert checksums_in(tmp_path) == {"long": checksum(content)}


def test_what_is_not_whole_has_no_name(tmp_path: Path) -> None:
    saving = made(tmp_path, 5)
    (saving.building(10) / "rank0").mkdir(parents=True)
    assert find_last(tmp_path).step == 5
    last = saving.last()
    assert last is not None and last.step == 5
    assert not saving.building(10).exists()


def test_what_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"found no checkpoint there; expected the folder of a run"):
        find_last(tmp_path)
    made(tmp_path, 5)
    manifest = tmp_path / "checkpoints/step-5/manifest.json"
    written = manifest.read_text(encoding="utf-8")
    manifest.write_text(written[:20], encoding="utf-8")
    with pytest.raises(InputError, match=r"step-5/manifest\.json: not valid JSON"):
        find_last(tmp_path)
    manifest.write_text(written.replace('"step": 5', '"step": 6'), encoding="utf-8")
    with pytest.raises(InputError, match=r"step-5/manifest\.json: is damaged: found checksum"):
        find_last(tmp_path)
    manifest.write_text(written, encoding="utf-8")
    rewrite(manifest, lambda content: {key: content[key] for key in content if key != "files"})
    with pytest.raises(InputError, match=r"step-5/manifest\.json: cannot be read \(KeyError: 'files'\)"):
        find_last(tmp_path)
    manifest.write_text(written, encoding="utf-8")
    rewrite(manifest, lambda content: content | {"format": 99})
    with pytest.raises(InputError, match="format 99 is of a later Paceline; this one reads 1"):
        find_last(tmp_path)


def record(folder: Path, pieces: list[Any]) -> dict[str, Any]:
    """Writes a rank's record; returns its entry in a manifest."""
    record_of(folder, Rank(0)).parent.mkdir(parents=True, exist_ok=True)
    content = b"".join(map(pickle.dumps, pieces))
    record_of(folder, Rank(0)).write_bytes(content)
    return {"granted": [1], "record_bytes": [len(content)], "record_checksums": [checksum(content)]}


def test_the_record_ends_where_the_checkpoint_was(tmp_path: Path) -> None:
    """The rows behind belong to an incomplete checkpoint."""
    shot = Snapshot(0.0, 1, 8, torch.ones(3))
    said = record(tmp_path, [[("snapshot", shot)]])
    record(tmp_path, [[("snapshot", shot)], [("now", 2.0)]])
    checkpoint = Checkpoint(tmp_path / "step-5", said)
    checkpoint.check_record(Rank(0))
    checkpoint.copy_record(Rank(0), tmp_path / "stream")
    assert [(tmp_path / "stream").stat().st_size] == said["record_bytes"]
    ((_, found),) = pickle.loads((tmp_path / "stream").read_bytes())
    assert found.vector.tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("too short", r"found \d+ bytes, expected \d+"),
        ("missing", r"cannot be read \(No such file"),
        ("flipped", "is damaged: found checksum"),
        ("harmful", r"cannot be read \(UnpicklingError: found builtins\.eval"),
        ("no entries", r"cannot be read \(TypeError"),
        ("half a piece", r"cannot be read \(EOFError|UnpicklingError"),
    ],
)
def test_a_record_that_cannot_be_gone_on_with_is_refused(wrong: str, words: str, tmp_path: Path) -> None:
    said = record(tmp_path, [7 if wrong == "no entries" else [("now", Harmful(eval) if wrong == "harmful" else 2.0)]])
    place = record_of(tmp_path, Rank(0))
    if wrong == "missing":
        shutil.rmtree(tmp_path / "record")
    elif wrong == "flipped":
        flip(place, 20)
    elif wrong == "too short":
        said["record_bytes"][0] += 1
    elif wrong == "half a piece":
        content = place.read_bytes()[:-4]
        said |= {"record_bytes": [len(content)], "record_checksums": [checksum(content)]}
    checkpoint = Checkpoint(tmp_path / "step-5", said)
    with pytest.raises(InputError, match=rf"record/rank0\.stream: {words}"):
        checkpoint.check_record(Rank(0))


# --- what a checkpoint is of -----------------------------------------------------------------------------------------


def test_only_its_end_may_differ(tmp_path: Path) -> None:
    plans = load(SCENARIO).plans()
    saving = saving_of(plans[1], tmp_path)
    assert saving is not None and saving.every == 10
    saving.building(10).mkdir(parents=True)
    saving.commit(10, [Mark(1.0, 10, 0, "", {})] * 3)
    assert saving_of(load(SCENARIO, ["train.checkpoint=null"]).plans()[0], tmp_path) is None

    longer = load(SCENARIO, ["stop.updates=99", "stop.accuracy=0.95", "train.checkpoint.every=1 epoch"]).plans()
    assert plan_of(find_last(tmp_path), longer).job.method.name == "async-sgd"
    assert resume_point(longer[1], tmp_path / "elsewhere") is None
    found = resume_point(longer[1], tmp_path)
    assert found is not None and found.step == 10
    with pytest.raises(InputError, match=r"(?s)is of another run.*\n  seed: found 2, expected 1$"):
        plan_of(found, load(SCENARIO, ["seed=2"]).plans())


def test_every_difference_is_named() -> None:
    found = {"a": [1, {"b": 2}], "stop": {"epochs": 1}, "train": {"checkpoint": None, "torch_threads": 1}, "new": "x"}
    expected = {"a": [1, {"b": 3}], "stop": {}, "train": {"checkpoint": {"every": 1}, "torch_threads": 2}}
    assert differences(found, expected) == [
        "a[1].b: found 2, expected 3",
        "train.torch_threads: found 1, expected 2",
        "new: found 'x', expected None",
    ]


@pytest.mark.parametrize(
    ("every", "steps"), [("7 updates", 7), ("1 epoch", 90), ("17 samples", 2), ("1 samples", 1), ("0.001 epochs", 1)]
)
def test_how_often_is_counted_in_steps(every: str, steps: int, tmp_path: Path) -> None:
    """Of the weights' keeper: two workers' batches of 8 are one, and rounded up; an epoch has 1437 samples."""
    saving = saving_of(load(SCENARIO, [f"train.checkpoint.every={every}"]).plans()[0], tmp_path)
    assert saving is not None and saving.every == steps


@pytest.mark.parametrize("change", ["every=10 s", "every=0 updates", "every=10", "keep=0"])
def test_how_often_has_a_unit_that_ranks_count(change: str) -> None:
    with pytest.raises(ScenarioError, match=r"train\.checkpoint\.(every|keep): found .*, expected"):
        load(SCENARIO, [f"train.checkpoint.{change}"])


def test_the_command_refuses_what_it_cannot_go_on_with(tmp_path: Path) -> None:
    run = CliRunner().invoke(app, ["train", "--resume", str(tmp_path)])
    assert run.exit_code == EXIT_INPUT and "found no checkpoint there" in run.stderr
    run = CliRunner().invoke(app, ["train"])
    assert run.exit_code == EXIT_INPUT and "SCENARIO: missing" in run.stderr


# --- what the keeper knows -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", [Schedule(3), Schedule(20, "samples"), Schedule(2.5, "seconds")], ids=str)
def test_evaluations_go_on_where_they_were(schedule: Schedule) -> None:
    """However often the record is closed and opened again, the same weights are shown."""
    from paceline.algorithms.core.operations import RecordUpdate
    from paceline.algorithms.runtime.weights_owner import UpdateLog

    job = job_of(built("sync-sgd"))

    def book() -> Learned:
        return Learned(job, dataclasses.replace(schedule))

    def shown(learned: Learned, log: UpdateLog, step: int) -> Any:
        op = RecordUpdate(Weights(np.array([step]), step), [Contribution(Rank(0), step, step, 8)])
        version, rows, _ = log.book(op, step)
        return learned.applied(op, version, rows, float(step))

    whole, log = book(), UpdateLog(job.method.staleness_kind, job.workers)
    expected = [shown(whole, log, step) for step in range(12)] + [whole.show()]
    for stop in range(12):
        before, after = book(), book()
        found = [shown(before, log, step) for step in range(stop)]
        after.restore(pickle.loads(pickle.dumps(before.kept())))
        found += [shown(after, log, step) for step in range(stop, 12)] + [after.show()]
        assert [str(one) for one in found] == [str(one) for one in expected]


def test_a_pickle_that_asks_for_gigabytes_is_refused() -> None:
    """Twelve bytes that put a value at place 200,000,000 of the pickle's memory, which takes 3.2 GB."""
    content = b"\x80\x05K\x00r" + (200_000_000).to_bytes(4, "little") + b"."
    with pytest.raises(MemoryError):
        Restricted(io.BytesIO(content)).load()
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.seek(0)
        with pytest.raises(MemoryError):
            Restricted(file).load()


def test_a_part_has_the_name_of_earlier_checkpoints_too() -> None:
    assert Restricted(io.BytesIO(b"cpaceline.backend.rank.checkpoint\nPart\n.")).load() is RankPart
