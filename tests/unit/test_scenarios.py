"""Correct scenarios: their meaning, and their plans."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import paceline
from paceline.algorithms.core.checksums import sealed
from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.values import Group, Rank
from paceline.scenarios import SHIPPED, Scenario, json_schema, load
from paceline.scenarios.sections.devices import LayerSplit
from paceline.scenarios.values.units import PERIOD, RATE, TIME
from paceline.topologies import LINKS


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("4 ms", 0.004),
        ("1.5 us", 1.5e-6),
        ("1.5 µs", 1.5e-6),
        ("2 min", 120.0),
        ("1 h", 3600.0),
        ("3e-3 s", 0.003),
        ("0 s", 0.0),
    ],
)
def test_times(text: str, seconds: float) -> None:
    assert TIME.parse(text) == seconds


@pytest.mark.parametrize(
    ("text", "bytes_per_s"),
    [
        ("10 Gbit/s", 1.25e9),
        ("1.25 GB/s", 1.25e9),
        ("10 Gbps", 1.25e9),
        ("10 KiB/s", 10 * 2**10),
        ("10 MiB/s", 10 * 2**20),
        ("1 GiB/s", 2**30),
        ("8 bit/s", 1.0),
    ],
)
def test_bandwidths(text: str, bytes_per_s: float) -> None:
    assert RATE.parse(text) == bytes_per_s


@pytest.mark.parametrize(
    "text", ["4", 4, "ms", "4 GB", "-4 ms", "4 ms 3", "4 ** 9 s", "1e999 s", "", None, True, "nan s"]
)
def test_what_is_no_time(text: object) -> None:
    with pytest.raises(ValueError, match="a time of 0 or more with its unit, such as '4 ms'"):
        TIME.parse(text)


def test_a_period_is_above_zero() -> None:
    with pytest.raises(ValueError, match="a time above 0 with its unit"):
        PERIOD.parse("0 s")


def test_quickstart_is_what_the_issue_asks_for() -> None:
    scenario = load("quickstart")
    assert [method.name for method in scenario.algorithms] == [
        "sync-sgd", "async-sgd", "easgd", "sync-easgd3", "hbs-sgd", "agd",
    ]  # fmt: skip
    cluster = scenario.cluster.build(scenario.workload)
    assert cluster.placement == [[0, 1], [2, 3]]
    assert [cluster.device_of(Rank(rank)).compute_s(32) for rank in range(4)] == pytest.approx([0.02, 0.02, 0.04, 0.04])
    assert cluster.step_time.law.parameters == (("sigma", 0.3),)
    assert (scenario.train.pace, scenario.train.network, scenario.train.torch_threads) == ("device", "local", 1)


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_scenarios_load_and_dump(name: str) -> None:
    few = ["cluster.nodes[0].count=40"] if name == "fat-tree-100k" else []  # test_shipped_scenarios has all of them
    scenario = load(name, few)
    assert scenario.name == name
    assert load(scenario.dump()) == scenario
    assert load(json.dumps(scenario.dump())) == scenario


def test_a_run_json_runs_the_same_again(tmp_path: Path) -> None:
    plan = load("quickstart").plans()[4]
    record = {"schema_version": 1, "kind": "simulated", "scenario": plan.scenario.dump(), "summary": {}}
    (tmp_path / "run.json").write_text(json.dumps(sealed(record)))
    (again,) = load(tmp_path / "run.json").plans()
    assert (again.name, again.seed, again.job.method, again.cluster) == ("hbs-sgd", 1, plan.job.method, plan.cluster)
    (tmp_path / "run.json").write_text(json.dumps(sealed(record) | {"kind": "measured"}))
    with pytest.raises(InputError, match=r"run\.json: is damaged: found checksum"):
        load(tmp_path / "run.json")


def test_plans_are_one_per_algorithm_and_seed() -> None:
    scenario = load("quickstart", ["seeds=3"], algorithms=["agd", "sync-sgd"])
    plans = scenario.plans()
    assert [(plan.name, plan.seed) for plan in plans] == [(n, s) for n in ("agd", "sync-sgd") for s in (1, 2, 3)]
    assert plans[0].job.learner is plans[3].job.learner
    assert plans[0].job.learner is not plans[1].job.learner
    assert [plan.scenario.seeds for plan in plans] == [1] * 6


def test_the_pace_is_device_time_times_spread() -> None:
    plan = load("quickstart", ["cluster.step_time={distribution: lognorm, sigma: 0.3}"]).plans()[0]
    steps = range(2000)
    for rank, expected_s in ((0, 0.020), (3, 0.040)):
        times = [plan.compute_s(Rank(rank), step, 32) for step in steps]
        assert sum(times) / len(times) == pytest.approx(expected_s, rel=0.03)  # 4 standard errors of sigma 0.3
        assert times[7] == pytest.approx(expected_s * plan.cluster.step_time.law.factor(1, rank, 7))
    steady = load("quickstart", ["cluster.step_time=null"]).plans()[0]
    assert [steady.compute_s(Rank(3), step, 32) for step in range(3)] == pytest.approx([0.040] * 3)


def test_the_stretch_holds_for_paced_runs_alone() -> None:
    scenario = load("quickstart", ["train.time_dilation=10"])
    (simulated, *_), (paced, *_) = scenario.plans(), scenario.plans(paced=True)
    assert paced.compute_s(Rank(1), 5, 32) == pytest.approx(10 * simulated.compute_s(Rank(1), 5, 32))
    free = load(scenario, ["train.pace=none"]).plans(paced=True)[0]
    assert free.compute_s(Rank(1), 5, 32) == simulated.compute_s(Rank(1), 5, 32)


def test_a_plan_knows_what_stays_inside_a_node() -> None:
    """Parts of a node do, the server does not, because it is on no node."""
    pair, part, across = (Group(tuple(map(Rank, ranks))) for ranks in ((0, 1), (1,), (1, 2)))
    (plan,) = load("quickstart", algorithms=["async-sgd"]).plans()
    assert [plan.inside(group) for group in (pair, part, across)] == [True, True, False]
    assert not plan.inside(Group((Rank(4),)))
    (plan,) = load("quickstart", ["train.shared_memory=false"], algorithms=["async-sgd"]).plans()
    assert not plan.inside(pair)


def test_a_plan_knows_whose_messages_stay_on_a_host() -> None:
    """Two workers on each of two nodes; the server, rank 4, is on the first one's host."""
    pairs = [(Rank(one), Rank(other)) for one, other in ((0, 1), (1, 2), (0, 4), (4, 1), (2, 4), (3, 2))]
    (plan,) = load("quickstart", algorithms=["async-sgd"]).plans()
    assert [plan.same_host(*pair) for pair in pairs] == [True, False, True, True, False, True]
    (plan,) = load("quickstart", ["train.shared_memory=false"], algorithms=["async-sgd"]).plans()
    assert not any(plan.same_host(*pair) for pair in pairs)


