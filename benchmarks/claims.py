"""Tests the accuracy claims of the papers on the digits in virtual time: direction, size and interval.

    python benchmarks/claims.py                                   # all claims, ten seeds
    python benchmarks/claims.py --only sc17-async-easgd agd-delay --seeds 4
    python benchmarks/claims.py --json
    python benchmarks/claims.py --write docs/results/claims.md    # the tables of that page

Each claim compares two methods in one setting. The learning rate of each method is chosen from one grid on separate
seeds (101, 102, …). Differences are then paired over the seeds 1, 2, …, with Student's 95 % interval. A claim that does
not hold is a result, not an error: the exit status is still 0. docs/results/claims.md lists the claims and how each is
tested.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console

from accuracy_claims.rendering import answer, markdown, parts, reasons, tables, write
from accuracy_claims.runs import Outcome, Piece, outcomes
from accuracy_claims.table import CLAIMS, Claim
from accuracy_claims.verdicts import Runs, Tested, tested, to_test, to_tune
from paceline.algorithms.core.errors import InputError
from paceline.reports.sweeps.parallel_tasks import cores

FIRST_TUNING_SEED = 101
NAMES = tuple(dict.fromkeys(claim.name for claim in CLAIMS))


def all_tested(claims: Sequence[Claim], *, seeds: int, tuning: int, jobs: int) -> list[Tested]:
    """Chooses the learning rates, then tests the claims.

    Args:
        claims: The claims to test.
        seeds: The number of test seeds, counted from 1.
        tuning: The number of seeds on which learning rates are chosen, counted from 101.
        jobs: The number of parallel processes.
    """
    found: dict[Piece, Outcome] = {}
    runs = Runs(found, range(FIRST_TUNING_SEED, FIRST_TUNING_SEED + tuning), range(1, seeds + 1))
    _run("tuning", (piece for claim in claims for piece in to_tune(claim, runs.tuning)), found, jobs)
    _run("testing", (piece for claim in claims for piece in to_test(claim, runs)), found, jobs)
    return [tested(claim, runs) for claim in claims]


def _run(stage: str, pieces: Iterable[Piece], found: dict[Piece, Outcome], jobs: int) -> None:
    """Runs the pieces that have no result yet."""
    todo = [piece for piece in dict.fromkeys(pieces) if piece not in found]
    for done, (piece, came) in enumerate(outcomes(todo, jobs=jobs), start=1):
        found[piece] = came
        if done % 100 == 0 or done == len(todo):
            print(f"{stage}: {done} of {len(todo)} runs", file=sys.stderr)


def note(names: Sequence[str], *, seeds: int, tuning: int) -> str:
    """Describes the seeds of the tables.

    >>> note(NAMES, seeds=10, tuning=3)
    'Seeds 1 to 10; rates chosen on seeds 101 to 103. A rate with * is at an end of its grid.'
    """
    last = FIRST_TUNING_SEED + tuning - 1
    chosen = f"seeds {FIRST_TUNING_SEED} to {last}" if tuning > 1 else f"seed {FIRST_TUNING_SEED} alone"
    said = f"Seeds 1 to {seeds}; rates chosen on {chosen}. A rate with * is at an end of its grid."
    missing = [name for name in NAMES if name not in names]
    return f"{said} Left out: {', '.join(missing)}." if missing else said


def main() -> int:
    """Tests the claims and prints the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES, metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--seeds", type=int, default=10, help="number of test seeds")
    parser.add_argument("--tuning", type=int, default=3, help="number of seeds to choose learning rates")
    parser.add_argument("--jobs", type=int, default=cores(), help="parallel processes")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    parser.add_argument("--markdown", action="store_true", help="as on the page")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="into a page, between its marks")
    options = parser.parse_args()
    if options.seeds < 2 or options.tuning < 1 or options.jobs < 1:
        parser.error("expected --seeds of 2 or more, --tuning and --jobs of 1 or more")
    if options.write:
        try:
            parts(options.write)  # checked before the runs, which take long
        except InputError as error:
            parser.error(str(error))
    claims = [claim for claim in CLAIMS if claim.name in options.only]
    found = all_tested(claims, seeds=options.seeds, tuning=options.tuning, jobs=options.jobs)
    of = note(options.only, seeds=options.seeds, tuning=options.tuning)
    text = markdown(found, of)
    if options.write:
        write(options.write, text)
    elif options.json:
        print(json.dumps({"seeds": options.seeds, "tuning": options.tuning, "claims": list(map(answer, found))}))
    elif options.markdown:
        print(text)
    else:
        _show(found, note(NAMES, seeds=options.seeds, tuning=options.tuning))
    return 0


def _show(found: Sequence[Tested], words: str) -> None:
    """Prints the tables."""
    console = Console()
    console.print(words)
    for table in tables(found):
        console.print(table)
    for one in found:
        if one.verdict != "holds":
            print(f"{one.claim.name}, {one.claim.ours.setting.name}: {' '.join(reasons(one))}")


if __name__ == "__main__":
    sys.exit(main())
