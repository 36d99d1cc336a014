"""The rows of a sequence diagram, which the text and the SVG have in common."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from paceline.checking.counterexamples.story_model import Sentence, Story


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row: an arrow if it has a source, a box if it has several ranks, else a note beside one rank.

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
    def numbers(self) -> str:
        """The numbers of its sentences."""
        if self.sentence is None:
            return ""
        return str(self.first) if self.first == self.sentence.number else f"{self.first}-{self.sentence.number}"


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
