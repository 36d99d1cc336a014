"""Derives templates: runs a program with symbolic numbers and records the operations that it requests.

* A step is from one `NextStep` to the next. A program can be restarted from the state that it gives to `NextStep`, so
  the template of a step is derived by restarting the program from a state with symbols for integers.
* A decision by numbers, and a received message, are branches. A branch is derived when a run gets there for the first
  time. So combinations that never occur, such as a full accumulator in the middle of its period, cost nothing.
* A program that does anything else than the operations below with symbolic numbers raises `Unforeseen`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from paceline.algorithms.core import operations as ops
from paceline.algorithms.core.job import Job
from paceline.algorithms.core.method import RankContext, Role
from paceline.algorithms.core.program import Routine
from paceline.algorithms.core.values import (
    Batch,
    Contribution,
    GradientResult,
    Message,
    Samples,
    Step,
    Weights,
)
from paceline.simulator.servers.nodes import (
    Charges,
    Computes,
    Decides,
    Ends,
    Given,
    Input,
    Loads,
    NextSteps,
    Node,
    Receives,
    Sends,
    Underived,
    Updates,
)
from paceline.simulator.servers.shapes import LARGEST, Shape, built, split
from paceline.simulator.servers.symbols import Condition, Path, Real, Sum, Symbol, Unforeseen, content_of

MOST_BRANCHES = 1000
"""branches by numbers, and shapes of states, that a template may have; beyond, every step may take a new path, and
deriving takes longer than it saves; provenance: INFERENCE, one takes about a millisecond"""


class NodeOfRank:
    """Takes the place of the ranks on a worker's node, which differ between workers."""

    def __getattr__(self, name: str) -> Any:
        raise Unforeseen("it uses the ranks on its node")

    def __iter__(self) -> Iterator[Any]:
        raise Unforeseen("it uses the ranks on its node")

    __len__ = __contains__ = __iter__


class Undecided:
    """Takes the place of a path where a program must not decide by its rank."""

    def decide(self, condition: Condition) -> bool:
        """Raises `Unforeseen`."""
        raise Unforeseen("its initial state depends on its rank")


def symbolic_context(job: Job, role: Role, path: Path) -> RankContext:
    """Returns the context of a rank: for workers, of any worker, with a symbol for its rank.

    Args:
        job: the run's job.
        role: the role.
        path: the path on which the symbol occurs.
    """
    if role == "server":
        return job.team[-1]
    rank: Any = Symbol.register(path, 0)
    node: Any = NodeOfRank()
    return replace(job.team[0], rank=rank, node=node)


