"""benchmarks/claims.py: its claims can be run, and its verdicts follow from the figures."""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from paceline.scenarios import load
from paceline.simulator.runs.run import simulate

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(not (ROOT / "benchmarks").exists(), reason="needs the repository")
TUNING, TESTING = (101, 102), (1, 2, 3)


@pytest.fixture(autouse=True)
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))


def part(name: str) -> Any:
    return importlib.import_module(name)


def outcome(**known: Any) -> Any:
    """Returns an outcome with these figures."""
    usual = {
        "samples": (0.0, 100.0),
        "losses": (2.0, 1.0),
        "loss": 1.0,
        "accuracy": 90.0,
        "reached": None,
        "staleness": 0.0,
        "staleness_of_ranks": 0.0,
        "samples_per_s": 100.0,
    }
    return part("accuracy_claims.runs").Outcome(**usual | known)


def entered(name: str, grid: tuple[float, ...] = (0.1, 0.2)) -> Any:
    settings = part("accuracy_claims.settings")
    return replace(settings.entered(name, settings.Setting("one", "one device", seconds=1.0)), grid=grid)


def claim(**more: Any) -> Any:
    table = part("accuracy_claims.table")
    return table.Claim("c", "A paper", "words", "F", entered("async-easgd"), entered("async-sgd"), **more)


def runs(losses: dict[str, dict[float, float]], **known: Any) -> Any:
    """Returns runs whose loss is that of the method and the rate, and a little more for each test seed."""
    piece, verdicts = part("accuracy_claims.runs").Piece, part("accuracy_claims.verdicts")
    found = {
        piece(entered(name), rate, seed): outcome(loss=loss + 0.001 * (seed % 100), **known)
        for name, of in losses.items()
        for rate, loss in of.items()
        for seed in (*TUNING, *TESTING)
    }
    return verdicts.Runs(found, TUNING, TESTING)


# --- the claims ------------------------------------------------------------------------------------------------------


def test_every_contender_has_a_scenario_that_loads() -> None:
    table = part("accuracy_claims.table")
    for one in dict.fromkeys(one for claim in table.CLAIMS for one in claim.contenders):
        for rate in (one.grid[0], one.grid[-1]):
            scenario = load(one.scenario(rate, seed=1))
            assert scenario.algorithms[0].name == one.method


def test_claims_are_told_apart_and_fair() -> None:
    """Workers, network and end are the same on both sides; if the clusters differ, the claim is about that."""
    table = part("accuracy_claims.table")
    keys = [(one.name, one.ours, one.theirs, one.figure) for one in table.CLAIMS]
    assert len(keys) == len(set(keys))
    across = {one.name for one in table.CLAIMS if one.ours.setting != one.theirs.setting}
    assert across == {"hbs-sequential", "softsync-one", "lars-small"}
    for one in table.CLAIMS:
        assert len(one.ours.grid) == len(one.theirs.grid)
        assert one.direction in ("no worse", one.better) or one.name == "why-delay"
        assert (one.reference is not None) == (one.figure == "distance")


def test_a_message_takes_as_long_as_the_setting_says() -> None:
    settings = part("accuracy_claims.settings")
    setting = settings.Setting("two", "two nodes", nodes=2, message_s=1e-3, local_s=2e-4, seconds=1.0)
    network = load(settings.entered("sync-sgd", setting).scenario(0.1, 1)).cluster.network
    nbytes = 4 * settings.MODELS[settings.MODEL].layout().size
    for link, took_s in ((network.link, 1e-3), (network.intra_node_link, 2e-4)):
        built = link.build()
        assert built.latency_s + nbytes / built.bytes_per_s == pytest.approx(took_s)


# --- differences and verdicts ----------------------------------------------------------------------------------------


def test_an_interval_is_student_s_of_the_pairs() -> None:
    ours, theirs = [1.0, 2.5, 3.0, 2.0], [1.5, 2.0, 1.0, 1.0]
    found = part("common.intervals").difference(ours, theirs)
    expected = stats.ttest_rel(ours, theirs).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert found.relative == pytest.approx(0.75 / 1.375)


def test_one_seed_has_no_interval() -> None:
    with pytest.raises(ValueError, match="found 1 pair; expected 2 or more"):
        part("common.intervals").difference([1.0], [2.0])


