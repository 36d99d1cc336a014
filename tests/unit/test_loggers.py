"""Loggers of runs: event files, Weights & Biases and MLflow, read back from what they wrote."""

from __future__ import annotations

import io
import json
import sqlite3
import struct
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from paceline.algorithms.core.errors import InputError
from paceline.backend.status.progress_counters import Totals
from paceline.cli.app import app
from paceline.records.store import read_run, save
from paceline.reports.export import loggers as module
from paceline.reports.export.loggers import loggers
from paceline.reports.export.services import serve
from paceline.scenarios import load
from tests.made_up import run

Points = dict[str, list[tuple[int, float, float]]]


def events(path: Path) -> Iterator[Any]:
    """Yields every event of a file and checks its checksum."""
    event, crc32c = import_module("tensorboardX.proto.event_pb2").Event, import_module("tensorboardX.crc32c").crc32c
    data, at = path.read_bytes(), 0
    while at < len(data):
        (size,) = struct.unpack_from("<Q", data, at)
        body = data[at + 12 : at + 12 + size]
        plain = crc32c(body)
        assert struct.unpack_from("<I", data, at + 12 + size)[0] == ((plain >> 15 | plain << 17) + 0xA282EAD8) % 2**32
        yield event.FromString(body)
        at += size + 16


def points(path: Path) -> Points:
    """The curves of a file: (step, wall time, value)."""
    found: Points = defaultdict(list)
    for event in events(path):
        for value in event.summary.value:
            found[value.tag].append((event.step, event.wall_time, value.simple_value))
    return found


def totals(elapsed_s: float, step: int) -> Totals:
    """Two workers, whose loss falls by a thousandth with every step; staleness is 3."""
    losses = sum(2 * (1 - 0.001 * done) for done in range(step))
    return Totals(elapsed_s, step, 2 * step, losses, inputs=2 * step, stalenesses=6 * step, samples=64 * step)


def test_a_run_is_shown_while_it_lasts_and_kept_at_its_end(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    (plan,) = load("quickstart", ["seed=1"], algorithms=["async-sgd"]).plans(paced=True)
    measured = run("async-sgd", "measured", step_s=0.3, accuracies=(0.1, 0.5))  # lasts 1.2 s
    with loggers(["tensorboard"], tmp_path, print) as logs:
        for look in range(1, 11):
            logs.watch(plan, totals(0.1 * look, 10 * look))
        (live,) = tmp_path.iterdir()
        assert live.name == "quickstart-async-sgd-1-live-1"
        (file,) = live.iterdir()
        assert [step for step, _, _ in points(file)["train/loss"]] == [50, 100]
        logs.watch(plan, totals(1.5, 120))
        kept = save(logs.finish(measured), tmp_path)
        logs.clear()
    assert kept.path is not None
    assert [path.name for path in tmp_path.iterdir()] == [kept.path.name]
    (file,) = (kept.path / "tensorboard").iterdir()
    assert "tfevents" in file.name
    found = points(file)
    assert {name for name in found if not name.startswith("summary/")} == {*module.SCALARS, *module.SCORES}
    ((step, _, figure),) = found["summary/step_s.mean"]
    assert step == 120 and figure == pytest.approx(measured.summary["step_s"]["mean"])
    assert [step for step, _, _ in found["train/loss"]] == [50, 100, 120]
    workers = plan.job.workers
    for tag, wanted in (
        ("train/loss", [1 - 0.001 * 24.5, 1 - 0.001 * 74.5, 1 - 0.001 * 109.5]),
        ("train/samples_per_s", [6400.0, 6400.0, 64 * 20 / 0.5]),
        ("train/staleness", [3.0, 3.0, 3.0]),
        ("train/step_s", [0.5 * workers / 100, 0.5 * workers / 100, 0.5 * workers / 40]),
        ("evaluation/accuracy", [0.1, 0.5]),
    ):
        assert [value for _, _, value in found[tag]] == pytest.approx(wanted, rel=1e-5)
    walls = [wall for _, wall, _ in found["train/loss"]]
    assert walls[1] - walls[0] == pytest.approx(0.5)
    assert read_run(kept.path).summary == kept.summary


def test_what_was_not_kept_leaves_nothing(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    (plan,) = load("quickstart", algorithms=["async-sgd"]).plans(paced=True)
    with loggers(["tensorboard"], tmp_path, print) as logs:
        logs.watch(plan, totals(1.0, 10))
        assert len(list(tmp_path.iterdir())) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_missing_package_costs_a_sentence_with_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda *_: None)
    kept = save(run("async-sgd"), tmp_path)
    asked = ["quickstart", "--algorithms", "async-sgd", "--out", str(tmp_path), "--log"]
    for arguments, extras in (
        (["train", *asked, "tensorboard"], {"tensorboardX": "tensorboard"}),
        (["simulate", *asked, "wandb,mlflow"], {"wandb": "wandb", "mlflow": "mlflow"}),
        (["compare", *asked, "wandb"], {"wandb": "wandb"}),
        (["export", str(kept.path), "--format", "mlflow"], {"mlflow": "mlflow"}),
    ):
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 2 and "Traceback" not in result.stderr
        for package, extra in extras.items():
            line = f"found no package {package}; expected it: pip install 'paceline[{extra}]'"
            assert line in result.stderr.replace("\n", " ")
    assert [path.name for path in tmp_path.iterdir()] == [Path(str(kept.path)).name]


def test_a_folder_with_the_name_of_a_package_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """W&B writes into a folder wandb/, which Python takes for a package without files if it stands in its path."""
    (tmp_path / "of_no_package").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(module, "PACKAGES", {"wandb": "of_no_package"})
    with pytest.raises(InputError, match="found no package of_no_package"):
        module.check_package("wandb", "--log wandb")


def test_the_option_before_log_is_named(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["train", "quickstart", "--out", str(tmp_path), "--tensorboard"])
    assert result.exit_code == 2 and "No such option: --tensorboard; it is now --log tensorboard" in result.stderr


def test_unknown_loggers_are_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["simulate", "quickstart", "--out", str(tmp_path), "--log", "wandb,comet"])
    assert result.exit_code == 2 and "found 'wandb,comet', expected mlflow, tensorboard, wandb" in result.stderr


