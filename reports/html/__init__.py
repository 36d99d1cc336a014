"""Reports as one HTML file that a browser opens without a network: of runs, comparisons, sweeps, plans and checks.

Read `paceline.reports.blocks` first (what a report consists of), then `document`.
"""

from typing import TYPE_CHECKING

from paceline.algorithms.core.lazy_imports import deferred

if TYPE_CHECKING:
    from paceline.reports.html.document import html_of, render, write_report
else:
    __getattr__, __dir__ = deferred(__name__, dict.fromkeys(("html_of", "render", "write_report"), "document"))

__all__ = ["html_of", "render", "write_report"]
