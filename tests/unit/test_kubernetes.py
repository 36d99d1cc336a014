"""The manifest of docs/: its fields are those of Kubernetes, its parts fit together, its command starts all ranks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from paceline.backend.transports.launchers import script
from paceline.scenarios import load

MANIFEST = Path(__file__).parents[2] / "docs/kubernetes.yaml"

pytestmark = pytest.mark.skipif(not MANIFEST.exists(), reason="needs the repository, not an installed wheel")

TEXT: Mapping[str, Any] = {"type": "string", "minLength": 1}
NAME: Mapping[str, Any] = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": 63}
QUANTITY: Mapping[str, Any] = {"type": "string", "pattern": r"^\d+(m|[KMGT]i)?$"}
LABELS: Mapping[str, Any] = {"type": "object", "additionalProperties": TEXT, "minProperties": 1}
SIZES: Mapping[str, Any] = {"type": "object", "additionalProperties": QUANTITY}


def of(required: Mapping[str, Any], **optional: Any) -> dict[str, Any]:
    """An object with these fields and no others."""
    return {
        "type": "object",
        "properties": {**required, **optional},
        "required": list(required),
        "additionalProperties": False,
    }


def several(items: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items, "minItems": 1}


def document(kind: str, version: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    return of({"apiVersion": {"const": version}, "kind": {"const": kind}, "metadata": of({"name": NAME}), "spec": spec})


CONTAINER = of(
    {"name": NAME, "image": TEXT},
    command=several(TEXT),
    env=several(of({"name": TEXT, "value": {"type": "string"}})),
    resources=of({}, requests=SIZES, limits=SIZES),
    volumeMounts=several(of({"name": NAME, "mountPath": TEXT})),
)
APART = several(of({"topologyKey": TEXT, "labelSelector": of({"matchLabels": LABELS})}))
VOLUME = of(
    {"name": NAME},
    emptyDir=of({}, medium={"enum": ["", "Memory"]}, sizeLimit=QUANTITY),
    persistentVolumeClaim=of({"claimName": NAME}),
)
POD = of(
    {"containers": several(CONTAINER), "restartPolicy": {"enum": ["Never", "OnFailure"]}},
    subdomain=NAME,
    terminationGracePeriodSeconds={"type": "integer", "minimum": 0},
    affinity=of({"podAntiAffinity": of({"requiredDuringSchedulingIgnoredDuringExecution": APART})}),
    volumes=several(VOLUME),
)
COUNT: Mapping[str, Any] = {"type": "integer", "minimum": 0}
JOB = of(
    {"template": of({"spec": POD})},
    completionMode={"enum": ["Indexed", "NonIndexed"]},
    completions=COUNT,
    parallelism=COUNT,
    backoffLimit=COUNT,
)
SERVICE = of({"selector": LABELS}, clusterIP=TEXT, publishNotReadyAddresses={"type": "boolean"})
CLAIM = of({"accessModes": several(TEXT), "resources": of({"requests": SIZES})})
DOCUMENTS = {
    "Service": document("Service", "v1", SERVICE),
    "PersistentVolumeClaim": document("PersistentVolumeClaim", "v1", CLAIM),
    "Job": document("Job", "batch/v1", JOB),
}
"""the fields of Kubernetes that the manifest uses, with their types: its API reference, MEMORY high"""


@pytest.fixture(scope="module")
def parts() -> dict[str, Any]:
    return {part["kind"]: part for part in yaml.safe_load_all(MANIFEST.read_text(encoding="utf-8"))}


def test_its_fields_are_those_of_kubernetes(parts: dict[str, Any]) -> None:
    validation: Any = pytest.importorskip("jsonschema", reason="jsonschema is not installed: it validates the manifest")
    assert parts.keys() == DOCUMENTS.keys()
    for kind, part in parts.items():
        validation.Draft202012Validator(DOCUMENTS[kind]).validate(part)


def test_its_parts_name_each_other(parts: dict[str, Any]) -> None:
    job, service = parts["Job"], parts["Service"]
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    label = {"job-name": job["metadata"]["name"]}  # Kubernetes gives it to the pods of a job
    (apart,) = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert service["spec"]["selector"] == apart["labelSelector"]["matchLabels"] == label
    assert pod["subdomain"] == service["metadata"]["name"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    (claimed,) = [volume["persistentVolumeClaim"] for volume in pod["volumes"] if "persistentVolumeClaim" in volume]
    assert claimed["claimName"] == parts["PersistentVolumeClaim"]["metadata"]["name"]


def test_its_command_starts_a_process_for_every_rank(parts: dict[str, Any]) -> None:
    job = parts["Job"]
    (container,) = job["spec"]["template"]["spec"]["containers"]
    command = container["command"]
    launcher, paceline = command[: command.index("--no-python")], command[command.index("--") + 2 :]
    assert command[len(launcher) : -len(paceline)] == ["--no-python", "--", "paceline"]
    given = dict(option.removeprefix("--").split("=") for option in launcher[1:])
    command_name, scenario, *options = paceline
    assert command_name == "train"
    slurm = script(load(scenario), [])  # the script for Slurm asks for the same nodes and processes
    nodes, tasks, threads = (
        re.findall(rf"^#SBATCH --{option}=(\d+)$", slurm, re.MULTILINE)[0]
        for option in ("nodes", "ntasks-per-node", "cpus-per-task")
    )
    assert (given["nnodes"], given["nproc-per-node"]) == (nodes, tasks)
    assert job["spec"]["completions"] == job["spec"]["parallelism"] == int(nodes)
    assert container["env"] == [{"name": "OMP_NUM_THREADS", "value": threads}]
    name, service = job["metadata"]["name"], parts["Service"]["metadata"]["name"]
    assert given["rdzv-endpoint"].partition(":")[0] == f"{name}-0.{service}"
    assert options[options.index("--out") + 1] in {mount["mountPath"] for mount in container["volumeMounts"]}