class Client:
    """A service that keeps what it gets, and fails where it is asked to."""

    def __init__(self, fails: str = "") -> None:
        self.fails = fails
        self.got: list[tuple[Any, ...]] = []

    def open(self, title: Mapping[str, Any]) -> None:
        self.got.append(("open", title["name"]))
        if self.fails == "open":
            raise ConnectionError("no route")

    def point(self, step: int, elapsed_s: float, values: Mapping[str, float]) -> None:
        self.got.append(("point", step, elapsed_s, values))
        if self.fails == "point" and step == 2:
            self.fails = ""
            raise ConnectionError("no route\nto host")

    def summary(self, figures: Mapping[str, float], settings: Mapping[str, Any]) -> None:
        self.got.append(("summary", figures, settings))

    def close(self, *, failed: bool) -> dict[str, str]:
        self.got.append(("close", failed))
        return {"place": "here", "hint": ""}


def served(client: Client, *messages: dict[str, Any]) -> list[dict[str, Any]]:
    """What a service answers to messages."""
    answers = io.BytesIO()
    serve(lambda: client, io.BytesIO(b"".join(json.dumps(message).encode() + b"\n" for message in messages)), answers)
    return [json.loads(line) for line in answers.getvalue().splitlines()]


OPEN: dict[str, Any] = {"open": {"name": "a"}}
CLOSE: dict[str, Any] = {"close": {"failed": False}}


def test_a_fault_of_a_service_is_told_at_the_end_of_its_run() -> None:
    client = Client(fails="point")
    points: list[dict[str, Any]] = [{"point": [step, step / 2, {}]} for step in (1, 2, 3)]
    told = served(client, OPEN, *points, CLOSE, OPEN, CLOSE)
    assert told == [{"ready": True}, {"error": "ConnectionError: no route"}, {"place": "here", "hint": ""}]
    assert [what for what, *_ in client.got] == ["open", "point", "point", "open", "close"]


def test_a_run_whose_launcher_was_killed_has_failed() -> None:
    client = Client()
    served(client, OPEN, {"point": [1, 0.5, {}]})
    assert client.got[-1] == ("close", True)


def test_a_service_that_dies_ends_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wandb.py").write_text(
        "import os, sys\nclass Settings:\n    def __init__(self, **_): pass\n"
        "def init(**_): print('out of memory', file=sys.stderr, flush=True); os._exit(3)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    out, notes = tmp_path / "out", list[str]()
    with loggers(["wandb"], out, notes.append) as logs:
        for seed in (1, 2):
            assert logs.finish(run("async-sgd", seed=seed)).seed == seed
    died = "wandb: the run could not be written: its process has ended: out of memory"
    assert notes == [died, died]


