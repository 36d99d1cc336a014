"""Charges on one core of this machine: predicted from a short probe, and measured.

    python benchmarks/charges.py
    python benchmarks/charges.py --counts 200000 --rounds 5 --json

Updates with 0.2, 10 and 100 million parameters in float32, copies, and a server's handling of one message. The probe
measures the bandwidth of one core with other kernels and at other sizes. Rounds of the probe and of the cases
alternate; figures are medians, and an error is the median of the rounds' errors. With 100 million parameters, up to
5 GB of memory are used.

A case executes the real code of `paceline.algorithms` on tensors. Its prediction is the sum of the charges that the
code declares, at the rates of the probe, which uses other kernels (maximum, absolute value) and other sizes. Other load
makes a core slower for some time, so a sample of the probe takes little time.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Any

import torch

from common.harness import Answer, at_least, run_command, table
from paceline.algorithms import find
from paceline.algorithms.core import operations as ops
from paceline.algorithms.core.method import SgdMethod, build_team
from paceline.algorithms.core.rules import Lars
from paceline.algorithms.core.traffic import COPY, SCALE, Traffic
from paceline.algorithms.core.values import Contribution, Layer, Layout, Message, Rank, Samples, Step
from paceline.algorithms.methods.elastic import Exchange
from paceline.algorithms.methods.parameter_server import Push
from paceline.topologies.catalogue.charge_rates import ChargeRates

COUNTS = (8_000, 30_000, 60_000, 120_000, 300_000, 700_000, 2_000_000, 6_000_000, 24_000_000, 70_000_000)
"""numbers of a vector in the probe of the bandwidth"""
FRESH, FRESH_SHARE = 9_000_000, 0.7
"""numbers of a newly allocated vector: slightly more than 32 MiB at least, and relative to the case"""
LARGE = 2**25
"""bytes from which newly allocated memory comes from the operating system"""
SMALL = 64
SHORT_S, MOST = 20e-3, 200
"""an action is repeated for so long, and at most so often"""


def seconds(action: Callable[[], Any]) -> float:
    """Returns the median time of an action, repeated if it is short."""
    begun, times = time.perf_counter(), list[float]()
    while not times or (len(times) < MOST and time.perf_counter() - begun < SHORT_S):
        before = time.perf_counter()
        action()
        times.append(time.perf_counter() - before)
    return median(times)


class Probe:
    """Measures the bandwidth near the bytes in use of the case that is to be predicted.

    Args:
        count: numbers of a vector of the case.
        footprint: the bytes in use of the case.
    """

    def __init__(self, count: int, footprint: float) -> None:
        self._fresh = min(max(COUNTS), max(FRESH, int(FRESH_SHARE * count))) if 4 * count >= LARGE else 0
        smaller = [count for count in COUNTS if 12 * count <= footprint][-2:]
        larger = [count for count in COUNTS if 12 * count > footprint][:2]
        self._counts = smaller + larger
        size = max(*self._counts, self._fresh)
        self._left, self._right, self._out = torch.rand(size), torch.rand(size), torch.zeros(size)

    def once(self) -> ChargeRates:
        """Returns the rates of the core by one sample of each figure, without the cost of new memory."""
        launch_s = seconds(self._small) / 2
        points = []
        for count in self._counts:
            left, right, into = self._left[:count], self._right[:count], self._out[:count]
            taken_s = seconds(lambda: torch.maximum(left, right, out=into))  # noqa: B023  # called at once
            points.append((12.0 * count, 12 * count / max(taken_s - launch_s, 1e-9)))
        return ChargeRates(
            bandwidths=tuple(points),
            flops_per_s=float("inf"),
            launch_s=launch_s,
            rewrites=False,
            provenance="measured: maximum and absolute value of vectors, one core",
        )

    def _small(self) -> None:
        """Executes two kernels on a few numbers, with the views and the conversion that rules have around them."""
        part = slice(0, SMALL)
        float(torch.maximum(self._left[part], self._right[part]).sum())

    def page_s(self) -> float:
        """Returns the additional time per byte of new memory, with several vectors in use; 0 for smaller vectors."""
        if not self._fresh:
            return 0.0
        left, right, into = (vector[: self._fresh] for vector in (self._left, self._right, self._out))

        def fresh() -> None:
            first = torch.maximum(left, right)
            second = torch.abs(first)
            torch.maximum(first, second)

        def reused() -> None:
            torch.maximum(left, right, out=into)
            torch.abs(into, out=right)
            torch.maximum(into, left, out=right)

        return max(0.0, seconds(fresh) - seconds(reused)) / (3 * 4 * self._fresh)


LAYERS = 64
"""layers of equal size: as many as a model of 100 million parameters has matrices"""
LEARNING_RATE = 1e-6
"""so small that the weights do not shrink to numbers with which arithmetic is slower"""
RULES: dict[str, dict[str, Any]] = {
    "plain SGD": {},
    "momentum": {"momentum": 0.9},
    "momentum, weight decay": {"momentum": 0.9, "weight_decay": 1e-4},
    "LARS": {"momentum": 0.9, "weight_decay": 1e-4, "lars": Lars()},
}
SERVERS = ("async-sgd", "async-msgd", "async-easgd")


@dataclass(frozen=True)
class Case:
    """One charge: `measure` returns the seconds of one execution, `traffic` the declared traffic on its vectors."""

    kind: str
    name: str
    count: int
    nbytes: int
    measure: Callable[[], float]
    traffic: Callable[[], Traffic]

    def predict(self, rates: ChargeRates) -> float:
        """Returns the time by the rates of a core."""
        return rates.seconds(self.nbytes, self.traffic())


def layout_of(count: int) -> Layout:
    """Returns the positions of `LAYERS` layers of equal size."""
    each = count // LAYERS
    return Layout(
        tuple(Layer(f"layer{n}", n * each, count if n == LAYERS - 1 else (n + 1) * each) for n in range(LAYERS))
    )


def cases(count: int) -> Iterator[Case]:
    """Yields the cases of vectors with so many numbers, one after the other, because they need much memory."""
    for name, settings in RULES.items():
        yield update(name, with_settings(**settings), count)
    source, target = torch.rand(count), torch.zeros(count)
    yield copy("into existing memory", lambda: target.copy_(source), COPY, count)
    yield copy("into new memory", source.clone, SCALE, count)
    for name in SERVERS:
        yield server(name, count)


def with_settings(**settings: Any) -> SgdMethod:
    """Returns synchronous SGD with these settings, for its optimizer chain."""
    method = find("sync-sgd")(learning_rate=LEARNING_RATE, **settings)
    assert isinstance(method, SgdMethod)
    return method


def update(name: str, method: SgdMethod, count: int) -> Case:
    """Returns the update of a worker, whose gradient may be overwritten.

    Args:
        name: of the rule.
        method: has the optimizer chain.
        count: the numbers of a vector.
    """
    rule = method.rule(layout_of(count).layers)
    weights, gradient = torch.rand(count), torch.rand(count)
    held = [weights, gradient, rule.init(weights)]
    nbytes = gradient.nbytes
    charge = rule.charge(nbytes, donated=True)

    def step() -> None:
        vector, gradient, memory = held
        vector, memory = rule.update(vector, gradient, memory, out=gradient)
        held[:] = vector, held[0], memory  # the old weights serve as the next gradient

    return Case("update", name, count, nbytes, lambda: seconds(step), lambda: charge.traffic)


def copy(name: str, action: Callable[[], Any], traffic: Traffic, count: int) -> Case:
    """Returns a copy.

    Args:
        name: of the case.
        action: copies.
        traffic: the declared traffic.
        count: the numbers of a vector.
    """
    return Case("copy", name, count, 4 * count, lambda: seconds(action), lambda: traffic)


class Server:
    """The program of a server, whose operations are answered at once; a message and a reply are copied once each.

    Args:
        name: of the method.
        count: the numbers of a vector.
    """

    def __init__(self, name: str, count: int) -> None:
        method = find(name)()
        layout = layout_of(count)
        _, server = build_team(method, [[Rank(0)]], layout)
        self._method, self._me = method, server
        self._outside, self._arrived, self._reply = (torch.rand(count) for _ in range(3))
        self._program = iter(method.enter(server, method.begin(server, torch.rand(count))))
        self._steps = 0
        self._answer: Any = None
        self.charges: list[ops.Charge] = []

    def handle(self) -> None:
        """Runs the program from one receive to the next."""
        self.charges.clear()
        op = self._program.send(self._answer)
        while not isinstance(op, ops.Receive):
            op = self._program.send(self._answered(op))
        self._answer = self._message()

    def _answered(self, op: ops.Op[Any]) -> Any:
        match op:
            case ops.NextStep():
                self._steps += 1
                return Step(self._steps - 1, Samples(0, 1, self._steps, 8))
            case ops.Send():
                self._reply.copy_(op.value.vector)
            case ops.Charge():
                self.charges.append(op)
            case ops.RecordUpdate():
                return op.weights.version + 1
            case _:
                raise TypeError(f"a server does not request {type(op).__name__}")
        return None

    def _message(self) -> Message:
        self._arrived.copy_(self._outside)
        origin = Contribution(Rank(0), self._steps, self._steps, 8)
        value = Exchange if self._method.name == "async-easgd" else Push
        return Message(Rank(0), value(self._arrived, origin))


def server(name: str, count: int) -> Case:
    """Returns a server's handling of one message: copy it in, update, copy the reply out.

    Args:
        name: of the method.
        count: the numbers of a vector.
    """
    program = Server(name, count)
    program.handle()
    program.handle()  # the first message after the start

    def traffic() -> Traffic:
        return sum((op.traffic for op in program.charges), 2 * COPY)

    return Case("server", name, count, 4 * count, lambda: seconds(program.handle), traffic)


AIM = 0.15


def row(case: Case, rounds: int) -> dict[str, Any]:
    """Returns a case with medians of the prediction, of the measurement, and of their ratio in each round."""
    traffic = case.traffic()
    probe = Probe(case.count, traffic.footprint * case.nbytes)
    case.measure()
    samples, pages_s = [], list[float]()
    for _ in range(rounds):
        samples.append((probe.once(), case.measure(), probe.once()))
        pages_s.append(probe.page_s())
    page_s = median(pages_s)  # the difference of two large times: more noise than a bandwidth
    rounds_s = []
    for before, measured_s, after in samples:
        predicted_s = fmean(case.predict(replace(rates, page_s_per_byte=page_s)) for rates in (before, after))
        rounds_s.append((predicted_s, measured_s, predicted_s / measured_s - 1))
    predicted_s, measured_s, error = map(median, zip(*rounds_s, strict=True))
    times_s = [measured_s for _, measured_s, _ in rounds_s]
    return {
        "kind": case.kind,
        "name": case.name,
        "parameters": case.count,
        "passes": traffic.passes,
        "kernels": traffic.kernels,
        "predicted_s": predicted_s,
        "measured_s": measured_s,
        "error": error,
        "spread": (max(times_s) - min(times_s)) / measured_s,
    }


def body(options: argparse.Namespace) -> Answer:
    torch.set_num_threads(1)
    rows = [row(case, options.rounds) for count in options.counts for case in cases(count)]
    errors = [abs(of_case["error"]) for of_case in rows]
    mean_error, within = fmean(errors), fmean(error <= AIM for error in errors)
    cells = {
        "kind": "kind", "case": "name", "parameters": "parameters:,", "predicted ms": "predicted_s*1e3:.3f",
        "measured ms": "measured_s*1e3:.3f", "error": "error:+.0%", "spread": "spread:.0%",
    }  # fmt: skip
    shown = table("Charges on one core: predicted and measured", rows, cells)
    said = f"Mean error {mean_error:.0%}; {within:.0%} within {AIM:.0%}."
    return Answer({"rows": rows, "mean_error": mean_error, "within_aim": within}, [shown, said])


def add_options(parser: argparse.ArgumentParser) -> None:
    default = [200_000, 10_000_000, 100_000_000]
    parser.add_argument("--counts", type=int, nargs="+", default=default, help="parameters of the vectors")
    parser.add_argument("--rounds", type=at_least(1), default=7, help="repetitions of each case and of the probe")


if __name__ == "__main__":
    sys.exit(run_command(__doc__, body, add_options))