class Template:
    """The template of all ranks of a role.

    Args:
        job: the method, its ranks and its learner.
        role: the role.
    """

    def __init__(self, job: Job, role: Role) -> None:
        self.job, self.role = job, role
        self.nodes: list[Node] = []
        self.roots: dict[Shape, int] = {}
        """the node with which a step begins, by the shape of the state"""
        self._live: tuple[int, Exploration] | None = None
        """the exploration that has stopped at a receive, with the number of its node"""
        self._branches = 0
        self.changed: list[int] = []
        """the nodes that have been added or derived; the reader empties it"""
        self.registers = 1
        """number of registers"""
        self.complete = self.most_state = self.most_inputs = 0
        """number of complete paths; the most integers of a state, and the most inputs of an update"""
        me = symbolic_context(job, role, Undecided())
        self.first, self.first_integers = _contents(job.method.begin(me, job.learner.initial()))

    def root(self, shape: Shape) -> int:
        """Returns the node with which a step begins from a state of this shape."""
        if shape not in self.roots:
            self._count_branch(f"its {self.role}'s states have")
            self.roots[shape] = self.add(Underived(shape, None))
            self.most_state = max(self.most_state, shape.count)
            self.registers = max(self.registers, 1 + shape.count)
        return self.roots[shape]

    def derive(self, number: int) -> None:
        """Derives an underived node, and what follows up to a receive or to the end of the step.

        Args:
            number: the node.

        Raises:
            Unforeseen: the program did something that a template cannot represent.
        """
        node: Underived = self.nodes[number]
        exploration = Exploration(self, node.root, node.given)
        self._follow(exploration, number, exploration.replay())

    def branch(self, number: int, shape: Shape) -> int:
        """Returns the node that follows a receive of a message of this shape, and derives it.

        Args:
            number: the node of the receive.
            shape: the shape of the message.
        """
        node: Receives = self.nodes[number]
        if shape in node.children:
            return node.children[shape]
        given, fresh = Given(node.given, shape), self.add(Underived(node.root, None))
        if self._live is not None and self._live[0] == number:
            exploration = self._live[1]
            exploration.hear(shape)
        else:
            if node.children:
                self._count_branch(f"messages to its {self.role} have")
            exploration = Exploration(self, node.root, given)
            exploration.replay()
        self._live = None
        node.children[shape] = fresh
        self.changed.append(number)
        self._follow(exploration, fresh)
        return fresh

    def add(self, node: Node) -> int:
        """Adds a node; returns its number."""
        self.nodes.append(node)
        self.changed.append(len(self.nodes) - 1)
        return len(self.nodes) - 1

    def _count_branch(self, what: str) -> None:
        self._branches += 1
        if self._branches > MOST_BRANCHES:
            raise Unforeseen(f"{what} more than {MOST_BRANCHES} forms")

    def _follow(self, exploration: Exploration, number: int, first: Node | None = None) -> None:
        """Adds the nodes of an exploration from here on; the first one replaces the node `number`."""
        while True:
            node = exploration.advance() if first is None else first
            first = None
            for decision in exploration.taken_decisions():
                self._count_branch(f"its {self.role} decides by numbers in")
                other = self.add(Underived(exploration.root, decision.otherwise))
                rest = self.add(Underived(exploration.root, None))
                yes, no = (rest, other) if decision.value else (other, rest)
                self.nodes[number] = Decides(decision.content, decision.relation, yes, no)  # pyright: ignore[reportArgumentType]
                self.changed.append(number)
                number = rest
            self.registers = max(self.registers, exploration.registers)
            self.nodes[number] = node
            self.changed.append(number)
            if isinstance(node, Updates):
                self.most_inputs = max(self.most_inputs, len(node.inputs))
            if isinstance(node, Ends):
                self.complete += 1
                return
            if isinstance(node, NextSteps):
                self.complete += 1
                node.then = self.root(node.shape)
                return
            if isinstance(node, Receives):
                self._live = number, exploration
                return
            node.then = number = self.add(Underived(exploration.root, None))


class Decision:
    """A decision on a path that no answer had determined."""

    __slots__ = ("content", "otherwise", "relation", "value")

    def __init__(self, condition: Condition, before: Given | None, *, value: bool) -> None:
        self.content, self.relation, self.value = condition.content, condition.relation, value
        self.otherwise = Given(before, not value)


