"""MLPerf Training v0.5 to v1.1, ResNet-50: images per second of systems with more accelerators.

Within a submitter, chip, round and framework, the smallest system is given, and the larger ones are predicted. Images
per second are those of training: logs say which share of a block its evaluation and what follows it took. Where a log
has no times of evaluations, images per second are those of whole blocks. Submitters train in mixed precision on
accelerators and read pictures with enough processors: INFERENCE.
"""

from __future__ import annotations

import re

from paceline.validation.machines import Unread, spec_named, whole
from paceline.validation.sets import Line, of_steps
from paceline.validation.steps import Row

RATE = "images_per_s_in_blocks_incl_eval"
OTHER = "share_of_block_without_training"
"""after the last epoch of a block; "" where the log does not say it"""
ALL = "evaluations are in the measured time: the log does not say how long they took"


def _devices(line: Line) -> int:
    """Returns the accelerators; without any, the sockets in the name of the system (2-nodes-16s), or the nodes."""
    sockets = re.search(r"\b(\d+)s\b", line["system"])
    return int(line["accelerators"] or 0) or (int(sockets[1]) if sockets else _nodes(line))


def _nodes(line: Line) -> int:
    nodes = whole(line, "nodes")
    if nodes is None:
        raise Unread("nodes: missing; expected a count")
    return nodes


def row_of(line: Line) -> Row:
    """Returns the row of a line. Raises `Unread`."""
    if not line[RATE]:
        raise Unread(f"{RATE}: missing")
    devices, samples = _devices(line), int(float(line["global_batch_size_samples"]))
    batch = round(samples / devices)
    if batch < 1:
        raise Unread(f"global_batch_size_samples: found {samples} for {devices} accelerators")
    chip = line["accelerator"] if int(line["accelerators"] or 0) else "Xeon"
    framework, spec = line["framework"], spec_named(chip)
    return Row(
        group=" ".join((line["round"], line["submitter"], chip, framework)).strip(),
        name=f"{line['round']} {line['system']}",
        family=chip if spec is None else spec.name,  # submitters write a chip in several ways
        words={
            "device": chip, "system": line["system"], "interconnect": line["network"], "library": "",
            "framework": framework,
        },
        devices=devices,
        nodes=_nodes(line),
        model="resnet50-v1.5",
        batch=batch,
        precision="amp",
        step_s=devices * batch * (1 - float(line.get(OTHER) or 0)) / float(line[RATE]),
        assumed=() if line.get(OTHER) else (ALL,),
        source=line["first_source"],
    )  # fmt: skip


SET = of_steps(
    name="mlperf",
    title="MLPerf Training, ResNet-50: images per second from the smallest system to larger ones",
    file="mlperf_resnet50_systems.csv",
    columns=frozenset({"round", "submitter", "system", "accelerator", "accelerators", "nodes", RATE}),
    aim=(0.08, 0.25),
    row=row_of,
    in_sight=True,
)
