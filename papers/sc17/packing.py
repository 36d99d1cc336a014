"""Packed and layered messages of SC'17: one message of all layers against one message per layer."""

from __future__ import annotations

import re
from itertools import product

import numpy as np

from paceline.algorithms.core.values import Group, Rank
from paceline.papers.core.claim import Effort, Predicted
from paceline.papers.core.input_files import input_named
from paceline.papers.runs.simulated_runs import rate_of, simulated
from paceline.scenarios import load
from paceline.scenarios.resolution.plan import Plan
from paceline.simulator.network.network import ClusterNetwork
from paceline.simulator.runs.cost_model import cluster_network
from paceline.workloads import find_model


def order_of_packing(effort: Effort) -> Predicted:
    """Returns the smallest ratio of the step with layered messages to that with packed ones."""
    found: dict[str, float] = {}
    for model, method in product(("lenet", "alexnet", "googlenet"), ("sync-easgd1", "sync-easgd2")):
        packed, layered = simulated(
            "sc17-alexnet-gpu",
            [
                f"workload.model={model}",
                "workload.dataset=null",
                "workload.learning=none",
                "workload.stand_in=null",
                "workload.batch_per_worker=16",
                f"stop.updates={effort.choose(8, 4)}",
                "stop.samples=null",
            ],
            algorithms=[{"name": method, "packed": flag} for flag in (True, False)],
        )
        found[f"{model}, {method}"] = rate_of(packed) / rate_of(layered)
    listed = ", ".join(f"{words} {ratio:.4f}" for words, ratio in found.items())
    least, most = min(found.values()), max(found.values())
    reason = (
        f"Ratio of the step times, layered to packed: {listed}. The trees of the layers run at the same time, so "
        "that most of their latencies overlap."
    )
    middle = float(np.median(list(found.values())))
    return Predicted(value=middle, low=least, high=most, reason=reason, details=(reason,))


def packing_one_by_one(_: Effort) -> Predicted:
    """Returns the ratio of the messages of the layers, sent one after the other, to one message of all layers."""
    network: ClusterNetwork = cluster_network(two_nodes())
    pair = Group((Rank(0), Rank(1)))

    def message_s(nbytes: int) -> float:
        return network.alone("Broadcast", pair, nbytes, 0)[1]

    found = {}
    for model in ("lenet", "alexnet", "googlenet", "vgg19"):
        layout = find_model(model).layout()
        layered_s = sum(message_s(4 * (layer.stop - layer.start)) for layer in layout.layers)
        found[model] = layered_s / message_s(4 * layout.size)
    listed = ", ".join(f"{model} {ratio:.5f}" for model, ratio in found.items())
    values = sorted(found.values())
    return Predicted(
        value=values[len(values) // 2], low=values[0], high=values[-1], reason=listed, details=(f"By model: {listed}.",)
    )


def two_nodes() -> Plan:
    """Returns a plan of two nodes that are joined by the paper's network."""
    microseconds, nanoseconds = map(float, re.findall(r"[\d.]+", input_named("sc17", "network").value)[:2])
    link = f"{{latency: {microseconds} us, bandwidth: {1 / nanoseconds} GB/s}}"
    changes = [
        "cluster.nodes=[{device: k80, count: 2}]",
        f"cluster.network.link={link}",
        "workload.learning=none",
        "workload.stand_in=null",
    ]
    (plan,) = load("sc17-alexnet-gpu", changes, algorithms=["sync-sgd"]).plans()
    return plan
