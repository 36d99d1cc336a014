"""Compares Paceline's real runs with torch: synchronous SGD and local SGD, over gloo and in shared memory.

    python benchmarks/backend.py
    python benchmarks/backend.py --json --rounds 15
    python benchmarks/backend.py --models mlp --rounds 3 --steps 32     # a short run
    python benchmarks/backend.py --ways DDP,sync-sgd,layerwise-sgd --transports gloo --rounds 25  # few ways, precisely

Two processes with one torch thread each and 32 samples per step train three models in every way, on the same batches
and from the same weights. The messages of layerwise-sgd hold as many bytes as the buckets of DDP. A round is one launch
of each way. The order rotates from round to round, so every ratio is of launches that ran next to each other. The
figure of a launch is the mean time of a step in the steady state by the clocks of the ranks
(`torch_comparison/runs.py`). The tables show medians over the rounds with a 95 % interval for the median (with fewer
than six rounds: the range). A ratio is of samples per second: 2 means twice as fast.

The weights are compared in every launch. They must be equal bit for bit among the ranks, and between gloo and shared
memory, since a sum of two numbers does not depend on the order. They may differ from torch's by one rounding error per
step: DDP divides the gradients by their number before it adds them, Paceline adds them first. With two ranks both give
the same result except for the smallest numbers, and all measurements so far showed a difference of 0. The command exits
with 1 when a launch ends with other weights.

The overhead of a run is measured separately, and so are the parts of it that the program's generator and the record
take (`torch_comparison/costs.py`). The table compares them with 2 % of a step of 5 ms, which is 100 µs.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from statistics import median

import torch
from rich.console import Console
from rich.table import Table

from common.intervals import between
from paceline.records.machine import OtherLoad
from torch_comparison.costs import ALLOWED_S, Cost, costs
from torch_comparison.launching import Launching, Maker
from torch_comparison.models import MODELS, learner_of
from torch_comparison.runs import BATCH, OURS, TORCH, TRANSPORTS, WARMUP, WORKERS, Timed, by_paceline, by_torch

PAIRS: Sequence[tuple[str, str]] = (
    ("sync-sgd", "DDP"),
    ("layerwise-sgd", "DDP"),
    ("sync-sgd", "flat gloo loop"),
    ("post-local-sgd", "torch's PostLocalSGD"),
    ("post-local-sgd", "torch's PeriodicModelAverager"),
    ("post-local-sgd", "no communication"),
)
"""one of Paceline's methods and the program that it is compared with"""
SAME: Mapping[str, str] = {
    "sync-sgd": "DDP",
    "layerwise-sgd": "DDP",
    "post-local-sgd": "torch's PostLocalSGD",
}
"""for each method, the program whose weights it must reproduce"""
COSTS = "costs"
WAYS = (*TORCH, *OURS, COSTS)
"""the values of --ways: torch programs, methods, and the overhead of Paceline's own runs"""
OVERHEAD_STEPS = 2000

Way = tuple[str, str]
"""a program or method and its transport; the torch programs use gloo"""
Launches = dict[Way, Timed]
"""the launches of one round"""


@dataclass(frozen=True, slots=True)
class Row:
    """A ratio of samples per second."""

    pair: str
    model: str
    transport: str
    ratio: float
    low: float
    high: float
    step_s: float
    """of the first of the pair"""
    of_step_s: float
    """of the second of the pair"""
    rounds: int
    weights_differ: float | None
    """the largest ‖x − x'‖ / ‖x'‖ at the end; None where the weights are not expected to be equal"""


class OtherWeights(Exception):
    """A launch ended with other weights than expected."""


# --- rounds -----------------------------------------------------------------------------------------------------------


def ways(names: Collection[str], transports: Collection[str]) -> Iterator[tuple[Way, Launching]]:
    """Yields the chosen ways to train."""
    for name in TORCH:
        if name in names:
            yield (name, "gloo"), partial(by_torch, name)
    for name in OURS:
        for transport in transports:
            if name in names:
                yield (name, transport), partial(by_paceline, name, shared_memory=TRANSPORTS[transport])


def measured(every: Sequence[Way], maker: Maker, times: int) -> list[Launches]:
    """Runs the rounds. Each round begins with another way."""
    found = []
    for number in range(times):
        first = number % len(every)
        launches = {way: maker.launch(way) for way in (*every[first:], *every[:first])}
        check(launches, WARMUP + maker.steps)
        found.append(launches)
    return found


def differ(one: torch.Tensor, other: torch.Tensor) -> float:
    """Returns ‖x − x'‖ / ‖x'‖."""
    return float(torch.linalg.vector_norm(one - other) / torch.linalg.vector_norm(other))


def check(launches: Mapping[Way, Timed], steps: int) -> None:
    """Checks the weights of a round and raises `OtherWeights` where they differ from what is expected."""
    for (name, transport), timed in launches.items():
        # this holds for local SGD too, because a launch ends with an average
        if name != "no communication" and (away := differ(*timed.weights)):
            raise OtherWeights(f"{name} over {transport}: the two ranks differ by {away:.2g}, expected 0")
    allowed = steps * torch.finfo(torch.float32).eps
    for name, theirs in SAME.items():
        ours = [launches[name, transport].weights[0] for transport in TRANSPORTS if (name, transport) in launches]
        if len(ours) == 2 and not torch.equal(*ours):
            raise OtherWeights(f"{name}: gloo and shared memory differ by {differ(*ours):.2g}, expected 0")
        for one in ours if (theirs, "gloo") in launches else ():
            if (away := differ(one, launches[theirs, "gloo"].weights[0])) > allowed:
                raise OtherWeights(f"{name} and {theirs}: weights differ by {away:.2g}, expected {allowed:.2g} at most")


