"""The bytes that the ports of networks have carried, to compare them."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

import numpy as np
import pytest
import simpy

from paceline.records.links import Links
from paceline.simulator.flows.flow_engine import Flows, Port
from paceline.simulator.network.network import ClusterNetwork, NetworkModel

SAME = 1e-12
"""relative difference of sums of the same bytes in another order"""


class CountedFlows(Flows):
    """Flows that add up what each port carries: of each flow, what no longer remains of it."""

    def __init__(self, env: simpy.Environment, capacity: Mapping[Port, float]) -> None:
        super().__init__(env, capacity)
        self._bytes = dict.fromkeys(capacity, 0.0)
        self._counted: dict[simpy.Event, tuple[tuple[Port, ...], float]] = {}
        """the ports of each flow, and what remained of it when it was counted for the last time"""

    @property
    def carried_bytes(self) -> dict[Port, float]:
        for event in self._counted:
            self._count(event)
        return dict(self._bytes)

    def _count(self, event: simpy.Event) -> None:
        ports, before = self._counted[event]
        left = self.remaining(event)
        for port in ports:
            self._bytes[port] += before - left
        self._counted[event] = ports, left

    def begin(self, ports: tuple[Port, ...], nbytes: float, limit_bytes_per_s: float = inf) -> simpy.Event:
        event = super().begin(ports, nbytes, limit_bytes_per_s)
        self._counted[event] = ports, nbytes
        return event

    def move(self, event: simpy.Event, ports: tuple[Port, ...]) -> None:
        self._count(event)
        self._counted[event] = ports, self._counted[event][1]
        super().move(event, ports)

    def cancel(self, event: simpy.Event) -> None:
        self._count(event)
        del self._counted[event]
        super().cancel(event)


class CountedNetwork(ClusterNetwork):
    """A cluster's network whose flows are counted, apart from its `traffic`."""

    def attach(self, env: simpy.Environment) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("paceline.simulator.network.network.Flows", CountedFlows)
            super().attach(env)

    @property
    def carried_bytes(self) -> dict[Port, float]:
        """The bytes that each port has carried, except for collectives that were alone on their ports."""
        assert isinstance(self._flows, CountedFlows)
        return self._flows.carried_bytes


def carried(network: NetworkModel) -> dict[str, float]:
    """Returns the bytes of each port that carried something."""
    assert isinstance(network, ClusterNetwork) and network.traffic is not None
    return {port: nbytes for port, nbytes in network.traffic.by_port().items() if nbytes}


def assert_equal_bytes(actual: Mapping[str, float], expected: Mapping[str, float], rel: float = SAME) -> None:
    """Compares bytes by port; a port without traffic may be missing."""
    ports = dict.fromkeys([*actual, *expected])
    actual_bytes, expected_bytes = ([each.get(port, 0.0) for port in ports] for each in (actual, expected))
    assert actual_bytes == pytest.approx(expected_bytes, rel=rel, abs=1e-6), dict(
        zip(ports, zip(actual_bytes, expected_bytes, strict=True), strict=True)
    )


def assert_same_traffic(actual: NetworkModel, expected: NetworkModel) -> None:
    """Compares the traffic of two networks; others than those of clusters have none."""
    if isinstance(actual, ClusterNetwork):
        assert_equal_bytes(carried(actual), carried(expected))


def assert_same_links(actual: Links | None, expected: Links | None) -> None:
    """Compares the links of two runs."""
    assert actual is not None and expected is not None
    names: list[Any] = [
        [*zip(each.source, each.target, each.kind, each.medium, strict=True)] for each in (actual, expected)
    ]
    assert names[0] == names[1]
    np.testing.assert_array_equal(actual.bandwidth, expected.bandwidth)
    np.testing.assert_allclose(actual.nbytes, expected.nbytes, rtol=SAME, atol=1e-6)