def test_budgets() -> None:
    def samples(*stops: str) -> list[int | None]:
        plans = load("quickstart", [f"stop={{{', '.join(stops)}}}"], algorithms=["sync-sgd", "async-sgd"]).plans()
        return [plan.job.budget.samples for plan in plans]

    assert samples("epochs: 2") == [2874, 2874]
    assert samples("updates: 10") == [10 * 128, 10 * 32]
    assert samples("samples: 100", "epochs: 2") == [100, 100]
    assert samples("seconds: 2 s") == [None, None]
    budget = load("quickstart", ["stop={seconds: 2 s, accuracy: 0.95}"]).plans()[0].job.budget
    assert (budget.seconds, budget.accuracy) == (2.0, 0.95)


def test_the_target_is_the_stop_accuracy_unless_given() -> None:
    assert load("quickstart", ["stop.accuracy=0.95"]).plans()[0].target == 0.93
    assert load("quickstart", ["stop.accuracy=0.9", "target=null"], algorithms=["agd"]).plans()[0].target == 0.9
    assert load("quickstart", ["target={}"]).plans()[0].target is None


def test_intervals() -> None:
    def schedule(every: str) -> tuple[float, str]:
        made = load("quickstart", [f"evaluate.every={every}"]).plans()[0].schedule()
        return made.every, made.unit

    assert schedule("1 epoch") == (1437, "samples")
    assert schedule("0.5 epochs") == (718, "samples")
    assert schedule("4 updates") == (4, "updates")
    assert schedule("500 samples") == (500, "samples")
    assert schedule("250 ms") == (0.25, "seconds")


