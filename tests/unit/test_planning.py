"""``paceline plan``: its search space, prices, bounds, answer, errors, and a plan that is killed and continued."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from paceline.algorithms.core.errors import InputError
from paceline.cli.app import app
from paceline.records.step_errors import ONE_NODE, most_similar, sentence
from paceline.reports.comparison.ranking import Aim
from paceline.reports.planning.plan_answer import candidates_of
from paceline.reports.planning.request import Limits, bound_s, parse_objectives, parse_target, shortfall
from paceline.reports.planning.search import JOURNAL, PlanStudy, PlanTrial, only_process
from paceline.reports.planning.search_space import (
    SearchChoice,
    SearchInterval,
    Values,
    nodes_for,
    offered_nodes,
    scenario_of,
    space_of,
)
from paceline.reports.run_cost import PriceRates, rates_of, run_cost
from paceline.scenarios import Scenario, ScenarioError, load
from paceline.topologies.catalogue.device_catalogue import SPECS, device_prices
from tests.plan_scenarios import QUADRATIC, small
from tests.thorough import extra

ARGUMENTS = ["--target", "loss=0.05", "--trials", "10", "--seeds", "3", "--minimise", "time,cost", "--jobs", "2"]


def call(*arguments: str | Path) -> Any:
    return CliRunner().invoke(app, ["plan", *map(str, arguments)])


@pytest.fixture(name="scenario", scope="module")
def scenario_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plan") / "small.yaml"
    part = {"methods": ["sync-sgd", "async-sgd"]}
    path.write_text(yaml.safe_dump({**QUADRATIC, "plan": part}), encoding="utf-8")
    return path


@pytest.fixture(name="planned", scope="module")
def whole_plan(scenario: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A plan that was not interrupted: its folder and what was printed."""
    out = tmp_path_factory.mktemp("whole")
    result = call(scenario, *ARGUMENTS, "--out", out)
    assert result.exit_code == 0, result.output
    return out / "small-plan-1", result.output


# --- the search space ------------------------------------------------------------------------------------------------


def test_default_space() -> None:
    space = space_of(small(), small().plan)
    assert space.workers == (1, 2)
    assert space.batches == (4, 8, 16)
    assert space.methods["sync-sgd"] == {"learning_rate": SearchInterval(low=0.025, high=0.4, log=True)}
    assert [one["method"] for one in space.usual] == ["sync-sgd", "async-sgd"]
    assert space.usual[0]["workers"] == 2
    assert space.usual[0]["sync-sgd.learning_rate"] == pytest.approx(0.1)


def test_given_space() -> None:
    part = small(
        workers="1..8x2",
        batch_per_worker=[4, 32],
        hyperparameters={"learning_rate": {"low": 0.1, "high": 1.0}, "async-sgd.learning_rate": [0.01, 0.02]},
    ).plan
    space = space_of(small(), part)
    assert space.workers == (1, 2, 4, 8)
    assert space.batches == (4, 32)
    assert space.methods["sync-sgd"] == {"learning_rate": SearchInterval(low=0.1, high=1.0, log=True)}
    assert space.methods["async-sgd"] == {"learning_rate": Values((0.01, 0.02))}


def test_mistakes_of_the_space_are_reported_together() -> None:
    part = small(workers="0..4", hyperparameters={"agd.delay": [1, 2], "sync-sgd.damping": ["none"]}).plan
    with pytest.raises(ScenarioError) as caught:
        space_of(small(), part)
    lines = str(caught.value).splitlines()
    assert len(lines) == 3
    assert "plan.workers" in lines[0]
    assert "agd is not considered; expected one of sync-sgd, async-sgd" in lines[1]
    assert "sync-sgd has no hyper-parameter damping" in lines[2]


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"workers": 0}, "plan.workers: found 0, expected a range such as 1..64x2"),
        ({"hyperparameters": {"learning_rat": [1]}}, "did you mean learning_rate"),
        ({"hyperparameters": {"learning_rate": {"low": 1.0, "high": 0.5}}}, "expected a number above low"),
        ({"hyperparameters": {"learning_rate": {"low": 0.0, "high": 0.5}}}, "since the scale is log"),
        ({"worker": "1..4"}, "unknown key"),
    ],
)
def test_mistakes_of_the_section(part: dict[str, Any], words: str) -> None:
    with pytest.raises(ScenarioError, match="plan") as caught:
        small(**part)
    assert words in str(caught.value)


