"""The parts of the weights that several servers hold, and the nodes that they are on."""

from __future__ import annotations

from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms.core.buckets import shards
from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.method import build_team
from paceline.algorithms.core.values import Layer, Layout, Rank
from paceline.algorithms.methods.parameter_server import AsyncSgd
from paceline.scenarios import load

SIZES = st.lists(st.integers(1, 1000), min_size=1, max_size=30)


def layers_of(sizes: list[int]) -> list[Layer]:
    edges = pairwise(accumulate(sizes, initial=0))
    return [Layer(f"layer {number}", *edge) for number, edge in enumerate(edges)]


@given(sizes=SIZES, count=st.integers(1, 30))
def test_shards_are_all_layers_in_order(sizes: list[int], count: int) -> None:
    layers = layers_of(sizes)
    if len(layers) < count:
        return
    made = shards(layers, count)
    assert len(made) == count and all(shard.layers for shard in made)
    assert [layer for shard in made for layer in shard.layers] == layers


@given(sizes=SIZES, count=st.integers(1, 30))
def test_no_shard_is_larger_than_its_share_by_more_than_half_a_layer(sizes: list[int], count: int) -> None:
    """Its share of what the shards before it have left; a single layer may be any part of the weights."""
    layers = layers_of(sizes)
    if len(layers) < count:
        return
    left = sum(sizes)
    for place, shard in enumerate(shards(layers, count)):
        held, last = shard.part.stop - shard.part.start, shard.layers[-1]
        if len(shard.layers) > 1 and place < count - 1:
            assert held <= left / (count - place) + (last.stop - last.start) / 2
        left -= held


@given(size=st.integers(1, 50), count=st.integers(2, 60))
def test_numbers_are_divided_evenly_if_there_are_fewer_layers(size: int, count: int) -> None:
    if size < count:
        with pytest.raises(InputError, match=f"servers: found {count}, expected at most {size}, the number of weights"):
            shards([Layer("all", 0, size)], count)
        return
    parts = [shard.part for shard in shards([Layer("all", 0, size)], count)]
    assert (parts[0].start, parts[-1].stop) == (0, size)
    assert all(one.stop == other.start for one, other in pairwise(parts))
    assert {part.stop - part.start for part in parts} <= {size // count, -(-size // count)}


def test_a_server_has_the_layout_of_its_shard() -> None:
    layers = layers_of([4, 4, 2, 6])
    team = build_team(AsyncSgd(servers=2), [[Rank(0)], [Rank(1), Rank(2)]], Layout(tuple(layers)))
    assert [(me.rank, me.role, me.server, me.servers) for me in team[2:]] == [
        (2, "worker", 3, (3, 4)), (3, "server", 3, (3, 4)), (4, "server", 3, (3, 4))
    ]  # fmt: skip
    assert [None if me.shard is None else me.shard.range_name for me in team] == [
        None, None, None, "layer 0 to layer 1", "layer 2 to layer 3"
    ]  # fmt: skip
    assert team[4].layout == Layout((Layer("layer 2", 0, 2), Layer("layer 3", 2, 8)))
    assert team[0].layout.size == 16
    assert build_team(AsyncSgd(), [[Rank(0)]], Layout(tuple(layers)))[1].shard is None


@pytest.mark.parametrize(
    ("servers", "node", "expected"),
    [(1, 0, [0]), (1, 2, [2]), (3, 0, [0, 1, 2]), (3, 2, [2, 0, 1]), (4, 1, [1, 2, 0, 1])],
)
def test_servers_are_on_nodes_in_turn(servers: int, node: int, expected: list[int]) -> None:
    nodes = "cluster.nodes=[{device: v100-sxm2, count: 3}]"
    changes = [nodes, f"cluster.server.node={node}", f"algorithms=[{{name: async-sgd, servers: {servers}}}, sync-sgd]"]
    plan, other = load("quickstart", [*changes, "seeds=1"]).plans()
    cluster = plan.cluster
    assert len(plan.job.team) == 3 + servers == len(cluster.ranks)
    ranks = [Rank(3 + number) for number in range(servers)]
    assert [cluster.node_of(rank) for rank in ranks] == expected
    assert [cluster.vertex_of(rank) for rank in ranks] == [cluster.nodes[number].host for number in expected]
    assert other.cluster.servers == 1, "methods have clusters of their own number of servers"
