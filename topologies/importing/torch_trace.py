"""Traces of ``torch.profiler`` (``export_chrome_trace``): the events of a file, checked.

The format is the Trace Event Format of Chrome as Kineto writes it: FOUND (pytorch/kineto, output_json.cpp). Times are
in microseconds, whatever ``displayTimeUnit`` says, which is for the display. Only complete events (``ph`` X) are read;
flow, counter and metadata events are ignored. A compressed file is recognised by its content, not by its name. Times of
events are seconds since the first event, as microseconds since the machine's start have too many digits.
"""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.algorithms.core.errors import InputError
from paceline.topologies.importing.assembly import refuse

LARGEST = 1024 * 1024 * 1024
"""the maximum size of a trace, uncompressed, in bytes: INFERENCE, several million events"""

EXPECTED = "the JSON of torch.profiler's export_chrome_trace, plain or gzip"
GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """An event with a duration."""

    name: str
    category: str
    """cpu_op, user_annotation, kernel, cuda_runtime, …, in lower case"""
    lane: tuple[str, str]
    """process and thread, or device and stream"""
    start: float
    end: float
    args: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TorchTrace:
    """The events of a trace in order of their starts, and what the file tells of the run."""

    events: tuple[TraceEvent, ...]
    devices: Mapping[int, str]
    """names of the GPUs, by number"""
    ranks: int | None
    backend: str | None
    """of torch.distributed"""


def read(path: Path) -> TorchTrace:
    """Returns the trace in a file.

    Args:
        path: a file of `export_chrome_trace`, with or without gzip.

    Raises:
        InputError: the file cannot be read, is not such a trace, or has wrong events, all of which are listed.
    """
    where = str(path)
    content = _json(_content(path), where)
    if not isinstance(content, dict) or not isinstance(content.get("traceEvents"), list):
        raise InputError(f"{where}: has no list traceEvents; expected {EXPECTED}")
    problems: list[str] = []
    events = [_event(number, entry, problems) for number, entry in enumerate(content["traceEvents"])]
    refuse(where, problems)
    kept = [event for event in events if event is not None]
    first = min((event.start for event in kept), default=0.0)
    moved = (
        TraceEvent(
            event.name, event.category, event.lane, (event.start - first) / 1e6, (event.end - first) / 1e6, event.args
        )
        for event in kept
    )
    run = content.get("distributedInfo")
    run = run if isinstance(run, dict) else {}
    ranks, backend = run.get("world_size"), run.get("backend")
    return TorchTrace(
        tuple(sorted(moved, key=lambda event: (event.start, -event.end))),
        _devices(content.get("deviceProperties")),
        ranks if isinstance(ranks, int) and not isinstance(ranks, bool) and ranks > 0 else None,
        backend if isinstance(backend, str) else None,
    )


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            packed = file.read(2) == GZIP
        with gzip.open(path) if packed else path.open("rb") as stream:
            content = stream.read(LARGEST + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise InputError(f"{path}: is damaged or cut off; expected a complete gzip file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    if len(content) > LARGEST:
        raise InputError(f"{path}: found more than {LARGEST} bytes; profile fewer steps")
    return content


def _json(content: bytes, where: str) -> object:
    try:
        return json.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise InputError(f"{where}: is not text; expected {EXPECTED}") from None
    except json.JSONDecodeError as error:
        at = f"line {error.lineno}, column {error.colno}: not valid JSON: {error.msg}"
        hint = "" if content.rstrip().endswith(b"}") else "; the file seems to be cut off"
        raise InputError(f"{where}: {at}{hint}; expected {EXPECTED}") from None
    except RecursionError:
        raise InputError(f"{where}: has too many brackets inside each other; expected {EXPECTED}") from None
    except ValueError:  # a number with more digits than Python converts
        raise InputError(f"{where}: has a number with too many digits; expected {EXPECTED}") from None


def _event(number: int, entry: object, problems: list[str]) -> TraceEvent | None:
    """Returns the event in microseconds; None for other kinds and for a wrong one, which is added to the problems."""
    if not isinstance(entry, dict):
        problems.append(f"traceEvents[{number}]: found {str(entry)[:40]!r}, expected an object")
        return None
    if entry.get("ph") != "X":
        return None
    name, category, args = entry.get("name"), entry.get("cat", ""), entry.get("args", {})
    at = f"traceEvents[{number}] ({name!r:.60})"
    if not isinstance(name, str) or not isinstance(category, str) or not isinstance(args, dict):
        problems.append(f"{at}: expected text as name and cat, and an object as args")
        return None
    start, duration = _number(entry.get("ts")), _number(entry.get("dur"))
    if start is None:
        problems.append(f"{at}: found ts {entry.get('ts')!r:.40}, expected microseconds")
    elif duration is None or duration < 0:
        problems.append(f"{at}: found dur {entry.get('dur')!r:.40}, expected 0 or more microseconds")
    else:
        lane = str(entry.get("pid")), str(entry.get("tid"))
        return TraceEvent(name, category.lower(), lane, start, start + duration, args)
    return None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < 1e300 and math.isfinite(value) else None


def _devices(properties: object) -> dict[int, str]:
    """Returns the names of the GPUs; a list that is not as expected is as good as none."""
    entries = [entry for entry in properties if isinstance(entry, dict)] if isinstance(properties, list) else []
    return {
        entry["id"]: entry["name"]
        for entry in entries
        if isinstance(entry.get("id"), int) and isinstance(entry.get("name"), str)
    }
