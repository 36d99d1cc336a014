"""Writes logs of nccl-tests and OSU micro-benchmarks, and traces of torch.profiler, in their formats, for tests."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

COLUMNS = "# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}  {:>7}  {:>6}  {:>6}  {:>6}  {:>7}  {:>6}  {:>6}  {:>6} "


def bus_factor(program: str, ranks: int) -> float:
    share = (ranks - 1) / ranks
    return {"all_reduce": 2 * share, "all_gather": share, "reduce_scatter": share}.get(program, 1.0)


def in_width(value: float, width: int) -> str:
    """A number in so many characters, with as many decimals as fit: getFloatStr of nccl-tests (src/util.cu)."""
    for decimals in (2, 1, 0):
        if len(text := f"{value:{width}.{decimals}f}") <= width:
            return text
    return f"{value:{width}.{1 if width >= 7 else 0}e}"


def nccl_results(program: str, ranks: int, size: int, us: float, wrong: str) -> str:
    algbw = size / us / 1e3
    busbw = algbw * bus_factor(program, ranks)
    return f"  {in_width(us, 7):>7}  {in_width(algbw, 6):>6}  {in_width(busbw, 6):>6}  {wrong:>6}"


def nccl_row(program: str, ranks: int, size: int, out_us: float, in_us: float) -> str:
    redop = "sum" if program in {"all_reduce", "reduce_scatter", "reduce", "sendrecv"} else "none"
    root = 0 if program in {"broadcast", "reduce"} else -1
    keys = f"{size:12}  {size // 4:12}  {'float':>8}  {redop:>6}  {root:>6}"
    parts = [
        nccl_results(program, ranks, size, us, wrong)
        for us, wrong in ((out_us, "0"), (in_us, "N/A" if program == "sendrecv" else "0"))
    ]
    return keys + "".join(parts)


def nccl_log(
    program: str, nodes: Sequence[int], rows: Sequence[tuple[int, float, float]], *, named: bool = True
) -> str:
    """The output of a program of nccl-tests; rows have a size and two times in us; nodes have ranks."""
    ranks = sum(nodes)
    lines = []
    if named:
        lines += ["# nccl-tests version 2.17.4 nccl-headers=22807 nccl-library=22807"]
        lines += [f"# Collective test starting: {program}_perf"]
    lines += [
        f"# nThread 1 nGpus 1 minBytes {rows[0][0]} maxBytes {rows[-1][0]} step: 2(factor) warmup iters: 1 iters: 20",
        "#",
    ]
    lines += ["# Using devices"]
    rank = 0
    for host, count in enumerate(nodes):
        for device in range(count):
            place = f"Rank {rank:2} Group  0 Pid {4000 + rank:6} on {f'node{host}':>10} device {device:2}"
            lines.append(f"#  {place} [0000:{7 + device:02x}:00] NVIDIA A100-SXM4-80GB")
            rank += 1
    lines += ["#", "#" + " " * 62 + "out-of-place                       in-place          "]
    results = ["time", "algbw", "busbw", "#wrong"]
    lines.append(COLUMNS.format("size", "count", "type", "redop", "root", *results, *results))
    units = ["(us)", "(GB/s)", "(GB/s)", ""]
    lines.append(COLUMNS.format("(B)", "(elements)", "", "", "", *units, *units))
    lines += [nccl_row(program, ranks, *row) for row in rows]
    lines += ["# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 1.0 ", "#"]
    return "\n".join(lines) + "\n"


def osu_log(title: str, rows: Sequence[tuple[int, float]], *, full: bool = False, version: str = "7.4") -> str:
    """The output of an OSU micro-benchmark: size, and microseconds or MB/s."""
    heading = "Bandwidth (MB/s)" if "Bandwidth" in title else "Avg Latency(us)"
    extra = f"{'Min Latency(us)':>20}{'Max Latency(us)':>20}{'Iterations':>12}" if full else ""
    lines = ["", f"# OSU MPI {title} Test v{version}", "# Datatype: MPI_CHAR.", f"# Size    {heading:>20}{extra}"]
    for size, value in rows:
        ranks = f"{value * 0.9:20.2f}{value * 1.1:20.2f}{1000:12}" if full else ""
        lines.append(f"{size:<10}{value:20.2f}{ranks}")
    return "\n".join(lines) + "\n"


def event(
    name: str, category: str, start: float, duration: float, lane: tuple[int, int], **args: Any
) -> dict[str, Any]:
    return {
        "ph": "X", "cat": category, "name": name, "pid": lane[0], "tid": lane[1], "ts": start, "dur": duration,
        "args": args,
    }  # fmt: skip


HOST = (100, 100)
GLOO = (100, 101)
PHASES = ("loading", "forward", "backward", "communication", "optimizer")


def step_events(number: int, start: float, phases: dict[str, float], gap: float = 1.0) -> list[dict[str, Any]]:
    """The events of a step on a CPU, one phase after the other with gaps in between; all in microseconds."""
    at, events = start + gap, []
    for name, duration in ((name, phases[name]) for name in PHASES if name in phases):
        for label, category, lane in {
            "loading": [("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "user_annotation", HOST)],
            "forward": [("aten::linear", "cpu_op", HOST)],
            "backward": [
                ("autograd::engine::evaluate_function: AddmmBackward0", "cpu_op", HOST), ("aten::mm", "cpu_op", HOST),
            ],
            "communication": [("gloo:all_reduce", "user_annotation", GLOO)],
            "optimizer": [("Optimizer.step#SGD.step", "user_annotation", HOST), ("aten::add_", "cpu_op", HOST)],
        }[name]:  # fmt: skip
            events.append(event(label, category, at, duration, lane))
        at += duration + (gap if name != "forward" else 0.0)
    return [event(f"ProfilerStep#{number}", "user_annotation", start, at - start, HOST), *events]


def trace_text(events: Iterable[dict[str, Any]], **more: Any) -> str:
    return json.dumps({"schemaVersion": 1, "deviceProperties": [], "traceEvents": list(events), **more})
