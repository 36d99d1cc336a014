"""Which records are kept, the reservoir, arrays of many ranks, stored sampled runs, and the commands that read them."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chisquare
from typer.testing import CliRunner

from paceline import load, simulate
from paceline.algorithms.core.values import Rank
from paceline.algorithms.methods.layerwise import LayerwiseSgd
from paceline.algorithms.runtime.weights_owner import Update
from paceline.cli.app import app
from paceline.records.counters import Counters
from paceline.records.keeping import FULL_STEPS, Keeping
from paceline.records.recorder import Reservoir, SampledRecorder
from paceline.records.store import read_run, save
from paceline.records.trace import Snapshot
from paceline.simulator.runs.expected_steps import expected_steps, keeping_of

QUADRATIC = ["workload.model=quadratic", "workload.learning=quadratic", "workload.dataset=null", "stop.epochs=3"]
EACH = [argument for change in QUADRATIC for argument in ("--set", change)]


def test_every_item_of_a_stream_is_kept_equally_often() -> None:
    counts: Counter[int] = Counter()
    for seed in range(4000):
        reservoir, sample = Reservoir(5, seed), [0] * 5
        for item in range(40):
            if (place := reservoir.offer()) is not None:
                sample[place] = item
        assert len(set(sample)) == 5
        counts.update(sample)
    assert chisquare([counts[item] for item in range(40)]).pvalue > 0.001


@pytest.mark.parametrize("size", [0, 1, 3, 50])
def test_the_reservoir_is_deterministic_however_items_are_offered(size: int) -> None:
    one, other, found = Reservoir(size, 7), Reservoir(size, 7), list[tuple[int, int]]()
    expected = [(number, place) for number in range(200) if (place := one.offer()) is not None]
    for begin, count in ((0, 1), (1, 60), (61, 0), (61, 139)):
        found += [(begin + number, place) for number, place in other.offer_many(count)]
    assert found == expected
    assert one.seen == other.seen == 200


def test_what_is_kept_depends_on_size_choice_and_seed() -> None:
    assert Keeping.of("auto", 1000, FULL_STEPS, 1).whole
    sampled = Keeping.of("auto", 1000, FULL_STEPS + 1, 1)
    assert sampled == Keeping.of("sampled", 1000, FULL_STEPS + 1, 1)
    assert sampled.ranks != Keeping.of("sampled", 1000, FULL_STEPS + 1, 2).ranks
    assert Keeping.of("full", 1000, 1e12, 1).whole
    assert len(Keeping.of("sampled", 1000, float("inf"), 1).ranks or ()) == 4
    assert Keeping.of("summary", 3, 30, 1).updates == 0


@pytest.mark.parametrize(("entry", "kind"), [("sync-sgd", "full"), ("{name: layerwise-sgd, bucket: null}", "sampled")])
def test_buckets_of_layer_wise_methods_count_as_steps(entry: str, kind: str) -> None:
    (plan,) = load("fat-tree-128", ["stop.samples=1000000", f"algorithms=[{entry}]"]).plans()
    assert expected_steps(plan) < FULL_STEPS
    assert keeping_of(plan).kind == kind
    whole = replace(plan, job=replace(plan.job, method=LayerwiseSgd(bucket=10**9)))
    assert keeping_of(whole).whole, "all layers are one bucket"


def recorder(workers: int) -> SampledRecorder:
    """Returns a recorder that keeps ranks 1 and 2 and three updates."""
    keeping = Keeping("sampled", frozenset([Rank(1), Rank(2)]), 3, seed=1)
    return SampledRecorder(keeping, Counters(workers, workers))


def test_arrays_count_and_keep_as_single_records_do() -> None:
    workers, random = 5, np.random.default_rng(1)
    one, many = recorder(workers), recorder(workers)
    ranks, now_s = np.arange(workers), np.zeros(workers)
    for step in range(6):
        ends_s = now_s + random.uniform(0.5, 1.0, workers)
        last_s = np.full(workers, ends_s.max())
        done_s = last_s + 0.25
        for rank in np.argsort(ends_s).tolist():
            one.span(Rank(rank), "main", "compute", None, step, float(now_s[rank]), float(ends_s[rank]))
            one.gradient(Rank(rank))
        for rank in range(workers):
            times = (float(ends_s[rank]), float(done_s[rank]), 8, float(last_s[rank]), "mean")
            one.span(Rank(rank), "main", "collective", None, step, *times)
        one.update([Update(float(done_s[r]), Rank(r), step, step, step, r % 2, 4) for r in range(workers)])

        many.spans(ranks, "main", "compute", step, now_s, ends_s)
        many.gradients(step, now_s, ends_s)
        many.spans(ranks, "main", "collective", step, ends_s, done_s, nbytes=8, ready_s=last_s, key="mean")
        steps = np.full(workers, step)
        many.updates(done_s, ranks, steps, steps, steps, ranks % 2, np.full(workers, 4))
        for written in (one, many):
            written.changed(float(done_s[0]))
            written.evaluation(Snapshot(float(done_s[0]), step + 1, 4 * workers, None))
        now_s = done_s - 0.125 * ranks  # workers go on before others have finished the step
    one.close()
    many.close()
    assert {span.rank for span in one.trace.spans} == {1, 2}
    assert sorted(one.trace.spans) == sorted(many.trace.spans)
    assert one.trace.updates == many.trace.updates
    assert one.trace.update_ages_s == many.trace.update_ages_s
    ours, theirs = one.trace.counters, many.trace.counters
    assert ours is not None and theirs is not None
    assert ours.spans == theirs.spans and ours.bytes_sent == theirs.bytes_sent and ours.last_end_s == theirs.last_end_s
    for activity in ("compute", "communication", "wait"):
        assert np.allclose(ours.seconds[activity], theirs.seconds[activity], rtol=1e-12)
    assert ours.gradients.number == theirs.gradients.number and ours.gradients.last_s == theirs.gradients.last_s
    assert ours.gradients.between.quantiles([0.1, 0.5, 0.9]) == theirs.gradients.between.quantiles([0.1, 0.5, 0.9])
    for mine, other in (
        (ours.gradients.gaps.counts, theirs.gradients.gaps.counts),
        (ours.updates.staleness, theirs.updates.staleness),
    ):
        assert mine.histogram == other.histogram
        assert (mine.number, mine.total, mine.most) == (other.number, other.total, other.most)
    marks = [float(mark[0]) for mark in ours.updates.progress._marks]
    assert ours.updates.progress.at(marks) == theirs.updates.progress.at(marks) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("kind", ["sampled", "summary"])
def test_sampled_runs_are_stored_and_loaded(kind: str, tmp_path: Path) -> None:
    (run,) = simulate(load("quickstart", QUADRATIC, algorithms=["layerwise-sgd"]), records=kind)  # type: ignore[arg-type]
    stored = save(run, tmp_path)
    assert stored.path is not None
    loaded, record = read_run(stored.path), json.loads((stored.path / "run.json").read_text())
    assert record["summary"]["records"]["kind"] == kind
    assert loaded.summary == json.loads(json.dumps(run.summary))
    assert loaded.tables.ranks.equals(run.tables.ranks) and len(loaded.tables.ranks) == 4
    assert (len(loaded.tables.spans) > 0) == (len(loaded.tables.updates) > 0) == (kind == "sampled")
    assert loaded.tables.spans.equals(run.tables.spans)


@pytest.mark.parametrize("kind", ["sampled", "summary"])
def test_commands_end_well_with_sampled_runs(kind: str, tmp_path: Path) -> None:
    out, runner = tmp_path / "runs", CliRunner()
    names = "async-sgd,layerwise-agd"
    made = runner.invoke(
        app, ["simulate", "quickstart", "--algorithms", names, *EACH, "--set", f"records={kind}", "--out", str(out)]
    )
    assert made.exit_code == 0, made.output
    assert "Fractions of time" in made.output or "fractions of time" in made.output
    runs = [str(folder) for folder in out.iterdir()]
    shown = runner.invoke(app, ["staleness", *runs, "--layer", "--over-time", "--why"])
    assert shown.exit_code == 0, shown.output
    assert "clock gap over time: not available" in shown.output.replace("\n", " ")
    answer = json.loads(runner.invoke(app, ["staleness", *runs, "--json"]).stdout)
    assert {one["records"] for one in answer["runs"]} == {kind}
    drawn = runner.invoke(app, ["staleness", *runs, "--out", str(tmp_path / "figure.png")])
    assert drawn.exit_code == 0, drawn.output
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    explained = runner.invoke(app, ["explain", "quickstart", "--algorithms", "sync-sgd", "--set", f"records={kind}"])
    assert explained.exit_code == 0, explained.output


def test_a_wrong_choice_is_an_error_of_the_scenario() -> None:
    found = CliRunner().invoke(app, ["simulate", "quickstart", "--set", "records=some"])
    assert found.exit_code == 2
    assert "records: found 'some'" in found.output and "'sampled'" in found.output
