"""Compares a template with the program that it was derived from, on random numbers.

The program runs from one of its states on, without restarts in between, and gets messages with random integers. The
template's nodes are followed beside it. Every operation must be the same. So a wrong template is found whether the
derivation, or the assumption that programs can be restarted from their states, is to blame.
"""

from __future__ import annotations

import math
import random
from typing import Any

from paceline.algorithms.core import operations as ops
from paceline.algorithms.core.program import Lane
from paceline.algorithms.core.values import Batch, Contribution, GradientResult, Message, Rank, Step
from paceline.simulator.servers.nodes import (
    Charges,
    Computes,
    Decides,
    Ends,
    Loads,
    NextSteps,
    Receives,
    Sends,
    Underived,
    Updates,
)
from paceline.simulator.servers.shapes import built, split
from paceline.simulator.servers.symbols import Sum, holds, value_of
from paceline.simulator.servers.templates import Template

TRIALS, OPERATIONS = 4, 400
"""runs, and the most operations of each; provenance: INFERENCE, some milliseconds in all"""


class WrongTemplate(AssertionError):
    """A template requests other operations than its program."""


def validate(template: Template, seed: int) -> int:
    """Compares a template with its program.

    Args:
        template: the template.
        seed: the seed of the random integers.

    Returns:
        The number of operations that were compared.

    Raises:
        WrongTemplate: an operation differs.
    """
    chance = random.Random(seed)
    return sum(_Trial(template, chance).run() for _ in range(TRIALS))


class _Trial:
    """One run of the program beside the template."""

    def __init__(self, template: Template, chance: random.Random) -> None:
        self._template, self._chance, job = template, chance, template.job
        rank = chance.randrange(job.workers) if template.role == "worker" else job.workers
        self._me = job.team[rank]
        root = chance.choice(list(template.roots))
        self._registers: dict[int, int] = {0: rank}
        self._set(1, [chance.randrange(40) for _ in range(root.count)])
        self._node = template.roots[root]
        self._lane = Lane(job.method.enter(self._me, built(root, self._values(1, root.count))))
        self._answer: Any = None
        first = self._lane.advance()
        self._require(isinstance(first, ops.NextStep), first, "NextStep")
        self._answer_step(first)

    def _answer_step(self, op: Any) -> None:
        number = op.state.step
        self._answer = Step(number, self._template.job.samples(self._me, number))

    def _set(self, first: int, values: list[int]) -> None:
        self._registers.update(enumerate(values, first))

    def _values(self, first: int, count: int) -> list[int]:
        return [self._registers[number] for number in range(first, first + count)]

    def _value(self, content: Sum) -> int:
        return value_of(content, self._registers)

    def _require(self, same: bool, op: Any, expected: object) -> None:
        if not same:
            raise WrongTemplate(f"{self._lane.where()}: the program requests {op!r}, its template {expected}")

    def run(self) -> int:
        """Compares operations until the template ends or has not been derived; returns their number."""
        count = 0
        while count < OPERATIONS:
            node = self._template.nodes[self._node]
            if isinstance(node, Underived) or (isinstance(node, Receives) and not node.children):
                break
            if isinstance(node, Decides):
                yes = holds(self._value(node.content), node.relation)
                self._node = node.yes if yes else node.no
                continue
            op = self._lane.advance(self._answer)
            count += 1
            if isinstance(node, Ends):
                state = built(node.shape, [self._value(one) for one in node.integers])
                self._require(op is None and split(self._lane.answer) == split(state), op, f"its end with {state}")
                break
            self._node = self._compare(node, op)
        self._lane.steps.close()
        return count

    def _compare(self, node: Any, op: Any) -> int:
        """Compares one operation, and prepares its answer; returns the next node."""
        self._answer = None
        match node:
            case Loads():
                samples = self._template.job.samples(self._me, self._value(node.step))
                self._require(op == ops.Load(samples), op, f"Load({samples})")
                self._answer = Batch(samples, None)
            case Computes():
                samples = self._template.job.samples(self._me, self._value(node.step))
                same = isinstance(op, ops.Gradient) and op.batch == Batch(samples, None)
                self._require(same, op, f"Gradient of {samples}")
                self._answer = self._gradient(op)
            case Charges():
                self._require(op == node.op, op, node.op)
            case Sends():
                value = built(node.shape, [self._value(one) for one in node.integers])
                to = self._value(node.to)
                same = isinstance(op, ops.Send) and op.to == to and split(op.value) == split(value)
                self._require(same, op, f"Send({to}, {value})")
            case Receives():
                return self._receive(node, op)
            case Updates():
                self._update(node, op)
            case NextSteps():
                integers = [self._value(one) for one in node.integers]
                same = isinstance(op, ops.NextStep) and split(op.state) == (node.shape, integers)
                self._require(same, op, f"NextStep with {integers}")
                self._registers = {0: self._registers[0]}
                self._set(1, integers)
                self._answer_step(op)
        return int(node.then)

    def _gradient(self, op: Any) -> GradientResult:
        samples = op.batch.samples
        rank = Rank(self._registers[0])
        return GradientResult(
            op.weights.vector, op.weights.version, math.nan, samples.count, rank, samples.index, self._chance.random()
        )

    def _receive(self, node: Receives, op: Any) -> int:
        self._require(isinstance(op, ops.Receive), op, "Receive")
        shape = self._chance.choice(list(node.children))
        workers = self._template.job.workers
        source = workers if self._template.role == "worker" else self._chance.randrange(workers)
        self._set(node.first, [source, *(self._chance.randrange(40) for _ in range(shape.count))])
        self._answer = Message(Rank(source), built(shape, self._values(node.first + 1, shape.count)))
        return node.children[shape]

    def _update(self, node: Updates, op: Any) -> None:
        held = self._value(node.held)
        inputs = [Contribution(Rank(rank), step, version, samples) for rank, step, version, samples in self._rows(node)]
        same = isinstance(op, ops.RecordUpdate) and op.weights.version == held and list(op.inputs) == inputs
        self._require(same, op, f"RecordUpdate of {inputs} at version {held}")
        self._answer = held + 1

    def _rows(self, node: Updates) -> list[list[int]]:
        return [[self._value(content) for content in one] for one in node.inputs]
