"""Compares Paceline's real runs with torch: synchronous SGD and local SGD, over gloo and in shared memory.

    python benchmarks/backend.py
    python benchmarks/backend.py --json --rounds 15
    python benchmarks/backend.py --models mlp --rounds 3 --steps 32     # a short run
    python benchmarks/backend.py --ways DDP,sync-sgd,layerwise-sgd --transports gloo --rounds 25  # few ways, precisely

Two processes with one torch thread each and 32 samples per step train three models in every way, on the same batches
and from the same weights. The messages of layerwise-sgd hold as many bytes as the buckets of DDP. A round is one launch
of each way. The order rotates from round to round, so every ratio is of launches that ran next to each other. The
figure of a launch is the mean time of a step in the steady state by the clocks of the ranks
(`torch_comparison/programs.py`). The tables show medians over the rounds with a 95 % interval for the median (with less
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
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from itertools import product
from statistics import median
from typing import Any

import torch

from common.harness import Answer, at_least, in_turn, names_of, ratio, run_command, table
from paceline.algorithms.core.errors import PacelineError
from torch_comparison.costs import ALLOWED_S, costs
from torch_comparison.programs import (
    BATCH,
    MODELS,
    OURS,
    TORCH,
    TRANSPORTS,
    WARMUP,
    WORKERS,
    Launching,
    Maker,
    Timed,
    by_paceline,
    by_torch,
    learner_of,
)

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


class OtherWeights(PacelineError):
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


def rounds_of(model: str, every: Mapping[Way, Launching], maker: Maker, rounds: int) -> list[Launches]:
    """Returns the launches of each round, after comparing their weights."""
    timed = in_turn({way: partial(maker.launch, way) for way in every}, rounds, model)
    launches = [{way: timed[way][number] for way in every} for number in range(rounds)]
    for launch in launches:
        check(launch, WARMUP + maker.steps)
    return launches


def differ(weights: torch.Tensor, other: torch.Tensor) -> float:
    """Returns ‖x − x'‖ / ‖x'‖."""
    return float(torch.linalg.vector_norm(weights - other) / torch.linalg.vector_norm(other))


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
        for own in ours if (theirs, "gloo") in launches else ():
            if (away := differ(own, launches[theirs, "gloo"].weights[0])) > allowed:
                raise OtherWeights(f"{name} and {theirs}: weights differ by {away:.2g}, expected {allowed:.2g} at most")


# --- figures ----------------------------------------------------------------------------------------------------------


def rows_of(model: str, launches: Sequence[Launches]) -> Iterator[dict[str, Any]]:
    """Yields a row for each pair whose two ways were both run, and for torch's programs relative to DDP.

    A ratio is of samples per second; `weights_differ` is the largest ‖x − x'‖ / ‖x'‖ at the end, None where the weights
    are not expected to be equal.
    """
    for ours, theirs in (*PAIRS, *((name, "DDP") for name in TORCH if name != "DDP")):
        for transport in TRANSPORTS:
            first, second = (ours, transport), (theirs, "gloo")
            if first not in launches[0] or second not in launches[0]:
                continue
            steps_s, of_steps_s = ([launch[way].step_s for launch in launches] for way in (first, second))
            away = max(differ(launch[first].weights[0], launch[second].weights[0]) for launch in launches)
            yield {
                "pair": f"{ours} / {theirs}",
                "model": model,
                "transport": transport,
                **ratio(steps_s, of_steps_s),
                "step_s": median(steps_s),
                "of_step_s": median(of_steps_s),
                "rounds": len(launches),
                "weights_differ": away if SAME.get(ours) == theirs else None,
            }


def body(options: argparse.Namespace) -> Answer:
    rows: list[dict[str, Any]] = []
    every = dict(ways(options.ways, options.transports))
    with ExitStack() as stack:
        makers = {
            model: stack.enter_context(Maker(partial(learner_of, model), options.steps or MODELS[model].steps, every))
            for model in (options.models if every else ())
        }  # processes are forked before other objects exist that they would inherit
        for model, maker in makers.items():
            rows += rows_of(model, rounds_of(model, every, maker, options.rounds))
        overhead = []
        if COSTS in options.ways:
            measured = costs(product(OURS, options.transports), options.rounds, options.steps or OVERHEAD_STEPS)
            overhead = [asdict(cost) for cost in measured]
    setting = {"workers": WORKERS, "batch": BATCH, "warm_up_steps": WARMUP}
    shown = [table("Samples per second of the first / those of the second", rows, RATIOS)] if rows else []
    title = f"A step without arithmetic or company; 2 % of a step of 5 ms is {ALLOWED_S * 1e6:.0f} µs"
    shown += [table(title, overhead, OVERHEAD)] if overhead else []
    return Answer({"rows": rows, "overhead": overhead, **setting}, shown)


RATIOS = {
    "pair": "pair", "model": "model", "transport": "transport", "ratio": "ratio:.2f", "low": "low:.2f",
    "high": "high:.2f", "ms": "step_s*1e3:.2f", "of ms": "of_step_s*1e3:.2f", "differ": "weights_differ:.1e",
}  # fmt: skip
OVERHEAD = {
    "method": "pair", "transport": "transport", "µs": "step_s*1e6:.0f", "low": "low*1e6:.0f", "high": "high*1e6:.0f",
    "generator and record": "generator_and_record_s*1e6:.0f",
}  # fmt: skip


def periods(text: str) -> int:
    steps = int(text)
    if steps < 8 or steps % 8:
        raise argparse.ArgumentTypeError(f"found {steps}, expected whole periods of 8 steps")
    return steps


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=at_least(1), default=9, help="launches of each way (default: %(default)s)")
    parser.add_argument("--steps", type=periods, help="timed steps of a launch; default: 320, 64 and 32 by model")
    known = {"models": MODELS, "ways": WAYS, "transports": TRANSPORTS}
    for name, names in known.items():
        parser.add_argument(f"--{name}", type=names_of(names), default=list(names), help=f"some of {', '.join(names)}")


if __name__ == "__main__":
    sys.exit(run_command(__doc__, body, add_options))
