"""Reports as HTML: the figures in them, what is left out, and what is rejected."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from paceline.algorithms.core.errors import InputError
from paceline.cli.app import app
from paceline.records import Run
from paceline.records.figures import FINAL_ACCURACY, STEP_TIME
from paceline.records.metrics import smoothed
from paceline.records.store import save
from paceline.records.trace import Activity
from paceline.reports.blocks import Answer, Block, Chart, Claim, Table, Timeline
from paceline.reports.check_answer import Told, answer_of_check, scoped
from paceline.reports.comparison.conclusion import conclusion
from paceline.reports.html import render, write_report
from paceline.reports.html.plotly_charts import plotly_of
from paceline.reports.palette import ACTIVITIES, WORDS, dark_colours
from paceline.reports.planning.plan_blocks import answer_of_plan
from paceline.reports.run_answer import answer_of_runs
from paceline.reports.run_charts import curves, rates, shares_of_runs, shares_plot
from paceline.reports.stored_answers import stored_answer
from paceline.reports.sweeps.sweep_answer import sweep_answer
from paceline.reports.sweeps.sweep_table import stored_table
from paceline.reports.timeline_data import MOST_SPANS, timeline_of
from paceline.scenarios import load
from paceline.simulator.runs.run import simulate
from tests.report_samples import (
    PLAN_TRIALS,
    as_measured,
    comparison,
    counterexample,
    every_answer,
    large_run,
    plan_answer,
    simulated_runs,
    sweep_table,
)


def titles(report: Answer) -> list[str]:
    return [section.title for section in report.whole()]


def blocks(answer: Answer) -> list[Block]:
    return [block for section in answer.whole() for block in section.blocks]


def charts(answer: Answer) -> list[Chart]:
    return [block for block in blocks(answer) if isinstance(block, Chart)]


def words(answer: Answer) -> str:
    return "\n".join([answer.subtitle, *(block.text for block in blocks(answer) if isinstance(block, Claim))])


@pytest.fixture(scope="module")
def each_kind(tmp_path_factory: pytest.TempPathFactory) -> list[Answer]:
    return list(every_answer(tmp_path_factory.mktemp("check")).values())


# --- figures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", ["time", "samples", "updates"])
def test_a_curve_is_the_mean_of_the_seeds_inside_their_band(axis: Any) -> None:
    for curve in curves(simulated_runs(), "accuracy", axis):
        assert curve.seeds == 2
        assert (curve.low <= curve.mean).all() and (curve.mean <= curve.high).all() and (curve.low < curve.high).any()
        assert (np.diff(curve.x) >= 0).all()


def test_one_seed_gives_its_own_evaluations() -> None:
    run = simulated_runs()[0]
    (curve,) = curves([run], "loss", "updates")
    np.testing.assert_allclose(curve.mean, smoothed(run.tables.evaluations["loss"].tolist(), run.summary["smoothing"]))
    assert curve.x[0] == 0 and curve.x[-1] <= len(run.tables.updates)


def test_shares_add_up_and_rates_give_all_samples_and_bytes() -> None:
    run = simulated_runs()[0]
    assert sum(shares_of_runs([run])[run.algorithm].values()) == pytest.approx(1.0)
    assert sum(bar.x[0] for bar in shares_plot(shares_of_runs([run])).series) == pytest.approx(1.0)
    for column, total in (("samples", run.summary["samples"]), ("bytes", run.summary["bytes_sent"])):
        _, found = rates(run, column)
        assert found.mean() * run.summary["wall_s"] == pytest.approx(total)


def test_bins_of_a_timeline_have_the_time_of_the_spans() -> None:
    run = simulated_runs()[0]
    data = timeline_of(run)
    assert data is not None
    assert data.words == "" and data.stretches == [(0.0, run.summary["wall_s"])] and len(data.spans) > 0
    computing = data.shares[list(data.activities).index("compute")]
    spans = run.tables.spans[run.tables.spans["activity"] == "compute"]
    for rank in range(4):
        mine = spans[spans["rank"] == rank]
        seconds = (mine["end_s"].clip(upper=run.summary["wall_s"]) - mine["start_s"]).sum()
        found = computing[data.rows.index(str(rank))].mean() / 100 * run.summary["wall_s"]
        assert found == pytest.approx(seconds, abs=0.01 * run.summary["wall_s"])


def test_measured_curves_are_apart_from_simulated_ones() -> None:
    runs = [*simulated_runs(), *as_measured(simulated_runs(), slower=2.0)]
    simulated, measured = (
        next(one for one in curves(runs, "accuracy", "time") if (one.algorithm, one.kind) == ("sync-sgd", kind))
        for kind in ("simulated", "measured")
    )
    assert measured.x[-1] == pytest.approx(2 * simulated.x[-1])


def test_the_first_chart_of_staleness_shows_every_method_by_its_own_kind() -> None:
    runs = [*simulated_runs(), *as_measured(simulated_runs())]
    titles = ("How often each staleness occurs", "Mean staleness of each rank")
    found = [one for one in charts(answer_of_runs(runs)) if one.title in titles]
    assert len(found) == 2
    for chart in found:
        first, *others = chart.plots
        assert first == "each method's own" and {"iteration delay", "version lag"} <= set(others)
        names = [series.name for series in chart.plots[first].series]
        assert names == [f"{name}, {kind}" for name in ("sync-sgd", "async-sgd") for kind in ("simulated", "measured")]


def test_rates_of_many_runs_are_drawn_method_by_method() -> None:
    few = [*simulated_runs(), *as_measured(simulated_runs())]
    many = [*few, *(replace(run, algorithm=f"other {run.algorithm}") for run in few)]
    for runs, choices in ((few, [""]), (many, ["sync-sgd", "async-sgd", "other sync-sgd", "other async-sgd", "all"])):
        (chart,) = [one for one in charts(answer_of_runs(runs)) if one.title == "Throughput during the run"]
        assert list(chart.plots) == choices
        assert len(next(iter(chart.plots.values())).series) == (4 if choices == [""] else 2)


def test_the_rate_of_equal_steps_is_a_level_line() -> None:
    run = next(one for one in simulated_runs() if one.algorithm == "sync-sgd")
    rows = [run.tables.updates.iloc[[0]].assign(time_s=0.1 * number, samples=128) for number in range(1, 41)]
    updates = pd.concat(rows, ignore_index=True)
    made = replace(
        run,
        tables=replace(run.tables, updates=updates),
        summary={**run.summary, "wall_s": 4.0, "periods": 40.0, "longest_period": 1},
        trace=None,
    )
    x, y = rates(made, "samples")
    assert len(x) == 10
    np.testing.assert_allclose(y, 1280, rtol=1e-6)


def test_simulated_and_measured_shares_of_a_method_are_neighbours() -> None:
    runs = [*simulated_runs(), *as_measured(simulated_runs())]
    expected = [f"{name}, {kind}" for name in ("sync-sgd", "async-sgd") for kind in ("simulated", "measured")]
    assert list(shares_of_runs(runs)) == expected


def test_the_rows_of_a_sweep_have_the_units_of_their_figures() -> None:
    shown_tables = [block for block in blocks(sweep_answer(sweep_table())) if isinstance(block, Table)]
    (table,) = [one for one in shown_tables if one.title == "All runs"]
    frame = sweep_table().frame
    shown = {column.code: table.text(0, at) for at, column in enumerate(table.columns)}
    assert shown["step_s_mean"] == STEP_TIME.text(frame["step_s_mean"][0])
    assert shown["final_accuracy"] == FINAL_ACCURACY.text(frame["final_accuracy"][0])
    assert not any("e+" in table.text(row, at) for row in range(len(table.rows)) for at in range(len(table.columns)))


def test_a_counterexample_names_no_folder_of_the_machine(tmp_path: Path) -> None:
    said = words(answer_of_check([], [Told.of(counterexample(tmp_path))]))
    assert str(Path(__file__).parent) not in said and "violates" in said


def test_a_sweep_marks_where_lines_cross() -> None:
    answer = sweep_answer(sweep_table())
    (chart,) = [one for one in charts(answer) if one.title.startswith("Throughput")]
    (line,) = [one for one in chart.plots[""].series if one.name.startswith("from")]
    assert "async-sgd is better than sync-sgd" in line.name and 4 < line.x[0] < 8
    assert any(getattr(part, "title", "") == "Where the order of two methods changes" for part in blocks(answer))


def test_a_stored_sweep_has_the_same_table(tmp_path: Path) -> None:
    table = sweep_table()
    table.save(tmp_path)
    assert table.target is not None
    points = [{"summary": {"target_accuracy": table.target.value}}]
    request = {"axes": table.axes, "scenario": {"name": "quickstart"}}
    found = stored_table(tmp_path, {"points": points}, request)
    assert (found.scenario, found.paths, found.sizes, found.target) == (
        "quickstart",
        table.paths,
        table.sizes,
        table.target,
    )
    assert found.frame["algorithm"].tolist() == table.frame["algorithm"].tolist()
    assert found.frame["step_s_mean"].tolist() == table.frame["step_s_mean"].tolist()


def test_the_front_of_a_plan_leaves_out_dominated_plans() -> None:
    (chart,) = charts(answer_of_plan(plan_answer(), "quickstart", PLAN_TRIALS))
    (front,) = [one for one in chart.plots[""].series if one.name == "Pareto front"]
    assert list(zip(front.x, front.y, strict=True)) == [(2.0, 9.0), (4.0, 3.0)]
    only_time = charts(answer_of_plan(plan_answer(["time"]), "quickstart", PLAN_TRIALS))
    assert [one.title for one in only_time] == [
        "Time to the target of every plan",
        "Every trial that reached the target",
    ]


def test_every_activity_has_a_colour_and_words() -> None:
    recorded = set(get_args(Activity)) - {"collective", "receive", "send"} | {"communication", "wait"}
    assert set(ACTIVITIES) == set(WORDS) == recorded


# --- what a reader gets ----------------------------------------------------------------------------------------------


def test_each_kind_has_its_sections(each_kind: list[Answer]) -> None:
    runs, compared, sweep, plan, check = each_kind
    assert titles(runs) == ["Summary", "Learning", "Timeline", "Staleness", "Time", "Links", "Scenario", "Versions"]
    assert titles(compared) == ["Summary", "Learning", "Errors", *titles(runs)[2:]]
    assert titles(sweep) == ["Summary", "Scaling", "Points", "Scenario", "Versions"]
    assert titles(plan) == ["Summary", "Pareto front", "Scenario", "Versions"]
    assert [titles(check)[0], titles(check)[-1]] == ["Summary", "Versions"]
    assert titles(check)[1].startswith("never-receives: ") and len(titles(check)) == 3
    assert "10.0 %" not in compared.subtitle and "-9.1" in render(compared)


class Reader(HTMLParser):
    """Collects what a file would load, and the labels of images."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.labels: list[str] = []
        self.images = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.loaded += [value for name in ("src", "href", "srcset") if (value := found.get(name))]
        if found.get("role") == "img":
            self.images += 1
            self.labels.append(found.get("aria-label") or "")


