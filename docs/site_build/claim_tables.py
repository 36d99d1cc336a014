"""Tables of claims in written pages: made from the stored results where a page has the mark of a paper.

A mark is a line `<!-- claims of NAME -->`: with a paper, for its headlines, or the name of claims or its beginning.
On a code host the line is invisible, so a link to the page with the results stands beside it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "results" / "papers.json"
MARK = re.compile(r"^<!-- claims of (?P<name>[\w.-]+) -->$", re.MULTILINE)


@cache
def stored() -> tuple[Mapping[str, Any], ...]:
    """Returns the stored results of `paceline reproduce`."""
    return tuple(json.loads(RESULTS.read_text(encoding="utf-8"))["results"])


def chosen(name: str, results: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Returns the headlines of a paper, or the claims with a name or its beginning.

    Args:
        name: what a mark names.
        results: results as in papers.json.

    Raises:
        ValueError: if there are none.

    >>> rows = [{"name": f"dbs-{name}", "paper": "dbs", "kind": kind} for name, kind in
    ...         (("loss", "headline"), ("rate-1", "supporting"), ("rate-2", "supporting"))]
    >>> [row["name"] for row in chosen("dbs", rows)], [row["name"] for row in chosen("dbs-rate", rows)]
    (['dbs-loss'], ['dbs-rate-1', 'dbs-rate-2'])
    """
    own = [row for row in results if row["paper"] == name and row["kind"] == "headline"]
    own = own or [row for row in results if row["name"] == name or row["name"].startswith(f"{name}-")]
    if not own:
        raise ValueError(f"a page has the mark of the claims of {name!r}, of which papers.json has none")
    return own


def filled(markdown: str, results: Sequence[Mapping[str, Any]] | None = None) -> str:
    """Returns the text of a page with a table in the place of each mark.

    Args:
        markdown: the text.
        results: results as in papers.json; default: the stored ones.
    """
    from paceline.papers.page import NOT_COMPUTED, claims_table
    from paceline.papers.reproduce import PAPERS

    every = stored() if results is None else results

    def table(found: re.Match[str]) -> str:
        name = found["name"]
        if name in PAPERS and all(row["paper"] != name for row in every):
            return NOT_COMPUTED.format(name)
        return "\n".join(claims_table(chosen(name, every)))

    return MARK.sub(table, markdown)
