"""Injects faults into real runs: kills or stops ranks at random moments, and checks how the run ends or continues.

    python benchmarks/faults.py                       # 222 runs with a fault, 40 killed and resumed: 25 minutes
    python benchmarks/faults.py --runs 40 --resumed 0 --seed 7
    python benchmarks/faults.py --case 31             # one run with a fault again
    python benchmarks/faults.py --runs 0 --resumed 100

Runs with a fault: the methods take turns. The fault (SIGKILL, SIGTERM, SIGSTOP, or SIGSTOP with a SIGCONT half a second
later), the rank and the moment, from the start of its process to after the end of the run, follow from the seed and the
number of the case. After each run these conditions are checked: it ended within the promised time; the run continued
without a worker that its method tolerates to lose, and reported any other death with the rank's name; no process, no
file in shared memory and no namespace remains; the record can be read; all other ranks reached the end.

Killed and resumed runs of deterministic methods: the result must be bit for bit that of an undisturbed run
(`fault_injection/resuming.py`).

The exit status is 1 if a check failed. Each failed case is printed with the command that runs it alone.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import torch

from common.harness import Answer, run_command, say, table
from fault_injection import resuming
from fault_injection.cases import CHECKS, FAULTS, Case, Happened, draw, happened
from paceline.algorithms import METHODS

RUNS, RESUMED = 222, 40
"""six of each method, and the killed and resumed runs"""


def examined(case: Case) -> tuple[Happened, list[str], str]:
    """Runs a case and returns what happened, the failed checks, and a label."""
    with tempfile.TemporaryDirectory(prefix="paceline-faults-", dir="/dev/shm") as name:
        what = happened(case, Path(name))
        wrong = []
        for check in CHECKS:
            try:
                wrong += check(what)
            except Exception as error:  # for example a record that cannot be read
                wrong.append(f"{check.__name__} failed: {type(error).__name__}: {error}")
        return what, wrong, "wrong" if wrong else called(what)


def called(what: Happened) -> str:
    """Classifies the outcome of a run without failed checks."""
    assert what.reported is not None
    if what.reported["error"] is not None:
        return "before the start" if "before the start" in what.reported["error"] else "ended, named"
    survived = what.case.fault != "SIGSTOP, SIGCONT" and what.hit_s is not None and what.hit_s < what.reported["end_s"]
    return "survived" if survived else "unharmed"


def struck(numbers: Sequence[int], seed: int) -> Answer:
    """Runs the cases with these numbers."""
    counts, failed, delays_s = Counter[tuple[str, str, str]](), [], []
    for number in numbers:
        case = draw(number, seed)
        what, wrong, name = examined(case)
        counts[case.method, case.fault, name] += 1
        if what.hit_s is not None and name == "ended, named":
            delays_s.append(what.ended_s - what.hit_s)
        say("\n    ".join([f"{case}: {name}", *wrong]))
        if wrong:
            again = f"--seed {seed} --case {number}"
            failed.append({"case": number, "fault": str(case), "wrong": wrong, "again": again})
    cells = {"method": "method", **{fault: _outcomes(counts, fault) for fault in FAULTS}}
    rows = [{"method": name} for name in METHODS if any(name == method for method, _, _ in counts)]
    said = f"{len(numbers)} runs, {len(failed)} of them wrong"
    after_s = {"median": median(delays_s), "max": max(delays_s)} if delays_s else None
    if after_s is not None:
        said += f"; one that ended did so {after_s['median']:.2f} s after the fault, {after_s['max']:.2f} s at most"
    outcomes = [{"method": m, "fault": f, "outcome": o, "runs": n} for (m, f, o), n in sorted(counts.items())]
    figures = {"runs": len(numbers), "failed": failed, "ended_after_s": after_s, "rows": outcomes}
    return Answer(figures, [table("Outcomes of runs with a fault", rows, cells), said], not failed)


def _outcomes(counts: Counter[tuple[str, str, str]], fault: str) -> Any:
    def cell(row: dict[str, Any]) -> str:
        key = row["method"], fault
        return ", ".join(f"{runs} {outcome}" for (*of, outcome), runs in sorted(counts.items()) if (*of,) == key)

    return cell


def resumed(count: int, seed: int) -> Answer:
    """Kills and resumes runs."""
    findings = []
    for number in range(count):
        finding = resuming.check(resuming.draw(number, seed))
        findings.append(finding)
        step = "no checkpoint" if finding.checkpoint is None else f"step {finding.checkpoint}"
        say(f"{number:4} {finding.case}: {finding.outcome}, {step}, gone in {finding.gone_s:.1f} s")
    counts = Counter(finding.outcome for finding in findings)
    said = "killed and resumed: " + ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common())
    figures = {"counts": counts, "findings": [asdict(finding) for finding in findings]}
    return Answer(figures, [said], not any(counts[wrong] for wrong in resuming.WRONG))


def body(options: argparse.Namespace) -> Answer:
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)  # before anything is forked
    alone = options.case is not None
    numbers = [options.case] if alone else range(options.runs)
    answers = {}
    if numbers:
        answers["faults"] = struck(numbers, options.seed)
    if options.resumed and not alone:
        answers["resumed"] = resumed(options.resumed, options.seed)
    figures = {name: answer.figures for name, answer in answers.items()}
    shown = [part for answer in answers.values() for part in answer.shown]
    return Answer({"seed": options.seed, **figures}, shown, all(answer.right for answer in answers.values()))


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=RUNS, help=f"with a fault (default: {RUNS}, six of each method)")
    parser.add_argument("--resumed", type=int, default=RESUMED, help="killed and resumed (default: %(default)s)")
    parser.add_argument("--case", type=int, help="only this run with a fault")
    parser.add_argument("--seed", type=int, default=1)


if __name__ == "__main__":
    sys.exit(run_command(__doc__, body, add_options))