def test_nodes_are_taken_in_order_and_repeated() -> None:
    offered = offered_nodes(load("quickstart"))["cluster"]
    assert [(node["device"]["name"], node["count"]) for node in nodes_for(offered, 6)] == [("fast", 2), ("slow", 1)]
    parts = nodes_for(offered, 5)
    assert [(node["count"], node["workers_per_node"]) for node in parts] == [(1, 2), (1, 2), (1, 1)]


@pytest.mark.parametrize("workers", range(1, 10))
def test_every_number_of_workers_is_possible(workers: int) -> None:
    given = load("quickstart")
    choice = SearchChoice(method="sync-sgd", nodes="cluster", workers=workers, batch_per_worker=16)
    made = load(scenario_of(given.dump(), offered_nodes(given), choice, None, [1]))
    assert made.cluster.workers == workers
    assert made.workload.batch_per_worker == 16


# --- prices ----------------------------------------------------------------------------------------------------------


def test_cost_of_a_run() -> None:
    (plan, _) = small().plans()
    cost = run_cost(plan, 1800.0)
    assert cost.usd == pytest.approx((4 + 1) / 2)
    assert cost.kwh is None


def test_a_method_alone_pays_for_one_node() -> None:
    assert rates_of(small(), alone=True).usd_per_hour == 4.0


def test_price_and_power_of_the_catalogue() -> None:
    rates = rates_of(
        load("resnet50-extrapolated", ["cluster={nodes: [{device: v100-sxm2, count: 3}]}"], algorithms=["sync-sgd"])
    )
    assert rates.usd_per_hour == pytest.approx(3 * 3.06)
    assert rates.watts == 3 * 300.0
    assert any("list price of 2024" in text for text in rates.sources)
    assert any("hosts and network not included" in text for text in rates.sources)


def test_missing_figures_name_their_keys() -> None:
    assert rates_of(load("quickstart")).missing == (
        "cluster.nodes[0].price_per_hour",
        "cluster.nodes[0].power",
        "cluster.nodes[1].price_per_hour",
        "cluster.nodes[1].power",
    )


def test_prices_are_of_known_devices() -> None:
    assert set(device_prices()) <= set(SPECS)


@pytest.mark.parametrize("text", ["12", "12 USD", "12 EUR/h", "-1 USD/h"])
def test_a_price_needs_its_unit(text: str) -> None:
    with pytest.raises(ScenarioError, match=r"price_per_hour.*12\.5 USD/h"):
        load("quickstart", [f"cluster.nodes[0].price_per_hour={text}"])


# --- bounds and candidates -------------------------------------------------------------------------------------------


def test_a_cheap_trial_gets_more_time() -> None:
    known = [(10.0, 0.1)]
    dear, cheap = PriceRates(usd_per_hour=360.0, watts=None), PriceRates(usd_per_hour=3.6, watts=None)
    assert bound_s(("time", "cost"), dear, known, Limits(), slack=1.0) == 10.0
    assert bound_s(("time", "cost"), cheap, known, Limits(), slack=1.0) == pytest.approx(100.0)
    assert bound_s(("time", "cost"), cheap, known, Limits(budget_usd=0.05)) == pytest.approx(50.0)


def trial(number: int, method: str, *values: float) -> PlanTrial:
    choice = SearchChoice(method=method, nodes="cluster", workers=number + 1, batch_per_worker=8)
    return PlanTrial(number=number, choice=choice, values=values or None, reason="", rows=(), bound_s=None)


def test_candidates_are_the_front_the_best_and_each_method() -> None:
    trials = [trial(0, "a", 9.0, 9.0), trial(1, "b", 1.0, 8.0), trial(2, "b", 8.0, 1.0), trial(3, "b")]
    trials += [trial(number, "b", 5.0 + number / 100, 5.0 + number / 100) for number in range(4, 20)]
    chosen = [one.number for one in candidates_of(trials)]
    assert {0, 1, 2, 4} <= set(chosen)
    assert 3 not in chosen
    assert len(chosen) < 10


# --- options ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["speed=3", "accuracy", "accuracy=2", "accuracy=x", "loss=0", "loss=nan"])
def test_unknown_targets(text: str) -> None:
    with pytest.raises(InputError, match=r"--target: found .* expected accuracy=A"):
        parse_target(text)


