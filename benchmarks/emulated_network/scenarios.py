"""The scenarios of `benchmarks/emulation.py --compare`: different topologies, rates, latencies and placements."""

from __future__ import annotations

from typing import Any

METHODS = [
    "sync-sgd",
    {"name": "async-sgd", "learning_rate": 0.02},
    "easgd",
    "sync-easgd1",
    "sync-easgd2",
    "sync-easgd3",
    "k-avg",
    "agd",
    {"name": "hbs-sgd", "k1": 2, "k2": 4, "group": "node"},
]


def _scenario(name: str, *, nodes: list[dict[str, Any]], network: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "name": f"emulated-{name}",
        "algorithms": METHODS,
        "hyperparameters": {"learning_rate": 0.05},
        "workload": {"model": "digits-mlp", "dataset": "digits", "batch_per_worker": 32},
        "cluster": {"nodes": nodes, "network": network},
        "train": {"pace": "device", "network": "emulated"},
        "evaluate": {"every": "5 epochs"},
        "stop": {"epochs": 5},
        **more,
    }


def _device(step_ms: float) -> dict[str, Any]:
    return {"name": f"of {step_ms:g} ms".replace(" ", "-"), "overhead": f"{step_ms:g} ms", "per_sample": "0 s"}


LARGE = {"model": "cifar10-full", "batch_per_worker": 32, "learning": "none"}
"""358 kB of weights without values: messages have the same size as with values"""

SCENARIOS: dict[str, dict[str, Any]] = {
    "ring": _scenario(
        "ring",
        nodes=[{"device": _device(30), "count": 4}],
        network={"topology": "ring", "link": {"latency": "2 ms", "bandwidth": "20 Mbit/s"}},
    ),
    "fat-tree": _scenario(
        "fat-tree",
        nodes=[{"device": _device(30), "count": 2}, {"device": _device(50), "count": 2}],
        network={"topology": "fat-tree", "link": {"latency": "1 ms", "bandwidth": "100 Mbit/s"}},
        workload=LARGE,
        stop={"samples": 5120},
        evaluate={"every": "1 epoch"},
    ),
    "pairs": _scenario(
        "pairs",
        nodes=[{"device": _device(30), "count": 2, "workers_per_node": 2}],
        network={"topology": "star", "link": {"latency": "5 ms", "bandwidth": "200 Mbit/s"}},
        workload=LARGE,
        stop={"samples": 5120},
        evaluate={"every": "1 epoch"},
    ),
    "leaf-spine": _scenario(
        "leaf-spine",
        nodes=[{"device": _device(25), "count": 4}],
        network={
            "topology": "leaf-spine",
            "leaves": 2,
            "spines": 1,
            "hosts_per_leaf": 2,
            "link": {"latency": "1.5 ms", "bandwidth": "50 Mbit/s"},
            "uplink": {"latency": "3 ms", "bandwidth": "100 Mbit/s"},
        },
        workload=LARGE,
        stop={"samples": 5120},
        evaluate={"every": "1 epoch"},
    ),
    "two-by-two": _scenario(
        "two-by-two",
        nodes=[{"device": _device(36), "count": 2, "workers_per_node": 2}],
        network={"topology": "star", "link": {"latency": "2 ms", "bandwidth": "20 Mbit/s"}},
    ),
    "three": _scenario(
        "three",
        nodes=[{"device": _device(36), "count": 3}],
        network={"topology": "star", "link": {"latency": "2 ms", "bandwidth": "20 Mbit/s"}},
    ),
}
"""by name; `pairs` has two ranks on each of two hosts, `fat-tree` one on each of four of sixteen, two of them slower.
The form of the model was fixed on `two-by-two` and `three` before it was run on the others
"""
