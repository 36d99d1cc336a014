"""A story: sentences about what the ranks did, the values that differ at the end, and the rows of its diagram."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from paceline.checking.check_guarantees import Difference
from paceline.records.figures import SECONDS

DIGITS = 4
"""significant digits of times in a story: one more than elsewhere, so that neighbours differ; provenance: ours"""
Act = Literal[
    "compute", "send", "receive", "collective", "start", "update", "memory", "result", "wait", "state", "failure"
]


Shape = Literal["gap", "run", "box", "arrow", "mark"]
"""the shapes of the rows of a diagram"""


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
    def mark(self) -> tuple[Act, str]:
        """The kind of its mark in a diagram, which is that of a failure if it violates the guarantee, and its label."""
        label = self.label.removeprefix("✗ ")
        return (self.act if label == self.label else "failure"), label

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
    def timed(self) -> bool:
        """Whether the run has a clock."""
        return any(sentence.time_s is not None for sentence in self.sentences)

    @property
    def first_words(self) -> str:
        """What was found, in one line: the sentences contain the other lines of a deadlock."""
        return self.words.partition("\n")[0].rstrip(":")

    @property
    def gap(self) -> str:
        """A sentence about what is left out."""
        return f"({self.left_out} sentences are left out)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of the sequence diagram.

    Args:
        sentence: what the row shows; None for the row of sentences that are left out.
        first: the number of the first sentence of the row, which is smaller if a message is received at once.
        source: the sender of the message that is received.
        sent_at: the index of the row in which that message was sent; the row itself if it is received at once.
    """

    sentence: Sentence | None
    first: int = 0
    source: int | None = None
    sent_at: int = 0

    @property
    def shape(self) -> Shape:
        """An arrow of a message, a box of a collective, words about the whole run, or a mark beside one rank."""
        if self.sentence is None:
            return "gap"
        if not self.sentence.ranks:
            return "run"
        if self.sentence.act == "collective":
            return "box"
        return "mark" if self.source is None else "arrow"

    @property
    def numbers(self) -> str:
        """The numbers of its sentences."""
        if self.sentence is None:
            return ""
        return str(self.first) if self.first == self.sentence.number else f"{self.first}-{self.sentence.number}"

    @property
    def time(self) -> str:
        """The time of its sentence; empty without a clock."""
        seconds = None if self.sentence is None else self.sentence.time_s
        return "" if seconds is None else SECONDS.with_symbol(seconds, DIGITS)


def rows_of(story: Story) -> tuple[Row, ...]:
    """Returns the rows of a story's diagram. A message that is received at once has one row, else two."""
    return tuple(_rows(story))


def _rows(story: Story) -> Iterator[Row]:
    sent: dict[int, int] = {}
    at, sentences = 0, story.sentences
    skipped: Sentence | None = None
    for sentence, following in zip(sentences, (*sentences[1:], None), strict=True):
        if skipped is None and _received_at_once(sentence, following):
            skipped = sentence
            continue
        source, sent_at = sentence.sent_in or (None, 0)
        first = sentence.number if skipped is None else skipped.number
        row_sent = at if skipped is not None else sent.get(sent_at, at)
        yield Row(sentence=sentence, first=first, source=source, sent_at=row_sent)
        sent[sentence.number] = at
        at, skipped = at + 1, None
        if story.left_out and sentence.number == story.left_out_after:
            yield Row(sentence=None)
            at += 1


def _received_at_once(sentence: Sentence, following: Sentence | None) -> bool:
    if sentence.act != "send" or len(sentence.to) != 1 or following is None or following.sent_in is None:
        return False
    return following.sent_in[1] == sentence.number and sentence.time_s == following.time_s


def not_received(sentence: Sentence, story: Story) -> str:
    """Returns a label of the messages of a send that the story shows no receipt of; empty if there are none."""
    received = {other.ranks[0] for other in story.sentences if (other.sent_in or (0, 0))[1] == sentence.number}
    if not (to := [str(rank) for rank in sentence.to if rank not in received]):
        return ""
    return f"unread: {sentence.label} to {', '.join(to)}"
