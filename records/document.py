"""JSON documents: output of commands, run.json, manifests. Imports neither numpy nor pandas, so it loads fast."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


def to_json(value: Any, encoding: str = "utf-8") -> str:
    """Returns a JSON document that can be encoded in `encoding`.

    Args:
        value: the data; numbers of NumPy and paths are allowed.
        encoding: the encoding of the output; characters that it does not have are escaped.

    Raises:
        ValueError: the data contain NaN or infinity, which JSON does not have.

    >>> to_json("4 × P100"), to_json("4 × P100", "ascii")
    ('"4 × P100"', '"4 \\\\u00d7 P100"')
    """
    text = json.dumps(value, indent=2, allow_nan=False, default=plain, ensure_ascii=False)
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return json.dumps(value, indent=2, default=plain)
    return text


def plain(value: Any) -> Any:
    """Converts a NumPy number or a path for JSON."""
    if isinstance(value, Path):
        return str(value)
    import numpy as np

    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r} cannot be written as JSON")


def flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the path and the value of every figure of a summary.

    Args:
        value: a figure, or a mapping or list of figures.
        path: its path.

    >>> list(flat({"step_s": {"mean": 0.5}, "by_rank": [[0, 1.5]]}))
    [('step_s.mean', 0.5), ('by_rank[0][0]', 0), ('by_rank[0][1]', 1.5)]
    """
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from flat(part, f"{path}.{key}" if path else str(key))
    elif isinstance(value, (list, tuple)):
        for number, part in enumerate(value):
            yield from flat(part, f"{path}[{number}]")
    else:
        yield path, value
