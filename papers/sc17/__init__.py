"""The claims of You, Buluç and Demmel on GPU and Knights Landing clusters: times, learning, weak scaling, groups."""

from paceline.papers.claim import Claim
from paceline.papers.sc17 import gpu, knl, learning

CLAIMS: tuple[Claim, ...] = (*gpu.CLAIMS, *learning.LEARNED, *knl.CLAIMS, *learning.REAL)
