"""Sections of a scenario: mappings in a file, and classes with the same keys in code.

A section that code makes keeps what it was given. If that is wrong, nothing is raised yet: `Scenario(...)` and `load`
report the mistakes of all sections together, as for a file. Who reads a key of a wrong section before gets them too. A
number for a quantity is in SI units (seconds, bytes, bytes per second, watts) or, for a price, in US dollars per hour.
Text has its unit, as in a file. A mapping is the text of a file: its quantities need their unit. An argument that is
None is left out, so that the default of its key holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, dataclass_transform, get_args

import pydantic
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from paceline.algorithms.core.method import Method
from paceline.algorithms.registry import reference
from paceline.scenarios.values.mistakes import key_of, problems_of, raise_all
from paceline.scenarios.values.units import Kind

Values = Mapping[str, Any]
"""a section as a mapping, as in a file"""

if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass

    Held = TypeVar("Held")
    Accepted = TypeVar("Accepted")

    class Given(Generic[Held, Accepted]):
        """The type of a key whose argument may have other types than the attribute: `Given[attribute, argument]`.

        pydantic sees the type of the attribute, whose validators accept the others.
        """

        def __get__(self, section: object, owner: object = None) -> Held: ...
        def __set__(self, section: object, value: Accepted) -> None: ...

    Default = Given[Held, Held | None]
    Quantity = Given[Held, Held | str | None]
    Nested = Given[Held, Held | Values | None]

    def Field(*, description: str, default: Any = ..., **rules: Any) -> Any:  # noqa: N802 - that of pydantic
        """Declares a key. The default has the type of the attribute, which pydantic's own types do not allow here."""

    @dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(Field,))
    class SectionClass(ModelMetaclass):
        """Gives the constructors of sections their arguments, for type checkers and editors."""

else:
    Field = pydantic.Field
    SectionClass = type(BaseModel)

    class Given:
        def __class_getitem__(cls, types):
            return types[0]

    class Default:
        """A key with a default, which None leaves out."""

        def __class_getitem__(cls, held):
            return held

    class Quantity(Default):
        """A number, or text with its unit."""

    class Nested(Default):
        """A section, or a mapping."""


class FileMapping(BaseModel):
    """A mapping in a file: frozen, and without other keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    @model_validator(mode="before")
    @classmethod
    def _empty(cls, value: object) -> object:
        return {} if value is None else value  # in YAML, a section whose keys are all left out is null


def summarised(schema: dict[str, Any]) -> None:
    """Reduces a section's description in the JSON Schema to the first line of its docstring."""
    if "description" in schema:
        schema["description"] = schema["description"].partition("\n")[0]


class Section(FileMapping, metaclass=SectionClass):
    """A section of a scenario, which code can make too.

    >>> from paceline import Nodes
    >>> Nodes(device="v100-sxm2", count=2)
    Nodes(device='v100-sxm2', count=2)
    >>> Nodes(device="v100-sxm2", count=0).count
    Traceback (most recent call last):
    paceline.scenarios.values.mistakes.ScenarioError: Nodes: count: found 0, expected a whole number of 1 or more
    """

    model_config = ConfigDict(json_schema_extra=summarised)

    def __init__(self, **given: Any) -> None:
        required = {name for name, field in type(self).model_fields.items() if field.is_required()}
        given = {name: value for name, value in given.items() if value is not None or name in required}
        try:
            super().__init__(**_document(type(self), given))
        except ValidationError as error:
            held = {"mistakes": problems_of(error, type(self)), "given": given}  # wrong sections are equal by these
            object.__setattr__(self, "__pydantic_private__", held)
            object.__setattr__(self, "__pydantic_extra__", None)
            object.__setattr__(self, "__pydantic_fields_set__", set(given))
        vars(self)["_given"] = given  # beside the keys: pydantic neither writes nor compares it

    # Sections of a file are filled by pydantic itself, which then does not call this constructor.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name in type(self).model_fields:
                self._raise_mistakes()
            return super().__getattr__(name)

    def _raise_mistakes(self) -> None:
        if self.__pydantic_private__ is not None:
            raise_all(type(self).__name__, self.__pydantic_private__["mistakes"])

    def __repr_args__(self) -> Any:
        given = vars(self).get("_given")
        return super().__repr_args__() if given is None else given.items()

    def __str__(self) -> str:
        return repr(self)

    def document(self) -> dict[str, Any]:
        """Returns the section as plain data for a file: with the keys that code gave it, else with all of them.

        >>> from paceline import Device
        >>> Device(name="fast", overhead="4 ms", per_sample=0.0005).document()
        {'name': 'fast', 'overhead': '4 ms', 'per_sample': '0.0005 s'}
        """
        given = vars(self).get("_given")
        return self.model_dump(mode="json") if given is None else _document(type(self), given)

    def model_dump(self, **how: Any) -> dict[str, Any]:
        """Returns all keys with their values, as pydantic does; raises `ScenarioError` if the section is wrong."""
        self._raise_mistakes()
        return super().model_dump(**how)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Returns a copy with other values, as pydantic does; raises `ScenarioError` if the section is wrong."""
        self._raise_mistakes()
        copied = super().model_copy(update=update, deep=deep)
        if update and "_given" in vars(self):
            vars(copied)["_given"] = {**vars(self)["_given"], **update}
        return copied


def _document(section: type[Section], given: Mapping[str, Any]) -> dict[str, Any]:
    document = {}
    for name, value in given.items():
        field = section.model_fields.get(name)
        if field is not None and isinstance(value, int | float) and not isinstance(value, bool):
            kind = _kind_in(field.annotation, field.metadata)
            value = value if kind is None else kind.text(value)
        document[name if field is None else key_of(name, field)] = plain_data(value)
    return document


def _kind_in(annotation: Any, metadata: Any) -> Kind | None:
    """Returns the kind of a quantity; None for other types."""
    if (kind := next((entry for entry in metadata if isinstance(entry, Kind)), None)) is not None:
        return kind
    inside = (_kind_in(inner, getattr(inner, "__metadata__", ())) for inner in get_args(annotation))
    return next((kind for kind in inside if kind is not None), None)


def plain_data(value: Any) -> Any:
    """Returns a value of a scenario as plain data: sections as mappings, classes of methods as names.

    Args:
        value: data of a scenario; methods with their hyper-parameters stay as they are.

    >>> from paceline.algorithms.methods.baseline import SyncSgd
    >>> plain_data({"algorithms": (SyncSgd, "agd"), "data_dir": Path("/data")})
    {'algorithms': ['sync-sgd', 'agd'], 'data_dir': '/data'}
    """
    if isinstance(value, Section):
        return value.document()
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, type) and issubclass(value, Method):
        return reference(value)
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {key: plain_data(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain_data(part) for part in value]
    return value
