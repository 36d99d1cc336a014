"""Composes a commented scenario for ``paceline init``.

A kind of cluster comes with a workload that suits it. Each text is valid as it is; a test loads all of them. Figures of
described devices are examples; those of the catalogue have their provenance there.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import fill

import yaml

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.naming import near_miss
from paceline.scenarios.sections.methods import find_method


@dataclass(frozen=True, slots=True)
class ClusterKind:
    """A kind of cluster: a line about it, its section, and the sections that go with it."""

    about: str
    cluster: str
    workload: str
    end: str


LEARNING = """\
workload:
  model: digits-mlp            # paceline list models
  dataset: digits              # paceline list datasets; this one comes with Paceline
  batch_per_worker: 32
"""
LEARNING_END = """\
evaluate: {every: 256 samples}   # loss and accuracy on held-out samples; takes no time of the run
target: {accuracy: 0.93}         # the time to this accuracy is reported; no run ends because of it
stop: {epochs: 14}               # or updates, samples, seconds, accuracy, loss; the first that is met ends the run
"""
TIMING = """\
workload:
  model: resnet50              # paceline list models
  batch_per_worker: 32
  learning: none               # predicts times only; real learning needs a model that this machine can train
"""
TIMING_END = """\
evaluate: {every: 1 epoch}
stop: {samples: 32768}           # or updates, seconds; the first that is met ends the run
"""
JITTER = """\
  # Gradients do not take equal times: the standard deviation of the logarithm, scaled to a mean of 1.
  step_time: {distribution: lognorm, sigma: SIGMA}
"""

KINDS: dict[str, ClusterKind] = {
    "described": ClusterKind(
        "four workers on devices that you describe; compare can run it on this machine",
        """\
cluster:
  nodes:
    # A gradient takes overhead + batch * per_sample. Put in times that you have measured.
    - {device: {name: fast, overhead: 4 ms, per_sample: 0.5 ms}, count: 1, workers_per_node: 2}
    - {device: {name: slow, overhead: 4 ms, per_sample: 1.125 ms}, count: 1, workers_per_node: 2}
  network: {topology: star, link: eth-10g}     # paceline list topologies, links
"""
        + JITTER.replace("SIGMA", "0.3"),
        LEARNING,
        LEARNING_END,
    ),
    "gpu-nodes": ClusterKind(
        "four nodes of four GPUs, joined by InfiniBand",
        """\
cluster:
  nodes:
    # Four GPUs on one PCIe tree. Devices are those of: paceline list devices
    - node: pcie-tree
      settings: {roots: 1, switches: 2, gpus_per_switch: 2, nics: 1, gpu: p100-pcie}
      count: 4
  network: {topology: star, link: ib-edr}      # paceline list topologies, links
"""
        + JITTER.replace("SIGMA", "0.02"),
        TIMING,
        TIMING_END,
    ),
    "fat-tree": ClusterKind(
        "sixteen nodes with a GPU each on a fat tree",
        """\
cluster:
  nodes:
    - {device: v100, count: 16}                # paceline list devices
  network: {topology: fat-tree, k: 4, link: ib-edr, routing: ecmp}     # 4 ports per switch join 16 nodes
"""
        + JITTER.replace("SIGMA", "0.02"),
        TIMING,
        TIMING_END,
    ),
    "dgx1": ClusterKind(
        "the eight P100s of one DGX-1",
        """\
cluster:
  system: dgx1-p100              # devices, NVLink and PCIe of this machine
"""
        + JITTER.replace("SIGMA", "0.02"),
        TIMING,
        TIMING_END,
    ),
    "cori-knl": ClusterKind(
        "sixteen Knights Landing nodes of the supercomputer Cori",
        """\
cluster:
  system: cori-knl               # nodes and Aries network of this machine
  nodes: 16
"""
        + JITTER.replace("SIGMA", "0.04"),
        TIMING.replace("resnet50 ", "googlenet"),
        TIMING_END,
    ),
}
LONGEST_NAME = 100
"""characters of a scenario's name, which the schema demands"""
WIDTH, MARK = 120, "  # "
"""characters of a line, and the beginning of a comment on a method"""
DEFAULT_KIND, DEFAULT_METHODS = "described", ("sync-sgd", "async-sgd", "easgd")
TRAIN = """\
# For paceline train and compare, which run the methods for real on this machine: each worker computes its true
# gradient, then waits until its device would have been done.
train: {pace: device, torch_threads: 1}
"""


def new_scenario(name: str, kind: str = DEFAULT_KIND, methods: Sequence[str] = DEFAULT_METHODS) -> str:
    """Returns the text of a scenario.

    Args:
        name: its name, see `valid_name`.
        kind: a kind of `KINDS`.
        methods: names of methods, or own methods ``module:Class``.

    Raises:
        InputError: the kind or methods are unknown, all together.
    """
    mistakes = []
    if kind not in KINDS:
        mistakes.append(f"--cluster: found {kind!r}{near_miss(kind, KINDS)}; expected one of {', '.join(KINDS)}")
    lines = []
    for method in methods:
        try:
            lines.append(_method_line(method))
        except InputError as error:
            mistakes.append(f"--algorithms: {error}")
    if not methods:
        mistakes.append("--algorithms: found no name; expected names such as sync-sgd,async-sgd")
    if mistakes:
        raise InputError("\n".join(mistakes))
    chosen = KINDS[kind]
    commands = ("simulate", "compare", "explain") if chosen.workload == LEARNING else ("simulate", "explain")
    parts = [
        f"# {chosen.about[0].upper()}{chosen.about[1:]}.\n#\n",
        "".join(f"#   paceline {command} THIS_FILE\n" for command in commands),
        "#\n# Every key, with its unit and default: docs/scenario-reference.md, or paceline schema for an editor.\n",
        f"name: {name if yaml.safe_load(name) == name else json.dumps(name)}\n\n",  # 7 and no need quotes
        "# Each method by its name, or with hyper-parameters, such as {name: easgd, learning_rate: 0.1}.\n",
        "# `paceline list algorithms NAME` shows the hyper-parameters of a method, with defaults.\n",
        "algorithms:\n",
        *lines,
        "\n# For the methods above that give none of their own.\nhyperparameters: {learning_rate: 0.1}\n\n",
        chosen.workload,
        "\n",
        chosen.cluster,
        "\n",
        f"{TRAIN}\n" if chosen.workload == LEARNING else "",
        chosen.end,
        "seed: 1\n",
    ]
    return "".join(parts)


def _method_line(name: str) -> str:
    """Returns the line of a method, with the first sentence of its documentation."""
    method = find_method(name)
    words = (inspect.getdoc(method) or "").partition("\n")[0].rstrip(".")
    line = f"  - {name}".ljust(30) + f" # {words}\n" if words else f"  - {name}\n"
    if len(line) <= WIDTH:
        return line
    return fill(words, WIDTH, initial_indent=MARK, subsequent_indent=MARK) + f"\n  - {name}\n"


def valid_name(stem: str) -> str:
    """Returns the name of a scenario for a file, with a hyphen for characters that names do not have.

    Args:
        stem: the name of the file without its ending.

    >>> valid_name("4 GPUs, für mich")
    '4-GPUs-f-r-mich'
    """
    return re.sub(r"[^A-Za-z0-9._-]+", "-", stem)[:LONGEST_NAME].strip("-.") or "scenario"