class Exploration:
    """One run of a program with symbols, along one path.

    Args:
        template: what it is for.
        root: the shape of the state from which the program is restarted.
        given: the answers of the path, as far as they are determined.
    """

    def __init__(self, template: Template, root: Shape, given: Given | None) -> None:
        self.root, self._job, self._role = root, template.job, template.role
        self._answers: list[bool | Shape] = []
        while given is not None:
            self._answers.append(given.answer)
            given = given.before
        self._given: Given | None = None
        """the answers so far"""
        self._known: dict[tuple[Sum, str], bool] = {}
        self._decisions: list[Decision] = []
        self._me = symbolic_context(self._job, self._role, self)  # pyright: ignore[reportArgumentType]
        self.registers = 1
        self._state = built(root, self._new_registers(root.count))
        routine: Routine[Any] = self._job.method.enter(self._me, self._state)
        self._steps = iter(routine)
        self._answer: Any = None
        self._begin()

    # --- the path -------------------------------------------------------------------------------------------------

    def decide(self, condition: Condition) -> bool:
        """Returns the truth value of a condition: as before on this path, as given, or true for a new one."""
        key = condition.content, condition.relation
        if key not in self._known:
            if self._answers:
                value = self._answers.pop()
                assert isinstance(value, bool), "a program decides in the same order when it is repeated"
            else:
                value = True
                self._decisions.append(Decision(condition, self._given, value=value))
            self._known[key] = value
            self._given = Given(self._given, value)
        return self._known[key]

    def taken_decisions(self) -> list[Decision]:
        """Returns the new decisions since the last call."""
        taken, self._decisions = self._decisions, []
        return taken

    def replay(self) -> Node | None:
        """Repeats the operations up to the end of the given answers.

        Returns:
            The operation after the last answer if that was a decision; None if it was a message, or without answers.
        """
        while self._answers:
            node = self.advance()
            if not self._answers:
                return node
            if isinstance(node, Receives):
                shape = self._answers.pop()
                assert isinstance(shape, Shape), "a program requests the same operations when it is repeated"
                self.hear(shape)
            elif isinstance(node, NextSteps | Ends):
                raise Unforeseen("it requests other operations when it is repeated")
        return None

    def hear(self, shape: Shape) -> None:
        """Gives the program a message of this shape."""
        self._given = Given(self._given, shape)
        source: Any = self._new_registers(1)[0] if self._role == "server" else self._source()
        self._answer = Message(source, built(shape, self._new_registers(shape.count)))

    def _source(self) -> Any:
        self._new_registers(1)  # the event loop writes the source of every message
        return self._me.server

    def _new_registers(self, count: int) -> list[Symbol]:
        first, self.registers = self.registers, self.registers + count
        if self.registers > LARGEST:
            raise Unforeseen(f"a step needs more than {LARGEST:,} integers")
        return [Symbol.register(self, number) for number in range(first, self.registers)]

    # --- operations -----------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Answers the first `NextStep`, which must be the program's first operation and have the given state."""
        op = self._next()
        if not isinstance(op, ops.NextStep) or split(op.state)[0] != self.root:
            raise Unforeseen(f"its {self.role_name} does not begin with `NextStep` and the state that it is given")
        number = op.state.step
        count = self._job.batches[0] if self._role == "worker" else 0
        samples = Samples(worker=self._me.rank, workers=self._job.workers, index=number, count=count)
        self._answer = Step(number, samples)

    @property
    def role_name(self) -> str:
        """The role, for messages."""
        return self._role

    def _next(self) -> ops.Op[Any] | None:
        answer, self._answer = self._answer, None
        try:
            op: ops.Op[Any] = self._steps.send(answer)
        except StopIteration as end:
            self._state = end.value
            return None
        return op

    def advance(self) -> Node:
        """Lets the program go on to its next operation, and returns that as a node."""
        op = self._next()
        match op:
            case None:
                return Ends(*_contents(self._state))
            case ops.NextStep(state):
                return NextSteps(_content(state.step), *_contents(state))
            case ops.Load(samples):
                self._answer = Batch(samples, None)
                return Loads(*self._samples(samples))
            case ops.Gradient(weights, batch):
                return self._gradient(weights, batch)
            case ops.Charge():
                if not all(type(number) is int for number in (op.bytes, op.flops)):
                    raise Unforeseen("it charges work that depends on step numbers or versions")
                return Charges(op)
            case ops.Send(to, value, tag):
                return self._send(to, value, tag)
            case ops.Receive(source, tag, timeout_s):
                return self._receive(source, tag, timeout_s)
            case ops.RecordUpdate():
                return self._update(op)
            case _:
                raise Unforeseen(f"its {self._role} requests `{type(op).__name__}`")

    def _samples(self, samples: Any) -> tuple[Sum, int]:
        if type(samples.count) is not int or self._role != "worker":
            raise Unforeseen("its batches vary, or its server loads batches")
        return _content(samples.index), samples.count

    def _gradient(self, weights: Weights, batch: Batch) -> Node:
        samples = batch.samples
        step, count = self._samples(samples)
        busy_s: Any = Real()
        self._answer = GradientResult(
            weights.vector, weights.version, math.nan, count, self._me.rank, samples.index, busy_s
        )
        return Computes(step, count)

    def _send(self, to: Any, value: Any, tag: str) -> Node:
        if tag or (self._role == "worker" and (type(to) is not int or to != self._me.server)):
            raise Unforeseen("it sends messages with tags, or between workers")
        return Sends(_content(to), *_contents(value))

    def _receive(self, source: Any, tag: str, timeout_s: float | None) -> Node:
        if tag or timeout_s is not None:
            raise Unforeseen("it receives messages with tags or with a timeout")
        if source is not None and (self._role == "server" or type(source) is not int or source != self._me.server):
            raise Unforeseen(f"its {self._role} chooses from whom it receives")
        return Receives(self.registers, self.root, self._given)

    def _update(self, op: ops.RecordUpdate) -> Node:
        if self._role != "server" or not op.advance or op.layer is not None or not op.inputs:
            raise Unforeseen("updates are recorded by workers, for single layers, or without inputs")
        inputs: list[Contribution] = list(op.inputs)
        self._answer = op.weights.version + 1
        rows = [
            Input(_content(one.rank), _content(one.step), _content(one.version), _content(one.samples))
            for one in inputs
        ]
        return Updates(_content(op.weights.version), tuple(rows))


def _content(value: Any) -> Sum:
    if (content := content_of(value)) is None:
        raise Unforeseen(f"found {type(value).__name__} where a template needs an integer")
    return content


def _contents(value: Any) -> tuple[Shape, tuple[Sum, ...]]:
    shape, integers = split(value)
    return shape, tuple([_content(one) for one in integers])
