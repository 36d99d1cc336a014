"""Builders of scenario sections: they have the keys of the sections, and a scenario in code is that of a file."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from pydantic import BaseModel

import paceline
from paceline import Cluster, Device, Link, Network, Nodes, Scenario, ScenarioError, Stop, Target, Train, Workload
from paceline.algorithms import METHODS
from paceline.scenarios.builders import cluster_builders, fault_builders, network_builders, run_builders
from paceline.scenarios.builders.builder import Builder
from paceline.scenarios.sections import checkpoints, fault_sections

BUILDERS = {
    name: kind
    for module in (cluster_builders, fault_builders, network_builders, run_builders)
    for name, kind in vars(module).items()
    if isinstance(kind, type) and issubclass(kind, Builder) and kind is not Builder
}
RENAMED: dict[str, type[BaseModel]] = {
    "CrashCheckpoints": fault_sections.CheckpointPart,
    "Checkpoints": checkpoints.CheckpointPart,
}
NAMES = {
    "Nodes": "NodePart",
    "MeasuredStep": "PointPart",
    "CoreGroups": "GroupsPart",
    "LinkRange": "PiecePart",
    "Crash": "CrashAtPart",
}
"""builders that are not called as their section without its ending"""
DEVICE = Device(name="gpu", overhead="4 ms", per_sample="0.5 ms")
TEXT = """
name: scenario
cluster:
  nodes: [{device: {name: gpu, overhead: 4 ms, per_sample: 0.5 ms}, count: 2, workers_per_node: 2}]
  network: {link: {latency: 20 us, bandwidth: 10 Gbit/s}}
  step_time: {distribution: lognorm, sigma: 0.3}
workload: {model: digits-mlp, batch_per_worker: 16}
algorithms: [sync-sgd, {name: agd, delay: 2}]
hyperparameters: {learning_rate: 0.2}
stop: {epochs: 1, seconds: 30 s}
train: {pace: none}
"""


def sections() -> dict[str, type[BaseModel]]:
    """All sections below a scenario, by the name of their class."""
    found: dict[str, type[BaseModel]] = {}

    def add(annotation: Any) -> None:
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            if annotation.__name__ in found:
                return
            found[annotation.__name__] = annotation
            for field in annotation.model_fields.values():
                add(field.annotation)
        for inner in getattr(annotation, "__args__", ()):
            add(inner)

    add(Scenario)
    return found


def section_of(name: str) -> type[BaseModel]:
    return RENAMED.get(name) or sections()[NAMES.get(name, f"{name}Part")]


@pytest.mark.parametrize("name", BUILDERS)
def test_a_builder_has_the_keys_of_its_section(name: str) -> None:
    given, section = dataclasses.fields(BUILDERS[name]), section_of(name)
    assert {BUILDERS[name].keys.get(field.name, field.name) for field in given} == {
        field.alias or key for key, field in section.model_fields.items()
    }
    required = {field.name for field in given if field.default is dataclasses.MISSING}
    required |= {"latency", "bandwidth"} if name == "Link" else set()  # not required beside `like`
    assert required == {key for key, field in section.model_fields.items() if field.is_required()}


@pytest.mark.parametrize("name", BUILDERS)
def test_a_number_has_the_unit_of_its_key(name: str) -> None:
    """The unit that the schema gives is that of the text that a number becomes."""
    properties = section_of(name).model_json_schema()["properties"]
    units = {}
    for key, schema in properties.items():
        kinds = [schema, *schema.get("anyOf", ())]
        if (unit := next((kind["unit"] for kind in kinds if "unit" in kind), None)) not in {
            None,
            "interval",
            "fraction",
        }:
            units[key] = unit
    made = BUILDERS[name].__new__(BUILDERS[name])
    for field in dataclasses.fields(BUILDERS[name]):
        object.__setattr__(made, field.name, 2.5 if BUILDERS[name].keys.get(field.name, field.name) in units else None)
    texts = {key: value for key, value in made.document().items() if value is not None}
    assert texts == {key: f"2.5 {unit}" for key, unit in units.items()}


def test_every_argument_of_a_scenario_is_a_key() -> None:
    assert set(inspect.signature(Scenario.__init__).parameters) - {"self"} == set(Scenario.model_fields)
    assert get_type_hints(Device)["per_sample"] == str | float | None


def test_a_scenario_in_code_is_that_of_the_text() -> None:
    made = Scenario(
        cluster=Cluster(
            nodes=[Nodes(device=DEVICE, count=2, workers_per_node=2)],
            network=Network(link=Link(latency=20e-6, bandwidth=1.25e9)),
            step_time={"distribution": "lognorm", "sigma": 0.3},
        ),
        workload=Workload(model="digits-mlp", batch_per_worker=16),
        algorithms=[METHODS["sync-sgd"], {"name": "agd", "delay": 2}],
        hyperparameters={"learning_rate": 0.2},
        stop=Stop(epochs=1, seconds=30),
        train=Train(pace="none"),
    )
    assert made == paceline.load(TEXT)
    assert paceline.load(made.dump()) == made
    assert pickle.loads(pickle.dumps(made)) == copy.deepcopy(made) == made
    assert Scenario.model_validate(made.dump()) == made


def test_sections_of_another_scenario_can_be_used() -> None:
    first = paceline.load(TEXT)
    again = Scenario(
        cluster=first.cluster, workload=first.workload, algorithms=list(first.algorithms), stop=first.stop, seeds=2
    )
    assert again.cluster == first.cluster
    assert (again.algorithms, again.seeds) == (first.algorithms, 2)


def test_a_mapping_may_have_builders() -> None:
    given = {**paceline.load(TEXT).dump(), "stop": Stop(updates=3), "target": Target(accuracy=0.5)}
    assert paceline.load(given).stop.updates == 3


def test_all_mistakes_are_reported_together_with_their_places() -> None:
    with pytest.raises(ScenarioError) as error:
        Scenario(
            cluster=Cluster(nodes=[Nodes(device="v10"), Nodes(device=DEVICE, count=0)]),
            workload=Workload(model="digits-mpl", data_dir=Path("/nowhere")),
            algorithms=["sync-sdg"],
            stop=Stop(seconds=-3),
        )
    places = [line.split(": ")[1] for line in str(error.value).splitlines()]
    assert places == [
        "cluster.nodes[0].device",
        "cluster.nodes[1].count",
        "workload.model",
        "algorithms[0]",
        "stop.seconds",
    ]


def test_a_number_in_a_mapping_needs_its_unit_as_in_a_file() -> None:
    data = paceline.load(TEXT).dump()
    with pytest.raises(ScenarioError, match=r"stop\.seconds: found 3, expected a time"):
        paceline.load({**data, "stop": {"seconds": 3}})


def test_a_builder_shows_what_was_given() -> None:
    assert repr(Nodes(device="v100-sxm2", count=2)) == "Nodes(device='v100-sxm2', count=2)"
