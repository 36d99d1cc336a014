"""The part of a message's latency that processors work for, one message at a time: alone, into one rank, out of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from paceline.topologies.catalogue.device import DeviceModel
from paceline.topologies.cluster import ClusterModel, on_a_star
from paceline.topologies.graphs.links import LINKS, LinkModel
from tests.outages import ends

ALPHA_S, BYTES_PER_S, SEND_S, RECEIVE_S = 1e-4, 1e9, 2e-5, 3e-5
CLOSE = 1e-12
"""relative: the same few additions in another order"""


def cluster(hosts: int, send_s: float = SEND_S, receive_s: float = RECEIVE_S) -> ClusterModel:
    link = LinkModel(name="link", latency_s=ALPHA_S, bytes_per_s=BYTES_PER_S, provenance="a test's own")
    wire = replace(link, send_s=send_s, receive_s=receive_s)
    device = DeviceModel(name="device", overhead_s=1.0, per_sample_s=0.0)
    return on_a_star([(device, 1)] * hosts, link=wire, local=link)


def last(cluster: ClusterModel, messages: Sequence[tuple[float, int, int, int]]) -> float:
    return max(ends(cluster, messages))


@pytest.mark.parametrize("nbytes", [0, 64, 10**6])
def test_a_message_alone_takes_alpha_and_its_bytes(nbytes: int) -> None:
    assert last(cluster(2), [(0.0, 0, 1, nbytes)]) == pytest.approx(ALPHA_S + nbytes / BYTES_PER_S, rel=CLOSE)


@pytest.mark.parametrize("senders", [1, 8, 64])
@pytest.mark.parametrize("nbytes", [0, 64])
def test_many_small_messages_into_one_rank_queue_for_its_processor(senders: int, nbytes: int) -> None:
    """α + N n β + (N − 1) receive_s, if all arrive at once; a fluid model alone gives α + N n β."""
    messages = [(0.0, sender, 0, nbytes) for sender in range(1, senders + 1)]
    fluid = ALPHA_S + senders * nbytes / BYTES_PER_S
    expected = fluid + (senders - 1) * RECEIVE_S
    assert last(cluster(senders + 1), messages) == pytest.approx(expected, rel=CLOSE)
    assert last(cluster(senders + 1, receive_s=0.0), messages) == pytest.approx(fluid, rel=CLOSE)


def test_many_messages_out_of_one_rank_queue_for_its_processor() -> None:
    """α + (N − 1) send_s: each message starts when the one before has been sent, and has the link for itself."""
    messages = [(0.0, 0, to, 0) for to in range(1, 9)]
    assert last(cluster(9, receive_s=0.0), messages) == pytest.approx(ALPHA_S + 7 * SEND_S, rel=CLOSE)


def test_large_messages_hide_what_the_processor_does() -> None:
    """Bytes of N messages that begin one after the other: the receiver is done with one before the next is through."""
    messages = [(number * 1e-3, number, 0, 10**6) for number in range(1, 5)]
    assert last(cluster(5), messages) == pytest.approx(4e-3 + 1e-3 + ALPHA_S, rel=CLOSE)


@pytest.mark.parametrize("name", ["eth-10g", "ib-edr"])
def test_links_of_the_catalogue_have_costs_of_processors(name: str) -> None:
    link = LINKS[name]
    device = DeviceModel(name="device", overhead_s=1.0, per_sample_s=0.0)
    star = on_a_star([(device, 1)] * 33, link=link, local=LINKS["shared-memory"])
    assert 0.0 < link.send_s + link.receive_s <= link.latency_s
    one, many = last(star, [(0.0, 1, 0, 4)]), last(star, [(0.0, sender, 0, 4) for sender in range(1, 33)])
    assert one == pytest.approx(link.message_s(4), rel=CLOSE)
    assert many == pytest.approx(link.latency_s + 32 * 4 / link.bytes_per_s + 31 * link.receive_s, rel=CLOSE)