def test_a_file_loads_nothing_and_every_picture_has_an_alternative_text(each_kind: list[Answer]) -> None:
    for report in each_kind:
        text, reader = render(report), Reader()
        reader.feed(text)
        assert [one for one in reader.loaded if not one.startswith(("#", "data:"))] == []
        assert reader.images and all(len(label) > 20 for label in reader.labels)
        assert '<html lang="en">' in text and "cdn.plot.ly" not in re.sub(
            r"<script>.*?</script>", "", text, flags=re.DOTALL
        )


def test_every_chart_has_a_title_units_a_sentence_and_colours_with_a_dark_partner(
    each_kind: list[Answer],
) -> None:
    known = set(dark_colours())
    for report in each_kind:
        for chart in charts(report):
            assert chart.title and chart.words.endswith(".") and chart.alt
            for plot in chart.plots.values():
                document = plotly_of(plot)
                assert document["layout"]["xaxis"]["title"]["text"] or document["layout"]["yaxis"]["title"]["text"]
                colours = set(re.findall(r'"(#[0-9A-Fa-f]{6}|rgba\([^)]*\))"', json.dumps(document)))
                assert colours - known <= {"rgba(0,0,0,0)"}, chart.title


def test_texts_of_users_are_escaped() -> None:
    run = replace(simulated_runs()[0], name="<script>alert(1)</script>")
    text = render(answer_of_runs([run]))
    assert "&lt;script&gt;alert(1)" in text and "<script>alert" not in text


