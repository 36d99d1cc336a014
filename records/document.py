"""JSON documents: answers, run.json, manifests. Without numpy and pandas, so that each command can import it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def to_json(value: Any, encoding: str = "utf-8") -> str:
    """A JSON document that `encoding` can hold; raises `ValueError` rather than write NaN, which JSON does not have.

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
    """A NumPy number or a path as JSON writes it."""
    if isinstance(value, Path):
        return str(value)
    import numpy as np

    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r} cannot be written as JSON")