def split_of(device: object, model: str, batch: int = 64, **workload: object) -> LayerSplit:
    scenario = {
        "name": "layers",
        "algorithms": ["layerwise-sgd"],
        "workload": {"model": model, "learning": "none", "batch_per_worker": batch, **workload},
        "cluster": {"nodes": [{"device": device, "count": 2}], "network": {"topology": "star", "link": "eth-10g"}},
        "stop": {"updates": 2},
    }
    (plan,) = load(scenario).plans()
    return plan.layer_split()


def given(name: str, per_sample: str) -> dict[str, str]:
    return {"name": name, "overhead": "3 ms", "per_sample": per_sample}


@pytest.mark.parametrize("model", ["vgg16", "alexnet", "resnet50", "transformer"])
def test_a_given_time_is_divided_among_layers_as_that_of_a_catalogue_device(model: str) -> None:
    forward, backward, words = split_of(given("box", "9.5 ms"), model)
    like_forward, like_backward, _ = split_of("p100-sxm2", model)
    assert forward == pytest.approx(like_forward)
    assert backward == pytest.approx(like_backward)
    assert words == "by their operations and bytes, at the rates of a p100-sxm2"
    assert split_of(given("box", "95 ms"), model) == (forward, backward, words)  # slower in every layer alike
    profile = [{"batch": 8, "time": "9 ms"}, {"batch": 64, "time": "40 ms"}]
    assert split_of({"name": "box", "profile": profile}, model) == (forward, backward, words)


def test_the_dense_layers_of_vgg_have_most_parameters_and_little_of_a_given_time() -> None:
    forward, backward, _ = split_of(given("box", "9.5 ms"), "vgg16")
    assert 0.01 < sum(forward[-3:]) + sum(backward[-3:]) < 0.05


def test_a_given_device_of_a_known_name_and_precision_has_its_shares() -> None:
    for name in ("v100", "A100"):
        split = split_of(given(name, "1 ms"), "resnet50", compute_dtype="amp")
        known = split_of(name.lower(), "resnet50", compute_dtype="amp")
        assert [*split.forward, *split.backward] == pytest.approx([*known.forward, *known.backward])
        assert name.lower() in split.words


def test_a_problem_without_layers_of_a_model_is_divided_by_parameters() -> None:
    forward, backward, words = split_of(given("box", "1 ms"), "quadratic", learning="quadratic")
    assert [*forward, *backward] == pytest.approx([1 / 6, 1 / 6, 1 / 3, 1 / 3])
    assert words == "by their parameters, a third of it forward"


def test_hyperparameters_for_all_reach_those_that_leave_them_open() -> None:
    scenario = load(
        "quickstart", ["hyperparameters={learning_rate: 0.05, moving_rate: 0.5}", "algorithms.easgd.learning_rate=0.2"]
    )
    rates = {method.name: method.learning_rate for method in scenario.algorithms}  # type: ignore[attr-defined]
    assert rates == {
        "sync-sgd": 0.05,
        "async-sgd": 0.075,
        "easgd": 0.2,
        "sync-easgd3": 0.05,
        "hbs-sgd": 0.05,
        "agd": 0.05,
    }
    assert [m.moving_rate for m in scenario.algorithms[2:4]] == [0.5, 0.5]  # type: ignore[attr-defined]
    assert load(scenario.dump()) == scenario


