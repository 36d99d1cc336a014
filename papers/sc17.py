"""The claims of `registry.PAPERS["sc17"]`."""

from __future__ import annotations

from paceline.papers import sc17_gpu, sc17_knl, sc17_learning, sc17_real
from paceline.papers.claim import Claim

CLAIMS: tuple[Claim, ...] = (*sc17_gpu.CLAIMS, *sc17_learning.CLAIMS, *sc17_knl.CLAIMS, *sc17_real.CLAIMS)
