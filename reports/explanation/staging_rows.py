"""The rows of an explanation for copies between hosts and devices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from paceline.records.figures import significant
from paceline.records.trace import COPY_TO_DEVICE, Span
from paceline.reports.comparison.words import size
from paceline.reports.explanation.attribution import Cause
from paceline.reports.explanation.formulas import SAME, Route, Routes, joined, seconds
from paceline.reports.explanation.recording import Recorded, windows
from paceline.reports.explanation.row import Row
from paceline.topologies.catalogue.libraries import LIBRARIES
from paceline.topologies.catalogue.staging import GPUDIRECT

NAMES = {
    "batch": "copy of the batch to the device",
    "vector": "copies of gradients and weights, device ↔ host",
}


def staging_rows(
    run: Recorded, routes: Routes, per_step: Mapping[Cause, float], hidden: Mapping[Cause, float]
) -> Iterator[Row]:
    """Yields the rows of the copies of batches, and of those that the library needs.

    Args:
        run: the run.
        routes: its routes.
        per_step: exposed seconds of a step by cause.
        hidden: seconds of a step that gradients hide, by cause.
    """
    evaluated = windows(run)
    steps = sum(window.steps for window in evaluated.values())
    for what, name in NAMES.items():
        cause = Cause("staging", (what,))
        copies = [
            span
            for span in run.trace.spans
            if span.activity == "copy" and span.key == what and evaluated[span.rank].holds(span.start_s)
        ]
        if not copies or (cause not in per_step and cause not in hidden):
            continue
        yield Row(
            group="staging",
            name=name,
            seconds=per_step.get(cause, 0.0),
            hidden_s=hidden.get(cause, 0.0),
            formula=f"{_formula(run, routes, copies, what)}, × {significant(len(copies) / steps, 2)} per step",
            provenance=_provenance(run, routes, copies, what),
        )


def _formula(run: Recorded, routes: Routes, copies: list[Span], what: str) -> str:
    """The time of the largest copies alone, and their mean time."""
    nbytes = max(span.bytes for span in copies)
    alike = [span for span in copies if span.bytes == nbytes]
    route = _route(routes, alike[0])
    alone_s, words = route.message_s(nbytes), f"{size(nbytes)} / {size(route.bytes_per_s)}/s"
    words += f" + {seconds(route.latency_s)}" if route.latency_s else ""
    staging = run.plan.cluster.staging
    if what == "batch" and staging is not None:
        words = f"{significant(nbytes / staging.sample_bytes, 4)} × {size(staging.sample_bytes)} = {words}"
        if staging.batches == "pageable":
            node = run.plan.cluster.nodes[run.plan.cluster.node_of(alike[0].rank)]
            alone_s += nbytes / node.memory.copy_bytes_per_s
            words += f" + {size(nbytes)} / {size(node.memory.copy_bytes_per_s)}/s by a core"
    mean_s = sum(span.end_s - span.start_s for span in alike) / len(alike)
    if abs(alone_s - mean_s) <= SAME * mean_s:
        return f"{words} = {seconds(alone_s)}"
    return f"simulated with contention: {seconds(mean_s)} on average; alone {words} = {seconds(alone_s)}"


def _route(routes: Routes, span: Span) -> Route:
    found = routes.of_copy(span.rank, to_device=span.lane == COPY_TO_DEVICE)
    assert found is not None, "a rank that copies has a host"
    return found


def _provenance(run: Recorded, routes: Routes, copies: list[Span], what: str) -> str:
    links = joined(_route(routes, span).provenance for span in copies)
    staging, library = run.plan.cluster.staging, LIBRARIES[run.plan.scenario.cluster.network.library]
    if what == "batch" and staging is not None:
        return f"{links}; {staging.provenance}"
    if staging is not None and library.gpudirect and staging.gpudirect == "auto":
        return f"{links}; no {GPUDIRECT}"
    return f"{links}; {library.name} copies whole vectors"
