"""Drafts of sentences: one for each action of a rank, before they are merged and numbered."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from paceline.algorithms.core.operations import Receive, Send
from paceline.algorithms.core.values import Group, Message, Rank
from paceline.algorithms.runtime.collective_matching import Collective, signature
from paceline.checking.counterexamples.recording import Moment, Request
from paceline.checking.counterexamples.story_model import Act, Sentence
from paceline.checking.counterexamples.wording import ranks


@dataclass(slots=True, eq=False)
class Draft:
    """A sentence whose number is not known yet; fields as in `Sentence`."""

    ranks: tuple[int, ...]
    words: str
    act: Act
    role: str
    step: int
    place: str
    time_s: float | None
    lane: str = ""
    label: str = ""
    to: tuple[int, ...] = ()
    sent: tuple[int, Draft] | None = None
    """of a receive: the sender, and the draft of its send"""
    before: tuple[str, ...] = ()
    """the words of the drafts that have been merged into this one"""
    decisive: bool = False
    """whether the action violates the guarantee, so that later ones do not matter"""
    part_of: Draft | None = None
    """the draft that it has been merged into"""

    @staticmethod
    def of(moment: Moment, words: str, act: Act, *, timed: bool, label: str = "", to: tuple[int, ...] = ()) -> Draft:
        """Returns the draft about what a rank did at a moment."""
        me = moment.me
        time_s = moment.time_s if timed else None
        return Draft((me.rank,), words, act, me.role, moment.step, moment.place, time_s, moment.lane, label, to)

    @property
    def whole(self) -> Draft:
        """The draft that contains this one after merging."""
        return self if self.part_of is None else self.part_of.whole


def numbered(drafts: Sequence[Draft]) -> tuple[Sentence, ...]:
    """Merges drafts that belong together, and numbers the sentences."""
    kept = merged(drafts)
    numbers = {draft: number for number, draft in enumerate(kept, start=1)}
    return tuple(_sentence(draft, numbers) for draft in kept)


def _sentence(draft: Draft, numbers: dict[Draft, int]) -> Sentence:
    words, sent_in = draft.words, None
    if draft.before:
        words = f"{', '.join(draft.before)} and {words}"
    if draft.sent is not None:
        source, send = draft.sent
        sent_in = (source, numbers[send.whole])
        words += f", sent in {sent_in[1]}"
    return Sentence(
        number=numbers[draft],
        ranks=draft.ranks,
        words=words,
        act=draft.act,
        role=draft.role,
        step=draft.step,
        place=draft.place,
        time_s=draft.time_s,
        label=draft.label,
        to=draft.to,
        sent_in=sent_in,
    )


def merged(drafts: Sequence[Draft]) -> list[Draft]:
    """Merges drafts of one rank that follow each other.

    These are equal messages of one line to several ranks, several started operations, and a gradient or a result with
    the action that follows.
    """
    kept: list[Draft] = []
    for draft in drafts:
        last = kept[-1] if kept else None
        if last is None or not _one_place(last, draft):
            kept.append(draft)
        elif last.act == "send" == draft.act and (last.label, last.place) == (draft.label, draft.place):
            last.to += draft.to
            last.words = f"{last.words.rpartition(' to ')[0]} to {ranks(last.to)}"
            draft.part_of = last
        elif (last.act, draft.act) in TOGETHER:
            draft.before = (*last.before, last.words)
            if last.act == draft.act == "start":
                draft.label = f"{last.label}, {draft.label}"
            last.part_of = draft
            kept[-1] = draft
        else:
            kept.append(draft)
    return kept


PRELIMINARY, NEXT = ("compute", "result"), ("send", "update", "start", "memory", "state")
TOGETHER = {*((one, other) for one in PRELIMINARY for other in NEXT), ("start", "start"), ("result", "result")}
"""the actions that one sentence describes if they follow each other"""


def _one_place(one: Draft, other: Draft) -> bool:
    """Whether two drafts are about the same rank, lane, step and time."""
    return (one.ranks, one.lane, one.step, one.time_s) == (other.ranks, other.lane, other.step, other.time_s)


@dataclass(slots=True)
class Mail:
    """Messages that have been sent and not received; first in, first out for each pair of ranks and tag."""

    waiting: defaultdict[tuple[Rank, Rank, str], deque[tuple[Draft, str]]] = field(
        default_factory=lambda: defaultdict(deque)
    )

    def send(self, source: Rank, op: Send, draft: Draft, name: str) -> None:
        """Adds a message.

        Args:
            source: the sender.
            op: its operation.
            draft: the sentence about it.
            name: what is sent.
        """
        self.waiting[source, op.to, op.tag].append((draft, name))

    def receive(self, rank: Rank, op: Receive, message: Message) -> tuple[int, Draft] | None:
        """Removes a message; returns its sender and the sentence about its sending, if there is one.

        Args:
            rank: the receiver.
            op: its operation.
            message: the answer.
        """
        queue = self.waiting[message.source, rank, op.tag]
        return (message.source, queue.popleft()[0]) if queue else None

    def unread(self) -> list[tuple[Rank, Rank, Draft, str]]:
        """Lists sender, receiver, sentence and name of every message that has not been received."""
        return [(source, to, draft, name) for (source, to, _), queue in self.waiting.items() for draft, name in queue]


@dataclass(slots=True)
class Entries:
    """The members that have entered each collective, in the order of each group and stream."""

    rooms: defaultdict[tuple[Group, str], list[dict[Rank, str]]] = field(default_factory=lambda: defaultdict(list))
    counts: defaultdict[tuple[Group, str, Rank], int] = field(default_factory=lambda: defaultdict(int))

    def enter(self, rank: Rank, op: Collective, lane: str) -> bool:
        """Notes that a rank enters its next collective of a group; returns whether it is the last member.

        Args:
            rank: the rank.
            op: the collective.
            lane: the lane whose order of collectives counts.
        """
        rooms, position = self.rooms[op.group, lane], self.counts[op.group, lane, rank]
        self.counts[op.group, lane, rank] += 1
        if position == len(rooms):
            rooms.append({})
        rooms[position][rank] = signature(op)
        return len(rooms[position]) == len(op.group)

    def missing(self, request: Request, op: Collective) -> list[Rank]:
        """Lists the members that have not entered the collective that a rank entered last.

        Args:
            request: the rank and its lane.
            op: the collective.
        """
        position = self.counts[op.group, request.lane, request.me.rank] - 1
        rooms = self.rooms[op.group, request.lane]
        return [rank for rank in op.group if not 0 <= position < len(rooms) or rank not in rooms[position]]
