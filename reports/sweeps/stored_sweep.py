"""Reads the table of a stored sweep."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from paceline.algorithms.core.checksums import reading
from paceline.reports.comparison.time_to_target import common_aim
from paceline.reports.sweeps.sweep_table import Table, sizes_of

TYPES: dict[pa.DataType, Any] = {
    pa.string(): pd.StringDtype(),
    pa.int64(): pd.Int64Dtype(),
    pa.float64(): pd.Float64Dtype(),
    pa.bool_(): pd.BooleanDtype(),
}


def stored_table(folder: Path, answer: Mapping[str, Any], request: Mapping[str, Any]) -> Table:
    """Returns the table of a sweep.

    Args:
        folder: the folder of the sweep.
        answer: the content of its sweep.json.
        request: the content of its request.json; empty if there is none.

    Raises:
        InputError: the table is missing or damaged.
    """
    path = folder / "sweep.parquet"
    with reading(path, "the table of `paceline sweep`"):
        with path.open("rb") as file:
            whole: pd.DataFrame = pq.read_table(file).to_pandas(types_mapper=TYPES.get)
        paths = tuple(whole.columns[: list(whole.columns).index("algorithm")])
        frame = whole[whole["error"].isna()].drop(columns="error").reset_index(drop=True)
        axes = tuple(tuple(axis) for axis in request.get("axes", ()))
        summaries = [point["summary"] for point in answer["points"]]
        target = common_aim(summaries)
        shares = [one["share"] for summary in summaries if (one := summary.get("prediction_interval"))]
    scenario = request.get("scenario", {})
    return Table(
        scenario=scenario.get("name") or folder.name.partition("-sweep")[0],
        frame=frame,
        paths=paths,
        sizes=sizes_of(frame, paths, axes),
        target=target,
        share=min(shares, default=None),
        whole=whole,
        axes=axes,
        scaling=request.get("scaling"),
    )
