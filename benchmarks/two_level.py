"""Compares flat with two-level all-reduce on two hosts joined by a network of known rate: real and simulated.

    python benchmarks/two_level.py                          # 1 Gbit/s, 0.8 and 8 MB, two ranks a host: five minutes
    python benchmarks/two_level.py --rate "200 Mbit/s" --megabytes 0.8 --repeats 3 --json

Needs root: the hosts are network namespaces of this machine (`backend/emulation/emulated_hosts.py`). Workers are paced.
A step is 20 ms of gradient and then the exchange, in one of three ways: a flat ring of all ranks by gloo (sync-sgd),
two levels with gloo inside the host, and two levels with shared memory inside the host (hsgd without LARS). The ways
and the probes for the predictions take turns, one run each per round. `emulated_network/two_level_runs.py` lists the
inputs of a prediction.

The tables show medians over the rounds with an interval of order statistics, which contains the true median with 95 %
probability from six rounds on; the bytes that crossed the link of each host in a step beside the theoretical value; and
the time of each collective. Other programs on the machine disturb the measurement: their share of the processor time is
printed, and with --quiet 0.05 a round in which they took more than 5 % is repeated.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from common.intervals import between
from emulated_network.two_level_runs import (
    HOSTS,
    ITEM_BYTES,
    PAYLOAD,
    SETTLING,
    TINY_BYTES,
    WAYS,
    Machine,
    Measured,
    Probe,
    Setting,
    Way,
    machine,
    measured,
    predicted,
    probed,
)
from paceline.algorithms.core.errors import PacelineError
from paceline.backend.emulation.emulated_hosts import Hosts, hosts
from paceline.backend.posix.network_namespaces import NoHosts
from paceline.records.machine import OtherLoad
from paceline.scenarios.values.units import RATE

MOST_TRIES = 10
"""limit of all rounds, as a multiple of the requested ones, if many are disturbed"""


class Busy(PacelineError):
    """No round was as quiet as requested."""


@dataclass(slots=True)
class Round:
    """Runs every way and every probe once, one after the other."""

    other_load: float
    probes: dict[str, Probe]
    runs: dict[str, Measured]


def one_round(setting: Setting, made: Hosts, number: int) -> Round:
    """Rotates the ways, so that each begins a round in turn."""
    turn = number % len(WAYS)
    ways = WAYS[turn:] + WAYS[:turn]
    with OtherLoad() as other:
        probes = {way.name: probed(way, setting, made) for way in ways}
        runs = {way.name: measured(way, setting, made) for way in ways}
    return Round(other.share, probes, runs)


def rounds(setting: Setting, made: Hosts, options: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    """Returns the measured and the predicted figures of every way."""
    found: list[Round] = []
    for number in range(MOST_TRIES * options.repeats):
        one = one_round(setting, made, number)
        say(f"{setting.nbytes / 1e6:g} MB, round {number + 1}: other programs took {100 * one.other_load:.1f} %")
        if one.other_load <= options.quiet:
            found.append(one)
        if len(found) == options.repeats:
            break
    if not found:
        raise Busy(f"other programs took more than {100 * options.quiet:g} % of the machine in every round")
    probes = {way.name: [one.probes[way.name] for one in found] for way in WAYS}
    machines = {way.name: machine(way, setting, probes) for way in WAYS}
    rows = [row(way, setting, [one.runs[way.name] for one in found], machines[way.name]) for way in WAYS]
    for one_row in rows:
        one_row |= beside(one_row, rows[0])
    return {
        "megabytes": setting.nbytes / 1e6,
        "rounds": len(found),
        "tried": number + 1,
        "other_load": median(one.other_load for one in found),
        "rows": rows,
        "machine": {name: shown(on) for name, on in machines.items()},
    }


def shown(on: Machine) -> dict[str, float]:
    """Returns the figures of the probes."""
    return {
        "latency_s": on.across.latency_s,
        "payload_bytes_per_s": on.across.bytes_per_s,
        "inside_latency_s": on.inside.latency_s,
        "inside_bytes_per_s": on.inside.bytes_per_s,
        "update_s": on.update_s,
        "rest_s": on.rest_s,
    }


def row(way: Way, setting: Setting, found: Sequence[Measured], on: Machine) -> dict[str, Any]:
    """Returns the figures of one way."""
    steps, foreseen = [one.step_s for one in found], predicted(way, setting, on)
    low, high = between(steps)
    theory = way.crossing(setting.nbytes, setting.per_host)
    return {
        "way": way.name,
        "step_s": median(steps),
        "step_low_s": low,
        "step_high_s": high,
        "predicted_s": foreseen.step_s,
        "error": foreseen.step_s / median(steps) - 1,
        "crossed_bytes": median(one.sent for one in found),
        "theory_bytes": theory,
        "theory_with_headers_bytes": theory / PAYLOAD,
        "stages_s": {
            stage: {"measured": median(one.stages_s[stage] for one in found), "predicted": seconds}
            for stage, seconds in foreseen.stages_s.items()
        },
        "runs": [asdict(one) for one in found],
    }


def beside(one: dict[str, Any], flat: dict[str, Any]) -> dict[str, Any]:
    """Returns the step time of a way relative to the flat one: for runs of the same round, and predicted."""
    ratios = [mine["step_s"] / theirs["step_s"] for mine, theirs in zip(one["runs"], flat["runs"], strict=True)]
    low, high = between(ratios)
    return {
        "of_flat": median(ratios),
        "of_flat_low": low,
        "of_flat_high": high,
        "of_flat_predicted": one["predicted_s"] / flat["predicted_s"],
    }


def tables(size: dict[str, Any]) -> Iterator[Table]:
    """Renders the measurements for one size."""
    heads = ("median, ms", "from", "to", "predicted", "off, %", "of flat", "from", "to", "predicted")
    made = _table(f"{size['megabytes']:g} MB of gradients: a step", "exchange", heads)
    for one in size["rows"]:
        times = [f"{1e3 * one[key]:.1f}" for key in ("step_s", "step_low_s", "step_high_s", "predicted_s")]
        shares = [f"{one[key]:.2f}" for key in ("of_flat", "of_flat_low", "of_flat_high", "of_flat_predicted")]
        made.add_row(one["way"], *times, f"{100 * one['error']:+.1f}", *shares)
    yield made
    made = _table("A step's bytes over each host's link, each way", "exchange", ("MB", "theory", "with headers"))
    for one in size["rows"]:
        sent = [f"{one[key] / 1e6:.3f}" for key in ("crossed_bytes", "theory_bytes", "theory_with_headers_bytes")]
        made.add_row(one["way"], *sent)
    yield made
    made = _table("Its collectives", "exchange", ("collective", "median, ms", "predicted"))
    for one in size["rows"]:
        for name, seconds in one["stages_s"].items():
            made.add_row(one["way"], name, f"{1e3 * seconds['measured']:.1f}", f"{1e3 * seconds['predicted']:.1f}")
    yield made


def _table(title: str, first: str, heads: Sequence[str]) -> Table:
    made = Table(box=None, title=title, title_justify="left")
    made.add_column(first, no_wrap=True)
    for head in heads:
        made.add_column(head, justify="right")
    return made


def run(options: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    """Runs everything that was requested."""
    sizes = []
    with hosts(HOSTS, bytes_per_s=options.rate) as made:
        for megabytes in options.megabytes:
            setting = Setting(
                bytes_per_s=options.rate,
                per_host=options.ranks_per_host,
                nbytes=round(megabytes * 1e6 / ITEM_BYTES) * ITEM_BYTES,
                steps=options.steps,
                gradient_s=options.gradient_ms / 1e3,
            )
            sizes.append(rounds(setting, made, options, say))
    return {
        "rate_bytes_per_s": options.rate,
        "ranks_per_host": options.ranks_per_host,
        "gradient_s": options.gradient_ms / 1e3,
        "sizes": sizes,
    }


def show(found: dict[str, Any], console: Console) -> None:
    """Prints the tables and the inputs of the predictions."""
    for size in found["sizes"]:
        for one in tables(size):
            console.print(one)
        for name, on in size["machine"].items():
            console.print(
                f"Probed, {name}: {1e6 * on['latency_s']:.0f} µs a message between hosts, "
                f"{1e6 * on['inside_latency_s']:.0f} µs and {on['inside_bytes_per_s'] / 1e9:.2f} GB/s inside, "
                f"{1e3 * on['update_s']:.1f} ms an update, {1e3 * on['rest_s']:.1f} ms of a step beside."
            )
        console.print(
            f"{size['rounds']} rounds of {size['tried']} counted; in them other programs took "
            f"{100 * size['other_load']:.1f} % of the machine."
        )


def rate(text: str) -> float:
    """Parses a rate into bytes per second."""
    try:
        return RATE.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected {error}") from error


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    """Parses the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=rate, default=rate("1 Gbit/s"), help="rate of the links, with its unit")
    parser.add_argument("--ranks-per-host", type=int, default=2, choices=range(2, 9), metavar="2 … 8")
    parser.add_argument("--megabytes", type=float, nargs="+", default=[0.8, 8.0], help="sizes of the gradient")
    parser.add_argument("--repeats", type=int, default=7, help="rounds; one run of each way in each")
    parser.add_argument(
        "--quiet",
        type=float,
        default=1.0,
        help="rounds in which other programs took a larger share of the machine are repeated",
    )
    parser.add_argument("--steps", type=int, default=20, help=f"of a run; the first {SETTLING} are not counted")
    parser.add_argument("--gradient-ms", type=float, default=20.0, help="time of a paced gradient")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(given)
    if options.steps < SETTLING + 3 or options.repeats < 1 or min(options.megabytes) * 1e6 < TINY_BYTES:
        parser.error(
            f"found too little to measure; expected {SETTLING + 3} steps, 1 round and {TINY_BYTES} bytes or more"
        )
    return options


def main(given: Sequence[str] | None = None) -> int:
    """Runs the command. Returns 2 if this machine cannot make hosts, 1 if a run fails."""
    options = arguments(given)
    try:
        found = run(options, lambda words: print(words, file=sys.stderr))
    except PacelineError as error:
        print(error, file=sys.stderr)
        return 2 if isinstance(error, NoHosts) else 1
    if options.json:
        print(json.dumps(found))
    else:
        show(found, Console())
    return 0


if __name__ == "__main__":
    sys.exit(main())