@pytest.mark.parametrize("text", ["speed", "time,time", ""])
def test_unknown_objectives(text: str) -> None:
    with pytest.raises(InputError, match="--minimise: found"):
        parse_objectives(text)


def test_shortfall_of_a_loss() -> None:
    assert shortfall(Aim("loss", 0.1), 0.2) == pytest.approx(0.6931, abs=1e-3)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["quickstart", "--target", "speed=3"], "--target: found 'speed=3'"),
        (["quickstart", "--budget", "200"], "--budget: found '200', expected an amount of money above 0 with its unit"),
        (["quickstart", "--budget", "200 USD"], "--budget: cluster.nodes[0].price_per_hour: missing"),
        (["quickstart", "--minimise", "energy"], "--minimise energy: cluster.nodes[0].power: missing"),
        (["quickstart", "--within", "2"], "--within: found '2', expected a time"),
        (["quickstart", "--algorithms", "sync-sdg"], "sync-sgd"),
        (["quickstart", "--tune", "learning_rate"], "--tune: found 'learning_rate', expected NAME=LOW..HIGH"),
        (["dgx1-p100", "--target", "accuracy=0.9"], "workload.learning: found none"),
        ([], "SCENARIO: missing"),
        (["--resume", "nowhere"], "--resume: found 'nowhere'"),
        (["--resume", "x-plan-unfinished-1", "quickstart"], "SCENARIO: found beside --resume"),
    ],
)
def test_wrong_options(arguments: list[str], words: str, tmp_path: Path) -> None:
    result = call(*arguments, "--out", tmp_path / "out")
    assert result.exit_code == 2, result.output
    assert words in result.output
    assert "Traceback" not in result.output


def test_an_accuracy_of_a_quadratic_is_rejected(scenario: Path, tmp_path: Path) -> None:
    result = call(scenario, "--target", "accuracy=0.9", "--out", tmp_path)
    assert result.exit_code == 2
    assert "has a loss only" in result.output


def test_an_unreachable_budget(scenario: Path, tmp_path: Path) -> None:
    limit = ["--budget", "0.0000001 USD"]
    result = call(scenario, "--target", "loss=0.05", "--trials", "3", *limit, "--out", tmp_path)
    assert result.exit_code == 1, result.output
    assert "none of 3 trials reaches a loss of 0.05 inside the limits; the closest is" in result.output
    assert "Allow more by --budget, `stop` of the scenario" in result.output
    assert (tmp_path / "small-plan-unfinished-1" / JOURNAL).exists()


# --- a whole plan ----------------------------------------------------------------------------------------------------


def test_a_plan_end_to_end(planned: tuple[Path, str]) -> None:
    folder, printed = planned
    answer = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    assert not set(answer["seeds"]["tuning"]) & set(answer["seeds"]["reported"])
    assert answer["seeds"]["reported"] == [3, 4, 5]
    assert answer["best"]["pareto"]
    assert answer["best"]["time_s"]["mean"] == min(
        one["time_s"]["mean"] for one in answer["plans"] if not one["reason"]
    )
    assert answer["second"]["choice"]["method"] != answer["best"]["choice"]["method"]
    assert "Best: " in printed
    assert "Second best (best plan of another method): " in printed
    assert "Learning is that of a noisy quadratic" in printed
    assert "given in the scenario" in printed
    assert (folder / "plan.png").stat().st_size > 10_000
    assert len((folder / "trials.csv").read_text(encoding="utf-8").splitlines()) == 11


def test_a_plan_on_devices_of_the_catalogue_states_the_errors_of_published_steps(tmp_path: Path) -> None:
    document = {
        "name": "known",
        "algorithms": ["sync-sgd"],
        "workload": {"model": "digits-mlp", "dataset": "digits", "batch_per_worker": 32},
        "cluster": {
            "nodes": [{"device": "t4", "workers_per_node": 2, "count": 2}],
            "network": {"topology": "star", "link": "aws-ipip-50g"},
        },
        "evaluate": {"every": "0.5 epochs"},
        "stop": {"epochs": 5},
    }
    path = tmp_path / "known.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    sizes = ["--workers", "2,4", "--algorithms", "sync-sgd", "--trials", "3", "--tuning-seeds", "1", "--seeds", "1"]
    result = call(
        path, "--target", "accuracy=0.3", *sizes, "--jobs", "1", "--minimise", "time", "--report", "--out", tmp_path
    )
    assert result.exit_code == 0, result.output
    folder = tmp_path / "known-plan-1"
    answer = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    networks = {2: ONE_NODE, 4: "aws-ipip-50g"}
    for plan in answer["plans"]:
        assert plan["rows"][0]["published_errors"] == [most_similar("t4", [networks[plan["choice"]["workers"]]])]
    (errors,) = answer["best"]["rows"][0]["published_errors"]
    report = (folder / "report.html").read_text(encoding="utf-8")
    for text in (answer["words"], " ".join(result.output.split()), report):
        assert text.count(sentence(errors)) == 1