def test_styles_of_a_diagram_apply_to_the_picture_only(tmp_path: Path) -> None:
    from paceline.checking.counterexamples import svg_diagram

    style = scoped(svg_diagram(counterexample(tmp_path).story)).partition("<style>")[2].partition("</style>")[0]
    selectors = [one.strip() for rule in re.findall(r"([^{}]+)\{", style) for one in rule.split(",")]
    assert selectors and all(one.startswith((".picture ", ':root[data-theme="dark"] .picture ')) for one in selectors)


def test_presets_name_links_of_the_cluster_and_no_unused_ones() -> None:
    from paceline.reports.provenance import presets_of
    from paceline.scenarios import load

    found, devices = presets_of(load("cori-knl").dump(), 64)
    names = [one.name for one in found]
    assert "link aries-nic" in names and "link eth-10g" not in names and "model googlenet" in names
    assert all(one.source for one in [*found, *devices]) and devices


# --- limits ----------------------------------------------------------------------------------------------------------


def test_a_large_run_is_thinned_and_the_report_says_so() -> None:
    run = large_run(64, 500, simulated_runs()[0])
    report = answer_of_runs([run])
    (timeline,) = [block for block in blocks(report) if isinstance(block, Timeline)]
    (data,) = timeline.runs
    assert len(data.spans) <= MOST_SPANS + 64 * 6 and len(data.stretches) == 3 and len(run.tables.spans) == 128_000
    assert "Single operations are kept at the start, in the middle and at the end" in data.words
    assert len(render(report).encode()) < 10e6
    raw = base64.b64decode(data.document()["spans"]["start"]["data"])
    np.testing.assert_array_equal(np.frombuffer(raw, dtype="<f8"), data.spans["start"])


