"""Predicts the gain from partitioning a Knights Landing chip into groups, beside the one published figure.

    python benchmarks/knl.py
    python benchmarks/knl.py --json

You, Buluç and Demmel (SC'17) partition a 7250 into groups, each with its own weights and data, and train AlexNet on
CIFAR-10 to an accuracy of 0.625: 1605 s as one group, 1025 s in four. Here a gradient of the same batch is divided
among the groups. The constants come from other sources: the chip's best matrix product (DeepBench), training AlexNet on
the whole chip (Keuper and Pfreundt), the bandwidths of both memories (NERSC, JLab). The batch is that of Keuper and
Pfreundt; the paper's was not found.

The paper compares weights and data with the 16 GB of MCDRAM. Gradients and activations also need memory, so the limit
is shown for both counts.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from rich.console import Console
from rich.table import Table

from paceline.algorithms.core.errors import InputError
from paceline.topologies.catalogue.device_catalogue import Spec
from paceline.topologies.catalogue.device_names import named
from paceline.topologies.compute.chip_groups import Partition, partitioned
from paceline.topologies.compute.device_parameters import fitted_parameters
from paceline.topologies.compute.model_work import Mode
from paceline.topologies.compute.scaling import scaling_of, training_efficiency
from paceline.workloads import ModelInfo, find_model

GROUPS = (1, 2, 4, 8, 16, 32)
DATA_BYTES = 687e6
"""CIFAR-10 in the memory of one group: FOUND (the paper, by a digest)"""
BATCH = 256
PUBLISHED = {4: 1605 / 1025}
"""speed-ups: FOUND (the paper, by a digest)"""
SOURCE = "You, Buluç, Demmel, SC'17: 1605 s and 1025 s to an accuracy of 0.625"


def _try(spec: Spec, model: ModelInfo, groups: int, *, gradients: bool, mode: Mode) -> Partition | None:
    try:
        return partitioned(spec, model, groups, samples=BATCH, data_bytes=DATA_BYTES, gradients=gradients, mode=mode)
    except InputError:
        return None  # the far memory is full too


def rows(spec: Spec, model: ModelInfo, mode: Mode) -> list[dict[str, Any]]:
    """Returns a row for each number of groups."""
    one, papers_one = (_try(spec, model, 1, gradients=gradients, mode=mode) for gradients in (True, False))
    found = []
    for groups in GROUPS:
        here, papers = (_try(spec, model, groups, gradients=gradients, mode=mode) for gradients in (True, False))
        speedup = one.step_s / here.step_s if one and here else None
        published = PUBLISHED.get(groups)
        found.append(
            {
                "groups": groups,
                "cores_per_group": here and here.cores,
                "step_s": here and here.step_s,
                "compute_s": here and here.compute_s,
                "exchange_s": here and here.exchange_s,
                "needs_bytes": here and here.needed_bytes,
                "memory_bytes_per_s": here and here.bytes_per_s,
                "fits": bool(here and spec.memory_bytes and here.needed_bytes <= spec.memory_bytes),
                "speedup": speedup,
                "published": published,
                "miss": speedup / published - 1 if published and speedup else None,
                "weights_and_data_bytes": papers and papers.needed_bytes,
                "speedup_counting_weights_and_data": papers_one.step_s / papers.step_s
                if papers and papers_one
                else None,
            }
        )
    return found


def table(rows: list[dict[str, Any]], title: str) -> Table:
    """Renders the rows."""
    shown = Table(title=title, title_justify="left")
    for column in (
        "groups",
        "cores each",
        "step ms",
        "sum, update ms",
        "needs GB",
        "GB/s",
        "speed-up",
        "published",
        "miss",
    ):
        shown.add_column(column, justify="right")
    for column in ("weights+data GB", "speed-up"):
        shown.add_column(column, justify="right")
    for row in rows:
        shown.add_row(
            str(row["groups"]),
            _text(row["cores_per_group"], "d"),
            _text(row["step_s"], ".0f", 1e3),
            _text(row["exchange_s"], ".1f", 1e3),
            _text(row["needs_bytes"], ".1f", 1e-9),
            _text(row["memory_bytes_per_s"], ".0f", 1e-9),
            _text(row["speedup"], ".2f"),
            _text(row["published"], ".2f"),
            _text(row["miss"], "+.0%"),
            _text(row["weights_and_data_bytes"], ".1f", 1e-9),
            _text(row["speedup_counting_weights_and_data"], ".2f"),
        )
    return shown


def _text(value: float | None, form: str, factor: float = 1) -> str:
    return "" if value is None else format(value if factor == 1 else value * factor, form)


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Predicted gains from partitioning a Knights Landing chip into groups."
    )
    parser.add_argument("--json", action="store_true", help="one JSON document")
    parser.add_argument("--mode", choices=("flat", "cache"), default="flat", help="mode of the MCDRAM")
    arguments = parser.parse_args()
    spec, model = named("knl-7250"), find_model("alexnet")
    scaling = scaling_of(spec, training_efficiency(spec, model, fitted_parameters(), BATCH))
    found = rows(spec, model, arguments.mode)
    constants = {"one_core": scaling.best, "loss_per_core": scaling.loss, "provenance": scaling.provenance}
    if arguments.json:
        print(
            json.dumps(
                {"rows": found, "batch": BATCH, "mode": arguments.mode, "constants": constants, "source": SOURCE},
                indent=2,
            )
        )
        return
    console = Console()
    console.print(table(found, f"{model.name}, batch {BATCH}, on {spec.title}, MCDRAM {arguments.mode}"))
    console.print(f"One core reaches {scaling.best:.1%} of its peak and loses {scaling.loss:.2%} to each further core.")
    console.print(f"{scaling.provenance}.\nPublished: {SOURCE}.")


if __name__ == "__main__":
    main()
