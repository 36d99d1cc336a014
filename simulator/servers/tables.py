"""Writes the nodes of templates into the arrays that the event loop reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from paceline.algorithms.core.method import Role
from paceline.algorithms.core.operations import Charge
from paceline.simulator.servers.machine_state import Kind
from paceline.simulator.servers.node_steps import ADD, QUOTIENT, REMAINDER, SET, TEMPORARIES
from paceline.simulator.servers.nodes import (
    Charges,
    Computes,
    Decides,
    Ends,
    Loads,
    NextSteps,
    Node,
    Outside,
    Receives,
    Sends,
    Updates,
)
from paceline.simulator.servers.shapes import Shape
from paceline.simulator.servers.symbols import Sum, Unforeseen
from paceline.simulator.servers.templates import Template

ROLES: tuple[Role, ...] = ("worker", "server")
"""the row of node n of a template is 2 n, plus 1 for the server's"""
RELATIONS = {"<": 0, "<=": 1, "==": 2}


class Rows:
    """An array of integers that grows at its end.

    >>> rows = Rows(2)
    >>> rows.extend([(1, 2), (3, 4)]), rows.array[:2].tolist()
    (0, [[1, 2], [3, 4]])
    """

    def __init__(self, columns: int) -> None:
        self.array = np.zeros((64, columns), np.int64)
        self.count = 0

    def extend(self, rows: Sequence[Sequence[int]]) -> int:
        """Adds rows; returns the number of the first one."""
        first, self.count = self.count, self.count + len(rows)
        self.need(self.count)
        if rows:
            self.array[first : self.count] = rows
        return first

    def need(self, count: int) -> None:
        """Makes room for so many rows."""
        if count > len(self.array):
            grown = np.zeros((max(count, 2 * len(self.array)), self.array.shape[1]), np.int64)
            grown[: len(self.array)] = self.array
            self.array = grown


class Tables:
    """The tables of both templates.

    Args:
        templates: the templates, by role.
    """

    def __init__(self, templates: dict[Role, Template]) -> None:
        self._templates = templates
        self.nodes, self.operands, self.instructions = Rows(8), Rows(2), Rows(4)
        self.children = np.full((16, 8), -1, np.int64)
        self.receives: dict[int, int] = {}
        """the row of `children` of each row of `nodes` that is a receive"""
        self.charges: dict[tuple[Role, Charge | None], int] = {}
        self.kinds: dict[tuple[Role, Shape], int] = {}
        """the number of each kind of message, by its sender's role and its shape"""

    def row(self, role: Role, number: int) -> int:
        """Returns the row of a node of a template."""
        return 2 * number + ROLES.index(role)

    def kind(self, role: Role, shape: Shape) -> int:
        """Returns the number of a kind of messages.

        Args:
            role: the role of the sender.
            shape: the shape of the message.
        """
        return self.kinds.setdefault((role, shape), len(self.kinds))

    def update(self) -> None:
        """Writes the nodes that have changed since the last call."""
        for role, template in self._templates.items():
            changed, template.changed = template.changed, []
            for number in dict.fromkeys(changed):
                self._write(role, number, template.nodes[number])
        self._need_children(len(self.receives))

    def _write(self, role: Role, number: int, node: Node) -> None:
        row = self.row(role, number)
        self.nodes.need(2 * len(self._templates[role].nodes) + 2)
        first = self.instructions.count
        self._spare = 0
        self.nodes.array[row, :6] = self._columns(role, row, node)
        self.nodes.array[row, 6:] = first, self.instructions.count - first

    def _columns(self, role: Role, row: int, node: Node) -> Sequence[int]:
        """Returns the kind, the next row, and four columns."""
        then = self.row(role, node.then) if hasattr(node, "then") else -1
        match node:
            case Loads():
                return Kind.LOADS, then, self._operands([node.step]), 0, 0, 0
            case Computes():
                return Kind.COMPUTES, then, self._operands([node.step]), 0, 0, 0
            case Charges():
                return Kind.CHARGES, then, self.charges.setdefault((role, node.op), len(self.charges)), 0, 0, 0
            case Sends():
                to, kind = self._operands([node.to]), self.kind(role, node.shape)
                return Kind.SENDS, then, to, kind, self._operands(node.integers), len(node.integers)
            case Receives():
                return Kind.RECEIVES, -1, self._branches(role, row, node), TEMPORARIES + node.first, 0, 0
            case Decides():
                yes, no = self.row(role, node.yes), self.row(role, node.no)
                return Kind.DECIDES, -1, self._operands([node.content]), RELATIONS[node.relation], yes, no
            case Updates():
                inputs = self._operands([content for one in node.inputs for content in one])
                return Kind.UPDATES, then, self._operands([node.held]), inputs, len(node.inputs), 0
            case NextSteps():
                step = self._operands([node.step])
                return Kind.NEXT_STEPS, then, step, self._operands(node.integers), len(node.integers), 0
            case Ends():
                return Kind.ENDS, -1, self._operands(node.integers), len(node.integers), 0, 0
            case Outside():
                return Kind.OUTSIDE, -1, 0, 0, 0, 0
            case _:
                return Kind.UNDERIVED, -1, 0, 0, 0, 0

    def _branches(self, role: Role, row: int, node: Receives) -> int:
        """Writes the branches of a receive; returns their row."""
        sender: Role = "server" if role == "worker" else "worker"
        place = self.receives.setdefault(row, len(self.receives))
        kinds = [(self.kind(sender, shape), then) for shape, then in node.children.items()]
        self._need_children(place + 1)
        for kind, then in kinds:
            self.children[place, kind] = self.row(role, then)
        return place

    def _need_children(self, count: int) -> None:
        """Makes room for so many receives, and for all kinds of messages."""
        rows, columns = self.children.shape
        if count > rows or len(self.kinds) > columns:
            shape = max(count, 2 * rows if count > rows else rows), max(columns, 2 * len(self.kinds))
            grown = np.full(shape, -1, np.int64)
            grown[:rows, :columns] = self.children
            self.children = grown

    # --- numbers --------------------------------------------------------------------------------------------------

    def _operands(self, contents: Iterable[Sum]) -> int:
        """Writes numbers as operands; returns the first one."""
        return self.operands.extend([self._operand(content) for content in contents])

    def _operand(self, content: Sum) -> tuple[int, int]:
        """Returns a register, or -1, and a constant; adds instructions for a number that is more than their sum."""
        terms = content.terms
        if not terms:
            return -1, content.constant
        if len(terms) == 1 and terms[0][1] == 1 and terms[0][0][0] == "register":
            return TEMPORARIES + int(terms[0][0][1]), content.constant
        target = self._temporary()
        self.instructions.extend([(SET, target, 0, content.constant)])
        for term, by in terms:
            self.instructions.extend([(ADD, target, self._term(term), by)])
        return target, 0

    def _term(self, term: tuple[object, ...]) -> int:
        """Returns the register of a term."""
        if term[0] == "register":
            return TEMPORARIES + int(term[1])  # type: ignore[call-overload, no-any-return]
        register, constant = self._operand(term[1])  # type: ignore[arg-type]
        inner, target = self._temporary(), self._temporary()
        lines = [(SET, inner, 0, constant)] + ([(ADD, inner, register, 1)] if register >= 0 else [])
        operation = REMAINDER if term[0] == "%" else QUOTIENT
        self.instructions.extend([*lines, (operation, target, inner, int(term[2]))])  # type: ignore[call-overload]
        return target

    def _temporary(self) -> int:
        self._spare += 1
        if self._spare > TEMPORARIES:
            raise Unforeseen("an operation depends on too many computed numbers")
        return self._spare - 1
