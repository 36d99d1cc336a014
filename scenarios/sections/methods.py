"""Algorithms in a scenario: a method's name, or a mapping with its name, a label and hyper-parameters.

The name is that of a built-in method or one of its aliases, that of a method of an installed package, or
``module:Class`` for a custom one.

The label of an entry is its name in everything that is shown or stored. If the scenario gives none, it is the name of
the method as written there, followed by the values that differ between the entries of the method. A dump has the labels
that its entries would not have without: given ones, and those that follow from an alias or from the hyper-parameters
for all algorithms.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import AfterValidator, PlainSerializer, PlainValidator, ValidationInfo
from pydantic_core import PydanticCustomError

from paceline.algorithms import METHODS, find, reference
from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.guarantees import missing_figures
from paceline.algorithms.core.method import Method
from paceline.algorithms.own import FORM, offered, offers, package_of
from paceline.algorithms.synonyms import ALIASES, meaning, names_for
from paceline.scenarios.values.hyperparameters import parsed, properties, types_of, unknown, unwritable
from paceline.scenarios.values.limits import MOST_ALGORITHMS
from paceline.scenarios.values.mistakes import Fault, complain, expected, refuse, shown, wrong


def find_method(name: str) -> type[Method]:
    """Like `find`; also raises `InputError` if a scenario cannot represent the hyper-parameters."""
    method = find(name)
    if said := [] if name in METHODS else unwritable(method):
        raise InputError(f"method {name!r}: {'; '.join(said)}")
    return method


LONGEST_LABEL = 60
"""largest number of characters of a label"""


@dataclass(frozen=True, slots=True)
class AlgorithmEntry:
    """An algorithm of a scenario.

    Args:
        method: with its hyper-parameters.
        label: the given label.
        alias: the alias by which the method is named.
        plain: the method as its name alone would give it in this scenario; None: with its defaults.
    """

    method: Method
    label: str | None = None
    alias: str | None = None
    plain: Method | None = None


class Algorithms(tuple[Method, ...]):  # noqa: SLOT001 - a tuple of variable length cannot have slots
    """The methods of a scenario, in order, and the label of each.

    >>> from paceline.algorithms import find
    >>> sync, agd = find("sync-sgd"), find("agd")
    >>> Algorithms.of([sync(), agd(delay=1), agd(delay=4, learning_rate=0.2)]).labels
    ('sync-sgd', 'agd', 'agd lr=0.2 delay=4')
    >>> Algorithms.of([AlgorithmEntry(sync(), "DDP"), AlgorithmEntry(sync())]).labels
    ('DDP', 'sync-sgd')
    """

    entries: tuple[AlgorithmEntry, ...]

    def __new__(cls, entries: Iterable[AlgorithmEntry] = ()) -> Self:
        """Creates the methods of these entries."""
        listed = tuple(entries)
        made = super().__new__(cls, (entry.method for entry in listed))
        made.entries = listed
        return made

    def __getnewargs__(self) -> tuple[tuple[AlgorithmEntry, ...]]:
        """Returns the arguments of the constructor, for copies."""
        return (self.entries,)

    @classmethod
    def of(cls, algorithms: Iterable[AlgorithmEntry | Method]) -> Self:
        """Returns these algorithms; a method alone has no label of its own."""
        if isinstance(algorithms, cls):
            return algorithms
        return cls(entry if isinstance(entry, AlgorithmEntry) else AlgorithmEntry(entry) for entry in algorithms)

    @property
    def labels(self) -> tuple[str, ...]:
        """The label of each entry: the given one, or an automatic one."""
        alike: dict[str, list[Method]] = {}
        for entry in self.entries:
            if entry.label is None:
                alike.setdefault(entry.alias or entry.method.name, []).append(entry.method)
        labels = []
        for entry in self.entries:
            name = entry.alias or entry.method.name
            several = len(alike.get(name, ())) > 1
            plain = entry.plain or type(entry.method)()
            suffix = _differences(entry.method, alike[name], plain) if several and entry.label is None else ""
            labels.append(entry.label or f"{name} {suffix}".rstrip())
        return tuple(labels)

    def only(self, index: int) -> Algorithms:
        """Returns one of the algorithms alone, with its given label."""
        return Algorithms((self.entries[index],))


SHORT_NAMES = {"learning_rate": "lr", "weight_decay": "wd", "period": "H"}
"""the names of hyper-parameters in automatic labels, where they are not the hyper-parameters' own"""


def _differences(method: Method, alike: Sequence[Method], plain: Method) -> str:
    """Returns the values of a method that differ between methods of one name and from the plain one; may be empty."""
    own, usual = _flat(dataclasses.asdict(method)), _flat(dataclasses.asdict(plain))
    others = [_flat(dataclasses.asdict(other)) for other in alike]
    missing = object()
    said = [
        key
        for key, value in own.items()
        if usual.get(key, missing) != value and any(other.get(key, missing) != value for other in others)
    ]
    kinds = {key.rpartition(".")[0] for key in said if key.endswith(".kind")}  # the kind implies the rest of the group
    said = [key for key in said if key.endswith(".kind") or key.rpartition(".")[0] not in kinds or _varies(key, others)]
    return " ".join(f"{_short(key)}={_value(own[key])}" for key in said)


