"""Mistakes in a scenario: collects all of them and raises one error.

Every mistake has a location (path), the value found there, and the fix, with the most similar known name for a wrong
name. Validators raise errors of two kinds: *expected* (the value found is added here) and *wrong* (a complete sentence
that names the value itself).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import InitErrorDetails, PydanticCustomError

from paceline.algorithms.core.errors import InputError
from paceline.scenarios.values.key_hints import key_hint
from paceline.scenarios.values.limits import MOST_REPORTED

Place = tuple[str | int, ...]
LONGEST = 60
"""largest number of characters of a value in a message"""


class ScenarioError(InputError):
    """All mistakes in a scenario, one per line."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake.

    >>> print(Problem(("cluster", "nodes", 0, "count"), "found 'two', expected a whole number of 1 or more"))
    cluster.nodes[0].count: found 'two', expected a whole number of 1 or more
    """

    place: Place
    text: str

    def __str__(self) -> str:
        return f"{path_of(self.place)}: {self.text}" if self.place else self.text


def path_of(place: Place) -> str:
    """Returns a place in the form of ``--set``: ``cluster.nodes[0].count``."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).removeprefix(".")


def raise_all(source: str, problems: Iterable[Problem], more: int = 0) -> NoReturn:
    """Raises a `ScenarioError` of these problems, without duplicates, each with the file's name in front.

    Args:
        source: the file's name.
        problems: the problems; the first `MOST_REPORTED` are listed.
        more: number of further problems.
    """
    lines = list(dict.fromkeys(f"{source}: {problem}" for problem in problems))
    if more := more + len(lines[MOST_REPORTED:]):
        lines = [*lines[:MOST_REPORTED], f"{source}: and {more} more mistakes"]
    raise ScenarioError("\n".join(lines))


def one_of(names: Sequence[str]) -> str:
    """
    >>> one_of(["a", "b", "c"])
    'a, b or c'
    """
    return " or ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)


def shown(value: object) -> str:
    """Returns a short form of a value for a message, and `nothing` for an empty YAML value."""
    if value is None:
        return "nothing"
    text = repr(value)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def expected(words: str) -> PydanticCustomError:
    """Returns an error for a validator: the value is not what was expected."""
    return PydanticCustomError("expected", "{words}", {"words": words})


def wrong(words: str) -> PydanticCustomError:
    """Returns an error for a validator, with a complete sentence about the value."""
    return PydanticCustomError("wrong", "{words}", {"words": words})


Fault = tuple[Place, PydanticCustomError, object]
"""a mistake as a validator reports it: a place below the one being validated, what is wrong, the value"""


def complain(faults: Sequence[Fault]) -> None:
    """Raises these mistakes, if there are any: the only way for a validator of pydantic to raise several at once."""
    if faults:
        lines = [InitErrorDetails(type=error, loc=place, input=value) for place, error, value in faults]
        raise ValidationError.from_exception_data("scenario", lines)


def refuse(place: Place, error: PydanticCustomError, value: object) -> NoReturn:
    """Raises one mistake.

    Args:
        place: below the value being validated.
        error: from `expected` or `wrong`.
        value: the value found.
    """
    raise ValidationError.from_exception_data("scenario", [InitErrorDetails(type=error, loc=place, input=value)])


def problems_of(
    error: ValidationError, root: type[BaseModel], elsewhere: Callable[[str], str | None] = lambda _: None
) -> list[Problem]:
    """Returns the first `MOST_REPORTED` mistakes that pydantic found, in our words.

    Args:
        error: from the validation of `root`.
        root: the section that was validated.
        elsewhere: returns the path of a key that was given in the wrong section, if any section has it.
    """
    return [_problem(detail, root, elsewhere) for detail in error.errors(include_url=False)[:MOST_REPORTED]]


def _problem(detail: Any, root: type[BaseModel], elsewhere: Callable[[str], str | None]) -> Problem:
    place, value = detail["loc"], detail["input"]
    match detail["type"]:
        case "wrong":
            return Problem(place, detail["msg"])
        case "shared":  # a hyper-parameter for all algorithms: report the place where it is written
            return Problem(("hyperparameters", *place[2:]), detail["msg"])
        case "expected":
            return Problem(place, f"found {shown(value)}, expected {detail['msg']}")
        case "extra_forbidden":
            known = _keys(_part_at(place[:-1], root))
            hint = key_hint(place[-1], known)
            if not hint and (path := elsewhere(str(place[-1]))) is not None:
                hint = f" (did you mean {path}?)"
            return Problem(place, f"unknown key{hint}; there are {', '.join(known)}")
        case "missing":
            about = _part_at(place[:-1], root).model_fields[str(place[-1])].description
            return Problem(place, f"missing; expected {about}")
        case "model_type" | "model_attributes_type":
            known = _keys(_part_at(place, root))
            return Problem(place, f"found {shown(value)}, expected a mapping with the keys {', '.join(known)}")
        case "dict_type":
            return Problem(place, f"found {shown(value)}, expected a mapping")
        case "invalid_key" | "string_type":
            return Problem(place, f"found {shown(value)}, expected text")
        case _:
            return Problem(place, f"found {shown(value)}; {detail['msg']}")


def _keys(part: type[BaseModel]) -> list[str]:
    return [key_of(name, field) for name, field in part.model_fields.items()]


def key_of(name: str, field: FieldInfo) -> str:
    """Returns the key of a field in a file, which differs from the name where that would be a keyword of Python."""
    return name if field.validation_alias is None else str(field.validation_alias)


def _part_at(place: Place, root: type[BaseModel]) -> type[BaseModel]:
    """Returns the section of the schema at a place."""
    part = root
    for step in place:
        if isinstance(step, str) and step in part.model_fields:
            part = next(_parts_in(part.model_fields[step].annotation), part)
    return part


def _parts_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in getattr(annotation, "__args__", ()):
        yield from _parts_in(inner)