def test_a_simulation_of_times_alone_says_nothing_of_a_target() -> None:
    (run,) = simulate(load("quickstart", ["stop.epochs=1", "workload.learning=none"], algorithms=["sync-sgd"]))
    assert run.summary["target_accuracy"] == 0.93 and "reached" not in words(answer_of_runs([run]))


def test_a_run_without_records_has_a_report() -> None:
    run = simulated_runs()[0]
    empty = {name: getattr(run.tables, name).head(0) for name in ("spans", "updates", "evaluations")}
    report = answer_of_runs([replace(run, tables=replace(run.tables, **empty))])
    assert titles(report) == ["Summary", "Time", "Links", "Scenario", "Versions"] and render(report)


def test_ranks_are_thinned_evenly() -> None:
    data = timeline_of(large_run(300, 2, simulated_runs()[0]))
    assert data is not None
    assert len(data.rows) == 128 and data.rows[0] == "0" and data.rows[-1] == "299"
    assert data.words.startswith("Shown are 128 of 300 ranks")


# --- what is read, written and rejected ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    folder = tmp_path_factory.mktemp("runs")
    return [save(run, folder) for run in simulated_runs()]


def test_a_folder_of_runs_counts_the_latest_of_each(stored: list[Run], tmp_path: Path) -> None:
    for run in (stored[0], stored[0], stored[1]):
        save(run, tmp_path)
    report = stored_answer([tmp_path])
    assert "1 earlier runs of the same methods and seeds were left out; the latest count." in words(report)