# --- figures ----------------------------------------------------------------------------------------------------------


def rows_of(model: str, found: Sequence[Mapping[Way, Timed]]) -> Iterator[Row]:
    """Yields a row for each pair whose two ways were both run, and for torch's programs relative to DDP."""
    for ours, theirs in (*PAIRS, *((name, "DDP") for name in TORCH if name != "DDP")):
        for transport in TRANSPORTS:
            if (ours, transport) in found[0] and (theirs, "gloo") in found[0]:
                yield row(model, found, (ours, transport), (theirs, "gloo"), same=SAME.get(ours) == theirs)


def row(model: str, found: Sequence[Mapping[Way, Timed]], ours: Way, theirs: Way, *, same: bool) -> Row:
    """Returns the row of one pair."""
    ratios = [launches[theirs].step_s / launches[ours].step_s for launches in found]
    low, high = between(ratios)
    away = max(differ(launches[ours].weights[0], launches[theirs].weights[0]) for launches in found) if same else None
    return Row(
        pair=f"{ours[0]} / {theirs[0]}",
        model=model,
        transport=ours[1],
        ratio=median(ratios),
        low=low,
        high=high,
        step_s=median(launches[ours].step_s for launches in found),
        of_step_s=median(launches[theirs].step_s for launches in found),
        rounds=len(found),
        weights_differ=away,
    )


# --- for a person -----------------------------------------------------------------------------------------------------


def table(rows: Sequence[Row]) -> Table:
    """Renders the ratios."""
    shown = Table(title="Samples per second of the first / those of the second", title_justify="left", box=None)
    for column in ("pair", "model", "transport"):
        shown.add_column(column)
    for column in ("ratio", "low", "high", "ms", "of ms", "differ"):
        shown.add_column(column, justify="right", no_wrap=True)  # a narrow terminal wraps names but not figures
    for one in rows:
        shown.add_row(
            one.pair,
            one.model,
            one.transport,
            *(f"{value:.2f}" for value in (one.ratio, one.low, one.high)),
            *(f"{value * 1e3:.2f}" for value in (one.step_s, one.of_step_s)),
            "" if one.weights_differ is None else f"{one.weights_differ:.1e}",
        )
    return shown


def cost_table(found: Sequence[Cost]) -> Table:
    """Renders the overhead."""
    title = f"A step without arithmetic or company, µs; 2 % of a step of 5 ms is {ALLOWED_S * 1e6:.0f}"
    shown = Table(title=title, title_justify="left", box=None)
    shown.add_column("method")
    shown.add_column("transport")
    for column in ("µs", "low", "high", "generator and record"):
        shown.add_column(column, justify="right")
    for one in found:
        figures = (one.step_s, one.low, one.high, one.generator_and_record_s)
        shown.add_row(one.pair, one.transport, *(f"{value * 1e6:.0f}" for value in figures))
    return shown


def parsed() -> argparse.Namespace:
    """Parses the options. Exits with 2 if one is invalid."""
    parser = argparse.ArgumentParser(description="Compares real runs with torch's own.")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    parser.add_argument("--rounds", type=int, default=9, help="launches of each way (default: %(default)s)")
    parser.add_argument("--models", default=",".join(MODELS), help="some of %(default)s")
    parser.add_argument("--steps", type=int, help="timed steps of a launch; default: 320, 64 and 32 by model")
    parser.add_argument("--ways", default=",".join(WAYS), help="some of %(default)s")
    parser.add_argument("--transports", default=",".join(TRANSPORTS), help="of Paceline's methods, some of %(default)s")
    arguments = parser.parse_args()
    for option, known in {"models": MODELS, "ways": WAYS, "transports": TRANSPORTS}.items():
        chosen = getattr(arguments, option).split(",")
        setattr(arguments, option, chosen)
        for one in chosen:
            if one not in known:
                parser.error(f"--{option}: found {one!r}, expected some of {', '.join(known)}")
    if arguments.rounds < 1:
        parser.error(f"--rounds: found {arguments.rounds}, expected 1 or more")
    if arguments.steps is not None and (arguments.steps < 8 or arguments.steps % 8):
        parser.error(f"--steps: found {arguments.steps}, expected whole periods of 8 steps")
    return arguments


def main() -> None:
    arguments = parsed()
    rows: list[Row] = []
    overhead: list[Cost] = []
    every = dict(ways(arguments.ways, arguments.transports))
    models = arguments.models if every else ()
    try:
        with OtherLoad() as other, ExitStack() as stack:
            steps = {model: arguments.steps or MODELS[model].steps for model in models}
            makers = {
                model: stack.enter_context(Maker(partial(learner_of, model), steps[model], every)) for model in models
            }  # processes are forked before other objects exist that they would inherit
            for model, maker in makers.items():
                rows += rows_of(model, measured(list(every), maker, arguments.rounds))
            if COSTS in arguments.ways:
                all_ours = product(OURS, arguments.transports)
                overhead += costs(all_ours, arguments.rounds, arguments.steps or OVERHEAD_STEPS)
    except OtherWeights as error:
        sys.exit(f"error: {error}")
    cores = len(os.sched_getaffinity(0))
    if arguments.json:
        answer = {
            "rows": [asdict(row) for row in rows],
            "overhead": [asdict(cost) for cost in overhead],
            "workers": WORKERS,
            "batch": BATCH,
            "warm_up_steps": WARMUP,
            "cores": cores,
            "other_load": other.share,
        }
        print(json.dumps(answer, indent=2))
        return
    console = Console()
    if rows:
        console.print(table(rows))
    if overhead:
        console.print(cost_table(overhead))
    console.print(f"{cores} cores; other programs took {other.share:.0%} of them.")


if __name__ == "__main__":
    main()
