"""The claims of `registry.PAPERS["dbs"]`."""

from __future__ import annotations

from paceline.papers.claim import Claim

CLAIMS: tuple[Claim, ...] = ()
