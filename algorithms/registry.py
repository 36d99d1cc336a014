"""The built-in methods by name, and the lookup of others."""

from __future__ import annotations

from pathlib import Path

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.method import Method
from paceline.algorithms.core.naming import whole
from paceline.algorithms.methods.accumulating import Acco
from paceline.algorithms.methods.async_diloco import AsyncDiLoCo
from paceline.algorithms.methods.async_elastic import AsyncEasgd, AsyncMeasgd, Eamsgd
from paceline.algorithms.methods.baseline import ChipPartitionedSgd, SequentialSgd, SyncSgd
from paceline.algorithms.methods.decoupled_diloco import DecoupledDiLoCo
from paceline.algorithms.methods.decoupled_momentum import DeMo, SparseLoCo
from paceline.algorithms.methods.dynamic_batch import DbsSgd, SyncDbsSgd
from paceline.algorithms.methods.elastic import Easgd, SyncEasgd1, SyncEasgd2, SyncEasgd3
from paceline.algorithms.methods.gossip import AdPsgd, Gossip
from paceline.algorithms.methods.hogwild import HogwildEasgd, HogwildSgd
from paceline.algorithms.methods.layerwise import (
    Agd,
    LayerwiseAgd,
    LayerwiseSgd,
    LayerwiseSgdLazy,
    LayerwiseSgdNextForward,
)
from paceline.algorithms.methods.local_sgd import DiLoCo, Hsgd, PostLocalSgd, SlowMo
from paceline.algorithms.methods.noloco import NoLoCo
from paceline.algorithms.methods.outer import Co2, EagerDiLoCo
from paceline.algorithms.methods.parameter_server import AsyncMsgd, AsyncSgd, DcAsgd, Softsync, SyncSgdPs
from paceline.algorithms.methods.partial_collectives import EagerSgd
from paceline.algorithms.methods.partial_waiting import BackupWorkers, KAsync, KBatchAsync, KSync
from paceline.algorithms.methods.periodic import DesLoc, HbsSgd, KAvg, Sasgd
from paceline.algorithms.methods.regional_servers import HALoS
from paceline.algorithms.methods.ssp import Downpour, Ssp
from paceline.algorithms.methods.streaming_diloco import StreamingDiLoCo
from paceline.algorithms.own import FORM, offered, offers, own
from paceline.algorithms.synonyms import ALIASES, meaning, suggestion

METHODS: dict[str, type[Method]] = {
    method.name: method
    for method in (
        *(SequentialSgd, SyncSgd),
        *(SyncSgdPs, AsyncSgd, AsyncMsgd, Downpour, HogwildSgd, Softsync, Ssp, DbsSgd, SyncDbsSgd),
        *(Easgd, AsyncEasgd, AsyncMeasgd, HogwildEasgd, SyncEasgd1, SyncEasgd2, SyncEasgd3, Eamsgd),
        *(HbsSgd, KAvg, DesLoc, Sasgd, Hsgd),
        *(LayerwiseSgd, LayerwiseSgdLazy, LayerwiseSgdNextForward, Agd, LayerwiseAgd),
        *(ChipPartitionedSgd,),
        *(BackupWorkers, KSync, KAsync, KBatchAsync, Gossip, AdPsgd, EagerSgd, DcAsgd, DeMo, Acco, Co2),
        *(PostLocalSgd, SlowMo, DiLoCo, StreamingDiLoCo, EagerDiLoCo, AsyncDiLoCo, NoLoCo, SparseLoCo),
        *(HALoS, DecoupledDiLoCo),
    )
}
_REFERENCES: dict[type[Method], str] = {}
"""the names by which methods that are not built in were found"""


def find(name: str) -> type[Method]:
    """Returns the method with this name: built in, provided by an installed package, or given as ``module:Class``.

    A common name such as ``ddp`` finds its method, see `paceline.algorithms.synonyms`; `built` also sets the
    hyper-parameters that such a name stands for.

    Raises:
        InputError: there is none (the message suggests similar names), or the class is not a valid method (the message
            lists all errors).

    >>> find("sync-sgd").name
    'sync-sgd'
    >>> find("sync-sdg")
    Traceback (most recent call last):
    paceline.algorithms.core.errors.InputError: unknown method 'sync-sdg' (did you mean sync-sgd?)
    """
    if name in METHODS:
        return METHODS[name]
    if ":" in name:
        name = whole(name, Path.cwd())
        method = own(name, METHODS)
    elif name in (known := offers()):
        method = offered(known[name], METHODS)
    elif name in ALIASES:
        return METHODS[ALIASES[name].method]
    else:
        every = [*METHODS, *known]
        hint = suggestion(name, every) or f" (there are {', '.join(every)}, or your own as {FORM})"
        raise InputError(f"unknown method {name!r}{hint}")
    _REFERENCES[method] = name
    return method


def built(name: str) -> Method:
    """Returns the method with this name, with the defaults of its hyper-parameters and those that an alias sets.

    Raises:
        InputError: see `find`.

    >>> built("ddp") == built("layerwise-sgd"), built("solo-allreduce").collective
    (True, 'solo')
    """
    method = find(name)
    return method(**meaning(name).presets) if method.name == meaning(name).method else method()


def reference(method: type[Method]) -> str:
    """Returns the name by which `find` finds this class.

    >>> reference(Agd)
    'agd'
    """
    if METHODS.get(getattr(method, "name", "")) is method:
        return method.name
    return _REFERENCES.get(method, f"{method.__module__}:{method.__qualname__}")
