"""Eight workers of unequal speed: the cluster of `benchmarks/dbs.py`, and of some settings of the claims."""

from __future__ import annotations

from typing import Any

SPEEDS = (8, 4, 4, 2, 2, 1, 1, 1)
SAMPLES_PER_S = 250
"""of the slowest worker; provenance: ours"""
SPREAD = 0.1
"""sigma of the lognormal distribution of step times; provenance: ours"""


def cluster() -> dict[str, Any]:
    """Returns the workers, on a network whose cost is negligible."""
    nodes = [
        {"device": {"name": f"speed-{speed}", "overhead": "0 s", "per_sample": f"{1 / (SAMPLES_PER_S * speed)!r} s"}}
        for speed in SPEEDS
    ]
    return {
        "nodes": nodes,
        "network": {"topology": "star", "link": "eth-10g"},
        "step_time": {"distribution": "lognorm", "sigma": SPREAD},
    }
