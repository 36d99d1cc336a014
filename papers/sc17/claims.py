"""The claims of `registry.PAPERS["sc17"]`."""

from __future__ import annotations

from paceline.papers.core.claim import Claim
from paceline.papers.sc17 import gpu, knl, learning, real_runs

CLAIMS: tuple[Claim, ...] = (*gpu.CLAIMS, *learning.CLAIMS, *knl.CLAIMS, *real_runs.CLAIMS)