@pytest.mark.parametrize(
    ("interval", "direction", "better", "margin", "expected"),
    [
        ((-2.0, -1.0), "lower", "lower", 0.0, "holds"),
        ((-2.0, 1.0), "lower", "lower", 0.0, "not told apart"),
        ((1.0, 2.0), "lower", "lower", 0.0, "does not hold"),
        ((1.0, 2.0), "higher", "higher", 0.0, "holds"),
        ((-2.0, -1.0), "higher", "higher", 0.0, "does not hold"),
        ((-1.0, 0.4), "no worse", "lower", 0.5, "holds"),
        ((0.3, 0.6), "no worse", "lower", 0.5, "not told apart"),
        ((0.6, 0.9), "no worse", "lower", 0.5, "does not hold"),
        ((-0.4, 9.0), "no worse", "higher", 0.5, "holds"),
        ((-0.9, -0.6), "no worse", "higher", 0.5, "does not hold"),
        ((0.0, 0.0), "lower", "lower", 0.0, "not told apart"),
    ],
)
def test_a_verdict_says_what_the_interval_says(
    interval: tuple[float, float], direction: str, better: str, margin: float, expected: str
) -> None:
    less = part("common.intervals").Difference(sum(interval) / 2, *interval, None)
    assert part("accuracy_claims.verdicts").verdict(less, direction, better, margin) == expected


def test_rates_are_chosen_on_their_own_seeds_and_compared_at_both_and_in_common() -> None:
    found = runs({"async-easgd": {0.1: 0.5, 0.2: 0.3}, "async-sgd": {0.1: 0.4, 0.2: 0.6}})
    tested = part("accuracy_claims.verdicts").tested(claim(), found)
    assert (tested.ours.rate, tested.theirs.rate) == (0.2, 0.1)
    assert tested.difference.mean == pytest.approx(-0.1)
    assert tested.verdict == "holds"
    assert {rate: words for rate, (_, words) in tested.common.items()} == {0.1: "does not hold", 0.2: "holds"}
    assert tested.favours == (1, 2)


def test_a_target_that_is_never_reached_leaves_the_choice_to_the_loss() -> None:
    found = runs({"async-sgd": {0.1: 0.9, 0.2: 0.4}})
    assert found.best(entered("async-sgd"), "time") == 0.2
    found = runs({"async-sgd": {0.1: 0.9, 0.2: 0.4}}, reached=500.0)
    assert found.best(entered("async-sgd"), "accuracy") == 0.2


def test_what_is_tested_is_what_is_run() -> None:
    """No run is missing when a claim is tested, and test seeds are run only at the rates that count."""
    verdicts = part("accuracy_claims.verdicts")
    found = runs({"async-easgd": {0.1: 0.3, 0.2: 0.5}, "async-sgd": {0.1: 0.4, 0.2: 0.6}})
    asked = {*verdicts.to_tune(claim(), TUNING), *verdicts.to_test(claim(), found)}
    assert {piece.rate for piece in asked if piece.seed in TESTING} == {0.1}
    only = verdicts.Runs({piece: found.found[piece] for piece in asked}, TUNING, TESTING)
    assert verdicts.tested(claim(), only).verdict == "holds"


def test_a_target_that_is_not_reached_counts_as_reached_at_the_end() -> None:
    value, one = part("accuracy_claims.verdicts").value, entered("async-sgd")
    assert value("time", one, outcome(reached=250.0)) == 250.0
    assert value("time", one, outcome(reached=None)) == 1000.0


def test_the_largest_rate_ends_before_the_first_divergence() -> None:
    chance, one = part("accuracy_claims.runs").CHANCE, entered("async-sgd", grid=(0.1, 0.2, 0.4))
    found = {0.1: outcome(), 0.2: outcome(loss=chance), 0.4: outcome()}
    assert part("accuracy_claims.verdicts").largest(one, found) == 0.1
    assert part("accuracy_claims.verdicts").largest(one, {**found, 0.1: outcome(loss=chance)}) == 0.0


def test_the_distance_of_curves_is_over_the_samples_of_both() -> None:
    one = outcome(samples=(0.0, 100.0), losses=(2.0, 1.0))
    other = outcome(samples=(0.0, 200.0), losses=(2.0, 2.0))
    assert part("accuracy_claims.verdicts").distance(one, other) == pytest.approx(0.5)


# --- words -----------------------------------------------------------------------------------------------------------


