"""Stores results as `papers.json`, beside the page that is written from it.

A run of some claims replaces their results and keeps the others, so the page always shows all papers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.files import write_whole
from paceline.papers.core.registry import PAPERS, claims_named
from paceline.records.document import to_json

FILE = "papers.json"


def merged(folder: Path, results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the stored results of a folder with some of them replaced, in the order of the page.

    Args:
        folder: The folder with `papers.json`, if there is one.
        results: The new results, as `Result.answer` returns them.

    Raises:
        InputError: If the stored file is no document of results.
    """
    path = folder / FILE
    found: dict[str, dict[str, Any]] = {}
    if path.exists():
        try:
            found = {one["name"]: one for one in json.loads(path.read_text(encoding="utf-8"))["results"]}
        except (ValueError, KeyError, TypeError):
            raise InputError(f"{path}: found no results; expected the JSON document of `paceline reproduce`") from None
    found.update({one["name"]: one for one in results})
    known = [claim.name for paper in PAPERS for claim in claims_named([paper])]
    return [found[name] for name in known if name in found]


def write(folder: Path, results: Sequence[dict[str, Any]]) -> Path:
    """Writes `papers.json`, the page and its figures.

    Args:
        folder: The folder; created if it does not exist.
        results: All results, as `merged` returns them.

    Returns:
        The path of the page.
    """
    from paceline.papers.core.figures import save_figures
    from paceline.papers.core.page import page

    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / FILE, to_json({"results": list(results)}) + "\n")
    pictures = save_figures(results, folder)
    path = folder / "papers.md"
    write_whole(path, page(results, pictures))
    return path
