"""Tells the story of a violation: runs its case again and records what every rank does."""

from __future__ import annotations

import dataclasses
import warnings
from bdb import BdbQuit

from paceline.checking.cases import Case, Violation, performed
from paceline.checking.cases.performing import Outcome
from paceline.checking.counterexamples.differing_values import differing_values
from paceline.checking.counterexamples.drafts import numbered
from paceline.checking.counterexamples.focus import Focus
from paceline.checking.counterexamples.recording import Record
from paceline.checking.counterexamples.sentences import Drafting
from paceline.checking.counterexamples.story_model import DIGITS, Difference, Sentence, Story
from paceline.records.figures import SECONDS

MOST_SENTENCES = 120
"""more sentences are left out in the middle; provenance: ours, 3 ranks and 5 steps give at most 100"""
SHOWN_AT_START = 40
"""sentences before those that are left out"""


def story(violation: Violation) -> Story:
    """Runs the case of a violation again and describes it.

    Args:
        violation: the violated guarantee, with the case that shows it.

    >>> from paceline.algorithms import find
    >>> case = Case(method=find("async-sgd")(), nodes=(1,), steps=1)
    >>> told = story(Violation(guarantee="example", words="nothing is wrong", case=case))
    >>> for sentence in told.sentences[:3]:
    ...     print(sentence.number, sentence.subject, sentence.words)
    1 rank 0 (worker), step 0 computes a gradient at version 0 and sends Push to rank 1
    2 rank 1 (server), step 0 receives Push from rank 0, sent in 1
    3 rank 1 (server), step 0 applies update 0 with rank 0's gradient of step 0 from version 0 (staleness 0)
    """
    return story_of(violation, *recorded(violation.case))


def story_of(violation: Violation, outcome: Outcome, record: Record) -> Story:
    """Describes a run of the case of a violation.

    Args:
        violation: the violated guarantee.
        outcome: the run.
        record: its operations.
    """
    found = differing_values(violation.guarantee, outcome, record)
    timed, tells_ends = violation.case.times is not None, bool(violation.case.stops or outcome.error)
    drafting = Drafting(
        record, outcome.job, Focus(found.element, found.update, found.digits), timed=timed, tells_ends=tells_ends
    )
    drafts = drafting.all(outcome.error)
    decisive = next((at for at, draft in enumerate(drafts) if draft.decisive), len(drafts) - 1)
    sentences = numbered(drafts[: decisive + 1])
    unread = tuple(
        Difference(what=f"message {name} of rank {source} to rank {to}", values=(("received", "never"),))
        for source, to, _, name in drafting.mail.unread()
        if "message" in violation.guarantee
    )
    shown, left_out = _shortened(sentences)
    return Story(
        method=violation.case.method.name,
        guarantee=violation.guarantee,
        words=violation.words,
        setting=_setting(violation.case),
        ranks=tuple((int(me.rank), me.role) for me in outcome.job.team),
        sentences=shown,
        left_out=left_out,
        left_out_after=SHOWN_AT_START if left_out else 0,
        differences=(*found.differences, *unread),
    )


def recorded(case: Case) -> tuple[Outcome, Record]:
    """Runs a case and records the operations of its programs."""
    record = Record()

    def read_clock(run: object) -> None:
        environment = run.env  # type: ignore[attr-defined]
        record.clock = lambda: float(environment.now)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the user's program; they were shown when the violation was found
        outcome = performed(dataclasses.replace(case, method=record.of(case.method)), simulation=read_clock)
    if isinstance(outcome.error, BdbQuit):  # the user has left the debugger
        raise outcome.error
    return dataclasses.replace(outcome, case=case, job=case.job()), record


def _shortened(sentences: tuple[Sentence, ...]) -> tuple[tuple[Sentence, ...], int]:
    """Leaves out sentences in the middle of a long story; returns the others and how many are missing."""
    if len(sentences) <= MOST_SENTENCES:
        return sentences, 0
    at_end = MOST_SENTENCES - SHOWN_AT_START
    return (*sentences[:SHOWN_AT_START], *sentences[-at_end:]), len(sentences) - MOST_SENTENCES


def _setting(case: Case) -> str:
    """Describes the ranks, steps and interpreter of a case."""
    workers = f"{case.workers} worker{'s' * (case.workers != 1)}"
    if len(case.nodes) > 1 and case.workers > 1:
        workers += f" on nodes of {', '.join(map(str, case.nodes))}"
    server = " and a server" if case.method.has_server else ""
    steps = f"{case.steps} step{'s' * (case.steps != 1)}"
    batches = f"batches {', '.join(map(str, case.batch_of_each))}" if case.batches else f"batch {case.batch}"
    words = f"{workers}{server}, {steps} of {batches}, seed {case.seed}"
    if case.times is None:
        words += ", in any order"
    else:
        compute = ", ".join(SECONDS.text(seconds, DIGITS) for seconds in case.times.compute_s)
        latency = SECONDS.with_symbol(case.times.latency_s, DIGITS)
        words += f", simulated: gradients of {compute} s, latency {latency}"
    if not case.gradients:
        words += ", all gradients 0"
    if case.stops:
        words += f", stopped and entered again at step {', '.join(map(str, case.stops))}"
    if case.deaths:
        words += "".join(f", rank {rank} dies at move {move}" for rank, move in case.deaths)
    hyper = [
        f"{field.name}={getattr(case.method, field.name)!r}"
        for field in dataclasses.fields(case.method)
        if getattr(case.method, field.name) != field.default and field.default is not dataclasses.MISSING
    ]
    return f"{words}{'; ' if hyper else ''}{', '.join(hyper)}."
