"""Common names of techniques in papers and libraries, and the methods that correspond to them.

Each text agrees with the page of the method (docs/methods) and states the differences. The names of methods are not in
the table. Where the first method is the technique itself, each name is an alias: it is accepted wherever the name of a
method is, and may set some of the hyper-parameters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from paceline.algorithms.core.naming import closest


@dataclass(frozen=True, slots=True, kw_only=True)
class Synonym:
    """Common names of one technique."""

    names: tuple[str, ...]
    """in the usual spelling; spaces, hyphens and case are ignored"""
    methods: tuple[str, ...]
    """the closest methods, closest first"""
    text: str
    """the relation, as a sentence"""
    same: bool = True
    """whether the first method is the technique itself and not only similar"""
    presets: Mapping[str, Any] = field(default_factory=dict)
    """the hyper-parameters that the names set"""


SYNONYMS = (
    Synonym(
        names=("ddp", "distributed-data-parallel", "data-parallel"),
        methods=("layerwise-sgd", "sync-sgd"),
        text="layerwise-sgd overlaps like DistributedDataParallel: layers are all-reduced while backward goes on, in "
        "messages of 25 MiB of which the first has 1 MiB; sync-sgd sends everything after backward",
        presets={"bucket": 6553600, "first_bucket": 262144},
    ),
    Synonym(
        names=("horovod",),
        methods=("layerwise-sgd", "sync-sgd"),
        text="layerwise-sgd all-reduces gradients while backward goes on, as Horovod does, and its bucket fuses layers "
        "into one message; sync-sgd sends everything after backward",
    ),
    Synonym(
        names=("fsdp", "fully-sharded-data-parallel", "zero", "deepspeed"),
        methods=("layerwise-sgd",),
        text="no method shards weights; layerwise-sgd makes the same updates layer by layer, but each worker holds all "
        "weights, so that memory and messages are not those of FSDP or ZeRO",
        same=False,
    ),
    Synonym(
        names=("all-reduce", "allreduce-sgd", "ring-allreduce", "synchronous-sgd"),
        methods=("sync-sgd", "layerwise-sgd"),
        text="sync-sgd averages gradients by an all-reduce in each step; layerwise-sgd does so while backward goes on",
    ),
    Synonym(
        names=("bsp", "bulk-synchronous-parallel"),
        methods=("sync-sgd", "sync-sgd-ps"),
        text="sync-sgd is bulk-synchronous, by an all-reduce in each step; sync-sgd-ps is too, by a parameter server",
    ),
    Synonym(
        names=("hardsync",),
        methods=("sync-sgd-ps", "sync-sgd"),
        text="sync-sgd-ps is hardsync: the server waits for all gradients; sync-sgd does the same by an all-reduce",
    ),
    Synonym(
        names=("parameter-server", "param-server", "ps"),
        methods=("async-sgd", "sync-sgd-ps", "ssp", "downpour"),
        text="async-sgd has a parameter server that applies each gradient as it comes; sync-sgd-ps waits for all "
        "workers; ssp bounds how far ahead a worker may run; downpour sends sums of several gradients",
    ),
    Synonym(
        names=("asgd", "async", "asynchronous-sgd"),
        methods=("async-sgd", "hogwild-sgd", "dc-asgd"),
        text="async-sgd is asynchronous SGD by a parameter server, hogwild-sgd in shared memory; dc-asgd also "
        "compensates the delay (torch.optim.ASGD is averaged SGD, which is something else)",
    ),
    Synonym(
        names=("stale-synchronous-parallel", "bounded-staleness"),
        methods=("ssp",),
        text="ssp is stale synchronous parallel: a worker may be a bounded number of iterations ahead of the slowest",
    ),
    Synonym(
        names=("hogwild",),
        methods=("hogwild-sgd", "hogwild-easgd"),
        text="hogwild-sgd updates shared weights without a lock; hogwild-easgd does so with the centre of elastic "
        "averaging",
    ),
    Synonym(
        names=("local-sgd", "parallel-sgd", "periodic-averaging", "model-averaging"),
        methods=("k-avg", "post-local-sgd", "hbs-sgd", "slowmo", "diloco"),
        text="k-avg is local SGD: K local steps, then an average of all weights; post-local-sgd starts synchronously; "
        "hbs-sgd averages in groups more often; slowmo and diloco have an outer optimizer",
    ),
    Synonym(
        names=("slow-momentum", "bmuf"),
        methods=("slowmo",),
        text="slowmo is slow momentum: local steps, an average of all weights, and a heavy-ball step on the change",
    ),
    Synonym(
        names=("overlapped-diloco", "fragmented-diloco"),
        methods=("streaming-diloco", "eager-diloco"),
        text="streaming-diloco exchanges fragments while local steps go on; eager-diloco exchanges a round's changes "
        "during the next round",
    ),
    Synonym(
        names=("delayed-diloco",),
        methods=("eager-diloco", "streaming-diloco"),
        text="eager-diloco exchanges a round's changes during the next round, and updates: delayed is its naive form",
        presets={"updates": "delayed"},
    ),
    Synonym(
        names=("async-local-sgd", "asynchronous-local-sgd", "delayed-nesterov", "dylu"),
        methods=("async-diloco",),
        text="async-diloco applies rounds of local steps on arrival by a delayed Nesterov momentum, with dynamic local "
        "updates (dylu)",
    ),
    Synonym(
        names=("fedavg", "federated-averaging", "federated-learning"),
        methods=("k-avg",),
        text="k-avg is FedAvg with every client in every round, K local steps in each and equal weights in the average",
    ),
    Synonym(
        names=("local-adam",),
        methods=("k-avg", "des-loc"),
        text="k-avg with Adam and averaged moments is Local Adam; des-loc averages the moments more rarely than the "
        "weights",
        presets={"optimizer": "adam", "average_momentum": True},
    ),
    Synonym(
        names=("hierarchical-sgd", "hierarchical-averaging"),
        methods=("hbs-sgd", "hsgd"),
        text="hbs-sgd averages in groups every k1 steps and among all every k1·k2; hsgd is synchronous, with sums "
        "inside each node first",
    ),
    Synonym(
        names=("elastic-averaging", "elastic-averaging-sgd"),
        methods=("easgd", "async-easgd", "sync-easgd3", "eamsgd"),
        text="easgd is elastic averaging with turns, async-easgd as exchanges come, sync-easgd1 to sync-easgd3 by "
        "trees, and eamsgd every few steps with momentum",
    ),
    Synonym(
        names=("sync-easgd",),
        methods=("sync-easgd3", "sync-easgd2", "sync-easgd1"),
        text="sync-easgd1, sync-easgd2 and sync-easgd3 are synchronous elastic averaging: on the host, from device to "
        "device, and hidden behind the gradient",
    ),
    Synonym(
        names=("gossipgrad", "gossip-sgd"),
        methods=("gossip", "ad-psgd"),
        text="gossip is GossipGraD: weights are averaged with one peer in each step; ad-psgd does so asynchronously",
    ),
    Synonym(
        names=("d-psgd", "decentralized-sgd", "decentralised-sgd"),
        methods=("gossip", "ad-psgd"),
        text="gossip averages with one peer in each step and waits for it; ad-psgd with a random one, asynchronously; "
        "D-PSGD itself averages with all neighbours, which no method does",
        same=False,
    ),
    Synonym(
        names=("partial-allreduce", "partial-collectives", "majority-allreduce"),
        methods=("eager-sgd", "backup-workers"),
        text="eager-sgd has partial all-reduces, begun by the first worker (collective: solo) or by a random one "
        "(majority); backup-workers drops late gradients at a server instead of adding them to the next update",
        presets={"collective": "majority"},
    ),
    Synonym(
        names=("solo-allreduce",),
        methods=("eager-sgd", "backup-workers"),
        text="eager-sgd has partial all-reduces that the first worker begins, with collective: solo",
        presets={"collective": "solo"},
    ),
    Synonym(
        names=("delayed-sgd", "pipe-sgd"),
        methods=("agd", "layerwise-agd"),
        text="agd applies the mean gradient of d steps before, so that its all-reduce has d steps to hide behind",
    ),
    Synonym(
        names=("sgd", "serial-sgd"),
        methods=("sequential-sgd", "sync-sgd"),
        text="sequential-sgd is SGD on one worker; sync-sgd is the same with a batch shared among all workers",
    ),
)


def squeezed(name: str) -> str:
    """Returns a name in lower case, without spaces and punctuation.

    >>> squeezed("Local SGD"), squeezed("ad-psgd")
    ('localsgd', 'adpsgd')
    """
    return re.sub(r"[\W_]+", "", name.lower())


_BY_NAME = {squeezed(name): (name, synonym) for synonym in SYNONYMS for name in synonym.names}


class Alias(NamedTuple):
    """The meaning of a common name: a method, and the hyper-parameters that the name sets."""

    method: str
    presets: Mapping[str, Any] = {}


ALIASES = {
    name: Alias(synonym.methods[0], synonym.presets) for synonym in SYNONYMS if synonym.same for name in synonym.names
}
"""the common names that are accepted as names of methods"""


def meaning(name: str) -> Alias:
    """Returns the method that a name means; a name that is no alias means itself.

    >>> meaning("fedavg").method, meaning("solo-allreduce"), meaning("agd").method
    ('k-avg', Alias(method='eager-sgd', presets={'collective': 'solo'}), 'agd')
    """
    return ALIASES.get(name) or Alias(name)


def names_for(method: str) -> list[str]:
    """Returns the common names of the technique that a method implements: its aliases.

    >>> names_for("k-avg")[0], names_for("ssp"), names_for("agd")
    ('local-sgd', ['stale-synchronous-parallel', 'bounded-staleness'], ['delayed-sgd', 'pipe-sgd'])
    """
    return [name for name, alias in ALIASES.items() if alias.method == method]


def suggestion(name: str, methods: Iterable[str]) -> str:
    """Returns a suggestion for an unknown name, for the end of a message; empty if no name is similar.

    Args:
        name: the given name.
        methods: the names of all methods.

    >>> suggestion("FedAvg", []), suggestion("AD_PSGD", ["ad-psgd", "agd"]), suggestion("x", ["agd"])
    (' (did you mean fedavg, which is k-avg?)', ' (did you mean ad-psgd?)', '')
    >>> suggestion("FSDP", [])[:26]
    ': no method shards weights'
    """
    known = {squeezed(method): method for method in methods}
    key = squeezed(name)
    if key not in known | _BY_NAME:
        key = closest(key, [*known, *_BY_NAME]) or ""
    if key in known:
        return f" (did you mean {known[key]}?)"
    if key not in _BY_NAME:
        return ""
    alias, synonym = _BY_NAME[key]
    return f" (did you mean {alias}, which is {synonym.methods[0]}?)" if synonym.same else f": {synonym.text}"
