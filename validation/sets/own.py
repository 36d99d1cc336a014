"""Measurements of the user, in a table with few columns; see `paceline validate --help`.

Rows with the same device, model, precision, framework, method and library are a group, unless the column `group` says
more. A line that cannot be read is left out with what was found and what would be right.
"""

from __future__ import annotations

import re

from paceline.algorithms.core.errors import InputError
from paceline.validation.machines import Unread, number, whole
from paceline.validation.sets import OWN, Line, of_steps
from paceline.validation.steps import Row
from paceline.workloads.models.layer_tables import find_model

ALIKE = ("group", "device", "model", "precision", "framework", "method", "library")
PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "fp64", "amp")


def row_of(line: Line) -> Row:
    """Returns the row of a line. Raises `Unread` for one with mistakes, with all of them."""
    faults: list[str] = []

    def count(column: str) -> int:
        try:
            value = whole(line, column)
            if value is None:
                raise Unread(f"{column}: missing; expected a count")
            return value
        except Unread as error:
            faults.append(str(error))
            return 1

    devices, nodes, batch = count("devices"), count("nodes"), count("batch_per_device")
    precision = (line.get("precision", "") or "fp32").strip().lower()
    if precision not in PRECISIONS:
        faults.append(f"precision: found {precision!r}, expected {', '.join(PRECISIONS)}")
    model = line.get("model", "").strip()
    try:
        find_model(model)
    except InputError as error:
        faults.append(f"model: {error}")
    if not line.get("device", "").strip():
        faults.append("device: missing; expected the name of a chip, such as a100")
    placement = _placement(line.get("placement", ""), devices, faults)
    rate = bool(line.get("samples_per_s", "").strip())
    step_s = 1.0
    try:
        step_s = devices * batch / number(line, "samples_per_s") if rate else number(line, "step_ms") / 1e3
    except Unread as error:
        faults.append(str(error))
    if faults:
        raise Unread("; ".join(faults))
    words = {"device": line["device"], "topology": line.get("inside", ""), "interconnect": line.get("network", "")}
    words |= {key: line.get(key, "") for key in ("library", "framework", "method", "notes")}
    same = " ".join(filter(None, (line.get(key, "").strip() for key in ALIKE)))
    return Row(
        group=same,
        name=f"line {line['line']}",
        family=line["device"].strip(),
        words=words,
        devices=devices,
        nodes=len(placement) or nodes,
        placement=placement,
        model=model,
        batch=batch,
        precision=precision,
        step_s=step_s,
        rate=rate,
    )


def _placement(text: str, devices: int, faults: list[str]) -> tuple[int, ...]:
    """Returns the devices of each node, from a text such as 1+2+4."""
    if not text.strip():
        return ()
    if not re.fullmatch(r"\s*\d+(\s*\+\s*\d+)*\s*", text):
        faults.append(f"placement: found {text!r}, expected devices of each node, such as 1+2+4")
        return ()
    placement = tuple(int(part) for part in text.split("+"))
    if sum(placement) != devices or 0 in placement:
        faults.append(f"placement: found {text!r} for {devices} devices, expected counts that add up to them")
    return placement


SET = of_steps(
    name=OWN,
    title="rows of your own",
    file="",
    columns=frozenset({"device", "devices", "nodes", "model", "batch_per_device"}),
    row=row_of,
)
