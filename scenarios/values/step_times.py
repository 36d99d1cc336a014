"""How step times vary, as a mapping of a scenario: a distribution and the parts of its variance, or a trace."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import PlainSerializer, PlainValidator, ValidationError, WithJsonSchema
from pydantic_core import PydanticCustomError

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.naming import near_miss
from paceline.scenarios.values import fields
from paceline.scenarios.values.key_hints import key_hint
from paceline.scenarios.values.mistakes import Fault, complain, expected, refuse, wrong
from paceline.scenarios.values.units import PERIOD
from paceline.topologies.faults.jitter import NO_JITTER, Jitter
from paceline.topologies.faults.step_profiles import LEVELS, PROFILES, profile_named
from paceline.topologies.faults.step_times import NO_VARIATION, StepTimes, StepTrace
from paceline.topologies.importing import step_series

KINDS = ("distribution", "profile", "trace", "file")
SHARES = ("node", "persistent", "correlated")
PERIODS = ("correlation_time", "node_correlation_time")
PARTS = (*SHARES, *PERIODS, "workers")
FULL = 1 + 1e-9
"""the largest sum of shares, with room for the rounding of decimals"""
WORDS = (
    "a mapping with a distribution of scipy.stats and its parameters, such as {distribution: lognorm, sigma: 0.3}, "
    "with a profile, such as {profile: shared-cluster}, with a file that `paceline calibrate --steps` wrote, such as "
    "{file: step-time.yaml}, or with measured steps, such as {trace: steps.csv}"
)


def parse_step_times(value: object) -> StepTimes:
    """Parses how steps vary: null, or a mapping.

    >>> lognormal = {"distribution": "lognorm", "sigma": 0.3}
    >>> made = parse_step_times({**lognormal, "persistent": "40 %", "correlation_time": "30 s"})
    >>> made.persistent, made.correlated, made.correlation_time_s  # a correlation time alone takes the rest
    (0.4, 0.6, 30.0)
    """
    if value is None or isinstance(value, StepTimes):
        return value or NO_VARIATION
    if isinstance(value, Jitter):
        return StepTimes(law=value)
    kinds = [key for key in KINDS if key in value] if isinstance(value, Mapping) else []
    if len(kinds) > 1:
        raise wrong(f"found {' and '.join(kinds)}; expected one of them")
    if not isinstance(value, Mapping) or not kinds:
        hint = key_hint("law", ["distribution"]) if isinstance(value, Mapping) and "law" in value else ""
        raise expected(WORDS + hint)
    given = {str(key): part for key, part in value.items()}
    if kinds == ["trace"]:
        return StepTimes(trace=_trace(given))
    if kinds == ["profile"]:
        return _profile(given)
    if kinds == ["file"]:
        return _fitted(given)
    faults: list[Fault] = []
    parts = {key: part for key in PARTS if (part := _part(key, given, faults)) is not None}
    faults += _together(given, parts)
    earlier = len(faults)
    law = _law({key: part for key, part in given.items() if key not in PARTS}, faults)
    if law == NO_JITTER and len(faults) == earlier and any(parts.get(key) for key in SHARES):
        faults.append(
            (("distribution",), wrong("found none with shares of its variance; expected a distribution"), None)
        )
    complain(faults)
    return StepTimes(
        law=law,
        node=parts.get("node", 0.0),
        persistent=parts.get("persistent", 0.0),
        correlated=parts.get("correlated", 0.0),
        correlation_time_s=parts.get("correlation_time", math.inf),
        node_correlation_time_s=parts.get("node_correlation_time", math.inf),
        workers=parts.get("workers", ()),
    )


def _part(key: str, given: Mapping[str, Any], faults: list[Fault]) -> Any:
    """Returns a part of the variance, None if it is not given or wrong."""
    if (value := given.get(key)) is None:
        return None
    try:
        if key in PERIODS:
            return PERIOD.parse(value)
        if key == "workers":
            return fields.factors_of(value)
        if (share := fields.share_of(value)) is None:
            raise expected("a share from 0 to 1 of the variance, such as '40 %' or 0.4")
        return share
    except PydanticCustomError as error:
        faults.append(((key,), error, value))
        return None


def _together(given: Mapping[str, Any], parts: dict[str, Any]) -> list[Fault]:
    """Returns the mistakes that parts make together; a correlation time without a share gets what is left."""
    faults: list[Fault] = []
    rest = 1.0 - sum(parts.get(share, 0.0) for share in SHARES)
    if rest < 1 - FULL:
        text = " + ".join(f"{key} {100 * parts[key]:g} %" for key in SHARES if key in parts)
        faults.append(((), wrong(f"found {text}; expected shares that add up to 100 % at most"), None))
    if "correlation_time" in parts and "correlated" not in given:
        parts["correlated"] = max(0.0, rest)
    if parts.get("correlated") and "correlation_time" not in given:
        words = "missing; expected how long a slow phase of a worker lasts on average, such as '30 s'"
        faults.append((("correlation_time",), wrong(words), None))
    if "node_correlation_time" in parts and not given.get("node"):
        faults.append(
            (("node_correlation_time",), wrong("found without node; expected the share of the nodes, too"), None)
        )
    if "workers" in parts and parts.get("persistent"):
        words = "found beside workers, whose factors are their persistent differences; expected one of the two"
        faults.append((("persistent",), wrong(words), given["persistent"]))
    return faults


def _law(given: Mapping[str, Any], faults: list[Fault]) -> Jitter:
    """Returns the distribution, and adds what is wrong with it."""
    try:
        return fields.parse_jitter(dict(given))
    except ValidationError as error:
        faults += [
            (detail["loc"], wrong(detail["msg"] + near_miss(str(detail["loc"][0]), PARTS, "")), detail["input"])
            for detail in error.errors(include_url=False)
        ]
    except PydanticCustomError as error:
        faults.append(((), error, given))
    return NO_JITTER


def _profile(given: Mapping[str, Any]) -> StepTimes:
    """Returns a profile; keys beside it replace those of the profile."""
    name, level = given["profile"], given.get("level", "typical")
    if name not in PROFILES:
        refuse(("profile",), expected(f"one of {', '.join(PROFILES)}{near_miss(name, list(PROFILES))}"), name)
    if level not in LEVELS:
        refuse(("level",), expected("low, typical or high"), level)
    profile = profile_named(str(name), level)
    own = {key: value for key, value in given.items() if key not in ("profile", "level")}
    if not own:
        return profile
    if {"level", "sigma"} <= given.keys():
        refuse(("sigma",), wrong("found beside level, which decides sigma; expected one of the two"), own["sigma"])
    times = parse_step_times({**(write_step_times(replace(profile, profile=())) or {}), **own})
    return replace(times, profile=(*profile.profile, *((key, _hashable(value)) for key, value in own.items())))


def _hashable(value: Any) -> object:
    return tuple(value) if isinstance(value, list) else value


def _path(given: Mapping[str, Any], key: str, words: str) -> str:
    """Returns the path of a file; a job may be named beside it, and nothing else."""
    for unknown in given:
        if unknown not in (key, "job"):
            refuse((unknown,), wrong(f"found beside {key}, which has only a job"), given[unknown])
    path = given[key]
    if not isinstance(path, str) or not path.strip():
        refuse((key,), expected(f"the path of a file: {words}"), path)
    return str(path)


def _fitted(given: Mapping[str, Any]) -> StepTimes:
    path = _path(given, "file", "one that `paceline calibrate --steps` wrote")
    try:
        data = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        text = str(error).splitlines()[0]
        refuse(("file",), wrong(f"{path} cannot be read: {text}"), path)
    sections = data.get("step_times") if isinstance(data, dict) else None
    if not isinstance(sections, dict) or not sections:
        refuse(
            ("file",),
            wrong(f"found no step_times in {path}; expected one that `paceline calibrate --steps` wrote"),
            path,
        )
    jobs = {str(name): section for name, section in sections.items()}
    job = str(given["job"]) if "job" in given else next(iter(jobs)) if len(jobs) == 1 else None
    if job not in jobs:
        refuse(("job",), expected(f"one of {', '.join(jobs)}"), job)
    if isinstance(section := jobs[job], Mapping) and "file" in section:
        refuse(("file",), wrong(f"found a file in {path}; expected a distribution and its parts"), path)
    return parse_step_times(section)


def _trace(given: Mapping[str, Any]) -> StepTrace:
    path = _path(given, "trace", step_series.EXPECTED)
    try:
        return _read(Path(path), given.get("job"), Path(path).stat().st_mtime_ns if Path(path).is_file() else 0)
    except InputError as error:
        refuse(("trace",), wrong(str(error)), path)
        raise


@lru_cache(maxsize=8)
def _read(path: Path, job: object, _: int) -> StepTrace:
    series = step_series.read(path)
    chosen = [each for each in series if job is None or each.name == str(job)]
    if len(chosen) != 1:
        names = ", ".join(each.name for each in series)
        raise InputError(f"{path}: found the jobs {names}; expected one of them as job")
    return StepTrace.of(str(path), chosen[0].seconds, job="" if len(series) == 1 else chosen[0].name)


def write_step_times(times: StepTimes) -> dict[str, Any] | None:
    """Returns a variation of steps as a mapping that `parse_step_times` reads back."""
    if times == NO_VARIATION:
        return None
    if times.trace is not None:
        return {"trace": times.trace.file, **({"job": times.trace.job} if times.trace.job else {})}
    if times.profile:
        return {key: list(value) if isinstance(value, tuple) else value for key, value in times.profile}
    law = fields.write_jitter(times.law) or {"distribution": NO_JITTER.distribution}
    shares = {key: share for key in SHARES if (share := getattr(times, key))}
    periods = {key: PERIOD.text(held) for key in PERIODS if math.isfinite(held := getattr(times, f"{key}_s"))}
    workers = {"workers": list(times.workers)} if times.workers else {}
    return {**law, **shares, **periods, **workers}


StepTimesField = Annotated[
    StepTimes,
    PlainValidator(parse_step_times),
    PlainSerializer(write_step_times, return_type=dict[str, Any] | None),
    WithJsonSchema(
        {
            "type": ["object", "null"],
            "description": "how step times vary: a distribution of scipy.stats scaled to mean 1 and the parts of its "
            "variance, a profile, or a trace",
            "properties": {
                "distribution": {"type": "string"},
                "profile": {"enum": list(PROFILES)},
                "level": {"enum": list(LEVELS)},
                "trace": {"type": "string"},
                "file": {"type": "string"},
                "job": {"type": "string"},
                "node": {"type": ["number", "string"]},
                "persistent": {"type": ["number", "string"]},
                "correlated": {"type": ["number", "string"]},
                "correlation_time": {"type": "string"},
                "node_correlation_time": {"type": "string"},
                "workers": {"type": "array", "items": {"type": "number"}},
                "factors": {"type": "array", "items": {"type": "number"}},
            },
            "additionalProperties": {"type": "number"},
            "examples": [{"distribution": "lognorm", "sigma": 0.3}],
        }
    ),
]