def test_a_plan_without_devices_of_the_catalogue_states_no_errors(planned: tuple[Path, str]) -> None:
    answer = json.loads((planned[0] / "plan.json").read_text(encoding="utf-8"))
    assert all(row["published_errors"] == [] for plan in answer["plans"] for row in plan["rows"])
    assert "Published steps" not in planned[1]


def test_a_trial_can_be_simulated_again(planned: tuple[Path, str], tmp_path: Path) -> None:
    folder, _ = planned
    rows = trials_in(folder)[0]["rows"]
    result = CliRunner().invoke(
        app,
        ["simulate", str(folder / "trials" / "0000.yaml"), "--json", "--out", str(tmp_path)],
        catch_exceptions=False,
    )
    again = json.loads(result.stdout)["runs"]
    assert [run["seed"] for run in again] == [row["seed"] for row in rows]
    assert [run["summary"]["time_to_loss_s"] for run in again] == [row["time_s"] for row in rows]


def test_a_complete_plan_is_not_continued(planned: tuple[Path, str]) -> None:
    result = call("--resume", planned[0])
    assert result.exit_code == 2
    assert "expected an unfinished plan" in result.output


def test_one_process_at_a_time(tmp_path: Path) -> None:
    with (
        only_process(tmp_path),
        pytest.raises(InputError, match="which another process is continuing"),
        only_process(tmp_path),
    ):
        pass


def trials_in(folder: Path) -> list[dict[str, Any]]:
    """The trials in the journal of a plan, without their dates."""
    document = json.loads((folder / "request.json").read_text(encoding="utf-8"))
    scenario: Scenario = load({**document["scenario"], "plan": document["part"]})
    study = PlanStudy(folder, space_of(scenario, scenario.plan), objectives=2, seed=scenario.seed, batch=8)
    return [
        {"params": one.params, "values": one.values, "state": one.state.name, **one.user_attrs} for one in study.trials
    ]


@pytest.mark.parametrize("damage", ["[" * 100_000, '{"op_code": 4, "worker_id": "x"}', "\x00", '{"op_code": 99}'])
def test_a_damaged_journal_is_named(damage: str, planned: tuple[Path, str], tmp_path: Path) -> None:
    folder = shutil.copytree(planned[0], tmp_path / "damaged")
    lines = (folder / JOURNAL).read_text(encoding="utf-8").splitlines()
    (folder / JOURNAL).write_text("\n".join([lines[0], damage, *lines[1:]]) + "\n", encoding="utf-8")
    with pytest.raises(InputError, match=JOURNAL):
        trials_in(folder)


@pytest.mark.parametrize("trials", [9, extra(1)])
def test_a_killed_plan_continues_with_the_same_trials(
    trials: int, planned: tuple[Path, str], scenario: Path, tmp_path: Path
) -> None:
    """The process is killed in the first batch or between the batches; a torn line is left as well."""
    unfinished = tmp_path / "small-plan-unfinished-1"
    command = [sys.executable, "-m", "paceline", "plan", str(scenario), *ARGUMENTS, "--out", str(tmp_path)]
    process = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    points = unfinished / "points"
    while process.poll() is None and len(list(points.rglob("*.json"))) < 2 * trials - 1:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if unfinished.exists() and (unfinished / JOURNAL).exists():  # else the plan was complete before the kill
        with (unfinished / JOURNAL).open("ab") as file:
            file.write(b'{"op_code": 4, "worker')
        result = call("--resume", unfinished)
        assert result.exit_code == 0, result.output
    assert trials_in(tmp_path / "small-plan-1") == trials_in(planned[0])
    whole, continued = ((folder / "plan.json").read_text() for folder in (planned[0], tmp_path / "small-plan-1"))
    assert whole == continued
