"""If every time of a scenario is c times as long, so is every time of its runs: no time is hidden in the program.

Times are latencies, gradients, launches, waits, and the reciprocals of bandwidths. Factors that are powers of two
change no digit of a floating-point number, so the times have to be equal bit for bit; other factors round differently.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from paceline import load
from paceline.algorithms import METHODS
from paceline.algorithms.core.errors import InputError
from paceline.records.trace import Trace
from paceline.simulator.runs.run import perform
from tests.thorough import WAYS, examples, sampled

TREES = ("fat-tree", "leaf-spine", "dragonfly")
NETWORKS = st.sampled_from((*TREES, "star", "ring", "torus", "hypercube"))
TIMES = st.floats(20.0, 300.0)
UNITS = {"ms": 1e-3, "us": 1e-6}
Drawn = dict[str, Any]


@st.composite
def clusters(draw: st.DrawFn) -> Drawn:
    """Draws what `scenario` writes: numbers in µs, ms and Gbit/s, and which of the rarer sections there are."""
    numbers = {name: draw(TIMES) for name in ("latency", "inside", "overhead", "sample", "pause", "cost")}
    rates = {name: draw(st.floats(0.05, 0.3)) for name in ("link", "memory", "core", "storage")}
    sections = draw(st.sets(st.sampled_from(("work", "charges", "storage", "slow", "crashes", "fault", "varies"))))
    return {
        **numbers,
        "rates": rates,
        "sections": sections,
        "network": draw(NETWORKS),
        "nodes": draw(st.integers(2, 9)),
        "each": draw(st.sampled_from((1, 2))),
        "sigma": draw(st.sampled_from((0.0, 0.2))),
        "receive": draw(st.sampled_from(("auto", "in-order"))),
    }


def scenario(method: str, drawn: Drawn, c: float) -> Drawn:
    """Returns a scenario whose times are c times those that were drawn."""

    def time(value: float, unit: str) -> str:
        return f"{value * UNITS[unit] * c!r} s"  # in the unit of the program, in which every digit is read

    def rate(name: str, factor: float = 1.0) -> str:
        return f"{drawn['rates'][name] * 125e6 * factor / c!r} B/s"

    has, kind = drawn["sections"].__contains__, METHODS[method]
    nodes = 1 if kind.alone or kind.shared else drawn["nodes"]
    each = 1 if kind.alone else 3 if kind.shared else drawn["each"]
    link: Drawn = {"latency": time(drawn["latency"], "us"), "bandwidth": rate("link")}
    if has("work"):
        link |= {"send": time(drawn["latency"] / 4, "us"), "receive": time(drawn["latency"] / 3, "us")}
    if has("varies"):
        link |= {"variation": {"cv": 0.2, "every": time(drawn["pause"] / 10, "ms")}}
    network = {
        "topology": drawn["network"],
        "link": link,
        "intra_node_link": {"latency": time(drawn["inside"] / 10, "us"), "bandwidth": rate("link", 16)},
    }
    device: Drawn = {
        "name": "one",
        "overhead": time(drawn["overhead"] / 20, "ms"),
        "per_sample": time(drawn["sample"] / 20, "us"),
    }
    cluster: Drawn = {
        "nodes": [{"device": device, "count": nodes, "workers_per_node": each}],
        "network": network,
        "server": {"receive": drawn["receive"]},
    }
    if drawn["sigma"]:
        cluster["step_time"] = {"distribution": "lognorm", "sigma": drawn["sigma"]}
    if has("charges"):
        device |= {"memory_bandwidth": rate("memory", 100), "launch_overhead": time(drawn["cost"] / 50, "us")}
        cluster["charges"] = {"core_bandwidth": rate("core", 50), "host_launch": time(drawn["cost"] / 40, "us")}
    if has("storage"):
        cluster["storage"] = {"latency": time(drawn["cost"] / 10, "us"), "bandwidth": rate("storage", 4)}
    if has("slow"):
        cluster["slowdowns"] = [
            {"node": 0, "factor": 2, "lasts": time(drawn["cost"] / 20, "ms"), "at": time(drawn["pause"] / 10, "ms")}
        ]
    if has("crashes") and not kind.alone:
        cluster["crashes"] = {
            "at": [{"worker": 1, "at": time(drawn["pause"] / 10, "ms")}],
            "recovery": time(drawn["cost"] / 20, "ms"),
            "checkpoint": {"every": time(drawn["pause"] / 20, "ms"), "cost": time(drawn["cost"] / 50, "ms")},
        }
    if has("fault") and drawn["network"] == "star" and nodes > 1:
        network["faults"] = [
            {
                "between": ["host1", "switch"],
                "at": time(drawn["pause"] / 10, "ms"),
                "for": time(drawn["cost"] / 20, "ms"),
            }
        ]
    return {
        "name": "scaled",
        "algorithms": [method],
        "workload": {"model": "digits-mlp", "dataset": "digits", "batch_per_worker": 16, "learning": "none"},
        "cluster": cluster,
        "stop": {"samples": 16 * nodes * each * 5},
        "evaluate": {"every": "1 epoch"},
        "seed": 1,
    }


def simulated(method: str, drawn: Drawn, c: float) -> Trace:
    (plan,) = load(scenario(method, drawn, c)).plans()
    return perform(plan, plan.schedule())


def times_of(trace: Trace) -> np.ndarray[Any, np.dtype[np.float64]]:
    spans = [time for span in trace.spans for time in (span.start_s, span.end_s)]
    return np.array([*spans, *(update.time_s for update in trace.updates), trace.wall_s])


@pytest.mark.parametrize("method", sampled(METHODS, WAYS))
@given(drawn=clusters(), power=st.integers(1, 12))
@examples(5, 50)
def test_all_times_scale_bit_for_bit_by_powers_of_two(method: str, drawn: Drawn, power: int) -> None:
    try:
        once = simulated(method, drawn, 1.0)
    except InputError:
        assume(condition=False)  # the method needs other numbers of workers or nodes
    scaled = simulated(method, drawn, 2.0**power)
    assert np.array_equal(times_of(scaled), times_of(once) * 2.0**power)


@pytest.mark.parametrize("method", ["slowmo", "backup-workers", "sync-sgd", "layerwise-sgd"])
@pytest.mark.parametrize("network", TREES)
def test_the_duration_scales_by_ten(method: str, network: str) -> None:
    numbers = dict.fromkeys(("latency", "inside", "overhead", "sample", "pause", "cost"), 100.0)
    rates = {"link": 0.1, "memory": 0.1, "core": 0.1, "storage": 0.1}
    shape = {"nodes": 8, "each": 1, "sigma": 0.2, "receive": "auto", "sections": {"work", "charges"}}
    drawn = {**numbers, **shape, "rates": rates, "network": network}
    assert simulated(method, drawn, 10.0).wall_s == pytest.approx(10 * simulated(method, drawn, 1.0).wall_s, rel=1e-12)
