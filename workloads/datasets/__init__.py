"""Data sets: the catalogue, and readers of their files. Read `catalogue` first, then `dataset_files`.

Nothing here imports torch: the files of a scenario are also read and validated for scenarios that train nothing.
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
from paceline.workloads.datasets.dataset_files import Half, LoadedDataset

__all__ = [
    "DATA",
    "MANY",
    "RECORDS",
    "DataSet",
    "Half",
    "LoadedDataset",
    "fitting",
    "misfit",
    "place_of",
    "read",
    "unreadable",
]
