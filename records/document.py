"""JSON documents: output of commands, run.json, manifests. Imports neither numpy nor pandas, so it loads fast."""

from __future__ import annotations

import json
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
