"""The base class of all sections of a scenario."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, model_validator


class Part(BaseModel):
    """A section of a scenario: frozen, and without other keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    @model_validator(mode="before")
    @classmethod
    def _empty(cls, value: object) -> object:
        return {} if value is None else value  # in YAML, a section whose keys are all left out is null
