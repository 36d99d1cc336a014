"""XML as a tree whose elements have line numbers.

A document type may be declared and is not fetched; entities are refused, since a few lines of them can expand to
gigabytes or include other files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from xml.parsers import expat

from paceline.algorithms.core.errors import InputError


@dataclass(frozen=True, slots=True)
class Element:
    """An element, with the line on which it begins."""

    tag: str
    attributes: Mapping[str, str]
    line: int
    children: list[Element] = field(default_factory=list)

    @property
    def local(self) -> str:
        """The tag without the prefix of its name space."""
        return self.tag.rpartition(":")[2]

    def walk(self) -> Iterator[Element]:
        """Yields this element and all below it, in the document's order."""
        yield self
        for child in self.children:
            yield from child.walk()


def parse(text: str, where: str) -> Element:
    """Returns the root of a document; raises `InputError` with the line if it is not valid.

    >>> parse("<a><b c='1'/></a>", "file").children[0].attributes
    {'c': '1'}
    >>> parse("<a><b></a>", "file")
    Traceback (most recent call last):
    paceline.algorithms.core.errors.InputError: file: line 1: not valid XML: mismatched tag
    """
    parser = expat.ParserCreate()
    root = Element("", {}, 0)
    stack = [root]

    def begin(tag: str, attributes: dict[str, str]) -> None:
        if len(stack) > 200:
            raise InputError(f"{where}: line {parser.CurrentLineNumber}: more than 200 elements inside each other")
        stack[-1].children.append(Element(tag, attributes, parser.CurrentLineNumber))
        stack.append(stack[-1].children[-1])

    def end(_: str) -> None:
        stack.pop()

    def entity(*_: object) -> None:
        raise InputError(f"{where}: line {parser.CurrentLineNumber}: declares an entity, which is refused")

    parser.StartElementHandler = begin
    parser.EndElementHandler = end
    parser.EntityDeclHandler = entity
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        raise InputError(f"{where}: line {error.lineno}: not valid XML: {expat.ErrorString(error.code)}") from None
    return root.children[0]