def test_reasons_stand_under_what_does_not_hold() -> None:
    words, verdicts = part("accuracy_claims.rendering"), part("accuracy_claims.verdicts")
    losses = {"async-easgd": {0.1: 0.5, 0.2: 0.7}, "async-sgd": {0.1: 0.4, 0.2: 0.6}}
    text = words.markdown([verdicts.tested(claim(), runs(losses))], "Seeds.")
    assert "| does not hold |" in text
    assert "As many samples per second as theirs. After equal samples the losses are not told apart." in text
    text = words.markdown([verdicts.tested(claim(direction="higher"), runs(losses))], "Seeds.")
    assert "| holds |" in text
    assert "samples per second" not in text


@pytest.mark.parametrize(
    ("speed", "worse", "expected"),
    [
        (50.0, 0.0, "Why: it is slower."),
        (100.0, 0.1, "Why: it learns less from a sample."),
        (50.0, 0.1, "Why: it is slower and it learns less from a sample."),
        (100.0, 0.0, None),
    ],
)
def test_what_has_lost_is_slower_or_learns_less(speed: float, worse: float, expected: str | None) -> None:
    losses = {"async-easgd": {0.1: 0.6, 0.2: 0.9}, "async-sgd": {0.1: 0.4, 0.2: 0.9}}
    tested = part("accuracy_claims.verdicts").tested(claim(), runs(losses))
    less = part("common.intervals").Difference(worse, worse - 0.05, worse + 0.05, None)
    ours = replace(tested.ours, samples_per_s=speed)
    assert part("accuracy_claims.rendering").cause(replace(tested, ours=ours, equal_samples=less)) == expected


def test_results_are_written_between_the_marks_of_a_page(tmp_path: Path) -> None:
    words, page = part("accuracy_claims.rendering"), tmp_path / "page.md"
    page.write_text(f"Before.\n{words.BEGIN}\nold\n{words.END}\nAfter.\n", encoding="utf-8")
    words.write(page, "new")
    assert page.read_text(encoding="utf-8") == f"Before.\n{words.BEGIN}\n\nnew\n{words.END}\nAfter.\n"


@pytest.mark.parametrize("text", [None, "No marks.\n"])
def test_a_page_without_marks_is_refused_before_anything_runs(
    tmp_path: Path, text: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    if text is not None:
        page.write_text(text, encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["claims.py", "--write", str(page)])
    with pytest.raises(SystemExit) as stopped:
        part("claims").main()
    assert stopped.value.code == 2
    assert f"error: {page}: " in capsys.readouterr().err


def test_what_was_left_out_is_said() -> None:
    command = part("claims")
    names = [name for name in command.NAMES if name != "hier-often"]
    assert command.note(command.NAMES, seeds=10, tuning=3).endswith("at an end of its grid.")
    assert command.note(names, seeds=10, tuning=1).endswith("Left out: hier-often.")


# --- the runs --------------------------------------------------------------------------------------------------------


def test_figures_are_those_of_the_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim from its scenarios to its JSON, in this process."""
    command, table, settings = part("claims"), part("accuracy_claims.table"), part("accuracy_claims.settings")
    made = part("accuracy_claims.runs")
    monkeypatch.setattr(command, "outcomes", lambda pieces, **_: ((piece, made.outcome(piece)) for piece in pieces))
    setting = settings.Setting("four", "four devices", nodes=2, workers_per_node=2, batch=32, seconds=0.3, target=0.5)
    ours, theirs = (replace(settings.entered(name, setting), grid=(0.1, 0.4)) for name in ("async-sgd", "async-easgd"))
    one = table.Claim("c", "A paper", "words", "F", ours, theirs)
    (found,) = command.all_tested([one], seeds=2, tuning=1, jobs=1)
    again = command.all_tested([one], seeds=2, tuning=1, jobs=1)
    answer = json.loads(json.dumps(part("accuracy_claims.rendering").answer(found)))
    assert answer == json.loads(json.dumps(part("accuracy_claims.rendering").answer(again[0])))
    (run,) = simulate(ours.scenario(found.ours.rate, seed=1))
    assert made.outcome(made.Piece(ours, found.ours.rate, 1)).losses[-1] == run.summary["final_loss"]
    assert answer["difference"]["mean"] == pytest.approx(answer["ours"]["mean"] - answer["theirs"]["mean"])
    assert answer["verdict"] == "holds"
