"""Symbolic integers: a program that computes with them shows which operations it requests, for all numbers at once.

* A `Symbol` is c + Σ a_i t_i. A term t_i is a register or the remainder or quotient of a symbol by a constant. The form
  is unique for sums, so that ``step + 1 == step`` needs no decision.
* A comparison gives a `Condition`. Its truth value is asked of the `Path` that is being explored, which records it.
* Everything that a template cannot represent (hashing, an index, a product of two symbols) raises `Unforeseen`. So a
  program never goes on with a number that stands for others wrongly.
* Numbers of vectors do not exist in timing-only runs, so a symbol that scales a vector may become a `Real`, with which
  nothing but arithmetic is possible.
"""

from __future__ import annotations

from typing import Any, Literal, NoReturn, Protocol

Relation = Literal["<", "<=", "=="]
"""the relation of a difference to 0"""


class Unforeseen(Exception):
    """A program did something with a symbolic number that a template cannot represent; the text says what."""


class Path(Protocol):
    """One path through a program."""

    def decide(self, condition: Condition) -> bool:
        """Returns the truth value of a condition on this path."""
        ...


class Term(tuple[Any, ...]):
    """A term of a symbol: ``("register", number)``, or ``("%", symbol, divisor)`` or ``("//", symbol, divisor)``."""

    __slots__ = ()


class Sum(tuple[Any, ...]):
    """The content of a symbol: the constant, and pairs (term, factor) in a fixed order. It can be hashed."""

    __slots__ = ()

    @property
    def constant(self) -> int:
        return int(self[0])

    @property
    def terms(self) -> tuple[tuple[Term, int], ...]:
        return tuple(self[1])


def _sum(constant: int, terms: dict[Term, int]) -> Sum:
    return Sum((constant, tuple(sorted(((term, by) for term, by in terms.items() if by), key=repr))))


class Real:
    """A number of unknown value that only scales vectors."""

    __slots__ = ()

    def _same(self, other: Any) -> Any:
        return self if isinstance(other, int | float | Real | Symbol) else NotImplemented

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _same
    __pow__ = __rpow__ = _same

    def __neg__(self) -> Real:
        return self

    def _refused(self, *_: Any) -> NoReturn:
        raise Unforeseen("it decides by a quotient or a power of step numbers or versions")

    __bool__ = __eq__ = __lt__ = __le__ = __gt__ = __ge__ = __hash__ = _refused
    __int__ = __float__ = __index__ = _refused


class Condition:
    """A relation of a symbol to 0; `bool` asks the path."""

    __slots__ = ("content", "negated", "path", "relation")

    def __init__(self, path: Path, content: Sum, relation: Relation, *, negated: bool = False) -> None:
        self.path, self.content, self.relation, self.negated = path, content, relation, negated

    def __bool__(self) -> bool:
        return self.path.decide(self) != self.negated

    def __eq__(self, other: object) -> bool:
        return bool(self) == other

    def __hash__(self) -> int:
        raise Unforeseen("it uses a comparison of step numbers or versions as a key")

    def __add__(self, other: Any) -> Any:
        return int(bool(self)) + other

    __radd__ = __add__


