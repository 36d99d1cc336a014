"""Data sets: what is known by name, and how their files are read. Read `catalogue` first, then `dataset_files`.

Nothing here imports torch: a scenario's files are read and checked before it is known whether anything will be trained.
"""

from paceline.workloads.datasets.catalogue import (
    DATA,
    MANY,
    RECORDS,
    DataSet,
    fitting,
    misfit,
    place_of,
    read,
    unreadable,
)
from paceline.workloads.datasets.dataset_files import Half, Loaded

__all__ = [
    "DATA",
    "MANY",
    "RECORDS",
    "DataSet",
    "Half",
    "Loaded",
    "fitting",
    "misfit",
    "place_of",
    "read",
    "unreadable",
]
