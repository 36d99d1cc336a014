"""The parts of a story: sentences about what the ranks do, and the values that differ at the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from paceline.records.figures import SECONDS

DIGITS = 4
"""significant digits of times in a story: one more than elsewhere, so that neighbours differ; provenance: ours"""
Act = Literal[
    "compute", "send", "receive", "collective", "start", "update", "memory", "result", "wait", "state", "failure"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """One numbered sentence.

    Args:
        number: from 1, in the order of the run.
        ranks: the rank that acts first; all members of a collective that completes. Empty for the run as a whole.
        role: of the first rank.
        step: of the first rank.
        words: what it does, without the subject, such as ``sends Push to rank 2``.
        place: the program line, as ``path:line in function``; empty if there is none.
        time_s: virtual time in seconds; None in an any-order run, which has no clock.
        act: the kind of action.
        label: a few words for diagrams.
        to: of a send: the receivers.
        sent_in: of a receive: the sender and the number of the sentence in which the message was sent.

    >>> Sentence(number=2, ranks=(0,), role="worker", step=3, words="sends Push to rank 2", act="send").text
    '2. rank 0 (worker), step 3: sends Push to rank 2'
    """

    number: int
    ranks: tuple[int, ...]
    words: str
    act: Act
    role: str = ""
    step: int = 0
    place: str = ""
    time_s: float | None = None
    label: str = ""
    to: tuple[int, ...] = ()
    sent_in: tuple[int, int] | None = None

    @property
    def subject(self) -> str:
        """The rank, its role and its step."""
        return f"rank {self.ranks[0]} ({self.role}), step {self.step}" if self.ranks else "the run"

    @property
    def line(self) -> str:
        """The program line without the folder of the file, such as ``elastic.py:98 in server``."""
        return self.place.rpartition("/")[2]

    @property
    def text(self) -> str:
        """The sentence in one line."""
        time = "" if self.time_s is None else f"at {SECONDS.with_symbol(self.time_s, DIGITS)}, "
        line = f"  [{self.line}]" if self.line else ""
        return f"{self.number}. {time}{self.subject}: {self.words}{line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Values that the violated guarantee compares.

    >>> Difference(what="weights[0]", values=(("rank 0", "0.1"), ("rank 1", "0.2"))).text
    'weights[0]: rank 0 0.1, rank 1 0.2'
    """

    what: str
    values: tuple[tuple[str, str], ...]

    @property
    def text(self) -> str:
        """The difference in one line."""
        return f"{self.what}: " + ", ".join(f"{name} {value}".strip() for name, value in self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """A run that violates a guarantee, in sentences.

    Args:
        method: the name of the method.
        guarantee: the name of the guarantee.
        words: what was found, and what is right.
        setting: the ranks, steps and interpreter of the run.
        ranks: every rank with its role, in order.
        sentences: the actions, in the order of the run.
        left_out: the number of sentences in the middle of a long run that are left out.
        left_out_after: the number of the last sentence before them.
        differences: the values that differ at the end.
    """

    method: str
    guarantee: str
    words: str
    setting: str
    ranks: tuple[tuple[int, str], ...]
    sentences: tuple[Sentence, ...]
    left_out: int = 0
    left_out_after: int = 0
    differences: tuple[Difference, ...] = ()

    @property
    def first_words(self) -> str:
        """What was found, in one line: the sentences contain the other lines of a deadlock."""
        return self.words.partition("\n")[0].rstrip(":")

    @property
    def gap(self) -> str:
        """A sentence about what is left out."""
        return f"({self.left_out} sentences are left out)"
