"""The kinds of values in a scenario: validation, messages and serialisation of each.

Every kind is an annotated type for the sections in `schema`. pydantic's own validation converts too much for files that
are written by hand (``"2"`` and ``true`` would both be numbers), so each kind here defines what it accepts.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, PlainSerializer, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.naming import near_miss
from paceline.records.trace import Schedule, Unit
from paceline.scenarios.values.key_hints import key_hint
from paceline.scenarios.values.limits import LARGEST, LONGEST_NAME, MOST_PREFETCHED, MOST_STRIPES, MOST_THREADS
from paceline.scenarios.values.mistakes import complain, expected, one_of, refuse, wrong
from paceline.scenarios.values.units import PERIOD, POWER, PRICE, RATE, SIZE, TIME, Kind
from paceline.topologies import NO_JITTER, Jitter
from paceline.topologies.graphs.graph_registry import NETWORKS, NODES, SYSTEMS
from paceline.topologies.graphs.links import Medium
from paceline.topologies.graphs.routing import RULES, Rule
from paceline.workloads.models.transformer_config import SizeError, canonical, is_size
from paceline.workloads.reading import Strategy


def _quantity(kind: Kind) -> tuple[Any, Any, Any, Kind]:
    about = f"{kind.right}, as text: {kind.example!r}"
    schema = {"type": "string", "description": about, "examples": [kind.example], "unit": kind.symbol}
    return PlainValidator(kind.parse), PlainSerializer(kind.text, return_type=str), WithJsonSchema(schema), kind


def _number(
    words: str, schema: dict[str, Any], right: Callable[[float], bool], *, whole: bool = False
) -> tuple[Any, Any]:
    kinds = int if whole else (int, float)

    def check(value: object) -> Any:
        if isinstance(value, bool) or not isinstance(value, kinds) or not right(value):
            raise expected(words)
        if abs(value) > LARGEST:
            raise expected(f"{words}, at most {LARGEST:.0e}")
        return value if whole else float(value)

    return PlainValidator(check), WithJsonSchema({"type": "integer" if whole else "number", **schema})


def _whole(minimum: int, maximum: int | None = None) -> tuple[Any, Any]:
    if maximum is None:
        words, schema = f"a whole number of {minimum} or more", {"minimum": minimum}
        return _number(words, schema, lambda value: value >= minimum, whole=True)
    words, schema = f"a whole number from {minimum} to {maximum}", {"minimum": minimum, "maximum": maximum}
    return _number(words, schema, lambda value: minimum <= value <= maximum, whole=True)


def choices(*names: str) -> tuple[Any, Any]:
    def check(value: object) -> Any:
        if value not in names:
            raise expected(one_of(names) + (place_of_system(value) or near_miss(value, names)))
        return value

    return PlainValidator(check), WithJsonSchema({"enum": list(names)})


def place_of_system(value: object) -> str:
    """Returns the end of a message about the name of a whole system in the place of a part; "" for other values."""
    named = isinstance(value, str) and value in SYSTEMS
    return f"; {value} is a system with nodes and network, for cluster.system" if named else ""


def _text(words: str, pattern: str) -> tuple[Any, Any]:
    def check(value: object) -> str:
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            raise expected(words)
        return value

    return PlainValidator(check), WithJsonSchema({"type": "string", "pattern": f"^{pattern}$"})


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise expected("true or false")
    return value


def _switched(value: object) -> object:
    """Converts true and false to on and off, since YAML 1.1 reads on and off as true and false."""
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else value


def _model(value: object) -> object:
    """Converts the size of a transformer, a mapping or a file, to its text."""
    if not isinstance(value, dict) and not (isinstance(value, str) and is_size(value)):
        return value
    try:
        return canonical(value)
    except SizeError as error:
        inside = isinstance(value, dict)
        complain([((key,) if key and inside else (), wrong(f"{key}: {words}" if key and not inside else words), value)
                  for key, words in error.faults])  # fmt: skip
        raise


ModelName = Annotated[str, BeforeValidator(_model, json_schema_input_type=str | dict[str, Any])]
SWITCH = BeforeValidator(_switched)
"""for keys whose values are on and off, among others"""
Flag = Annotated[bool, PlainValidator(_flag), WithJsonSchema({"type": "boolean"})]
Time = Annotated[float, *_quantity(TIME)]
Period = Annotated[float, *_quantity(PERIOD)]
Rate = Annotated[float, *_quantity(RATE)]
Size = Annotated[float, *_quantity(SIZE)]
Price = Annotated[float, *_quantity(PRICE)]
Power = Annotated[float, *_quantity(POWER)]
Count = Annotated[int, *_whole(1)]
Index = Annotated[int, *_whole(0)]
Threads = Annotated[int, *_whole(1, MOST_THREADS)]
Prefetched = Annotated[int, *_whole(0, MOST_PREFETCHED)]
Stripes = Annotated[int, *_whole(1, MOST_STRIPES)]
Positive = Annotated[float, *_number("a number above 0", {"exclusiveMinimum": 0}, lambda value: value > 0)]
Factor = Annotated[float, *_number("a number of 1 or more", {"minimum": 1}, lambda value: value >= 1)]
Share = Annotated[float, *_number("a number from 0 to 1", {"minimum": 0, "maximum": 1}, lambda value: 0 <= value <= 1)]
Correlation = Annotated[
    float, *_number("a number from -1 to 1", {"minimum": -1, "maximum": 1}, lambda value: -1 <= value <= 1)
]
Accuracy = Annotated[
    float,
    *_number("a number above 0 and at most 1", {"exclusiveMinimum": 0, "maximum": 1}, lambda value: 0 < value <= 1),
]
Name = Annotated[
    str,
    *_text(
        f"a name of at most {LONGEST_NAME} letters, digits, '.', '-' and '_'",
        rf"[A-Za-z0-9_][A-Za-z0-9_.-]{{0,{LONGEST_NAME - 1}}}",
    ),
]
Interface = Annotated[str, *_text("the name of a network interface, such as eth0", r"[^\s/]{1,15}")]
Pace = Annotated[Literal["device", "none"], *choices("device", "none")]
OnNonfinite = Annotated[Literal["raise", "warn"], *choices("raise", "warn")]
RealNetwork = Annotated[Literal["local", "emulated"], *choices("local", "emulated")]
Topology = Annotated[str, *choices(*NETWORKS)]
System = Annotated[str, *choices(*SYSTEMS)]
NodeName = Annotated[str, *choices(*NODES)]
Routing = Annotated[Rule, *choices(*RULES)]
MediumName = Annotated[Medium, *choices(*get_args(Medium))]
AnyArithmetic = Literal["fp32", "tf32", "fp16", "bf16", "fp64", "amp"]
ARITHMETIC = get_args(AnyArithmetic)
Arithmetic = Annotated[AnyArithmetic, *choices(*ARITHMETIC)]
StrategyName = Annotated[Strategy, *choices(*get_args(Strategy))]
RealDevice = Annotated[Literal["cpu", "cuda", "auto"], *choices("cpu", "cuda", "auto")]
RealStart = Annotated[Literal["auto", "fork", "spawn"], *choices("auto", "fork", "spawn")]
Pin = Annotated[Literal["auto", "none", "cores", "numa"], *choices("auto", "none", "cores", "numa")]
LIBRARIES = ("plain", "nccl", "mpi", "gloo")
LibraryName = Annotated[Literal["plain", "nccl", "mpi", "gloo"], *choices(*LIBRARIES)]


def _version(value: object) -> object:
    """Validates a version given as text, because YAML reads 2.10 as the number 2.1."""
    if value is None or (isinstance(value, str) and re.fullmatch(r"\d+\.\d+", value)):
        return value
    raise expected("a version as text in quotes, such as '2.18'")


LibraryVersion = Annotated[str | None, BeforeValidator(_version, json_schema_input_type=str | None)]
ReceiveOrder = Annotated[Literal["auto", "in-order", "shared"], *choices("auto", "in-order", "shared")]
AnyPattern = Literal[
    "auto",
    "ring",
    "ring-channels",
    "recursive-doubling",
    "halving-doubling",
    "binomial-tree",
    "double-tree",
    "two-level",
    "shared-memory",
]
COLLECTIVES = get_args(AnyPattern)
Collective = Annotated[AnyPattern, *choices(*COLLECTIVES)]

EVERY = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(epochs?|updates?|samples?)\s*", re.ASCII)


@dataclasses.dataclass(frozen=True, slots=True)
class Every:
    """An interval: how often something happens.

    >>> Every.parse("4 updates"), Every.parse("500 ms").text
    (Every(count=4.0, unit='updates'), '0.5 s')
    """

    count: float
    unit: Literal["epochs", "updates", "samples", "seconds"]

    @staticmethod
    def parse(value: object) -> Every:
        """Parses text such as ``1 epoch``, ``4 updates``, ``500 samples`` or ``2 s``."""
        words = "how often, with its unit: '1 epoch', '4 updates', '500 samples' or '2 s'"
        if isinstance(value, Every):
            return value
        if not isinstance(value, str):
            raise expected(words)
        if match := EVERY.fullmatch(value):
            count, unit = float(match[1]), match[2].removesuffix("s") + "s"
            if math.isfinite(count) and ((count >= 1 and count.is_integer()) or (count > 0 and unit == "epochs")):
                return Every(count, unit)  # type: ignore[arg-type]
            raise expected(words)
        try:
            return Every(PERIOD.parse(value), "seconds")
        except PydanticCustomError:
            raise expected(words) from None

    @property
    def text(self) -> str:
        """The interval as text for `parse`."""
        if self.unit == "seconds":
            return PERIOD.text(self.count)
        return f"{int(self.count) if self.count.is_integer() else self.count!r} {self.unit}"

    def schedule(self, num_samples: int) -> Schedule:
        """Returns a new schedule for epochs of `num_samples` samples."""
        if self.unit == "epochs":
            return Schedule(max(1.0, round(self.count * num_samples)), "samples")
        unit: Unit = self.unit
        return Schedule(self.count, unit)


Interval = Annotated[
    Every,
    PlainValidator(Every.parse),
    PlainSerializer(lambda every: every.text, return_type=str),
    WithJsonSchema(
        {"type": "string", "description": "such as '1 epoch', '4 updates', '500 samples' or '2 s'", "unit": "interval"}
    ),
]


def share_of(value: object) -> float | None:
    """Returns a share from 0 to 1, given as a number or in per cent; None for anything else.

    >>> share_of("5 %"), share_of(0.25), share_of(2)
    (0.05, 0.25, None)
    """
    number: Any = value
    if isinstance(value, str) and value.strip().endswith("%"):
        try:
            number = float(value.strip()[:-1]) / 100
        except ValueError:
            return None
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number <= 1:
        return None
    return float(number)


def factors_of(value: object) -> tuple[float, ...]:
    """Parses a list of factors."""
    items: Sequence[Any] = value if isinstance(value, list | tuple) else ()
    right = [not isinstance(item, bool) and isinstance(item, int | float) and 0 < item < math.inf for item in items]
    if not items or not all(right):
        raise expected("a list of numbers above 0, such as [0.9, 1.0, 1.3]")
    return tuple(map(float, items))


def parse_jitter(value: object) -> Jitter:
    """Parses a jitter: null, or a mapping with a distribution and its parameters, or with measured factors."""
    if value is None or isinstance(value, Jitter):
        return value or NO_JITTER
    if not isinstance(value, dict) or not isinstance(value.get("distribution"), str):
        hint = key_hint("law", ["distribution"]) if isinstance(value, dict) and "law" in value else ""
        raise expected(
            "a mapping with a distribution of scipy.stats and its parameters, such as {distribution: lognorm, "
            f"sigma: 0.3}}{hint}"
        )
    parameters = {str(name): part for name, part in value.items() if name != "distribution"}
    try:
        if value["distribution"] == MEASURED:
            return _measured(parameters)
        return Jitter.of(value["distribution"], **parameters)
    except InputError as error:
        name, _, text = str(error).partition(": ")
        refuse((name,), wrong(text), value)


MEASURED = "measured"
"""the distribution of equally likely factors, in place of one of scipy.stats"""


def _measured(parameters: dict[str, Any]) -> Jitter:
    for name in parameters:
        if name != "factors":
            hint = near_miss(name, ["factors"], "it has factors")
            raise InputError(f"{name}: {MEASURED} has no such parameter{hint}")
    try:
        return Jitter.measured(factors_of(parameters.get("factors")))
    except PydanticCustomError as error:
        refuse(("factors",), error, parameters.get("factors"))


def write_jitter(jitter: Jitter) -> dict[str, Any] | None:
    """Returns a jitter as a mapping for a scenario."""
    if jitter == NO_JITTER:
        return None
    factors = {"factors": list(jitter.values)} if jitter.values else {}
    return {"distribution": jitter.distribution, **dict(jitter.parameters), **factors}


StepTimeLaw = Annotated[
    Jitter,
    PlainValidator(parse_jitter),
    PlainSerializer(write_jitter, return_type=dict[str, Any] | None),
    WithJsonSchema(
        {
            "type": ["object", "null"],
            "description": "a continuous distribution of scipy.stats and its parameters, scaled to mean 1",
            "properties": {
                "distribution": {"type": "string"},
                "factors": {"type": "array", "items": {"type": "number"}},
            },
            "required": ["distribution"],
            "additionalProperties": {"type": "number"},
            "examples": [{"distribution": "lognorm", "sigma": 0.3}],
        }
    ),
]