def curves_of(path: Path) -> tuple[dict[str, Any], dict[str, list[tuple[float, float]]], dict[str, float]]:
    """Facts, curves as (second, value) and figures of an offline file of W&B, whose format is that of LevelDB's log."""
    data, at, whole = path.read_bytes(), 7, b""
    facts: dict[str, Any] = {}
    curves: dict[str, list[tuple[float, float]]] = defaultdict(list)
    figures: dict[str, float] = {}
    record = import_module("wandb.proto.wandb_internal_pb2").Record
    while at + 7 <= len(data):
        if (rest := 32768 - at % 32768) < 7:
            at += rest
            continue
        size, kind = struct.unpack_from("<HB", data, at + 4)
        whole += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind not in (1, 4):  # more of it follows
            continue
        message, whole = record.FromString(whole), b""
        if (what := message.WhichOneof("record_type")) == "run":
            facts |= {"group": message.run.run_group, "kind": message.run.job_type, "project": message.run.project}
        elif what == "history":
            values = {item.nested_key[0]: json.loads(item.value_json) for item in message.history.item}
            for name in values.keys() - {"time_s", "updates"}:
                if not name.startswith("_"):
                    curves[name].append((values["time_s"], values[name]))
        elif what == "summary":
            updates = message.summary.update
            figures |= {(item.key or item.nested_key[0]): json.loads(item.value_json) for item in updates}
    return facts, curves, {name: value for name, value in figures.items() if name.startswith("summary/")}


def needs(package: str) -> pytest.MarkDecorator:
    """Skips a test where a large package is missing that only loggers use."""
    missing = find_spec(package) is None
    return pytest.mark.skipif(missing, reason=f"{package} is not installed: pip install 'paceline[{package}]'")


@needs("wandb")
def test_wandb_has_predicted_and_measured_curves_in_one_chart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    (plan,) = load("quickstart", ["seed=1"], algorithms=["async-sgd"]).plans(paced=True)
    measured = replace(run("async-sgd", "measured", step_s=0.3, accuracies=(0.1, 0.5)), name="quickstart")
    notes = list[str]()
    with loggers(["wandb"], tmp_path, notes.append) as logs:
        for look in range(1, 11):
            logs.watch(plan, totals(0.1 * look, 10 * look))
        logs.finish(measured)
    simulated = save(replace(run("async-sgd"), name="quickstart"), tmp_path)
    result = CliRunner().invoke(app, ["export", str(simulated.path), "--format", "wandb", "--json"])
    assert result.exit_code == 0, result.stderr
    places = [Path(notes[0].split()[1].rstrip(";")), Path(json.loads(result.stdout)["path"])]
    (live, told, live_figures), (stored, predicted, figures) = (
        curves_of(next(place.glob("*.wandb"))) for place in places
    )
    assert (live.pop("kind"), stored.pop("kind")) == ("measured", "simulated")
    assert live == stored == {"project": "paceline", "group": "quickstart"}
    assert {*module.SCALARS, *module.SCORES} == {*told} and {*predicted} < {*told}
    assert [second for second, _ in told["train/loss"]] == [0.5, 1.0]
    assert [loss for _, loss in told["train/loss"]] == pytest.approx([1 - 0.001 * 24.5, 1 - 0.001 * 74.5])
    assert predicted["evaluation/accuracy"] == [(0, 0.1), (1, 0.5), (2, 0.9), (3, 1.0)]
    assert figures["summary/step_s.mean"] == simulated.summary["step_s"]["mean"]
    assert live_figures["summary/step_s.mean"] == pytest.approx(measured.summary["step_s"]["mean"])


@needs("wandb")
def test_without_an_api_key_nothing_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("HOME", str(tmp_path))
    result = CliRunner().invoke(app, ["simulate", "quickstart", "--out", str(tmp_path / "out"), "--log", "wandb"])
    assert result.exit_code == 2 and "expected one from `wandb login`" in result.stderr
    assert not list((tmp_path / "out").iterdir())


@needs("mlflow")
def test_mlflow_has_the_curves_of_a_stored_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    kept = save(run("async-sgd", accuracies=(0.1, 0.5)), tmp_path)
    result = CliRunner().invoke(app, ["export", str(kept.path), "--format", "mlflow"])
    assert result.exit_code == 0, result.stderr
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as database:
        begun, name, status = database.execute("select start_time, name, status from runs").fetchone()
        read = "select step, timestamp, value from metrics where key = ? order by timestamp"
        accuracies = database.execute(read, ["evaluation/accuracy"]).fetchall()
        staleness = database.execute(read, ["train/staleness"]).fetchall()
        ((_, _, figure),) = database.execute(read, ["summary/step_s.mean"])
        settings = dict(database.execute("select key, value from params"))
    assert (name, status) == ("tiny-async-sgd-1-simulated", "FINISHED")
    assert [(at - begun, value) for _, at, value in accuracies] == [(0, 0.1), (1000, 0.5)]
    assert [(step, value) for step, _, value in staleness] == [(1, 0), (2, 0), (3, 1), (4, 1)]
    assert figure == pytest.approx(kept.summary["step_s"]["mean"])
    assert settings == {"scenario.name": "tiny"}
