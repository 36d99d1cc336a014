"""Exports of stored runs: read back as JSON, as CSV and as event files."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.values import Rank
from paceline.algorithms.runtime.weights_owner import Update
from paceline.cli.app import app
from paceline.records import Run
from paceline.records.store import read_run, save
from paceline.records.tables import SCHEMAS, Tables, assemble, frame
from paceline.records.trace import Span, Trace
from paceline.reports.export import loggers
from paceline.reports.export.chrome import chrome_events, rank_names, sources
from paceline.reports.export.export_run import export_run
from tests.made_up import run

PARAMETER_SERVER = Trace(
    spans=[
        Span(Rank(0), "main", "compute", None, 0, 0.0, 1.0),
        Span(Rank(0), "main", "send", None, 0, 1.0, 1.25, 100),
        Span(Rank(1), "main", "receive", None, 0, 0.0, 1.5, 100, ready_s=1.0),
        Span(Rank(1), "main", "update", None, 0, 1.5, 1.75),
        Span(Rank(1), "main", "send", None, 0, 1.75, 2.0, 50),
        Span(Rank(0), "main", "compute", "hidden", 1, 2.0, 3.0),
        Span(Rank(0), "other", "compute", "output", 1, 2.5, 3.5),
        Span(Rank(0), "other", "load", None, 1, 3.0, 4.0),
    ],
    heard=[(Rank(1), Rank(0))],
    hearers=["main"],
    updates=[Update(1.5, Rank(0), 0, 0, 0, 0, 32), Update(3.5, Rank(0), 1, 1, 1, 0, 32)],
)
"""a worker and a server; the second gradient is applied without a message, and a lane has overlapping rows"""


def stored(folder: Path, tables: Tables | None = None) -> Run:
    """Returns a stored run whose rank 0 sends its gradient to a server."""
    found = assemble(PARAMETER_SERVER, num_samples=40, measured=True) if tables is None else tables
    return save(replace(run("async-sgd", "measured"), tables=found), folder)


def test_chrome_has_slices_arrows_and_counters(tmp_path: Path) -> None:
    kept = stored(tmp_path)
    document = json.loads(export_run(kept, "chrome", tmp_path / "trace.json").read_text(encoding="utf-8"))
    events = document["traceEvents"]
    names = {
        (one["pid"], one["tid"]): one["args"]["name"]
        for one in events
        if one["name"] in ("process_name", "thread_name")
    }
    spans = [one for one in events if one["ph"] == "X" and one["pid"] > 1]
    assert len(spans) == len(kept.tables.spans)
    assert {names[one["pid"], 0] for one in spans} == {"rank 0 (worker)", "rank 1 (server)"}
    assert names[3, 1] == "main"
    (overlapping,) = [one for one in spans if one["name"] == "load"]
    assert names[overlapping["pid"], overlapping["tid"]] == "other (2)"
    (unsent,) = [one for one in spans if one["name"] == "compute output"]
    assert unsent["flow_out"]  # its gradient is applied without a message
    (push,) = [one for one in spans if one["name"] == "communication" and one["pid"] == 2]
    (applied,) = [one for one in events if one.get("flow_in") and one["bind_id"] == push["bind_id"]]
    assert push["flow_out"] and (push["ts"], push["dur"], applied["ts"]) == (1e6, 0.25e6, 1.5e6)
    assert push["args"] == {"step": 0, "bytes": 100}
    waited = [one["args"]["waits_for"] for one in spans if one["name"] == "wait"]
    assert waited == ["rank 0"]
    assert {one["name"] for one in events if one["ph"] == "C"} == {"bytes sent (bytes)", "staleness (updates)"}


def test_an_exchange_before_the_gradient_is_not_its_source() -> None:
    """In gossip a worker sends its weights before it computes a gradient, which it applies itself."""
    spans = frame(
        "spans",
        [
            (0, "main", "communication", None, 3, 0.0, 0.1, 100),
            (0, "main", "compute", None, 3, 0.1, 1.0, 0),
            (0, "main", "communication", None, 4, 1.0, 1.1, 100),
        ],
    )
    updates = frame("updates", [(1.0, 0, 3, 0, 0, 0, 32, 0.9), (1.0, 0, 9, 0, 0, 0, 32, None)])
    assert sources(spans, updates) == [1, None]
    assert rank_names(spans) == {0: "rank 0 (worker)"}


def test_counters_of_loss_and_accuracy() -> None:
    events = [event for event in chrome_events(run("async-sgd")) if event["ph"] == "C" and event["pid"] == 1]
    accuracies = [(event["ts"], event["args"]["accuracy"]) for event in events if "accuracy" in event["args"]]
    assert accuracies == [(0, 0.1), (10**6, 0.5), (2 * 10**6, 0.9), (3 * 10**6, 1.0)]
    assert [event["args"]["staleness"] for event in events if "staleness" in event["args"]] == [0, 0, 1, 1]


def test_csv_holds_all_tables_and_says_what_the_columns_mean(tmp_path: Path) -> None:
    kept = stored(tmp_path)
    folder = export_run(kept, "csv", tmp_path / "tables")
    filled = {name for name in SCHEMAS if len(getattr(kept.tables, name))}
    assert {path.stem for path in folder.glob("*.csv")} == {*filled, "summary"}
    read = pd.read_csv(folder / "spans.csv")
    pd.testing.assert_frame_equal(read, kept.tables.spans, check_dtype=False)
    figures = pd.read_csv(folder / "summary.csv").set_index("figure")["value"]
    assert float(figures["step_s.mean"]) == kept.summary["step_s"]["mean"]
    page = (folder / "README.md").read_text(encoding="utf-8")
    assert "| start_s | seconds since the start of the run |" in page


def test_tensorboard_has_the_curves_of_a_stored_run(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    from tests.unit.test_loggers import points

    kept = save(run("async-sgd", accuracies=(0.1, 0.5)), tmp_path)
    (file,) = export_run(kept, "tensorboard", tmp_path / "board").iterdir()
    found = points(file)
    assert [value for _, _, value in found["evaluation/accuracy"]] == pytest.approx([0.1, 0.5])
    assert [(step, value) for step, _, value in found["train/staleness"]] == [(1, 0), (2, 0), (3, 1), (4, 1)]
    assert [value for _, _, value in found["train/samples_per_s"]] == pytest.approx([10.0] * 4)
    walls = [wall for _, wall, _ in found["train/samples"]]
    assert walls[3] - walls[0] == pytest.approx(3.0)


def test_nothing_is_overwritten_and_all_mistakes_are_said(tmp_path: Path) -> None:
    empty = replace(run("async-sgd").tables, spans=frame("spans", ()), updates=frame("updates", ()))
    kept = stored(tmp_path, empty)
    existing = tmp_path / "there"
    existing.write_text("precious")
    with pytest.raises(InputError, match=r"(?s)'.*there', which exists.*without spans and updates.*records"):
        export_run(kept, "chrome", existing)
    assert existing.read_text() == "precious"
    assert {path.name for path in tmp_path.iterdir()} == {"there", Path(str(kept.path)).name}


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loggers, "find_spec", lambda *_: None)
    with pytest.raises(InputError, match=r"found no package tensorboardX.*pip install 'paceline\[tensorboard\]'"):
        export_run(save(run("async-sgd"), tmp_path), "tensorboard", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_the_command(tmp_path: Path) -> None:
    kept = stored(tmp_path)
    out = tmp_path / "trace.json"
    arguments = ["export", f"{kept.path}/run.json", "--format", "chrome", "--out", str(out), "--json"]
    first, again = (CliRunner().invoke(app, arguments) for _ in range(2))
    assert first.exit_code == 0
    assert json.loads(first.stdout) == {
        "run": str(kept.path),
        "format": "chrome",
        "path": str(out),
        "bytes": out.stat().st_size,
    }
    assert again.exit_code == 2 and "nothing is overwritten" in again.stderr
    absent = CliRunner().invoke(app, ["export", str(tmp_path / "no"), "--format", "csv"])
    assert absent.exit_code == 2 and "expected a complete run" in absent.stderr


def test_a_simulated_run_has_an_arrow_to_every_application(tmp_path: Path) -> None:
    from paceline.scenarios import load
    from paceline.simulator.runs.run import simulate

    (found,) = simulate(load("quickstart", ["seed=1", "stop.epochs=1"], algorithms=["async-sgd"]))
    events = chrome_events(read_run(Path(str(save(found, tmp_path).path))))
    applied = [event for event in events if event["pid"] == 1 and event["ph"] == "X"]
    spans, rows = found.tables.spans, [int(event["bind_id"], 16) for event in applied]
    assert Counter(spans["activity"][row] for row in rows) == {"communication": len(found.tables.updates)}
    for event, row in zip(applied, rows, strict=True):
        assert spans["rank"][row] == event["args"]["rank"] and spans["step"][row] == event["args"]["step"]
        assert spans["end_s"][row] * 1e6 <= event["ts"] + 0.001


def test_the_format_perfetto_names_the_one_that_replaced_it(tmp_path: Path) -> None:
    kept = stored(tmp_path)
    result = CliRunner().invoke(app, ["export", str(kept.path), "--format", "perfetto"])
    assert result.exit_code == 2 and "expected chrome, whose JSON Perfetto opens" in result.stderr
