"""The methods by name."""

from __future__ import annotations

import difflib

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
from paceline.algorithms.hogwild import HogwildEasgd, HogwildSgd
from paceline.algorithms.layerwise import LayerwiseSgd, LayerwiseSgdLazy, LayerwiseSgdNextForward
from paceline.algorithms.local import DiLoCo, PostLocalSgd
from paceline.algorithms.method import Method
from paceline.algorithms.partial import BackupWorkers, KAsync, KBatchAsync, KSync
from paceline.algorithms.periodic import HbsSgd, KAvg, Sasgd
from paceline.algorithms.server import AsyncMsgd, AsyncSgd, Softsync, SyncSgdPs
from paceline.algorithms.sync_elastic import SyncEasgd1, SyncEasgd2, SyncEasgd3
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
        *(BackupWorkers, KSync, KAsync, KBatchAsync, PostLocalSgd, DiLoCo, DcAsgd),
    )
}


def find(name: str) -> type[Method]:
    """The method of this name; raises `InputError` with a near miss.

    >>> find("sync-sgd").name
    'sync-sgd'
    >>> find("sync-sdg")
    Traceback (most recent call last):
    paceline.algorithms.errors.InputError: unknown method 'sync-sdg' (did you mean sync-sgd?)
    """
    if name in METHODS:
        return METHODS[name]
    near = difflib.get_close_matches(name, METHODS, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(METHODS)}"
    raise InputError(f"unknown method {name!r} ({hint})")
