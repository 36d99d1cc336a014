"""Charges on one core of this machine: predicted from a short probe, and measured.

    python benchmarks/charges.py
    python benchmarks/charges.py --counts 200000 --rounds 5 --json

Updates with 0.2, 10 and 100 million parameters in float32, copies, and a server's handling of one message. The probe
measures the bandwidth of one core with other kernels and at other sizes. Rounds of the probe and of the cases
alternate; figures are medians, and an error is the median of the rounds' errors. With 100 million parameters, up to
5 GB of memory are used.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from statistics import fmean, median
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from charge_runs.cases import Case, cases
from charge_runs.probe import Probe

COUNTS = (200_000, 10_000_000, 100_000_000)
AIM = 0.15


def row(case: Case, rounds: int) -> dict[str, Any]:
    """A case: medians of the prediction, of the measurement, and of their ratio in each round.

    Args:
        case: the case.
        rounds: repetitions.
    """
    traffic = case.traffic()
    probe = Probe(case.count, traffic.footprint * case.nbytes)
    case.measure()
    samples, pages = [], list[float]()
    for _ in range(rounds):
        before, measured_s, after = probe.once(), case.measure(), probe.once()
        samples.append((before, measured_s, after))
        pages.append(probe.page_s())
    page_s = median(pages)  # the difference of two large times: more noise than a bandwidth
    found = []
    for before, measured_s, after in samples:
        near = [case.predict(replace(rates, page_s_per_byte=page_s)) for rates in (before, after)]
        found.append((fmean(near), measured_s, fmean(near) / measured_s - 1))
    predicted_s, measured_s, error = (median(column) for column in zip(*found, strict=True))
    times = [one[1] for one in found]
    return {
        "kind": case.kind,
        "name": case.name,
        "parameters": case.count,
        "passes": traffic.passes,
        "kernels": traffic.kernels,
        "predicted_s": predicted_s,
        "measured_s": measured_s,
        "error": error,
        "spread": (max(times) - min(times)) / measured_s,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Predicted and measured charges on one core.")
    parser.add_argument("--counts", type=int, nargs="+", default=COUNTS, help="parameters of the vectors")
    parser.add_argument("--rounds", type=int, default=7, help="repetitions of each case, alternating with the probe")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of a table")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = [row(case, options.rounds) for count in options.counts for case in cases(count)]
    errors = [abs(row["error"]) for row in rows]
    found = {
        "rows": rows,
        "mean_error": fmean(errors),
        "within_aim": sum(error <= AIM for error in errors) / len(errors),
    }
    if options.json:
        print(json.dumps(found))
        return
    table = Table(title="Charges on one core: predicted and measured")
    for name in ("case", "parameters", "predicted ms", "measured ms", "error", "spread"):
        table.add_column(name, justify="left" if name == "case" else "right")
    for one in rows:
        table.add_row(
            f"{one['kind']}: {one['name']}",
            f"{one['parameters']:,}",
            f"{1e3 * one['predicted_s']:.3f}",
            f"{1e3 * one['measured_s']:.3f}",
            f"{one['error']:+.0%}",
            f"{one['spread']:.0%}",
        )
    Console().print(table)
    print(f"Mean error {found['mean_error']:.0%}; {found['within_aim']:.0%} within {AIM:.0%}.")


if __name__ == "__main__":
    main()
