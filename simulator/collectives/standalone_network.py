"""Builds the network of a collective that is alone: links, and flows for all its messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from paceline.simulator.collectives.message_paths import MessagePaths, Numbers
from paceline.simulator.flows.flow_engine import Port
from paceline.simulator.flows.network_state import NONE, Ints, Net, as_lists, whole_network


class OwnNetwork(NamedTuple):
    """The links and flows, and the mapping between flows and messages."""

    net: Net
    flow_of: Ints
    """the flow of each message; NONE if its path has no ports and no limit"""
    message_of: Ints
    """the message that each flow moves at present"""


def own_network(
    tables: Any, paths: MessagePaths, members: int, capacity: Mapping[Port, float], *, lists: bool
) -> OwnNetwork:
    """Builds the network, and writes the latencies of messages into their table.

    Args:
        tables: the state before any member has entered, as arrays.
        paths: the paths of the messages.
        members: number of members of the group.
        capacity: bytes per second of each port.
        lists: whether the network consists of lists instead of arrays.
    """
    path: Numbers = np.concatenate([one for part in paths.of for one in part])
    tables.messages["latency_s"] = paths.latency_s[path]
    part = tables.messages["source"] // members
    flow = _flows(tables.messages["round"], part * len(paths.source) + path)
    net = _network(paths, flow, path, capacity)
    moves = (paths.hops[path] > 0) | np.isfinite(paths.limit_bytes_per_s[path])
    flow_of, message_of = np.where(moves, flow, NONE), np.zeros(len(net.flows), dtype=np.int64)
    if lists:
        return OwnNetwork(as_lists(net), flow_of.tolist(), message_of.tolist())
    return OwnNetwork(net, flow_of, message_of)  # type: ignore[arg-type]


def _flows(number: Numbers, way: Numbers) -> Numbers:
    """Returns the flow of each message.

    Messages of one part on one path share a flow, except for several such messages of one round.
    """
    order = np.lexsort((way, number))
    like = np.flatnonzero(np.r_[True, (np.diff(way[order]) != 0) | (np.diff(number[order]) != 0)])
    same = np.empty_like(way)
    same[order] = np.arange(len(way)) - np.repeat(like, np.diff(np.r_[like, len(way)]))
    return np.unique(way * (same.max() + 1) + same, return_inverse=True)[1]


def _network(paths: MessagePaths, flow: Numbers, path_of: Numbers, capacity: Mapping[Port, float]) -> Net:
    """Returns a network whose links are the ports, followed by one link for each flow that has a limit."""
    path = np.zeros(flow.max() + 1, dtype=np.int64)
    path[flow] = path_of
    hops = paths.hops[path]
    ends = np.cumsum(hops)
    at = np.arange(int(hops.sum())) + np.repeat(paths.first[path] - (ends - hops), hops)
    limits = paths.limit_bytes_per_s[path]
    limited = np.isfinite(limits)
    own = len(paths.ports) + np.arange(int(limited.sum()))
    routes = np.insert(paths.passes[at], ends[limited], own)
    return whole_network(np.r_[paths.capacities(capacity), limits[limited]], hops + limited, routes)
