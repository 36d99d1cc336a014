"""The papers and their claims. Each paper is a package, whose `claims.CLAIMS` is imported when a claim is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.naming import near_miss
from paceline.papers.core.claim import Claim

PAPERS = {
    "icmla17": "Cong and Bhardwaj, hierarchical bulk-synchronous SGD (ICMLA 2017)",
    "dbs": "Ji et al., DBS-SGD (Journal of Computer Research and Development, 2019)",
    "sc17": "You, Buluç and Demmel, EASGD on GPU and Knights Landing clusters (SC 2017)",
    "pnnl": "Daily et al., asynchronous layer-wise SGD (OpenReview rkFd2P5gl, 2016)",
    "hsgd": "Wang, Lu, Chen and Li, HSGD (IEICE Transactions E103-D, 2020)",
    "softsync": "Zhang, Gupta, Lian and Liu, staleness-aware asynchronous SGD (IJCAI 2016)",
}
"""titles by short name, in the order of the page; the module of a paper has its short name"""


def claims_of(paper: str) -> tuple[Claim, ...]:
    """Returns the claims of a paper.

    Args:
        paper: A key of `PAPERS`.
    """
    claims: tuple[Claim, ...] = import_module(f"paceline.papers.{paper}.claims").CLAIMS
    return claims


def claims_named(names: Sequence[str] = ()) -> tuple[Claim, ...]:
    """Returns the claims of some papers and claims, in the order of the page and without repetition.

    Args:
        names: Short names of papers and names of claims; all claims if empty.

    Raises:
        InputError: If names are unknown; with all of them.

    >>> [claim.paper for claim in claims_named(["softsync-staleness-1"])]
    ['softsync']
    """
    every = [claim for paper in PAPERS for claim in claims_of(paper)]
    known = [*PAPERS, *(claim.name for claim in every)]
    unknown = [name for name in dict.fromkeys(names) if name not in known]
    if unknown:
        papers = f"expected a paper ({', '.join(PAPERS)}) or a claim"
        raise InputError("\n".join(f"unknown name {name!r}{near_miss(name, known)}; {papers}" for name in unknown))
    return tuple(claim for claim in every if not names or claim.paper in names or claim.name in names)
