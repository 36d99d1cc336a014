"""The claims of `registry.PAPERS["sc17"]`."""

from __future__ import annotations

from paceline.papers.claim import Claim

CLAIMS: tuple[Claim, ...] = ()