@pytest.mark.parametrize(
    ("algorithms", "labels"),
    [
        ("agd, {name: agd, delay: 4}, easgd", ["agd", "agd delay=4", "easgd"]),
        ("{name: diloco, period: 50}, {name: diloco, period: 500}", ["diloco H=50", "diloco H=500"]),
        ("{name: diloco, period: 50, beta1: 0.8}, {name: diloco, period: 500, beta1: 0.8}", None),
        ("sync-sgd, {name: sync-sgd, learning_rate: 0.1}", ["sync-sgd", "sync-sgd lr=0.1"]),
        ("{name: sync-sgd, label: A}, {name: sync-sgd, learning_rate: 0.1}", ["A", "sync-sgd"]),
        ("{name: sync-sgd, label: A}, {name: sync-sgd, label: b c}", ["A", "b c"]),
        ("ddp, layerwise-sgd, {name: ddp, bucket: null}", ["ddp", "layerwise-sgd", "ddp bucket=null"]),
        ("sync-sgd, {name: sync-sgd, lars: {}}", ["sync-sgd", "sync-sgd lars.trust_coefficient=0.001"]),
    ],
)
def test_labels_show_what_differs_between_the_entries(algorithms: str, labels: list[str] | None) -> None:
    scenario = load("quickstart", [f"algorithms=[{algorithms}]", "hyperparameters={learning_rate: 0.05}"])
    expected = ["diloco H=50", "diloco H=500"] if labels is None else labels
    assert [plan.name.partition(" lars.")[0] for plan in scenario.plans()] == [
        label.partition(" lars.")[0] for label in expected
    ]
    again = load(scenario)
    assert [plan.name for plan in again.plans()] == [plan.name for plan in scenario.plans()]
    for plan in scenario.plans():  # a stored run has the scenario of its plan
        (alone,) = load(plan.scenario).plans()
        assert plan.name.startswith(alone.name)
        assert alone.job.method == plan.job.method


@pytest.mark.parametrize(
    ("algorithms", "message"),
    [
        (
            "{name: agd, label: A}, {name: easgd, label: A}",
            r"algorithms\[1\]: found the label 'A', which",
        ),
        (
            "{name: agd, label: easgd}, easgd",
            r"algorithms\[1\]: found the label 'easgd', which algorithms",
        ),
        ("{name: agd, label: 5}", r"algorithms\[0\]\.label: found 5, expected text of 1 to 60 characters in one line"),
        ("{name: agd, label: '  '}", r"algorithms\[0\]\.label: found '  ', expected text"),
        ("{name: agd, label: 1, delay: x}", r"label: found 1, .*\n.*algorithms\[0\]\.delay: found 'x'"),
    ],
)
def test_wrong_labels(algorithms: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load("quickstart", [f"algorithms=[{algorithms}]"])


def test_an_entry_is_selected_by_its_label() -> None:
    entries = "algorithms=[{name: agd, label: late, delay: 2}, {name: agd, label: later, delay: 4}]"
    (chosen,) = load("quickstart", [entries, "algorithms.later.delay=5"], algorithms=["later"]).algorithms
    assert chosen.delay == 5  # type: ignore[attr-defined]


def test_a_link_may_be_inline_and_resolves_with_its_provenance() -> None:
    wire = load("quickstart", ["cluster.network.link={latency: 5 us, bandwidth: 1 GB/s}"]).cluster.network.link.build()
    assert (wire.latency_s, wire.bytes_per_s, wire.provenance) == (5e-6, 1e9, "given in the scenario")
    wire = load("quickstart").cluster.network.link.build()
    assert wire == LINKS["eth-10g"]
    assert "MEMORY" in wire.provenance


def test_sequential_sgd_uses_one_worker() -> None:
    (plan,) = load("quickstart", algorithms=["sequential-sgd"]).plans()
    assert plan.job.workers == 1
    assert plan.job.limit == 629


def test_other_learning_problems() -> None:
    quadratic = load("quickstart", ["workload={model: quadratic, learning: quadratic, options: {num_samples: 4096}}"])
    assert quadratic.plans()[0].job.learner.num_samples == 4096
    timing = load("quickstart", ["workload={model: alexnet, learning: none}"])
    assert timing.plans()[0].job.learner.initial().nbytes == 4 * 62_378_344


def test_the_schema_describes_every_key_and_its_unit() -> None:
    made = json_schema()
    json.dumps(made)
    assert set(made["properties"]) == set(Scenario.model_fields)
    assert made["$defs"]["Device"]["properties"]["overhead"]["anyOf"][0]["examples"] == ["4 ms"]
    for part in [made, *made["$defs"].values()]:
        assert part["additionalProperties"] is False
        assert all("description" in value for value in part["properties"].values()), part["title"]


@pytest.mark.parametrize("folder", ["simulator", "backend", "checking"])
def test_engines_read_the_values_of_a_plan_and_not_its_scenario(folder: str) -> None:
    root = Path(paceline.__file__).parent / folder
    reads = [path.name for path in root.rglob("*.py") if re.search(r"plan\.scenario\b", path.read_text("utf-8"))]
    assert reads == []
