"""The JSON answer of ``paceline check`` for one method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from paceline.algorithms import reference
from paceline.checking.cases import Checked, to_json


def check_answer(found: Checked, files: Mapping[str, Path]) -> dict[str, Any]:
    """Returns the JSON answer for one method.

    Args:
        found: the verdicts.
        files: the files of counterexamples by guarantee.
    """
    return {
        "algorithm": reference(type(found.method)),
        "schedules": found.schedules,
        "seconds": found.seconds,
        "guarantees": [
            {
                "name": one.guarantee,
                "description": one.words,
                "verdict": one.verdict,
                "schedules": one.schedules,
                "seconds": one.seconds,
                "worst": None if one.worst is None else asdict(one.worst),
                "words": None if one.violation is None else one.violation.words,
                "counterexample": str(files[one.guarantee]) if one.guarantee in files else None,
            }
            for one in found.verdicts.values()
        ],
        "hyper_parameters": {name: [str(one) for one in values] for name, values in found.hyper_parameters.items()},
        "not_checked": [{"name": name, "needs": needs} for name, needs in found.not_checked.items()],
        "extremes": [{**asdict(measured), "case": to_json(case)} for measured, case in found.extremes.values()],
        "explored": [asdict(one) for one in getattr(found, "explored", ())],
    }
