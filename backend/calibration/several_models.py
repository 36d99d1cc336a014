"""One machine of the calibrations of several models, which share the costs of messages and collectives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from paceline.scenarios.machine_file import BytesPart, CurvePart, MachinePart, ModelPart, OriginPart


@dataclass(slots=True)
class _Curve:
    """A curve of several calibrations."""

    first: CurvePart
    points: dict[int, list[BytesPart]] = field(default_factory=dict)


def joined(machines: Sequence[MachinePart]) -> MachinePart:
    """Returns one machine with the models of several calibrations.

    Curves are joined: a size that several calibrations measured takes the mean of their times. The verdicts of all are
    kept, each with its model. Rates and start-up are those of the first model.

    Args:
        machines: one calibration of each model, with the same ranks and threads.
    """
    first, *others = machines
    if not others:
        return first
    verdicts = [f"{one.model}: {one.made.verdict}" for one in machines]
    made = first.made.model_copy(
        update={
            "verdict": "\n".join(verdicts),
            "seconds": sum(one.made.seconds for one in machines),
            "other_load": max(one.made.other_load for one in machines),
        }
    )
    origins: dict[OriginPart, None] = dict.fromkeys(origin for one in machines for origin in one.imported)
    return first.model_copy(
        update={
            "made": made,
            "costs": _joined_curves([curve for one in machines for curve in one.costs]),
            "imported": tuple(origins),
            "models": tuple(
                ModelPart.model_construct(model=one.model, own=one.own, gradients=one.gradients) for one in others
            ),
        }
    )


def _joined_curves(curves: Sequence[CurvePart]) -> tuple[CurvePart, ...]:
    found: dict[tuple[str, int, bool, int], _Curve] = {}
    for curve in curves:
        key = curve.operation, curve.ranks, curve.shared_memory, curve.hosts
        one = found.setdefault(key, _Curve(curve))
        for point in curve.points:
            one.points.setdefault(point.bytes, []).append(point)
    return tuple(
        one.first.model_copy(
            update={
                "points": tuple(
                    BytesPart.model_construct(bytes=nbytes, time=sum(point.time for point in same) / len(same))
                    for nbytes, same in sorted(one.points.items())
                )
            }
        )
        for one in found.values()
    )
