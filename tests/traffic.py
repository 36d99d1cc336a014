"""The bytes that the ports of networks have carried, to compare them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from paceline.records.links import Links
from paceline.simulator.network.network import ClusterNetwork, Network

SAME = 1e-12
"""relative difference of sums of the same bytes in another order"""


def carried(network: Network) -> dict[str, float]:
    """Returns the bytes of each port that carried something."""
    assert isinstance(network, ClusterNetwork) and network.traffic is not None
    return {port: nbytes for port, nbytes in network.traffic.by_port().items() if nbytes}


def assert_equal_bytes(found: Mapping[str, float], expected: Mapping[str, float], rel: float = SAME) -> None:
    """Compares bytes by port; a port without traffic may be missing."""
    ports = dict.fromkeys([*found, *expected])
    one, other = ([each.get(port, 0.0) for port in ports] for each in (found, expected))
    assert one == pytest.approx(other, rel=rel, abs=1e-6), dict(zip(ports, zip(one, other, strict=True), strict=True))


def assert_same_traffic(one: Network, other: Network) -> None:
    """Compares the traffic of two networks; others than those of clusters have none."""
    if isinstance(one, ClusterNetwork):
        assert_equal_bytes(carried(one), carried(other))


def assert_same_links(one: Links | None, other: Links | None) -> None:
    """Compares the links of two runs."""
    assert one is not None and other is not None
    names: list[Any] = [[*zip(each.source, each.target, each.kind, each.medium, strict=True)] for each in (one, other)]
    assert names[0] == names[1]
    np.testing.assert_array_equal(one.bandwidth, other.bandwidth)
    np.testing.assert_allclose(one.nbytes, other.nbytes, rtol=SAME, atol=1e-6)