class Symbol:
    """A symbolic integer; see the top of the module.

    Args:
        path: the path on which it occurs.
        content: its constant and terms.
    """

    __slots__ = ("content", "path")

    def __init__(self, path: Path, content: Sum) -> None:
        self.path, self.content = path, content

    @staticmethod
    def register(path: Path, number: int) -> Symbol:
        """Returns the symbol of a register."""
        return Symbol(path, _sum(0, {Term(("register", number)): 1}))

    def __repr__(self) -> str:
        return f"Symbol({shown(self.content)})"

    # --- arithmetic -----------------------------------------------------------------------------------------------

    def _of(self, constant: int, terms: dict[Term, int]) -> Any:
        content = _sum(constant, terms)
        return Symbol(self.path, content) if content.terms else content.constant

    def _plus(self, other: Any, factor: int) -> Any:
        """Returns this symbol plus `factor` times another number."""
        if (content := content_of(other)) is None:
            return Real() if isinstance(other, float | Real) else NotImplemented
        terms = dict(self.content.terms)
        for term, by in content.terms:
            terms[term] = terms.get(term, 0) + factor * by
        return self._of(self.content.constant + factor * content.constant, terms)

    def __add__(self, other: Any) -> Any:
        return self._plus(other, 1)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self._plus(other, -1)

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __neg__(self) -> Any:
        return self * -1

    def __pos__(self) -> Symbol:
        return self

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, Symbol):
            raise Unforeseen("it multiplies two step numbers or versions")
        if isinstance(other, bool | int):
            return self._of(self.content.constant * other, {term: by * other for term, by in self.content.terms})
        return Real() if isinstance(other, float | Real) else NotImplemented

    __rmul__ = __mul__

    def _divided(self, by: Any, sign: str) -> Any:
        if type(by) is not int or by <= 0:
            raise Unforeseen("it divides by a number that is not a positive constant")
        return self._of(0, {Term((sign, self.content, by)): 1})

    def __mod__(self, by: Any) -> Any:
        return self._divided(by, "%")

    def __floordiv__(self, by: Any) -> Any:
        return self._divided(by, "//")

    def _real(self, other: Any) -> Any:
        return Real() if isinstance(other, int | float | Real | Symbol) else NotImplemented

    __truediv__ = __rtruediv__ = __pow__ = __rpow__ = _real

    # --- comparison -----------------------------------------------------------------------------------------------

    def _compared(self, other: Any, relation: Relation, *, reverse: bool = False, negated: bool = False) -> Any:
        if content_of(other) is None:
            if isinstance(other, float | Real):
                raise Unforeseen("it compares a step number or version with a number that is not whole")
            return NotImplemented
        difference = self - other
        if reverse:
            difference = -difference
        if not isinstance(difference, Symbol):
            return holds(difference, relation) != negated
        return Condition(self.path, difference.content, relation, negated=negated)

    def __lt__(self, other: Any) -> Any:
        return self._compared(other, "<")

    def __le__(self, other: Any) -> Any:
        return self._compared(other, "<=")

    def __gt__(self, other: Any) -> Any:
        return self._compared(other, "<", reverse=True)

    def __ge__(self, other: Any) -> Any:
        return self._compared(other, "<=", reverse=True)

    def __eq__(self, other: object) -> Any:
        return self._compared(other, "==")

    def __ne__(self, other: object) -> Any:
        return self._compared(other, "==", negated=True)

    def __bool__(self) -> bool:
        return bool(self != 0)

    # --- what a template cannot represent -------------------------------------------------------------------------

    def __hash__(self) -> int:
        raise Unforeseen("it uses a rank, a step number or a version as a key, such as of a set or a dictionary")

    def __index__(self) -> int:
        raise Unforeseen("it uses a rank, a step number or a version as an index or a number of repetitions")

    __int__ = __index__

    def __float__(self) -> float:
        raise Unforeseen("it converts a rank, a step number or a version to a real number")

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"a symbolic integer has no attribute {name!r}")


def content_of(value: Any) -> Sum | None:
    """Returns the content of a symbol or of an integer; None for anything else."""
    if isinstance(value, Symbol):
        return value.content
    if isinstance(value, int):  # truth values too, as in Python's arithmetic
        return Sum((int(value), ()))
    return None


def holds(difference: int, relation: Relation) -> bool:
    """Returns whether a number has a relation to 0.

    >>> holds(-1, "<"), holds(0, "<"), holds(0, "<="), holds(3, "==")
    (True, False, True, False)
    """
    return difference < 0 if relation == "<" else difference <= 0 if relation == "<=" else difference == 0


def value_of(content: Sum, registers: Any) -> int:
    """Returns the value of a symbol's content, given the values of the registers.

    >>> class Undecided:
    ...     def decide(self, condition): raise NotImplementedError
    >>> step = Symbol.register(Undecided(), 0)
    >>> value_of(((step + 1) % 4 - 2 * step).content, [5])
    -8
    """
    total = content.constant
    for term, by in content.terms:
        if term[0] == "register":
            total += by * int(registers[term[1]])
        else:
            inner = value_of(term[1], registers)
            total += by * (inner % term[2] if term[0] == "%" else inner // term[2])
    return total


def shown(content: Sum) -> str:
    """Returns a symbol's content as text, for messages."""
    words = [f"{by} * {_shown_term(term)}" if by != 1 else _shown_term(term) for term, by in content.terms]
    return " + ".join([*words, *([str(content.constant)] if content.constant or not words else [])])


def _shown_term(term: Term) -> str:
    return f"r{term[1]}" if term[0] == "register" else f"({shown(term[1])}) {term[0]} {term[2]}"
