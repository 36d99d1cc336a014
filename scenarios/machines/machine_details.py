"""Parts of a machine file: the origin of figures, the law of gradient times, rates, and how long processes start."""

from __future__ import annotations

from pydantic import Field

from paceline.scenarios.values import fields
from paceline.scenarios.values.section import Part


class OriginPart(Part):
    """Where imported figures come from; figures without an origin were measured by `paceline calibrate`."""

    file: str = Field(description="the name of the imported file")
    tool: str = Field(description="the program that wrote it: 'nccl-tests all_reduce'")
    version: str = Field(default="", description="the version of the program, if the file contains it")
    details: str = Field(default="", description="devices and settings that the file contains")
    notes: tuple[str, ...] = Field(
        default=(), description="what was assumed or left out when the file was read; printed by `simulate`"
    )


class FitPart(Part):
    """A law that was fitted to gradient times."""

    law: fields.StepTimeLaw = Field(description="the law with the parameters of the highest likelihood")
    statistic: fields.Share = Field(
        description="the largest distance to the measured distribution (Kolmogorov-Smirnov)"
    )
    p_value: fields.Share = Field(description="the share of samples of this law, fitted again, with a larger distance")


class RatePart(Part):
    rate: fields.Rate = Field(description="the median of the rounds: '8 GB/s'")
    low: fields.Rate | None = Field(default=None, description="that of the slowest round")
    high: fields.Rate | None = Field(default=None, description="that of the fastest round")


class RatesPart(Part):
    update: RatePart | None = Field(default=None, description="bytes of weights that an update changes per second")
    copy_in_cache: RatePart | None = Field(
        default=None, description="bytes of a vector of the size of the weights that one core copies per second"
    )
    copy_in_memory: RatePart | None = Field(
        default=None, description="bytes of a vector larger than the caches that one core copies per second"
    )


class StartPart(Part):
    """How long the processes of a run need until the first step."""

    time: fields.Time = Field(description="the median of the launches")
    low: fields.Time | None = Field(default=None, description="the shortest launch")
    high: fields.Time | None = Field(default=None, description="the longest launch")