def test_a_comparison_is_read_with_its_runs_wherever_they_were_moved(tmp_path: Path) -> None:
    compared = comparison()
    runs = [
        save(run, tmp_path / "runs") for line in compared.lines for run in (*line.predicted_runs, *line.measured_runs)
    ]
    folder = tmp_path / "runs" / "quickstart-comparison-1"
    folder.mkdir()
    answer = {
        **compared.document(),
        "runs": [f"/elsewhere/{run.path.name}" for run in runs if run.path],
    }
    (folder / "comparison.json").write_text(json.dumps(answer), encoding="utf-8")
    report = stored_answer([folder])
    assert conclusion(compared) in words(report) and "Timeline" in titles(report)
    (folder / "comparison.json").write_text(json.dumps({**answer, "runs": ["/gone/one"]}), encoding="utf-8")
    assert "1 of 1 runs of this comparison were not found" in words(stored_answer([folder]))


def test_mistakes_are_named_together(stored: list[Run], tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text("?")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError) as error:
        stored_answer([other, tmp_path / "empty", tmp_path / "missing"])
    assert [line.partition(": ")[0] for line in str(error.value).splitlines()] == [
        str(path) for path in (other, tmp_path / "empty", tmp_path / "missing")
    ]
    counterexample(tmp_path)
    assert stored[0].path is not None
    with pytest.raises(InputError, match="mixture of runs, check"):
        stored_answer([stored[0].path, tmp_path / "never-receives.json"])
    with pytest.raises(InputError, match="runs of the scenarios quickstart and other"):
        answer_of_runs([stored[0], replace(stored[1], name="other")])
    with pytest.raises(InputError, match="SOURCE: found none"):
        stored_answer([])


def test_only_reports_are_replaced(tmp_path: Path) -> None:
    report = answer_of_runs(simulated_runs()[:1])
    path = write_report(report, tmp_path / "new" / "report.html")
    assert write_report(report, path) == path
    path.write_text("my notes")
    with pytest.raises(InputError, match="is no report of Paceline and is not replaced"):
        write_report(report, path)
    with pytest.raises(InputError, match="found the folder"):
        write_report(report, tmp_path)


def test_the_command_writes_a_report_of_a_check(tmp_path: Path) -> None:
    counterexample(tmp_path)
    out = tmp_path / "check.html"
    result = CliRunner().invoke(app, ["report", str(tmp_path), "--out", str(out), "--json"])
    answer = json.loads(result.stdout)
    assert result.exit_code == 0 and answer["path"] == str(out) and answer["bytes"] == out.stat().st_size
    wrong = CliRunner().invoke(app, ["report", str(tmp_path / "nothing")])
    assert wrong.exit_code == 2 and "not found" in wrong.stderr


def test_a_simulation_writes_a_report_unless_told_not_to(tmp_path: Path) -> None:
    arguments = [
        "simulate",
        "quickstart",
        "--algorithms",
        "sync-sgd",
        "--set",
        "stop.updates=3",
        "--out",
        str(tmp_path),
    ]
    result = CliRunner().invoke(app, [*arguments, "--report"])
    assert result.exit_code == 0, result.output
    page = tmp_path / "quickstart-simulation-1" / "report.html"
    assert str(page) in result.output.replace("\n", "") and "Throughput during the run" in page.read_text(
        encoding="utf-8"
    )
    CliRunner().invoke(app, [*arguments, "--no-report"])
    assert not (tmp_path / "quickstart-simulation-2").exists()
