"""Simulates runs in virtual time with SimPy.

Read `interpreter.interpreter` first, then `kernel.lanes`, `network.network` and `runs.run`.
"""

from typing import TYPE_CHECKING

from paceline.algorithms.core.lazy_imports import deferred

if TYPE_CHECKING:
    from paceline.simulator.interpreter.interpreter import simulate_job
    from paceline.simulator.network.emulated import EmulatedNetwork, StoreAndForward
    from paceline.simulator.network.network import ClusterNetwork, InMemoryCosts, MeasuredNetwork, NetworkModel, NoCost
else:
    __getattr__, __dir__ = deferred(
        __name__,
        {
            "ClusterNetwork": "network.network",
            "EmulatedNetwork": "network.emulated",
            "InMemoryCosts": "network.network",
            "MeasuredNetwork": "network.network",
            "NetworkModel": "network.network",
            "NoCost": "network.network",
            "StoreAndForward": "network.emulated",
            "simulate_job": "interpreter.interpreter",
        },
    )

__all__ = [
    "ClusterNetwork",
    "EmulatedNetwork",
    "InMemoryCosts",
    "MeasuredNetwork",
    "NetworkModel",
    "NoCost",
    "StoreAndForward",
    "simulate_job",
]
