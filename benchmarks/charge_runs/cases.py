"""The charges that are predicted and measured: updates, copies, and a server's handling of one message.

Rules of this file: a case executes the real code of `paceline.algorithms` on tensors. Its prediction is the sum of the
charges that the code declares, at the rates of the probe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from charge_runs.probe import seconds
from paceline.algorithms import find
from paceline.algorithms.core import operations as ops
from paceline.algorithms.core.lars import Lars
from paceline.algorithms.core.method import SgdMethod, build_team
from paceline.algorithms.core.traffic import COPY, SCALE, Traffic
from paceline.algorithms.core.values import Contribution, Layer, Layout, Message, Rank, Samples, Step
from paceline.algorithms.methods.elastic import Exchange
from paceline.algorithms.methods.parameter_server import Push
from paceline.topologies.catalogue.charge_rates import ChargeRates

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
    one = Server(name, count)
    one.handle()
    one.handle()  # the first message after the start

    def traffic() -> Traffic:
        return sum((op.traffic for op in one.charges), 2 * COPY)

    return Case("server", name, count, 4 * count, lambda: seconds(one.handle), traffic)