def _varies(key: str, values: Sequence[Mapping[str, Any]]) -> bool:
    """Whether methods that have this part of a group differ in it."""
    given = [part[key] for part in values if key in part]
    return any(value != given[0] for value in given)


def _short(key: str) -> str:
    return SHORT_NAMES.get(key) or key.removesuffix(".kind")


def _value(value: Any) -> str:
    """Returns a value as YAML writes it."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _flat(values: dict[str, Any]) -> dict[str, Any]:
    """Returns hyper-parameters by their paths.

    >>> _flat({"learning_rate": 0.1, "lars": {"trust_coefficient": 0.001}})
    {'learning_rate': 0.1, 'lars.trust_coefficient': 0.001}
    """
    flat: dict[str, Any] = {}
    for key, value in values.items():
        inner = _flat(value) if isinstance(value, dict) else None
        flat |= {key: value} if inner is None else {f"{key}.{part}": inner_value for part, inner_value in inner.items()}
    return flat


def parse_entry(value: object, info: ValidationInfo) -> AlgorithmEntry:
    """Parses an algorithm: its name, or a mapping with its name, a label and hyper-parameters."""
    if isinstance(value, AlgorithmEntry | Method):
        entry = value if isinstance(value, AlgorithmEntry) else AlgorithmEntry(value)
        _check_placed(entry.method, dataclasses.asdict(entry.method), info)
        return entry
    given = {"name": value} if isinstance(value, str) else value
    if not isinstance(given, dict):
        raise expected("the name of a method, or a mapping with its name and hyper-parameters")
    if "name" not in given:
        refuse(("name",), wrong(f"missing; expected one of {', '.join(METHODS)}, or your own as {FORM}"), given)
    place = () if isinstance(value, str) else ("name",)
    name = str(given["name"])
    try:
        method = find_method(name)
    except InputError as error:
        refuse(place, wrong(str(error)), given["name"])
    label, faults = _label(given)
    alias = name if name in ALIASES and method.name == ALIASES[name].method else None
    presets = dict(meaning(name).presets) if alias else {}
    own = {key: part for key, part in given.items() if key not in ("name", "label")}
    made = _with(method, {**presets, **own}, info, faults)
    plain = made if not own else _with(method, presets, info, [], placed=False)
    return AlgorithmEntry(made, label, alias, plain)


def parse_method(value: object, info: ValidationInfo) -> Method:
    """Parses an algorithm, see `parse_entry`; returns its method."""
    return parse_entry(value, info).method


def _label(given: dict[Any, Any]) -> tuple[str | None, list[Fault]]:
    """Returns the label of an entry, and the mistakes in it."""
    label = given.get("label")
    if label is None:
        return None, []
    if not isinstance(label, str) or not label.strip() or not label.isprintable() or len(label) > LONGEST_LABEL:
        return None, [(("label",), expected(f"text of 1 to {LONGEST_LABEL} characters in one line"), label)]
    return label.strip(), []


def _with(
    method: type[Method], given: dict[str, Any], info: ValidationInfo, faults: list[Fault], *, placed: bool = True
) -> Method:
    """Returns the method with these hyper-parameters, which take precedence over those for all algorithms."""
    known = types_of(method)
    shared = {name: value for name, value in info.data.get("hyperparameters", {}).items() if name in known}
    faults = [*faults, *unknown(given, known, method.name, ())]
    right: dict[str, Any] = {}
    for name, value in {**shared, **given}.items():
        if name in known:
            right[name], wrongs = parsed(known[name], value, (name,))
            faults += wrongs if name in given else map(_of_all, wrongs)
    complain(faults)
    made = _made(method, right)
    if placed:
        _check_placed(made, right, info)
    return made


def _check_placed(method: Method, values: dict[str, Any], info: ValidationInfo) -> None:
    """Complains if the workers of the cluster cannot run a method; `values` are the given hyper-parameters."""
    if "cluster" in info.data:
        nodes = info.data["cluster"].placement
        figures = missing_figures(method.guarantees, method.bounds(sum(map(len, nodes))))
        unbounded = [f"bounds: {guarantee.slug}: {words}" for guarantee, words in figures.items()]
        complain([_blame(text, values) for text in [*method.problems(nodes), *unbounded]])


def _made(method: type[Method], values: dict[str, Any]) -> Method:
    try:
        return method(**values)
    except (TypeError, ValueError) as error:  # raised by the method's own checks
        raise wrong(f"{method.name} cannot be made of these hyper-parameters: {error}") from error


def _of_all(fault: Fault) -> Fault:
    """Assigns a mistake in the hyper-parameters for all algorithms to the place where they are written."""
    place, error, value = fault
    words = f"found {shown(value)}, expected {error.message()}" if error.type == "expected" else error.message()
    return place, PydanticCustomError("shared", "{words}", {"words": words}), value


def _blame(text: str, values: dict[str, Any]) -> Fault:
    """Converts a method's own message, ``name: text``, to a mistake at that place."""
    name, _, rest = text.partition(": ")
    return tuple(name.split(".")), wrong(rest), values.get(name)


