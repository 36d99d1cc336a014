"""Pollux (OSDI 2021) and Sia (SOSP 2023): seconds of training steps, by placement of replicas and batch of a replica.

The rows with one replica, with all batches, are given; those of all placements and of scalability are predicted. A step
begins when its batch has been loaded, and ends after the update; its seconds are means of about 15 steps.

* AWS: g4dn.12xlarge with 4 T4, a pod for each GPU, Calico's network: FOUND petuum/adaptdl, branch osdi21-artifact,
  benchmark/main.tf, which applies Calico's manifest of v3.11. Its manifests have IP-in-IP always: FOUND in copies. The
  placement group's strategy is not in the file: the limit of flows outside of a cluster placement group is taken.
* Azure: ND40rs_v2, 8 V100 of 32 GB and one EDR InfiniBand card: FOUND siasosp23/artifacts,
  sia-simulator/simulator_config.py. Pods as on AWS, without GPUDirect: INFERENCE, as no image of the jobs sets it up.
* NCCL by the images of the jobs: 2.6 in PyTorch 20.03, 2.7 in 20.10 (FOUND Dockerfiles; versions MEMORY high), and 2.7
  in PyTorch 1.9 on Azure.
* Between two machines, data of a ring pass one tunnel in both directions (`aws-ipip-50g-both-ways`).
* Steps of BERT in the open half decided which of these documented limits hold: 5 Gbit/s, not 10; a tunnel shared by
  both directions; card and GPUs on one PCIe switch on Azure. No constant was fitted to them.
* NCCL's few channels over sockets and one card are taken to leave the devices to gradients, which changes a step by 1 %
  and lets the vectorised interpreter run.
* Not in the given rows, and so not predicted: replicas that wait for the slowest one, such as for its pictures from
  shared storage (imagenet on Azure) or its cores (ncf and deepspeech2 on Azure, with many replicas a node).
* A digit of a placement is the replicas of a node; rows of scalability have them as even as possible over the nodes.
"""

from __future__ import annotations

import math

import numpy as np

from paceline.validation.machines import Unread, number, whole
from paceline.validation.sets import Line, of_steps
from paceline.validation.steps import Row

PLACEMENT, BATCH, STEP = "placement_replicas_per_node_digits", "local_batch_size", "step_time_s"
OWN = "paceline.validation.models:"
MODELS = {
    "bert": f"{OWN}bert_squad", "cifar10": f"{OWN}cifar_resnet18", "deepspeech2": f"{OWN}deepspeech2",
    "imagenet": "resnet50-v1.5", "ncf": f"{OWN}neumf_movielens", "yolov3": f"{OWN}yolov3_voc",
}  # fmt: skip
"""by their names in the table"""
OLDER = ("cifar10", "ncf")
"""models whose images on AWS are of the older PyTorch"""
LONGEST = {"deepspeech2": ((10, 0.103), (20, 0.086), (40, 0.073), (80, 0.065), (240, 0.049))}
"""for batches, how much the longest of so many samples varies, to which the others are padded: standard deviation over
mean, DERIVED from the characters of all 1,132 sentences of CMU ARCTIC (FOUND, cmuarctic.data), whose recordings by one
speaker are the data set (FOUND, data/cmu-arctic-manifests.tar.gz)"""
CLUSTERS = {
    "aws (default)": {
        "device": "T4", "system": "g4dn.12xlarge on AWS, a pod for each GPU",
        "interconnect": "50 Gbit/s Ethernet, IP-in-IP", "library": "nccl 2.7",
    },
    "azure": {
        "device": "V100 32GB", "system": "ND40rs_v2 on Azure, a pod for each GPU",
        "interconnect": "InfiniBand EDR without GPUDirect", "library": "nccl 2.7",
    },
}  # fmt: skip
"""the words of each cluster"""


def spread_of(model: str, batch: int) -> float:
    """Returns how much a gradient's seconds vary, relative to their mean, because they follow its longest sample.

    >>> spread_of("deepspeech2", 20), spread_of("bert", 20)
    (0.086, 0.0)
    """
    if model not in LONGEST:
        return 0.0
    batches, spreads = zip(*LONGEST[model], strict=True)
    return round(float(np.interp(math.log(batch), np.log(batches), spreads)), 4)


def placement_of(line: Line) -> tuple[int, ...]:
    """Returns the replicas of each node. Raises `Unread`.

    >>> placement_of({"kind": "placements", PLACEMENT: "1124"})
    (1, 1, 2, 4)
    >>> placement_of({"kind": "scalability", "num_nodes": "3", "num_replicas": "8"})
    (3, 3, 2)
    """
    if line.get("kind") == "placements":
        digits = line[PLACEMENT]
        if not digits.isdecimal() or "0" in digits:
            raise Unread(f"{PLACEMENT}: found {digits!r}, expected the replicas of each node, such as 1124")
        return tuple(map(int, digits))
    if line.get("kind") != "scalability":
        raise Unread(f"kind: found {line.get('kind')!r}, expected placements or scalability")
    nodes, replicas = whole(line, "num_nodes"), whole(line, "num_replicas")
    if nodes is None or replicas is None or replicas < nodes:
        raise Unread(f"num_replicas: found {replicas} on {nodes} nodes, expected one a node or more")
    least, more = divmod(replicas, nodes)
    return (least + 1,) * more + (least,) * (nodes - more)


def row_of(line: Line) -> Row:
    """Returns the row of a line. Raises `Unread`."""
    model, cluster = line["model"], line["gpu_cluster"]
    for column, known in (("model", MODELS), ("gpu_cluster", CLUSTERS)):
        if line[column] not in known:
            raise Unread(f"{column}: found {line[column]!r}, expected one of {', '.join(known)}")
    placement, batch = placement_of(line), whole(line, BATCH)
    if batch is None:
        raise Unread(f"{BATCH}: found {line[BATCH]!r}, expected a count")
    words, short = CLUSTERS[cluster], cluster.split()[0]
    if short == "aws" and model in OLDER:
        words = words | {"library": "nccl 2.6"}
    digits = line["kind"] == "placements"
    placed = "".join(map(str, placement)) if digits else f"{sum(placement)} on {len(placement)}"
    return Row(
        group=f"{short} {model}",
        name=f"{short} {model} {placed} x {batch}",
        family=model,
        words=words,
        devices=sum(placement),
        nodes=len(placement),
        placement=placement,
        model=MODELS[model],
        batch=batch,
        step_s=number(line, STEP),
        rate=False,
        source=line["source"],
        spread=spread_of(model, batch),
        keys={"cluster": {"interference": 0.0}},
    )


SET = of_steps(
    name="pollux",
    title="Pollux and Sia: seconds of a step from one GPU to placements on many nodes",
    file="pollux_sia_step_times.csv.gz",
    columns=frozenset({"model", "gpu_cluster", "kind", PLACEMENT, "num_nodes", "num_replicas", BATCH, STEP}),
    aim=(0.12, 0.25),
    row=row_of,
)
