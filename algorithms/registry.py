"""The methods by name: those that are built in, and the way to others."""

from __future__ import annotations

from pathlib import Path

from paceline.algorithms.ad_psgd import AdPsgd
from paceline.algorithms.async_elastic import AsyncEasgd, AsyncMeasgd, Eamsgd
from paceline.algorithms.balanced import DbsSgd
from paceline.algorithms.baseline import SequentialSgd, SyncSgd
from paceline.algorithms.bounded import Ssp
from paceline.algorithms.chip import ChipPartitionedSgd
from paceline.algorithms.compensated import DcAsgd
from paceline.algorithms.delayed import Agd, LayerwiseAgd
from paceline.algorithms.downpour import Downpour
from paceline.algorithms.elastic import Easgd
from paceline.algorithms.errors import InputError
from paceline.algorithms.gossip import Gossip
from paceline.algorithms.hogwild import HogwildEasgd, HogwildSgd
from paceline.algorithms.layerwise import LayerwiseSgd, LayerwiseSgdLazy, LayerwiseSgdNextForward
from paceline.algorithms.local import DiLoCo, PostLocalSgd
from paceline.algorithms.method import Method
from paceline.algorithms.naming import whole
from paceline.algorithms.own import FORM, offered, offers, own
from paceline.algorithms.partial import BackupWorkers, KAsync, KBatchAsync, KSync
from paceline.algorithms.periodic import HbsSgd, KAvg, Sasgd
from paceline.algorithms.server import AsyncMsgd, AsyncSgd, Softsync, SyncSgdPs
from paceline.algorithms.sync_elastic import SyncEasgd1, SyncEasgd2, SyncEasgd3
from paceline.algorithms.synonyms import suggestion
from paceline.algorithms.two_level import Hsgd

METHODS: dict[str, type[Method]] = {
    method.name: method
    for method in (
        *(SequentialSgd, SyncSgd),
        *(SyncSgdPs, AsyncSgd, AsyncMsgd, Downpour, HogwildSgd, Softsync, Ssp, DbsSgd),
        *(Easgd, AsyncEasgd, AsyncMeasgd, HogwildEasgd, SyncEasgd1, SyncEasgd2, SyncEasgd3, Eamsgd),
        *(HbsSgd, KAvg, Sasgd, Hsgd),
        *(LayerwiseSgd, LayerwiseSgdLazy, LayerwiseSgdNextForward, Agd, LayerwiseAgd),
        *(ChipPartitionedSgd,),
        *(BackupWorkers, KSync, KAsync, KBatchAsync, Gossip, AdPsgd, PostLocalSgd, DiLoCo, DcAsgd),
    )
}
_REFERENCES: dict[type[Method], str] = {}
"""of methods that are not built in: how they were asked for"""


def find(name: str) -> type[Method]:
    """The method of this name: built in, offered by an installed package, or ``module:Class`` of one's own.

    Raises:
        InputError: there is none, with what may have been meant; or it is no method, with all that is wrong.

    >>> find("sync-sgd").name
    'sync-sgd'
    >>> find("sync-sdg")
    Traceback (most recent call last):
    paceline.algorithms.errors.InputError: unknown method 'sync-sdg' (did you mean sync-sgd?)
    """
    if name in METHODS:
        return METHODS[name]
    if ":" in name:
        name = whole(name, Path.cwd())
        method = own(name, METHODS)
    elif name in (known := offers()):
        method = offered(known[name], METHODS)
    else:
        every = [*METHODS, *known]
        hint = suggestion(name, every) or f" (there are {', '.join(every)}, or your own as {FORM})"
        raise InputError(f"unknown method {name!r}{hint}")
    _REFERENCES[method] = name
    return method


def reference(method: type[Method]) -> str:
    """The name by which `find` finds this class again.

    >>> reference(Agd)
    'agd'
    """
    if METHODS.get(getattr(method, "name", "")) is method:
        return method.name
    return _REFERENCES.get(method, f"{method.__module__}:{method.__qualname__}")