def write_method(method: Method, label: str | None = None) -> dict[str, Any]:
    """Returns a method as a mapping for a scenario, with all hyper-parameters."""
    labelled = {} if label is None else {"label": label}
    return {"name": reference(type(method)), **labelled, **dataclasses.asdict(method)}


def write_algorithms(algorithms: Sequence[Method]) -> list[dict[str, Any]]:
    """Returns the algorithms as mappings for a scenario that has the same labels."""
    listed = Algorithms.of(algorithms)
    again = Algorithms(AlgorithmEntry(entry.method, entry.label) for entry in listed.entries)
    shown: Sequence[str | None] = listed.labels
    if listed.labels == again.labels:  # so the automatic ones need not be written
        shown = [entry.label for entry in listed.entries]
    return [write_method(method, label) for method, label in zip(listed, shown, strict=True)]


def known_methods() -> Iterator[tuple[str, type[Method]]]:
    """Yields the named methods: the built-in ones, then the usable ones of installed packages."""
    yield from METHODS.items()
    for name in offers():
        if name not in METHODS:
            with contextlib.suppress(InputError):
                yield name, find_method(name)


def catalogue() -> Iterator[dict[str, Any]]:
    """Yields the methods with their hyper-parameters and defaults, and the package of each."""
    known = offers()
    for name, method in known_methods():
        yield {
            "name": name,
            "description": (inspect.getdoc(method) or "").partition("\n")[0],
            "common_names": names_for(name),
            "staleness": method.staleness_kind.value,
            "guarantees": sorted(guarantee.slug for guarantee in method.guarantees),
            "server": method.has_server,
            "hyperparameters": dataclasses.asdict(method()),
            "source": method.source,
            "from": "built in" if name in METHODS else package_of(known[name][0]),
        }


def unusable() -> Iterator[str]:
    """Yields the mistakes of methods of installed packages."""
    for name, entries in offers().items():
        try:
            offered(entries, METHODS)
            find_method(name)
        except InputError as error:
            yield f"left out: {error}"


class _MethodSchema:
    """Builds the JSON Schema on request, so that installed packages are not searched before."""

    def __get_pydantic_json_schema__(self, *_: Any) -> dict[str, Any]:
        known = dict(known_methods())
        of_ones_own = {"type": "string", "pattern": ":", "description": f"a custom method: {FORM}"}
        mapping = {"type": "object", "properties": {"name": of_ones_own}, "required": ["name"]}
        names = {"enum": [*known, *(name for name in ALIASES if name not in known)]}
        return {"oneOf": [names, *map(_schema_of, known.values()), of_ones_own, mapping]}


LABEL = {
    "type": ["string", "null"],
    "default": None,
    "maxLength": LONGEST_LABEL,
    "description": "its name in tables, charts and records; default: the method's, and what differs between entries",
}


def _schema_of(method: type[Method]) -> dict[str, Any]:
    name = {"const": method.name} if not (others := names_for(method.name)) else {"enum": [method.name, *others]}
    return {
        "type": "object",
        "description": (method.__doc__ or "").partition("\n")[0],
        "properties": {"name": name, "label": LABEL, **properties(method)},
        "required": ["name"],
        "additionalProperties": False,
    }


Algorithm = Annotated[
    Method,
    PlainValidator(parse_method),
    PlainSerializer(write_method, return_type=dict[str, Any]),
    _MethodSchema(),
]

ListedAlgorithm = Annotated[
    Method, PlainValidator(parse_entry), PlainSerializer(write_method, return_type=dict[str, Any]), _MethodSchema()
]
"""an algorithm before `Algorithms.of` makes the list"""
AlgorithmList = Annotated[
    tuple[ListedAlgorithm, ...],
    AfterValidator(Algorithms.of),
    PlainSerializer(write_algorithms, return_type=list[dict[str, Any]]),
]

ALL_HYPERPARAMETERS = sorted({name for method in METHODS.values() for name in types_of(method)})
"""the names of every method's hyper-parameters"""


def unused_hyperparameters(data: Any) -> list[str]:
    """Returns the keys under `hyperparameters` without effect: no algorithm has them, or all give their own."""
    if not isinstance(data, dict):
        return []
    shared, entries = data.get("hyperparameters"), data.get("algorithms")
    if not isinstance(shared, dict) or not isinstance(entries, list) or len(entries) > MOST_ALGORITHMS:
        return []
    taking: set[str] = set()
    for entry in entries:
        given = entry if isinstance(entry, dict) else {"name": entry}
        name = str(given.get("name"))
        with contextlib.suppress(InputError):  # reported when the algorithms are parsed
            taking |= set(types_of(find_method(name))) - set(given) - set(meaning(name).presets)
    return [str(name) for name in shared if name not in taking]
