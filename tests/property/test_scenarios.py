"""Scenarios under Hypothesis: a dumped scenario loads again, and only `ScenarioError` is ever raised."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms import METHODS
from paceline.scenarios import Scenario, ScenarioError, load
from paceline.topologies import LINKS

TIMES = st.builds("{} {}".format, st.floats(1e-3, 1e3), st.sampled_from(["us", "ms", "s"]))
APART = st.builds("{} s".format, st.floats(1e-3, 1e3))
"""times that may recur"""
MTBF = st.builds("{} s".format, st.floats(1e3, 1e6))
"""far enough apart that checkpoints complete"""
RATES = st.builds("{} {}".format, st.floats(1e-3, 1e3), st.sampled_from(["Gbit/s", "MB/s", "GiB/s"]))
POSITIVE = st.floats(1e-6, 1e6)
OWN_LINK = st.fixed_dictionaries({"latency": TIMES, "bandwidth": RATES})
LINK = st.sampled_from(sorted(LINKS)) | OWN_LINK
STEADY = [name for name, link in LINKS.items() if link.variation is None and link.download_bytes_per_s is None]
INSIDE = st.sampled_from(sorted(STEADY)) | OWN_LINK
"""links that are possible inside a node"""
JITTER = st.none() | st.builds(lambda sigma: {"distribution": "lognorm", "sigma": sigma}, st.floats(0.01, 1))
NODE = st.fixed_dictionaries(
    {"device": st.fixed_dictionaries({"name": st.just("d"), "overhead": TIMES, "per_sample": TIMES})},
    optional={"count": st.integers(1, 3), "workers_per_node": st.integers(1, 4), "step_time": JITTER},
)


def placed(**keys: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """A mapping with these keys, at a path that every cluster has."""
    place = st.sampled_from([{}, {"node": 0}, {"worker": 0}, {"share": 0.5}, {"share": "100 %"}])
    return st.builds(lambda where, rest: {**where, **rest}, place, st.fixed_dictionaries(keys))


def stop_after_target(data: dict[str, Any]) -> dict[str, Any]:
    """The stop rule without an accuracy below the target, which is an error."""
    target = data.get("target", {}).get("accuracy", 0.0)
    return {key: value for key, value in data["stop"].items() if key != "accuracy" or value >= target}


def suited(data: dict[str, Any]) -> dict[str, Any]:
    """The scenario without methods that do not support its number of workers, with at least one."""
    data = {**data, "stop": stop_after_target(data)}
    nodes = load({**data, "algorithms": ["sync-sgd"]}).cluster.placement
    names = [name for name in data["algorithms"] if not METHODS[name]().problems(nodes)]
    return {**data, "algorithms": names or ["sync-sgd"]}


SCENARIOS = st.fixed_dictionaries(
    {
        "name": st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,20}", fullmatch=True),
        "algorithms": st.lists(st.sampled_from(sorted(METHODS)), min_size=1, unique=True),
        "workload": st.fixed_dictionaries(
            {"model": st.sampled_from(["lenet", "alexnet"]), "learning": st.just("none")},
            optional={"batch_per_worker": st.integers(1, 100)},
        ),
        "cluster": st.fixed_dictionaries(
            {"nodes": st.lists(NODE, min_size=1, max_size=3)},
            optional={
                "network": st.fixed_dictionaries({}, optional={"link": LINK, "intra_node_link": INSIDE}),
                "step_time": JITTER,
                "step_times": st.lists(placed(step_time=JITTER), max_size=2),
                "stragglers": st.lists(placed(factor=st.floats(1, 9)), max_size=2),
                "slowdowns": st.lists(
                    placed(factor=st.floats(1, 9), lasts=TIMES, at=TIMES)
                    | placed(factor=st.floats(1, 9), lasts=TIMES, every=APART, duration=JITTER),
                    max_size=2,
                ),
                "crashes": st.none()
                | st.fixed_dictionaries(
                    {"mtbf": MTBF},
                    optional={
                        "recovery": TIMES,
                        "at": st.lists(placed(at=TIMES), max_size=2),
                        "checkpoint": st.none() | st.fixed_dictionaries({"every": APART}, optional={"cost": TIMES}),
                    },
                ),
            },
        ),
        "stop": st.fixed_dictionaries(
            {"epochs": POSITIVE},
            optional={"seconds": TIMES, "samples": st.integers(1, 10**15), "accuracy": st.floats(0.01, 1)},
        ),
    },
    optional={
        "evaluate": st.builds(
            lambda every: {"every": every}, TIMES | st.sampled_from(["1 epoch", "0.25 epochs", "3 updates"])
        ),
        "hyperparameters": st.builds(lambda rate: {"learning_rate": rate}, POSITIVE),
        "seed": st.integers(0, 10**9),
        "target": st.builds(lambda accuracy: {"accuracy": accuracy}, st.floats(0.01, 1)),
    },
).map(suited)
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.just(10**400) | st.floats() | st.text(max_size=20) | TIMES | RATES
)
KEYS = st.sampled_from(sorted(Scenario.model_fields)) | st.text(max_size=8)
DATA = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12
)


def refused_or_right(source: Any, *overrides: str) -> None:
    with contextlib.suppress(ScenarioError):  # and nothing else
        assert isinstance(load(source, overrides), Scenario)


@given(SCENARIOS)
def test_what_is_dumped_loads_again(data: dict[str, Any]) -> None:
    scenario = load(data)
    dumped = scenario.dump()
    assert load(dumped) == scenario
    assert load(json.dumps(dumped)) == scenario  # JSON is YAML


@given(st.text())
def test_any_text(text: str) -> None:
    refused_or_right(text + "\n")
    refused_or_right("{" + text)


@given(st.text(alphabet="{}[]:,-!&*|>?%@#'\"\\ \n\tab01.~e<="))
def test_any_text_of_yaml_characters(text: str) -> None:
    refused_or_right(text + "\n")


@given(DATA)
def test_any_data(data: Any) -> None:
    refused_or_right(yaml.safe_dump(data, allow_unicode=True) + "\n")


@given(SCENARIOS, st.data())
def test_any_value_in_any_place(scenario: dict[str, Any], draw: st.DataObject) -> None:
    here: Any = scenario
    while True:  # walks to some place and puts some value there
        key = draw.draw(st.sampled_from(sorted(here) if isinstance(here, dict) else range(len(here))))
        if not isinstance(here[key], dict | list) or not here[key] or draw.draw(st.booleans()):
            break
        here = here[key]
    here[key] = draw.draw(DATA)
    refused_or_right(scenario)


@given(st.text(max_size=30), st.text(max_size=10))
def test_any_override(path: str, value: str) -> None:
    refused_or_right("quickstart", f"{path}={value}", path)
